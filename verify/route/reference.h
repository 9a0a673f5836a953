/// What a choice of experts computes, in fp64 from the definition, token by token; and the stable sort of its pairs.
#pragma once

#include <vector>

#include "kernelwright/verify/route/case.h"

namespace kernelwright {

/// The experts of one token, by value and by how far f32 may be off. Values of NaN are below all others.
struct RouteRow {
  std::vector<float> logits;
  std::vector<double> choice, choice_error;  // what experts are chosen by
  std::vector<double> group, group_error;    // what groups are picked by; empty for one group
};
RouteRow reference_row(const RouteCase& call, std::int64_t token);

/// The order of choices: -1 for NaN, which is below minus infinity.
bool is_below(double a, double b);

/// The experts of a token, by exact values: of two alike, the lower one.
std::vector<int> chosen_experts(const RouteCase& call, const RouteRow& row);

/// The weights of a token whose experts are chosen, and how far f32 may be off.
struct RouteWeights {
  std::vector<double> value, error;
};
RouteWeights reference_weights(const RouteCase& call, const RouteRow& row, const std::vector<int>& experts,
                               float factor);

/// What a stable counting sort of the pairs gives. Rows that no pair has are -1 up to the last start, and are left out
/// behind it.
struct SortedPairs {
  std::vector<std::int32_t> starts, source_rows, positions;
};
SortedPairs sorted_pairs(const RouteCase& call, const std::vector<std::int32_t>& ids);

}  // namespace kernelwright
