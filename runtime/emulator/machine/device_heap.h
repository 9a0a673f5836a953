/// The memory from which kernels take blocks by malloc. It keeps its contents from launch to launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "kernelwright/runtime/emulator/machine/memory.h"

namespace kernelwright::emulator {

/// Blocks lie apart from each other, and freed memory is given out again only once the rest is used up. So an access
/// past a block's end or after its free is found. Freed neighbours become one span. Safe from any number of threads.
class DeviceHeap {
 public:
  struct Block {
    std::uint64_t begin = 0, end = 0;
    bool freed = false;
  };

  DeviceHeap(GlobalMemory& memory, std::uint64_t bytes);
  /// The address of a block aligned to 16 bytes; 0 if no memory is left, or for 0 bytes.
  std::uint64_t allocate(std::uint64_t bytes);
  /// Does nothing for 0. Throws Fault if no block in use begins at `address`.
  void free(std::uint64_t address);
  bool contains(std::uint64_t address) const { return address >= begin_ && address < end_; }
  /// The block in use that has these bytes. Throws Fault, with what is there, if there is none.
  Block block_at(std::uint64_t address, std::uint64_t bytes) const;

 private:
  std::uint64_t begin_ = 0, end_ = 0, fresh_ = 0;  // from fresh_ on, nothing was ever given out
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Block> blocks_;                    // by begin
  std::map<std::uint64_t, std::uint64_t> spans_;             // freed memory: the end by the begin
  std::set<std::pair<std::uint64_t, std::uint64_t>> sizes_;  // the same: size and begin

  std::uint64_t find_freed(std::uint64_t bytes);  // the begin of `bytes` taken out of spans_; 0: there are none
  void add_span(std::uint64_t begin, std::uint64_t end);
  void remove_span(std::uint64_t begin);
  void forget_blocks(std::uint64_t begin, std::uint64_t end);  // freed ones that are given out again
};

}  // namespace kernelwright::emulator
