#include "kernelwright/runtime/binary/cache_key.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace kernelwright {
namespace {

CacheKey sample() {
  return {.entry_stem = "attention_portable",
          .spec = "head_dim = 128\nnum_stages = 2\n",
          .closure = sha256("templates"),
          .options = {"-arch=sm_90a", "-std=c++17"},
          .arch = "sm_90a",
          .abi = 3,
          .compiler = "nvrtc:ab"};
}

std::vector<CacheKey> one_change_each() {
  std::vector<CacheKey> keys(10, sample());
  keys[0].entry_stem = "attention_decode_portable";
  keys[1].spec = "head_dim = 128\nnum_stages = 3\n";
  keys[2].closure = sha256("other templates");
  keys[3].options = {"-std=c++17", "-arch=sm_90a"};
  keys[4].options = {"-arch=sm_90a"};
  keys[5].options = {"-arch=sm_90a-std=c++17"};
  keys[6].arch = "sm_80";
  keys[7].abi = 4;
  keys[8].abi = -3;
  keys[9].compiler = "nvrtc:cd";
  return keys;
}

TEST(CacheKey, EveryFieldChangesTheDigest) {
  std::set<Digest> seen{sample().digest()};
  for (const CacheKey& key : one_change_each())
    EXPECT_TRUE(seen.insert(key.digest()).second) << difference(sample(), key);
}

TEST(CacheKey, TheDigestWithoutTheCompilerLeavesOutTheCompilerAlone) {
  std::set<Digest> seen{sample().digest_without_compiler()};
  for (const CacheKey& key : one_change_each())
    EXPECT_EQ(seen.insert(key.digest_without_compiler()).second, key.compiler == sample().compiler);
  CacheKey none = sample();
  none.compiler.clear();
  EXPECT_NE(none.digest(), none.digest_without_compiler());
}

TEST(CacheKey, BytesMovedToTheNextFieldMakeAnotherDigest) {
  CacheKey moved = sample();
  moved.entry_stem += 'h';
  moved.spec.erase(0, 1);
  EXPECT_NE(moved.digest(), sample().digest());
}

// The same fields give the same name on every machine and in every release of one schema. The values were computed
// without this code: SHA-256 over each field, preceded by its length as 8 little-endian bytes.
TEST(CacheKey, TheDigestIsTheSameEverywhere) {
  EXPECT_EQ(sample().digest().hex(), "954196b6b5f8b321b0e25e252f5523482115061a5e1f5e029b1048dc532a56ba");
  EXPECT_EQ(sample().digest_without_compiler().hex(),
            "9c46c77964c90a2424380dee759f6880c7eb81ef9e865e46aaeb6a27eb1d5c09");
}

TEST(CacheKey, DifferenceNamesTheFieldAndBothValues) {
  const std::vector<CacheKey> keys = one_change_each();
  EXPECT_EQ(difference(sample(), sample()), "");
  EXPECT_EQ(difference(sample(), keys[0]), "kernel: attention_portable -> attention_decode_portable");
  EXPECT_EQ(difference(sample(), keys[1]), "spec: num_stages 2 -> 3");
  EXPECT_EQ(difference(sample(), keys[4]), "options: -std=c++17 -> (absent)");
  EXPECT_EQ(difference(sample(), keys[6]), "arch: sm_90a -> sm_80");
  EXPECT_EQ(difference(sample(), keys[7]), "abi: 3 -> 4");
  EXPECT_EQ(difference(sample(), keys[9]), "compiler: nvrtc:ab -> nvrtc:cd");
  CacheKey two = keys[1];
  two.compiler.clear();
  EXPECT_EQ(difference(sample(), two), "spec: num_stages 2 -> 3; compiler: nvrtc:ab -> (none)");
}

TEST(CacheKey, DifferenceSaysWhatOneSpecHasAndTheOtherLacks) {
  CacheKey a = sample(), b = sample();
  a.spec = "head_dim = 128\npage_size = 64\n";
  b.spec = "head_dim = 128\nwindow: 7";
  EXPECT_EQ(difference(a, b), "spec: page_size 64 -> (absent), window (absent) -> 7");
  b.spec = "page_size = 64\nhead_dim = 128\n";
  EXPECT_EQ(difference(a, b), "spec: the same fields in another order or spelling");
}

}  // namespace
}  // namespace kernelwright
