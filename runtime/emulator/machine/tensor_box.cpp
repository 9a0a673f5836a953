// Copies of boxes between a tensor and shared memory.
#include <algorithm>
#include <cstring>

#include "kernelwright/runtime/emulator/machine/tensor_map.h"

namespace kernelwright::emulator {
namespace {

/// The place of a 16-byte unit in shared memory. `plain`: where it would be without a swizzle.
struct Unit {
  std::uint32_t place = 0;
  bool halves_swapped = false;  // its two halves of 8 bytes
};
inline Unit place_of(std::uint32_t plain, Swizzle swizzle, SwizzleAtom atom) {
  switch (atom) {
    case SwizzleAtom::k16B: break;
    case SwizzleAtom::k32B: return {plain ^ (plain >> 2 & 0x60)};
    case SwizzleAtom::k32BFlip8B: return {plain ^ (plain >> 2 & 0x60), (plain & 0x80) != 0};
    case SwizzleAtom::k64B: return {plain ^ (plain >> 1 & 0x40)};
  }
  const std::uint32_t mask = swizzle == Swizzle::kNone ? 0 : span_bytes(swizzle) - 16;
  return {plain ^ (plain >> 3 & mask)};
}

/// Calls `part(at, place, bytes)` for the pieces of a row that lie together in both memories. `at` is the piece's
/// offset in the row as global memory has it. `place` is in shared memory.
template <class Part>
inline void visit_parts(const TensorMapDescription& map, std::uint32_t offset, Part&& part) {
  if (map.atom == SwizzleAtom::k16B && !map.is_padded()) {
    const std::uint32_t mask = map.swizzle == Swizzle::kNone ? 0 : span_bytes(map.swizzle) - 16;
    for (std::uint32_t at = 0, bytes = map.row_bytes(); at < bytes; at += 16) {
      const std::uint32_t plain = offset + at;
      part(at, plain ^ (plain >> 3 & mask), 16u);
    }
    return;
  }
  const std::uint32_t bytes = map.row_bytes(), filled = bits_of(map.element) * 16 / shared_bits_of(map.element);
  for (std::uint32_t at = 0, from = 0; at < bytes; at += 16, from += filled) {
    const Unit unit = place_of(offset + at, map.swizzle, map.atom);
    if (unit.halves_swapped) {
      part(from, unit.place + 8, 8u);
      part(from + 8, unit.place, 8u);
    } else {
      part(from, unit.place, filled);
    }
  }
}
bool is_plain(const TensorMapDescription& map) { return map.swizzle == Swizzle::kNone && !map.is_padded(); }

void fill_nan(std::byte* to, std::size_t bytes, TensorElement element) {
  // All ones except the sign, in the element's width: what the hardware writes.
  std::memset(to, 0xff, bytes);
  const std::size_t size = bytes_of(element);
  for (std::size_t last = size - 1; last < bytes; last += size) to[last] = std::byte{0x7f};
}

/// Rounds numbers in place as a load of tf32 does: to the nearest, ties to even. Each NaN becomes the same one.
void round_to_tf32(std::byte* numbers, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 4) {
    std::uint32_t bits;
    std::memcpy(&bits, numbers + at, 4);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    bits = nan ? 0x7fffe000 : (bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000;
    std::memcpy(numbers + at, &bits, 4);
  }
}

/// Calls `take(global, row, bytes)` for the part of each row that is in the tensor. In the other mode, calls it for
/// each 16-byte unit of which at least a part is in the tensor.
template <class Take>
void take_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], const std::byte* shared,
              std::uint32_t offset, bool whole_units, Take&& take) {
  const std::uint32_t bytes = map.global_row_bytes();
  std::byte row_buffer[kMostRowBytes];
  visit_box_rows(map, coordinates, [&](const BoxRow& row) {
    if (row.begin == row.end) return;
    const std::byte* from = shared + offset + row.offset;
    if (!is_plain(map)) {
      visit_parts(map, offset + row.offset, [&](std::uint32_t at, std::uint32_t place, std::uint32_t size) {
        std::memcpy(row_buffer + at, shared + place, size);
      });
      from = row_buffer;
    }
    const std::uint32_t end = whole_units ? std::min((row.end + 15) / 16 * 16, bytes) : row.end;
    take(reinterpret_cast<std::byte*>(row.address), from + row.begin, end - row.begin);
  });
}

}  // namespace

void load_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], std::byte* shared,
              std::uint32_t offset, const Im2colOffsets& offsets) {
  const std::uint32_t bytes = map.global_row_bytes();
  std::byte row_buffer[kMostRowBytes];
  const auto assemble = [&](const BoxRow& row, std::byte* to) {
    const bool nan = map.fill_nan;
    const auto fill = [&](std::uint32_t begin, std::uint32_t end) {
      if (nan)
        fill_nan(to + begin, end - begin, map.element);
      else
        std::memset(to + begin, 0, end - begin);
    };
    fill(0, row.begin);
    if (row.end > row.begin) {
      std::memcpy(to + row.begin, reinterpret_cast<const std::byte*>(row.address), row.end - row.begin);
      if (is_converted(map.element)) round_to_tf32(to + row.begin, row.end - row.begin);
    }
    fill(row.end, bytes);
  };
  const bool plain = is_plain(map), converts = is_converted(map.element);
  const auto load = [&](const BoxRow& row) {
    if (plain) {
      assemble(row, shared + offset + row.offset);
      return;
    }
    const std::byte* from = row_buffer;
    if (row.begin == 0 && row.end == bytes && !converts)
      from = reinterpret_cast<const std::byte*>(row.address);
    else
      assemble(row, row_buffer);
    visit_parts(map, offset + row.offset, [&](std::uint32_t at, std::uint32_t place, std::uint32_t size) {
      std::memcpy(shared + place, from + at, size);
    });
  };
  visit_box_rows(map, coordinates, load, offsets);
}

void store_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], const std::byte* shared,
               std::uint32_t offset) {
  take_box(map, coordinates, shared, offset, /*whole_units=*/true,
           [](std::byte* to, const std::byte* from, std::size_t bytes) { std::memcpy(to, from, bytes); });
}

void reduce_box(const TensorMapDescription& map, const std::int32_t (&coordinates)[5], const std::byte* shared,
                std::uint32_t offset, ReduceBytes reduce) {
  take_box(map, coordinates, shared, offset, /*whole_units=*/false, reduce);
}

}  // namespace kernelwright::emulator
