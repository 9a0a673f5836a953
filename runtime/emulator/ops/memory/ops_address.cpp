// Conversions of addresses between generic space and others, and the question in which space one is (PTX ISA "Data
// Movement and Conversion Instructions": cvta, isspacep).
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {
namespace {

template <std::uint64_t kWindow, bool kFromGeneric, class Address>
Step convert_address(Warp& warp, const Op& op, LaneMask lanes) {
  Address* d = warp.lanes<Address>(op.d);
  const Address* a = warp.lanes<Address>(op.a);
  assign_lanes(d, lanes, [&](int lane) -> Address {
    if constexpr (kWindow == 0) {
      return a[lane];
    } else if constexpr (kFromGeneric) {
      return static_cast<Address>(a[lane] & 0xffffffff);
    } else {
      return static_cast<Address>(kWindow | static_cast<std::uint32_t>(a[lane]));
    }
  });
  return Step::kNext;
}

/// A parameter's address may come as its low 32 bits, extended by zeros. op.b has the address of all parameters, which
/// have less than 4 GiB.
Step convert_parameter_address(Warp& warp, const Op& op, LaneMask lanes) {
  std::uint64_t* d = warp.lanes<std::uint64_t>(op.d);
  const std::uint64_t* a = warp.lanes<std::uint64_t>(op.a);
  const std::uint64_t* base = warp.lanes<std::uint64_t>(op.b);
  assign_lanes(d, lanes, [&](int lane) -> std::uint64_t {
    if (a[lane] >> 32 != 0) return a[lane];
    return base[lane] + static_cast<std::uint32_t>(a[lane] - base[lane]);
  });
  return Step::kNext;
}

void decode_cvta(Decoder& decoder, Op& op) {
  const bool to = decoder.choice(0) == "to";
  const std::string_view space = decoder.choice(1);
  decoder.expect_operands(2, 2);
  op.d = decoder.destination(0, RegisterClass::k64);
  op.a = decoder.source(1, RegisterClass::k64);
  using A = std::uint64_t;
  if (!to && space.starts_with("param")) {
    op.b = decoder.parameters();
    op.run = convert_parameter_address;
    return;
  }
  if (space.starts_with("shared"))
    op.run = to ? convert_address<kSharedWindow, true, A> : convert_address<kSharedWindow, false, A>;
  else if (space == "local")
    op.run = to ? convert_address<kLocalWindow, true, A> : convert_address<kLocalWindow, false, A>;
  else
    op.run = convert_address<0, false, A>;
}

Step is_space(Warp& warp, const Op& op, LaneMask lanes) {
  const std::uint64_t* a = warp.lanes<std::uint64_t>(op.a);
  LaneMask result = 0;
  for_each_lane(lanes, [&](int lane) {
    if (a[lane] >> kWindowShift != op.imm) return;
    if (op.offset && (static_cast<std::uint32_t>(a[lane]) >> kRankShift) != warp.cta->rank)
      return;  // the shared::cta
               // space
    result |= LaneMask{1} << lane;
  });
  warp.set_predicate(op.d, result, lanes);
  return Step::kNext;
}

void decode_is_space(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 2);
  op.d = decoder.destination(0, RegisterClass::kPredicate);
  op.a = decoder.source(1, RegisterClass::k64);
  const std::string_view space = decoder.choice(0);
  op.imm = space.starts_with("shared") ? 1 : space == "local" ? 2 : 0;
  op.offset = space == "shared::cta" || space == "shared";
  op.run = is_space;
}

constexpr Form kForms[] = {
    {"cvta.(to)?.(global|shared|shared::cta|shared::cluster|local|param|param::entry|const).u64", decode_cvta},
    {"isspacep.(global|shared|shared::cta|shared::cluster|local|param|param::entry|const)", decode_is_space},
};

}  // namespace

std::span<const Form> address_forms() { return kForms; }

}  // namespace kernelwright::emulator
