// Loads and stores, prefetches (PTX ISA "Data Movement and Conversion Instructions": ld, st, prefetch, createpolicy).
#include <cstring>
#include <type_traits>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {
namespace {

struct Wide128 {
  std::uint64_t low = 0, high = 0;
};

/// op.imm: GlobalUse flags.
void tell_global(Hazards& hazards, Warp& warp, const Op& op, int lane, Access access, std::uint64_t address,
                 std::uint64_t bytes, const std::byte* stored) {
  hazards.access_global(warp, lane, access, address, bytes);
  hazards.exchange_global(warp, lane, access, address, bytes, static_cast<std::uint8_t>(op.imm), stored);
}

/// Where `bytes` bytes at the address of one lane are. Tells the checker, and what the lane will store there.
template <StateSpace kSpace>
inline std::byte* place(Warp& warp, const Op& op, int lane, std::uint32_t bytes, Access access, Hazards* hazards,
                        const std::byte* stored = nullptr) {
  const std::uint64_t address = lane_address(warp, op, lane);
  if constexpr (kSpace == StateSpace::kShared) {
    const SharedPlace at = shared_place(warp, static_cast<std::uint32_t>(address), bytes);
    if (hazards) hazards->access(warp, lane, access, at, bytes, stored);
    return at.host;
  } else if constexpr (kSpace == StateSpace::kGlobal) {
    std::byte* at = global_place(warp, address, bytes, access);
    if (hazards) tell_global(*hazards, warp, op, lane, access, address, bytes, stored);
    return at;
  } else if constexpr (kSpace == StateSpace::kLocal) {
    return local_place(warp, lane, address, bytes);
  } else {
    const GenericPlace at = generic_place(warp, lane, address, bytes, access);
    if (hazards && at.shared.cta) hazards->access(warp, lane, access, at.shared, bytes, stored);
    if (hazards && at.global) tell_global(*hazards, warp, op, lane, access, address, bytes, stored);
    return at.host;
  }
}

/// The places of a warp's accesses, found all at once: the fast path of loads and stores. `found` is true if every
/// lane's bytes are aligned and lie in the CTA's own shared memory, or in the allocation that the warp used last.
/// Otherwise the slow path finds each lane's place, or reports what is wrong with it.
struct WarpPlaces {
  bool found = false;
  bool contiguous = false;     // the bytes of all 32 lanes follow each other without a gap
  std::byte* first = nullptr;  // of lane 0, if contiguous
  std::uint64_t offsets[32];   // from `base`, if not contiguous
  std::byte* base = nullptr;
};

template <class Address>
inline void find_places(WarpPlaces& places, const Address* base, Address to_offset, LaneMask lanes, std::uint32_t bytes,
                        Address low, Address size) {
  // Offsets are counted from `low`, modulo the address's width: an address below wraps around to a large offset.
  const Address shift = to_offset - low;
  if (lanes == kAllLanes) {
    const Address start = base[0];
    Address apart = 0;
    for (int lane = 0; lane < 32; ++lane)
      apart |= (base[lane] - start) ^ static_cast<Address>(static_cast<std::uint32_t>(lane) * bytes);
    const Address begin = start + shift;
    if (apart == 0) {
      places.found = places.contiguous = begin < size && 32 * bytes <= size - begin && (begin + low) % bytes == 0;
      if (places.found) places.first = places.base + begin;
      return;
    }
  }
  if (size < bytes) return;
  const Address limit = size - bytes;
  bool outside = false;
  Address bits = 0;
  for_each_lane(lanes, [&](int lane) {
    const Address offset = base[lane] + shift;
    places.offsets[lane] = offset;
    outside |= offset > limit;
    bits |= offset + low;
  });
  places.found = !outside && (bits & (bytes - 1)) == 0;
}

template <StateSpace kSpace>
inline WarpPlaces warp_places(const Warp& warp, const Op& op, LaneMask lanes, std::uint32_t bytes, Access access) {
  WarpPlaces places;
  if constexpr (kSpace == StateSpace::kShared) {
    if (op.wide_address) return places;
    places.base = warp.cta->shared.data() + kSharedBase;
    find_places(places, warp.lanes<std::uint32_t>(op.a),
                static_cast<std::uint32_t>(op.offset) - (warp.cta->rank << kRankShift), lanes, bytes, kSharedBase,
                static_cast<std::uint32_t>(warp.cta->shared.size()) - kSharedBase);
  } else if constexpr (kSpace == StateSpace::kGlobal || kSpace == StateSpace::kGeneric) {
    const auto& last = warp.last_allocation;
    if (!op.wide_address || (access == Access::kWrite && !last.writable)) return places;
    places.base = reinterpret_cast<std::byte*>(last.begin);
    find_places(places, warp.lanes<std::uint64_t>(op.a),
                static_cast<std::uint64_t>(static_cast<std::int64_t>(op.offset)), lanes, bytes, last.begin,
                last.end - last.begin);
  }
  return places;
}

/// The slow path of a load, lane by lane. Apart from load(), whose registers and stack it would take.
template <StateSpace kSpace, class Memory, class Register>
[[gnu::noinline]] Step load_by_lane(Warp& warp, const Op& op, LaneMask lanes, std::uint32_t bytes) {
  Hazards* const hazards = warp.cta->cluster->hazards;
  for_each_lane(lanes, [&](int lane) {
    const std::byte* from = place<kSpace>(warp, op, lane, bytes, Access::kRead, hazards);
    for (std::uint32_t i = 0; i < op.list_size; ++i, from += sizeof(Memory)) {
      if (op.list[i] == kNoSlot) continue;
      Memory value;
      std::memcpy(&value, from, sizeof value);
      if constexpr (std::is_same_v<Memory, Wide128>) {
        std::uint64_t* halves = warp.lanes<std::uint64_t>(op.list[i]);
        halves[lane] = value.low;
        halves[32 + lane] = value.high;
      } else {
        warp.lanes<Register>(op.list[i])[lane] = static_cast<Register>(value);
      }
    }
  });
  return Step::kNext;
}

template <StateSpace kSpace, class Memory, class Register>
Step load(Warp& warp, const Op& op, LaneMask lanes) {
  const std::uint32_t count = op.list_size, bytes = count * static_cast<std::uint32_t>(sizeof(Memory));
  if constexpr (!std::is_same_v<Memory, Wide128>) {
    if (!warp.cta->cluster->hazards) {
      const WarpPlaces places = warp_places<kSpace>(warp, op, lanes, bytes, Access::kRead);
      for (std::uint32_t i = 0; places.found && i < count; ++i) {
        if (op.list[i] == kNoSlot) continue;
        auto* d = warp.lanes<Register>(op.list[i]);
        const auto read = [&](const std::byte* from) {
          Memory value;
          std::memcpy(&value, from + i * sizeof(Memory), sizeof value);
          return static_cast<Register>(value);
        };
        if (places.contiguous)
          for (std::uint32_t lane = 0; lane < 32; ++lane) d[lane] = read(places.first + lane * bytes);
        else
          for_each_lane(lanes, [&](int lane) { d[lane] = read(places.base + places.offsets[lane]); });
      }
      if (places.found) return Step::kNext;
    }
  }
  return load_by_lane<kSpace, Memory, Register>(warp, op, lanes, bytes);
}

/// The slow path of a store.
template <StateSpace kSpace, class Memory, class Register>
[[gnu::noinline]] Step store_by_lane(Warp& warp, const Op& op, LaneMask lanes, std::uint32_t bytes) {
  Hazards* const hazards = warp.cta->cluster->hazards;
  for_each_lane(lanes, [&](int lane) {
    const auto put = [&](std::byte* to) {
      for (std::uint32_t i = 0; i < op.list_size; ++i, to += sizeof(Memory)) {
        if constexpr (std::is_same_v<Memory, Wide128>) {
          const std::uint64_t* halves = warp.lanes<std::uint64_t>(op.list[i]);
          const Wide128 value{halves[lane], halves[32 + lane]};
          std::memcpy(to, &value, sizeof value);
        } else {
          const auto value = static_cast<Memory>(warp.lanes<Register>(op.list[i])[lane]);
          std::memcpy(to, &value, sizeof value);
        }
      }
    };
    std::byte stored[128];  // at most 8 elements of 16 bytes
    if (hazards) put(stored);
    put(place<kSpace>(warp, op, lane, bytes, Access::kWrite, hazards, stored));
  });
  return Step::kNext;
}

template <StateSpace kSpace, class Memory, class Register>
Step store(Warp& warp, const Op& op, LaneMask lanes) {
  const std::uint32_t count = op.list_size, bytes = count * static_cast<std::uint32_t>(sizeof(Memory));
  if constexpr (!std::is_same_v<Memory, Wide128>) {
    if (!warp.cta->cluster->hazards) {
      const WarpPlaces places = warp_places<kSpace>(warp, op, lanes, bytes, Access::kWrite);
      for (std::uint32_t i = 0; places.found && i < count; ++i) {
        const auto* a = warp.lanes<Register>(op.list[i]);
        const auto write = [&](std::byte* to, Register value) {
          const auto narrow = static_cast<Memory>(value);
          std::memcpy(to + i * sizeof(Memory), &narrow, sizeof narrow);
        };
        if (places.contiguous)
          for (std::uint32_t lane = 0; lane < 32; ++lane) write(places.first + lane * bytes, a[lane]);
        else
          for_each_lane(lanes, [&](int lane) { write(places.base + places.offsets[lane], a[lane]); });
      }
      if (places.found) return Step::kNext;
    }
  }
  return store_by_lane<kSpace, Memory, Register>(warp, op, lanes, bytes);
}

template <StateSpace kSpace, class Memory, class Register>
Handler pick_direction(bool stores) {
  return stores ? store<kSpace, Memory, Register> : load<kSpace, Memory, Register>;
}

/// A register may be wider than the moved value. Loads extend the value, by sign for s types; stores take the
/// register's low part.
template <StateSpace kSpace, class Memory>
Handler pick_register(bool stores, RegisterClass size) {
  constexpr bool kSigned = std::is_signed_v<Memory>;
  if (size == RegisterClass::k64)
    return pick_direction<kSpace, Memory, std::conditional_t<kSigned, std::int64_t, std::uint64_t>>(stores);
  if constexpr (sizeof(Memory) <= 4)
    if (size == RegisterClass::k32)
      return pick_direction<kSpace, Memory, std::conditional_t<kSigned, std::int32_t, std::uint32_t>>(stores);
  if constexpr (sizeof(Memory) <= 2)
    if (size == RegisterClass::k16)
      return pick_direction<kSpace, Memory, std::conditional_t<kSigned, std::int16_t, std::uint16_t>>(stores);
  return nullptr;
}

template <StateSpace kSpace>
Handler pick_type(std::string_view type, bool stores, RegisterClass size) {
  const bool extends = type.front() == 's' && !stores;
  switch (bytes_of_type(type)) {
    case 1:
      return extends ? pick_register<kSpace, std::int8_t>(stores, size)
                     : pick_register<kSpace, std::uint8_t>(stores, size);
    case 2:
      return extends ? pick_register<kSpace, std::int16_t>(stores, size)
                     : pick_register<kSpace, std::uint16_t>(stores, size);
    case 4:
      return extends ? pick_register<kSpace, std::int32_t>(stores, size)
                     : pick_register<kSpace, std::uint32_t>(stores, size);
    case 8: return pick_register<kSpace, std::uint64_t>(stores, size);
    default: return size == RegisterClass::k128 ? pick_direction<kSpace, Wide128, Wide128>(stores) : nullptr;
  }
}

StateSpace space_of(std::string_view name) {
  if (name.substr(0, 6) == "shared") return StateSpace::kShared;
  if (name == "local") return StateSpace::kLocal;
  // Parameters and constants have addresses in global memory here.
  return name.empty() ? StateSpace::kGeneric : StateSpace::kGlobal;
}

/// The patterns below have their choices in the same order: semantics, scope, space, then hints, vector, type.
void decode_move(Decoder& decoder, Op& op, bool stores, std::string_view semantics, std::string_view space_name,
                 std::string_view vector, std::string_view type) {
  decoder.expect_operands(2, 2);
  const std::size_t data = stores ? 1 : 0, where = 1 - data;
  const Operand& address = decoder.operands()[where];
  if (address.kind == Operand::Kind::kAddress && address.elements.size() != 1)
    decoder.refuse("takes an address without coordinates");
  StateSpace space = space_of(space_name);
  decoder.address(
      where,
      space == StateSpace::kGeneric && !address.elements.empty() && address.elements[0].kind == Operand::Kind::kSymbol
          ? StateSpace::kGlobal
          : space,
      op);
  if (space == StateSpace::kGlobal && !op.wide_address) decoder.refuse("needs a 64-bit address");

  const Operand& registers = decoder.operands()[data];
  const std::span<const Operand> elements = registers.kind == Operand::Kind::kVector
                                                ? std::span<const Operand>(registers.elements)
                                                : std::span(&registers, 1);
  const std::size_t count = vector.empty() ? 1 : static_cast<std::size_t>(vector[1] - '0');
  if (elements.size() != count || (registers.kind == Operand::Kind::kVector) != (count > 1))
    decoder.refuse("has another number of registers than its vector length");
  RegisterClass size = class_of_type(type);
  for (const Operand& element : elements)
    if (element.kind == Operand::Kind::kRegister) size = decoder.register_class(element);
  const std::span<const Slot> list = decoder.vector(data, size, !stores);
  op.list = list.data();
  op.list_size = static_cast<std::uint8_t>(list.size());
  switch (space) {
    case StateSpace::kShared: op.run = pick_type<StateSpace::kShared>(type, stores, size); break;
    case StateSpace::kLocal: op.run = pick_type<StateSpace::kLocal>(type, stores, size); break;
    case StateSpace::kGlobal: op.run = pick_type<StateSpace::kGlobal>(type, stores, size); break;
    default: op.run = pick_type<StateSpace::kGeneric>(type, stores, size); break;
  }
  if (!op.run) decoder.refuse("has a register of a size that the type does not take");
  // A load that acquires, or polls, waits for another CTA's word.
  if (!semantics.empty() && semantics != "weak" && space != StateSpace::kShared && space != StateSpace::kLocal) {
    decoder.communicates();
    op.imm = kStrongUse;
    if ((semantics == "acquire" || semantics == "release") && !decoder.has("cta")) op.imm |= kOrderingUse;
  }
}

void decode_load(Decoder& decoder, Op& op) {
  decode_move(decoder, op, false, decoder.choice(0), decoder.choice(2), decoder.choice(5), decoder.choice(6));
}
void decode_store(Decoder& decoder, Op& op) {
  decode_move(decoder, op, true, decoder.choice(0), decoder.choice(2), decoder.choice(4), decoder.choice(5));
}

/// ld.mmio and st.mmio: relaxed accesses of the whole system. The choices are the vector and the type.
template <bool kStores>
void decode_mmio(Decoder& decoder, Op& op) {
  decode_move(decoder, op, kStores, "relaxed", decoder.choice(0), "", decoder.choice(1));
}
void decode_load_uniform(Decoder& decoder, Op& op) {
  decode_move(decoder, op, false, "", decoder.choice(0), decoder.choice(1), decoder.choice(2));
}

constexpr Form kForms[] = {
    {"ld.(weak|relaxed|acquire|volatile)?.(cta|cluster|gpu|sys)?.(global|shared|shared::cta|shared::cluster|local|"
     "param|"
     "param::entry|const)?.(ca|cg|cs|lu|cv)?.(nc)?.(v2|v4|v8)?.(b8|u8|s8|b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|"
     "b128)",
     decode_load},
    {"st.(weak|relaxed|release|volatile)?.(cta|cluster|gpu|sys)?.(global|shared|shared::cta|shared::cluster|local)?."
     "(wb|cg|cs|wt)?.(v2|v4|v8)?.(b8|u8|s8|b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|b128)",
     decode_store},
    {"ld.mmio.relaxed.sys.(global)?.(b8|u8|s8|b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|b128)", decode_mmio<false>},
    {"st.mmio.relaxed.sys.(global)?.(b8|u8|s8|b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|b128)", decode_mmio<true>},
    {"ldu.(global)?.(v2|v4)?.(b8|u8|s8|b16|u16|s16|b32|u32|s32|f32|b64|u64|s64|f64|b128)", decode_load_uniform},
};

}  // namespace

std::span<const Form> memory_forms() { return kForms; }

}  // namespace kernelwright::emulator
