/// Compares what a kernel wrote with the reference. An element may be off by the rounding of its format, and by the f32
/// arithmetic ahead of it (reference.h). A value that only changes its place is right to the bit. Scales that the
/// kernel makes are compared too, and elements are then read with the scale that it wrote.
///
/// Every byte of the cache that belongs to no token has to hold what it held before.
#pragma once

#include <functional>
#include <string>

#include "kernelwright/verify/kv_write/case.h"
#include "kernelwright/verify/kv_write/reference.h"

namespace kernelwright {

struct KvWriteVerdictOptions {
  double budget_operations = 1e9;  // more tokens are sampled
  std::uint64_t seed = 0;
};

/// `text` has the worst place if it failed: "k[3, head 1, 17]: 0.5 where 0.25 +- 0.001 is right".
struct KvWriteVerdict {
  bool passed = false;
  bool sampled = false;  // some tokens were not compared
  std::size_t tokens = 0, elements = 0;
  double worst_ratio = 0;  // error / limit
  double max_error = 0;
  std::size_t not_finite = 0;  // elements that are NaN or infinite and should not be
  std::size_t strayed = 0;     // bytes of the cache that no token has, and that were written
  std::string text;            // "" if passed
};
KvWriteVerdict verify(const KvWriteCase& call, const KvWriteOutput& output, const KvWriteVerdictOptions& options = {});

/// Heads that something else computes, of the tokens that it has.
struct MadeHeads {
  std::function<bool(std::int64_t token)> has;
  HeadSource head;
};
/// The same of these heads. A token that is not there is not compared.
KvWriteVerdict verify(const KvWriteCase& call, const KvWriteOutput& output, const MadeHeads& heads);

}  // namespace kernelwright
