/// One sum over the rows of tokens' experts, on the host: operands in the layout that a kernel reads. The reference and
/// the devices share this struct.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernelwright/generator/problem/moe_combine.h"

namespace kernelwright {

struct MoeCombineCase {
  MoeCombineProblem problem;
  std::int64_t tokens = 0, num_rows = 0;
  std::int64_t rows_stride = 0, residual_stride = 0, out_stride = 0;  // elements

  std::vector<std::byte> rows, residual;  // dtype.in; residual empty without one
  std::vector<std::int32_t> positions;    // [tokens, top_k]
  std::vector<float> weights;             // [tokens, top_k], with weighted

  /// The weight of a pair: 1 without weights.
  float weight_of(std::size_t pair) const { return problem.weighted ? weights[pair] : 1; }
  /// Whether the pair's row is read: there is such a row, and its weight is not 0.
  bool reads(std::size_t pair) const {
    return positions[pair] >= 0 && positions[pair] < num_rows && weight_of(pair) != 0;
  }

  /// A product and a sum for each element of a row that is read.
  double operations() const;
  /// Bytes of what is read and written: of each pair one row.
  double bytes() const;
};

/// The output of a kernel. Bytes that it did not write hold DeviceMemory::kGuardByte.
struct MoeCombineOutput {
  std::vector<std::byte> out;
  bool operator==(const MoeCombineOutput&) const = default;
};

struct MoeCombineInputOptions {
  std::uint64_t seed = 0;
  bool gaps = false;  // between rows; a shape with `check` has them too
  bool odd = false;   // some pairs have no row, or a weight of 0; a shape with `check` has them too
};

/// Seeded inputs: a row for each pair, in random order, of normal values. Rows that no pair reads are NaN.
MoeCombineCase make_moe_combine_inputs(const MoeCombineProblem& problem, const MoeCombineShape& shape,
                                       const MoeCombineInputOptions& options = {});

/// The case without data: for counting operations and bytes.
MoeCombineCase shape_only(const MoeCombineProblem& problem, const MoeCombineShape& shape);

}  // namespace kernelwright
