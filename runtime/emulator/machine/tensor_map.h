/// Tensor maps as this machine encodes them, and the box copies that they describe (PTX ISA "Tensors", tiled and im2col
/// mode).
///
/// A box is a block of a tensor of up to five dimensions, innermost first. In shared memory its rows lie one after
/// another, and a swizzle exchanges their 16-byte units by an XOR on the address. A load fills the part of a box
/// outside the tensor, and a store skips this part. A load counts the bytes of this part all the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernelwright/generator/checked.h"
#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/emulator/numbers/bulk_reduce.h"

namespace kernelwright::emulator {

/// Numbered as tensormap.replace numbers them.
enum class TensorElement : std::uint8_t {
  kU8 = 0,
  kU16 = 1,
  kU32 = 2,
  kS32 = 3,
  kU64 = 4,
  kS64 = 5,
  kF16 = 6,
  kF32 = 7,
  kF32Ftz = 8,  // an H100's load keeps subnormal numbers
  kF64 = 9,
  kBf16 = 10,
  kTf32 = 11,  // f32 in global memory; a load rounds it to tf32
  kTf32Ftz = 12,
  kB4x16 = 13,     // 16 elements of 4 bits in 8 bytes
  kB4x16P64 = 14,  // the same, and in shared memory 8 bytes of padding behind them
  kB6x16P32 = 15,  // 16 elements of 6 bits in 12 bytes, and in shared memory 4 bytes of padding behind them
};
/// Bits of an element in global memory, and in shared memory with the padding. By the element's number; 0: unknown.
inline constexpr std::uint8_t kElementBits[16] = {8, 16, 32, 32, 64, 64, 16, 32, 32, 64, 16, 32, 32, 4, 4, 6};
inline constexpr std::uint8_t kSharedElementBits[16] = {8, 16, 32, 32, 64, 64, 16, 32, 32, 64, 16, 32, 32, 4, 8, 8};
inline std::uint32_t bits_of(TensorElement element) { return kElementBits[static_cast<std::uint8_t>(element) & 15]; }
inline std::uint32_t shared_bits_of(TensorElement element) {
  return kSharedElementBits[static_cast<std::uint8_t>(element) & 15];
}
inline std::uint32_t bytes_of(TensorElement element) { return bits_of(element) / 8; }  // for elements of whole bytes
std::string_view name_of(TensorElement element);                                       // "bf16"
bool is_floating(TensorElement element);
/// Whether a load writes other bits than those in global memory.
inline bool is_converted(TensorElement element) {
  return element == TensorElement::kTf32 || element == TensorElement::kTf32Ftz;
}

/// What a swizzle of 128 bytes keeps together. Numbered as tensormap.replace numbers them.
enum class SwizzleAtom : std::uint8_t { k16B = 0, k32B = 1, k32BFlip8B = 2, k64B = 3 };

/// Bytes within which a swizzle exchanges units: 0 for none.
std::uint32_t span_bytes(Swizzle swizzle);

/// The wide modes go along W and from image to image. H and D stay as the copy's coordinates say.
enum class TensorMapMode : std::uint8_t { kTile = 0, kIm2col = 1, kIm2colW = 2, kIm2colW128 = 3 };
std::string_view name_of(TensorMapMode mode);  // "of tiles", "by im2col"
inline constexpr std::uint32_t kPixelsOfW128 = 128;
inline bool is_wide(TensorMapMode mode) {
  return mode == TensorMapMode::kIm2colW || mode == TensorMapMode::kIm2colW128;
}

/// The offsets of an im2col copy, of dimensions 1 to 3. A wide copy has the first one alone.
struct Im2colOffsets {
  std::int32_t of[3] = {};
};

/// A tensor map, decoded from its 128 bytes: a tensor, and how boxes of it are copied.
///
/// An im2col map has dimensions C, W, H, D, N, or fewer between C and N. Its box is `box[0]` channels of `box[1]`
/// pixels, and `corners` say in which part of the tensor the pixels lie. A wide map has corners of W alone.
struct TensorMapDescription {
  std::uint64_t address = 0;
  TensorElement element = TensorElement::kBf16;
  int rank = 2;
  std::uint64_t dims[5] = {1, 1, 1, 1, 1};  // elements
  std::uint64_t strides_bytes[4] = {};      // of dimensions 1 to rank - 1
  std::uint32_t box[5] = {1, 1, 1, 1, 1};   // elements
  std::uint32_t element_strides[5] = {1, 1, 1, 1, 1};
  Swizzle swizzle = Swizzle::kNone;
  SwizzleAtom atom = SwizzleAtom::k16B;
  TensorMapMode mode = TensorMapMode::kTile;
  struct Corners {
    std::int16_t lower = 0, upper = 0;  // from the first index of the dimension, and from its last
  } corners[3];                         // of dimensions 1 to rank - 2
  bool fill_nan = false;                // true: elements outside the tensor become NaN; false: zero

  std::uint32_t row_bytes() const { return box[0] * shared_bits_of(element) / 8; }  // in shared memory
  std::uint32_t global_row_bytes() const { return box[0] * bits_of(element) / 8; }  // in global memory
  bool is_padded() const { return bits_of(element) != shared_bits_of(element); }
  /// Bytes from one row to the next in shared memory. A row that is narrower than its swizzle takes the whole span of
  /// the swizzle (measured on an H100). An mbarrier counts the rows' own bytes only.
  std::uint32_t pitch_bytes() const;
  /// Rows of the box in dimension d > 0: an element stride skips some.
  std::uint32_t rows(int d) const { return (box[d] + element_strides[d] - 1) / element_strides[d]; }
  std::uint32_t num_rows() const {
    return mode == TensorMapMode::kTile ? rows(1) * rows(2) * rows(3) * rows(4) : pixels();
  }
  std::uint32_t pixels() const { return mode == TensorMapMode::kIm2colW128 ? kPixelsOfW128 : box[1]; }  // of im2col
  /// Bytes that a load of one box puts into shared memory.
  std::uint32_t box_bytes() const { return row_bytes() * num_rows(); }
};

/// The map that a request of backend.h asks for. Throws ConfigError for a type that has no tiled copies here.
TensorMapDescription describe(const TensorMapRequest& request);

/// Throws ConfigError with everything that the driver would reject. A null address is none of it: the kernel may put
/// another address in its place.
TensorMap encode_tensor_map(const TensorMapDescription& description);

/// Reads an encoded map. Throws Fault if the bytes are no map or have become invalid.
TensorMapDescription decode_tensor_map(const std::byte* bytes);

/// tensormap.replace: sets one field of a map, or of 128 bytes that become one. The bytes may be zeros, where no field
/// is set. The map is checked when it is used.
enum class TensorMapField : std::uint8_t {
  kAddress,
  kRank,  // minus one
  kBoxDim,
  kGlobalDim,
  kGlobalStride,
  kElementStride,
  kElement,
  kInterleave,
  kSwizzle,
  kSwizzleAtomicity,
  kFill,
};
void replace_tensor_map_field(std::byte* bytes, TensorMapField field, std::uint32_t ordinal, std::uint64_t value);

/// One row of a box: the part that is in the tensor.
struct BoxRow {
  std::uint32_t offset = 0;          // in the box, before swizzling
  std::uint32_t begin = 0, end = 0;  // bytes of the row (as in global memory) in the tensor; equal if none are
  std::uint64_t address = 0;         // of byte `begin` in global memory
};

/// The address of a row past the last row: in no allocation, and a multiple of 16.
inline constexpr std::uint64_t kNowhere = ~std::uint64_t{0} << 16;
inline constexpr std::uint64_t kMostRowBytes = 256 * 8;  // the longest row of a box

/// The rows of an im2col copy: one pixel after another, through the part of the tensor between the corners.
template <class Visit>
void visit_im2col_rows(const TensorMapDescription& map, const std::int32_t (&coordinates)[5],
                       const Im2colOffsets& offsets, BoxRow row, CheckedSize corner, Visit&& visit) {
  const int last = map.rank - 1;  // the dimension of images
  const bool wide = is_wide(map.mode);
  const std::uint32_t begin = row.begin, end = row.end;
  std::int64_t at[5];
  for (int d = 1; d <= last; ++d) at[d] = coordinates[d];
  for (std::uint32_t pixel = 0; pixel < map.pixels(); ++pixel) {
    bool inside = begin < end;
    CheckedSize address = corner;
    for (int d = 1; d <= last; ++d) {
      const std::int64_t index = at[d] + (d < last ? offsets.of[d - 1] : 0);
      inside = inside && index >= 0 && index < static_cast<std::int64_t>(map.dims[d]);
      if (inside) address += CheckedSize(static_cast<std::uint64_t>(index)) * map.strides_bytes[d - 1];
    }
    row.begin = inside ? begin : 0;
    row.end = inside ? end : 0;
    row.address = (address + kMostRowBytes).in_range() ? address.or_most() : kNowhere;
    visit(row);
    row.offset += map.pitch_bytes();
    for (int d = 1; d <= last; ++d) {
      at[d] += d < last ? map.element_strides[d] : 1;
      if (d == last || at[d] < static_cast<std::int64_t>(map.dims[d]) + map.corners[d - 1].upper) break;
      at[d] = map.corners[d - 1].lower;
      if (wide) d = last - 1;
    }
  }
}

/// Calls `visit(row)` for each row of the box at `coordinates` (elements, may be negative).
template <class Visit>
void visit_box_rows(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], Visit&& visit,
                    const Im2colOffsets& offsets = {}) {
  const std::int64_t first = coordinates[0], bits = bits_of(map.element);
  const std::int64_t begin = first < 0 ? -first : 0;
  const std::int64_t left = static_cast<std::int64_t>(map.dims[0]) - first;
  const std::int64_t end = left < map.box[0] ? left : map.box[0];
  BoxRow row;
  const bool any = begin < end;
  const auto row_begin = static_cast<std::uint32_t>(any ? begin * bits / 8 : 0);
  const auto row_end = static_cast<std::uint32_t>(any ? end * bits / 8 : 0);
  const CheckedSize corner = CheckedSize(map.address) + static_cast<std::uint64_t>((first + begin) * bits / 8);
  if (map.mode != TensorMapMode::kTile) {
    row.begin = row_begin, row.end = row_end;
    return visit_im2col_rows(map, coordinates, offsets, row, corner, visit);
  }
  const std::uint32_t step = map.pitch_bytes();
  // The index of the row in dimension d, its address, and whether the row is in the tensor. Outermost dimension first.
  const auto inside = [&](int d, std::uint32_t i, CheckedSize& address) {
    const std::int64_t index = coordinates[d] + static_cast<std::int64_t>(i) * map.element_strides[d];
    if (index < 0 || index >= static_cast<std::int64_t>(map.dims[d])) return false;
    if (d < map.rank) address += CheckedSize(static_cast<std::uint64_t>(index)) * map.strides_bytes[d - 1];
    return true;
  };
  const std::uint32_t n1 = map.rows(1), n2 = map.rows(2), n3 = map.rows(3), n4 = map.rows(4);
  for (std::uint32_t i4 = 0; i4 < n4; ++i4) {
    CheckedSize at4 = corner;
    const bool in4 = inside(4, i4, at4) && any;
    for (std::uint32_t i3 = 0; i3 < n3; ++i3) {
      CheckedSize at3 = at4;
      const bool in3 = inside(3, i3, at3) && in4;
      for (std::uint32_t i2 = 0; i2 < n2; ++i2) {
        CheckedSize at2 = at3;
        const bool in2 = inside(2, i2, at2) && in3;
        for (std::uint32_t i1 = 0; i1 < n1; ++i1) {
          CheckedSize at1 = at2;
          const bool in1 = inside(1, i1, at1) && in2;
          row.begin = in1 ? row_begin : 0;
          row.end = in1 ? row_end : 0;
          row.address = (at1 + kMostRowBytes).in_range() ? at1.or_most() : kNowhere;
          visit(row);
          row.offset += step;
        }
      }
    }
  }
}

/// Copies the box between the tensor and `shared`, a CTA's shared memory, at `offset`. The caller has checked the
/// places. Padding in shared memory stays as it is.
void load_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], std::byte* shared,
              std::uint32_t offset, const Im2colOffsets& offsets = {});
/// A store writes whole units of 16 bytes. Where a row of the tensor ends within a unit, the store also overwrites the
/// bytes after the row. (Measured on an H100: the row's padding, which its stride leaves.)
void store_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], const std::byte* shared,
               std::uint32_t offset);
void reduce_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], const std::byte* shared,
                std::uint32_t offset, ReduceBytes reduce);

}  // namespace kernelwright::emulator
