#include "kernelwright/runtime/emulator/machine/tensor_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/fault.h"

namespace kernelwright::emulator {
namespace {

constexpr std::uint32_t kPattern = 0xcdcdcdcd;  // value of cells that were never written, as in shared memory

}  // namespace

TensorMemory::TensorMemory() : cells_(new std::uint32_t[kTensorLanes * kTensorColumns]) {
  std::fill_n(cells_.get(), kTensorLanes * kTensorColumns, kPattern);
}

bool TensorMemory::allocated(std::uint32_t column, std::uint32_t columns) const {
  std::uint32_t at = column;
  for (const Allocation& allocation : allocations_)
    if (allocation.column <= at && at < allocation.column + allocation.columns)
      at = allocation.column + allocation.columns;
  return at >= column + columns;
}

std::optional<std::uint32_t> TensorMemory::find_free(std::uint32_t columns, const TensorMemory* other) const {
  const auto clear = [&](const TensorMemory& memory, std::uint32_t column) {
    return std::none_of(memory.allocations_.begin(), memory.allocations_.end(), [&](const Allocation& allocation) {
      return allocation.column < column + columns && column < allocation.column + allocation.columns;
    });
  };
  // Allocations are powers of two and begin at multiples of their size, so this search finds a free place if there is
  // one.
  for (std::uint32_t column = 0; column + columns <= kTensorColumns; column += columns)
    if (clear(*this, column) && (!other || clear(*other, column))) return column;
  return std::nullopt;
}

void TensorMemory::allocate(const Allocation& allocation) {
  const auto after = std::find_if(allocations_.begin(), allocations_.end(),
                                  [&](const Allocation& existing) { return existing.column > allocation.column; });
  allocations_.insert(after, allocation);
  for (std::uint32_t lane = 0; lane < kTensorLanes; ++lane)
    std::fill_n(row(lane, allocation.column), allocation.columns, kPattern);
}

bool TensorMemory::deallocate(std::uint32_t column, std::uint32_t columns, int cta_group) {
  const auto found = std::find_if(allocations_.begin(), allocations_.end(), [&](const Allocation& allocation) {
    return allocation.column == column && allocation.columns == columns && allocation.cta_group == cta_group;
  });
  if (found == allocations_.end()) return false;
  allocations_.erase(found);
  return true;
}

std::uint32_t TensorMemory::free_columns() const {
  std::uint32_t free = kTensorColumns;
  for (const Allocation& allocation : allocations_) free -= allocation.columns;
  return free;
}

std::string TensorMemory::describe() const {
  std::string text;
  for (const Allocation& allocation : allocations_)
    text += fmt::format("{}{} to {}", text.empty() ? "columns " : ", ", allocation.column,
                        allocation.column + allocation.columns - 1);
  return text.empty() ? "none" : text;
}

TensorMemory& tensor_memory(Cta& cta) {
  if (!cta.tensor) cta.tensor = std::make_shared<TensorMemory>();
  return *cta.tensor;
}

Cta& peer_cta(Cta& cta, const char* instruction) {
  const auto& ctas = cta.cluster->ctas;
  const std::uint32_t rank = cta.rank ^ 1;
  if (rank >= ctas.size())
    throw Fault(fmt::format("{} with cta_group::2 in the CTA of rank {} of a cluster of {}: it has no peer",
                            instruction, cta.rank, ctas.size()));
  if (ctas[rank]->live_warps == 0)
    throw Fault(fmt::format("{} with cta_group::2, and the peer CTA of rank {} has exited", instruction, rank));
  return *ctas[rank];
}

TensorMemory& require_tensor(Cta& cta, const TensorBlock& block, const char* instruction) {
  TensorMemory& memory = tensor_memory(cta);
  const bool exists = block.lane < kTensorLanes && block.lanes <= kTensorLanes - block.lane &&
                      block.column < kTensorColumns && block.columns <= kTensorColumns - block.column;
  if (!exists)
    throw Fault(
        fmt::format("{} reaches {} lanes from {} and {} columns from {}; tensor memory has {} and {}", instruction,
                    block.lanes, block.lane, block.columns, block.column, kTensorLanes, kTensorColumns),
        HazardKind::kOutOfBounds);
  if (!memory.allocated(block.column, block.columns))
    throw Fault(fmt::format("{} uses columns {} to {} of tensor memory, of which some are not allocated in the CTA of "
                            "rank {}; allocated: {}",
                            instruction, block.column, block.column + block.columns - 1, cta.rank, memory.describe()),
                HazardKind::kTensorMemory);
  return memory;
}

const void* tensor_chain(const Warp& warp, int lane) { return reinterpret_cast<const char*>(&warp) + 1 + lane; }

}  // namespace kernelwright::emulator
