/// Constants that the text of a Spec leaves out where they have the values below. So the name and the source of a
/// kernel stay the same when an option is added that the kernel does not have. Also the types that depend on them.
#pragma once

#include "spec.h"

#include "policy/attention_item.cuh"
#include "policy/either.cuh"
#include "policy/mask.cuh"

namespace kernelwright {

namespace spec_defaults {
// Not variables, which would be in every binary.
enum : bool { kKvStarts = false, kTilesFromStart = false, kVColumns = false, kBalanced = false };
enum : int { kPvPromote = 1, kPvBuffers = 1, kExp2Emulated = 0, kRopeWidth = 0 };
}  // namespace spec_defaults

// A constant of the Spec's own text hides the one of the same name here.
namespace spec {
using namespace spec_defaults;
}  // namespace spec

/// The work item of a Spec, made of policy::WorkItem.
template <class Item>
using SpecItem = typename policy::Either<spec::kKvStarts, policy::ItemFrom<Item>, Item>::type;

/// The mask of a Spec. kStarts: whether keys before the start of a sequence must be hidden.
template <bool kStarts>
using SpecMask = typename policy::Either<kStarts, policy::MaskFrom<spec::kMask, spec::kChunk>,
                                         policy::Mask<spec::kMask, spec::kChunk>>::type;

}  // namespace kernelwright
