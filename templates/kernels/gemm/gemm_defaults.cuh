/// Constants that the text of a Spec leaves out where they have the values below. So the name and the source of a
/// kernel stay the same when an option is added that the kernel does not have. Also the parameters that depend on them.
#pragma once

#include "spec.h"

#include "contract/gemm_launch.h"
#include "policy/either.cuh"

namespace kernelwright {

namespace spec_defaults {
enum : bool { kQuantizes = false, kPowerOfTwo = false };  // not variables, which would be in every binary
}  // namespace spec_defaults

// A constant of the Spec's own text hides the one of the same name here.
namespace spec {
using namespace spec_defaults;
}  // namespace spec

// Scales of columns of the tile, or with swap_ab of its rows.
enum : bool { kScalesColumns = spec::kQuantizes && !spec::kSwapAb, kSwapsScales = spec::kQuantizes && spec::kSwapAb };

/// What the entry of a Spec takes: Params, and where the kernel quantises the place of the scales.
template <class Params>
using EntryOf = typename policy::Either<spec::kQuantizes, contract::GemmWithScales<Params>, Params>::type;

}  // namespace kernelwright
