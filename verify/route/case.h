/// One choice of experts, on the host: operands in the layout that a kernel reads. The reference and the devices share
/// this struct.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernelwright/generator/problem/route.h"

namespace kernelwright {

struct RouteCase {
  RouteProblem problem;
  std::int64_t tokens = 0;
  std::int64_t logits_stride = 0;  // elements

  std::vector<std::byte> logits;        // dtype
  std::vector<float> bias;              // [experts], with bias
  std::vector<std::int32_t> local_ids;  // [experts], with local_experts
  // Where experts are given: [tokens, top_k].
  std::vector<std::int32_t> ids;
  std::vector<float> weights;

  bool is_mapped() const { return problem.local_experts > 0; }
  /// Experts by which pairs are sorted.
  int buckets() const { return is_mapped() ? problem.local_experts : problem.experts; }
  std::int64_t pairs() const { return tokens * problem.top_k; }
  /// Rows that the sorted arrays have room for.
  std::int64_t sorted_rows() const { return pairs() + std::int64_t{problem.alignment - 1} * buckets(); }

  /// Comparisons of a choice: each expert once for each slot. Where experts are given, the pairs that are sorted.
  double operations() const;
  /// Bytes of what is read and written, each counted once.
  double bytes() const;
};

/// The outputs of a kernel; no ids and weights where they are given. Words that it did not write hold
/// DeviceMemory::kGuardByte. Weights are the bits of f32.
struct RouteOutput {
  std::vector<std::int32_t> ids, weights, starts, source_rows, positions, sorted_weights;
  bool operator==(const RouteOutput&) const = default;
};

struct RouteInputOptions {
  std::uint64_t seed = 0;
  bool gaps = false;  // between rows; a shape with `check` has them too
  bool odd = false;   // some tokens have equal logits, NaN or infinities; a shape with `check` has them too
};

/// Seeded inputs: normal logits. Or experts: with `odd`, some are no experts, and some are given twice.
RouteCase make_route_inputs(const RouteProblem& problem, const RouteShape& shape,
                            const RouteInputOptions& options = {});

/// The case without data: for counting operations and bytes.
RouteCase shape_only(const RouteProblem& problem, const RouteShape& shape);

}  // namespace kernelwright
