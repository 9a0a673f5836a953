/// Compares what a kernel wrote with the reference. f32 gives a value within the error that reference.h derives; an
/// element has to be what one of those values rounds to. So it is the right code, or one beside it near a tie. A sum
/// with the residual is right to the bit, and so is a scale of values that no arithmetic precedes. Other scales are
/// what one of the largest magnitudes within the error gives. Elements are read with the scale that the kernel wrote.
///
/// Every byte between the rows has to hold what it held before. Scales past the end, in whole atoms, have to be 0.
#pragma once

#include <string>

#include "kernelwright/verify/row_op/case.h"

namespace kernelwright {

struct RowOpVerdictOptions {
  double budget_operations = 1e9;  // more rows are sampled
  std::uint64_t seed = 0;
};

/// `text` has the worst place if it failed: "out[3, 17]: 0.5 where 0.25 is right".
struct RowOpVerdict {
  bool passed = false;
  bool sampled = false;  // some rows were not compared
  std::size_t rows = 0, elements = 0;
  double worst_ratio = 0;  // error / the largest error of what would be right
  double max_error = 0;
  std::size_t apart = 0;    // elements that are not what fp64 rounds to, but right
  std::size_t strayed = 0;  // bytes that belong to no row, and that were written
  std::string text;         // "" if passed
};
RowOpVerdict verify(const RowOpCase& call, const RowOpOutput& output, const RowOpVerdictOptions& options = {});

}  // namespace kernelwright
