/// What the checker remembers of the global memory of one launch whose clusters communicate there. For each 4 bytes:
/// which warp wrote them last with an ordinary store. For each released word: what a thread learns that acquires the
/// word.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "kernelwright/runtime/emulator/checker/clock.h"
#include "kernelwright/runtime/emulator/checker/global_write.h"
#include "kernelwright/runtime/emulator/checker/tensor_map_shadow.h"

namespace kernelwright::emulator {

/// Used by the one thread that runs all clusters (Program::clusters_communicate).
class GlobalShadow {
 public:
  /// Calls `visit(write, bytes_mask, address)` for every 4 bytes that [address, +bytes) touches.
  template <class Visit>
  void visit(std::uint64_t address, std::uint64_t bytes, Visit&& visit) {
    for (const std::uint64_t end = address + bytes; address < end;) {
      const std::uint64_t next = std::min(end, (address / 4 + 1) * 4);
      const std::uint32_t mask = ((1u << (next - address)) - 1) << (address % 4);
      visit(word(address / 4), static_cast<std::uint8_t>(mask), address);
      address = next;
    }
  }

  /// What strong writes have released at a word, and which thread made the last of them.
  struct Released {
    ClusterTimes times;
    ClusterTimes maps;  // released by fence.proxy.tensormap alone
    std::uint32_t cluster = 0;
    std::uint16_t agent = 0;
    std::uint8_t lane = 0;
  };
  std::unordered_map<std::uint64_t, Released> released;  // by the word's address
  TensorMapFences maps;

 private:
  static constexpr std::uint64_t kPageWords = 1024;
  using Page = std::array<GlobalWrite, kPageWords>;

  GlobalWrite& word(std::uint64_t index) {
    if (!last_ || index / kPageWords != last_index_) {
      std::unique_ptr<Page>& page = pages_[index / kPageWords];
      if (!page) page = std::make_unique<Page>();
      last_ = page.get();
      last_index_ = index / kPageWords;
    }
    return (*last_)[index % kPageWords];
  }

  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  Page* last_ = nullptr;
  std::uint64_t last_index_ = 0;
};

}  // namespace kernelwright::emulator
