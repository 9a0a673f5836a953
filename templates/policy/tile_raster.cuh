/// The order in which a grid walks the tiles of an output.
#pragma once

#include "contract/integers.h"
#include "contract/tile_bands.h"

namespace kernelwright::policy {

/// Tiles [rows][columns] in bands of `band` rows. Within a band, columns follow one after another; the next band runs
/// back. So the tiles in work at one time form a region about as wide as tall, and its operands stay in the L2.
struct TileRaster {
  int rows, columns, band;

  struct Tile {
    int row, column;
  };
  __device__ int count() const { return rows * columns; }
  /// Tile `index`, by divisions: where the launch cannot know how many rows there are.
  __device__ Tile at(int index) const {
    const int number = index / tiles(), within = index - number * tiles(), height = height_of(number);
    return at(number, within, height, within / height);
  }
  /// The same without divisions. `bands`: contract::tile_bands() of the raster.
  __device__ Tile at(int index, const contract::TileBands& bands) const {
    const int number = contract::quotient(index, tiles(), bands.by_tiles), within = index - number * tiles();
    const int height = height_of(number);
    return at(number, within, height,
              contract::quotient(within, height, height == band ? bands.by_rows : bands.by_last_rows));
  }

 private:
  __device__ int tiles() const { return band * columns; }  // of a band
  __device__ int height_of(int number) const { return min(band, rows - number * band); }
  __device__ Tile at(int number, int within, int height, int column) const {
    return {number * band + within - column * height, number % 2 == 0 ? column : columns - 1 - column};
  }
};

}  // namespace kernelwright::policy
