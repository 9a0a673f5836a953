// Folders of .npy files: what is read, what is refused and with which words, what is written.
#include "kernelwright/verify/attention/arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "kernelwright/generator/error.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "kernelwright/verify/formats/npy.h"
#include "support/simulated_attention.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;
using Shape = std::vector<std::int64_t>;

class Arrays : public testing::Test {
 protected:
  Arrays() {
    std::string name = std::filesystem::temp_directory_path() / "kernelwright-arrays-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    problem_.head_dim = {8, 4};
    problem_.heads = {4, 2};
  }
  ~Arrays() override { std::filesystem::remove_all(folder_); }

  void floats(const std::string& name, const Shape& shape, float value = 0.5f) {
    std::int64_t size = 1;
    for (const std::int64_t dim : shape) size *= dim;
    std::vector<float> values(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value + static_cast<float>(i % 7);
    write_npy<float>(folder_ / (name + ".npy"), shape, values);
  }
  void ints(const std::string& name, const Shape& shape, const std::vector<std::int32_t>& values) {
    write_npy<std::int32_t>(folder_ / (name + ".npy"), shape, values);
  }
  void padded() {
    floats("q", {2, 3, 4, 8});
    floats("k", {2, 5, 2, 8});
    floats("v", {2, 5, 2, 4});
  }
  void paged() {
    problem_.kv_layout = {KvLayoutKind::kPaged, 2};
    floats("q", {2, 3, 4, 8});
    floats("k", {6, 2, 2, 8});
    floats("v", {6, 2, 2, 4});
    ints("page_table", {2, 3}, {5, 0, 3, 1, 999, -7});
    ints("kv_lengths", {2}, {5, 2});
  }
  void ragged() {
    problem_.q_layout = QLayout::kRagged;
    problem_.kv_layout.kind = KvLayoutKind::kRagged;
    problem_.kv_offsets = true;
    floats("q", {7, 4, 8});
    floats("k", {9, 2, 8});
    floats("v", {9, 2, 4});
    ints("q_offsets", {4}, {0, 3, 3, 7});
    ints("kv_offsets", {4}, {0, 2, 4, 9});
  }
  AttentionCase read() { return read_case(problem_, folder_); }
  std::string refusal() {
    try {
      read();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }
  std::filesystem::path folder_;
  AttentionProblem problem_;
};

TEST_F(Arrays, PaddedArraysSetTheDimensions) {
  padded();
  const AttentionCase call = read();
  EXPECT_EQ(call.batch, 2);
  EXPECT_EQ(call.q_len, 3);
  EXPECT_EQ(call.kv_lens, (std::vector<int>{5, 5}));
  EXPECT_FALSE(call.random_values);
  std::vector<double> row(8);
  decode_row(call.k.dtype, call.k_row(1, 4, 1), 8, row.data());
  EXPECT_EQ(row[0], 0.5 + ((1 * 5 + 4) * 2 + 1) * 8 % 7);
}

TEST_F(Arrays, LengthsCutPaddedKeysShort) {
  padded();
  ints("kv_lengths", {2}, {0, 3});
  const AttentionCase call = read();
  EXPECT_EQ(call.kv_lens, (std::vector<int>{0, 3}));
  EXPECT_EQ(call.kv_len, 5);
  EXPECT_EQ(call.k.strides.batch, 5 * 2 * 8);
}

TEST_F(Arrays, StartsHideTheFirstKeys) {
  padded();
  ints("kv_starts", {2}, {4, 0});
  EXPECT_THAT(refusal(), HasSubstr("kv_starts.npy: is not read: the problem has no kv_starts"));
  problem_.kv_starts = true;
  const AttentionCase call = read();
  EXPECT_EQ(call.visible(0, 2).first, 4);
  EXPECT_EQ(call.visible(0, 2).last, 5);
  EXPECT_EQ(call.visible(1, 2).first, 0);
  ints("kv_lengths", {2}, {5, 3});
  ints("kv_starts", {2}, {5, 4});
  EXPECT_THAT(refusal(), HasSubstr("kv_starts.npy: sequence 1 starts at key 4; it has 3 keys, so 0 to 3 would do"));
  std::filesystem::remove(folder_ / "kv_starts.npy");
  EXPECT_EQ(read().visible(0, 2).first, 0);
}

TEST_F(Arrays, PagesBeforeTheStartAreNotChecked) {
  paged();
  problem_.kv_starts = true;
  ints("page_table", {2, 3}, {-1, 0, 3, 1, 999, -7});
  EXPECT_THAT(refusal(), HasSubstr("page_table.npy: [0, 0] is -1 and in use"));
  ints("kv_starts", {2}, {2, 0});
  EXPECT_EQ(read().visible(0, 0).first, 2);
}

TEST_F(Arrays, PagesInUseAreChecked) {
  paged();
  const AttentionCase call = read();  // 999 and -7 lie past the second sequence's length
  EXPECT_EQ(call.k_row(0, 4, 0), call.k.row(3, 0, 0));
  ints("kv_lengths", {2}, {5, 3});
  EXPECT_THAT(refusal(),
              HasSubstr("page_table.npy: [1, 1] is 999 and in use, as kv_lengths[1] is 3; k.npy has pages 0 to 5"));
  ints("kv_lengths", {2}, {5, 7});
  EXPECT_THAT(refusal(),
              HasSubstr("kv_lengths.npy: sequence 1 has length 7; its row of page_table.npy holds 0 to 6 keys"));
  ints("kv_lengths", {2}, {-1, 2});
  EXPECT_THAT(refusal(), HasSubstr("kv_lengths.npy: sequence 0 has length -1"));
}

TEST_F(Arrays, RaggedArraysFollowTheirOffsets) {
  ragged();
  const AttentionCase call = read();
  EXPECT_EQ(call.q_lens, (std::vector<int>{3, 0, 4}));
  EXPECT_EQ(call.kv_lens, (std::vector<int>{2, 2, 5}));
  EXPECT_EQ(call.q_tokens, 7);
  ints("q_offsets", {4}, {0, 3, 2, 7});
  EXPECT_THAT(refusal(), HasSubstr("q_offsets.npy: decreases from 3 to 2 at index 2; offsets grow"));
  ints("q_offsets", {4}, {1, 3, 3, 7});
  EXPECT_THAT(refusal(), HasSubstr("q_offsets.npy: starts at 1; it would start at 0"));
  ints("q_offsets", {4}, {0, 3, 3, 6});
  EXPECT_THAT(refusal(), HasSubstr("q_offsets.npy: ends at 6; q.npy has 7 tokens"));
}

TEST_F(Arrays, KeysMayShareTheQueriesOffsets) {
  ragged();
  problem_.kv_offsets = false;
  std::filesystem::remove(folder_ / "kv_offsets.npy");
  EXPECT_THAT(refusal(), HasSubstr("k.npy: has 9 tokens and q_offsets.npy, which keys share, ends at 7"));
  floats("k", {7, 2, 8});
  floats("v", {7, 2, 4});
  EXPECT_EQ(read().kv_lens, (std::vector<int>{3, 0, 4}));
}

TEST_F(Arrays, WrongShapesAreNamedAllAtOnce) {
  padded();
  floats("k", {2, 64, 8, 64});
  floats("v", {2, 5, 2, 3});
  const std::string text = refusal();
  EXPECT_THAT(text, HasSubstr("k.npy: shape [2, 64, 8, 64]; heads.kv is 2, so the third dimension would be 2"));
  EXPECT_THAT(text, HasSubstr("k.npy: shape [2, 64, 8, 64]; head_dim.qk is 8, so the last dimension would be 8"));
  EXPECT_THAT(text, HasSubstr("v.npy: shape [2, 5, 2, 3]; head_dim.v is 4, so the last dimension would be 4"));
}

TEST_F(Arrays, KeysAndValuesHaveOneLength) {
  padded();
  floats("v", {2, 6, 2, 4});
  EXPECT_THAT(refusal(), HasSubstr("v.npy: shape [2, 6, 2, 4]; k.npy has 5 keys, so the second dimension would be 5"));
}

TEST_F(Arrays, ARankThatDoesNotFit) {
  padded();
  floats("q", {6, 4, 8});
  EXPECT_THAT(refusal(), HasSubstr("q.npy: shape [6, 4, 8]; it takes 4 dimensions"));
}

TEST_F(Arrays, SinksAndScalesAsTheProblemHasThem) {
  padded();
  problem_.sinks = true;
  problem_.dtype.kv = DType::kE4m3;
  problem_.scales = ScaleKind::kPerHead;
  floats("sinks", {4});
  floats("k_scale", {2});
  floats("v_scale", {1});
  EXPECT_THAT(
      refusal(),
      HasSubstr("v_scale.npy: shape [1]; heads.kv is 2 and scales are per_head, so the first dimension would be 2"));
  floats("v_scale", {2});
  EXPECT_EQ(read().k_scale.size(), 2u);
  problem_.sinks = false;
  EXPECT_THAT(refusal(), HasSubstr("sinks.npy: is not read: the problem has no sinks"));
}

TEST_F(Arrays, ResultsGoBackAsArrays) {
  padded();
  problem_.lse = true;
  const AttentionCase call = read();
  const AttentionOutput output = simulate_attention(call);
  EXPECT_TRUE(verify(call, output).passed) << verify(call, output).text;
  const std::string out = folder_ / "deep" / "out";
  write_output(call, output, out);
  const NpyArray<float> o = read_npy<float>(out + "/o.npy"), lse = read_npy<float>(out + "/lse.npy");
  EXPECT_EQ(o.shape, (Shape{2, 3, 4, 4}));
  EXPECT_EQ(lse.shape, (Shape{2, 4, 3}));
  EXPECT_EQ(lse.values, output.lse);
}

TEST_F(Arrays, AFolderThatIsNone) {
  EXPECT_THROW(read_case(problem_, folder_ / "none"), ConfigError);
  padded();
  EXPECT_THROW(read_case(problem_, folder_ / "q.npy"), ConfigError);
}

}  // namespace
}  // namespace kernelwright
