/// Spec -> Binary without a device: cached, shared between stores, found even without a compiler.
#include "kernelwright/runtime/store/kernel_store.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/fake_store.h"

namespace kernelwright::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Function>
std::string missing_message(const Function& call) {
  try {
    call();
  } catch (const MissingError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

struct KernelStoreTest : ::testing::Test {
  KernelStoreTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kernelwright-store-XXXXXX").string();
    directory = mkdtemp(pattern.data());
  }
  ~KernelStoreTest() override { std::filesystem::remove_all(directory); }
  CacheOptions on_disk() const {
    CacheOptions options;
    options.directory = directory;
    return options;
  }
  std::string directory;
};

TEST_F(KernelStoreTest, CompilesASpecOnceAndFindsItAfterwards) {
  FakeStore store(on_disk());
  EXPECT_EQ(store.find(AttentionSpec{}), nullptr);
  const auto binary = store.compile(AttentionSpec{});
  ASSERT_TRUE(binary);
  EXPECT_EQ(store.compile(AttentionSpec{}), binary);
  EXPECT_EQ(store.find(AttentionSpec{}), binary);
  EXPECT_EQ(store.builds(), 1);
}

TEST_F(KernelStoreTest, ANewProcessFindsItOnDisk) {
  const Binary built = *FakeStore(on_disk()).compile(AttentionSpec{});
  FakeStore later(on_disk());
  EXPECT_EQ(*later.compile(AttentionSpec{}), built);
  EXPECT_EQ(later.builds(), 0);
}

TEST_F(KernelStoreTest, WithoutACompilerAnyCachedBuildOfTheSpecWillDo) {
  FakeStore with(on_disk());
  if (with.compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: keys have no compiler either way";
  const Binary built = *with.compile(AttentionSpec{});
  FakeStore without(on_disk(), directory + "/no-such-nvrtc.so");
  without.lose_the_compiler();
  ASSERT_TRUE(without.find(AttentionSpec{}));
  EXPECT_EQ(*without.compile(AttentionSpec{}), built);
  AttentionSpec other;
  other.lse = true;
  EXPECT_THROW(without.compile(other), MissingError);
}

TEST_F(KernelStoreTest, SaysWhereKernelsComeFromWithoutOpeningACompiler) {
  const std::string absent = directory + "/no-such-nvrtc.so";
  CacheOptions options = on_disk();
  options.directory = directory + "/cache";
  EXPECT_THAT(missing_message([&] { KernelStore(options, absent).origin(); }),
              AllOf(HasSubstr("no kernel can be compiled or found: " + absent + " cannot be opened"),
                    HasSubstr("no bundle and no cache directory has kernels")));
  FakeStore with(options);
  with.compile(AttentionSpec{});
  EXPECT_THAT(KernelStore(options, absent).origin(), HasSubstr(options.directory.value()));
  CacheOptions layered;
  layered.disk = false;
  layered.read_only_layers = {options.directory.value()};
  EXPECT_THAT(KernelStore(layered, absent).origin(), HasSubstr(options.directory.value()));
  layered.read_only_layers.clear();
  layered.remote.address = "redis://127.0.0.1:1";
  EXPECT_THAT(KernelStore(layered, absent).origin(), HasSubstr("redis://127.0.0.1:1"));
  // A library that is whole, and is not loaded here.
  Dl_info library{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&std::strtod), &library), 0);
  std::filesystem::copy_file(library.dli_fname, directory + "/libnvrtc.so.13");
  EXPECT_EQ(KernelStore(layered, directory + "/libnvrtc.so.13").origin(), "NVRTC " + directory + "/libnvrtc.so.13");
  EXPECT_EQ(dlopen((directory + "/libnvrtc.so.13").c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
  CompileWorkerOptions elsewhere;
  elsewhere.where = CompileIn::kHosts;
  EXPECT_THAT(missing_message([&] {
                CacheOptions none;
                none.disk = false;
                none.remote.off = true;
                KernelStore(none, "", elsewhere).origin();
              }),
              HasSubstr("kernels are compiled on other hosts alone"));
}

// A library that is whole and is no NVRTC: it has an identity of its own, so no key of it is in any cache.
TEST_F(KernelStoreTest, WithACompilerThatCannotBeUsedAnyCachedBuildOfTheSpecWillDo) {
  FakeStore with(on_disk());
  const Binary built = *with.compile(AttentionSpec{});
  Dl_info other{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&std::strtod), &other), 0);
  KernelStore broken(on_disk(), other.dli_fname);
  ASSERT_NE(broken.key(AttentionSpec{}).compiler, "");
  EXPECT_EQ(*broken.compile(AttentionSpec{}), built);
  EXPECT_EQ(*broken.compile(AttentionSpec{}), built) << "from memory now";
  AttentionSpec uncached;
  uncached.lse = true;
  EXPECT_THAT(missing_message([&] { broken.compile(uncached); }), HasSubstr("is not an NVRTC that we can use"));
}

TEST_F(KernelStoreTest, ACompilerThatIsCutShortServesFromTheCacheAndFinds) {
  FakeStore with(on_disk());
  const std::string whole = with.compiler().path(), cut = directory + "/libnvrtc.so.13";
  if (whole.empty()) GTEST_SKIP() << "no NVRTC on this machine to cut short";
  const Binary built = *with.compile(AttentionSpec{});
  std::string start(1 << 20, '\0');
  std::ifstream(whole, std::ios::binary).read(start.data(), static_cast<std::streamsize>(start.size()));
  std::ofstream(cut, std::ios::binary) << start;
  KernelStore broken(on_disk(), cut);
  ASSERT_TRUE(broken.find(AttentionSpec{}));
  EXPECT_EQ(*broken.compile(AttentionSpec{}), built);
  AttentionSpec uncached;
  uncached.lse = true;
  EXPECT_THAT(missing_message([&] { broken.compile(uncached); }), HasSubstr(cut + " is cut short"));
}

TEST_F(KernelStoreTest, SpecsHaveKeysOfTheirOwn) {
  FakeStore store(on_disk());
  AttentionSpec other;
  other.block_n = 32;
  EXPECT_NE(store.key(AttentionSpec{}).digest(), store.key(other).digest());
  EXPECT_NE(store.key(AttentionSpec{}).digest(), store.key(CombineSpec{}).digest());
}

}  // namespace
}  // namespace kernelwright::test
