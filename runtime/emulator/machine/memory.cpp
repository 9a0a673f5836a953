#include "kernelwright/runtime/emulator/machine/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernelwright/generator/checked.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/device_heap.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/warp.h"

namespace kernelwright::emulator {

namespace {

constexpr std::size_t kAlignment = 256, kGuardBytes = 256;
constexpr std::byte kFresh{0xcb}, kFreed{0xdd};  // no usual value in any float format, no small integer
constexpr std::size_t kQuarantineBytes = std::size_t{256} << 20;

[[noreturn]] void misaligned(std::uint64_t address, std::uint64_t bytes, std::uint64_t alignment, const char* space) {
  throw Fault(fmt::format("a {}-byte access to {} memory at address {:#x}, which is not a multiple of {}", bytes, space,
                          address, alignment),
              HazardKind::kOutOfBounds);
}

bool is_plain_size(std::uint64_t bytes) { return bytes <= 32 && (bytes & (bytes - 1)) == 0; }

/// What an address has to be a multiple of.
std::uint64_t alignment_of(std::uint64_t bytes, std::uint64_t most) {
  return bytes > 0 && is_plain_size(bytes) ? std::min(bytes, most) : 1;
}

}  // namespace

struct GlobalMemory::State {
  mutable std::mutex mutex;
  std::map<std::uint64_t, std::shared_ptr<Allocation>> allocations;  // by begin; includes freed ones in quarantine
  std::vector<std::uint64_t> quarantine;                             // oldest first
  std::size_t live_bytes = 0, quarantined_bytes = 0;
  mutable std::shared_ptr<const View> view;  // current `allocations`; null once they change
};

GlobalMemory::GlobalMemory() : state_(std::make_unique<State>()) {}
GlobalMemory::~GlobalMemory() = default;

std::uint64_t GlobalMemory::allocate(std::size_t bytes, std::string what) {
  if (bytes == 0) return 0;
  require_span(0, bytes);  // the size is checked before guard bands are added to it
  auto allocation = std::make_shared<Allocation>();
  const std::size_t whole = bytes + 2 * kGuardBytes + kAlignment;
  allocation->bytes.reset(new std::byte[whole]);
  const auto host = reinterpret_cast<std::uint64_t>(allocation->bytes.get());
  allocation->begin = (host + kGuardBytes + kAlignment - 1) / kAlignment * kAlignment;
  allocation->end = allocation->begin + bytes;
  allocation->what = what.empty() ? fmt::format("an allocation of {} bytes", bytes) : std::move(what);
  std::memset(allocation->bytes.get(), std::to_integer<int>(kFresh), whole);
  const std::lock_guard lock(state_->mutex);
  const std::uint64_t begin = allocation->begin;
  state_->allocations[begin] = std::move(allocation);
  state_->live_bytes += bytes;
  state_->view = nullptr;
  return begin;
}

void GlobalMemory::free(std::uint64_t address) {
  if (address == 0) return;
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->allocations.find(address);
  if (found == state_->allocations.end() || !found->second->bytes)
    throw Fault(fmt::format("free of address {:#x}, which is no allocation", address), HazardKind::kOutOfBounds);
  if (found->second->freed)
    throw Fault(fmt::format("{} at {:#x} is freed twice", found->second->what, address), HazardKind::kOutOfBounds);
  // A launch's view must not change during the launch, so the freed allocation becomes a new record.
  auto freed = std::make_shared<Allocation>();
  Allocation& old = *found->second;
  const std::size_t bytes = old.end - old.begin;
  freed->begin = old.begin, freed->end = old.end, freed->freed = true, freed->what = old.what;
  freed->bytes = std::move(old.bytes);
  std::memset(reinterpret_cast<std::byte*>(freed->begin), std::to_integer<int>(kFreed), bytes);
  found->second = std::move(freed);
  state_->live_bytes -= bytes;
  state_->quarantined_bytes += bytes;
  state_->quarantine.push_back(address);
  while (state_->quarantined_bytes > kQuarantineBytes && !state_->quarantine.empty()) {
    const auto oldest = state_->allocations.find(state_->quarantine.front());
    state_->quarantined_bytes -= oldest->second->end - oldest->second->begin;
    state_->allocations.erase(oldest);
    state_->quarantine.erase(state_->quarantine.begin());
  }
  state_->view = nullptr;
}

std::uint64_t GlobalMemory::lend(const void* bytes, std::size_t size, bool writable, std::string what) {
  auto allocation = std::make_shared<Allocation>();
  allocation->begin = reinterpret_cast<std::uint64_t>(bytes);
  allocation->end = allocation->begin + size;
  allocation->writable = writable;
  allocation->what = std::move(what);
  const std::lock_guard lock(state_->mutex);
  const std::uint64_t begin = allocation->begin;
  state_->allocations[begin] = std::move(allocation);
  state_->view = nullptr;
  return begin;
}

void GlobalMemory::forget(std::uint64_t address) {
  const std::lock_guard lock(state_->mutex);
  state_->allocations.erase(address);
  state_->view = nullptr;
}

void GlobalMemory::check(std::uint64_t address, std::size_t bytes) const {
  const auto now = view();
  const Allocation* allocation = now->find(address);
  if (!allocation || allocation->freed || bytes > allocation->end - address)
    throw Fault(now->describe(address, bytes), HazardKind::kOutOfBounds);
}

void GlobalMemory::host_wrote(std::uint64_t address, std::size_t bytes) {
  const auto now = view();
  const Allocation* allocation = now->find(address);
  if (!allocation || allocation->users.empty() || bytes == 0) return;
  const std::uint64_t first = (address - allocation->begin) / kUserGranule,
                      last = (std::min(address + bytes, allocation->end) - 1 - allocation->begin) / kUserGranule;
  for (std::uint64_t at = first; at <= last; ++at)
    std::atomic_ref(allocation->users[at].writer).store(0, std::memory_order_relaxed);
}

std::shared_ptr<const GlobalMemory::View> GlobalMemory::view() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->view) {
    auto made = std::make_shared<View>();
    for (const auto& [begin, allocation] : state_->allocations) made->sorted_.push_back(allocation);
    state_->view = std::move(made);
  }
  return state_->view;
}

std::size_t GlobalMemory::allocated_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->live_bytes;
}

const GlobalMemory::Allocation* GlobalMemory::View::find(std::uint64_t address) const {
  auto after = std::upper_bound(sorted_.begin(), sorted_.end(), address,
                                [](std::uint64_t value, const auto& allocation) { return value < allocation->begin; });
  if (after == sorted_.begin()) return nullptr;
  const Allocation* allocation = std::prev(after)->get();
  return address < allocation->end ? allocation : nullptr;
}

std::string GlobalMemory::View::describe(std::uint64_t address, std::uint64_t bytes) const {
  if (const Allocation* at = find(address)) {
    if (at->freed) return fmt::format("address {:#x} is in {} that has been freed", address, at->what);
    if (const std::uint64_t left = at->end - address; bytes > left)
      return fmt::format("{} bytes at address {:#x} reach {} bytes past the end of {}", bytes, address, bytes - left,
                         at->what);
    return fmt::format("address {:#x} is byte {} of {}, which is read-only", address, address - at->begin, at->what);
  }
  const auto after = std::upper_bound(sorted_.begin(), sorted_.end(), address,
                                      [](std::uint64_t value, const auto& a) { return value < a->begin; });
  std::string text = fmt::format("address {:#x} is in no allocation", address);
  if (after != sorted_.begin()) {
    const Allocation& before = **std::prev(after);
    if (address - before.end < 1 << 20)
      return fmt::format("address {:#x} is {} bytes past the end of {}{}", address, address - before.end, before.what,
                         before.freed ? " that has been freed" : "");
  }
  if (after != sorted_.end() && (*after)->begin - address < 1 << 20)
    return fmt::format("address {:#x} is {} bytes before {}", address, (*after)->begin - address, (*after)->what);
  return text;
}

void GlobalMemory::View::track_users() const {
  for (const auto& allocation : sorted_)
    if (allocation->writable && !allocation->freed)
      allocation->users.resize((allocation->end - allocation->begin + kUserGranule - 1) / kUserGranule);
}

SharedPlace shared_place(Warp& warp, std::uint32_t address, std::uint32_t bytes, std::uint32_t most_alignment) {
  const std::uint32_t rank = address >> kRankShift, offset = address & kSharedOffsetMask;
  const auto& ctas = warp.cta->cluster->ctas;
  if (rank >= ctas.size())
    throw Fault(fmt::format("shared address {:#x} is of CTA {} of a cluster of {}", address, rank, ctas.size()),
                HazardKind::kOutOfBounds);
  Cta& cta = *ctas[rank];
  if (offset < cta.shared_begin || bytes > cta.shared.size() - std::min<std::size_t>(offset, cta.shared.size()))
    throw Fault(fmt::format("{} bytes at shared address {:#x}, outside the CTA's {} bytes from {:#x}", bytes, address,
                            cta.shared.size() - kSharedBase, kSharedBase),
                HazardKind::kOutOfBounds);
  if (const auto step = alignment_of(bytes, most_alignment); offset % step != 0)
    misaligned(address, bytes, step, "shared");
  if (&cta != warp.cta && cta.live_warps == 0)
    throw Fault(fmt::format("shared address {:#x} is of CTA {} of the cluster, which has exited", address, rank),
                HazardKind::kOutOfBounds);
  return {&cta, offset, cta.shared.data() + offset};
}

std::byte* global_place(Warp& warp, std::uint64_t address, std::uint64_t bytes, Access access,
                        std::uint32_t most_alignment) {
  if (const auto step = alignment_of(bytes, most_alignment); address % step != 0)
    misaligned(address, bytes, step, "global");
  auto& last = warp.last_allocation;
  const bool within = address >= last.begin && address < last.end && bytes <= last.end - address;
  if (!within || (access == Access::kWrite && !last.writable)) {
    const GlobalMemory::View& memory = *warp.launch->memory;
    const GlobalMemory::Allocation* allocation = memory.find(address);
    if (!allocation || allocation->freed || bytes > allocation->end - address ||
        (access == Access::kWrite && !allocation->writable))
      throw Fault(memory.describe(address, bytes), HazardKind::kOutOfBounds);
    last = {allocation->begin, allocation->end, allocation->writable};
    if (const DeviceHeap* const heap = warp.launch->heap; heap && heap->contains(address)) {
      const DeviceHeap::Block block = heap->block_at(address, bytes);
      last = {block.begin, block.end, true};
    }
  }
  return reinterpret_cast<std::byte*>(address);
}

std::byte* local_place(Warp& warp, int lane, std::uint64_t address, std::uint32_t bytes) {
  const std::size_t each = warp.local.size() / 32;
  if (address > each || bytes > each - address)
    throw Fault(fmt::format("{} bytes at local address {:#x}, outside the thread's {} bytes", bytes, address, each),
                HazardKind::kOutOfBounds);
  if (is_plain_size(bytes) && address % bytes != 0) misaligned(address, bytes, bytes, "local");
  return warp.local.data() + static_cast<std::size_t>(lane) * each + address;
}

GenericPlace generic_place(Warp& warp, int lane, std::uint64_t address, std::uint32_t bytes, Access access) {
  GenericPlace place;
  switch (address >> kWindowShift) {
    case 0:
      place.host = global_place(warp, address, bytes, access);
      place.global = true;
      return place;
    case kSharedWindow >> kWindowShift:
      place.shared = shared_place(warp, static_cast<std::uint32_t>(address), bytes);
      place.host = place.shared.host;
      return place;
    case kLocalWindow >> kWindowShift: place.host = local_place(warp, lane, address & 0xffffffff, bytes); return place;
    default: throw Fault(fmt::format("address {:#x} is in no window", address), HazardKind::kOutOfBounds);
  }
}

std::uint64_t lane_address(const Warp& warp, const Op& op, int lane) {
  const std::uint64_t base =
      op.wide_address ? warp.lanes<std::uint64_t>(op.a)[lane] : warp.lanes<std::uint32_t>(op.a)[lane];
  const std::uint64_t address = base + static_cast<std::uint64_t>(static_cast<std::int64_t>(op.offset));
  return op.wide_address ? address : address & 0xffffffff;
}

}  // namespace kernelwright::emulator
