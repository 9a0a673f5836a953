// kernelwright pack, and the verbs that serve from what it wrote.
#include <filesystem>

#include "cli/command_fixture.h"
#include "kernelwright/runtime/cache/signature.h"
#include "support/signing.h"

namespace kernelwright::pack_test {
namespace {

using testing::HasSubstr;

class PackVerb : public Command {
 protected:
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string config() const { return write("one.json", gemm_config()); }
  std::string bundle(const std::string& name = "model.kwpack") const {
    const CommandResult result = run({"pack", config(), "--arch", "sm_90a", "--output", path(name)});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("of 1 problem, "));
    return path(name);
  }
};

TEST_F(PackVerb, ServesARunWithoutACompilerAndWithAnEmptyCache) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = bundle();
  const std::vector<std::string> words = {"run",    config(),      "--device",    "emulator", "--arch",
                                          "sm_90a", "--cache-dir", path("empty"), "--bundle", file};
  const CommandResult result = run(words, {"KERNELWRIGHT_NVRTC=" + path("no-nvrtc")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(std::filesystem::exists(path("empty"))) << "nothing is copied";
  std::vector<std::string> without(words.begin(), words.end() - 2);
  EXPECT_EQ(run(without, {"KERNELWRIGHT_NVRTC=" + path("no-nvrtc")}).exit_code, 3);
}

TEST_F(PackVerb, TwoBuildsAreTheSameBytes) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string one = bundle("one.kwpack"), two = bundle("two.kwpack");
  EXPECT_EQ(read(one), read(two));
  const CommandResult same = run({"pack", "diff", one, two});
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.out, HasSubstr("1 of 1 problems alike"));
  std::string renamed = gemm_config();
  renamed.replace(renamed.find("tiny-gemm"), 9, "tiny-else");
  EXPECT_EQ(run({"pack", write("two.json", renamed), "--arch", "sm_90a", "--output", path("other.kwpack")}).exit_code,
            0);
  const CommandResult other = run({"pack", "diff", one, path("other.kwpack")});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.out, HasSubstr("tiny-else on sm_90a: in the second alone"));
}

TEST_F(PackVerb, ListsAndVerifies) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = bundle();
  EXPECT_THAT(run({"pack", "ls", file}).out, HasSubstr("gemm_sm90"));
  EXPECT_EQ(JsonValue::parse(run({"pack", "ls", file, "--json"}).out).at("/schema").as_int(), 1);
  EXPECT_EQ(run({"pack", "verify", file}).exit_code, 0);
  std::string bytes = read(file);
  bytes[bytes.size() / 3] ^= 1;
  write("model.kwpack", bytes);
  const CommandResult bad = run({"pack", "verify", file, "--json"});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_EQ(JsonValue::parse(bad.out).at("/bad/0/reason").as_string(), "was altered");
}

TEST_F(PackVerb, SignsAndServesWhatIsSigned) {
  KERNELWRIGHT_NEEDS_COMPILER();
  if (!can_sign()) GTEST_SKIP() << "this build has no libsodium";
  const std::string key = write("key.pem", test::kSigningPem), open = write("key.pub", test::kPublicPem),
                    other = write("other.pub", test::kOtherPublicPem);
  std::filesystem::permissions(key, std::filesystem::perms::owner_read);
  const std::vector<std::string> words = {"pack",   config(), "--arch", "sm_90a", "--output", path("signed.kwpack"),
                                          "--sign", key};
  ASSERT_EQ(run(words).exit_code, 0);
  const std::string file = path("signed.kwpack"), bytes = read(file);
  ASSERT_EQ(run(words).exit_code, 0);
  EXPECT_EQ(read(file), bytes) << "two builds are the same bytes";
  EXPECT_THAT(run({"pack", "verify", file, "--bundle-key", open}).out, HasSubstr(", signed by "));
  EXPECT_THAT(run({"pack", "ls", file}).out, HasSubstr("signed, and not checked: no --bundle-key"));
  EXPECT_THAT(run({"pack", "ls", bundle("plain.kwpack")}).out, HasSubstr(", not signed"));
  const auto serve = [&](const std::string& by) {
    return run({"run", config(), "--device", "emulator", "--arch", "sm_90a", "--cache-dir", path("empty"), "--bundle",
                file, "--bundle-key", by},
               {"KERNELWRIGHT_NVRTC=" + path("no-nvrtc")});
  };
  EXPECT_EQ(serve(open).exit_code, 0);
  EXPECT_THAT(serve(other).err, HasSubstr("is signed by none of the keys that are trusted"));
  EXPECT_THAT(serve(path("none.pub")).err, HasSubstr("--bundle-key: "));
  std::filesystem::permissions(key, std::filesystem::perms(0644));
  expect_refused(words, {"key.pem: is readable by others (mode 0644); chmod 600 it"});
}

TEST_F(PackVerb, WritesAnOciLayout) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = bundle();
  const std::vector<std::string> words = {"pack", config(), "--arch", "sm_90a", "--oci", path("oci")};
  ASSERT_EQ(run(words).exit_code, 0);
  const JsonValue index = JsonValue::parse(read(path("oci/index.json")));
  const auto blob = [&](const std::string& digest) { return read(path("oci/blobs/sha256/" + digest.substr(7))); };
  const JsonValue manifest = JsonValue::parse(blob(index.at("/manifests/0/digest").as_string()));
  EXPECT_EQ(manifest.at("/artifactType").as_string(), "application/vnd.kernelwright.pack.v1");
  EXPECT_EQ(blob(manifest.at("/layers/0/digest").as_string()), read(file));
  expect_refused(words, {"oci: is not empty; a new folder would do"});
}

TEST_F(PackVerb, RefusesWithTheFileAndTheReason) {
  config();
  expect_refused({"pack", path("one.json")}, {"pack needs --output FILE, or --oci DIR"});
  expect_refused({"pack", "ls"}, {"pack ls takes 1 file, and has 0"});
  expect_refused({"pack", "diff", "a"}, {"pack diff takes 2 files, and has 1"});
  expect_refused({"pack", "ls", path("none.kwpack")}, {"none.kwpack: cannot be read: No such file"});
  write("text.kwpack", "this is a text, and it is longer than the record that ends a zip file");
  expect_refused({"run", path("one.json"), "--bundle", path("text.kwpack")},
                 {"--bundle: ", "is cut short, or no bundle"});
}

}  // namespace
}  // namespace kernelwright::pack_test
