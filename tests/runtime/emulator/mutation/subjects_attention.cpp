// The attention kernels that are mutated.
#include <utility>

#include "runtime/emulator/mutation/attention_subjects.h"

namespace kernelwright::test {
namespace {

void add_portable(std::vector<AttentionCall>& calls) {
  AttentionProblem prefill = small_problem({2, 1});
  prefill.mask.kind = MaskKind::kCausal;
  // Long enough for its ring to go round, and its first CTA sees no key.
  AttentionSchedule portable;
  portable.family = Family::kPortable;
  calls.push_back({"portable_prefill", prefill, small_shape(448, 320), portable});
  AttentionProblem decode = small_problem({8, 2});
  decode.mask.kind = MaskKind::kCausal;
  decode.max_q_len = 1;
  decode.kv_layout = {KvLayoutKind::kPaged, 16};
  AttentionSchedule parts = portable;
  parts.splits = 2;
  parts.merge = Merge::kCombine;  // by a kernel of its own, which is a subject too
  calls.push_back({"portable_decode", decode, small_shape(1, 700), parts});

  AttentionSchedule registers = portable;
  registers.staging = Staging::kRegisters;
  registers.num_stages = 2;
  registers.num_warps = 4;
  registers.block_m = 64;
  registers.block_n = 32;
  calls.push_back({"portable_prefill_registers", prefill, small_shape(250, 200), registers});
  AttentionSchedule columns = portable;
  columns.num_warps = 4;
  columns.block_m = 32;
  columns.block_n = 64;
  columns.warp_n = 32;
  columns.num_stages = 2;
  calls.push_back({"portable_prefill_columns", prefill, small_shape(250, 260), columns});
  AttentionSchedule waiting = portable;
  waiting.splits = 1;
  waiting.staging = Staging::kRegisters;
  waiting.num_stages = 2;
  calls.push_back({"portable_decode_registers", decode, small_shape(1, 700), waiting});
}

/// attention_sm90 in the forms that differ in synchronisation: rings, chunks of keys, turns, slots of queries, tiles
/// that are cleaned, warpgroups without rows. A CTA walks several items. Some have several tiles, so that a ring goes
/// round within one item. Some consecutive items have one tile; otherwise the ring of keys would also provide the order
/// that the ring of queries must provide.
void add_hopper_prefill(std::vector<AttentionCall>& calls) {
  AttentionSchedule hopper = hopper_schedule();
  hopper.kv_ring = KvRing::kSplit;
  hopper.num_kv_stages = 3;
  hopper.overlap = Overlap::kBoth;
  hopper.q_stages = 2;
  hopper.pack_gqa = false;
  const AttentionProblem dense = small_problem({1, 1});
  // One CTA ends with items of one tile, the other with one of many.
  AttentionShape short_ones = small_batch({}, {130, 40, 30, 40, 200, 150, 20, 48, 30, 10, 250, 20});
  short_ones.q_len = 110;
  calls.push_back({"attention_sm90_split_in_turns", dense, short_ones, hopper, kSms});

  AttentionSchedule shared = hopper;
  shared.math_warpgroups = 3;
  shared.kv_ring = KvRing::kShared;
  shared.num_kv_stages = 5;
  AttentionProblem causal = dense;
  causal.mask.kind = MaskKind::kCausal;
  causal.lse = true;
  short_ones.q_len = 190;
  calls.push_back({"attention_sm90_causal_shared", causal, short_ones, shared, kSms});

  // Packed heads: four rows for each query, so that most of the items have rows for one warpgroup alone.
  AttentionProblem ragged = causal;
  ragged.heads = {4, 1};
  ragged.q_layout = QLayout::kRagged;
  ragged.kv_layout = {KvLayoutKind::kPaged, 16};
  AttentionSchedule packed = hopper;
  packed.pack_gqa = true;
  calls.push_back({"attention_sm90_packed_pages", ragged,
                   small_batch({90, 1, 1, 1, 0, 40, 1, 32, 1, 33, 1, 30, 1, 1},
                               {200, 70, 1, 3, 60, 20, 5, 10, 150, 17, 2, 3, 5, 9}),
                   packed, kSms});

  AttentionSchedule chunks = hopper;
  chunks.num_qk_stages = 2;
  chunks.num_kv_stages = 2;
  chunks.overlap = Overlap::kIntra;
  AttentionProblem window = small_problem({2, 1}, 128);
  window.mask = {MaskKind::kSlidingWindow, {150, 0}, 0, {}};
  window.sinks = true;
  AttentionShape cut = small_batch({}, {222, 40, 0, 129, 30, 20});
  cut.q_len = 110;
  calls.push_back({"attention_sm90_keys_in_chunks", window, cut, chunks, kSms});

  // Nothing but TMA's zeros behind the keys.
  AttentionSchedule one_slot = hopper;
  one_slot.q_stages = 1;
  calls.push_back({"attention_sm90_one_query_slot", causal, small_shape(500, 240), one_slot, kSms});
}

void add_hopper_decode(std::vector<AttentionCall>& calls) {
  AttentionSchedule hopper = hopper_decode_schedule();
  AttentionProblem decode = small_problem({4, 1});
  decode.max_q_len = 1;
  decode.lse = true;
  calls.push_back({"attention_decode_sm90_merged", decode, small_shape(1, 1000), hopper, kSms});
  // The first tile is cleaned as well, and its slot filled again.
  AttentionProblem pages = decode;
  pages.kv_layout = {KvLayoutKind::kPaged, 16};
  pages.mask = {MaskKind::kSlidingWindow, {900, 0}, 0, {}};
  calls.push_back({"attention_decode_sm90_pages", pages, small_shape(1, 1000), hopper, kSms});
  hopper.splits = 2;
  hopper.merge = Merge::kCombine;
  calls.push_back({"attention_decode_sm90_combined", decode, small_shape(1, 1000), hopper, kSms});
}

/// attention_sm90 with items from a queue, in clusters, and with keys that threads gather.
void add_hopper_schedulers(std::vector<AttentionCall>& calls) {
  AttentionSchedule hopper = hopper_schedule();
  AttentionProblem causal = small_problem({1, 1});
  causal.mask.kind = MaskKind::kCausal;
  // Many items of one tile, so that records and slots of queries go round; the last one of each CTA has several.
  AttentionShape short_ones = small_batch({}, {130, 40, 30, 40, 200, 150, 20, 48, 30, 250, 240, 260});
  short_ones.q_len = 110;
  AttentionSchedule queued = hopper;
  queued.scheduler = Scheduler::kQueued;
  queued.q_stages = 2;
  calls.push_back({"attention_sm90_queued", small_problem({1, 1}), short_ones, queued, kSms});
  AttentionProblem pages = causal;
  pages.kv_layout = {KvLayoutKind::kPaged, 1};
  calls.push_back({"attention_sm90_gathered", pages, short_ones, hopper, kSms});
  AttentionSchedule cluster = hopper;
  cluster.block_n = 64;
  cluster.cluster = ClusterShape{2, 1};
  AttentionShape pairs = small_batch({}, {130, 0, 30, 200, 60, 30, 250, 260});
  pairs.q_len = 230;
  calls.push_back({"attention_sm90_cluster", small_problem({1, 1}), pairs, cluster, kSms});
}

/// Sub-stages of K and V, in rings of their own and in one; V's alone; and keys that threads gather into them.
void add_hopper_sub_stages(std::vector<AttentionCall>& calls) {
  AttentionSchedule split = hopper_ring_of_two();
  split.block_n = 32;
  split.num_qk_stages = 1;
  split.num_mma_stages = 2;
  AttentionProblem causal = small_problem({1, 1});
  causal.mask.kind = MaskKind::kCausal;
  const AttentionShape shape = items_of_two_ctas();
  calls.push_back({"attention_sm90_sub_stages_of_values", causal, shape, split, kSms});
  AttentionProblem pages = causal;
  pages.kv_layout = {KvLayoutKind::kPaged, 1};
  calls.push_back({"attention_sm90_gathered_sub_stages", pages, shape, split, kSms});
  AttentionSchedule both = split;
  both.num_qk_stages = 2;
  both.overlap = Overlap::kBoth;
  causal.head_dim = {128, 128};
  calls.push_back({"attention_sm90_sub_stages_split", causal, shape, both, kSms});
  AttentionSchedule shared = both;
  shared.kv_ring = KvRing::kShared;
  shared.num_kv_stages = 5;
  shared.overlap = Overlap::kIntra;
  calls.push_back({"attention_sm90_sub_stages_shared", causal, shape, shared, kSms});
}

/// Swizzles of heads that are narrower than 64 columns. No warpgroups take turns: turns would order what one warpgroup
/// cleans for the other.
void add_hopper_swizzles(std::vector<AttentionCall>& calls) {
  const auto add = [&](const char* name, Swizzle swizzle, int head_dim) {
    AttentionProblem problem = small_problem({1, 1}, head_dim);
    problem.mask.kind = MaskKind::kCausal;
    AttentionSchedule schedule = hopper_ring_of_two();
    schedule.block_n = 64;
    schedule.overlap = Overlap::kIntra;
    schedule.swizzle = swizzle;
    calls.push_back({name, problem, items_of_two_ctas(), schedule, kSms});
  };
  add("attention_sm90_swizzle_64B", Swizzle::k64B, 32);
  add("attention_sm90_swizzle_32B", Swizzle::k32B, 16);
  add("attention_sm90_swizzle_none", Swizzle::kNone, 24);
  // A window, so that the first tile is cleaned as well, and its slot filled again.
  AttentionSchedule decode = hopper_decode_schedule();
  decode.swizzle = Swizzle::k64B;
  AttentionProblem one_query = small_problem({4, 1}, 32);
  one_query.max_q_len = 1;
  one_query.mask = {MaskKind::kSlidingWindow, {900, 0}, 0, {}};
  calls.push_back({"attention_decode_sm90_swizzle_64B", one_query, small_shape(1, 1000), decode, kSms});
}

/// attention_sm100 in the forms that differ in synchronisation: query tiles, rings, chunks of keys, and a tile of
/// values that is cleaned. Sequences have one tile, as many as a ring has slots, or several laps.
void add_blackwell(std::vector<AttentionCall>& calls) {
  const AttentionSchedule two = blackwell_schedule();
  AttentionShape shape = small_batch({}, {300, 64, 170});
  shape.q_len = 200;
  calls.push_back({"attention_sm100_two_query_tiles", small_problem({1, 1}), shape, two});

  AttentionSchedule pair = two;
  pair.cta_group = 2;
  shape.q_len = 300;
  calls.push_back({"attention_sm100_pair", small_problem({1, 1}), shape, pair});

  AttentionSchedule one = two;
  one.num_q = 1;
  one.kv_ring = KvRing::kSplit;
  one.num_kv_stages = 2;
  one.num_qk_stages = 2;
  shape = small_batch({}, {384, 60, 300});
  shape.q_len = 70;
  calls.push_back({"attention_sm100_one_query_tile", small_problem({1, 1}, 128), shape, one});
}

/// Sub-stages of K and V, in a ring that they share and in rings of their own.
void add_blackwell_sub_stages(std::vector<AttentionCall>& calls) {
  AttentionSchedule two = blackwell_schedule();
  two.num_mma_stages = 2;
  AttentionShape shape = small_batch({}, {300, 64, 170});
  shape.q_len = 200;
  calls.push_back({"attention_sm100_two_query_tiles_sub_stages", small_problem({1, 1}, 128), shape, two});
  AttentionSchedule one = two;
  one.num_q = 1;
  one.block_n = 96;
  one.kv_ring = KvRing::kSplit;
  one.num_kv_stages = 2;
  one.num_qk_stages = 2;
  one.num_mma_stages = 3;
  shape = small_batch({}, {560, 60, 190});
  shape.q_len = 70;
  calls.push_back({"attention_sm100_one_query_tile_sub_stages", small_problem({1, 1}, 128), shape, one});
}

/// Swizzles of heads that are narrower than 64 columns.
void add_blackwell_swizzles(std::vector<AttentionCall>& calls) {
  AttentionShape shape = small_batch({}, {300, 64, 170});
  shape.q_len = 200;
  const auto add = [&](const char* name, Swizzle swizzle, int head_dim) {
    AttentionSchedule schedule = blackwell_schedule();
    schedule.swizzle = swizzle;
    calls.push_back({name, small_problem({1, 1}, head_dim), shape, schedule});
  };
  add("attention_sm100_two_query_tiles_swizzle_64B", Swizzle::k64B, 32);
  add("attention_sm100_two_query_tiles_swizzle_32B", Swizzle::k32B, 16);
  add("attention_sm100_two_query_tiles_swizzle_none", Swizzle::kNone, 24);
}

constexpr const char* kMaskSource = R"(
#include "policy/place.cuh"
struct EveryThird {
  __device__ bool visible(const kernelwright::Place& at) const { return (at.diagonal() - at.key) % 3 != 0; }
};
)";
constexpr const char* kScoreSource = R"(
#include "policy/place.cuh"
struct Tilted {
  __device__ float apply(float score, const kernelwright::Place& at) const { return score + 0.03125f * (at.key % 7); }
};
)";

/// User policies for single scores: tensors of the launch in each form of attention, and sources in one.
void add_open_scores(std::vector<AttentionCall>& calls) {
  AttentionProblem open = small_problem({1, 1});
  open.mask.kind = MaskKind::kTensor;
  open.mask.tensor.batch = false;
  open.score_mod.kind = ScoreModKind::kTensor;
  AttentionProblem one_query = open;
  one_query.heads = {8, 2};
  one_query.max_q_len = 1;

  AttentionSchedule portable;
  portable.family = Family::kPortable;
  calls.push_back({"portable_prefill_open", open, small_shape(200, 320), portable});
  AttentionSchedule parts = portable;
  parts.splits = 2;
  parts.merge = Merge::kInKernel;
  calls.push_back({"portable_decode_open", one_query, small_shape(1, 700), parts});

  const AttentionSchedule hopper = hopper_ring_of_two();
  calls.push_back({"attention_sm90_open", open, items_of_two_ctas(), hopper, kSms});
  AttentionProblem sources = small_problem({1, 1});
  sources.mask.kind = MaskKind::kSource;
  sources.mask.source = {"mask.cuh", "EveryThird", kMaskSource, {}};
  sources.score_mod.kind = ScoreModKind::kSource;
  sources.score_mod.source = {"score.cuh", "Tilted", kScoreSource, {}};
  calls.push_back({"attention_sm90_sources", sources, items_of_two_ctas(), hopper, kSms});
  Mask window;
  window.kind = MaskKind::kSlidingWindow;
  window.window = {900, 0};
  one_query.mask.operands = {window, open.mask};
  one_query.mask.kind = MaskKind::kAnd;
  one_query.mask.tensor = {};
  calls.push_back({"attention_decode_sm90_open", one_query, small_shape(1, 1000), hopper_decode_schedule(), kSms});

  AttentionShape shape = small_batch({}, {300, 64, 170});
  shape.q_len = 200;
  calls.push_back({"attention_sm100_two_query_tiles_open", open, shape, blackwell_schedule()});
}

/// Latent attention: some tiles before a window's first, so that tiles are cleaned at both ends and slots filled again.
void add_latent(std::vector<AttentionCall>& calls) {
  AttentionProblem problem = small_problem({6, 1});
  problem.head_dim = {576, 512};
  problem.v_layout = VLayout::kKeyPrefix;
  problem.kv_layout = {KvLayoutKind::kPaged, 32};
  problem.mask = {MaskKind::kSlidingWindow, {400, 0}, 0, {}};
  problem.max_q_len = 2;
  AttentionShape shape = small_batch({}, {470, 70, 1});
  shape.q_len = 2;
  AttentionSchedule one;
  one.family = Family::kHopper;
  one.splits = 1;
  calls.push_back({"attention_latent_sm90", problem, shape, one, kSms});
  AttentionSchedule pair = one;
  pair.cluster = ClusterShape{2, 1};
  pair.splits = 2;
  pair.merge = Merge::kInKernel;
  AttentionProblem wide = problem;
  wide.heads = {40, 1};
  calls.push_back({"attention_latent_sm90_pair", wide, shape, pair, kSms});
  // Keys that are converted: records, and codes with one scale.
  AttentionProblem bytes = problem;
  bytes.dtype.kv = DType::kE4m3;
  bytes.scales = ScaleKind::kPerBlock;
  calls.push_back({"attention_latent_sm90_records", bytes, shape, one, kSms});
  bytes.scales = ScaleKind::kPerTensor;
  calls.push_back({"attention_latent_sm90_bytes", bytes, shape, one, kSms});
  one.family = pair.family = Family::kBlackwell;
  one.rescale = pair.rescale = Rescale::kAlways;  // the correction has work in every tile
  calls.push_back({"attention_latent_sm100", problem, shape, one});
  calls.push_back({"attention_latent_sm100_pair", wide, shape, pair});
  AttentionSchedule portable;
  portable.family = Family::kPortable;
  portable.splits = 2;
  portable.merge = Merge::kInKernel;
  calls.push_back({"attention_latent_portable", problem, shape, portable, kSms});
}

}  // namespace

std::vector<AttentionCall> attention_calls() {
  std::vector<AttentionCall> calls;
  add_portable(calls);
  add_hopper_prefill(calls);
  add_hopper_decode(calls);
  add_hopper_schedulers(calls);
  add_hopper_sub_stages(calls);
  add_hopper_swizzles(calls);
  add_blackwell(calls);
  add_blackwell_sub_stages(calls);
  add_blackwell_swizzles(calls);
  add_open_scores(calls);
  add_latent(calls);
  for (AttentionCall& call : fp8_attention_calls()) calls.push_back(std::move(call));
  return calls;
}

}  // namespace kernelwright::test
