// Cache writes from .npy files: what is read, what is written, and the errors for arrays that do not fit.
#include "kernelwright/verify/kv_write/arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "kernelwright/generator/error.h"
#include "kernelwright/verify/device/device_memory.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/formats/npy.h"

namespace kernelwright::kv_write_arrays_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class KvWriteArrays : public testing::Test {
 protected:
  KvWriteArrays() {
    std::string name = std::filesystem::temp_directory_path() / "kernelwright-kv-write-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    problem_.head_dim = {8, 8};
    problem_.heads = {2, 1};
    problem_.kv_layout = {KvLayoutKind::kPaged, 4};
  }
  ~KvWriteArrays() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name + ".npy"; }
  /// 0, 1, 2, ...
  void write(const std::string& name, const std::vector<std::int64_t>& shape) const {
    std::vector<float> values(
        static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())));
    std::iota(values.begin(), values.end(), 0.f);
    write_npy<float>(path(name), shape, values);
  }
  void write_places(const std::string& name, const std::vector<std::int32_t>& values) const {
    write_npy<std::int32_t>(path(name), {static_cast<std::int64_t>(values.size())}, values);
  }
  void write_rows() const { write("q", {3, 2, 8}), write("k", {3, 1, 8}), write("v", {3, 1, 8}); }
  std::string refusal() const {
    try {
      read_case(problem_, folder_);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "no refusal";
  }
  std::string folder_;
  KvWriteProblem problem_;
};

TEST_F(KvWriteArrays, AreReadWithTheSmallestCacheThatHasAllPlaces) {
  write_rows();
  write_places("slot_mapping", {5, -1, 0});
  const KvWriteCase call = read_case(problem_, folder_);
  EXPECT_EQ(call.tokens, 3);
  EXPECT_EQ(call.num_pages, 2);
  EXPECT_THAT(call.slot_mapping, ElementsAre(5, -1, 0));
  double key[8];
  call.decode(HeadsOf::kK, 2, 0, key);
  EXPECT_EQ(key[3], 19);
  write_places("num_pages", {7});
  EXPECT_EQ(read_case(problem_, folder_).slots(), 28);
}

TEST_F(KvWriteArrays, HavePlacesBySequenceAndPosition) {
  write_rows();
  problem_.index = CacheIndex::kPositions;
  problem_.kv_layout = {KvLayoutKind::kPadded, 0};
  write_places("batch_indices", {0, 1, 1});
  write_places("positions", {4, 0, 9});
  const KvWriteCase call = read_case(problem_, folder_);
  EXPECT_EQ(call.batch, 2);
  EXPECT_EQ(call.kv_len, 10);
  EXPECT_EQ(call.slot_of(2), 19);
  problem_.kv_layout = {KvLayoutKind::kPaged, 4};
  write_npy<std::int32_t>(path("page_table"), {2, 3}, {0, 3, 1, 2, 5, 4});
  const KvWriteCase paged = read_case(problem_, folder_);
  EXPECT_EQ(paged.num_pages, 6);
  EXPECT_EQ(paged.slot_of(0), 12);
  EXPECT_EQ(paged.slot_of(2), 17);
}

TEST_F(KvWriteArrays, ThatDoNotFitAreNamedAtOnce) {
  write("q", {3, 2, 8}), write("k", {3, 2, 8}), write("v", {2, 1, 8});
  write("cos_sin", {4, 8});
  write("k_scale", {1});
  const std::string why = refusal();
  EXPECT_THAT(why, HasSubstr("k.npy"));
  EXPECT_THAT(why, HasSubstr("heads.kv is 1"));
  EXPECT_THAT(why, HasSubstr("the problem has no rotation"));
  EXPECT_THAT(why, HasSubstr("its scales are none"));
  EXPECT_THAT(why, HasSubstr("slot_mapping.npy"));
  std::filesystem::remove_all(folder_);
  std::filesystem::create_directory(folder_);
  write_rows();
  write_places("slot_mapping", {0, 1, 2});
  write_places("num_pages", {0});
  EXPECT_THAT(refusal(), HasSubstr("0 is below 1"));
}

TEST_F(KvWriteArrays, ResultsAreNanWhereNoTokenIs) {
  write_rows();
  write_places("slot_mapping", {2, -1, 0});
  const KvWriteCase call = read_case(problem_, folder_);
  KvWriteOutput output;
  output.cache.assign(call.cache_bytes, DeviceMemory::kGuardByte);
  output.q_out.assign(3 * 16 * 2, std::byte{0});
  for (const std::int64_t token : {0, 2}) {
    std::vector<float> values(8, static_cast<float>(token + 1));
    for (const HeadsOf of : {HeadsOf::kK, HeadsOf::kV})
      encode_row(DType::kBf16, values, output.cache.data() + call.cache_byte(of, call.slot_of(token), 0));
  }
  write_output(call, output, folder_ + "/out");
  for (const char* name : {"k_cache", "v_cache"}) {
    const NpyArray<float> cache = read_npy<float>(folder_ + "/out/" + name + ".npy");
    EXPECT_THAT(cache.shape, ElementsAre(1, 4, 1, 8));
    EXPECT_EQ(cache.values[2 * 8], 1);
    EXPECT_EQ(cache.values[7], 3);
    EXPECT_TRUE(std::isnan(cache.values[8]) && std::isnan(cache.values[31]));
  }
  EXPECT_THAT(read_npy<float>(folder_ + "/out/q_out.npy").shape, ElementsAre(3, 2, 8));
}

}  // namespace
}  // namespace kernelwright::kv_write_arrays_test
