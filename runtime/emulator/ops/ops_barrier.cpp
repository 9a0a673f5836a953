// Barriers of a CTA, a warp and a cluster (PTX ISA "Parallel Synchronization and Communication Instructions": bar,
// barrier, bar.warp.sync, barrier.cluster).
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/warp.h"
#include "kernelwright/runtime/emulator/program/decoder.h"
#include "kernelwright/runtime/emulator/trace/timeline.h"

namespace kernelwright::emulator {
namespace {

/// Threads that a phase needs: the given count, or every thread that has not exited.
std::uint32_t needed(const Cta& cta, const NamedBarrier& barrier) {
  return barrier.expected ? barrier.expected : cta.live_warps * 32;
}

void complete_if_full(Cta& cta, NamedBarrier& barrier) {
  if (barrier.arrived == 0 || barrier.arrived < needed(cta, barrier)) return;
  barrier.arrived = 0;
  barrier.expected = 0;
  ++barrier.generation;
  barrier.result_and = barrier.reduction_and, barrier.result_or = barrier.reduction_or;
  barrier.result_popc = barrier.reduction_popc;
  barrier.reduction_and = 1, barrier.reduction_or = barrier.reduction_popc = 0;
  barrier.waiting.clear();
  if (Hazards* hazards = cta.cluster->hazards) hazards->barrier_complete(&barrier);
  if (Timeline* timeline = cta.cluster->timeline) timeline->complete(named_barrier_at(cta, barrier));
}

/// True once the awaited phase has completed. If a barrier has no count, warps that exit can complete it.
bool barrier_passed(const Warp& warp, const Wait& wait) {
  NamedBarrier& barrier = wait.cta->barriers[wait.address];
  if (barrier.generation == wait.value) complete_if_full(*warp.cta, barrier);
  return barrier.generation != wait.value;
}

std::string describe_barrier(const Warp& warp, const Wait& wait) {
  const NamedBarrier& barrier = wait.cta->barriers[wait.address];
  return fmt::format("named barrier {} ({} of {} threads have arrived)", wait.address, barrier.arrived,
                     needed(*warp.cta, barrier));
}

enum class BarrierKind : std::uint64_t { kSync, kArrive, kPopc, kAnd, kOr };

Step finish_barrier(Warp& warp, const Op& op, LaneMask lanes, const NamedBarrier& barrier) {
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->barrier_observe(warp, lanes, &barrier);
  if (Timeline* timeline = warp.cta->cluster->timeline) timeline->observe(warp, named_barrier_at(*warp.cta, barrier));
  switch (static_cast<BarrierKind>(op.imm & 0xff)) {
    case BarrierKind::kPopc:
      assign_lanes(warp.lanes<std::uint32_t>(op.d), lanes, [&](int) { return barrier.result_popc; });
      break;
    case BarrierKind::kAnd: warp.set_predicate(op.d, barrier.result_and ? kAllLanes : 0, lanes); break;
    case BarrierKind::kOr: warp.set_predicate(op.d, barrier.result_or ? kAllLanes : 0, lanes); break;
    case BarrierKind::kSync:
    case BarrierKind::kArrive: break;
  }
  return Step::kNext;
}

Step wake_from_barrier(Warp& warp, const Op& op, LaneMask lanes, const Wait& wait) {
  return finish_barrier(warp, op, lanes, wait.cta->barriers[wait.address]);
}

/// imm: BarrierKind, and 0x100 if the reduced predicate is negated. a: number, b: threads (or none), c: predicate.
Step barrier(Warp& warp, const Op& op, LaneMask lanes) {
  const int lane = first_lane(lanes);
  const auto kind = static_cast<BarrierKind>(op.imm & 0xff);
  const std::uint32_t id = warp.lanes<std::uint32_t>(op.a)[lane];
  if (id >= kNumNamedBarriers) throw Fault(fmt::format("there is no named barrier {}; a CTA has 16", id));
  const std::uint32_t count = op.b == kNoSlot ? 0 : warp.lanes<std::uint32_t>(op.b)[lane];
  if (count % 32 != 0)
    throw Fault(fmt::format("named barrier {} is used with {} threads, not a multiple of 32", id, count));
  if (kind == BarrierKind::kArrive && count == 0) throw Fault("bar.arrive needs a thread count");
  Cta& cta = *warp.cta;
  NamedBarrier& state = cta.barriers[id];
  if (state.arrived == 0) state.expected = count;
  if (state.expected != count) {
    throw Fault(fmt::format("named barrier {} is used with {} threads while {} of {} have arrived", id,
                            count ? std::to_string(count) : "all", state.arrived, needed(cta, state)),
                HazardKind::kBarrier);
  }
  if (Hazards* hazards = cta.cluster->hazards) hazards->barrier_arrive(warp, lanes, &state);
  if (Timeline* timeline = cta.cluster->timeline) timeline->arrive(warp, named_barrier_at(cta, state));
  state.arrived += 32;
  if (state.arrived > needed(cta, state)) {
    throw Fault(
        fmt::format("{} threads arrive at named barrier {}, which expects {}", state.arrived, id, needed(cta, state)),
        HazardKind::kBarrier);
  }
  if (op.c != kNoSlot) {
    const LaneMask set = (op.imm & 0x100 ? ~warp.predicate(op.c) : warp.predicate(op.c)) & lanes;
    state.reduction_and &= set == lanes;
    state.reduction_or |= set != 0;
    state.reduction_popc += static_cast<std::uint32_t>(count_lanes(set));
  }
  const std::uint32_t generation = state.generation;
  if (Hazards* hazards = cta.cluster->hazards;
      hazards && kind == BarrierKind::kArrive && state.waiting.empty() && state.arrived >= needed(cta, state))
    hazards->report(
        HazardRule::kBarrierArrivalsAlone, warp, lanes,
        fmt::format("a phase of named barrier {} is {} arrivals and no wait: a bar.sync is missing, and the "
                    "next one meets arrivals that are not its own",
                    id, state.arrived));
  complete_if_full(cta, state);
  if (kind == BarrierKind::kArrive) return Step::kNext;
  if (state.generation != generation) return finish_barrier(warp, op, lanes, state);
  state.waiting.push_back(warp.index);
  warp.wait = {.holds = barrier_passed,
               .wake = wake_from_barrier,
               .describe = describe_barrier,
               .cta = &cta,
               .address = id,
               .value = generation};
  return Step::kWait;
}

/// The first operands of bar and barrier: the number, and the thread count unless nothing comes after it.
void decode_number_and_count(Decoder& decoder, Op& op, std::size_t at, bool has_count) {
  op.a = decoder.source(at, RegisterClass::k32);
  if (has_count) op.b = decoder.source(at + 1, RegisterClass::k32);
  // Lanes of a warp arrive together (as on sm_70 and later with .aligned). Without .aligned they may arrive separately,
  // but PTX still counts by warp.
  op.converge = Converge::kWarp;
  op.run = barrier;
}

void decode_sync(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 2);
  decode_number_and_count(decoder, op, 0, decoder.num_operands() == 2);
  op.imm = static_cast<std::uint64_t>(decoder.has("arrive") ? BarrierKind::kArrive : BarrierKind::kSync);
}

void decode_reduce(Decoder& decoder, Op& op) {
  decoder.expect_operands(3, 4);
  const bool popc = decoder.has("popc");
  op.d = decoder.destination(0, popc ? RegisterClass::k32 : RegisterClass::kPredicate);
  decode_number_and_count(decoder, op, 1, decoder.num_operands() == 4);
  const std::size_t predicate = decoder.num_operands() - 1;
  op.c = decoder.source(predicate, RegisterClass::kPredicate);
  op.imm = static_cast<std::uint64_t>(popc                 ? BarrierKind::kPopc
                                      : decoder.has("and") ? BarrierKind::kAnd
                                                           : BarrierKind::kOr);
  if (decoder.negated(predicate)) op.imm |= 0x100;
}

// ---------------------------------------------------------------------------------------------- a warp

Step sync_warp(Warp& warp, const Op&, LaneMask lanes) {
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->sync_lanes(warp, lanes);
  return Step::kNext;
}

void decode_warp_sync(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 1);
  op.members = decoder.source(0, RegisterClass::k32);
  op.converge = Converge::kMembers;
  op.run = sync_warp;
}

// ---------------------------------------------------------------------------------------------- a cluster

void complete_cluster(Cluster& cluster) {
  if (cluster.barrier_arrived == 0 || cluster.barrier_arrived < cluster.live_threads) return;
  cluster.barrier_arrived = 0;
  ++cluster.barrier_generation;
  if (cluster.hazards) cluster.hazards->barrier_complete(&cluster);
  if (cluster.timeline) cluster.timeline->complete(cluster_barrier());
}

bool cluster_passed(const Warp& warp, const Wait& wait) {
  Cluster& cluster = *warp.cta->cluster;
  if (cluster.barrier_generation == wait.value) complete_cluster(cluster);
  return cluster.barrier_generation != wait.value;
}

std::string describe_cluster(const Warp& warp, const Wait&) {
  const Cluster& cluster = *warp.cta->cluster;
  return fmt::format("the cluster barrier ({} of {} threads have arrived)", cluster.barrier_arrived,
                     cluster.live_threads);
}

Step cluster_arrive(Warp& warp, const Op&, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  if (warp.cluster_arrived)
    throw Fault("barrier.cluster.arrive twice without a barrier.cluster.wait between them", HazardKind::kBarrier);
  warp.cluster_arrived = true;
  warp.cluster_generation = cluster.barrier_generation;
  if (cluster.hazards) cluster.hazards->barrier_arrive(warp, lanes, &cluster);
  if (cluster.timeline) cluster.timeline->arrive(warp, cluster_barrier());
  cluster.barrier_arrived += static_cast<std::uint32_t>(count_lanes(lanes));
  complete_cluster(cluster);
  return Step::kNext;
}

Step cluster_wait(Warp& warp, const Op&, LaneMask lanes) {
  Cluster& cluster = *warp.cta->cluster;
  if (!warp.cluster_arrived) throw Fault("barrier.cluster.wait without a barrier.cluster.arrive", HazardKind::kBarrier);
  if (cluster.barrier_generation == warp.cluster_generation) {
    warp.wait = {.holds = cluster_passed, .describe = describe_cluster, .value = warp.cluster_generation};
    return Step::kWait;
  }
  warp.cluster_arrived = false;
  if (cluster.hazards) cluster.hazards->barrier_observe(warp, lanes, &cluster);
  if (cluster.timeline) cluster.timeline->observe(warp, cluster_barrier());
  return Step::kNext;
}

void decode_cluster(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  op.converge = Converge::kWarp;
  op.run = decoder.choice(0) == "arrive" ? cluster_arrive : cluster_wait;
}

constexpr Form kForms[] = {
    {"bar.(cta)?.(sync|arrive)", decode_sync},
    {"barrier.(cta)?.(sync|arrive).(aligned)?", decode_sync},
    {"bar.(cta)?.red.(popc).u32", decode_reduce},
    {"bar.(cta)?.red.(and|or).pred", decode_reduce},
    {"barrier.(cta)?.red.(popc).(aligned)?.u32", decode_reduce},
    {"barrier.(cta)?.red.(and|or).(aligned)?.pred", decode_reduce},
    {"bar.warp.sync", decode_warp_sync},
    {"barrier.cluster.(arrive|wait).(release|relaxed|acquire)?.(aligned)?", decode_cluster},
};

}  // namespace

std::span<const Form> barrier_forms() { return kForms; }

}  // namespace kernelwright::emulator
