// The attention kernels that are mutated.
#include <utility>

#include "runtime/emulator/mutation/subject_calls.h"

namespace kernelwright::test {
namespace {

AttentionProblem small_problem(Heads heads, int head_dim = 64) {
  AttentionProblem problem;
  problem.dtype = {DType::kBf16, DType::kBf16, DType::kBf16};
  problem.head_dim = {head_dim, head_dim};
  problem.heads = heads;
  return problem;
}

AttentionShape small_shape(int q_len, int kv_len) {
  AttentionShape shape;
  shape.name = "mutation";
  shape.q_len = q_len;
  shape.kv_len = kv_len;
  return shape;
}

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

/// Lengths of sequences: an item each, and a tile or several.
AttentionShape small_batch(std::vector<int> q_lens, std::vector<int> kv_lens) {
  AttentionShape shape = small_shape(1, 1);
  shape.batch = static_cast<int>(kv_lens.size());
  shape.q_lens = std::move(q_lens);
  shape.kv_lens = std::move(kv_lens);
  return shape;
}

/// attention_sm90 in the forms whose synchronisation differs: rings, chunks of keys, turns, slots of queries, tiles
/// that are cleaned, warpgroups without rows. A CTA walks several items: some of several tiles, so that a ring goes
/// round within one, and some of one tile side by side, or the ring of keys would say what that of queries has to.
void add_hopper_prefill(std::vector<AttentionCall>& calls) {
  constexpr int kSms = 2;
  AttentionSchedule hopper;
  hopper.family = Family::kHopper;
  hopper.math_warpgroups = 2;
  hopper.block_n = 48;
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
  constexpr int kSms = 2;
  AttentionSchedule hopper;
  hopper.family = Family::kHopper;
  hopper.token_gen = true;
  hopper.splits = 3;
  hopper.num_warps = 2;
  hopper.block_n = 64;
  hopper.num_stages = 2;
  hopper.merge = Merge::kInKernel;
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
  constexpr int kSms = 2;
  AttentionSchedule hopper;
  hopper.family = Family::kHopper;
  hopper.math_warpgroups = 2;
  hopper.block_n = 48;
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

/// attention_sm100 in the forms whose synchronisation differs: query tiles, rings, chunks of keys; a tile of values
/// that is cleaned. Sequences of one tile, of as many as a ring has slots, and of several laps.
void add_blackwell(std::vector<AttentionCall>& calls) {
  AttentionSchedule two;
  two.family = Family::kBlackwell;
  two.num_q = 2;
  two.block_n = 64;
  two.kv_ring = KvRing::kShared;
  two.num_kv_stages = 3;
  two.rescale = Rescale::kAlways;
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

}  // namespace

std::vector<AttentionCall> attention_calls() {
  std::vector<AttentionCall> calls;
  add_portable(calls);
  add_hopper_prefill(calls);
  add_hopper_decode(calls);
  add_hopper_schedulers(calls);
  add_blackwell(calls);
  return calls;
}

}  // namespace kernelwright::test
