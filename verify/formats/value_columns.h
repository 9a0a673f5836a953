/// The order of the keys of each 16 where values lie in columns (docs/kv-write.md).
#pragma once

#include <array>
#include <cstdint>

namespace kernelwright {

/// The place of key `key` of a page among the bytes of an element.
constexpr std::int64_t place_in_column(std::int64_t key) {
  constexpr std::array<int, 16> kPlaces = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};
  return key / 16 * 16 + kPlaces[static_cast<std::size_t>(key % 16)];
}

}  // namespace kernelwright
