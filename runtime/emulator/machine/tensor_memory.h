/// Tensor memory of one CTA (PTX ISA "Tensor Memory"): 128 lanes by 512 columns of 32-bit cells, allocated by columns.
///
/// A tensor-memory address has the lane in bits 31-16 and the column in bits 15-0. Cells of a lane lie side by side
/// here, so a row of an accumulator is contiguous in host memory. This class keeps what is allocated, as a fact of the
/// machine. The checker (hazards_tensor.cpp) keeps which warp wrote what, and what is ordered with what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/program/op.h"

namespace kernelwright::emulator {

struct Cta;
struct Warp;

inline constexpr std::uint32_t kTensorLanes = 128, kTensorColumns = 512, kTensorQuadrant = 32;

struct TensorAddress {
  std::uint32_t lane = 0, column = 0;  // as the address says: may be out of range
  static TensorAddress of(std::uint32_t bits) { return {bits >> 16, bits & 0xffff}; }
  std::uint32_t bits() const { return lane << 16 | column; }
};

/// Lanes [lane, +lanes) by columns [column, +columns) of one CTA's tensor memory.
struct TensorBlock {
  std::uint32_t lane = 0, lanes = kTensorLanes;
  std::uint32_t column = 0, columns = 0;
};

class TensorMemory {
 public:
  TensorMemory();

  /// Cells (lane, column), (lane, column + 1), … to the end of the lane. Both must be in range: see require().
  std::uint32_t* row(std::uint32_t lane, std::uint32_t column) {
    return cells_.get() + std::size_t{lane} * kTensorColumns + column;
  }
  const std::uint32_t* row(std::uint32_t lane, std::uint32_t column) const {
    return cells_.get() + std::size_t{lane} * kTensorColumns + column;
  }

  // ---- allocation, for tcgen05.alloc and its like
  struct Allocation {
    std::uint32_t column = 0, columns = 0;
    int cta_group = 1;
    std::uint32_t op = 0;  // for reports: index of the alloc, and the warp that executed it, as the cluster counts
    std::uint32_t warp = 0;
  };
  /// Whether every column of [column, +columns) is allocated, by one allocation or by several side by side.
  bool allocated(std::uint32_t column, std::uint32_t columns) const;
  /// The first column from which `columns` columns are free. If `other` is not null, they are free in `other` too.
  std::optional<std::uint32_t> find_free(std::uint32_t columns, const TensorMemory* other) const;
  /// The columns must be free. Afterwards their cells hold a pattern.
  void allocate(const Allocation& allocation);
  /// Removes the allocation of `columns` columns that begins at `column`; returns false if there is none.
  bool deallocate(std::uint32_t column, std::uint32_t columns, int cta_group);
  const std::vector<Allocation>& allocations() const { return allocations_; }
  std::uint32_t free_columns() const;
  bool permit_relinquished = false;
  /// For tcgen05.alloc with cta_group::2, which the warps of two CTAs execute together: this CTA's warp has asked, or
  /// the other CTA's warp has allocated for both.
  struct {
    bool asked = false, granted = false;
    std::uint32_t columns = 0, column = 0;
  } pair;

  /// "columns 0 to 127, 256 to 511", or "none"
  std::string describe() const;

 private:
  std::unique_ptr<std::uint32_t[]> cells_;
  std::vector<Allocation> allocations_;  // by column
};

/// The tensor memory of a CTA, made when it is first asked for.
TensorMemory& tensor_memory(Cta& cta);

/// The other CTA of a pair (cta_group::2): its rank differs in the lowest bit. Throws Fault if the cluster has no such
/// CTA, or if the CTA has exited.
Cta& peer_cta(Cta& cta, const char* instruction);

/// Throws Fault (naming `instruction`) unless all of `block` exists and its columns are allocated in `cta`.
TensorMemory& require_tensor(Cta& cta, const TensorBlock& block, const char* instruction);

/// Chain of AsyncQueue::issue for the tcgen05.mma, .cp, .shift and .commit of one thread: these are performed in order.
const void* tensor_chain(const Warp& warp, int lane);

}  // namespace kernelwright::emulator
