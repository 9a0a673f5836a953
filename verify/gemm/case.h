/// One GEMM call on the host: every operand already rounded to the problem's dtypes, in the layout that a kernel reads.
/// What the reference, the devices and the .npy files share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernelwright/generator/problem/epilogue.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"

namespace kernelwright {

/// Elements of one dtype as they lie in memory: rows of `columns` elements, `stride` elements apart. Of a block-scaled
/// dtype, with the scales beside them; an element's value is its product with its scale then.
struct HostMatrix {
  DType dtype = DType::kBf16;
  std::int64_t rows = 0, columns = 0, stride = 0;
  std::vector<std::byte> bytes;
  std::vector<std::byte> scales;  // block-scaled dtypes alone, as contract/block_scales.h says

  /// Makes `bytes` and `scales` of the extents: NaN wherever the dtype has it, and scales as large as they come.
  void allocate();
  std::byte* row(std::int64_t index);
  const std::byte* row(std::int64_t index) const;
  /// Makes `values` the elements of a row, rounded or, where the dtype is block-scaled, quantised: whole blocks then.
  void set_row(std::int64_t index, std::span<const float> values);
  /// Scale `block` of a row, of elements [block, block + 1) * scale_vector(dtype).
  std::byte& scale_byte(std::int64_t index, std::int64_t block);
  float scale(std::int64_t index, std::int64_t block) const;
  /// Elements [first, first + count) of a row.
  void decode(std::int64_t index, std::int64_t first, std::size_t count, double* to) const;
  /// Elements of one column, in rows [first, first + count).
  void decode_column(std::int64_t index, std::int64_t first, std::size_t count, double* to) const;

 private:
  std::size_t scale_index(std::int64_t index, std::int64_t block) const;
};

/// Elements of k, and of n, that share an f32 scale where scales are per_block.
constexpr int kScaleBlock = 128;

struct GemmCase {
  GemmProblem problem;
  Epilogue epilogue;  // of problem.epilogue
  int m = 0;

  HostMatrix a;                         // [m, k], or [k, m] where the layout says so
  HostMatrix b;                         // [n, k], or [k, n]
  HostMatrix c;                         // [m, n], where the epilogue has c
  HostMatrix bias;                      // one row of n, where the epilogue has bias
  std::vector<float> scale_a, scale_b;  // f32 ones, as GemmProblem says; rows of per_block scales are strides apart
  std::int64_t scale_a_stride = 0, scale_b_stride = 0;
  std::int64_t d_stride = 0;  // elements
  float alpha = 1, beta = 1;

  /// Values are independent draws, so that rounding errors are too; says whether statistics apply.
  bool random_values = true;
  /// Sums are whole multiples of a power of two that f32 and the tensor core's sums hold: any order gives one result.
  bool exact = false;

  bool a_is_transposed() const;       // [k, m]
  bool b_is_k_major() const;          // [n, k]
  bool has_f32_block_scales() const;  // scale_a and scale_b, per_block
  /// a[row, first ..] and b[first .., column], whatever the layout; with the scales of block-scaled dtypes.
  void decode_a(std::int64_t row, std::int64_t first, std::size_t count, double* to) const;
  void decode_b(std::int64_t column, std::int64_t first, std::size_t count, double* to) const;
  /// The f32 scales that multiply the products of block `block` of k, kScaleBlock elements, in d[row, column].
  double scale(std::int64_t row, std::int64_t column, std::int64_t block) const;

  std::size_t d_elems() const { return static_cast<std::size_t>(m) * static_cast<std::size_t>(problem.n); }
  /// Floating-point operations of the product, a multiply and an add counted as two.
  double operations() const;
  /// Bytes of a, b, with the scales of block-scaled ones, and d, and of c where it is read, each once.
  double bytes() const;
};

/// What a kernel wrote, in problem.dtype.d: [m, n], rows one behind the other.
struct GemmOutput {
  std::vector<std::byte> d;
  bool operator==(const GemmOutput&) const = default;
};

struct GemmInputOptions {
  std::uint64_t seed = 0;
  /// Small whole numbers, three quarters of them zero, and scales that are powers of two: f32 sums are exact. An
  /// activation other than relu rounds all the same.
  bool exact = false;
  /// NaN elements after each row of a, b, c and d, and of f32 scales of blocks. Rows of a, b and d have some in any
  /// case where 16 bytes do not divide them.
  int padding = 0;
};

/// Seeded inputs rounded to the problem's dtypes: normal data, scales drawn from (0.25, 2). Block-scaled operands are
/// such data quantised, each block times a number from (0.25, 2), so that scales differ. Memory that no kernel may read
/// holds NaN; e2m1 has none, and 6 stands there. Throws ConfigError if the epilogue does not parse.
GemmCase make_gemm_inputs(const GemmProblem& problem, const GemmShape& shape, const GemmInputOptions& options = {});

/// The case without data: for counting operations and bytes.
GemmCase shape_only(const GemmProblem& problem, const GemmShape& shape);

/// Sets the extents of all operands of `call` from its problem and m, rows `padding` elements longer than their data
/// (see GemmInputOptions).
void lay_out(GemmCase& call, int padding = 0);

}  // namespace kernelwright
