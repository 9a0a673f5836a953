#include "kernelwright/generator/problem/range_mask.h"

#include <algorithm>
#include <limits>

namespace kernelwright {
namespace {

constexpr int kAll = std::numeric_limits<int>::max();  // unbounded

int bound(int keys) { return keys < 0 ? kAll : keys; }
int config_bound(int keys) { return keys == kAll ? -1 : keys; }

/// Keys left and right of the diagonal that a query sees: `most` if its chunk begins at -inf, `least` if it begins
/// later than any window.
struct Reach {
  int most, least, right;
  int chunk = 0;
};

Reach reach_of(const Mask& mask) {
  switch (mask.kind) {
    case MaskKind::kCausal: return {kAll, kAll, 0};
    case MaskKind::kSlidingWindow: {
      const int left = bound(mask.window.left);
      return {left, left, bound(mask.window.right)};
    }
    // A chunk begins no later than the diagonal itself. So 0, not less, stands for s = +inf.
    case MaskKind::kChunked: return {kAll, 0, 0, mask.chunk};
    case MaskKind::kAnd:
    case MaskKind::kOr: {
      const bool any = mask.kind == MaskKind::kOr;
      const auto join = [any](int a, int b) { return any ? std::max(a, b) : std::min(a, b); };
      Reach joined = any ? Reach{0, 0, 0} : Reach{kAll, kAll, kAll};
      for (const Mask& operand : mask.operands) {
        const Reach one = reach_of(operand);
        joined = {join(joined.most, one.most), join(joined.least, one.least), join(joined.right, one.right),
                  std::max(joined.chunk, one.chunk)};
      }
      return joined;
    }
    default: return {kAll, kAll, kAll};
  }
}

}  // namespace

RangeMask range_mask(const Mask& mask) {
  if (mask.kind == MaskKind::kSlidingWindow) return {mask.kind, mask.window};
  const Reach reach = reach_of(mask);
  const Window window{config_bound(reach.most), config_bound(reach.right)};
  if (reach.most != reach.least) return {MaskKind::kChunked, window, reach.chunk, reach.least};
  if (reach.most != kAll) return {MaskKind::kSlidingWindow, window};
  if (reach.right == 0) return {MaskKind::kCausal};
  return reach.right == kAll ? RangeMask{} : RangeMask{MaskKind::kSlidingWindow, window};
}

OpenMask open_mask(const Mask& mask, const std::string& path) {
  OpenMask open;
  if (mask.kind == MaskKind::kTensor) open.tensor = &mask;
  if (mask.kind == MaskKind::kSource) open.source = &mask, open.source_path = path;
  if (mask.kind != MaskKind::kAnd) return open;
  for (std::size_t i = 0; i < mask.operands.size(); ++i) {
    OpenMask one = open_mask(mask.operands[i], path + "/operands/" + std::to_string(i));
    if (one.tensor) open.tensor = one.tensor;
    if (one.source) open.source = one.source, open.source_path = std::move(one.source_path);
  }
  return open;
}

}  // namespace kernelwright
