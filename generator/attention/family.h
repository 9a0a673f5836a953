/// Inside of the generator: what each attention kernel family takes, and how it is planned. A family has one file that
/// fills its row (<family>.cpp) and one of choices (<family>_choices.cpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/attention_decode_sm90.h"
#include "contract/attention_sm100.h"
#include "contract/attention_sm90.h"
#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/plan/choice.h"
#include "kernelwright/generator/plan/memory_map.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/problem.h"
#include "kernelwright/generator/problem/schedule.h"
#include "kernelwright/generator/problem/score_mods.h"
#include "kernelwright/generator/source/spec.h"

namespace kernelwright::detail {

struct SmRates;
struct SoftmaxForm;
struct TimelineWork;

/// One row of the table of families: all that the planner, validation, the tuner, explain, reports, predictions and
/// launches need of a family. The family's own file fills it. A new family is such a file and its line in
/// attention_families().
struct AttentionFamily {
  Family family;
  bool latent = false;  // the row is of the family's kernels for values in keys (VLayout::kKeyPrefix)
  /// Finds what the family lacks for a problem and a schedule, with any tile. It finds no contradictions: validate()
  /// has those.
  void (*check)(const AttentionProblem&, const AttentionSchedule&, std::vector<Violation>&);
  /// Checks the resolved tile against the machine's rows, registers and memory. A violation names the nearest tile that
  /// fits.
  void (*check_tile)(const AttentionSpec&, const AttentionSchedule&, const ArchInfo&, std::vector<Violation>&);
  /// Fills the fields that the family decides; `plan.main` has the problem, the family and the architecture. It also
  /// plans tiles that do not fit: check_tile() judges them.
  void (*plan)(const AttentionProblem&, const AttentionSchedule&, AttentionPlan& plan);
  /// The values that a tuner tries of each field, in sets whose combinations it walks.
  AxisSets (*axes)(const AttentionProblem&, const ArchInfo&);
  std::uint32_t (*shared_bytes)(const AttentionSpec&);
  std::vector<SharedRegion> (*shared_map)(const AttentionSpec&);
  std::vector<KernelRole> (*roles)(const AttentionSpec&);
  const char* mma = "mma.sync";     // the multiplying instruction, for explain
  const char* reader = "ldmatrix";  // the instruction that reads a tile, for explain
  /// Whether its decode form is the fastest of all families. Null: never.
  bool (*decodes_best)(const AttentionProblem&, AttentionSchedule) = nullptr;
  /// Null: the kernel takes no tensor memory.
  TensorMemoryMap (*tensor_memory_map)(const AttentionSpec&) = nullptr;
  /// Whether a model predicts the Spec, and the model. The model returns clocks of one SM with `resident` CTAs.
  /// `softmax` names the warps that compute the softmax of a kernel with roles. Null: no model exists.
  bool (*is_predicted)(const AttentionSpec&) = nullptr;
  double (*clocks)(const AttentionSpec&, const TimelineWork&, const SmRates&, int resident) = nullptr;
  SoftmaxForm (*softmax)(const AttentionSpec&) = nullptr;
  bool deals_items = false;             // prefill: each CTA has a list of items, or takes items from a queue
  bool alike_items_go_by_pair = false;  // where tiles are alike, tiles of one sequence and head are neighbours
  bool keeps_few_narrow_rows = false;   // few rows of fp8 queries are its own too: it multiplies fp8 and splits keys
};

/// The rows: families of one architecture, then portable.
std::span<const AttentionFamily* const> attention_families() noexcept;
/// The row of a family, which has one of its kernels for latent attention and one of its others.
const AttentionFamily& attention_row(Family family, bool latent = false) noexcept;
inline const AttentionFamily& family_row(const AttentionSpec& spec) noexcept {
  return attention_row(spec.family, spec.latent);
}
const AttentionFamily& portable_attention();
const AttentionFamily& hopper_attention();
const AttentionFamily& blackwell_attention();
const AttentionFamily& hopper_latent_attention();
const AttentionFamily& blackwell_latent_attention();
const AttentionFamily& portable_latent_attention();

inline bool deals_items(const AttentionSpec& spec) { return family_row(spec).deals_items && !spec.token_gen; }

/// What one family lacks.
std::vector<Violation> lacks(Family family, const AttentionProblem& problem, const AttentionSchedule& schedule);

/// Plans and maps in files of their own: <family>_choices.cpp, shared_map.cpp.
void plan_portable(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan);
void plan_hopper(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan);
void plan_hopper_decode(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan);
void plan_blackwell(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan);
void plan_hopper_latent(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan);
void plan_blackwell_latent(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan);
void plan_portable_latent(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan);
std::vector<SharedRegion> portable_map(const AttentionSpec& spec);
std::vector<SharedRegion> hopper_map(const AttentionSpec& spec);
std::vector<SharedRegion> hopper_decode_map(const AttentionSpec& spec);
std::vector<SharedRegion> blackwell_map(const AttentionSpec& spec);
std::vector<SharedRegion> hopper_latent_map(const AttentionSpec& spec);
std::vector<SharedRegion> blackwell_latent_map(const AttentionSpec& spec);
std::vector<SharedRegion> portable_latent_map(const AttentionSpec& spec);
TensorMemoryMap blackwell_tensor_memory(const AttentionSpec& spec);
TensorMemoryMap blackwell_latent_tensor_memory(const AttentionSpec& spec);
/// Roles of a kernel in which every warp loads, multiplies and stores.
std::vector<KernelRole> alike_roles(const AttentionSpec& spec);

/// Checks the resolved tile of kernels in which all warps do the same work: portable, and the decode form of hopper.
void check_portable_tile(const AttentionSpec& spec, const ArchInfo& arch, std::vector<Violation>& violations);

/// Whether keys and values are converted to the type of Q.
inline bool converts_keys(const AttentionSpec& spec) { return spec.kv != spec.q; }

/// Portable, and hopper's decode form: they multiply 16 bits. So they convert fp8 keys and values, also under fp8
/// queries, which they convert too.
inline bool converts_to_16_bits(const AttentionSpec& spec) { return bits_of(spec.kv) == 8; }

/// Checks the slots of K and V against each other, for tiles of K with so many slabs: hopper and blackwell prefill.
void check_rings(const AttentionSpec& spec, int qk_slabs, int least_kv_stages, std::vector<Violation>& violations);

/// The swizzle of q, k and v where TMA writes them, and why: hopper and blackwell, swizzle.cpp.
struct PlannedSwizzle {
  Swizzle swizzle;
  std::string reason;
};
PlannedSwizzle planned_swizzle(const AttentionSpec& spec);
/// The swizzles that a tuner tries: 128B and, where 128B would fill rows up with zeros, the widest that would not.
std::vector<Swizzle> swizzles_to_try(const AttentionProblem& problem);
/// Whether the rows of q, k and v are whole spans of the swizzle. 128B takes any rows: the last span is filled up with
/// zeros.
bool takes_swizzle(const AttentionSpec& spec, Swizzle swizzle);
/// Checks the resolved swizzle against these rows.
void check_swizzle(const AttentionSpec& spec, std::vector<Violation>& violations);

/// Plans the parts of split keys, and the kernel that merges them, for the decode forms of all families.
void choose_merge(const AttentionSchedule& schedule, AttentionPlan& plan, Resolver& resolve);

/// The share of exponentials that a polynomial computes: the schedule's, rounded to a sixteenth, or `planned`
/// sixteenths.
void choose_exponentials(const AttentionSchedule& schedule, int planned, const std::string& reason, AttentionSpec& spec,
                         Resolver& resolve);

/// An upper bound for the rows that share each KV head's keys. Below it, a decode form beats every prefill. 0: no bound
/// is known.
inline int max_rows_of_a_kv_head(const AttentionProblem& problem) { return problem.max_q_len * problem.group(); }
inline constexpr int kMaxDecodeRows = 64;
inline bool is_decode(const AttentionProblem& problem) {
  return problem.max_q_len > 0 && max_rows_of_a_kv_head(problem) <= kMaxDecodeRows;
}
/// Whether a schedule means the decode form of a family that has one.
inline bool means_decode(const AttentionProblem& problem, const AttentionSchedule& schedule) {
  return schedule.token_gen.value_or(is_decode(problem));
}

/// Whether the heads of a group should share tiles. Fewer tiles then read the same keys; with a window, far fewer. The
/// `rows` of one product must be whole groups: 64 rows of a wgmma, 128 of a tcgen05.mma.
inline bool packs_well(const AttentionProblem& problem, int rows) {
  return problem.group() > 1 && rows % problem.group() == 0;
}
inline constexpr int kWgmmaRows = 64;

inline contract::HopperShape hopper_shape_of(const AttentionSpec& spec) {
  return {.block_m = spec.block_m,
          .block_n = spec.block_n,
          .depth_qk = spec.head_dim_qk,
          .depth_v = spec.head_dim_v,
          .q_stages = spec.q_stages,
          .kv_stages = spec.num_kv_stages,
          .qk_stages = spec.num_qk_stages,
          .shared_ring = spec.kv_ring == KvRing::kShared,
          .gathers = contract::hopper_gathers_kv(spec.page_size),
          .mma_stages = spec.num_mma_stages,
          .swizzle_bytes = bytes_of(spec.swizzle),
          .q_bytes = bits_of(spec.q) / 8,
          .kv_bytes = bits_of(spec.kv) / 8,
          .column_slab = spec.v_columns ? contract::column_slab_bytes(spec.block_n, spec.page_size) : 0,
          .rope_depth = spec.rope_width,
          .keeps_halves = spec.promotes_runs() && contract::halves_in_shared(spec.math_warpgroups),
          .splits_q = spec.splits_q()};
}
/// Whether warps of attention_sm90 make operands of fp8 (contract::kConvertingWarps).
inline bool restages_keys(const AttentionSpec& spec) { return hopper_shape_of(spec).restages(); }
/// Of attention_sm90.
inline std::int32_t hopper_shared_bytes(const AttentionSpec& spec) {
  return contract::hopper_raw_ring(hopper_shape_of(spec)).total;
}

inline contract::BlackwellShape blackwell_shape_of(const AttentionSpec& spec) {
  return {.num_q = spec.num_q,
          .block_n = spec.block_n,
          .depth_qk = spec.head_dim_qk,
          .depth_v = spec.head_dim_v,
          .kv_stages = spec.num_kv_stages,
          .qk_stages = spec.num_qk_stages,
          .shared_ring = spec.kv_ring == KvRing::kShared,
          .ctas = spec.cta_group,
          .gathers = contract::hopper_gathers_kv(spec.page_size),
          .queued = spec.scheduler == Scheduler::kQueued,
          .parts = spec.cluster_n,
          .element_bytes = bits_of(spec.q) / 8,
          .rope_depth = spec.rope_width,
          .token_scales = scales_differ_by_key(spec.scales),
          .mma_stages = spec.num_mma_stages,
          .swizzle_bytes = bytes_of(spec.swizzle),
          .splits_keys = spec.split_keys};
}

/// The keys of a tile are a multiple of three numbers: an MMA's N, 16 for each of its CTAs, and 32 bytes of
/// probabilities. The product with V takes 32 bytes at a time.
inline int blackwell_key_step(const AttentionSpec& spec) {
  return std::max(16 * spec.cta_group, 32 * 8 / bits_of(spec.q));
}

/// The keys of a sub-stage of V are a multiple of this: 32 bytes of probabilities, and the rows that each CTA of a
/// cluster loads a share of. hopper and blackwell.
inline int value_key_step(const AttentionSpec& spec) {
  return std::max(32 * 8 / bits_of(spec.q), contract::kSwizzleRows * spec.multicast);
}

/// Keys of a tile that are whole sub-stages of V, and whole `step`s.
inline int staged_key_step(const AttentionSpec& spec, int step) {
  return std::lcm(step, spec.num_mma_stages * value_key_step(spec));
}

inline contract::DecodeLayout portable_decode_layout_of(const AttentionSpec& spec) {
  return contract::decode_layout(spec.block_m, spec.block_n, spec.num_warps, spec.head_dim_qk, spec.head_dim_v,
                                 spec.kv_slots(), 2, spec.row_sums());
}
inline contract::HopperDecodeLayout hopper_decode_layout_of(const AttentionSpec& spec) {
  return contract::hopper_decode_layout(spec.block_m, spec.block_n, spec.num_warps, spec.head_dim_qk, spec.head_dim_v,
                                        spec.num_stages, bytes_of(spec.swizzle), bits_of(spec.kv) / 8, spec.row_sums());
}

/// Registers of a math thread: scores, their exponentials in the type of Q, its share of the output, and the rest (row
/// statistics, addresses, loops). In fp8 a product with V has registers of its own, which take the sums' place too. It
/// has none where the output sums it.
inline int hopper_registers(const AttentionSpec& spec) {
  // Tiles of packed heads in a ragged batch may have warpgroups without a row. They take another way from item to item.
  const bool may_skip = spec.pack_gqa && spec.q_layout == QLayout::kRagged && spec.math_warpgroups > 1;
  const ScoreModFacts& facts = facts_of(spec.score_mod);
  const int mod = facts.registers + (spec.pack_gqa ? facts.registers_of_rows : 0);
  const int open = spec.opens_scores() ? 16 : 0;  // a row's elements, its range and its place
  // Normalised rows have scales of their own (policy/row_scales.cuh). Elsewhere there is room for them. Wide heads
  // spilled where scores are opened, or keys have scales.
  const bool normalises = spec.q == DType::kBf16 && converts_keys(spec), wide = spec.head_dim_v > 128;
  const int scales = !normalises                                 ? 0
                     : spec.opens_scores()                       ? wide ? 21 : 10
                     : wide && scales_differ_by_key(spec.scales) ? 4
                     : spec.score_mod == ScoreModKind::kAlibi    ? 2
                                                                 : 0;
  // Scales that differ by key: those of a tile, shared by the lanes of a warp, and of the next one.
  const int keys = scales_differ_by_key(spec.scales) ? 14 + (spec.block_n + 31) / 32 * 6 : 0;
  const int rest = (may_skip ? 40 : 32) + mod + open + scales + keys;
  const int q_bytes = bits_of(spec.q) / 8;
  const int output = (spec.head_dim_v + 1) / 2, scores = spec.block_n / 2;
  const int narrow = q_bytes == 1 ? contract::group_width(spec.head_dim_v) / 2 : 0;  // of an fp8 product with V
  const bool own = spec.promotes() && !spec.shares_scores();
  const int sums = contract::kSumRows / (spec.shares_scores() ? 1 : 2);  // of probabilities
  // Runs: the upper halves of sums. Kernels of wide heads spilled with an LSE, whose sums are there in every step.
  const int halves = hopper_shape_of(spec).keeps_halves ? 0 : (spec.head_dim_v + contract::kSumRows) / 4;
  // So did packed heads with sinks, of which each has a scale.
  const int item = spec.sinks && spec.pack_gqa && spec.scales == ScaleKind::kPerHead ? 4 : 0;
  const int runs = spec.promotes_runs() ? halves + item + (spec.lse ? halves > 0 ? 28 : 20 : 0) : 0;
  // A second part of P V. When it multiplies, no exponential is on its way. Parts within wide scores leave no register
  // for the sums of an LSE, or for sinks: such kernels spilled.
  const int more = spec.lse || spec.sinks ? 12 : 0;
  const int part = spec.pv_buffers == 1 ? 0 : contract::parts_lie_in_scores(spec.block_n) ? more - 20 : scores - 20;
  return scores + part + runs + (own || q_bytes != 1 ? narrow : sums) + spec.block_n * q_bytes / 8 + output + rest;
}
/// The registers that setmaxnreg can give each math thread, of 64K, beside a warpgroup that loads keys. That one needs
/// more where it gathers keys or makes operands, and where it counts those before a sequence's start
/// (attention_mapped.cuh).
inline int hopper_register_budget(const AttentionSpec& spec, int math_warpgroups) {
  if (math_warpgroups == 3) return 160;
  if (math_warpgroups == 1) return 256;
  const bool hides_in_tiles = spec.kv_starts && (spec.page_size > 0 || spec.chunk > 1);
  return contract::hopper_gathers_kv(spec.page_size) || hides_in_tiles || restages_keys(spec) ? 232 : 240;
}

}  // namespace kernelwright::detail
