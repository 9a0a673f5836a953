/// The keys that a query sees under a mask of ranges. Kernels, predictions and the check of a launch's data all ask
/// key_range().
#pragma once

#include "contract/integers.h"
#include "contract/words.h"

namespace kernelwright::contract {

// The device has an instruction for these two, which a comparison does not always become.
#ifdef __CUDACC_RTC__
#define KERNELWRIGHT_INLINE __device__ __forceinline__
KERNELWRIGHT_INLINE int32_t min_of(int32_t a, int32_t b) { return min(a, b); }
KERNELWRIGHT_INLINE int32_t max_of(int32_t a, int32_t b) { return max(a, b); }
#else
#define KERNELWRIGHT_INLINE inline
inline int32_t min_of(int32_t a, int32_t b) { return b < a ? b : a; }
inline int32_t max_of(int32_t a, int32_t b) { return a < b ? b : a; }
#endif

/// Keys [low, high); empty if low >= high.
struct KeyRange {
  int32_t low, high;
};

/// The numbers of a mask. Each is read under the kinds that its comment names.
struct KeyRangeNumbers {
  int32_t window_left, window_right;  // sliding_window and chunked: keys beside the diagonal; -1 is unbounded
  int32_t chunk;                      // chunked: keys of a chunk, 1 or more
  int32_t chunk_reach;                // chunked: keys left of the diagonal that are seen across the chunk's start
};

/// The kinds that the host folds every mask of ranges into: range_mask() of generator/problem/range_mask.h.
constexpr bool is_key_range(MaskKind kind) {
  return kind == MaskKind::kNone || kind == MaskKind::kCausal || kind == MaskKind::kSlidingWindow ||
         kind == MaskKind::kChunked;
}
/// Whether a row may not see the first keys.
constexpr bool hides_low(MaskKind kind) { return kind == MaskKind::kSlidingWindow || kind == MaskKind::kChunked; }

/// The keys that a query sees of a sequence with `kv_len` keys. `own` is the query's diagonal key: kv_len - 1 for the
/// last query, and negative for the first ones if queries outnumber keys.
KERNELWRIGHT_INLINE KeyRange key_range(MaskKind kind, const KeyRangeNumbers& numbers, int32_t own, int32_t kv_len) {
  KeyRange range{0, kv_len};
  if (kind == MaskKind::kCausal) range.high = min_of(kv_len, own + 1);
  if (kind == MaskKind::kChunked)
    range.low = max_of(0, min_of(own / numbers.chunk * numbers.chunk, own - numbers.chunk_reach));
  if (hides_low(kind)) {
    // Compared before the addition: a window may be as wide as an int.
    if (numbers.window_left >= 0 && own > numbers.window_left) range.low = max_of(range.low, own - numbers.window_left);
    if (numbers.window_right >= 0 && numbers.window_right < kv_len - 1 - own)
      range.high = own + numbers.window_right + 1;
  }
  if (range.high < range.low) range.high = range.low;
  return range;
}

/// The first key of a sequence with `kv_len` keys that exists for its queries. `start`: what a launch gives as
/// kv_starts, any number.
KERNELWRIGHT_INLINE int32_t first_key_of(int32_t start, int32_t kv_len) { return max_of(0, min_of(start, kv_len)); }

/// The same as above where keys before `start`, at most kv_len, do not exist. They count all the same: the diagonal,
/// windows and chunks stay where they are.
KERNELWRIGHT_INLINE KeyRange key_range(MaskKind kind, const KeyRangeNumbers& numbers, int32_t own, int32_t kv_len,
                                       int32_t start) {
  const KeyRange range = key_range(kind, numbers, own, kv_len);
  return {max_of(range.low, start), max_of(range.high, start)};
}

/// The key from which the tiles of an item are counted. `low` is the first key that any row of the item sees.
/// `may_hide_low`: whether that may be another key than the first, because of the mask or of kv_starts.
///
/// Tiles then begin with `low`: a window of 128 keys with a few queries takes two tiles of 80, not three. Tiles have to
/// begin with a box where keys come in boxes of `box_rows` of a page. Under a chunked mask they begin with a chunk, so
/// that chunks can be counted from there; `chunk` is 1 for other masks. If a box and a chunk do not begin together,
/// tiles begin with key 0.
KERNELWRIGHT_INLINE int32_t first_tile_key(bool may_hide_low, int32_t chunk, int32_t box_rows, int32_t low) {
  if (!may_hide_low) return 0;
  const int32_t step = chunk > box_rows ? chunk : box_rows;
  return step % chunk == 0 && step % box_rows == 0 ? low / step * step : 0;
}

}  // namespace kernelwright::contract
