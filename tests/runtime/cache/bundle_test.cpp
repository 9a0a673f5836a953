// Bundles: an engine's cache serves from one file, and every altered byte is refused.
#include "kernelwright/runtime/cache/bundle.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "kernelwright/generator/error.h"
#include "runtime/cache/testing.h"
#include "support/signing.h"

namespace kernelwright::bundle_test {
namespace {

using test::read_file, test::test_binary, test::test_key, test::write_file;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A bundle of two kernels of one problem.
std::string example(std::initializer_list<int> order = {0, 1}, const SigningKey* key = nullptr) {
  BundleWriter writer("1.2.3");
  for (const int variant : order) writer.add("decode", test_key(variant), test_binary(variant));
  return text_of(writer.finish(key));
}

/// The same, signed by the tests' key.
std::string signed_example() {
  const std::optional<SigningKey> key = signing_key_of_pem(test::kSigningPem);
  return example({0, 1}, &*key);
}

BundleTrust trust_in(const char* pem) { return {{*public_key_of_pem(pem)}, ""}; }

class BundleFile : public ::testing::Test {
 protected:
  std::string file(const std::string& bytes) const {
    write_file(path_, bytes);
    chmod(path_.c_str(), 0644);
    return path_;
  }
  std::string fault_of(const std::string& bytes) const { return Bundle(file(bytes), Payload::kUnpack).fault(); }
  EventSink sink() {
    return [this](const Event& event) { events_.push_back(event); };
  }
  test::TempFolder folder_;
  const std::string path_ = folder_ / "model.kwpack";
  std::vector<Event> events_;
};

TEST_F(BundleFile, ServesItsKernels) {
  Bundle bundle(file(example()), Payload::kUnpack);
  ASSERT_EQ(bundle.fault(), "");
  Binary timeless = test_binary(1);
  timeless.compile_ms = 0;
  EXPECT_EQ(bundle.find(test_key(1)), timeless);
  EXPECT_EQ(bundle.find(test_key(2)), std::nullopt);
  EXPECT_THAT(bundle.verify(), IsEmpty());
  EXPECT_EQ(bundle.manifest().library, "1.2.3");
  ASSERT_THAT(bundle.manifest().problems, SizeIs(1));
  EXPECT_THAT(bundle.manifest().problems[0].kernels, SizeIs(2));
  EXPECT_EQ(bundle.manifest().problems[0].arch, "sm_90a");
}

TEST_F(BundleFile, ServesWhateverCompilerTheHostHas) {
  Bundle bundle(file(example()), Payload::kUnpack);
  CacheKey key = test_key();
  key.compiler.clear();
  EXPECT_NE(bundle.find(key), std::nullopt);
  key.compiler = "nvrtc:of another release";
  EXPECT_NE(bundle.find(key), std::nullopt);
  key.abi += 1;
  EXPECT_EQ(bundle.find(key), std::nullopt);
}

TEST_F(BundleFile, IsAskedBeforeTheDirectory) {
  CubinCache({.directory = folder_ / "cache"}).put(test_key(), test_binary(7));
  CubinCache cache({.directory = folder_ / "cache", .bundles = {file(example())}});
  CacheSource source = CacheSource::kNone;
  EXPECT_EQ(cache.find(test_key(), &source)->entry, test_binary().entry);
  EXPECT_EQ(source, CacheSource::kLayer);
  EXPECT_EQ(cache.counters().layer_hits, 1u);
  EXPECT_THAT(cache.status(), HasSubstr("bundle: " + path_ + ": 2 kernels"));
}

TEST_F(BundleFile, IsTheSameBytesWhateverTheOrderAndTheCompileTimes) {
  EXPECT_EQ(example({0, 1}), example({1, 0, 1}));
  BundleWriter writer("1.2.3");
  for (const int variant : {0, 1}) {
    Binary slower = test_binary(variant);
    slower.compile_ms *= 2;
    writer.add("decode", test_key(variant), slower);
  }
  EXPECT_EQ(text_of(writer.finish()), example());
}

TEST_F(BundleFile, EveryFlippedByteIsRefused) {
  const std::string good = example();
  std::size_t at_open = 0, at_entry = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    const Bundle bundle(file(bad), Payload::kUnpack);
    if (!bundle.fault().empty()) {
      ++at_open;
      continue;
    }
    ++at_entry;
    ASSERT_THAT(bundle.verify(), SizeIs(1)) << "byte " << i;
  }
  EXPECT_GT(at_open, 1000u) << "headers and the manifest";
  EXPECT_GT(at_entry, 6000u) << "two entries with 3000 bytes of cubin";
}

TEST_F(BundleFile, ASignatureIsCheckedWhereKeysAreGiven) {
  if (!can_sign()) GTEST_SKIP() << "this build has no libsodium";
  file(signed_example());
  const Bundle trusted(path_, Payload::kUnpack, {}, trust_in(test::kPublicPem));
  EXPECT_EQ(trusted.fault(), "");
  EXPECT_EQ(trusted.signer(), public_key_of_pem(test::kPublicPem));
  EXPECT_THAT(trusted.verify(), IsEmpty());
  EXPECT_THAT(Bundle(path_, Payload::kUnpack, {}, trust_in(test::kOtherPublicPem)).fault(),
              HasSubstr("is signed by none of the keys that are trusted"));
  BundleTrust both = trust_in(test::kOtherPublicPem);
  both.keys.push_back(*public_key_of_pem(test::kPublicPem));
  EXPECT_EQ(Bundle(path_, Payload::kUnpack, {}, both).fault(), "");
  const Bundle unasked(path_, Payload::kUnpack);
  EXPECT_EQ(unasked.fault(), "");
  EXPECT_TRUE(unasked.is_signed() && !unasked.signer());
  EXPECT_EQ(signed_example(), signed_example()) << "two builds are the same bytes";
  EXPECT_THAT(Bundle(file(example()), Payload::kUnpack, {}, trust_in(test::kPublicPem)).fault(),
              HasSubstr("is not signed, and a signature is asked for"));
}

TEST_F(BundleFile, EveryFlippedByteOfASignatureIsRefused) {
  if (!can_sign()) GTEST_SKIP() << "this build has no libsodium";
  const std::string good = signed_example();
  const BundleTrust trust = trust_in(test::kPublicPem);
  for (std::size_t i = good.find("manifest.sig") - 30; i < good.size();
       ++i) {  // EveryFlippedByteIsRefused has the rest
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
    ASSERT_NE(fault_of(bad), "") << "byte " << i << ", without a key";
    ASSERT_NE(Bundle(path_, Payload::kUnpack, {}, trust).fault(), "") << "byte " << i;
  }
}

// Whoever rewrites a bundle can make every checksum right, but not the signature.
TEST_F(BundleFile, AManifestOfAnotherBuilderIsRefused) {
  if (!can_sign()) GTEST_SKIP() << "this build has no libsodium";
  const std::string theirs = example({0}), ours = signed_example();
  const auto members = [](const std::string& bundle) {
    const auto bytes = std::as_bytes(std::span(bundle));
    const ArchiveDirectory read = read_archive(bytes.size(), [&](std::uint64_t at, std::span<std::byte> to) {
      std::ranges::copy(bytes.subspan(at, to.size()), to.begin());
      return true;
    });
    std::map<std::string, std::vector<std::byte>> found;
    for (const ArchiveMember& member : read.members) {
      const auto contents = bytes.subspan(member.offset, member.bytes);
      found[member.name] = {contents.begin(), contents.end()};
    }
    return found;
  };
  auto forged = members(theirs);
  forged["manifest.sig"] = members(ours).at("manifest.sig");
  EXPECT_EQ(fault_of(text_of(write_archive(forged))), "") << "all checksums are right";
  EXPECT_THAT(Bundle(path_, Payload::kUnpack, {}, trust_in(test::kPublicPem)).fault(),
              HasSubstr("is signed by none of the keys"));
  forged["manifest.sig"].pop_back();
  EXPECT_THAT(fault_of(text_of(write_archive(forged))), HasSubstr("manifest.sig is no signature"));
}

TEST_F(BundleFile, AKeyThatCannotBeReadTurnsBundlesOff) {
  CubinCache cache({.directory = folder_ / "cache",
                    .bundles = {file(example())},
                    .bundle_keys = {folder_ / "absent.pub"},
                    .sink = sink()});
  ASSERT_THAT(events_, SizeIs(1));
  EXPECT_THAT(events_[0].detail, HasSubstr("cannot be checked by its signature: " + folder_ / "absent.pub"));
  EXPECT_EQ(cache.find(test_key()), nullptr);
}

TEST_F(BundleFile, TheEnvironmentNamesBundlesAndKeysWhereTheOptionsNameNone) {
  file(example());
  setenv("KERNELWRIGHT_BUNDLES", (":" + folder_ / "absent.kwpack" + "::" + path_).c_str(), 1);
  const CacheOptions options{.disk = false, .sink = sink()};
  EXPECT_NE(CubinCache(options).find(test_key(1)), nullptr);
  EXPECT_THAT(events_.at(0).detail, HasSubstr("absent.kwpack: cannot be read")) << "the first of both";
  setenv("KERNELWRIGHT_BUNDLE_KEYS", (folder_ / "absent.pub").c_str(), 1);
  EXPECT_EQ(CubinCache(options).find(test_key(1)), nullptr);
  unsetenv("KERNELWRIGHT_BUNDLE_KEYS");
  CacheOptions named = options;
  named.bundles = {folder_ / "absent.kwpack"};
  EXPECT_EQ(CubinCache(named).find(test_key(1)), nullptr);
  unsetenv("KERNELWRIGHT_BUNDLES");
}

TEST_F(BundleFile, EveryShorterFileIsRefused) {
  const std::string good = example();
  for (std::size_t size = 0; size < good.size(); size += 7) ASSERT_NE(fault_of(good.substr(0, size)), "") << size;
}

TEST_F(BundleFile, AnAlteredEntryIsLookedForElsewhereAndReportedOnce) {
  std::string bad = example();
  const std::size_t cubin = bad.find(text_of(test_binary().cubin));
  ASSERT_NE(cubin, bad.npos);
  bad[cubin + 5] ^= 1;
  Bundle bundle(file(bad), Payload::kUnpack, sink());
  EXPECT_EQ(bundle.find(test_key()), std::nullopt);
  EXPECT_EQ(bundle.find(test_key()), std::nullopt);
  ASSERT_THAT(events_, SizeIs(1));
  EXPECT_EQ(events_[0].kind, EventKind::kCacheDegraded);
  EXPECT_THAT(events_[0].detail, HasSubstr("was altered; it is looked for elsewhere"));
  EXPECT_NE(bundle.find(test_key(1)), std::nullopt) << "the other entry is whole";
}

TEST_F(BundleFile, AFileThatCannotBeUsedIsAnEventAndTheCacheGoesOn) {
  CubinCache cache({.directory = folder_ / "cache", .bundles = {folder_ / "absent.kwpack"}, .sink = sink()});
  ASSERT_THAT(events_, SizeIs(1));
  EXPECT_THAT(events_[0].detail, HasSubstr("absent.kwpack: cannot be read: No such file"));
  EXPECT_EQ(*cache.get_or_compile(test_key(), [] { return test_binary(); }), test_binary());
}

TEST_F(BundleFile, AFileThatOthersMayWriteIsRefused) {
  file(example());
  chmod(path_.c_str(), 0666);
  EXPECT_THAT(Bundle(path_, Payload::kUnpack).fault(), HasSubstr("is writable by others (mode 0666)"));
  EXPECT_THAT(Bundle(folder_.path(), Payload::kUnpack).fault(), HasSubstr("is not a regular file"));
}

TEST_F(BundleFile, AManifestThatLiesIsRefused) {
  const auto with = [&](const std::string& manifest) {
    return fault_of(text_of(write_archive({{"manifest.json", [&] {
                                              const auto bytes = std::as_bytes(std::span(manifest));
                                              return std::vector<std::byte>(bytes.begin(), bytes.end());
                                            }()}})));
  };
  const std::string head = R"({"schema": 1, "library": "1", "abi": 3, "compiler": "c", )";
  EXPECT_EQ(with(head + R"("entries": [], "problems": []})"), "");
  EXPECT_THAT(with("[]"), HasSubstr("is no object"));
  EXPECT_THAT(with("{"), HasSubstr("manifest.json"));
  EXPECT_THAT(with(R"({"schema": 2})"), HasSubstr("/schema: is of another version"));
  EXPECT_THAT(with(head + R"("entries": {}, "problems": []})"), HasSubstr("/entries: is no list"));
  const std::string hex(64, 'a');
  const std::string entry = R"({"key": ")" + hex + R"(", "sha256": ")" + hex +
                            R"(", "kernel": "k", "arch": "sm_90a", "bytes": 9, "cubin_bytes": 1})";
  EXPECT_THAT(with(head + R"("entries": [)" + entry + R"(], "problems": []})"), HasSubstr("does not name the files"));
  EXPECT_THAT(with(head + R"("entries": [)" + entry + "," + entry + R"(], "problems": []})"),
              HasSubstr("/entries: is not in order, or names one twice"));
  EXPECT_THAT(
      with(head + R"("entries": [], "problems": [{"name": "p", "arch": "sm_90a", "kernels": [")" + hex + R"("]}]})"),
      HasSubstr("names a kernel that is absent"));
}

TEST_F(BundleFile, KernelsOfTwoCompilersDoNotShareABundle) {
  BundleWriter writer("1.2.3");
  writer.add("decode", test_key(0), test_binary(0));
  CacheKey key = test_key(1);
  key.compiler = "nvrtc:of another release";
  EXPECT_THROW(writer.add("decode", key, test_binary(1)), Error);
  key.compiler.clear();
  EXPECT_THROW(writer.add("decode", key, test_binary(1)), Error);
}

}  // namespace
}  // namespace kernelwright::bundle_test
