/// PTX ISA "prefetch", "applypriority", "discard", "createpolicy": what only makes a kernel faster.
#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/ops/lane_function.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {
namespace {

Step nothing(Warp&, const Op&, LaneMask) { return Step::kNext; }

void decode_prefetch(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 1);
  decoder.address(0, StateSpace::kGlobal, op);
  op.run = nothing;
}

/// discard and applypriority (whose priority is a hint) concern 128 bytes of a cache. A discarded line keeps its values
/// here.
void decode_cache_line(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  decoder.address(0, StateSpace::kGlobal, op);
  decoder.immediate(1, 128, 128);
  op.run = nothing;
}

Step zero_policy(Warp& warp, const Op& op, LaneMask lanes) {
  assign_lanes(warp.lanes<std::uint64_t>(op.d), lanes, [](int) { return std::uint64_t{0}; });
  return Step::kNext;
}

void decode_policy(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 4);
  op.d = decoder.destination(0, RegisterClass::k64);
  for (std::size_t i = 1; i < decoder.num_operands(); ++i) decoder.take(i);
  op.run = zero_policy;
}

constexpr Form kForms[] = {
    {"discard.(global)?.L2", decode_cache_line},
    {"applypriority.(global)?", decode_cache_line},
    {"prefetch.(global|local)?.(L1|L2|L2::evict_last|L2::evict_normal)?", decode_prefetch},
    {"prefetch.(param|const)?.tensormap", decode_prefetch},
    {"prefetchu.L1", decode_prefetch},
    {"createpolicy.fractional.(L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged)?."
     "(L2::evict_first|L2::evict_unchanged)?.b64",
     decode_policy},
    {"createpolicy.range.(global)?.(L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged)?."
     "(L2::evict_first|L2::evict_unchanged)?.b64",
     decode_policy},
    {"createpolicy.cvt.L2.b64", decode_policy},
};

}  // namespace

std::span<const Form> cache_forms() { return kForms; }

}  // namespace kernelwright::emulator
