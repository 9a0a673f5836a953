// The command while another process compiles the same kernel. Here the test's process holds the key's lock.
#include <chrono>

#include "command_fixture.h"
#include "kernelwright/runtime/cache/file_lock.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;
using LockWait = Command;

Digest digest_of(const std::string& hex) {
  Digest digest;
  for (std::size_t i = 0; i < digest.bytes.size(); ++i)
    digest.bytes[i] = static_cast<unsigned char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
  return digest;
}

TEST_F(LockWait, IsSaidAndBoundedAndIsNoKernelsTime) {
  if (!has_compiler()) GTEST_SKIP() << "no NVRTC";
  const LockDirectory directory;
  if (directory.kind() == LockKind::kNone) GTEST_SKIP() << directory.status();
  const std::string file = write("tiny.json", gemm_config());
  const auto compile = [&](const char* seconds) {
    return run({"compile", file, "--arch", "sm_90a", "--lock-timeout", seconds, "--json"});
  };
  const CommandResult first = compile("60");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.err, "");
  const auto key_at = first.out.find("\"key\": \"");
  ASSERT_NE(key_at, std::string::npos) << first.out;
  ASSERT_EQ(run({"cache", "clear"}).exit_code, 0);

  FileLock lock;
  ASSERT_EQ(lock.acquire(directory, digest_of(first.out.substr(key_at + 8, 64)), 1000), LockOutcome::kHeld);
  const auto begin = std::chrono::steady_clock::now();
  const CommandResult second = compile("2");
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("another process is compiling it, and is waited for; for 2 s at most "
                                    "(--lock-timeout)"));
  EXPECT_GT(elapsed.count(), 2000);
  const auto time_at = second.out.rfind("\"milliseconds\": ");
  ASSERT_NE(time_at, std::string::npos) << second.out;  // the last is the kernel's, the first the whole command's
  EXPECT_LT(std::stod(second.out.substr(time_at + 16)), elapsed.count() - 1900);
}

}  // namespace
}  // namespace kernelwright
