/// What the checker remembers of a CTA's tensor memory: for each column and 16 lanes, which agent wrote them last and
/// which agents have read them since.
#pragma once

#include <cstdint>
#include <vector>

#include "kernelwright/runtime/emulator/machine/tensor_memory.h"

namespace kernelwright::emulator {

/// One access. `time` is by the clock of `agent`, a group of tcgen05 operations. `issued` is by the clock of the warp
/// `issuer`, which executed instruction `op`. `lane` -1: the whole warp did.
struct TensorRecord {
  std::uint32_t time = 0, issued = 0, op = 0;
  std::uint16_t agent = 0, issuer = 0;
  std::uint16_t lanes = 0;  // which of the 16 lanes, one bit each; 0: nothing is recorded
  std::int8_t lane = -1;
  bool pipe = false;  // an access of tcgen05.mma, .cp or .shift: order of issue orders these among themselves
};

struct TensorCell {
  static constexpr int kReaders = 3;
  TensorRecord write;
  TensorRecord reads[kReaders];
  std::uint16_t written = 0;  // lanes that were written
};

class TensorShadow {
 public:
  static constexpr std::uint32_t kCellLanes = 16, kGroups = kTensorLanes / kCellLanes;

  TensorShadow() : cells_(std::size_t{kGroups} * kTensorColumns) {}

  TensorCell& cell(std::uint32_t group, std::uint32_t column) {
    return cells_[std::size_t{group} * kTensorColumns + column];
  }
  /// Calls `visit(cell, lanes, column)` for every cell that `block` touches; `lanes` is a mask of the cell's 16.
  template <class Visit>
  void visit(const TensorBlock& block, Visit&& visit) {
    for (std::uint32_t group = block.lane / kCellLanes; group * kCellLanes < block.lane + block.lanes; ++group) {
      std::uint32_t mask = 0xffff;
      if (block.lane > group * kCellLanes) mask &= 0xffffu << (block.lane - group * kCellLanes);
      const std::uint32_t left = block.lane + block.lanes - group * kCellLanes;
      if (left < kCellLanes) mask &= (1u << left) - 1;
      for (std::uint32_t column = block.column; column < block.column + block.columns; ++column)
        visit(cell(group, column), static_cast<std::uint16_t>(mask), column);
    }
  }

 private:
  std::vector<TensorCell> cells_;
};

}  // namespace kernelwright::emulator
