/// Masks in the form that kernels compute: one range of keys per query.
///
/// Every mask of ranges is one range [low, high) that grows with the query. Masks of ranges are none, padding, causal,
/// sliding_window, chunked, and what and/or make of them. Let `own` be a query's diagonal key. Where own >= 0, each
/// leaf shows it. So every join of leaves shows it too, and ranges that share a key unite to a range. Where queries
/// outnumber keys and own < 0, each leaf's range begins at key 0 (or is empty), and so does every join. No `or` of
/// ranges has a hole.
///
/// A join's high end is a minimum or maximum of own + right + 1: a number, computed here. Its low end is made by minima
/// and maxima from own - left of each window, and from s, the start of the chunk that holds own. As a function of s
/// alone that is a median, max(own - most, min(s, own - least)). Its values at s = -inf and s = +inf give `most` and
/// `least`. So two numbers stand for any tree of masks over chunks of one size.
#pragma once

#include <string>

#include "kernelwright/generator/problem/problem.h"

namespace kernelwright {

/// The numbers of a mask that a kernel gets.
struct RangeMask {
  MaskKind kind = MaskKind::kNone;  // none, causal, sliding_window or chunked
  Window window;                    // sliding_window and chunked: bounds around the diagonal; -1 is unbounded
  int chunk = 0;                    // chunked: keys of a chunk
  int chunk_reach = 0;              // chunked: keys left of the diagonal that a query sees across the chunk's start
  bool operator==(const RangeMask&) const = default;
};

/// `mask` in that form. A sliding_window stays one, whatever its window, because the window is a run-time parameter.
/// `mask` must have passed FamilyRules::takes_masks(): it has no other leaves, and chunks of one size. Open parts are
/// left out.
RangeMask range_mask(const Mask& mask);

/// The part of a mask that is no range: policy/open_scores.cuh asks it for single keys. It stands alone, or "and" joins
/// it to the rest. A query then sees a key if both the range and this part show it.
struct OpenMask {
  const Mask* tensor = nullptr;  // of kind tensor
  const Mask* source = nullptr;  // of kind source
  std::string source_path;       // its place in a config
};
/// The result points into `mask`, whose place in a config is `path`.
OpenMask open_mask(const Mask& mask, const std::string& path = "/problem/mask");

}  // namespace kernelwright
