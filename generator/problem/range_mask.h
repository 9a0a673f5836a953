/// Masks as kernels compute them: one range of keys per query.
///
/// Every mask of ranges (none, padding, causal, sliding_window, chunked, and what and/or make of them) is one range
/// [low, high) that grows with the query. Let `own` be a query's diagonal key. Where own >= 0, each of the leaves shows
/// it, so every join of them does, and ranges that share a key unite to a range. Where queries outnumber keys and own <
/// 0, each leaf's range begins at key 0 (or is empty), and so does every join. No `or` of ranges has a hole.
///
/// A join's high end is a minimum or maximum of own + right + 1: a number, worked out here. Its low end is made by
/// minima and maxima from own - left of each window and from s, the start of the chunk that holds own. As a function of
/// s alone that is a median, max(own - most, min(s, own - least)): its values at s = -inf and s = +inf say which. So
/// two numbers stand for any tree of masks over chunks of one size.
#pragma once

#include <string>

#include "kernelwright/generator/problem/problem.h"

namespace kernelwright {

/// What a kernel is told of a mask.
struct RangeMask {
  MaskKind kind = MaskKind::kNone;  // none, causal, sliding_window or chunked
  Window window;                    // sliding_window and chunked: bounds around the diagonal; -1 is unbounded
  int chunk = 0;                    // chunked: keys of a chunk
  int chunk_reach = 0;              // chunked: keys left of the diagonal that are seen across the chunk's start
  bool operator==(const RangeMask&) const = default;
};

/// `mask` in that form. A sliding_window stays one, whatever its window: that is a run-time parameter. Only for masks
/// that FamilyRules::takes_masks() has let through: no other leaves, one size of chunks. What is open is left out.
RangeMask range_mask(const Mask& mask);

/// The part of a mask that is no range: policy/open_scores.cuh asks it for single keys. It stands alone or is joined to
/// the rest by "and", so that a key is seen if both the range and this show it.
struct OpenMask {
  const Mask* tensor = nullptr;  // of kind tensor
  const Mask* source = nullptr;  // of kind source
  std::string source_path;       // its place in a config
};
/// Points into `mask`, whose place in a config is `path`.
OpenMask open_mask(const Mask& mask, const std::string& path = "/problem/mask");

}  // namespace kernelwright
