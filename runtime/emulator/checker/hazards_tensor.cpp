// The checker's part for tensor memory (PTX ISA "Memory Consistency Model for 5th generation of TensorCore
// operations").
//
// An access is over for an observer once the observer knows that the operation has completed:
//   - tcgen05.mma, .cp and .shift: through tcgen05.commit and a wait for its mbarrier;
//   - tcgen05.ld and .st: through the tcgen05.wait of the issuing warp.
// The first three form a pipeline: among them, order of issue is enough.
// Between threads, tcgen05.fence::before_thread_sync (a commit implies it) must follow the first operation, and
// ::after_thread_sync must precede the second.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/checker/hazards_state.h"

namespace kernelwright::emulator {

namespace {

std::string name_of_block(const Cta& cta, const TensorBlock& block) {
  std::string text = fmt::format("tensor memory, lanes {} to {}, columns {} to {}", block.lane,
                                 block.lane + block.lanes - 1, block.column, block.column + block.columns - 1);
  if (cta.cluster->ctas.size() > 1) text += fmt::format(" of the CTA of rank {}", cta.rank);
  return text;
}

const char* name_of_access(Access access) { return access == Access::kWrite ? "write" : "read"; }

/// The latest time of agent `by` that `vector` covers.
std::uint32_t at(const std::vector<std::uint32_t>& vector, std::uint32_t by) {
  return by < vector.size() ? vector[by] : 0;
}

void raise(std::vector<std::uint32_t>& vector, const std::vector<std::uint32_t>& other) {
  if (vector.size() < other.size()) vector.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) vector[i] = std::max(vector[i], other[i]);
}

}  // namespace

TensorShadow& Hazards::State::tensor_shadow(const Cta& cta) {
  if (tensor_shadows.size() <= cta.rank) tensor_shadows.resize(cluster.ctas.size());
  auto& shadow = tensor_shadows[cta.rank];
  if (!shadow) shadow = std::make_unique<TensorShadow>();
  return *shadow;
}

bool Hazards::State::knows_completed(const WarpState& warp, int lane, const TensorRecord& record) const {
  if (lane >= 0) return knows(warp, lane, record.agent, std::max<int>(record.lane, 0), record.time);
  return warp.known.covers(record.agent, 0, record.time);
}

std::uint32_t Hazards::State::fenced_until(const WarpState& warp, int lane, std::uint32_t by) {
  if (lane >= 0) return std::max(at(warp.fenced, by), at(warp.fenced_by_lane[static_cast<std::size_t>(lane)], by));
  std::uint32_t least = ~std::uint32_t{0};
  for (std::size_t i = 0; i < warp.fenced_by_lane.size(); ++i)
    if (warp.warp->live >> i & 1) least = std::min(least, at(warp.fenced_by_lane[i], by));
  return std::max(at(warp.fenced, by), least);
}

bool Hazards::State::completed_by_use(const WarpState& warp, int lane, const TensorRecord& record) const {
  if (record.pipe) return false;
  const WarpState& issuer = warps[record.issuer];
  const auto use = issuer.loaded_by_use.find(record.op);
  if (use == issuer.loaded_by_use.end()) return false;
  if (record.issuer == warp.agent) return true;
  if (lane >= 0) return knows(warp, lane, record.issuer, std::max<int>(record.lane, 0), use->second);
  return warp.known.covers(record.issuer, 0, use->second);
}

bool Hazards::State::check_tensor_order(WarpState& warp, int lane, const char* now, const char* before,
                                        const TensorRecord& record, bool pipelined, const Cta& cta,
                                        const TensorBlock& block) {
  const auto conflict = [&](HazardRule rule, std::string what) {
    report_pair(rule, *warp.warp, lane, warp.warp->current->index, std::move(what), name_of_block(cta, block),
                record.op, record.issuer, record.lane);
    return false;
  };
  if (pipelined && record.pipe) {
    const bool same = record.issuer == warp.agent && (record.lane == lane || record.issued <= warp.synced);
    if (same) return true;
    if (!knows(warp, lane, record.issuer, record.lane, record.issued))
      return conflict(HazardRule::kTensorRace,
                      fmt::format("a {} is not ordered after a {} of the same cells by another thread: no "
                                  "synchronisation between them",
                                  now, before));
  } else if (!knows_completed(warp, lane, record) && !completed_by_use(warp, lane, record)) {
    return conflict(
        HazardRule::kTensorRace,
        record.pipe
            ? fmt::format("a {} is not ordered after a {} of the same cells in flight: no tcgen05.commit and wait for "
                          "its mbarrier between them",
                          now, before)
            : fmt::format(
                  "a {} is not ordered after a {} of the same cells in flight: no tcgen05.wait by the warp that "
                  "issued it, or no synchronisation after that",
                  now, before));
  }
  if (record.issuer == warp.agent && (!record.pipe || pipelined)) return true;  // within a warp, a wait is enough
  const bool partly = lane >= 0 && (warp.partial_lanes >> lane & 1);
  const std::uint32_t published =
      std::max(at(warp.known.tensor, record.issuer), partly ? at(warp.partial.tensor, record.issuer) : 0);
  if (published < record.issued)
    return conflict(HazardRule::kTensorFenceBefore,
                    fmt::format("a {} after a {} of the same cells by another warp, and no tcgen05.fence::"
                                "before_thread_sync by that one before they synchronised",
                                now, before));
  if (at(warp.fenced, record.issuer) < record.issued && fenced_until(warp, lane, record.issuer) < record.issued)
    return conflict(HazardRule::kTensorFenceAfter,
                    fmt::format("a {} after a {} of the same cells by another thread, and no tcgen05.fence::"
                                "after_thread_sync since they synchronised",
                                now, before));
  return true;
}

void Hazards::State::check_tensor_cell(WarpState& warp, int lane, Access access, const TensorRecord& record,
                                       TensorCell& cell, const Cta& cta, const TensorBlock& block) {
  if (cell.write.lanes & record.lanes)
    check_tensor_order(warp, lane, name_of_access(access), "write", cell.write, record.pipe, cta, block);
  if (access == Access::kWrite) {
    for (TensorRecord& read : cell.reads)
      if (read.lanes & record.lanes) {
        check_tensor_order(warp, lane, "write", "read", read, record.pipe, cta, block);
        read.lanes &= static_cast<std::uint16_t>(~record.lanes);
      }
    cell.write = record;  // the earlier write of other lanes is forgotten, which can only hide a hazard
    cell.written |= record.lanes;
    return;
  }
  // Keep the reader: in the record of the same agent, in a free record, or in one whose read is over.
  TensorRecord* place = nullptr;
  for (TensorRecord& read : cell.reads) {
    if (read.agent == record.agent && read.issuer == record.issuer && (read.lanes & ~record.lanes) == 0) {
      read = record;
      return;
    }
    if (read.lanes == 0 && !place) place = &read;
  }
  for (TensorRecord& read : cell.reads)
    if (!place && knows_completed(warp, lane, read)) place = &read;
  if (!place) place = &cell.reads[0];
  *place = record;
}

void Hazards::State::check_tensor_leaks(const Cta& cta, const Warp& last) {
  if (!cta.tensor) return;
  for (const TensorMemory::Allocation& allocation : cta.tensor->allocations())
    report_pair(HazardRule::kTensorLeak, last, -1, last.current->index,
                fmt::format("a CTA exits with columns {} to {} of tensor memory still allocated: tcgen05.dealloc gives "
                            "them back",
                            allocation.column, allocation.column + allocation.columns - 1),
                "", allocation.op, static_cast<int>(allocation.warp), -1);
}

bool Hazards::tensor_access(Warp& warp, int lane, Access access, AsyncGroup by, Cta& cta, const TensorBlock& block,
                            bool accumulates) {
  State::WarpState& state = state_->of(warp);
  const AsyncAgent agent = of_group(warp, by);
  TensorRecord record{.time = agent.clock,
                      .issued = state.now,
                      .op = warp.current->index,
                      .agent = static_cast<std::uint16_t>(agent.agent),
                      .issuer = state.agent,
                      .lanes = 0,
                      .lane = static_cast<std::int8_t>(lane),
                      .pipe = by == AsyncGroup::kTensor};
  bool unwritten = false;
  state_->tensor_shadow(cta).visit(block, [&](TensorCell& cell, std::uint16_t lanes, std::uint32_t) {
    record.lanes = lanes;
    unwritten |= (access == Access::kRead || accumulates) && (lanes & ~cell.written) != 0;
    state_->check_tensor_cell(state, lane, access, record, cell, cta, block);
  });
  if (unwritten && by != AsyncGroup::kTensorLoad)
    state_->report(HazardRule::kUnwrittenTensor, warp, lane, "tensor memory is read that nothing has written",
                   name_of_block(cta, block));
  return unwritten;
}

bool Hazards::tensor_written(Cta& cta, std::uint32_t lane, std::uint32_t column) const {
  const TensorCell& cell = state_->tensor_shadow(cta).cell(lane / TensorShadow::kCellLanes, column);
  return cell.written >> lane % TensorShadow::kCellLanes & 1;
}

void Hazards::tensor_commit(Warp& warp, int lane) {
  State::WarpState& state = state_->of(warp);
  commit_group(warp, AsyncGroup::kTensor);
  State::Groups& groups = state.groups[static_cast<int>(AsyncGroup::kTensor)];
  groups.attached = groups.committed;
  tensor_fence_before(warp, LaneMask{1} << lane);
}

void Hazards::tensor_commit_arrives(Warp& warp, int lane, Cta& cta, std::uint32_t offset) {
  State::WarpState& state = state_->of(warp);
  State::Mbarrier& mbarrier = state_->mbarrier(cta, offset);
  mbarrier_use(warp, lane, cta, offset, /*async=*/true);
  mbarrier.arrival = state.record_of(lane);
  if (warp.cta != &cta) {
    AccessRecord& record = mbarrier.remote_arrivals[{state.agent, static_cast<std::uint8_t>(lane)}];
    const AsyncGroup group = AsyncGroup::kTensor;
    record = {.time = state.groups[static_cast<int>(group)].committed,
              .op = warp.current->index,
              .agent = static_cast<std::uint16_t>(state_->group_agent(state, group)),
              .issuer = state.agent};
    record.lane = static_cast<std::uint8_t>(lane);
  }
  state_->release(state, LaneMask{1} << lane, mbarrier.gathering);
  mbarrier.gathering.raise(state_->group_agent(state, AsyncGroup::kTensor),
                           state.groups[static_cast<int>(AsyncGroup::kTensor)].committed);
  mbarrier.attached = mbarrier.phase + 1;
}

void Hazards::tensor_fence_before(Warp& warp, LaneMask lanes) {
  State::WarpState& state = state_->of(warp);
  if ((lanes & warp.live) == warp.live) {
    state.known.tensor[state.agent] = state.now;
  } else {
    state.partial.resize(state_->warps.size(), state_->warps.size());
    state.partial.tensor[state.agent] = state.now;
    state.partial_lanes |= lanes;
  }
  ++state.now;
}

void Hazards::tensor_fence_after(Warp& warp, LaneMask lanes) {
  State::WarpState& state = state_->of(warp);
  if ((lanes & warp.live) == warp.live) {
    raise(state.fenced, state.known.tensor);
    return;
  }
  for (std::size_t i = 0; i < state.fenced_by_lane.size(); ++i) {
    if (!(lanes >> i & 1)) continue;
    raise(state.fenced_by_lane[i], state.known.tensor);
    if (state.partial_lanes >> i & 1) raise(state.fenced_by_lane[i], state.partial.tensor);
  }
}

void Hazards::tensor_wait(Warp& warp, AsyncGroup group) {
  commit_group(warp, group);
  wait_group(warp, warp.live, group, 0);
  if (group == AsyncGroup::kTensorLoad) state_->of(warp).loading.clear();
}

void Hazards::tensor_allocated(Cta& cta, std::uint32_t column, std::uint32_t columns) {
  state_->tensor_shadow(cta).visit({.column = column, .columns = columns},
                                   [](TensorCell& cell, std::uint16_t, std::uint32_t) { cell = {}; });
}

void Hazards::tensor_deallocated(Warp& warp, Cta& cta, std::uint32_t column, std::uint32_t columns) {
  State::WarpState& state = state_->of(warp);
  const TensorBlock block{.column = column, .columns = columns};
  state_->tensor_shadow(cta).visit(block, [&](TensorCell& cell, std::uint16_t, std::uint32_t) {
    const auto require = [&](const TensorRecord& record, const char* what) {
      if (record.lanes == 0 || state_->knows_completed(state, -1, record)) return;
      state_->report_pair(HazardRule::kTensorFreedInUse, warp, -1, warp.current->index,
                          fmt::format("columns are deallocated, and nothing says that a {} of them is over", what),
                          name_of_block(cta, block), record.op, record.issuer, record.lane);
    };
    require(cell.write, "write");
    for (const TensorRecord& read : cell.reads) require(read, "read");
    cell = {};
  });
}

}  // namespace kernelwright::emulator
