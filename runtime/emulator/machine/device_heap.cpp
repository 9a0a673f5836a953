#include "kernelwright/runtime/emulator/machine/device_heap.h"

#include <fmt/format.h>

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
  std::uint64_t at = fresh_;
  if (whole <= end_ - fresh_)
    fresh_ += whole;
  else if (at = find_freed(whole); at == 0)
    return 0;
  blocks_[at] = {at, at + bytes};
  return at;
}

std::uint64_t DeviceHeap::find_freed(std::uint64_t bytes) {
  if (const auto fits = sizes_.lower_bound({bytes, 0}); fits != sizes_.end()) {
    const auto [size, at] = *fits;
    remove_span(at);
    if (size > bytes) add_span(at + bytes, at + size);
    forget_blocks(at, at + bytes);
    return at;
  }
  if (spans_.empty()) return 0;
  const auto [at, end] = *std::prev(spans_.end());
  if (end != fresh_ || end_ - at < bytes) return 0;
  remove_span(at);  // it goes on in memory that was never given out
  fresh_ = at + bytes;
  forget_blocks(at, fresh_);
  return at;
}

void DeviceHeap::add_span(std::uint64_t begin, std::uint64_t end) {
  const auto after = spans_.lower_bound(begin);
  if (after != spans_.begin()) {
    const auto [before, before_end] = *std::prev(after);
    if (before_end == begin) {
      remove_span(before);
      begin = before;
    }
  }
  if (const auto next = spans_.find(end); next != spans_.end()) {
    const std::uint64_t next_end = next->second;
    remove_span(end);
    end = next_end;
  }
  spans_[begin] = end;
  sizes_.emplace(end - begin, begin);
}

void DeviceHeap::remove_span(std::uint64_t begin) {
  const auto span = spans_.find(begin);
  sizes_.erase({span->second - begin, begin});
  spans_.erase(span);
}

void DeviceHeap::forget_blocks(std::uint64_t begin, std::uint64_t end) {
  auto block = blocks_.lower_bound(begin);
  while (block != blocks_.end() && block->first < end) {
    const Block known = block->second;
    block = blocks_.erase(block);
    if (known.end > end) block = std::next(blocks_.emplace(end, Block{end, known.end, /*freed=*/true}).first);
  }
}

void DeviceHeap::free(std::uint64_t address) {
  if (address == 0) return;
  const std::lock_guard lock(mutex_);
  const auto after = blocks_.upper_bound(address);
  const bool known = after != blocks_.begin();
  if (!known || std::prev(after)->first != address) {
    const bool inside = known && address < std::prev(after)->second.end;
    throw Fault(inside ? fmt::format("free of address {:#x}, which is {} bytes behind the begin of its block", address,
                                     address - std::prev(after)->first)
                       : fmt::format("free of address {:#x}, which malloc did not return", address),
                HazardRule::kDeviceHeap);
  }
  Block& block = std::prev(after)->second;
  if (block.freed)
    throw Fault(fmt::format("a block of {} bytes at {:#x} is freed twice", block.end - block.begin, address),
                HazardRule::kDeviceHeap);
  block.freed = true;
  std::memset(reinterpret_cast<void*>(block.begin), kFreedByte, block.end - block.begin);
  const std::uint64_t whole =
      (block.end - block.begin + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment + kGap;
  add_span(block.begin, block.begin + whole);
}

DeviceHeap::Block DeviceHeap::block_at(std::uint64_t address, std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin())
    throw Fault(fmt::format("address {:#x} is in the heap of kernels, and in no block of it", address),
                HazardRule::kDeviceHeap);
  const Block& block = std::prev(after)->second;
  const std::uint64_t size = block.end - block.begin;
  if (address >= block.end)
    throw Fault(fmt::format("address {:#x} is {} bytes past the end of a block of {} bytes from malloc", address,
                            address - block.end, size),
                HazardRule::kDeviceHeap);
  if (block.freed)
    throw Fault(fmt::format("address {:#x} is in a block of {} bytes from malloc that has been freed", address, size),
                HazardRule::kDeviceHeap);
  if (bytes > block.end - address)
    throw Fault(fmt::format("{} bytes at address {:#x} reach {} bytes past the end of a block of {} bytes from malloc",
                            bytes, address, bytes - (block.end - address), size),
                HazardRule::kDeviceHeap);
  return block;
}

}  // namespace kernelwright::emulator
