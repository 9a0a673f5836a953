/// Constants that the text of a Spec leaves out where they have the values below. So the name and the source of a
/// kernel stay the same when an option is added that the kernel does not have.
#pragma once

#include "spec.h"

#include "contract/words.h"

namespace kernelwright {

namespace spec_defaults {
// Not variables, which would be in every binary.
enum : bool {
  kQuantizes = false,
  kPowerOfTwo = false,
  kRoundUp = false,
  kRowsOfScales = false,
  kAmax = false,
  kSquares = false,
  kRstd = false,
  kWritesKv = false,
  kGather = false,
  kScatter = false,
  kPointers = false
};
enum : int { kMostGroups = 0, kHeadDimQk = 1 };
// Of Blackwell's kernels without groups. An enumerator has no type of another enum, so readers cast to it.
enum : int { kGroups = static_cast<int>(GroupKind::kNone), kBounds = static_cast<int>(GroupBounds::kStarts) };
}  // namespace spec_defaults

// A constant of the Spec's own text hides the one of the same name here.
namespace spec {
using namespace spec_defaults;
}  // namespace spec

// Whether the result is in a block-scaled format: gemm_blocks.cuh stores it.
enum : bool { kMakesBlocks = is_block_scaled(spec::kDDType) };

// Whether values make something beside d's elements, and whether the entry has parameters for that or for rstd.
enum : bool { kMeasures = spec::kAmax || spec::kSquares, kHasStatistics = kMeasures || spec::kRstd };

/// The type of what kernels store themselves. Where gemm_blocks.cuh stores the result, it is never used.
constexpr DType stored_dtype() { return kMakesBlocks ? DType::kE4m3 : spec::kDDType; }

}  // namespace kernelwright
