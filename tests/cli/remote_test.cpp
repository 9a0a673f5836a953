// The command and a remote cache: a Redis of this test, a builder with a signing key, and hosts with the public key.
#include <sys/stat.h>

#include <optional>

#include "cli/command_fixture.h"
#include "kernelwright/runtime/cache/signature.h"
#include "support/local_server.h"
#include "support/signing.h"

namespace kernelwright::remote_test {
namespace {

using testing::HasSubstr;
using testing::Not;

class RemoteOptions : public Command {
 protected:
  void SetUp() override {
    KERNELWRIGHT_NEEDS_REDIS();
    if (!can_sign()) GTEST_SKIP() << "libsodium-dev is missing";
    start();
    const std::string key = write("key.pem", test::kSigningPem);
    chmod(key.c_str(), 0600);
    chmod(write("key.pub", test::kPublicPem).c_str(), 0644);
    builder_ = {"--remote-signing-key", key};
    reader_ = {"--remote-key", path("key.pub")};
  }
  void start() {
    const int port = test::free_port();
    server_.emplace(test::redis_words(port, {"--requirepass", "sesame"}), port);
    ASSERT_TRUE(server_->ready());
  }
  std::string address() const { return "redis://:sesame@127.0.0.1:" + std::to_string(server_->port()); }
  /// Runs a verb as a host with a cache directory of its own.
  CommandResult run_as(const std::string& host, const std::vector<std::string>& key, std::vector<std::string> words) {
    words.insert(words.end(), {"--cache-dir", path(host), "--remote", address()});
    words.insert(words.end(), key.begin(), key.end());
    CommandResult result = run(words);
    EXPECT_THAT(result.out + result.err, Not(HasSubstr("sesame")));
    return result;
  }
  /// The number of kernels that `compile` had to compile.
  std::int64_t compiled_by(const std::string& host, const std::vector<std::string>& key) {
    const CommandResult result =
        run_as(host, key, {"compile", write("one.json", gemm_config()), "--arch", "sm_90a", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return JsonValue::parse(result.out).at("/compiled").as_int();
  }

  std::optional<test::LocalServer> server_;
  std::vector<std::string> builder_, reader_;
};

TEST_F(RemoteOptions, OneHostCompilesAndOthersTakeItsKernels) {
  KERNELWRIGHT_NEEDS_COMPILER();
  EXPECT_GT(compiled_by("builder", builder_), 0);
  EXPECT_EQ(compiled_by("reader", reader_), 0);
  const CommandResult why =
      run_as("other", reader_, {"cache", "why", write("one.json", gemm_config()), "--arch", "sm_90a"});
  EXPECT_THAT(why.out, HasSubstr("has it   remote: redis://127.0.0.1:"));
  start();  // an empty one, which a builder with a warm disk fills
  EXPECT_EQ(compiled_by("builder", builder_), 0);
  EXPECT_EQ(compiled_by("next", reader_), 0);
}

TEST_F(RemoteOptions, DoctorProvesTheServer) {
  EXPECT_THAT(run_as("host", builder_, {"doctor"}).out, HasSubstr("a value was put, read, proved and removed"));
  EXPECT_THAT(run_as("host", reader_, {"doctor"}).out, HasSubstr("nothing is written without a signing key"));
  const CommandResult of_environment = run({"doctor", "--remote"}, {"KERNELWRIGHT_REMOTE=" + address()});
  EXPECT_THAT(of_environment.out, HasSubstr("a value was put, read, proved and removed"));
  server_->end();
  const CommandResult gone = run_as("host", reader_, {"doctor"});
  EXPECT_EQ(gone.exit_code, 3);
  EXPECT_THAT(gone.out, HasSubstr("failed; get: cannot connect"));
}

TEST_F(RemoteOptions, AreRefusedByName) {
  const std::string file = write("one.json", gemm_config());
  const auto refused = [&](std::vector<std::string> options, const std::string& why) {
    options.insert(options.begin(), {"compile", file, "--arch", "sm_90a"});
    expect_refused(options, {why});
  };
  refused({"--remote", "ftp://x"}, "--remote: the address cannot be used: its scheme is unknown");
  refused({"--remote", "redis://cache.example"},
          "--remote: no public key is given, and the server is not on this host");
  refused({"--remote-key", path("key.pub")},
          "--remote-key: no server is named; --remote or $KERNELWRIGHT_REMOTE would do");
  refused({"--remote-signing-key", path("key.pem")}, "--remote-signing-key: no server is named");
  refused({"--remote-ca", path("ca.pem")}, "--remote-ca: no server is named");
  refused({"--remote-certificate-key", path("key.pem")}, "--remote-certificate-key: no server is named");
  for (const char* option : {"--remote-ca", "--remote-certificate"})
    refused({"--remote", "https://127.0.0.1", option, path("none.pem")}, "none.pem: cannot be read");
  refused({"--remote", "https://127.0.0.1", "--remote-certificate-key", path("key.pem")},
          "--remote: a certificate's key is given without the certificate");
  refused({"--remote", "http://127.0.0.1", "--remote-ca", path("key.pub")},
          "--remote: certificates are given, and only a server at https:// has a use for them");
  refused({"--remote", address(), "--remote-key", path("none.pub")}, "none.pub: cannot be read");
  chmod(path("key.pem").c_str(), 0644);
  refused({"--remote", address(), "--remote-signing-key", path("key.pem")},
          "is readable by others (mode 0644); chmod 600 it");
}

}  // namespace
}  // namespace kernelwright::remote_test
