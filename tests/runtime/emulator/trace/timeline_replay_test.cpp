// The cost model on recordings whose times can be computed by hand.
#include "kernelwright/runtime/emulator/trace/timeline_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/runtime/engine/emulated_machine.h"
#include "runtime/emulator/trace/trace_checks.h"

namespace kernelwright::emulator {
namespace {

using testing::ElementsAre;

/// 10 bytes a cycle, then 100 cycles until they have landed.
constexpr MachineCosts kMachine = {
    .wgmma_macs = 2048, .mma_sync_macs = 1024, .copy_bytes = 10, .copy_latency = 100, .store_latency = 50};

/// Instructions that cost one cycle each.
Record work(std::uint32_t count) { return {.cycles = count, .alone = count * kIssueInterval}; }

class Builder {
 public:
  explicit Builder(std::uint32_t num_warps) {
    recording_.kernel = "by hand";
    for (std::uint32_t i = 0; i < num_warps; ++i) recording_.warps.push_back({.warp = i});
  }
  LabelId label(const std::string& text) {
    recording_.labels.push_back(text);
    return static_cast<LabelId>(recording_.labels.size() - 1);
  }
  GateId gate(std::uint32_t contributions, const std::string& name, std::uint32_t tensor_cycles = 0) {
    recording_.gates.push_back(
        {.contributions = contributions, .tensor_cycles = tensor_cycles, .count = 1, .label = label(name)});
    return static_cast<GateId>(recording_.gates.size() - 1);
  }
  void add(std::uint32_t warp, Record record) {
    if (record.gate != kNoGate && record.label == 0) record.label = recording_.gates[record.gate].label;
    recording_.warps[warp].records.push_back(record);
  }
  Trace replay() const {
    Trace trace = emulator::replay(recording_, kMachine);
    EXPECT_EQ(test::problems_of(trace), "");
    return trace;
  }

 private:
  Recording recording_;
};

std::vector<std::uint64_t> begins(const Trace& trace, SliceKind kind) {
  std::vector<std::uint64_t> times;
  for (const TraceSlice& slice : trace.slices)
    if (slice.kind == kind) times.push_back(slice.begin);
  return times;
}

const TraceSlice& find_slice(const Trace& trace, const std::string& text) {
  for (const TraceSlice& slice : trace.slices)
    if (slice.text() == text) return slice;
  throw std::runtime_error("no slice " + text);
}

/// One warp loads into two slots; another multiplies from them and releases them.
Trace two_stage_ring(std::uint32_t slot_bytes, std::uint32_t multiply_cycles, int laps) {
  Builder builder(2);
  std::vector<GateId> full, empty, done;
  for (int i = 0; i < laps; ++i) {
    full.push_back(builder.gate(1, "full[" + std::to_string(i % 2) + "]"));
    empty.push_back(builder.gate(1, "empty[" + std::to_string(i % 2) + "]"));
    done.push_back(builder.gate(1, "m64n128k16", multiply_cycles));
  }
  for (std::size_t i = 0; i < full.size(); ++i) {
    if (i >= 2) builder.add(0, {.kind = RecordKind::kWait, .gate = empty[i - 2]});
    builder.add(0, {.kind = RecordKind::kCopy, .bulk = true, .cycles = slot_bytes, .gate = full[i]});
    builder.add(1, {.kind = RecordKind::kWait, .gate = full[i]});
    builder.add(1, {.kind = RecordKind::kMultiply, .gate = done[i]});
    builder.add(1, {.kind = RecordKind::kWait, .gate = done[i]});
    builder.add(1, {.kind = RecordKind::kArrive, .gate = empty[i]});
  }
  return builder.replay();
}

TEST(TimelineReplay, CopiesHideBehindMultiplicationsThatTakeLonger) {
  // A slot lands 200 cycles after its load is issued. A lap of the consumer takes longer, so the tensor cores wait for
  // data only at the first slot.
  const Trace trace = two_stage_ring(1000, 300, 5);
  const std::uint64_t first = 100 + 100 + kWakeCycles;
  const std::uint64_t lap = 300 + kMultiplyLatency + kWakeCycles + kArriveCycles;
  EXPECT_THAT(begins(trace, SliceKind::kMma),
              ElementsAre(first, first + lap, first + 2 * lap, first + 3 * lap, first + 4 * lap));
  // The third slot is loaded as soon as the first is released, while the second is multiplied.
  const std::uint64_t freed = first + lap + kWakeCycles;
  EXPECT_THAT(begins(trace, SliceKind::kCopy), ElementsAre(0, 0, freed, freed + lap, freed + 2 * lap));
  EXPECT_EQ(trace.units[0].tensor, 5 * 300u);
  EXPECT_EQ(trace.units[0].copies, 5 * 100u);
}

TEST(TimelineReplay, MultiplicationsKeepTheCopiesPaceWhereThoseTakeLonger) {
  const Trace trace = two_stage_ring(10000, 300, 5);
  const std::vector<std::uint64_t> times = begins(trace, SliceKind::kMma);
  ASSERT_EQ(times.size(), 5u);
  EXPECT_EQ(times[0], 1000 + 100 + kWakeCycles);
  EXPECT_EQ(times[1], 2000 + 100 + kWakeCycles);  // both slots were asked for at once
  // From then on the path is never idle for longer than a release takes: the slot is free long before.
  for (std::size_t i = 2; i < times.size(); ++i) EXPECT_EQ(times[i] - times[i - 1], 1000u) << i;
}

TEST(TimelineReplay, AFlowLeadsFromWhatCameLastToTheWait) {
  Builder builder(2);
  const GateId full = builder.gate(2, "full[0]");
  builder.add(0,
              {.kind = RecordKind::kCopy, .bulk = true, .cycles = 100, .gate = full, .label = builder.label("K[0]")});
  builder.add(0, work(1000));
  builder.add(0, {.kind = RecordKind::kArrive, .gate = full});
  builder.add(1, {.kind = RecordKind::kWait, .gate = full});
  const Trace trace = builder.replay();
  ASSERT_EQ(trace.flows.size(), 1u);
  EXPECT_EQ(trace.slices[trace.flows[0].from].text(), "arrive full[0]");  // the copy landed long before
  EXPECT_EQ(trace.slices[trace.flows[0].to].text(), "wait full[0]");
  EXPECT_EQ(find_slice(trace, "wait full[0]").end, 1000 * kIssueInterval + kArriveCycles + kWakeCycles);
  EXPECT_EQ(find_slice(trace, "load K[0] 100 B").end, 10 + 100u);
}

TEST(TimelineReplay, AWaitForWhatHasHappenedTakesNoTime) {
  Builder builder(2);
  const GateId gate = builder.gate(1, "barrier 1");
  builder.add(0, {.kind = RecordKind::kArrive, .gate = gate});
  builder.add(1, work(100));
  builder.add(1, {.kind = RecordKind::kWait, .gate = gate});
  const Trace trace = builder.replay();
  EXPECT_THAT(begins(trace, SliceKind::kWait), ElementsAre());
  EXPECT_EQ(trace.cycles, 100 * kIssueInterval);
}

TEST(TimelineReplay, WarpsOfOneSchedulerShareItAndOthersDoNot) {
  const auto end_of = [](const std::vector<std::uint32_t>& warps) {
    Builder builder(16);
    for (const std::uint32_t warp : warps) builder.add(warp, work(3200));
    return builder.replay().cycles;
  };
  EXPECT_EQ(end_of({0}), 6400u);             // every second cycle
  EXPECT_EQ(end_of({0, 1, 2, 3}), 6400u);    // a scheduler each
  EXPECT_LE(end_of({0, 4}), 6400u + 64);     // in each other's gaps
  EXPECT_GE(end_of({0, 4, 8, 12}), 12800u);  // four at a rate of one in all
  EXPECT_LE(end_of({0, 4, 8, 12}), 12800u + 64);
}

TEST(TimelineReplay, MmaHidesWhatIsIssuedInBetween) {
  Builder builder(1);
  builder.add(0,
              {.kind = RecordKind::kMma, .cycles = 512, .alone = 200, .count = 64, .label = builder.label("m16n8k16")});
  const Trace trace = builder.replay();
  EXPECT_EQ(trace.cycles, 512u);
  EXPECT_EQ(trace.units[0].tensor, 512u / kNumSchedulers);  // one core of four
  EXPECT_EQ(trace.slices[0].text(), "mma m16n8k16 x64");
}

TEST(TimelineReplay, WarpgroupsTakeTurnsOnTheTensorCores) {
  Builder builder(8);
  const GateId first = builder.gate(4, "m64n64k16", 128), second = builder.gate(4, "m64n64k16", 128);
  for (std::uint32_t warp = 0; warp < 8; ++warp) {
    builder.add(warp, work(warp == 3 ? 50u : 10u));
    builder.add(warp, {.kind = RecordKind::kMultiply, .gate = warp < 4 ? first : second});
  }
  // Warp 3 issues at 100. Warp 7 shares its scheduler: it begins after warp 3's first piece of 32, and is done at 52.
  EXPECT_THAT(begins(builder.replay(), SliceKind::kMma), ElementsAre(52, 180));
}

TEST(TimelineReplay, EndsWhereARecordingThatWasCutLeavesAWarpWaiting) {
  Builder builder(1);
  builder.add(0, work(8));
  builder.add(0, {.kind = RecordKind::kWait, .gate = builder.gate(1, "never")});
  EXPECT_EQ(builder.replay().cycles, 16u);
}

TEST(TimelineCosts, FollowTheInstructionsShapeAndType) {
  const auto cost = [](std::vector<std::string_view> parts, Arch arch = Arch::kSm90a) {
    Instruction instruction;
    instruction.parts = std::move(parts);
    return instruction_cost(instruction, emulated_machine(usual_machine(arch)).costs);
  };
  // 64 x 128 x 16 products, 2048 a cycle.
  EXPECT_EQ(cost({"wgmma", "mma_async", "sync", "aligned", "m64n128k16", "f32", "bf16", "bf16"}).tensor, 64u);
  EXPECT_EQ(cost({"wgmma", "mma_async", "sync", "aligned", "m64n256k32", "f32", "e4m3", "e4m3"}).tensor, 128u);
  // 16 x 8 x 16 products, 256 a cycle and core on sm_80, as wide types half as many.
  EXPECT_EQ(cost({"mma", "sync", "aligned", "m16n8k16", "row", "col", "f32", "f16", "f16", "f32"}, Arch::kSm80).tensor,
            8u);
  EXPECT_EQ(cost({"mma", "sync", "aligned", "m16n8k8", "row", "col", "f32", "tf32", "tf32", "f32"}, Arch::kSm80).tensor,
            8u);
  EXPECT_EQ(cost({"ex2", "approx", "ftz", "f32"}).issue, 8u);
  EXPECT_EQ(cost({"fma", "rn", "f32"}).issue, 1u);
  EXPECT_EQ(cost({"mov", "b32"}).issue, 0u);
  EXPECT_EQ(cost({"ld", "shared", "v4", "b32"}).issue, 16u);
  EXPECT_EQ(cost({"ldmatrix", "sync", "aligned", "m8n8", "x4", "shared", "b16"}).issue, 16u);
}

TEST(EmulatedMachine, EveryArchitectureHasACostForEveryWordOfATrace) {
  for (const auto& [arch, word] : EnumTable<Arch>::entries) {
    const EmulatedMachine machine = emulated_machine(usual_machine(arch));
    EXPECT_GT(machine.num_sms, 0) << word;
    EXPECT_EQ(machine.costs.wgmma_macs > 0, arch_info(arch).wgmma) << word;
    EXPECT_GT(machine.costs.mma_sync_macs, 1u) << word;
    EXPECT_GT(machine.costs.copy_bytes, 1u) << word;
    EXPECT_GT(machine.costs.copy_latency, machine.costs.store_latency) << word;
    EXPECT_GT(machine.costs.store_latency, 0u) << word;
  }
}

}  // namespace
}  // namespace kernelwright::emulator
