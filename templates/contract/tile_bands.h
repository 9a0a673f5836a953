/// Bands of the walk over the tiles of an output, as the launch tells them: policy/tile_raster.cuh.
#pragma once

#include "contract/integers.h"

namespace kernelwright::contract {

/// What quotient() takes in place of a division by `divisor`, which is not 0.
constexpr uint32_t reciprocal_of(uint32_t divisor) { return 0xffffffffu / divisor; }

/// number / divisor, where `reciprocal` is reciprocal_of(divisor). The product is less than number / divisor, by less
/// than 1: the result is that quotient or one less.
constexpr int32_t quotient(int32_t number, int32_t divisor, uint32_t reciprocal) {
  const uint32_t least = static_cast<uint32_t>(static_cast<uint64_t>(static_cast<uint32_t>(number)) * reciprocal >> 32);
  const int32_t result = static_cast<int32_t>(least);
  return number - result * divisor >= divisor ? result + 1 : result;
}

/// A kernel needs its first tile before it can load anything, and two divisions took about 300 clocks of an H200. So
/// the host divides. Kernels whose tiles depend on bounds in device memory use the band alone.
struct TileBands {
  int32_t band;           // rows of tiles in a band. The last band may have fewer
  uint32_t by_tiles;      // reciprocals: of the tiles in a band,
  uint32_t by_rows;       // of its rows,
  uint32_t by_last_rows;  // and of the last band's rows
};

/// For tiles [rows][columns], at least one, where `band` is at least 1.
constexpr TileBands tile_bands(int32_t rows, int32_t columns, int32_t band) {
  const auto last = static_cast<uint32_t>(rows % band);
  return {band, reciprocal_of(static_cast<uint32_t>(band) * static_cast<uint32_t>(columns)),
          reciprocal_of(static_cast<uint32_t>(band)), reciprocal_of(last > 0 ? last : static_cast<uint32_t>(band))};
}

}  // namespace kernelwright::contract
