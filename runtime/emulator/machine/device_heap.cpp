#include "kernelwright/runtime/emulator/machine/device_heap.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "kernelwright/runtime/emulator/machine/fault.h"

namespace kernelwright::emulator {
namespace {

constexpr std::uint64_t kBlockAlignment = 16, kGap = 16;
constexpr int kFreedByte = 0xdd;

}  // namespace

DeviceHeap::DeviceHeap(GlobalMemory& memory, std::uint64_t bytes)
    : begin_(memory.allocate(bytes, "the heap of kernels")), end_(begin_ + bytes), fresh_(begin_) {}

std::uint64_t DeviceHeap::allocate(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0 || bytes > end_ - begin_) return 0;
  const std::uint64_t whole = (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment + kGap;
  if (whole <= end_ - fresh_) {
    const std::uint64_t at = fresh_;
    fresh_ += whole;
    blocks_[at] = {at, at + bytes};
    return at;
  }
  const auto fits = std::ranges::find_if(freed_, [&](std::uint64_t at) {
    const auto next = blocks_.upper_bound(at);
    return bytes + kGap <= (next == blocks_.end() ? fresh_ : next->first) - at;
  });
  if (fits == freed_.end()) return 0;
  const std::uint64_t at = *fits;
  freed_.erase(fits);
  blocks_[at] = {at, at + bytes};
  return at;
}

void DeviceHeap::free(std::uint64_t address) {
  if (address == 0) return;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  if (found == blocks_.end())
    throw Fault(fmt::format("free of address {:#x}, which malloc did not return", address), HazardKind::kOutOfBounds);
  Block& block = found->second;
  if (block.freed)
    throw Fault(fmt::format("a block of {} bytes at {:#x} is freed twice", block.end - block.begin, address),
                HazardKind::kOutOfBounds);
  block.freed = true;
  std::memset(reinterpret_cast<void*>(block.begin), kFreedByte, block.end - block.begin);
  freed_.push_back(address);
}

DeviceHeap::Block DeviceHeap::block_at(std::uint64_t address, std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin())
    throw Fault(fmt::format("address {:#x} is in the heap of kernels, and in no block of it", address),
                HazardKind::kOutOfBounds);
  const Block& block = std::prev(after)->second;
  const std::uint64_t size = block.end - block.begin;
  if (address >= block.end)
    throw Fault(fmt::format("address {:#x} is {} bytes past the end of a block of {} bytes from malloc", address,
                            address - block.end, size),
                HazardKind::kOutOfBounds);
  if (block.freed)
    throw Fault(fmt::format("address {:#x} is in a block of {} bytes from malloc that has been freed", address, size),
                HazardKind::kOutOfBounds);
  if (bytes > block.end - address)
    throw Fault(fmt::format("{} bytes at address {:#x} reach {} bytes past the end of a block of {} bytes from malloc",
                            bytes, address, bytes - (block.end - address), size),
                HazardKind::kOutOfBounds);
  return block;
}

}  // namespace kernelwright::emulator
