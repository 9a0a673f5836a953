// contract/shared_slab.h compared with the ISA's text: where a box of TMA puts an element, and where a descriptor reads
// it.
#include <gtest/gtest.h>

#include <cstdint>

#include "contract/shared_slab.h"
#include "contract/tcgen05_descriptor.h"

namespace kernelwright {
namespace {

constexpr int kModes[] = {0, 32, 64, 128};
constexpr int kBase = 2048;

/// TMA, as the ISA's figures have it: boxes of `width` bytes a row, one behind the other; units of 16 bytes of a line
/// of 128 are moved by the line's number.
int placed(int swizzle, int rows, int row, int byte) {
  const int width = swizzle == 0 ? 16 : swizzle;
  const int at = kBase + byte / width * (rows * width) + row * width + byte % width;
  const int line = at / 128 % 8, unit = at / 16 % 8;
  const int moved = swizzle == 128  ? unit ^ line
                    : swizzle == 64 ? unit ^ line % 4
                    : swizzle == 32 ? unit ^ line % 2
                                    : unit;
  return at / 128 * 128 + moved * 16 + at % 16;
}

/// An operand's element in a descriptor that starts at `start` ("Strides", "Canonical layouts"). `along`: bytes along
/// the innermost dimension; `across`: rows.
int described(const contract::SharedSlab& slab, int start, int across, int along) {
  const int swizzle = slab.swizzle_bytes, leading = slab.leading_bytes(), stride = slab.stride_bytes();
  int at = 0;
  if (swizzle == 0) {
    const int rows8 = slab.mn_major ? leading : stride, units = slab.mn_major ? stride : leading;
    at = start + across / 8 * rows8 + along / 16 * units + across % 8 * 16 + along % 16;
  } else {
    at = start + across / 8 * stride + across % 8 * swizzle + along / swizzle * leading + along % swizzle;
  }
  const int mask = swizzle == 0 ? 0 : swizzle - 16;
  return at ^ (at >> 3 & mask);
}

TEST(Slabs, OfEveryStepOfKLieWhereItsDescriptorLooks) {
  for (const int swizzle : kModes)
    for (const int rows : {48, 64, 192}) {
      const contract::SharedSlab slab{7 * 32, swizzle, 16, rows, false};
      for (int step = 0; step < slab.steps(); ++step)
        for (int row = 0; row < rows; ++row)
          for (int byte = 0; byte < 32; byte += 2)
            ASSERT_EQ(described(slab, kBase + slab.step_offset(step), row, byte),
                      placed(swizzle, rows, row, step * 32 + byte))
                << swizzle << " bytes, step " << step << ", row " << row << ", byte " << byte;
    }
}

TEST(Slabs, OfValuesLieWhereTheirDescriptorLooks) {
  for (const int swizzle : kModes)
    for (const int bits : {8, 16})
      for (const int keys : {96, 128}) {
        const contract::SharedSlab slab{keys * bits / 8, swizzle, bits, 256 * 8 / bits, true};
        for (int step = 0; step < slab.steps(); ++step)
          for (int k = 0; k < 256 / bits; ++k)
            for (int byte = 0; byte < 256; byte += bits / 8) {
              const int key = step * (256 / bits) + k;
              ASSERT_EQ(described(slab, kBase + slab.step_offset(step), k, byte), placed(swizzle, keys, key, byte))
                  << swizzle << " bytes, elements of " << bits << " bits, key " << key << ", byte " << byte;
            }
      }
}

TEST(Slabs, MovePiecesOfARowAsTmaDoes) {
  for (const int swizzle : kModes)
    for (int row = 0; row < 24; ++row)
      for (int piece = 0; piece < contract::slab_width(swizzle) / 16; ++piece)
        EXPECT_EQ(
            kBase + row * contract::slab_width(swizzle) +
                (piece ^ static_cast<int>(contract::swizzle_of_row(static_cast<std::uint32_t>(row), swizzle))) * 16,
            placed(swizzle, 24, row, piece * 16))
            << swizzle << " bytes, row " << row;
}

TEST(Slabs, HoldWholeSteps) {
  EXPECT_EQ(contract::slabs_of(128, 2, 128), 2);
  EXPECT_EQ(contract::slabs_of(96, 2, 128), 2);
  EXPECT_EQ(contract::slabs_of(96, 2, 64), 3);
  EXPECT_EQ(contract::slabs_of(96, 1, 32), 3);
  EXPECT_EQ(contract::slabs_of(16, 2, 32), 1);
  EXPECT_EQ(contract::slabs_of(72, 2, 0), 10) << "of 16 bytes, two to a step";
  EXPECT_EQ(contract::slabs_of(48, 1, 0), 4);
  EXPECT_EQ(contract::padded_depth(72, 0), 80);
  EXPECT_EQ(contract::padded_depth(40, 64), 64);
  EXPECT_EQ(contract::mma_swizzle(64), contract::MmaSwizzle::k64B);
  EXPECT_EQ(contract::mma_swizzle(0), contract::MmaSwizzle::kNone);
}

}  // namespace
}  // namespace kernelwright
