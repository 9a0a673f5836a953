// The walk over tiles: the host's reciprocals give the tiles that divisions give, and each tile once.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <set>
#include <utility>

#include "ptx/mbarrier.cuh"  // of shadow: __device__ for the host
using std::min;
#include "policy/tile_raster.cuh"

namespace kernelwright {
namespace {

TEST(Quotient, IsTheDivisionsOne) {
  for (const int divisor : {1, 2, 3, 7, 64, 127, 132, 1000, 65535, 65536, (1 << 28) - 1, 1 << 30, INT_MAX})
    for (const int number : {0, 1, divisor - 1, divisor, divisor > INT_MAX / 2 ? INT_MAX : 2 * divisor - 1, 12345,
                             (1 << 28) - 1, INT_MAX / divisor * divisor - 1, INT_MAX / divisor * divisor, INT_MAX})
      EXPECT_EQ(contract::quotient(number, divisor, contract::reciprocal_of(static_cast<uint32_t>(divisor))),
                number / divisor)
          << number << " / " << divisor;
}

TEST(TileRaster, VisitsEachTileOnceWithTheReciprocalsOfTheLaunch) {
  for (const int rows : {1, 2, 3, 5, 8, 13, 37})
    for (const int columns : {1, 2, 7, 32})
      for (const int band : {1, 2, 3, 4, 8, 16, 37}) {
        const policy::TileRaster raster{rows, columns, band};
        const contract::TileBands bands = contract::tile_bands(rows, columns, band);
        std::set<std::pair<int, int>> seen;
        for (int index = 0; index < raster.count(); ++index) {
          const auto tile = raster.at(index, bands), divided = raster.at(index);
          ASSERT_EQ(std::pair(tile.row, tile.column), std::pair(divided.row, divided.column))
              << rows << " x " << columns << " in bands of " << band << ", tile " << index;
          ASSERT_TRUE(tile.row >= 0 && tile.row < rows && tile.column >= 0 && tile.column < columns);
          seen.emplace(tile.row, tile.column);
        }
        ASSERT_EQ(seen.size(), static_cast<std::size_t>(rows * columns));
      }
}

}  // namespace
}  // namespace kernelwright
