// The attention kernels over fp8 keys and values that are mutated: warps that transpose or convert tiles, rings of raw
// tiles, values in columns, and scales that differ by key.
#include <utility>

#include "runtime/emulator/mutation/attention_subjects.h"

namespace kernelwright::test {
namespace {

constexpr int kThreeCtas = 3;

AttentionProblem fp8_problem(Heads heads, DType queries, ScaleKind scales = ScaleKind::kPerTensor, int head_dim = 64) {
  AttentionProblem problem = small_problem(heads, head_dim);
  problem.dtype = {queries, DType::kE4m3, queries == DType::kF16 ? queries : DType::kBf16};
  problem.scales = scales;
  return problem;
}

AttentionProblem with_causal_mask(AttentionProblem problem) {
  problem.mask.kind = MaskKind::kCausal;
  return problem;
}

AttentionProblem in_pages(AttentionProblem problem) {
  problem.kv_layout = {KvLayoutKind::kPaged, 16};
  return problem;
}

AttentionProblem in_columns(AttentionProblem problem) {
  problem = in_pages(std::move(problem));
  problem.v_layout = VLayout::kColumns;
  return problem;
}

AttentionProblem one_query(AttentionProblem problem) {
  problem.max_q_len = 1;
  return problem;
}

AttentionSchedule fp8_schedule(Overlap overlap, int kv_stages = 2) {
  AttentionSchedule schedule = hopper_ring_of_two();
  schedule.block_n = 64;
  schedule.num_kv_stages = kv_stages;
  schedule.overlap = overlap;
  return schedule;
}

/// Items for three CTAs, each with three slots of keys and of values, as items_of_two_ctas() has them for two. The
/// first CTA takes the first item and the last two, the second CTA the second and fifth, the third CTA the third and
/// fourth.
///
/// The last tile of V in a CTA takes the slot of the third tile before it. No tile of K is loaded in between, whose
/// slot the load would have had to wait for. So a product that ends too late is seen only in the CTA's last item, and
/// only if it reads that third tile. In the first CTA this is the product of the item's first step, in the third CTA
/// that of another step.
AttentionShape items_of_three_ctas() {
  AttentionShape shape = small_batch({}, {420, 20, 9, 290, 9, 30, 160});
  shape.q_len = 110;
  return shape;
}

/// attention_sm90 with e4m3 queries: V is transposed, or lies in columns. In each order of a step.
///
/// Keys have three slots, and raw tiles have two. With two slots of keys, a free one would say that a slot of raw tiles
/// is free as well. Where V lies in columns, no key of the first item is cleaned: the fence behind that would also
/// cover the rows of ones.
void add_fp8_queries(std::vector<AttentionCall>& calls) {
  const AttentionProblem dense = fp8_problem({1, 1}, DType::kE4m3);
  const AttentionShape shape = items_of_three_ctas();
  calls.push_back({"attention_sm90_fp8_ping_pong", dense, shape, fp8_schedule(Overlap::kPingPong, 3), kThreeCtas});
  calls.push_back({"attention_sm90_fp8_both", dense, shape, fp8_schedule(Overlap::kBoth, 3), kThreeCtas});
  AttentionSchedule unpromoted = fp8_schedule(Overlap::kNone, 3);
  unpromoted.pv_promote = 0;
  calls.push_back({"attention_sm90_fp8_unpromoted", dense, shape, unpromoted, kThreeCtas});
  const AttentionProblem wide = fp8_problem({1, 1}, DType::kE4m3, ScaleKind::kPerTensor, 128);
  AttentionSchedule parts = fp8_schedule(Overlap::kNone, 3);
  parts.pv_promote = 1, parts.pv_buffers = 2;
  calls.push_back({"attention_sm90_fp8_parts_in_turn", wide, shape, parts, kThreeCtas});
  // Raw tiles come in halves, and scores in halves of registers. A tile has 128 keys, and slots of two of them are all
  // that fits.
  AttentionSchedule halves = fp8_schedule(Overlap::kPingPong);
  halves.block_n = 128, halves.pv_buffers = 2;
  AttentionShape twice = shape;
  for (int& length : twice.kv_lens) length *= 2;
  calls.push_back({"attention_sm90_fp8_halves", fp8_problem({1, 1}, DType::kE4m3, ScaleKind::kPerTensor, 256), twice,
                   halves, kThreeCtas});
  const AttentionSchedule intra = fp8_schedule(Overlap::kIntra, 3);
  AttentionSchedule runs = intra;
  runs.pv_promote = 2;
  calls.push_back({"attention_sm90_fp8_runs", dense, shape, runs, kThreeCtas});
  runs.math_warpgroups = 3;
  calls.push_back({"attention_sm90_fp8_three_warpgroups", dense, shape, runs, kThreeCtas});
  calls.push_back({"attention_sm90_fp8_pages", with_causal_mask(in_pages(dense)), shape, intra, kThreeCtas});
  const AttentionProblem scaled = fp8_problem({1, 1}, DType::kE4m3, ScaleKind::kPerToken);
  calls.push_back({"attention_sm90_fp8_token_scales", with_causal_mask(scaled), shape, intra, kThreeCtas});
  AttentionShape whole = items_of_two_ctas();
  whole.kv_lens[0] = 256;
  calls.push_back(
      {"attention_sm90_fp8_columns", with_causal_mask(in_columns(dense)), whole, fp8_schedule(Overlap::kIntra), kSms});
}

/// attention_sm90 with bf16 queries, of which two terms are multiplied: V becomes f16. With f16 queries, K and V do.
void add_fp8_caches(std::vector<AttentionCall>& calls) {
  const AttentionProblem dense = fp8_problem({1, 1}, DType::kBf16);
  const AttentionShape shape = items_of_two_ctas();
  calls.push_back({"attention_sm90_fp8_cache", dense, shape, fp8_schedule(Overlap::kBoth), kSms});
  const AttentionProblem converted = fp8_problem({1, 1}, DType::kF16);
  calls.push_back({"attention_sm90_fp8_cache_converted", converted, shape, fp8_schedule(Overlap::kBoth), kSms});
  const AttentionProblem scaled = fp8_problem({1, 1}, DType::kBf16, ScaleKind::kPerToken);
  calls.push_back(
      {"attention_sm90_fp8_cache_token_scales", with_causal_mask(scaled), shape, fp8_schedule(Overlap::kIntra), kSms});
  // Packed heads: most of the items have rows for one warpgroup alone. They follow each other, or an item with rows for
  // both. There are no turns, which would hold back the warpgroup that only keeps step. As in items_of_two_ctas(), one
  // CTA has two items of one tile; its others have no keys.
  AttentionProblem mixed = with_causal_mask(in_pages(fp8_problem({4, 1}, DType::kBf16)));
  mixed.q_layout = QLayout::kRagged;
  AttentionSchedule packed = fp8_schedule(Overlap::kIntra);
  packed.pack_gqa = true;
  calls.push_back({"attention_sm90_fp8_cache_packed_pages", mixed,
                   small_batch({32, 1, 1, 1, 1, 3, 1, 20, 32, 1, 0, 18, 1, 30},
                               {200, 20, 150, 0, 5, 0, 130, 9, 150, 0, 60, 9, 0, 200}),
                   packed, kSms});
}

/// attention_decode_sm90 converts behind the shared-memory read. A window, so that the first tile is cleaned as well,
/// and its slot filled again.
void add_fp8_decode(std::vector<AttentionCall>& calls) {
  const AttentionSchedule hopper = hopper_decode_schedule();
  const AttentionShape shape = small_shape(1, 1000);
  const auto add = [&](const char* name, AttentionProblem problem) {
    problem.mask = {MaskKind::kSlidingWindow, {900, 0}, 0, {}};
    calls.push_back({name, one_query(std::move(problem)), shape, hopper, kSms});
  };
  add("attention_decode_sm90_fp8_cache_pages", in_pages(fp8_problem({4, 1}, DType::kBf16)));
  add("attention_decode_sm90_fp8_queries", fp8_problem({4, 1}, DType::kE4m3));
  // With 64 columns, a lane would clean just the elements whose addresses it gives to ldmatrix.
  add("attention_decode_sm90_fp8_queries_columns",
      in_columns(fp8_problem({4, 1}, DType::kE4m3, ScaleKind::kPerTensor, 48)));
  add("attention_decode_sm90_fp8_token_scales", fp8_problem({4, 1}, DType::kBf16, ScaleKind::kPerToken));
}

/// Tiles wait in registers: bytes are converted on their way to shared memory.
void add_fp8_portable(std::vector<AttentionCall>& calls) {
  AttentionSchedule portable;
  portable.family = Family::kPortable;
  AttentionSchedule parts = portable;
  parts.splits = 2;
  parts.merge = Merge::kInKernel;
  calls.push_back({"portable_decode_registers_fp8_queries", one_query(in_pages(fp8_problem({8, 2}, DType::kE4m3))),
                   small_shape(1, 700), parts});
  const AttentionProblem scaled = fp8_problem({2, 1}, DType::kBf16, ScaleKind::kPerToken);
  calls.push_back(
      {"portable_prefill_registers_fp8_token_scales", with_causal_mask(scaled), small_shape(200, 320), portable});
}

/// attention_sm100 reads scales of keys through a ring of their own.
void add_fp8_blackwell(std::vector<AttentionCall>& calls) {
  AttentionShape shape = small_batch({}, {300, 64, 170});
  shape.q_len = 200;
  AttentionProblem scaled = fp8_problem({1, 1}, DType::kE4m3, ScaleKind::kPerToken);
  scaled.sinks = true;
  calls.push_back({"attention_sm100_two_query_tiles_token_scales", scaled, shape, blackwell_schedule()});
}

}  // namespace

std::vector<AttentionCall> fp8_attention_calls() {
  std::vector<AttentionCall> calls;
  add_fp8_queries(calls);
  add_fp8_caches(calls);
  add_fp8_decode(calls);
  add_fp8_portable(calls);
  add_fp8_blackwell(calls);
  return calls;
}

}  // namespace kernelwright::test
