// The folded form of a mask shows the same keys as the mask's tree.
#include "kernelwright/generator/problem/range_mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace kernelwright {
namespace {

/// Key by key, as docs/config.md says.
bool shows(const Mask& mask, int own, int key) {
  const auto each = [&](const Mask& operand) { return shows(operand, own, key); };
  switch (mask.kind) {
    case MaskKind::kCausal: return key <= own;
    case MaskKind::kSlidingWindow:
      return (mask.window.left < 0 || own - key <= mask.window.left) &&
             (mask.window.right < 0 || key - own <= mask.window.right);
    case MaskKind::kChunked: return key <= own && key / mask.chunk == own / mask.chunk;
    case MaskKind::kAnd: return std::all_of(mask.operands.begin(), mask.operands.end(), each);
    case MaskKind::kOr: return std::any_of(mask.operands.begin(), mask.operands.end(), each);
    default: return true;
  }
}

/// The rule of policy/mask.cuh.
bool shows(const RangeMask& mask, int own, int key) {
  switch (mask.kind) {
    case MaskKind::kNone: return true;
    case MaskKind::kCausal: return key <= own;
    case MaskKind::kChunked:
      if (key < std::min(own / mask.chunk * mask.chunk, own - mask.chunk_reach)) return false;
      [[fallthrough]];
    default: break;
  }
  return (mask.window.left < 0 || own - key <= mask.window.left) &&
         (mask.window.right < 0 || key - own <= mask.window.right);
}

Mask random_mask(std::mt19937& random, int chunk, int depth) {
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  const Mask leaves[] = {{MaskKind::kNone, {}, 0, {}},
                         {MaskKind::kPadding, {}, 0, {}},
                         {MaskKind::kCausal, {}, 0, {}},
                         {MaskKind::kSlidingWindow, {below(12) - 1, below(6) - 1}, 0, {}},
                         {MaskKind::kSlidingWindow, {below(12) - 1, below(6) - 1}, 0, {}},
                         {MaskKind::kChunked, {}, chunk, {}},
                         {MaskKind::kChunked, {}, chunk, {}}};
  if (depth == 0 || below(4) == 0) return leaves[below(7)];
  Mask joined{below(2) ? MaskKind::kAnd : MaskKind::kOr, {}, 0, {}};
  for (int i = 2 + below(2); i > 0; --i) joined.operands.push_back(random_mask(random, chunk, depth - 1));
  return joined;
}

TEST(RangeMask, ShowsTheKeysOfTheTree) {
  std::mt19937 random(3);
  int chunked = 0;
  for (int i = 0; i < 3000; ++i) {
    const Mask mask = random_mask(random, 1 + static_cast<int>(random() % 9), 3);
    const RangeMask folded = range_mask(mask);
    chunked += folded.kind == MaskKind::kChunked && folded.chunk_reach > 0 && folded.window.left >= 0;
    for (int own = -5; own < 30; ++own) {
      int changes = 0;
      for (int key = 0; key < 30; ++key) {
        ASSERT_EQ(shows(folded, own, key), shows(mask, own, key))
            << "mask " << i << ", diagonal key " << own << ", key " << key;
        changes += key > 0 && shows(mask, own, key) != shows(mask, own, key - 1);
      }
      ASSERT_LE(changes, 2) << "mask " << i << " has a hole at diagonal key " << own;
    }
  }
  EXPECT_GT(chunked, 30) << "the trees have become too simple";
}

TEST(RangeMask, TakesTheSimplestKernelThatWillDo) {
  const Mask causal{MaskKind::kCausal, {}, 0, {}}, padding{MaskKind::kPadding, {}, 0, {}},
      chunk{MaskKind::kChunked, {}, 64, {}}, window{MaskKind::kSlidingWindow, {127, 3}, 0, {}};
  const auto join = [](MaskKind kind, std::vector<Mask> masks) { return range_mask({kind, {}, 0, std::move(masks)}); };
  EXPECT_EQ(range_mask(padding), RangeMask{});
  EXPECT_EQ(range_mask(window), (RangeMask{MaskKind::kSlidingWindow, {127, 3}}));
  EXPECT_EQ(range_mask({MaskKind::kSlidingWindow, {-1, 0}, 0, {}}).kind, MaskKind::kSlidingWindow)
      << "a run-time window may come";
  EXPECT_EQ(range_mask(chunk), (RangeMask{MaskKind::kChunked, {-1, 0}, 64, 0}));
  EXPECT_EQ(join(MaskKind::kAnd, {causal, padding}).kind, MaskKind::kCausal);
  EXPECT_EQ(join(MaskKind::kOr, {causal, padding}).kind, MaskKind::kNone);
  EXPECT_EQ(join(MaskKind::kAnd, {causal, window}), (RangeMask{MaskKind::kSlidingWindow, {127, 0}}));
  EXPECT_EQ(join(MaskKind::kOr, {causal, chunk}).kind, MaskKind::kCausal);
  EXPECT_EQ(join(MaskKind::kAnd, {chunk, window}), (RangeMask{MaskKind::kChunked, {127, 0}, 64, 0}));
  EXPECT_EQ(join(MaskKind::kOr, {chunk, window}), (RangeMask{MaskKind::kChunked, {-1, 3}, 64, 127}));
}

}  // namespace
}  // namespace kernelwright
