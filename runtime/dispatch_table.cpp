#include "kernelwright/runtime/dispatch_table.h"

namespace kernelwright {

namespace {
constexpr std::size_t kFirstSize = 128;  // a model needs tens of kernels
}

DispatchTable::DispatchTable() {
  blocks_.push_back(std::make_unique<Block>(kFirstSize));
  current_.store(blocks_.back().get(), std::memory_order_release);
}

DispatchTable::~DispatchTable() = default;

bool DispatchTable::place(Block& block, const DispatchKey& key, detail::KernelSlot* slot) {
  for (std::uint64_t at = key.hash();; ++at) {
    Entry& entry = block.entries[at & block.mask];
    if (!entry.slot.load(std::memory_order_relaxed)) {
      entry.key = key;
      entry.slot.store(slot, std::memory_order_release);
      return true;
    }
    if (entry.key == key) return false;
  }
}

void DispatchTable::insert(const DispatchKey& key, detail::KernelSlot* slot) {
  std::lock_guard lock(writers_);
  if ((size_ + 1) * 2 > blocks_.back()->mask + 1) {
    const Block& old = *blocks_.back();
    auto larger = std::make_unique<Block>((old.mask + 1) * 2);
    for (std::uint64_t i = 0; i <= old.mask; ++i)
      if (detail::KernelSlot* other = old.entries[i].slot.load(std::memory_order_relaxed))
        place(*larger, old.entries[i].key, other);
    blocks_.push_back(std::move(larger));
    current_.store(blocks_.back().get(), std::memory_order_release);
  }
  size_ += place(*blocks_.back(), key, slot);
}

}  // namespace kernelwright
