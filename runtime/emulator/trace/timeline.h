/// Records what one cluster did, so that it can be given times afterwards: for each warp, what it issued, what it
/// copied, where it arrived and what it waited for. The record does not depend on the order in which the interpreter
/// ran the warps. timeline_replay.h makes the times.
///
/// A Gate orders warps: it is one phase of an mbarrier or of a named barrier, one group of copies, or one group of
/// wgmma. A gate opens once all its contributions have come. The warps that wait for it then continue.
///
/// Lanes of a warp share one log and one time: if lanes diverge, the work of one side follows that of the other. A loop
/// that polls (test_wait, a flag in global memory) costs as many polls as the interpreter executed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/names.h"
#include "kernelwright/runtime/emulator/trace/timeline_costs.h"

namespace kernelwright::emulator {

using GateId = std::uint32_t;
inline constexpr GateId kNoGate = ~GateId{0};
using LabelId = std::uint32_t;

enum class RecordKind : std::uint8_t {
  kWork,          // cycles of the warp's scheduler
  kMma,           // a run of mma.sync; cycles of the scheduler's tensor core
  kArrive,        // an arrival at a gate
  kWait,          // a wait for a gate
  kCopy,          // a copy into shared memory; the gate may be kNoGate
  kCopyAlso,      // the copy before this record also lands at this gate: multicast
  kStore,         // a copy out of shared memory
  kCopiesArrive,  // an arrival at a gate, once all copies of this warp have landed
  kMultiply,      // a group of wgmma is issued: contributes to its gate, which has the cycles
};

struct Record {
  RecordKind kind = RecordKind::kWork;
  bool remote = false;       // kArrive: in another CTA
  bool bulk = false;         // kCopy: by the copy engine, not by the warp's lanes
  std::uint32_t cycles = 0;  // for copies: bytes
  std::uint32_t alone = 0;   // kWork, kMma: cycles that the instructions take if the warp shares no unit
  std::uint32_t count = 1;   // number of instructions
  GateId gate = kNoGate;
  LabelId label = 0;
};

struct Gate {
  std::uint32_t contributions = 0;
  std::uint32_t tensor_cycles = 0;  // not 0: cycles of a group of wgmma, which begins once all warps have contributed
  std::uint32_t count = 0;          // number of wgmma
  LabelId label = 0;
};

struct WarpLog {
  std::uint32_t cta = 0, warp = 0;  // rank in the cluster, index in the CTA
  std::string role;
  std::vector<Record> records;
};

struct Recording {
  std::string kernel, target;
  std::uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
  std::uint32_t first_cta[3] = {};  // of the cluster: %ctaid
  std::uint32_t num_ctas = 1;       // CTAs in the cluster
  std::vector<WarpLog> warps;       // CTA after CTA
  std::vector<Gate> gates;
  std::vector<std::string> labels = {""};
  bool complete = true;  // false: the record became too long, and ends before the kernel did
};

/// A barrier. Its phases are gates.
struct BarrierAt {
  enum class Kind : std::uint8_t { kMbarrier, kNamed, kCluster };
  Kind kind = Kind::kMbarrier;
  std::uint32_t cta = 0, number = 0;  // the CTA's rank; the offset in shared memory, or the barrier's number
  auto operator<=>(const BarrierAt&) const = default;
};
inline BarrierAt mbarrier_at(const Cta& cta, std::uint32_t offset) {
  return {BarrierAt::Kind::kMbarrier, cta.rank, offset};
}
inline BarrierAt named_barrier_at(const Cta& cta, const NamedBarrier& barrier) {
  return {BarrierAt::Kind::kNamed, cta.rank, static_cast<std::uint32_t>(&barrier - cta.barriers)};
}
inline BarrierAt cluster_barrier() { return {BarrierAt::Kind::kCluster, 0, 0}; }

/// Only the thread that runs the cluster uses it. Its memory is limited: for a long kernel, it keeps the first part.
class Timeline {
 public:
  Timeline(const Cluster& cluster, const Launch& launch, const LaunchNotes* notes, const MachineCosts& machine);
  ~Timeline();

  /// Called after `lanes` executed `op`; not called for a poll that failed.
  void executed(const Warp& warp, const Op& op, LaneMask lanes);

  // ---- barriers
  void reset(const BarrierAt& at);  // mbarrier.init
  void arrive(const Warp& warp, const BarrierAt& at);
  void arrive_after_copies(const Warp& warp, const BarrierAt& at);  // cp.async.mbarrier.arrive
  void complete(const BarrierAt& at);                               // a phase has completed
  void observe(const Warp& warp, const BarrierAt& at);              // the warp has seen the barrier's last phase
                                                                    // complete, with or without a wait

  // ---- copies, called when they are issued; `offset` is in shared memory
  /// The copy completes on an mbarrier of its destination CTA, or of `signalled`.
  void copy(const Warp& warp, const Cta& to, std::uint32_t offset, std::uint32_t mbarrier, std::uint32_t bytes,
            const Cta* signalled = nullptr);
  void store(const Warp& warp, std::uint32_t offset, std::uint32_t bytes);

  Recording take();

 private:
  struct Phases {
    GateId current = kNoGate, last = kNoGate;
    LabelId label = 0;
  };
  struct Open;  // what a warp has begun and not yet recorded

  Open& open(const Warp& warp);
  Phases& phases(const BarrierAt& at);
  GateId contribute(const BarrierAt& at);
  GateId new_gate(LabelId label);
  LabelId label(std::string_view text);
  LabelId place_label(std::uint32_t offset);
  void write(Open& log, const Record& record);
  void wait(Open& log, GateId gate);
  void add_work(Open& log, std::uint32_t issue, std::uint32_t alone);
  void add_mma(Open& log, const InstructionCost& cost);
  void add_copy(const Warp& warp, Open& log, const Op& op, const InstructionCost& cost, LaneMask lanes);
  void end_copy(Open& log);
  void end_mma(Open& log);
  void commit_multiply(const Warp& warp, Open& log);

  const Launch& launch_;
  const LaunchNotes* notes_;
  Recording recording_;
  std::vector<InstructionCost> costs_;  // by Op::index
  std::vector<Open> open_;
  std::vector<std::uint32_t> first_warp_;  // of each CTA, as an index into open_
  std::map<BarrierAt, Phases> barriers_;
  std::map<std::string, LabelId, std::less<>> label_ids_;
  std::map<std::uint64_t, GateId> multiply_gates_;  // by CTA, warpgroup and group
  std::size_t num_records_ = 0;
};

}  // namespace kernelwright::emulator
