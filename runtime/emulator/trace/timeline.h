/// Keeps what one cluster did, so that it can be given times afterwards: for each warp what it issued, what it copied,
/// where it arrived and what it waited for. In what order the interpreter ran the warps leaves no trace in it;
/// timeline_replay.h makes the times.
///
/// What orders warps is a Gate: one phase of an mbarrier or of a named barrier, one group of copies, one group of
/// wgmma. It opens once all that contribute to it have; who waits for it goes on then.
///
/// Lanes of a warp share one log, and one time: where they part, each side's work follows the other's. A loop that
/// polls (test_wait, a flag in global memory) is charged for as often as the interpreter let it poll.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/runtime/emulator/emulator.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/trace/timeline_costs.h"

namespace kernelwright::emulator {

using GateId = std::uint32_t;
inline constexpr GateId kNoGate = ~GateId{0};
using LabelId = std::uint32_t;

enum class RecordKind : std::uint8_t {
  kWork,          // cycles: of the warp's scheduler
  kMma,           // a run of mma.sync; cycles: of its tensor core
  kArrive,        // at a gate
  kWait,          // for a gate
  kCopy,          // into shared memory; the gate may be kNoGate
  kCopyAlso,      // the copy before it lands at this gate too: multicast
  kStore,         // out of shared memory
  kCopiesArrive,  // at a gate, once all copies of this warp have landed
  kMultiply,      // a group of wgmma is issued: contributes to its gate, which has the cycles
};

struct Record {
  RecordKind kind = RecordKind::kWork;
  bool remote = false;       // kArrive: in another CTA
  bool bulk = false;         // kCopy: by the copy engine, not by the warp's lanes
  std::uint32_t cycles = 0;  // copies: bytes
  std::uint32_t alone = 0;   // kWork, kMma: cycles that the warp takes for its instructions where it shares nothing
  std::uint32_t count = 1;   // of instructions
  GateId gate = kNoGate;
  LabelId label = 0;
};

struct Gate {
  std::uint32_t contributions = 0;
  std::uint32_t tensor_cycles = 0;  // not 0: wgmma, which begin when all have contributed
  std::uint32_t count = 0;          // of wgmma
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
  std::uint32_t num_ctas = 1;       // in the cluster
  std::vector<WarpLog> warps;       // CTA after CTA
  std::vector<Gate> gates;
  std::vector<std::string> labels = {""};
  bool complete = true;  // false: it grew too long, and ends before the kernel did
};

/// Which barrier. Its phases are gates.
struct BarrierAt {
  enum class Kind : std::uint8_t { kMbarrier, kNamed, kCluster };
  Kind kind = Kind::kMbarrier;
  std::uint32_t cta = 0, number = 0;  // rank; offset in shared memory, or number
  auto operator<=>(const BarrierAt&) const = default;
};
inline BarrierAt mbarrier_at(const Cta& cta, std::uint32_t offset) {
  return {BarrierAt::Kind::kMbarrier, cta.rank, offset};
}
inline BarrierAt named_barrier_at(const Cta& cta, const NamedBarrier& barrier) {
  return {BarrierAt::Kind::kNamed, cta.rank, static_cast<std::uint32_t>(&barrier - cta.barriers)};
}
inline BarrierAt cluster_barrier() { return {BarrierAt::Kind::kCluster, 0, 0}; }

/// Used by the one thread that runs the cluster. Memory is bounded: a kernel that does too much is kept in part.
class Timeline {
 public:
  Timeline(const Cluster& cluster, const Launch& launch, const LaunchNotes* notes);
  ~Timeline();

  /// After `op` was executed by `lanes`; a poll that failed is not told.
  void executed(const Warp& warp, const Op& op, LaneMask lanes);

  // ---- barriers
  void reset(const BarrierAt& at);  // mbarrier.init
  void arrive(const Warp& warp, const BarrierAt& at);
  void arrive_after_copies(const Warp& warp, const BarrierAt& at);  // cp.async.mbarrier.arrive
  void complete(const BarrierAt& at);                               // a phase has
  void observe(const Warp& warp, const BarrierAt& at);              // its last phase, after a wait or without one

  // ---- copies, when they are issued; `offset` is in shared memory
  /// Completes on an mbarrier of the CTA that it goes to, or of `signalled`.
  void copy(const Warp& warp, const Cta& to, std::uint32_t offset, std::uint32_t mbarrier, std::uint32_t bytes,
            const Cta* signalled = nullptr);
  void store(const Warp& warp, std::uint32_t offset, std::uint32_t bytes);

  Recording take();

 private:
  struct Phases {
    GateId current = kNoGate, last = kNoGate;
    LabelId label = 0;
  };
  struct Open;  // what a warp has begun and not yet written down

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
  std::vector<std::uint32_t> first_warp_;  // of each CTA, in open_
  std::map<BarrierAt, Phases> barriers_;
  std::map<std::string, LabelId, std::less<>> label_ids_;
  std::map<std::uint64_t, GateId> multiply_gates_;  // by CTA, warpgroup and group
  std::size_t num_records_ = 0;
};

}  // namespace kernelwright::emulator
