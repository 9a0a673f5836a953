// kernelwright worker and a host that has no compiler of its own, each a process, on a real Redis and with the real
// NVRTC.
#include <sys/stat.h>

#include <optional>
#include <set>

#include "cli/command_fixture.h"
#include "cli/compile_jobs.h"
#include "kernelwright/generator/source/read_spec.h"
#include "kernelwright/generator/source/specialize.h"
#include "support/local_server.h"
#include "support/signing.h"

namespace kernelwright::worker_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Worker : public Command {
 protected:
  void SetUp() override {
    KERNELWRIGHT_NEEDS_REDIS();
    port_ = test::free_port();
    server_.emplace(test::redis_words(port_), port_);
    ASSERT_TRUE(server_->ready());
    chmod(write("key.pem", test::kSigningPem).c_str(), 0600);
    chmod(write("key.pub", test::kPublicPem).c_str(), 0644);
  }
  std::string address() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  /// What a GPU node has in its environment: the server, the public key, and a cache of its own.
  std::string as_node() const {
    return "KERNELWRIGHT_COMPILE_IN=hosts KERNELWRIGHT_REMOTE_KEYS=" + path("key.pub") +
           " KERNELWRIGHT_CACHE_DIR=" + path("node") + " KERNELWRIGHT_REMOTE=" + address() + " ";
  }
  int port_ = 0;
  std::optional<test::LocalServer> server_;
};

// What a request is made of: a worker makes the same source of the Spec's text, for every kernel that is shipped.
TEST(WorkerRequests, TheSpecsOfAllShippedConfigsAreReadBackFromTheirTexts) {
  cli::Options options;
  options.configs = {(test::source_dir() / "configs" / "problems").string()};
  for (const ArchInfo& arch : all_archs()) options.archs.emplace_back(arch.name);
  cli::Configs configs = cli::read_configs(options);
  std::set<std::string> kernels;
  for (const cli::CompileJob& job : cli::plan_jobs(configs, options)) {
    const SourceUnit unit = specialize(job.spec);
    const std::optional<Spec> read = read_spec(unit.kernel, unit.spec_text);
    EXPECT_EQ(read.has_value(), unit.sources.empty()) << job.named->name() << "\n" << unit.spec_text;
    if (!read) continue;
    kernels.insert(unit.kernel);
    const SourceUnit again = specialize(*read);
    EXPECT_EQ(again.spec_header, unit.spec_header);
    EXPECT_EQ(again.options, unit.options);
    EXPECT_EQ(again.closure, unit.closure);
  }
  EXPECT_GE(kernels.size(), 15u);
}

// The emulator runs what came, and `run` compares it with the fp64 reference.
TEST_F(Worker, AHostWithoutACompilerRunsTheRightKernel) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string shell =
      R"sh("$0" worker --remote )sh" + address() + " --remote-signing-key " + path("key.pem") + R"sh( --jobs 1 >)sh" +
      path("log") + R"sh( 2>)sh" + path("errors") + R"sh( & worker=$!; )sh" + as_node() +
      R"sh("$0" "$@"; code=$?; )sh" + as_node() +
      R"sh("$0" doctor --remote; kill $worker; wait $worker; echo "worker ended with $?"; exit $code)sh";
  const CommandResult result =
      run_in_shell(shell, {"run", write("a.json", config()), "--device", "emulator", "--arch", "sm_90a"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("workers of other hosts build for sm_80"), HasSubstr("worker ended with 0")));
  std::ifstream log(path("log"));
  const std::string lines{std::istreambuf_iterator<char>(log), {}};
  EXPECT_THAT(lines, AllOf(HasSubstr("built   attention_"), HasSubstr(" for sm_90a, "), HasSubstr("kw2/sm_90a/any-")));
}

TEST_F(Worker, WithoutAWorkerTheMessageSaysWhatIsMissing) {
  const CommandResult result =
      run_in_shell(as_node() + R"sh(exec "$0" "$@")sh", {"compile", write("a.json", config()), "--arch", "sm_80"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("no worker for sm_80 is there"), HasSubstr("kernelwright worker")));
}

TEST_F(Worker, EndsByItselfWithoutRequests) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult result =
      run({"worker", "--remote", address(), "--remote-signing-key", path("key.pem"), "--idle-exit", "0.1s"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("worker: requests of " + address() + ", NVRTC 1"));
}

TEST_F(Worker, RefusesWhatItCannotUse) {
  expect_refused({"worker"}, {"remote: names no server"});
  expect_refused({"worker", "--remote", "ftp://x"}, {"its scheme is unknown"});
  expect_refused({"worker", "--remote", address(), "--remote-signing-key", path("no.pem")}, {"no.pem"});
  expect_refused({"worker", "--remote", address(), "--arch", "sm_1"}, {"sm_1"});
  expect_refused({"worker", "--remote", address(), "--idle-exit", "soon"}, {"--idle-exit"});
}

}  // namespace
}  // namespace kernelwright::worker_test
