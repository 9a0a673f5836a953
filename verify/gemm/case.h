/// One GEMM call on the host. Every operand is already rounded to the problem's dtypes, in the layout that a kernel
/// reads. The reference, the devices and the .npy files share this class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernelwright/generator/problem/epilogue.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"
#include "kernelwright/verify/kv_write/case.h"

namespace kernelwright {

/// Elements of one dtype as they lie in memory: rows of `columns` elements, `stride` elements apart. A block-scaled
/// dtype has its scales beside the elements; the value of an element is then its product with its scale.
struct HostMatrix {
  DType dtype = DType::kBf16;
  std::int64_t rows = 0, columns = 0, stride = 0;
  std::vector<std::byte> bytes;
  std::vector<std::byte> scales;  // block-scaled dtypes only, in the layout of contract/block_scales.h
  /// Of groups: the row of scales that each row has, -1 for none, and rows of atoms in all. Empty: rows have their own.
  std::vector<std::int64_t> scale_rows;
  std::int64_t atom_rows = 0;

  /// Makes `bytes` and `scales` as large as the extents need. All bytes are NaN if the dtype has it, and scales have
  /// their largest value.
  void allocate();
  std::byte* row(std::int64_t index);
  const std::byte* row(std::int64_t index) const;
  /// Sets the elements of a row to `values`, rounded. For a block-scaled dtype the values are quantised, and must be
  /// whole blocks.
  void set_row(std::int64_t index, std::span<const float> values);
  /// Scale `block` of a row, for elements [block, block + 1) * scale_vector(dtype).
  std::byte& scale_byte(std::int64_t index, std::int64_t block);
  bool has_scales(std::int64_t index) const {
    return scale_rows.empty() || scale_rows[static_cast<std::size_t>(index)] >= 0;
  }
  /// `count` rows from `first` on, or those of `rows`, -1 being zeros: as a matrix of its own.
  HostMatrix slice(std::int64_t first, std::int64_t count) const;
  HostMatrix gathered(std::span<const std::int32_t> rows) const;
  float scale(std::int64_t index, std::int64_t block) const;
  /// Elements [first, first + count) of a row.
  void decode(std::int64_t index, std::int64_t first, std::size_t count, double* to) const;
  /// Elements of one column, in rows [first, first + count).
  void decode_column(std::int64_t index, std::int64_t first, std::size_t count, double* to) const;

 private:
  std::size_t scale_index(std::int64_t index, std::int64_t block) const;
  void copy_scales(std::int64_t to, const HostMatrix& from, std::int64_t row);
};

/// Elements of k, and of n, that share an f32 scale if scales are per_block.
constexpr int kScaleBlock = 128;

struct GemmCase {
  GemmProblem problem;
  Epilogue epilogue;  // of problem.epilogue
  int m = 0;

  HostMatrix a;                         // [m, k], or [k, m] where the layout says so
  HostMatrix b;                         // [n, k], or [k, n]
  HostMatrix c;                         // [m, n], where the epilogue has c
  HostMatrix bias;                      // one row of n, where the epilogue has bias
  std::vector<float> scale_a, scale_b;  // f32, as GemmProblem says; per_block rows are strides apart
  std::int64_t scale_a_stride = 0, scale_b_stride = 0;
  std::int64_t d_stride = 0;        // elements
  std::int64_t scale_d_stride = 0;  // of a quantised d: scales, or atoms
  float alpha = 1, beta = 1;
  float tensor_scale = 1;  // of a block-scaled d
  /// Where the epilogue has rstd: sums of squares of 128 elements of a's rows, [k / 128, rounded up][squares_a_stride].
  std::vector<float> squares_a;
  std::int64_t squares_a_stride = 0, squares_stride = 0;  // the second: of such sums of d
  float rms_eps = 1e-6f;
  /// Of problems with groups, as GemmProblem::groups says. b, bias and the scales of b of all groups lie one behind the
  /// other. So do the blocks' scales of an a that is masked or a batch.
  std::vector<std::int32_t> bounds;
  std::vector<std::int32_t> gather;  // the row of a for each row of d, where the problem has it; -1: zeros
  /// Rows of a then. Of groups of kind k, rows of a and b.
  int source_rows = 0;
  /// The row of d that each row becomes, where the problem has it; -1: none. Rows of d and c then.
  std::vector<std::int32_t> scatter;
  int result_rows = 0;
  /// Of a problem that writes a cache: the cache, and what is read beside the product. Its q, k and v are empty.
  std::optional<KvWriteCase> kv;
  /// Of a batch: on a device, rows of a, b, c and d with one number lie side by side: a is [m / count, count, k]. Here,
  /// groups lie one behind the other.
  bool side_by_side = false;

  /// Whether values are independent draws, so that rounding errors are independent too. Then statistics apply.
  bool random_values = true;
  /// Whether sums are whole multiples of a power of two that f32 and the tensor core's sums hold. Then any order gives
  /// one result.
  bool exact = false;

  /// Rows of a and d that a group has: from `first` to `end` - 1. Bounds must fit.
  struct Rows {
    int first = 0, end = 0;
    int count() const { return end - first; }
  };
  Rows rows_of_group(int group) const;
  /// What the bounds say of a group: its rows of a and d, or of kind k those of a and b.
  Rows bounded_rows(int group) const;
  /// Rows that belong to any group; all where there are no groups.
  std::int64_t rows_in_groups() const;
  int groups_with_rows() const;
  /// Rows that bounds give to any group, where they give slices of k.
  std::int64_t depth_in_groups() const;
  /// Rows of a; where the layout says [k, m], columns. All groups' but of kind k.
  std::int64_t rows_of_a() const {
    if (problem.groups.slices_k()) return m / problem.groups.count;
    return problem.groups.gather ? source_rows : m;
  }
  /// Rows of d and c.
  std::int64_t rows_of_d() const { return problem.groups.scatter ? result_rows : m; }
  /// The row of d that row `row` becomes; -1: none.
  std::int64_t place_in_d(std::int64_t row) const;
  /// The rows of a group that become rows of d.
  std::vector<std::int32_t> written_rows(int group) const;
  /// Rows that choose the kernel: m, or those of a group that has any, on average.
  int planned_rows() const;
  /// A group as a dense call.
  GemmCase dense_group(int group) const;

  bool a_is_transposed() const;       // [k, m]
  bool b_is_k_major() const;          // [n, k]
  bool has_f32_block_scales() const;  // scale_a and scale_b, per_block
  /// a[row, first ..] and b[first .., column], in any layout; multiplied by the scales of block-scaled dtypes.
  void decode_a(std::int64_t row, std::int64_t first, std::size_t count, double* to) const;
  void decode_b(std::int64_t column, std::int64_t first, std::size_t count, double* to) const;
  /// The f32 scales that multiply the products in block `block` of k, kScaleBlock elements, for d[row, column].
  double scale(std::int64_t row, std::int64_t column, std::int64_t block) const;

  /// The factor of row `row`, 1 where the epilogue has none.
  double rstd(std::int64_t row) const;
  /// Columns of d: n, or with gates half of them, or those of queries.
  int d_columns() const {
    if (problem.kv_write) return result_columns(problem);
    return epilogue.gated ? problem.n / 2 : problem.n;
  }
  /// Rows of the matrix of d's scales, and scales of each; 0 where the epilogue does not quantise. Atoms of a
  /// block-scaled d are rows of bytes, a row for each 128 rows of d.
  std::int64_t scale_d_rows() const;
  std::int64_t scale_d_columns() const;
  /// Bytes of a scale of d, and from one row of that matrix to the next.
  int scale_d_bytes() const { return epilogue.makes_blocks() ? 1 : 4; }
  std::int64_t scale_d_stride_bytes() const;
  /// Rows of atoms of scales of m rows of a or d, as contract/scale_atoms.h has them of groups: all that there may be,
  /// and those ahead of a group's.
  std::int64_t atom_rows() const;
  std::int64_t atom_rows_ahead(int group) const;
  /// Where scale `block` of row `row` of a block-scaled d is in such a matrix without gaps. Without groups.
  std::size_t scale_d_index(std::int64_t row, std::int64_t block) const;
  /// Rows of the matrix of d's sums of squares; 0 without them.
  std::int64_t squares_rows() const {
    return epilogue.squares ? (d_columns() + kQuantizedGroup - 1) / kQuantizedGroup : 0;
  }
  bool has_atoms_of_d() const { return epilogue.makes_blocks() && !epilogue.rows_of_scales; }
  /// The row of scale_b that column `column` of b has, where blocks have scales.
  std::int64_t scale_row_of_b(std::int64_t column) const;
  std::size_t d_elems() const { return static_cast<std::size_t>(rows_of_d()) * static_cast<std::size_t>(d_columns()); }
  /// Floating-point operations of the product, a multiply and an add counted as two.
  double operations() const;
  /// Bytes of a, b and d, with the scales of block-scaled operands, and of c if it is read, each counted once.
  double bytes() const;
};

/// The output of a kernel, in problem.dtype.d: [m, n], or with scatter [result_rows, n], rows without gaps. Where the
/// epilogue quantises, with the scales: [columns of d / kQuantizedGroup, m], and of masked groups and a batch [count,
/// columns of d / kQuantizedGroup, m / count]. Of a block-scaled d they are bytes, whole atoms or [m, scales of a row].
struct GemmOutput {
  std::vector<std::byte> d;
  std::vector<std::byte> scale_d;  // f32, or bytes
  std::vector<std::byte> squares;  // f32 [columns of d / 128, rounded up, m], where the epilogue has squares
  std::vector<std::byte> amax;     // f32 [1], where it has amax
  KvWriteOutput kv;                // of a problem that writes a cache; its q_out is d
  bool operator==(const GemmOutput&) const = default;
};

struct GemmInputOptions {
  std::uint64_t seed = 0;
  /// Small integers, three quarters of them zero, and scales that are powers of two: f32 sums are exact. An activation
  /// other than relu still rounds.
  bool exact = false;
  /// Number of NaN elements after each row of a, b, c and d, and of f32 block scales. Rows of a, b and d are padded in
  /// any case if their bytes are no multiple of 16.
  int padding = 0;
  bool side_by_side = false;  // GemmCase::side_by_side
  KvWriteInputOptions kv{};   // of a cache, but for the seed
};

/// Seeded inputs rounded to the problem's dtypes: normal data, scales drawn from (0.25, 2). For block-scaled operands,
/// each block of such data is multiplied by a number from (0.25, 2), so that scales differ, and quantised. Memory that
/// no kernel may read holds NaN; e2m1 has no NaN, and holds 6 there. Throws ConfigError if the epilogue does not parse.
GemmCase make_gemm_inputs(const GemmProblem& problem, const GemmShape& shape, const GemmInputOptions& options = {});

/// The case without data: for counting operations and bytes.
GemmCase shape_only(const GemmProblem& problem, const GemmShape& shape);

/// Sets the extents of all operands of `call` from its problem and m, rows `padding` elements longer than their data
/// (see GemmInputOptions).
void lay_out(GemmCase& call, int padding = 0);

}  // namespace kernelwright
