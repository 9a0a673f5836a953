// The GEMM kernels that are mutated.
#include "runtime/emulator/mutation/subject_calls.h"

namespace kernelwright::test {
namespace {

/// Slots that are narrower than 128 bytes of k: one strip of a swizzle, and several strips without one. k is several
/// laps of a ring of three, and ends amid a slot.
void add_narrow(std::vector<GemmCall>& calls, const std::string& name, GemmProblem problem, int m,
                GemmSchedule schedule) {
  constexpr struct {
    const char* name;
    int block_k, k;
    Swizzle swizzle;
  } kSlots[] = {
      {"_16_deep", 16, 104, Swizzle::k32B},
      {"_32_deep", 32, 200, Swizzle::k64B},
      {"_32_deep_unswizzled", 32, 200, Swizzle::kNone},
  };
  for (const auto& slot : kSlots) {
    problem.k = slot.k;
    schedule.block_k = slot.block_k;
    schedule.swizzle = slot.swizzle;
    calls.push_back({name + slot.name, problem, m, schedule});
  }
}

/// gemm_portable with CTAs that walk several tiles, because the launch may use only few SMs.
void add_portable(std::vector<GemmCall>& calls) {
  GemmSchedule plain;
  plain.family = Family::kPortable;
  plain.block_m = 32;
  plain.block_n = 64;
  plain.stages = 3;
  GemmProblem problem;
  problem.n = 136;
  problem.k = 392;
  calls.push_back({"portable_gemm", problem, 70, plain});
  add_narrow(calls, "portable_gemm", problem, 70, plain);
}

/// Groups: their table, slabs that end with a group, and rows that threads gather. Many groups take two passes over the
/// bounds. Where operands are swapped, a warp copies the rows of one slab and stores the slab before by TMA.
void add_groups(std::vector<GemmCall>& calls, GemmProblem problem, const GemmProblem& blocks, GemmSchedule schedule) {
  constexpr int kRows = 130;
  problem.groups = {GroupKind::kRows, 3, GroupBounds::kStarts};
  calls.push_back({"gemm_sm90_of_groups", problem, kRows, schedule});
  // Tiles are dealt in rounds of two.
  GemmSchedule turns = schedule;
  turns.roles = Roles::kPingPong, turns.math_warpgroups = 2;
  calls.push_back({"gemm_sm90_of_groups_in_turn", problem, 9 * kRows, turns});
  GemmProblem gathered = problem;
  gathered.groups.gather = true;
  GemmSchedule gathers = schedule;
  gathers.stages = 4;
  calls.push_back({"gemm_sm90_gathers", gathered, kRows, gathers});
  GemmSchedule swapped = schedule;
  swapped.block_n = 128;
  swapped.swap_ab = true;
  calls.push_back({"gemm_sm90_of_swapped_groups", problem, 3 * 100, swapped});
  GemmProblem batch = problem;
  batch.groups = {.kind = GroupKind::kBatch, .count = 3};
  calls.push_back({"gemm_sm90_plain_batch", batch, 3 * 100, schedule});
  GemmProblem slices = batch;
  slices.groups.kind = GroupKind::kK;
  slices.layout = OperandLayout::kTn;
  calls.push_back({"gemm_sm90_slices", slices, 3 * 136, schedule});
  GemmProblem scaled = blocks;
  scaled.groups = problem.groups;
  swapped.block_n = 32;
  calls.push_back({"gemm_sm90_block_scales_of_groups", scaled, kRows, swapped});
  scaled.groups.gather = true;
  calls.push_back({"gemm_sm90_block_scales_gathered", scaled, kRows, swapped});
  GemmSchedule portable;
  portable.family = Family::kPortable;
  portable.block_m = 32, portable.block_n = 64, portable.stages = 3;
  gathered.groups.count = 300;
  calls.push_back({"portable_gemm_gathers", gathered, kRows, portable});
}

/// The same on Blackwell, where TMA gathers rows, two warps copy matrices by pointers, and pairs have tiles of groups.
void add_blackwell_groups(std::vector<GemmCall>& calls, GemmProblem problem, const GemmProblem& blocks,
                          const GemmSchedule& plain, const GemmSchedule& pair) {
  constexpr int kRows = 150;
  problem.groups = {GroupKind::kRows, 3, GroupBounds::kStarts};
  // Groups have more rows than a tile: a warp stores a slab by TMA and copies the next one.
  calls.push_back({"gemm_sm100_of_groups", problem, 3 * 140, plain});
  GemmProblem other = problem;
  other.groups.gather = true;
  calls.push_back({"gemm_sm100_gathers", other, 3 * 270, pair});
  GemmSchedule swapped = plain;
  swapped.block_n = 32, swapped.swap_ab = true;
  other = blocks;
  other.groups = problem.groups;
  other.groups.pointers = true;
  calls.push_back({"gemm_sm100_by_pointers", other, kRows, swapped});
  other = problem;
  other.groups.scatter = true;
  GemmSchedule one_slab = plain;
  one_slab.block_n = 128, one_slab.store_stages = 1;
  calls.push_back({"gemm_sm100_scatters", other, kRows, one_slab});
}

/// gemm_sm100 in the forms that differ in synchronisation: a single CTA, a pair, CTAs that load for each other, tiles
/// that pairs get by cluster launch control. Also scales that are copied to tensor memory or gathered first, slabs that
/// threads add up, and parts of k.
void add_blackwell(std::vector<GemmCall>& calls) {
  GemmSchedule plain;
  plain.family = Family::kBlackwell;
  plain.block_n = 64;
  plain.stages = 3;
  plain.cta_group = 1;
  plain.cluster = ClusterShape{1, 1};
  plain.scheduler = Scheduler::kPersistent;
  GemmProblem problem;
  problem.n = 200;
  problem.k = 328;
  const auto of = [&](DType operands, int n, int k) {
    GemmProblem scaled = problem;
    scaled.n = n;
    scaled.k = k;
    scaled.dtype = {operands, operands, DType::kBf16, DType::kBf16};
    scaled.scales = ScaleKind::kPerBlock;
    return scaled;
  };
  calls.push_back({"gemm_sm100_plain", problem, 200, plain});
  GemmSchedule pair = plain;
  pair.cta_group = 2;
  pair.cluster = ClusterShape{2, 1};
  calls.push_back({"gemm_sm100_pair", problem, 300, pair});
  GemmSchedule cluster = plain;
  cluster.cluster = ClusterShape{2, 2};
  calls.push_back({"gemm_sm100_cluster", problem, 300, cluster, 4});
  GemmSchedule queued = pair;
  queued.scheduler = Scheduler::kQueued;
  queued.clc_depth = 2;
  calls.push_back({"gemm_sm100_queued_pair", problem, 500, queued, 4});
  calls.push_back({"gemm_sm100_block_scaled", of(DType::kMxfp8, 200, 544), 200, plain});
  GemmSchedule narrow = plain;
  narrow.block_n = 32;
  narrow.swap_ab = true;
  calls.push_back({"gemm_sm100_gathered", of(DType::kMxfp4, 200, 1120), 130, narrow});
  GemmSchedule slabs = plain;
  slabs.accumulator_stages = 2;
  calls.push_back({"gemm_sm100_slabs", of(DType::kE4m3, 200, 656), 200, slabs});
  add_blackwell_groups(calls, problem, of(DType::kE4m3, 200, 656), plain, pair);
  GemmSchedule parts = plain;
  parts.split_k = 2;
  problem.k = 584;  // rings go round within a part
  calls.push_back({"gemm_sm100_parts_of_k", problem, 200, parts});
  add_narrow(calls, "gemm_sm100_pair", problem, 300, pair);
}

}  // namespace

/// gemm_sm90 in the forms that differ in synchronisation: products waited for at once or after the next one, groups of
/// slots, warpgroups that take turns, clusters. Also parts of k in both ways, and scales that come with a slot, of rows
/// or of columns. A CTA walks several tiles, and its ring goes round within one. The last tiles end inside m, n and k.
std::vector<GemmCall> gemm_calls() {
  GemmSchedule plain;
  plain.family = Family::kHopper;
  plain.block_m = plain.block_n = 64;
  plain.stages = 3;
  plain.math_warpgroups = 1;
  plain.roles = Roles::kCooperative;
  GemmProblem problem;
  problem.n = 136;
  problem.k = 392;
  std::vector<GemmCall> calls;
  calls.push_back({"gemm_sm90_plain", problem, 200, plain});
  GemmSchedule groups = plain;
  groups.k_group = 2;
  groups.stages = 6;
  groups.mma_in_flight = 0;
  calls.push_back({"gemm_sm90_groups", problem, 200, groups});
  GemmSchedule turns = plain;
  turns.roles = Roles::kPingPong;
  turns.math_warpgroups = 2;
  calls.push_back({"gemm_sm90_ping_pong", problem, 300, turns});
  GemmSchedule cluster = plain;
  cluster.cluster = ClusterShape{2, 1};
  calls.push_back({"gemm_sm90_cluster", problem, 300, cluster});
  GemmSchedule parts = plain;
  parts.block_n = 128;
  parts.split_k = 2;
  calls.push_back({"gemm_sm90_parts_of_k", problem, 100, parts});
  GemmSchedule turnstile = plain;
  turnstile.split_k = 2;
  turnstile.split_mode = SplitMode::kTurnstile;
  GemmProblem deep = problem;
  deep.k = 520;  // the ring goes round within a part
  calls.push_back({"gemm_sm90_turnstile", deep, 100, turnstile});
  GemmProblem blocks;
  blocks.n = 256;
  blocks.k = 656;
  blocks.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16, DType::kBf16};
  blocks.scales = ScaleKind::kPerBlock;
  GemmSchedule wide = plain;
  wide.block_n = 128;
  calls.push_back({"gemm_sm90_block_scales", blocks, 200, wide});
  // A tile is stored behind the next tile's first products, in two pieces.
  GemmSchedule behind = wide;
  behind.block_m = 256;
  behind.math_warpgroups = 2;
  behind.mma_in_flight = 0;
  calls.push_back({"gemm_sm90_block_scales_stored_behind", blocks, 1100, behind});
  GemmProblem grouped = blocks;
  grouped.groups = {GroupKind::kRows, 3, GroupBounds::kStarts};
  calls.push_back({"gemm_sm90_block_scales_of_groups_stored_behind", grouped, 1500, behind});
  // All results of a tile are stored at once.
  behind.block_m = 192, behind.math_warpgroups = 3;
  calls.push_back({"gemm_sm90_block_scales_of_three_warpgroups", grouped, 1500, behind});
  for (const auto& [name, d, epilogue] :
       {std::tuple{"gemm_sm90_block_scales_of_gated_groups", DType::kBf16, "silu(gate) * up"},
        {"gemm_sm90_block_scales_of_quantized_groups", DType::kE4m3,
         "d = quantize(acc, e4m3, per=token_group(128), scale=s)"},
        {"gemm_sm90_block_scales_of_quantized_gates_of_groups", DType::kE4m3,
         "x = silu(gate) * up; d = quantize(x, e4m3, per=token_group(128), scale=s)"}}) {
    GemmProblem made = grouped;
    made.dtype.d = d, made.epilogue = epilogue;
    calls.push_back({name, made, 1500, behind});
  }
  // A tile has one slab, so the loading thread is some tiles ahead.
  grouped.k = 128;
  calls.push_back({"gemm_sm90_block_scales_of_short_groups", grouped, 1500, behind});
  // Scales in the slot are read as products are added.
  GemmSchedule swapped = plain;
  swapped.block_n = 32;
  swapped.swap_ab = true;
  calls.push_back({"gemm_sm90_block_scales_swapped", blocks, 200, swapped});
  add_narrow(calls, "gemm_sm90_plain", problem, 200, plain);
  add_groups(calls, problem, blocks, plain);
  add_blackwell(calls);
  add_portable(calls);
  return calls;
}

}  // namespace kernelwright::test
