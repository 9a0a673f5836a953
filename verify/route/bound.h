/// Compares what a kernel wrote with the reference.
///
/// Where experts are chosen by logits, the choice has to be that of an exact stable sort. Where they are chosen by
/// scores in f32, two experts within the error of f32 may change places, but not two whose logits and biases are equal.
/// Weights have to be right within the error of f32 for the experts that were chosen. The sort of these has to be
/// exact. Every word that no row has, has to hold what it held before.
#pragma once

#include <string>

#include "kernelwright/verify/route/case.h"

namespace kernelwright {

struct RouteVerdictOptions {
  double budget_operations = 1e9;  // no tokens are left out
  std::uint64_t seed = 0;
  float factor = -1;  // of the launch; below 0: the problem's
};

/// `text` has the first fault: "ids[3, 1]: 17 where 4 has a larger score".
struct RouteVerdict {
  bool passed = false;
  std::size_t tokens = 0;
  double worst_ratio = 0;     // of weights: error / bound
  double max_error = 0;       // of weights
  std::size_t near_ties = 0;  // tokens whose experts are not those of fp64, but right
  std::size_t strayed = 0;    // words that no row has, and that were written
  std::string text;           // "" if passed
};
RouteVerdict verify(const RouteCase& call, const RouteOutput& output, const RouteVerdictOptions& options = {});

}  // namespace kernelwright
