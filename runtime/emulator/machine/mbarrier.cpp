#include "kernelwright/runtime/emulator/machine/mbarrier.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "kernelwright/runtime/emulator/machine/fault.h"

namespace kernelwright::emulator {
namespace {

constexpr std::int32_t kBytesBias = 1 << 21;
constexpr std::uint64_t kBytesMask = (1u << 22) - 1;
constexpr std::uint64_t kValidBit = 1ull << 62;

MbarrierState unpack(std::uint64_t word) {
  MbarrierState state;
  state.pending = static_cast<std::uint32_t>(word & kMostArrivals);
  state.expected = static_cast<std::uint32_t>(word >> 20 & kMostArrivals);
  state.missing_bytes = static_cast<std::int32_t>(word >> 40 & kBytesMask) - kBytesBias;
  state.parity = static_cast<std::uint32_t>(word >> 63);
  return state;
}

std::uint64_t load_word(const Cta& cta, std::uint32_t offset) {
  std::uint64_t word;
  std::memcpy(&word, cta.shared.data() + offset, sizeof word);
  return word;
}

bool mbarrier_holds(const Warp&, const Wait& wait) {
  return mbarrier_completed(*wait.cta, wait.address, static_cast<std::uint32_t>(wait.value));
}

std::string describe_wait(const Warp&, const Wait& wait) {
  const MbarrierState state = mbarrier_state(*wait.cta, wait.address);
  return fmt::format("the phase with parity {} of {} ({} of {} arrivals and {} bytes missing)", wait.value & 1,
                     name_of_mbarrier(*wait.cta, wait.address), state.pending, state.expected, state.missing_bytes);
}

}  // namespace

std::uint64_t mbarrier_word(const MbarrierState& state) {
  return state.pending | static_cast<std::uint64_t>(state.expected) << 20 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(state.missing_bytes + kBytesBias)) << 40 | kValidBit |
         static_cast<std::uint64_t>(state.parity) << 63;
}

void store_mbarrier(Cta& cta, std::uint32_t offset, const MbarrierState& state) {
  const std::uint64_t word = mbarrier_word(state);
  std::memcpy(cta.shared.data() + offset, &word, sizeof word);
}

std::string name_of_mbarrier(const Cta& cta, std::uint32_t offset) {
  const bool alone = cta.cluster == nullptr || cta.cluster->ctas.size() <= 1;
  return alone ? fmt::format("the mbarrier at shared {}", offset)
               : fmt::format("the mbarrier at shared {} of the CTA of rank {}", offset, cta.rank);
}

MbarrierState mbarrier_state(const Cta& cta, std::uint32_t offset) {
  if (offset % 8 != 0 || offset < kSharedBase || offset + 8 > cta.shared.size())
    throw Fault(fmt::format("shared {} is no place for an mbarrier: {}", offset,
                            offset % 8 != 0 ? "it is not a multiple of 8" : "it is outside the CTA's shared memory"),
                HazardKind::kMbarrier);
  const std::uint64_t word = load_word(cta, offset);
  const MbarrierState state = unpack(word);
  const bool counts = std::abs(state.missing_bytes) <= kMostMissingBytes;
  if ((word & kValidBit) == 0 || !counts)
    throw Fault(fmt::format("there is no mbarrier at shared {} of the CTA of rank {}: it holds {:#018x}; was "
                            "mbarrier.init forgotten, or the barrier overwritten?",
                            offset, cta.rank, word),
                HazardKind::kMbarrier);
  return state;
}

bool holds_mbarrier(const Cta& cta, std::uint32_t offset) {
  return offset % 8 == 0 && offset >= kSharedBase && offset + 8 <= cta.shared.size() &&
         (load_word(cta, offset) & kValidBit) != 0;
}

bool mbarrier_completed(const Cta& cta, std::uint32_t offset, std::uint32_t parity) {
  return mbarrier_state(cta, offset).parity != (parity & 1);
}

Wait wait_for_mbarrier(Cta& cta, std::uint32_t offset, std::uint32_t parity) {
  Wait wait;
  wait.holds = mbarrier_holds;
  wait.describe = describe_wait;
  wait.cta = &cta;
  wait.address = offset;
  wait.value = parity & 1;
  return wait;
}

}  // namespace kernelwright::emulator
