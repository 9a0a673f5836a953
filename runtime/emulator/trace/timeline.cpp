#include "kernelwright/runtime/emulator/trace/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernelwright/runtime/emulator/machine/memory.h"
#include "kernelwright/runtime/emulator/program/program.h"

namespace kernelwright::emulator {

namespace {

constexpr std::size_t kMostRecords = 2'000'000;  // per cluster: 64 MB, and more than a picture can show
constexpr std::uint32_t kMmaGap = 48;  // issue cycles between mma.sync instructions that still belong to one run

}  // namespace

struct Timeline::Open {
  WarpLog* log = nullptr;
  std::uint32_t gap = 0, gap_alone = 0;  // issue cycles since the last mma.sync of a run
  // cp.async
  GateId copy_gate = kNoGate;  // of the open group
  std::uint32_t copy_bytes = 0, copies = 0;
  LabelId copy_label = 0;
  std::vector<GateId> copy_groups, bulk_groups, multiply_groups;  // committed; an empty one repeats the last
  GateId bulk_gate = kNoGate;
  // wgmma
  std::uint32_t multiply_cycles = 0, multiplies = 0;
  LabelId multiply_label = 0;
  // the last bulk copy, for multicasts
  const Op* copied_by = nullptr;
  std::uint32_t copied_to = 0, copied_cta = 0;
};

Timeline::Timeline(const Cluster& cluster, const Launch& launch, const LaunchNotes* notes, const MachineCosts& machine)
    : launch_(launch), notes_(notes) {
  const Program& program = *launch.program;
  recording_.kernel = program.entry->name;
  recording_.target = program.module->target;
  std::ranges::copy(launch.grid, recording_.grid);
  std::ranges::copy(launch.block, recording_.block);
  std::ranges::copy(launch.cluster, recording_.cluster);
  std::ranges::copy(cluster.ctas.front()->id, recording_.first_cta);
  recording_.num_ctas = static_cast<std::uint32_t>(cluster.ctas.size());
  for (const Instruction& instruction : program.entry->instructions)
    costs_.push_back(instruction_cost(instruction, machine));
  for (const auto& cta : cluster.ctas) {
    first_warp_.push_back(static_cast<std::uint32_t>(recording_.warps.size()));
    for (const Warp& warp : cta->warps)
      recording_.warps.push_back({.cta = cta->rank, .warp = warp.index, .role = role_of(notes, warp)});
  }
  open_.resize(recording_.warps.size());
  for (std::size_t i = 0; i < open_.size(); ++i) open_[i].log = &recording_.warps[i];
}

Timeline::~Timeline() = default;

Timeline::Open& Timeline::open(const Warp& warp) { return open_[first_warp_[warp.cta->rank] + warp.index]; }

LabelId Timeline::label(std::string_view text) {
  if (const auto known = label_ids_.find(text); known != label_ids_.end()) return known->second;
  const auto id = static_cast<LabelId>(recording_.labels.size());
  recording_.labels.emplace_back(text);
  label_ids_.emplace(text, id);
  return id;
}

LabelId Timeline::place_label(std::uint32_t offset) {
  return label(short_name_of_shared(notes_, *launch_.program, offset));
}

GateId Timeline::new_gate(LabelId gate_label) {
  recording_.gates.push_back({.label = gate_label});
  return static_cast<GateId>(recording_.gates.size() - 1);
}

void Timeline::write(Open& log, const Record& record) {
  if (record.kind != RecordKind::kWork) end_mma(log);
  if (num_records_ >= kMostRecords) {
    recording_.complete = false;
    return;
  }
  ++num_records_;
  log.log->records.push_back(record);
}

// ---- instructions

void Timeline::add_work(Open& log, std::uint32_t issue, std::uint32_t alone) {
  std::vector<Record>& records = log.log->records;
  if (!recording_.complete || issue == 0) return;
  if (!records.empty() && records.back().kind == RecordKind::kMma) {
    log.gap += issue;
    log.gap_alone += alone;
    if (log.gap > kMmaGap) end_mma(log);
  } else if (!records.empty() && records.back().kind == RecordKind::kWork) {
    records.back().cycles += issue;
    records.back().alone += alone;
    ++records.back().count;
  } else {
    write(log, {.cycles = issue, .alone = alone});
  }
}

/// Instructions issued since the last mma.sync of a run come after the run.
void Timeline::end_mma(Open& log) {
  const std::uint32_t alone = std::exchange(log.gap_alone, 0);
  if (const std::uint32_t gap = std::exchange(log.gap, 0)) write(log, {.cycles = gap, .alone = alone});
}

void Timeline::add_mma(Open& log, const InstructionCost& cost) {
  std::vector<Record>& records = log.log->records;
  const LabelId shape = label(cost.shape);
  if (recording_.complete && !records.empty() && records.back().kind == RecordKind::kMma &&
      records.back().label == shape) {
    Record& run = records.back();
    run.cycles += cost.tensor;
    run.alone += cost.alone() + std::exchange(log.gap_alone, 0);
    log.gap = 0;
    ++run.count;
  } else {
    write(log, {.kind = RecordKind::kMma, .cycles = cost.tensor, .alone = cost.alone(), .label = shape});
  }
}

void Timeline::executed(const Warp& warp, const Op& op, LaneMask lanes) {
  if (op.index >= costs_.size()) return;  // the exit that the decoder adds
  const InstructionCost& cost = costs_[op.index];
  Open& log = open(warp);
  const auto wait_for = [&](const std::vector<GateId>& groups) {
    if (groups.size() > cost.number) wait(log, groups[groups.size() - 1 - cost.number]);
  };
  const auto commit = [](std::vector<GateId>& groups, GateId& gate) {
    // Groups complete in order, so a group without work is complete when the one before it is.
    groups.push_back(gate != kNoGate ? gate : groups.empty() ? kNoGate : groups.back());
    gate = kNoGate;
  };
  switch (cost.kind) {
    case CostKind::kWork: break;
    case CostKind::kMma: add_mma(log, cost); return;
    case CostKind::kMultiply:
      log.multiply_cycles += cost.tensor;
      ++log.multiplies;
      log.multiply_label = label(cost.shape);
      break;
    case CostKind::kMultiplyCommit: commit_multiply(warp, log); break;
    case CostKind::kMultiplyWait: wait_for(log.multiply_groups); break;
    case CostKind::kCopy: add_copy(warp, log, op, cost, lanes); break;
    case CostKind::kCopyCommit:
      end_copy(log);
      commit(log.copy_groups, log.copy_gate);
      break;
    case CostKind::kCopyWait: wait_for(log.copy_groups); break;
    case CostKind::kCopyWaitAll:
      end_copy(log);
      commit(log.copy_groups, log.copy_gate);
      wait_for(log.copy_groups);
      break;
    case CostKind::kBulkCommit: commit(log.bulk_groups, log.bulk_gate); break;
    case CostKind::kBulkWait: wait_for(log.bulk_groups); break;
  }
  add_work(log, cost.issue, cost.alone());
}

// ---- wgmma

void Timeline::commit_multiply(const Warp& warp, Open& log) {
  if (log.multiplies == 0) {
    log.multiply_groups.push_back(log.multiply_groups.empty() ? kNoGate : log.multiply_groups.back());
    return;
  }
  const std::uint64_t key = std::uint64_t{warp.cta->rank} << 48 | std::uint64_t{warp.index / 4} << 40 |
                            static_cast<std::uint64_t>(log.multiply_groups.size());
  const auto [at, fresh] = multiply_gates_.try_emplace(key, kNoGate);
  if (fresh) at->second = new_gate(log.multiply_label);
  Gate& gate = recording_.gates[at->second];
  gate.tensor_cycles = log.multiply_cycles;
  gate.count = log.multiplies;
  write(log, {.kind = RecordKind::kMultiply, .gate = at->second, .label = log.multiply_label});
  if (recording_.complete) ++gate.contributions;
  log.multiply_groups.push_back(at->second);
  log.multiply_cycles = log.multiplies = 0;
}

// ---- copies

void Timeline::add_copy(const Warp& warp, Open& log, const Op& op, const InstructionCost& cost, LaneMask lanes) {
  const auto offset = static_cast<std::uint32_t>(lane_address(warp, op, first_lane(lanes))) & kSharedOffsetMask;
  const LabelId place = place_label(offset);
  if (log.copies != 0 && place != log.copy_label) end_copy(log);
  log.copy_label = place;
  log.copy_bytes += cost.number * static_cast<std::uint32_t>(count_lanes(lanes));
  ++log.copies;
}

void Timeline::end_copy(Open& log) {
  if (log.copies == 0) return;
  if (log.copy_gate == kNoGate) log.copy_gate = new_gate(log.copy_label);
  write(log, {.kind = RecordKind::kCopy,
              .cycles = log.copy_bytes,
              .count = log.copies,
              .gate = log.copy_gate,
              .label = log.copy_label});
  if (recording_.complete) ++recording_.gates[log.copy_gate].contributions;
  log.copy_bytes = log.copies = 0;
}

void Timeline::copy(const Warp& warp, const Cta& to, std::uint32_t offset, std::uint32_t mbarrier, std::uint32_t bytes,
                    const Cta* signalled) {
  Open& log = open(warp);
  const GateId gate = contribute(mbarrier_at(signalled ? *signalled : to, mbarrier));
  const bool follows = !log.log->records.empty() && (log.log->records.back().kind == RecordKind::kCopy ||
                                                     log.log->records.back().kind == RecordKind::kCopyAlso);
  // The lanes of a warp copy together.
  if (follows && log.copied_by == warp.current && log.log->records.back().gate == gate) {
    log.log->records.back().cycles += bytes;
    ++log.log->records.back().count;
    if (recording_.complete) --recording_.gates[gate].contributions;
    return;
  }
  const bool multicast =
      follows && log.copied_by == warp.current && log.copied_to == offset && log.copied_cta != to.rank;
  log.copied_by = warp.current;
  log.copied_to = offset;
  log.copied_cta = to.rank;
  write(log, {.kind = multicast ? RecordKind::kCopyAlso : RecordKind::kCopy,
              .remote = &to != warp.cta,
              .bulk = true,
              .cycles = bytes,
              .gate = gate,
              .label = place_label(offset)});
}

void Timeline::store(const Warp& warp, std::uint32_t offset, std::uint32_t bytes) {
  Open& log = open(warp);
  if (log.bulk_gate == kNoGate) log.bulk_gate = new_gate(place_label(offset));
  write(
      log,
      {.kind = RecordKind::kStore, .bulk = true, .cycles = bytes, .gate = log.bulk_gate, .label = place_label(offset)});
  if (recording_.complete) ++recording_.gates[log.bulk_gate].contributions;
}

// ---- barriers

Timeline::Phases& Timeline::phases(const BarrierAt& at) {
  const auto [found, fresh] = barriers_.try_emplace(at);
  if (fresh) {
    switch (at.kind) {
      case BarrierAt::Kind::kMbarrier: found->second.label = place_label(at.number); break;
      case BarrierAt::Kind::kNamed: found->second.label = label(fmt::format("barrier {}", at.number)); break;
      case BarrierAt::Kind::kCluster: found->second.label = label("cluster barrier"); break;
    }
  }
  if (found->second.current == kNoGate) found->second.current = new_gate(found->second.label);
  return found->second;
}

GateId Timeline::contribute(const BarrierAt& at) {
  const GateId gate = phases(at).current;
  if (recording_.complete) ++recording_.gates[gate].contributions;
  return gate;
}

void Timeline::reset(const BarrierAt& at) {
  Phases& barrier = phases(at);
  barrier.current = barrier.last = kNoGate;
}

void Timeline::arrive(const Warp& warp, const BarrierAt& at) {
  Open& log = open(warp);
  const GateId gate = contribute(at);
  std::vector<Record>& records = log.log->records;
  // The lanes of a warp arrive together.
  if (!records.empty() && records.back().kind == RecordKind::kArrive && records.back().gate == gate && log.gap == 0) {
    ++records.back().count;
    if (recording_.complete) --recording_.gates[gate].contributions;
    return;
  }
  const bool remote = at.kind == BarrierAt::Kind::kCluster || at.cta != warp.cta->rank;
  write(log, {.kind = RecordKind::kArrive, .remote = remote, .gate = gate, .label = recording_.gates[gate].label});
}

void Timeline::arrive_after_copies(const Warp& warp, const BarrierAt& at) {
  Open& log = open(warp);
  end_copy(log);
  const GateId gate = contribute(at);
  std::vector<Record>& records = log.log->records;
  if (!records.empty() && records.back().kind == RecordKind::kCopiesArrive && records.back().gate == gate) {
    ++records.back().count;
    if (recording_.complete) --recording_.gates[gate].contributions;
    return;
  }
  write(log, {.kind = RecordKind::kCopiesArrive, .gate = gate, .label = recording_.gates[gate].label});
}

void Timeline::complete(const BarrierAt& at) {
  Phases& barrier = phases(at);
  barrier.last = barrier.current;
  barrier.current = kNoGate;
}

void Timeline::observe(const Warp& warp, const BarrierAt& at) { wait(open(warp), phases(at).last); }

void Timeline::wait(Open& log, GateId gate) {
  if (gate == kNoGate) return;  // nothing to wait for: a fresh mbarrier, or no groups yet
  const std::vector<Record>& records = log.log->records;
  // The lanes of a warp wait together.
  if (!records.empty() && records.back().kind == RecordKind::kWait && records.back().gate == gate) return;
  write(log, {.kind = RecordKind::kWait, .gate = gate, .label = recording_.gates[gate].label});
}

Recording Timeline::take() {
  for (Open& log : open_) end_mma(log);
  return std::move(recording_);
}

}  // namespace kernelwright::emulator
