/// Tensor maps as this machine encodes them, and the box copies that they describe (PTX ISA "Tensors", tiled mode).
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
  kF64 = 9,
  kBf16 = 10,
};
std::uint32_t bytes_of(TensorElement element);
std::string_view name_of(TensorElement element);  // "bf16"
bool is_floating(TensorElement element);

/// A tensor map, decoded from its 128 bytes: a tensor, and how boxes of it are copied.
struct TensorMapDescription {
  std::uint64_t address = 0;
  TensorElement element = TensorElement::kBf16;
  int rank = 2;
  std::uint64_t dims[5] = {1, 1, 1, 1, 1};  // elements
  std::uint64_t strides_bytes[4] = {};      // of dimensions 1 to rank - 1
  std::uint32_t box[5] = {1, 1, 1, 1, 1};   // elements
  std::uint32_t element_strides[5] = {1, 1, 1, 1, 1};
  Swizzle swizzle = Swizzle::kNone;
  bool fill_nan = false;  // true: elements outside the tensor become NaN; false: zero

  std::uint32_t row_bytes() const { return box[0] * bytes_of(element); }
  /// Bytes from one row to the next in shared memory. A row that is narrower than its swizzle takes the whole span of
  /// the swizzle (measured on an H100). An mbarrier counts the rows' own bytes only.
  std::uint32_t pitch_bytes() const;
  /// Rows of the box in dimension d > 0: an element stride skips some.
  std::uint32_t rows(int d) const { return (box[d] + element_strides[d] - 1) / element_strides[d]; }
  std::uint32_t num_rows() const { return rows(1) * rows(2) * rows(3) * rows(4); }
  /// Bytes that a load of one box puts into shared memory.
  std::uint32_t box_bytes() const { return row_bytes() * num_rows(); }
};

/// The map that a request of backend.h asks for. Throws ConfigError for a type that has no tiled copies here.
TensorMapDescription describe(const TensorMapRequest& request);

/// Throws ConfigError with everything that cuTensorMapEncodeTiled would reject.
TensorMap encode_tensor_map(const TensorMapDescription& description);

/// Reads an encoded map. Throws Fault if the bytes are no map or have become invalid.
TensorMapDescription decode_tensor_map(const std::byte* bytes);

/// tensormap.replace: sets one field of an encoded map. The field is checked when the map is used.
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
  std::uint32_t begin = 0, end = 0;  // bytes of the row that are in the tensor; equal if none are
  std::uint64_t address = 0;         // of byte `begin` in global memory
};

/// The address of a row past the last row: in no allocation, and a multiple of 16.
inline constexpr std::uint64_t kNowhere = ~std::uint64_t{0} << 16;
inline constexpr std::uint64_t kMostRowBytes = 256 * 8;  // the longest row of a box

/// Calls `visit(row)` for each row of the box at `coordinates` (elements, may be negative).
template <class Visit>
void visit_box_rows(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], Visit&& visit) {
  const std::int64_t first = coordinates[0], size = bytes_of(map.element);
  const std::int64_t begin = first < 0 ? -first : 0;
  const std::int64_t left = static_cast<std::int64_t>(map.dims[0]) - first;
  const std::int64_t end = left < map.box[0] ? left : map.box[0];
  BoxRow row;
  const bool any = begin < end;
  const auto row_begin = static_cast<std::uint32_t>(any ? begin * size : 0);
  const auto row_end = static_cast<std::uint32_t>(any ? end * size : 0);
  const CheckedSize corner = CheckedSize(map.address) + static_cast<std::uint64_t>((first + begin) * size);
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
/// places.
void load_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], std::byte* shared,
              std::uint32_t offset);
/// A store writes whole units of 16 bytes. Where a row of the tensor ends within a unit, the store also overwrites the
/// bytes after the row. (Measured on an H100: the row's padding, which its stride leaves.)
void store_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], const std::byte* shared,
               std::uint32_t offset);
void reduce_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], const std::byte* shared,
                std::uint32_t offset, ReduceBytes reduce);

}  // namespace kernelwright::emulator
