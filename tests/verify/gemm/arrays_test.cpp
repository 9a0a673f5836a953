// GEMM operands from .npy files: what is read, and the errors for those that do not fit.
#include "kernelwright/verify/gemm/arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "kernelwright/generator/error.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/formats/npy.h"
#include "support/expect_message.h"

namespace kernelwright {
namespace {

class GemmArrays : public testing::Test {
 protected:
  GemmArrays() {
    std::string name = std::filesystem::temp_directory_path() / "kernelwright-gemm-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    problem_.n = 8;
    problem_.k = 16;
    problem_.dtype = {DType::kE4m3, DType::kE4m3, DType::kF32, DType::kF32};
  }
  ~GemmArrays() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name + ".npy"; }
  /// 0, 1, 2, ...
  void write(const std::string& name, const std::vector<std::int64_t>& shape) const {
    std::vector<float> values(
        static_cast<std::size_t>(std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>())));
    std::iota(values.begin(), values.end(), 0.f);
    write_npy<float>(path(name), shape, values);
  }
  static double at(const HostMatrix& matrix, std::int64_t row, std::int64_t column) {
    double value;
    matrix.decode(row, column, 1, &value);
    return value;
  }
  std::string folder_;
  GemmProblem problem_;
};

TEST_F(GemmArrays, AreRoundedToTheProblemsDtypes) {
  write("a", {3, 16});
  write("b", {8, 16});
  const GemmCase call = read_case(problem_, folder_);
  EXPECT_EQ(call.m, 3);
  EXPECT_EQ(at(call.a, 1, 1), 16);  // 17 is between 16 and 18
  EXPECT_EQ(at(call.b, 0, 15), 15);
  EXPECT_FALSE(call.random_values);
}

TEST_F(GemmArrays, FollowTheLayout) {
  problem_.layout = OperandLayout::kTn;
  problem_.dtype.a = problem_.dtype.b = DType::kBf16;
  write("a", {16, 5});
  write("b", {16, 8});
  const GemmCase call = read_case(problem_, folder_);
  EXPECT_EQ(call.m, 5);
  EXPECT_EQ(call.a.stride, 8) << "rows begin at multiples of 16 bytes";
  double value;
  call.decode_a(4, 2, 1, &value);
  EXPECT_EQ(value, 14);
  call.decode_b(3, 1, 1, &value);
  EXPECT_EQ(value, 11);
}

TEST_F(GemmArrays, HaveScalesByBlock) {
  problem_.n = 136;
  problem_.k = 144;
  problem_.scales = ScaleKind::kPerBlock;
  write("a", {3, 144});
  write("b", {136, 144});
  write("scale_a", {2, 3});
  write("scale_b", {2, 2});
  const GemmCase call = read_case(problem_, folder_);
  EXPECT_EQ(call.scale_a_stride, 4);
  EXPECT_EQ(call.scale(1, 0, 1), 4 * 1);
  EXPECT_EQ(call.scale(2, 135, 1), 5 * 3);
}

TEST_F(GemmArrays, HaveWhatTheEpilogueNames) {
  problem_.epilogue = "relu(alpha * acc + bias) + beta * c";
  write("a", {3, 16});
  write("b", {8, 16});
  write("c", {3, 8});
  write("bias", {8});
  write_npy<float>(path("alpha"), {1}, {0.5f});
  const GemmCase call = read_case(problem_, folder_);
  EXPECT_EQ(call.alpha, 0.5f);
  EXPECT_EQ(call.beta, 1);
  EXPECT_EQ(at(call.c, 2, 7), 23);
  EXPECT_EQ(at(call.bias, 0, 7), 7);
}

TEST_F(GemmArrays, AreRefusedAllAtOnce) {
  problem_.scales = ScaleKind::kPerToken;
  write("a", {3, 15});
  write("b", {8, 16, 1});
  write("bias", {8});
  write("scale_a", {3});
  try {
    read_case(problem_, folder_);
    FAIL() << "nothing was said";
  } catch (const ConfigError& error) {
    using testing::HasSubstr;
    EXPECT_EQ(error.violations().size(), 4u) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("a.npy: shape [3, 15]; k is 16, so the last dimension would be 16"));
    EXPECT_THAT(error.what(), HasSubstr("b.npy: shape [8, 16, 1]; it takes 2 dimensions"));
    EXPECT_THAT(error.what(), HasSubstr("bias.npy: is not read: the epilogue, \"acc\", has no bias"));
    EXPECT_THAT(error.what(), HasSubstr("scale_b.npy"));
  }
}

TEST_F(GemmArrays, AreQuantisedForBlockFormats) {
  problem_.k = 32;
  problem_.dtype = {DType::kNvfp4, DType::kNvfp4, DType::kF32, DType::kF32};
  problem_.scales = ScaleKind::kPerBlock;
  write("a", {3, 32});
  write("b", {8, 32});
  const GemmCase call = read_case(problem_, folder_);
  EXPECT_EQ(call.a.scale(0, 0), 2.5) << "15 / 6";
  EXPECT_EQ(at(call.a, 0, 15), 15);
  EXPECT_EQ(at(call.a, 0, 7), 7.5) << "7 / 2.5 is 2.8";
  EXPECT_EQ(call.b.scale(7, 1), 44) << "255 / 6 is 42.5";
  EXPECT_EQ(at(call.b, 7, 31), 264);
  EXPECT_TRUE(call.scale_a.empty());
  EXPECT_FALSE(call.random_values);
  write("scale_a", {1});
  EXPECT_THROW_MESSAGE(read_case(problem_, folder_), ConfigError,
                       path("scale_a") +
                           ": is not read: values become nvfp4 here, scales and all; take it away, or "
                           "change the problem");
}

TEST_F(GemmArrays, MustAgreeInM) {
  problem_.epilogue = "acc + c";
  write("a", {3, 16});
  write("b", {8, 16});
  write("c", {4, 8});
  EXPECT_THROW_MESSAGE(read_case(problem_, folder_), ConfigError,
                       path("c") + ": shape [4, 8]; a.npy has 3 rows, so the first dimension would be 3");
}

TEST_F(GemmArrays, OfABatchHaveAMatrixForEachGroup) {
  problem_.groups = {.kind = GroupKind::kBatch, .count = 2};
  problem_.scales = ScaleKind::kPerBlock;
  write("a", {6, 16});
  write("b", {2, 8, 16});
  write("scale_a", {2, 1, 3});
  write("scale_b", {2, 1, 1});
  const GemmCase call = read_case(problem_, folder_);
  EXPECT_EQ(call.m, 6);
  const GemmCase second = call.dense_group(1);
  EXPECT_EQ(second.m, 3);
  EXPECT_EQ(at(second.a, 0, 0), 48);
  EXPECT_EQ(at(second.b, 0, 0), 128);
  EXPECT_EQ(second.scale(2, 0, 0), 5 * 1);
  write("counts", {2});
  EXPECT_THROW_MESSAGE(
      read_case(problem_, folder_), ConfigError,
      path("counts") + ": is not read: the problem has no groups with bounds; take it away, or change the problem");
  std::filesystem::remove(path("counts"));
  write("a", {5, 16});
  try {
    read_case(problem_, folder_);
    FAIL() << "nothing was said";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("/inputs/a.npy: has 5 rows, not the same number for each of 2"));
  }
}

TEST_F(GemmArrays, OfRowsThatAreScattered) {
  problem_.groups = {.kind = GroupKind::kRows, .count = 2, .scatter = true};
  write("a", {5, 16});
  write("b", {2, 8, 16});
  write_npy<std::int32_t>(path("starts"), {3}, {1, 3, 4});
  write_npy<std::int32_t>(path("scatter"), {5}, {99, 6, -1, 2, 6});
  const GemmCase call = read_case(problem_, folder_);
  EXPECT_EQ(call.m, 5);
  EXPECT_EQ(call.result_rows, 7) << "rows of no group count for nothing";
  EXPECT_EQ(call.written_rows(0), std::vector<std::int32_t>{1});
  EXPECT_EQ(call.place_in_d(1), 6);
  EXPECT_EQ(at(call.dense_group(1).a, 0, 0), 3 * 16);
  GemmOutput output;
  output.d.resize(7 * 8 * 4);
  write_output(call, output, folder_ + "/out");
  EXPECT_EQ(read_npy<float>(folder_ + "/out/d.npy").shape, (std::vector<std::int64_t>{7, 8}));

  write_npy<std::int32_t>(path("scatter"), {5}, {99, 6, 6, 2, 6});
  EXPECT_THROW_MESSAGE(read_case(problem_, folder_), ConfigError,
                       path("scatter") + ": elements 1 and 2 are both 6, and two rows cannot be one of d");
  write_npy<std::int32_t>(path("scatter"), {5}, {99, 6, -2, 2, 6});
  EXPECT_THROW_MESSAGE(read_case(problem_, folder_), ConfigError,
                       path("scatter") + ": element 2 is -2; it takes -1 to 6, the rows that d has");
  problem_.epilogue = "acc + c";
  write("c", {3, 8});
  write_npy<std::int32_t>(path("scatter"), {5}, {99, 6, 0, 2, 6});
  EXPECT_THROW_MESSAGE(read_case(problem_, folder_), ConfigError,
                       path("scatter") + ": element 1 is 6; it takes -1 to 2, the rows that d has");
  write_npy<std::int32_t>(path("scatter"), {5}, {99, 1, 0, 2, 6});
  EXPECT_EQ(at(read_case(problem_, folder_).dense_group(1).c, 0, 0), 2 * 8);
  problem_.groups.scatter = false, problem_.epilogue = "acc";
  std::filesystem::remove(path("c"));
  EXPECT_THROW_MESSAGE(
      read_case(problem_, folder_), ConfigError,
      path("scatter") + ": is not read: the problem's groups do not scatter; take it away, or change the problem");
}

TEST_F(GemmArrays, OfSlicesOfKHaveRowsForEachGroup) {
  problem_.layout = OperandLayout::kTn;
  problem_.groups = {.kind = GroupKind::kK, .count = 2};
  write("a", {5, 6});
  write("b", {5, 8});
  const std::string starts = path("starts");
  write_npy<std::int32_t>(starts, {3}, {1, 3, 4});
  const GemmCase call = read_case(problem_, folder_);
  EXPECT_EQ(call.m, 2 * 6);
  EXPECT_EQ(call.source_rows, 5);
  const GemmCase second = call.dense_group(1);
  EXPECT_EQ(second.m, 6);
  EXPECT_EQ(second.problem.k, 1);
  EXPECT_EQ(at(second.a, 0, 0), 3 * 6);
  EXPECT_EQ(at(second.b, 0, 0), 3 * 8);
  write_npy<std::int32_t>(starts, {3}, {1, 3, 6});
  EXPECT_THROW_MESSAGE(read_case(problem_, folder_), ConfigError,
                       "/inputs/starts.npy: element 2 is 6; it takes 3 to 5, the rows that there are");
  write_npy<std::int32_t>(starts, {3}, {1, 3, 4});
  write("b", {4, 8});
  EXPECT_THROW_MESSAGE(read_case(problem_, folder_), ConfigError,
                       path("b") + ": shape [4, 8]; a.npy has 5 rows, so the first dimension would be 5");
}

TEST_F(GemmArrays, OfACacheAreThoseOfKvWriteWithoutRows) {
  KvWriteProblem cache;
  cache.head_dim = {8, 8}, cache.heads = {2, 1};
  cache.kv_layout = {KvLayoutKind::kPaged, 4};
  cache.scales.k = ScaleKind::kPerTensor, cache.dtype.kv = DType::kE4m3;
  problem_.n = 32, problem_.dtype = {DType::kBf16, DType::kBf16, DType::kBf16, DType::kF32};
  problem_.kv_write = cache;
  write("a", {3, 16});
  write("b", {32, 16});
  write("k_scale", {1});
  write_npy<std::int32_t>(path("slot_mapping"), {3}, {9, -1, 2});
  const GemmCase call = read_case(problem_, folder_);
  ASSERT_TRUE(call.kv);
  EXPECT_EQ(call.kv->tokens, 3);
  EXPECT_EQ(call.kv->num_pages, 3);
  EXPECT_EQ(call.kv->slot_of(0), 9);
  EXPECT_EQ(call.kv->slot_of(1), -1);

  GemmOutput output;
  output.d.resize(3 * 16 * 2), output.kv.cache.resize(call.kv->cache_bytes);
  write_output(call, output, folder_ + "/out");
  EXPECT_EQ((read_npy<float>(folder_ + "/out/d.npy").shape), (std::vector<std::int64_t>{3, 16}));
  EXPECT_EQ((read_npy<float>(folder_ + "/out/k_cache.npy").shape), (std::vector<std::int64_t>{3, 4, 1, 8}));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/out/q_out.npy"));
  write("q", {3, 2, 8});
  EXPECT_THROW_MESSAGE(read_case(problem_, folder_), ConfigError,
                       path("q") + ": is not read: the product has these rows; take it away, or change the problem");
}

TEST_F(GemmArrays, ComeBackAsD) {
  write("a", {2, 16});
  write("b", {8, 16});
  const GemmCase call = read_case(problem_, folder_);
  GemmOutput output;
  output.d.resize(2 * 8 * 4);
  encode_row(DType::kF32, std::vector<float>(16, 2.5f), output.d.data());
  write_output(call, output, folder_ + "/out");
  const NpyArray<float> d = read_npy<float>(folder_ + "/out/d.npy");
  EXPECT_EQ(d.shape, (std::vector<std::int64_t>{2, 8}));
  EXPECT_EQ(d.values, std::vector<float>(16, 2.5f));
}

}  // namespace
}  // namespace kernelwright
