// The reference compared with sums done by hand, and the promises of inputs and samples.
#include "kernelwright/verify/gemm/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <set>

#include "kernelwright/verify/formats/block_formats.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

GemmProblem problem_of(int n, int k, DType dtype = DType::kBf16) {
  GemmProblem problem;
  problem.n = n;
  problem.k = k;
  problem.dtype = {dtype, dtype, DType::kBf16, DType::kF32};
  return problem;
}
GemmShape rows(int m) { return {"rows", m, true}; }

struct Element {
  double sum, magnitude;
};
std::vector<Element> all_elements(const GemmCase& call) {
  std::vector<Element> elements(call.d_elems());
  std::mutex mutex;
  compute_reference(call, choose_elements(call, 1e18), [&](const GemmReference& piece) {
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < piece.rows.size(); ++i)
      for (std::size_t j = 0; j < piece.columns.size(); ++j) {
        const std::size_t from = i * piece.columns.size() + j;
        elements[static_cast<std::size_t>(piece.rows[i]) * call.problem.n + piece.columns[j]] = {piece.sum[from],
                                                                                                 piece.magnitude[from]};
      }
  });
  return elements;
}

void set(HostMatrix& matrix, std::int64_t row, const std::vector<float>& values) {
  encode_row(matrix.dtype, values, matrix.row(row));
}

TEST(GemmReference, SumsProductsAndTheirMagnitudes) {
  GemmCase call = make_gemm_inputs(problem_of(2, 3), rows(2));
  set(call.a, 0, {1, -2, 3});
  set(call.a, 1, {0, 1, 0});
  set(call.b, 0, {4, 5, 6});
  set(call.b, 1, {-1, 2, 0.5});
  const auto elements = all_elements(call);
  EXPECT_EQ(elements[0].sum, 12);
  EXPECT_EQ(elements[0].magnitude, 32);
  EXPECT_EQ(elements[1].sum, -3.5);
  EXPECT_EQ(elements[1].magnitude, 6.5);
  EXPECT_EQ(elements[2].sum, 5);
  EXPECT_EQ(elements[3].sum, 2);
}

TEST(GemmReference, ReadsEveryLayout) {
  const int n = 70, k = 150, m = 67;
  std::vector<double> want;
  for (const OperandLayout layout : {OperandLayout::kNt, OperandLayout::kNn, OperandLayout::kTn, OperandLayout::kTt}) {
    GemmProblem problem = problem_of(n, k);
    problem.layout = layout;
    GemmCase call = make_gemm_inputs(problem, rows(m), {.padding = 3});
    for (int i = 0; i < m; ++i)  // a[i, l] = i - l, b[l, j] = j + 2 l
      for (int l = 0; l < k; ++l) {
        const std::vector<float> value{static_cast<float>(i - l)};
        encode_row(DType::kBf16, value, call.a_is_transposed() ? call.a.row(l) + 2 * i : call.a.row(i) + 2 * l);
      }
    for (int j = 0; j < n; ++j)
      for (int l = 0; l < k; ++l) {
        const std::vector<float> value{static_cast<float>((j + 2 * l) % 128)};
        encode_row(DType::kBf16, value, call.b_is_k_major() ? call.b.row(j) + 2 * l : call.b.row(l) + 2 * j);
      }
    std::vector<double> sums;
    for (const Element& element : all_elements(call)) sums.push_back(element.sum);
    double by_hand = 0;
    for (int l = 0; l < k; ++l) by_hand += (5 - l) * ((7 + 2 * l) % 128);
    EXPECT_EQ(sums[5 * n + 7], by_hand) << to_string(layout);
    if (want.empty()) want = sums;
    EXPECT_EQ(sums, want) << to_string(layout);
  }
}

TEST(GemmReference, MultipliesScalesIn) {
  GemmProblem problem = problem_of(130, 200, DType::kE4m3);
  const auto case_with = [&](ScaleKind scales) {
    problem.scales = scales;
    GemmCase call = make_gemm_inputs(problem, rows(3), {.padding = 1});
    for (int i = 0; i < 3; ++i) set(call.a, i, std::vector<float>(200, 1));
    for (int j = 0; j < 130; ++j) set(call.b, j, std::vector<float>(200, 1));
    return call;
  };
  GemmCase call = case_with(ScaleKind::kPerTensor);
  call.scale_a = {2};
  call.scale_b = {0.25};
  EXPECT_EQ(all_elements(call)[7].sum, 100);
  call = case_with(ScaleKind::kPerToken);
  call.scale_a = {1, 2, 4};
  call.scale_b.assign(130, 1);
  call.scale_b[129] = 0.5;
  EXPECT_EQ(all_elements(call)[1 * 130 + 129].sum, 200);
  EXPECT_EQ(all_elements(call)[2 * 130 + 128].sum, 800);
  call = case_with(ScaleKind::kPerBlock);
  ASSERT_EQ(call.scale_a_stride, 4);
  ASSERT_EQ(call.scale_b_stride, 3);
  call.scale_a = {1, 2, 3, 0, 4, 5, 6, 0};  // [k / 128, m]
  call.scale_b = {1, 2, 0, 4, 8, 0};        // [n / 128, k / 128]
  EXPECT_EQ(all_elements(call)[1 * 130 + 127].sum, 128 * 2 * 1 + 72 * 5 * 2);
  EXPECT_EQ(all_elements(call)[1 * 130 + 128].sum, 128 * 2 * 4 + 72 * 5 * 8);
}

GemmProblem block_scaled(int n, int k, DType dtype) {
  GemmProblem problem = problem_of(n, k, dtype);
  problem.scales = ScaleKind::kPerBlock;
  return problem;
}

TEST(GemmReference, MultipliesTheScalesOfBlocksIn) {
  for (const DType dtype : {DType::kMxfp8, DType::kMxfp4, DType::kNvfp4}) {
    const int vector = scale_vector(dtype), k = 4 * vector;
    GemmCase call = make_gemm_inputs(block_scaled(131, k, dtype), rows(40));
    const auto block = [&](int row, double of_a, int column, double of_b, int count) {
      for (int i = 0; i < 4; ++i) {
        call.a.scale_byte(row, i) =
            static_cast<std::byte>(encode_scale(dtype, static_cast<float>(i == count ? of_a : 1)));
        call.b.scale_byte(column, i) =
            static_cast<std::byte>(encode_scale(dtype, static_cast<float>(i == count ? of_b : 1)));
      }
      encode_row(dtype, std::vector<float>(static_cast<std::size_t>(k), 3), call.a.row(row));
      encode_row(dtype, std::vector<float>(static_cast<std::size_t>(k), 0.5), call.b.row(column));
    };
    block(33, 4, 130, 0.25, 2);
    block(2, 0.5, 1, 8, 3);
    const auto elements = all_elements(call);
    EXPECT_EQ(elements[33 * 131 + 130].sum, 1.5 * 4 * vector) << to_string(dtype);
    EXPECT_EQ(elements[2 * 131 + 1].sum, 1.5 * (3 + 4) * vector);
    EXPECT_EQ(elements[33 * 131 + 1].sum, 1.5 * (2 + 4 + 8) * vector);
    EXPECT_EQ(elements[2 * 131 + 130].magnitude, 1.5 * (2 + 0.25 + 0.5) * vector);
  }
}

TEST(GemmReference, ReadsTheUpper19BitsOfTf32) {
  GemmCase call = make_gemm_inputs(problem_of(1, 8, DType::kTf32), rows(1));
  set(call.a, 0, std::vector<float>(8, 1 + 0x1.8p-11f));
  set(call.b, 0, std::vector<float>(8, 2 + 0x1p-9f));
  EXPECT_EQ(all_elements(call)[0].sum, 8 * (2 + 0x1p-9));
}

TEST(GemmReference, HasZeroSumsWithoutK) {
  const GemmCase call = make_gemm_inputs(problem_of(4, 0), rows(2));
  for (const Element& element : all_elements(call)) EXPECT_EQ(element.sum, 0);
}

TEST(GemmEpilogue, IsActivationOfScaledSumsPlusBiasThenC) {
  GemmProblem problem = problem_of(2, 1);
  problem.epilogue = "relu(alpha * acc + bias) + beta * c";
  GemmCase call = make_gemm_inputs(problem, rows(1));
  set(call.bias, 0, {1, -9});
  set(call.c, 0, {10, 100});
  call.alpha = 2;
  call.beta = 3;
  EXPECT_EQ(epilogue_value(call, 0, 0, 4).value(), 2 * 4 + 1 + 30);
  EXPECT_EQ(epilogue_value(call, 0, 1, 4).value(), 300);
}

TEST(GemmEpilogue, KnowsItsActivations) {
  EXPECT_NEAR(activate(Activation::kSilu, 1), 0.7310585786, 1e-9);
  EXPECT_NEAR(activate(Activation::kGelu, 1), 0.8413447461, 1e-9);
  EXPECT_NEAR(activate(Activation::kGeluTanh, 1), 0.8411919906, 1e-9);
  EXPECT_NEAR(activate(Activation::kGelu, -3), -0.0040496941, 1e-9);
  EXPECT_EQ(activate(Activation::kRelu, -1), 0);
}

TEST(GemmInputs, PutNanBesideRows) {
  GemmProblem problem = problem_of(24, 40);
  problem.epilogue = "acc + c";
  const GemmCase call = make_gemm_inputs(problem, rows(5), {.padding = 2});
  EXPECT_EQ(call.a.stride, 48);
  EXPECT_EQ(call.d_stride, 32);
  EXPECT_EQ(call.c.stride, 28);
  for (const HostMatrix* matrix : {&call.a, &call.b, &call.c})
    for (std::int64_t column = 0; column < matrix->stride; ++column) {
      double value;
      matrix->decode(matrix->rows - 1, column, 1, &value);
      EXPECT_EQ(std::isnan(value), column >= matrix->columns) << column;
    }
}

TEST(GemmInputs, PutTheLargestNumbersBesideRowsThatHaveNoNan) {
  const GemmCase call = make_gemm_inputs(block_scaled(130, 96, DType::kMxfp4), rows(5), {.padding = 1});
  EXPECT_EQ(call.a.stride, 128);
  EXPECT_EQ(call.a.bytes.size(), 5u * 64);
  for (std::int64_t column = 96; column < 128; ++column) {
    double value;
    call.a.decode(4, column, 1, &value);
    EXPECT_EQ(value, 6);
  }
  EXPECT_EQ(call.a.scales.size(), 512u);
  EXPECT_EQ(call.b.scales.size(), 1024u);
  EXPECT_EQ(call.a.scale(5, 0), 0x1p127f) << "a row past the end";
  EXPECT_EQ(call.a.scale(4, 3), 0x1p127f) << "k past the end";
  EXPECT_LT(call.a.scale(4, 2), 16);
}

TEST(GemmInputs, OfBlockFormatsHaveDifferentScales) {
  for (const DType dtype : {DType::kMxfp8, DType::kMxfp4, DType::kNvfp4}) {
    const GemmCase call = make_gemm_inputs(block_scaled(9, 512, dtype), rows(3)),
                   again = make_gemm_inputs(block_scaled(9, 512, dtype), rows(200), {.padding = 5});
    std::set<float> scales;
    const int blocks = 512 / scale_vector(dtype);
    for (int block = 0; block < blocks; ++block) {
      scales.insert(call.a.scale(2, block));
      EXPECT_EQ(call.a.scale(2, block), again.a.scale(2, block)) << "whatever else there is";
      EXPECT_TRUE(std::isfinite(call.b.scale(8, block)));
    }
    EXPECT_GE(scales.size(), 3u) << to_string(dtype);
    EXPECT_TRUE(std::equal(call.a.row(2), call.a.row(2) + 512 * bits_of(dtype) / 8, again.a.row(2)));
  }
}

TEST(GemmInputs, ExactOnesOfBlockFormatsAreWholeNumbersTimesPowersOfTwo) {
  for (const DType dtype : {DType::kMxfp8, DType::kMxfp4, DType::kNvfp4}) {
    const GemmCase call = make_gemm_inputs(block_scaled(9, 512, dtype), rows(20), {.exact = true});
    std::set<double> magnitudes;
    std::set<float> scales;
    for (int row = 0; row < 20; ++row)
      for (int i = 0; i < 512; ++i) {
        double value;
        call.a.decode(row, i, 1, &value);
        const float scale = call.a.scale(row, i / scale_vector(dtype));
        scales.insert(scale);
        magnitudes.insert(std::fabs(value / scale));
      }
    EXPECT_EQ(scales, (std::set<float>{0.25, 0.5, 1, 2}));
    EXPECT_EQ(magnitudes,
              bits_of(dtype) == 4 ? (std::set<double>{0, 1, 2, 3, 4, 6}) : (std::set<double>{0, 1, 2, 3, 4}));
  }
}

TEST(GemmCases, CountTheBytesOfScales) {
  EXPECT_EQ(shape_only(block_scaled(100, 64, DType::kMxfp8), rows(10)).bytes(), 110 * (64 + 2) + 1000 * 2);
  EXPECT_EQ(shape_only(block_scaled(100, 64, DType::kNvfp4), rows(10)).bytes(), 110 * (32 + 4) + 1000 * 2);
}

TEST(GemmInputs, StartRowsOnSixteenBytesWithoutPadding) {
  const GemmCase call = make_gemm_inputs(problem_of(13, 24), rows(5));
  EXPECT_EQ(call.a.stride, 24);
  EXPECT_EQ(call.d_stride, 16);
}

TEST(GemmInputs, KeepTheirRowsWhateverFollows) {
  GemmProblem problem = problem_of(64, 256, DType::kE4m3);
  problem.scales = ScaleKind::kPerBlock;
  const GemmCase few = make_gemm_inputs(problem, rows(3)), many = make_gemm_inputs(problem, rows(50));
  for (int row = 0; row < 3; ++row) {
    EXPECT_TRUE(std::equal(few.a.row(row), few.a.row(row) + 256, many.a.row(row)));
    for (int block = 0; block < 2; ++block) EXPECT_EQ(few.scale(row, 9, block), many.scale(row, 9, block));
  }
}

TEST(GemmInputs, ExactOnesAreSmallWholeNumbersAndMostlyZero) {
  GemmProblem problem = problem_of(64, 512, DType::kE4m3);
  problem.scales = ScaleKind::kPerToken;
  const GemmCase call = make_gemm_inputs(problem, rows(20), {.exact = true});
  int zeros = 0;
  for (int row = 0; row < 20; ++row)
    for (int column = 0; column < 512; ++column) {
      double value;
      call.a.decode(row, column, 1, &value);
      EXPECT_EQ(value, std::round(value));
      EXPECT_LE(std::fabs(value), 4);
      zeros += value == 0;
    }
  EXPECT_NEAR(zeros / (20.0 * 512), 0.75, 0.03);
  for (const float scale : call.scale_a) {
    int exponent;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5f);
  }
}

TEST(GemmSamples, HoldAllOfASmallProblemAndSomeOfEveryTileOfALargeOne) {
  EXPECT_EQ(choose_elements(shape_only(problem_of(100, 64), rows(30))).elements(), 3000u);
  const GemmCase large = shape_only(problem_of(28672, 4096), rows(4000));
  const GemmSample sample = choose_elements(large);
  EXPECT_LT(static_cast<double>(sample.elements()) * 2 * 4096, 16e9);
  EXPECT_EQ(sample.rows.front(), 0);
  EXPECT_EQ(sample.rows.back(), 3999);
  EXPECT_EQ(sample.columns.back(), 28671);
  std::set<int> row_tiles, column_tiles;
  for (const int row : sample.rows) row_tiles.insert(row / kTileSide);
  for (const int column : sample.columns) column_tiles.insert(column / kTileSide);
  EXPECT_EQ(row_tiles.size(), 63u);
  EXPECT_EQ(column_tiles.size(), 448u);
  EXPECT_TRUE(std::is_sorted(sample.rows.begin(), sample.rows.end()));
}

TEST(GemmSamples, OfFewRowsLeaveNoRowOut) {
  const GemmSample sample = choose_elements(shape_only(problem_of(1 << 17, 16384), rows(16)));
  EXPECT_EQ(sample.rows.size(), 16u);
  EXPECT_LT(sample.columns.size(), 1u << 17);
}

}  // namespace
}  // namespace kernelwright
