/// The order in which a grid walks the tiles of an output.
#pragma once

#include "contract/integers.h"

namespace kernelwright::policy {

/// Tiles [rows][columns] in bands of `band` rows. Within a band, columns follow one after another; the next band runs
/// back. So the tiles in work at one time form a region about as wide as tall, and its operands stay in the L2.
struct TileRaster {
  int rows, columns, band;

  struct Tile {
    int row, column;
  };
  __device__ int count() const { return rows * columns; }
  __device__ Tile at(int index) const {
    const int per_band = band * columns, number = index / per_band, within = index - number * per_band;
    const int first = number * band, height = min(band, rows - first);
    const int column = within / height, row = within - column * height;
    return {first + row, number % 2 == 0 ? column : columns - 1 - column};
  }
};

}  // namespace kernelwright::policy
