#include "kernelwright/runtime/emulator/run/cluster_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "kernelwright/runtime/emulator/checker/hazard_log.h"
#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/checker/location.h"
#include "kernelwright/runtime/emulator/machine/call_stack.h"
#include "kernelwright/runtime/emulator/machine/warp_access.h"
#include "kernelwright/runtime/emulator/trace/timeline.h"
#include "kernelwright/runtime/emulator/trace/timeline_replay.h"

namespace kernelwright::emulator {
namespace {

constexpr std::uint32_t kQuantum = 4096;  // instructions of a warp's turn
// A cluster hangs after so many polls of all its warps with nothing else going on. A poll costs about a microsecond.
constexpr std::uint32_t kMostIdleRounds = 200'000;
constexpr std::size_t kLineBytes = 64;
constexpr std::uint32_t kWarpIdentifiers = 64;  // %nwarpid of an H100
constexpr std::uint32_t kSharedUnit = 128;      // bytes that %total_smem_size counts by, from sm_80 on
constexpr int kPattern = 0xcd;                  // what shared memory and registers hold before anything is written

/// Lanes that wait at a converging instruction. The value holds the lanes that have arrived and, above them, the lanes
/// that must arrive.
bool together(const Warp& warp, const Wait& wait) {
  const auto here = static_cast<LaneMask>(wait.value), members = static_cast<LaneMask>(wait.value >> 32);
  return (here & members & warp.live) == (members & warp.live);
}

std::string describe_together(const Warp& warp, const Wait& wait) {
  const auto here = static_cast<LaneMask>(wait.value), members = static_cast<LaneMask>(wait.value >> 32);
  return fmt::format("lanes {:#010x}, which have not come to this instruction", members & warp.live & ~here);
}

bool is_ready(const Warp& warp, const Split& split) { return !split.wait.holds || split.wait.holds(warp, split.wait); }

/// Whether other lanes may join the split: not once the split has done the first half of its instruction.
bool is_joinable(const Split& split) { return !split.wait.wake; }

/// Those of `lanes` that take the same entry of the table as the first one, and its target.
Passage take_branch_table(const Warp& warp, const Op& op, LaneMask lanes) {
  const std::uint32_t* index = warp.lanes<std::uint32_t>(op.a);
  const std::uint32_t first = index[first_lane(lanes)];
  if (first >= op.target_count)
    throw Fault(fmt::format("brx.idx takes entry {} of a table of {}", first, op.target_count));
  LaneMask alike = 0;
  for_each_lane(lanes, [&](int lane) { alike |= index[lane] == first ? LaneMask{1} << lane : 0; });
  return {alike, op.targets[first]};
}

}  // namespace

Cta::Cta() = default;
Cta::~Cta() = default;

ClusterRun::ClusterRun(const Launch& launch, const Options& options, const LaunchNotes* notes, HazardLog* log,
                       std::uint32_t id)
    : launch_(launch),
      options_(options),
      notes_(notes),
      cluster_(options.completion, options.seed ^ (id * 0x9e3779b9u)),
      random_(options.seed + id) {
  cluster_.id = id;
  const std::uint32_t* shape = launch.cluster;
  std::uint32_t rest = id;
  for (int i = 0; i < 3; ++i) {
    const std::uint32_t clusters = launch.grid[i] / shape[i];
    cluster_.position[i] = rest % clusters;
    rest /= clusters;
  }
  const std::uint32_t ctas = shape[0] * shape[1] * shape[2];
  const std::uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  const std::size_t num_warps = (threads + 31) / 32;
  const std::size_t bytes = launch.program->register_bytes * num_warps * ctas;
  registers_.reset(new std::byte[bytes + kLineBytes]);
  std::memset(registers_.get(), kPattern, bytes + kLineBytes);
  for (std::uint32_t rank = 0; rank < ctas; ++rank) make_cta(rank);
  if (log) {
    hazards_ = std::make_unique<Hazards>(cluster_, launch, notes, *log);
    cluster_.hazards = hazards_.get();
  }
  if (options.timeline && has_cta(options.timeline_cta)) {
    timeline_ = std::make_unique<Timeline>(cluster_, launch, notes, options.costs);
    cluster_.timeline = timeline_.get();
  }
}

ClusterRun::~ClusterRun() = default;

bool ClusterRun::has_cta(std::uint32_t index) const {
  return std::ranges::any_of(cluster_.ctas, [&](const auto& cta) {
    return index == cta->id[0] + launch_.grid[0] * (cta->id[1] + launch_.grid[1] * cta->id[2]);
  });
}

std::shared_ptr<const Trace> ClusterRun::take_trace() {
  if (!timeline_) return nullptr;
  cluster_.timeline = nullptr;
  const Recording recording = timeline_->take();
  timeline_.reset();
  return std::make_shared<Trace>(replay(recording, options_.costs));
}

void ClusterRun::make_cta(std::uint32_t rank) {
  const Program& program = *launch_.program;
  const std::uint32_t threads = launch_.block[0] * launch_.block[1] * launch_.block[2];
  const std::uint32_t num_warps = (threads + 31) / 32;
  cluster_.ctas.push_back(std::make_unique<Cta>());
  Cta& cta = *cluster_.ctas.back();
  cta.cluster = &cluster_;
  cta.rank = rank;
  cta.position[0] = rank % launch_.cluster[0];
  cta.position[1] = rank / launch_.cluster[0] % launch_.cluster[1];
  cta.position[2] = rank / launch_.cluster[0] / launch_.cluster[1];
  for (int i = 0; i < 3; ++i) cta.id[i] = cluster_.position[i] * launch_.cluster[i] + cta.position[i];
  cta.shared.assign(kSharedBase + program.static_shared_bytes + launch_.dynamic_shared_bytes, std::byte{kPattern});
  if (program.uses_reserved_shared) cta.open_reserved_shared();
  cta.live_warps = num_warps;
  // setmaxnreg moves registers between warps of a CTA, but not those that no warp had at launch.
  const auto each = static_cast<std::uint32_t>(launch_.registers_per_thread);
  cta.warps.resize(num_warps);
  auto* first = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(registers_.get()) + kLineBytes - 1) /
                                             kLineBytes * kLineBytes);
  for (std::uint32_t i = 0; i < num_warps; ++i) {
    Warp& warp = cta.warps[i];
    warp.cta = &cta;
    warp.launch = &launch_;
    warp.index = i;
    warp.registers = first + static_cast<std::size_t>(rank * num_warps + i) * program.register_bytes;
    warp.registers_each = each;
    const std::uint32_t lanes = std::min(32u, threads - i * 32);
    warp.live = lanes == 32 ? kAllLanes : (LaneMask{1} << lanes) - 1;
    warp.splits.push_back({.lanes = warp.live, .pc = program.start});
    warp.local.resize(32 * ((program.stack_bytes + 15) / 16 * 16), std::byte{kPattern});
    if (!program.constants.empty())
      std::memcpy(warp.registers + program.constants_at, program.constants.data(), program.constants.size());
    fill_specials(warp);
    cluster_.live_threads += lanes;
    warps_.push_back(&warp);
  }
}

std::uint64_t ClusterRun::special(const Warp& warp, const SpecialSlot& slot, std::uint32_t lane) const {
  const std::uint32_t thread = warp.index * 32 + lane;
  const std::uint32_t *block = launch_.block, *grid = launch_.grid, *shape = launch_.cluster;
  const Cta& cta = *warp.cta;
  const auto dimension = [&](Special first) { return static_cast<int>(slot.what) - static_cast<int>(first); };
  switch (slot.what) {
    case Special::kTidX: return thread % block[0];
    case Special::kTidY: return thread / block[0] % block[1];
    case Special::kTidZ: return thread / block[0] / block[1];
    case Special::kNtidX:
    case Special::kNtidY:
    case Special::kNtidZ: return block[dimension(Special::kNtidX)];
    case Special::kCtaidX:
    case Special::kCtaidY:
    case Special::kCtaidZ: return cta.id[dimension(Special::kCtaidX)];
    case Special::kNctaidX:
    case Special::kNctaidY:
    case Special::kNctaidZ: return grid[dimension(Special::kNctaidX)];
    case Special::kLaneId: return lane;
    case Special::kWarpId: return warp.index;
    case Special::kNwarpId: return kWarpIdentifiers;
    case Special::kLanemaskEq: return 1u << lane;
    case Special::kLanemaskLe: return (2u << lane) - 1;
    case Special::kLanemaskLt: return (1u << lane) - 1;
    case Special::kLanemaskGe: return ~((1u << lane) - 1);
    case Special::kLanemaskGt: return ~((2u << lane) - 1);
    case Special::kClusterIdX:
    case Special::kClusterIdY:
    case Special::kClusterIdZ: return cluster_.position[dimension(Special::kClusterIdX)];
    case Special::kNclusterIdX:
    case Special::kNclusterIdY:
    case Special::kNclusterIdZ: return grid[dimension(Special::kNclusterIdX)] / shape[dimension(Special::kNclusterIdX)];
    case Special::kClusterCtaidX:
    case Special::kClusterCtaidY:
    case Special::kClusterCtaidZ: return cta.position[dimension(Special::kClusterCtaidX)];
    case Special::kClusterNctaidX:
    case Special::kClusterNctaidY:
    case Special::kClusterNctaidZ: return shape[dimension(Special::kClusterNctaidX)];
    case Special::kClusterCtarank: return cta.rank;
    case Special::kClusterNctarank: return std::uint64_t{shape[0]} * shape[1] * shape[2];
    case Special::kIsExplicitCluster: return shape[0] * shape[1] * shape[2] > 1 ? kAllLanes : 0;
    case Special::kDynamicSharedBytes: return launch_.dynamic_shared_bytes;
    case Special::kTotalSharedBytes:
      return slot.value + (launch_.dynamic_shared_bytes + launch_.program->static_shared_bytes + kSharedUnit - 1) /
                              kSharedUnit * kSharedUnit;
    case Special::kGridWorkspace: return launch_.grid_workspace >> slot.value & 0xffffffff;
    case Special::kNumber: return slot.value;
    case Special::kSmId: return cluster_.id % static_cast<std::uint32_t>(std::max(1, options_.num_sms));
    case Special::kNsmId: return static_cast<std::uint64_t>(options_.num_sms);
    case Special::kGridId: return launch_.number;
    case Special::kSharedSymbol: return slot.value + (static_cast<std::uint64_t>(cta.rank) << kRankShift);
    case Special::kParameter: return reinterpret_cast<std::uint64_t>(launch_.parameters.data()) + slot.value;
  }
  return 0;
}

void ClusterRun::fill_specials(Warp& warp) const {
  for (const SpecialSlot& slot : launch_.program->specials)
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      const std::uint64_t value = special(warp, slot, lane);
      if (slot.size == RegisterClass::k64)
        warp.lanes<std::uint64_t>(slot.slot)[lane] = value;
      else if (slot.size == RegisterClass::k16)
        warp.lanes<std::uint16_t>(slot.slot)[lane] = static_cast<std::uint16_t>(value);
      else  // a predicate is one mask
        warp.lanes<std::uint32_t>(slot.slot)[slot.size == RegisterClass::k32 ? lane : 0] =
            static_cast<std::uint32_t>(value);
    }
}

bool ClusterRun::turn() {
  for (std::uint32_t round = 0; round < launch_.rounds_per_turn && !warps_.empty(); ++round) {
    if (options_.shuffle)
      for (std::size_t i = warps_.size(); i > 1; --i)
        std::swap(warps_[i - 1], warps_[random_.below(static_cast<std::uint32_t>(i))]);
    bool progress = false;
    yielded_ = false;
    const std::uint64_t before = instructions_;
    for (Warp* warp : warps_) {
      running_ = warp;
      progress |= run_warp(*warp, options_.shuffle ? 1 + random_.below(256) : kQuantum);
    }
    running_ = nullptr;
    std::erase_if(warps_, [](const Warp* warp) { return warp->live == 0; });
    if (warps_.empty()) break;
    if (cluster_.async.turn()) continue;  // a warp may wait for what was performed
    if (progress && !yielded_) {
      idle_rounds_ = 0;
      continue;
    }
    if (cluster_.async.perform_one()) continue;
    if (!progress) report_deadlock();
    // Only polls: at most the few instructions of a loop for each warp.
    idle_rounds_ = instructions_ - before < 64 * warps_.size() ? idle_rounds_ + 1 : 0;
    if (idle_rounds_ > kMostIdleRounds && !launch_.program->clusters_communicate) report_deadlock();
  }
  if (!warps_.empty()) return false;
  // Work for which no warp waited still happens. The checker has reported it.
  while (cluster_.async.perform_one()) {
  }
  return true;
}

int ClusterRun::choose(Warp& warp) const {
  for (int pass = 0; pass < 2; ++pass) {
    int best = -1;
    for (std::size_t i = 0; i < warp.splits.size(); ++i) {
      Split& split = warp.splits[i];
      if (pass == 1) split.yielded = false;
      if (split.yielded || !is_ready(warp, split)) continue;
      if (best < 0 || split.pc < warp.splits[static_cast<std::size_t>(best)].pc) best = static_cast<int>(i);
    }
    if (best >= 0) return best;
  }
  return -1;
}

void ClusterRun::exit_lanes(Warp& warp, LaneMask lanes) {
  warp.live &= ~lanes;
  cluster_.live_threads -= static_cast<std::uint32_t>(count_lanes(lanes));
  if (warp.live != 0) return;
  if (hazards_) hazards_->warp_exit(warp, lanes);
  // The warp's registers do not return to the pool of setmaxnreg. No document says that they return before the CTA
  // ends.
  if (--warp.cta->live_warps == 0 && hazards_) hazards_->cta_exit(warp);
}

bool ClusterRun::run_warp(Warp& warp, std::uint32_t quantum) {
  const Op* const ops = launch_.program->ops.data();
  constexpr std::uint32_t kNowhere = std::numeric_limits<std::uint32_t>::max();
  std::uint64_t executed = 0, threads = 0;
  Timeline* const timeline = timeline_.get();
  const auto count = [&](const Op& op, LaneMask lanes) {
    ++executed;
    threads += static_cast<std::uint64_t>(count_lanes(lanes));
    if (timeline) timeline->executed(warp, op, lanes);
  };
  bool over = false;
  while (!over && warp.live != 0) {
    const int chosen = choose(warp);
    if (chosen < 0) break;
    Split self = warp.splits[static_cast<std::size_t>(chosen)];
    warp.splits.erase(warp.splits.begin() + chosen);
    std::uint32_t nearest = kNowhere;  // the lowest place where another split stands that could be joined or passed
    const auto look_around = [&] {
      nearest = kNowhere;
      for (const Split& other : warp.splits)
        if (is_joinable(other)) nearest = std::min(nearest, other.pc);
    };
    const auto join_here = [&] {
      for (std::size_t i = 0; i < warp.splits.size();) {
        if (warp.splits[i].pc == self.pc && is_joinable(warp.splits[i])) {
          self.lanes |= warp.splits[i].lanes;
          warp.splits.erase(warp.splits.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
      look_around();
    };
    // `lanes` of this split stay here and wait; the others go on after the instruction.
    const auto park = [&](LaneMask lanes, const Wait& wait) {
      warp.splits.push_back({.lanes = lanes, .pc = self.pc, .wait = wait});
      if (const LaneMask others = self.lanes & ~lanes) warp.splits.push_back({.lanes = others, .pc = self.pc + 1});
    };
    // Of `lanes`, some go on at another place. The rest runs this instruction again, and the others have skipped it.
    const auto go_on = [&](LaneMask lanes, const Passage& some) {
      if (const LaneMask rest = lanes & ~some.lanes)
        warp.splits.push_back({.lanes = rest, .pc = self.pc, .yielded = true});
      if (const LaneMask skipped = self.lanes & ~lanes) warp.splits.push_back({.lanes = skipped, .pc = self.pc + 1});
      self.lanes = some.lanes;
      self.pc = some.pc;
      look_around();
    };
    Wait woken = std::exchange(self.wait, {});
    if (woken.wake == nullptr) join_here();
    look_around();

    for (;;) {
      if (quantum-- == 0) {
        self.yielded = true;
        warp.splits.push_back(self);
        over = true;
        break;
      }
      const Op& op = ops[self.pc];
      LaneMask lanes = self.lanes;
      if (op.guard != kNoSlot) lanes &= op.guard_negated ? ~warp.predicate(op.guard) : warp.predicate(op.guard);
      if (lanes == 0) {
        ++executed;  // by no lane
        ++self.pc;
      } else {
        if (op.converge != Converge::kNo && !woken.wake) {
          LaneMask members = kAllLanes;
          if (op.converge == Converge::kMembers) {
            const std::uint32_t* masks = warp.lanes<std::uint32_t>(op.members);
            members = masks[first_lane(lanes)];
            LaneMask alike = 0;
            for_each_lane(lanes, [&](int lane) { alike |= masks[lane] == members ? LaneMask{1} << lane : 0; });
            if (alike != lanes) {  // lanes with another mask go by themselves
              warp.splits.push_back({.lanes = self.lanes & ~alike, .pc = self.pc, .yielded = true});
              self.lanes = lanes = alike;
              look_around();
            }
            if (lanes & ~members)
              throw Fault(fmt::format("lanes {:#010x} execute with the member mask {:#010x}, which lacks some of them",
                                      lanes, members),
                          HazardKind::kDivergence);
          }
          const LaneMask needed = members & warp.live;
          if ((lanes & needed) != needed) {
            if (op.converge == Converge::kWarp && self.lanes == warp.live) {
              warp.current = &op;
              throw Fault(
                  fmt::format("an aligned instruction, executed by lanes {:#010x} of {:#010x}", lanes, warp.live),
                  HazardKind::kDivergence);
            }
            park(lanes, {.holds = together,
                         .describe = describe_together,
                         .value = static_cast<std::uint64_t>(members) << 32 | lanes});
            break;
          }
        }
        warp.current = &op;
        if (op.flow == Flow::kPlain) {
          warp.current_lanes = lanes;
          if (op.touches_pinned && hazards_) hazards_->registers_touched(warp, op);
          if (op.touches_pinned && !warp.tensor_loads.empty()) perform_touched_loads(warp, op);
          Step step;
          if (woken.wake) {
            step = woken.wake(warp, op, self.lanes, woken);
            woken = {};
          } else {
            step = op.run(warp, op, lanes);
          }
          if (step == Step::kWait) {
            park(lanes, warp.wait);
            break;
          }
          count(op, lanes);
          ++self.pc;
          if (step == Step::kYield) {
            yielded_ = true;
            self.yielded = true;
            over = warp.splits.empty();
            warp.splits.push_back(self);
            break;
          }
        } else {
          count(op, lanes);
          if (op.flow == Flow::kBranch) {
            const std::uint32_t target = op.targets[0];
            if (lanes == self.lanes) {
              self.pc = target;
            } else {
              Split other{.lanes = self.lanes & ~lanes, .pc = self.pc + 1};
              self.lanes = lanes;
              self.pc = target;
              if (other.pc < self.pc) std::swap(self, other);
              warp.splits.push_back(other);
              look_around();
            }
          } else if (op.flow == Flow::kBranchTable) {
            go_on(lanes, take_branch_table(warp, op, lanes));
          } else if (op.flow == Flow::kCall || op.flow == Flow::kReturn) {
            warp.current_lanes = lanes;
            go_on(lanes,
                  op.flow == Flow::kCall ? enter_function(warp, op, lanes, self.pc + 1) : leave_function(warp, lanes));
          } else if (op.flow == Flow::kExit) {
            exit_lanes(warp, lanes);
            if ((self.lanes &= ~lanes) == 0) break;
            ++self.pc;
          } else {
            throw Fault("the kernel trapped", HazardRule::kTrap);
          }
        }
      }
      if (self.pc >= nearest) {
        join_here();
        // Lanes behind these lanes go first, if they can.
        const bool passed = std::any_of(warp.splits.begin(), warp.splits.end(), [&](const Split& other) {
          return other.pc < self.pc && !other.yielded && is_ready(warp, other);
        });
        if (passed) {
          warp.splits.push_back(self);
          break;
        }
      }
    }
  }
  warp.instructions += executed;
  instructions_ += executed;
  thread_instructions_ += threads;
  // A turn may end before its first instruction, when other lanes of the warp used it up by parking. These other lanes
  // can go on.
  return executed != 0 || over;
}

}  // namespace kernelwright::emulator
