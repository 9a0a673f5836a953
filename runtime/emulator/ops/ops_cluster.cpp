/// Addresses of shared memory in a cluster: mapa, getctarank.
#include <cstdint>
#include <span>
#include <string>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {
namespace {

constexpr std::uint32_t kRankMask = ~kSharedOffsetMask;

template <class Address>
void require_shared_window(Address address) {
  if constexpr (sizeof(Address) == 8) {
    if (address >> kWindowShift != kSharedWindow >> kWindowShift)
      throw Fault("a generic address that is not in shared memory has no place in the cluster");
  }
}

/// The same place in the CTA with another rank.
template <class Address, bool kGeneric>
Step run_mapa(Warp& warp, const Op& op, LaneMask lanes) {
  const auto* address = warp.lanes<Address>(op.a);
  const auto* rank = warp.lanes<std::uint32_t>(op.b);
  auto* d = warp.lanes<Address>(op.d);
  const std::size_t size = warp.cta->cluster->ctas.size();
  for_each_lane(lanes, [&](int lane) {
    if constexpr (kGeneric) require_shared_window(address[lane]);
    if (rank[lane] >= size)
      throw Fault("mapa to rank " + std::to_string(rank[lane]) + " of a cluster of " + std::to_string(size));
    d[lane] = (address[lane] & ~Address{kRankMask}) | static_cast<Address>(rank[lane] << kRankShift);
  });
  return Step::kNext;
}

template <class Address, bool kGeneric>
Step run_getctarank(Warp& warp, const Op& op, LaneMask lanes) {
  const auto* address = warp.lanes<Address>(op.a);
  auto* d = warp.lanes<std::uint32_t>(op.d);
  for_each_lane(lanes, [&](int lane) {
    if constexpr (kGeneric) require_shared_window(address[lane]);
    d[lane] = static_cast<std::uint32_t>(address[lane] & kRankMask) >> kRankShift;
  });
  return Step::kNext;
}

/// Choice 0 says whether the address is a shared::cluster address; the last choice is the width.
template <template <class, bool> class Handlers>
Handler pick(Decoder& decoder) {
  const bool generic = decoder.choice(0).empty(), wide = decoder.has("u64");
  if (generic && !wide) decoder.refuse("a generic address has 64 bits: the type must be .u64");
  return generic ? Handlers<std::uint64_t, true>::run
                 : (wide ? Handlers<std::uint64_t, false>::run : Handlers<std::uint32_t, false>::run);
}
template <class Address, bool kGeneric>
struct Mapa {
  static constexpr Handler run = run_mapa<Address, kGeneric>;
};
template <class Address, bool kGeneric>
struct GetCtaRank {
  static constexpr Handler run = run_getctarank<Address, kGeneric>;
};

RegisterClass address_class(const Decoder& decoder) {
  return decoder.has("u64") ? RegisterClass::k64 : RegisterClass::k32;
}

void decode_mapa(Decoder& decoder, Op& op) {
  decoder.expect_operands(3, 3);
  op.d = decoder.destination(0, address_class(decoder));
  op.a = decoder.source(1, address_class(decoder));
  op.b = decoder.source(2, RegisterClass::k32);
  op.run = pick<Mapa>(decoder);
}

void decode_getctarank(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  op.d = decoder.destination(0, RegisterClass::k32);
  op.a = decoder.source(1, address_class(decoder));
  op.run = pick<GetCtaRank>(decoder);
}

}  // namespace

std::span<const Form> cluster_forms() {
  static constexpr Form kForms[] = {
      {"mapa.(shared::cluster)?.(u32|u64)", decode_mapa},
      {"getctarank.(shared::cluster)?.(u32|u64)", decode_getctarank},
  };
  return kForms;
}

}  // namespace kernelwright::emulator
