/// One call of steps over rows, on the host: operands in the layout that a kernel reads. The reference and the devices
/// share this struct.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernelwright/generator/problem/row_op.h"

namespace kernelwright {

struct RowOpCase {
  RowOpProblem problem;
  std::int64_t rows = 0;
  std::int64_t x_stride = 0, residual_stride = 0, residual_out_stride = 0, out_stride = 0;  // elements
  std::int64_t scale_stride = 0;                                                            // per_block, f32

  std::int64_t lse_stride = 0, lse_head_stride = 0;  // input "merge": from one row to the next, and from one head

  std::vector<std::byte> x, residual, weight;  // dtype.in
  std::vector<float> lse, residual_lse;        // at lse_at()
  float given_scale = 1;                       // per_tensor
  float tensor_scale = 1;                      // mxfp8, mxfp4, nvfp4

  int read_width() const { return problem.input == RowInput::kGateUp ? 2 * problem.width : problem.width; }
  bool adds() const { return problem.input == RowInput::kAdd; }
  bool merges() const { return problem.input == RowInput::kMerge; }
  bool has_weights() const { return problem.norm.kind != NormKind::kNone && problem.norm.weight; }
  bool has_atoms() const { return is_block_scaled(problem.dtype.out); }
  /// Blocks of a row with an f32 scale each: 0 but for per_block.
  std::int64_t scale_blocks() const {
    return problem.scales.kind == ScaleKind::kPerBlock && !has_atoms() ? problem.width / 128 : 0;
  }
  bool scale_columns() const { return problem.scales.layout == ScaleLayout::kColumns; }
  /// Bytes of the rows from the first to the end of the last, with gaps between them.
  std::size_t row_bytes(std::int64_t stride, DType dtype) const;
  /// Bytes of the scales that a kernel makes.
  std::size_t scale_bytes() const;

  /// Where the LSE of a row's head lies.
  std::size_t lse_at(std::int64_t row, std::size_t head) const {
    return static_cast<std::size_t>(row * lse_stride) + head * static_cast<std::size_t>(lse_head_stride);
  }
  /// Bytes of all LSEs, with gaps between them.
  std::size_t lse_bytes() const;

  /// Elements that are written, times a dozen operations.
  double operations() const;
  /// Bytes of what is read and written, each counted once.
  double bytes() const;
};

/// The outputs of a kernel. Bytes that it did not write hold DeviceMemory::kGuardByte.
struct RowOpOutput {
  std::vector<std::byte> out, residual_out, scale, lse_out;
  bool operator==(const RowOpOutput&) const = default;
};

struct RowOpInputOptions {
  std::uint64_t seed = 0;
  bool gaps = false;  // between rows; a shape with `check` has them too
};

/// Seeded inputs: normal data, whose magnitude differs from row to row.
RowOpCase make_row_op_inputs(const RowOpProblem& problem, const RowOpShape& shape,
                             const RowOpInputOptions& options = {});

/// Lays out the operands of a case whose sizes are known: rows `gap` elements apart.
void lay_out_rows(RowOpCase& call, std::int64_t gap);

/// The case without data: for counting operations and bytes.
RowOpCase shape_only(const RowOpProblem& problem, const RowOpShape& shape);

}  // namespace kernelwright
