/// Spec -> Binary without a device: cached, shared between stores, found where no compiler is.
#include "kernelwright/runtime/kernel_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "support/fake_store.h"

namespace kernelwright::testing {
namespace {

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

TEST_F(KernelStoreTest, SpecsHaveKeysOfTheirOwn) {
  FakeStore store(on_disk());
  AttentionSpec other;
  other.block_n = 32;
  EXPECT_NE(store.key(AttentionSpec{}).digest(), store.key(other).digest());
  EXPECT_NE(store.key(AttentionSpec{}).digest(), store.key(CombineSpec{}).digest());
}

}  // namespace
}  // namespace kernelwright::testing
