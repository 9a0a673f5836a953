// The hopper family's choices: a first guess from registers and shared memory, which tuned rows override.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/problem/range_mask.h"

namespace kernelwright {
namespace {

using detail::Resolver;

/// The family's first guess, by the wider of the two head sizes. Measured on an H100: docs/attention/hopper.md.
struct Target {
  int max_depth, math_warpgroups, block_n, q_stages;
  KvRing kv_ring;
  Overlap overlap;
  int qk_stages = 1, mma_stages = 1;   // sub-stages of a tile of K, and of V
  int pv_promote = 1, pv_buffers = 1;  // of fp8 products
};
constexpr Target kTargets[] = {{64, 3, 128, 2, KvRing::kSplit, Overlap::kBoth, 1, 2},
                               {128, 3, 80, 2, KvRing::kShared, Overlap::kBoth},
                               {192, 2, 112, 1, KvRing::kSplit, Overlap::kIntra},
                               {256, 2, 80, 1, KvRing::kSplit, Overlap::kBoth, 2, 2}};
/// Short sequences: 192 rows leave many tiles partly empty, and under a causal mask mostly masked. Their queries are
/// loaded two items ahead. The reason: an item ends soon after its output has left the slot that the next queries need.
/// Items of one to four tiles hardly repay the wait for a turn: with heads of 64, `intra` is 1.03 of `both` at 512.
struct ShortTarget {
  int longest, longest_causal;  // queries
  Target target;
};
constexpr ShortTarget kShortTargets[] = {{0, 512, {64, 2, 128, 4, KvRing::kSplit, Overlap::kIntra}},
                                         {0, 1024, {64, 2, 128, 4, KvRing::kSplit, Overlap::kBoth}},
                                         {512, 2048, {128, 2, 128, 3, KvRing::kSplit, Overlap::kBoth}}};
/// fp8 products: a product with V needs registers too, unless it adds to the output for runs of tiles. It takes those
/// of scores where steps are one product after the other, so tiles may be wider, or warpgroups more.
///
/// Runs of three warpgroups are the fastest of heads of 80, 96 and 128, except where 192 rows leave short sequences'
/// tiles partly empty. Beside the sums of an LSE their tiles have 64 keys.
enum class Lengths { kAny, kShort };
struct NarrowTarget {
  int max_depth_v;
  Target target;
  Lengths lengths = Lengths::kAny;
  bool lse = false;  // only with one
};
constexpr int kShortQueries = 2048;
constexpr NarrowTarget kNarrowTargets[] = {
    {64, {64, 3, 96, 2, KvRing::kSplit, Overlap::kBoth}},
    {96, {96, 3, 96, 2, KvRing::kSplit, Overlap::kIntra, 1, 1, 16}},
    {112, {112, 2, 128, 2, KvRing::kSplit, Overlap::kIntra, 1, 1, 8}},
    {128, {128, 2, 128, 2, KvRing::kSplit, Overlap::kIntra, 1, 1, 12}, Lengths::kShort},
    {128, {128, 3, 96, 2, KvRing::kSplit, Overlap::kIntra, 1, 1, 16}},
    {128, {128, 3, 64, 2, KvRing::kSplit, Overlap::kIntra, 1, 1, 16}, Lengths::kAny, true},
    {128, {192, 2, 128, 2, KvRing::kSplit, Overlap::kIntra, 1, 1, 8}},
    {128, {128, 2, 128, 2, KvRing::kSplit, Overlap::kNone}},
    {128, {192, 3, 64, 2, KvRing::kSplit, Overlap::kNone}},
    {256, {256, 2, 128, 2, KvRing::kSplit, Overlap::kNone, 1, 1, 1, 2}},
    {256, {256, 2, 64, 2, KvRing::kSplit, Overlap::kNone}},
    {256, {256, 2, 96, 2, KvRing::kSplit, Overlap::kBoth}}};
/// Scales that differ by key take registers, too: no tile of 192 rows, and narrower ones.
constexpr NarrowTarget kNarrowScaledTargets[] = {{64, {64, 2, 96, 2, KvRing::kSplit, Overlap::kBoth}},
                                                 {128, {192, 2, 64, 2, KvRing::kSplit, Overlap::kNone}},
                                                 {256, {256, 2, 64, 2, KvRing::kSplit, Overlap::kBoth}}};
/// Ragged batches of packed heads, whose sequences may be chunks or decode.
constexpr Target kPackedRagged{128, 2, 128, 2, KvRing::kShared, Overlap::kIntra};
/// fp8 keys and values under bf16 queries: warps convert V alone. 192 rows gain 0.5 % without turns (H200).
constexpr Target kSplitTargets[] = {{64, 3, 128, 2, KvRing::kSplit, Overlap::kIntra},
                                    {128, 3, 80, 2, KvRing::kSplit, Overlap::kIntra},
                                    {192, 2, 112, 1, KvRing::kSplit, Overlap::kIntra},
                                    {256, 2, 80, 1, KvRing::kSplit, Overlap::kBoth}};
/// fp8 keys and values under f16 queries, which warps convert: their heads of more than 192. One ring has room for
/// tiles of 80 keys, two rings for tiles of 64. Narrow tiles read each query from shared memory more often, and beside
/// the conversion shared memory has no time for that.
constexpr Target kConverted{256, 2, 80, 1, KvRing::kShared, Overlap::kBoth};
constexpr int kConvertedFrom = 193;
constexpr int kNarrowTiles = 3;  // a window of fewer key tiles is narrow: its items are short
constexpr int kNarrowQueryStages = 3;
constexpr int kTurnsOfParts = 256;  // heads for which parts of P V in turn were timed, and won
constexpr int kBriefQueries = 512;
constexpr int kNarrowDepth = 32;  // such heads gain from sub-stages without a mask, and lose with a causal one

/// Whether sums of fp8 may stay in the tensor cores for more than a tile. A schedule may promote after every tile, let
/// parts of a product take turns, or order steps as only such kernels gain from.
bool takes_runs(const AttentionSchedule& schedule) {
  const Overlap overlap = schedule.overlap.value_or(Overlap::kIntra);
  return schedule.pv_promote.value_or(0) != 1 && schedule.pv_buffers.value_or(1) == 1 &&
         (overlap == Overlap::kIntra || overlap == Overlap::kBoth);
}

/// Whether a kernel has the registers for the target's tile.
bool has_registers(AttentionSpec spec, const Target& target, bool packs) {
  spec.math_warpgroups = target.math_warpgroups;
  spec.block_n = target.block_n;
  spec.overlap = target.overlap;
  spec.pv_promote = target.pv_promote;
  spec.pv_buffers = target.pv_buffers;
  spec.pack_gqa = packs;
  return detail::hopper_registers(spec) <= detail::hopper_register_budget(spec, spec.math_warpgroups);
}

/// Whether the schedule leaves room for a target whose parts of P V take turns within the registers of scores: heads of
/// 256, for which they were timed.
bool suits_turns(const AttentionSpec& spec, const AttentionSchedule& schedule, const Target& target, bool packs) {
  const Overlap overlap = schedule.overlap.value_or(Overlap::kPingPong);
  return spec.head_dim_v >= kTurnsOfParts && schedule.pv_promote.value_or(1) == 1 &&
         schedule.pv_buffers.value_or(2) == 2 && schedule.block_n.value_or(target.block_n) == target.block_n &&
         (overlap == Overlap::kPingPong || overlap == Overlap::kNone) && has_registers(spec, target, packs);
}

/// Whether a kernel of runs has the registers for the target's tile, and the schedule's warpgroups. Of three it is for
/// items that see many keys.
bool suits_runs(const AttentionSpec& spec, const AttentionSchedule& schedule, const Target& target, bool packs) {
  if (target.math_warpgroups == 3 && schedule.math_warpgroups.value_or(3) != 3) return false;
  if (target.math_warpgroups == 3 && (spec.mask == MaskKind::kSlidingWindow || spec.v_columns)) return false;
  return has_registers(spec, target, packs);
}

/// The first that fits the heads. Steps of one product after the other are for products that take the registers of
/// scores.
const Target& narrow_target_for(const AttentionProblem& problem, const AttentionSchedule& schedule,
                                const AttentionSpec& spec, bool packs, std::span<const NarrowTarget> targets) {
  const HeadDim& head_dim = problem.head_dim;
  const bool is_short = problem.max_q_len > 0 && problem.max_q_len <= kShortQueries;
  for (const auto& [max_depth_v, target, lengths, lse] : targets) {
    const bool one_product = target.overlap == Overlap::kNone;
    if (std::max(head_dim.qk, head_dim.v) > target.max_depth || head_dim.v > max_depth_v) continue;
    if ((lengths == Lengths::kShort && !is_short) || (lse && !problem.lse)) continue;
    if (target.pv_promote != 1 && !(takes_runs(schedule) && suits_runs(spec, schedule, target, packs))) continue;
    if (target.pv_buffers != 1 && !suits_turns(spec, schedule, target, packs)) continue;
    if (!one_product || contract::shares_scores(one_product, target.block_n, head_dim.v)) return target;
  }
  return targets.back().target;
}

const Target& target_for(const AttentionProblem& problem, const AttentionSchedule& schedule, const AttentionSpec& spec,
                         bool packs) {
  const MaskKind mask = spec.mask;
  const int depth = std::max(problem.head_dim.qk, problem.head_dim.v);
  const bool scales_keys = scales_differ_by_key(problem.scales);
  if (bits_of(problem.dtype.q) == 8)
    return narrow_target_for(problem, schedule, spec, packs,
                             scales_keys ? std::span<const NarrowTarget>(kNarrowScaledTargets) : kNarrowTargets);
  const bool mixed = packs && problem.q_layout == QLayout::kRagged && mask != MaskKind::kSlidingWindow;
  if ((mixed || scales_keys) && depth <= kPackedRagged.max_depth) return kPackedRagged;
  if (detail::converts_keys(spec) && !spec.splits_q() && depth >= kConvertedFrom) return kConverted;
  const int queries = problem.max_q_len;  // 0: any
  int nearest = 0;                        // the rows of one depth follow each other
  for (const auto& [longest, longest_causal, target] : kShortTargets) {
    if (depth > target.max_depth) continue;
    if (nearest != 0 && target.max_depth != nearest) break;
    nearest = target.max_depth;
    if (queries > 0 && queries <= (mask == MaskKind::kNone ? longest : longest_causal)) return target;
  }
  const std::span<const Target> targets = spec.splits_q() ? std::span<const Target>(kSplitTargets) : kTargets;
  for (const Target& target : targets)
    if (depth <= target.max_depth) return target;
  return targets.back();
}

/// The number of keys that a tile of `rows` sees under a window with two ends; 0 without one.
int window_span(const AttentionProblem& problem, int rows) {
  const RangeMask mask = range_mask(problem.mask);
  const Window& window = mask.window;
  if (mask.kind != MaskKind::kSlidingWindow || window.left < 0 || window.right < 0) return 0;
  constexpr int kWide = 1 << 20;
  if (window.left > kWide || window.right > kWide) return 0;
  return window.left + window.right + rows;
}

class Tile {
 public:
  Tile(const AttentionProblem& problem, AttentionSpec& spec, const AttentionSchedule& schedule, Resolver& resolve)
      : spec_(spec),
        schedule_(schedule),
        resolve_(resolve),
        problem_(problem),
        machine_(arch_info(spec.arch)),
        packs_(schedule.pack_gqa.value_or(detail::packs_well(problem, detail::kWgmmaRows))),
        target_(target_for(problem, schedule, spec, packs_)) {}

  void choose() {
    spec_.pv_promote = schedule_.pv_promote.value_or(target_.pv_promote);  // registers follow from it
    spec_.pv_buffers = schedule_.pv_buffers.value_or(target_.pv_buffers);
    spec_.swizzle = schedule_.swizzle.value_or(detail::planned_swizzle(spec_).swizzle);  // slots are as wide
    spec_.pack_gqa = resolve_("pack_gqa", schedule_.pack_gqa, packs_,
                              packs_                  ? "the heads of a group read the same keys: one tile for all"
                              : problem_.group() == 1 ? "each head has keys of its own"
                                                      : "64 rows of a warpgroup are not whole groups");
    choose_rows();
    choose_cluster();
    choose_rings();
    choose_keys();
    choose_order();
  }

 private:
  bool fits() const {
    return static_cast<int>(shared_bytes(spec_)) <= machine_.shared_bytes_per_cta &&
           detail::hopper_registers(spec_) <= detail::hopper_register_budget(spec_, spec_.math_warpgroups);
  }

  void choose_rows() {
    spec_.overlap = schedule_.overlap.value_or(target_.overlap);  // registers follow from it
    const int from_rows = schedule_.block_m.value_or(0);
    const bool by_rows = from_rows == 64 || from_rows == 128 || from_rows == 192;
    int warpgroups = target_.math_warpgroups;
    if (!schedule_.block_n.is_auto()) {
      spec_.block_n = schedule_.block_n.value();
      while (warpgroups > 1 && detail::hopper_registers(spec_) > detail::hopper_register_budget(spec_, warpgroups))
        --warpgroups;
    }
    spec_.math_warpgroups =
        resolve_("math_warpgroups", schedule_.math_warpgroups, by_rows ? from_rows / 64 : warpgroups,
                 by_rows           ? fmt::format("one for each 64 of block_m's {} rows", from_rows)
                 : warpgroups == 3 ? "heads this narrow leave registers for three"
                 : warpgroups == 2 ? "two take turns at the tensor cores and leave 240 registers a thread"
                                   : "a tile this wide takes the registers of two");
    spec_.block_m = resolve_("block_m", schedule_.block_m, 64 * spec_.math_warpgroups, "64 rows a math warpgroup");
  }

  void choose_cluster() {
    const ClusterShape cluster =
        resolve_("cluster", schedule_.cluster, ClusterShape{}, "a CTA that loads for itself alone waits for no other");
    spec_.cluster_m = spec_.multicast = cluster.m;
  }

  /// Whether the target's sub-stages are a gain. They were measured (docs/attention/hopper.md) in tiles of the target's
  /// own size, of padded or ragged keys, that one CTA loads for itself and makes no operands of. There was no mask or a
  /// causal one. A window loses: its items have few tiles, and no product of theirs waits for V.
  bool cuts_tiles() const {
    const bool as_it_is = schedule_.num_mma_stages.is_auto() && schedule_.num_qk_stages.is_auto() &&
                          schedule_.kv_ring.is_auto() && schedule_.block_n.is_auto() && schedule_.swizzle.is_auto() &&
                          spec_.math_warpgroups == target_.math_warpgroups && spec_.cluster_m == 1;
    const bool narrow = std::max(spec_.head_dim_qk, spec_.head_dim_v) <= kNarrowDepth;
    return as_it_is && !detail::restages_keys(spec_) && spec_.kv_layout != KvLayoutKind::kPaged &&
           (spec_.mask == MaskKind::kNone || (spec_.mask == MaskKind::kCausal && !narrow));
  }

  void choose_rings() {
    const bool cuts = cuts_tiles();
    const int values = schedule_.num_mma_stages.value_or(cuts ? target_.mma_stages : 1);
    const int keys = cuts ? target_.qk_stages : values;  // K follows the V of a schedule
    const bool splits = schedule_.num_qk_stages.value_or(keys) != values || schedule_.num_kv_stages.value_or(2) < 2;
    const bool shared = target_.kv_ring == KvRing::kShared && !splits && !spec_.splits_q();
    spec_.kv_ring = resolve_("kv_ring", schedule_.kv_ring, shared ? KvRing::kShared : KvRing::kSplit,
                             shared             ? "one ring uses every slot that fits, be their number odd"
                             : splits           ? "one ring would hold K as it holds V, and two tiles"
                             : spec_.splits_q() ? "TMA fills the slots of K, and warps those of V"
                                                : "K runs ahead of V by its own count");
    spec_.num_mma_stages =
        resolve_("num_mma_stages", schedule_.num_mma_stages, values,
                 values == 1 ? "V arrives whole" : "products with V begin when a part of its keys is there");
    spec_.num_qk_stages = resolve_("num_qk_stages", schedule_.num_qk_stages, keys,
                                   keys == 1 ? "K arrives whole" : "K arrives in as many sub-stages as V");
    spec_.q_stages = schedule_.q_stages.value_or(std::min(target_.q_stages, 2));
    spec_.num_kv_stages = schedule_.num_kv_stages.value_or(2);
  }

  /// Takes the widest tile that fits with two stages. What is left goes to a second slot for Q, and then to stages.
  void choose_keys() {
    // Whole pages, or boxes of half a page, mean fewer copies. That saves more than a tile with a few more keys.
    const bool wide_pages = spec_.kv_layout == KvLayoutKind::kPaged && spec_.page_size % 32 == 0;
    const int step = detail::staged_key_step(spec_, wide_pages ? 32 : 16);
    // If the step is wider than the target, the tile is one that validation refuses by name.
    spec_.block_n = schedule_.block_n.value_or(std::max(step, target_.block_n / step * step));
    if (schedule_.block_n.is_auto())
      while (spec_.block_n > step && !fits()) spec_.block_n -= step;
    // A narrow window: as few tiles as possible, each no wider than it must be.
    const int rows = spec_.block_m * spec_.cluster_m;
    const int span = window_span(problem_, spec_.pack_gqa ? rows / spec_.group : rows);
    const int tiles = (span + spec_.block_n - 1) / spec_.block_n;
    const bool narrow = span > 0 && tiles < kNarrowTiles;
    if (narrow && schedule_.block_n.is_auto()) spec_.block_n = ((span + tiles - 1) / tiles + step - 1) / step * step;
    spec_.block_n = resolve_("block_n", schedule_.block_n, spec_.block_n,
                             fmt::format("{} keys of scores and exponentials fit the registers beside the output, and "
                                         "their stages shared memory",
                                         spec_.block_n));
    const auto raise = [&](int& count, int most) {
      while (count < most) {
        ++count;
        if (fits()) continue;
        --count;
        break;
      }
    };
    if (schedule_.q_stages.is_auto())
      raise(spec_.q_stages, std::max(narrow ? kNarrowQueryStages : 2, target_.q_stages));
    spec_.q_stages = resolve_("q_stages", schedule_.q_stages, spec_.q_stages,
                              spec_.q_stages == 1   ? "a second slot would not fit shared memory"
                              : spec_.q_stages == 2 ? "the next tile's queries arrive behind this one's keys"
                                                    : "tiles of few keys: queries are on the way two tiles ahead");
    const bool shared_ring = spec_.kv_ring == KvRing::kShared;
    const int most = shared_ring ? 8 : 4;
    // A narrow window's item ends after its two or three tiles, however many more could be in flight.
    const int wanted = narrow && !shared_ring ? kNarrowTiles : most;
    if (schedule_.num_kv_stages.is_auto()) raise(spec_.num_kv_stages, wanted);
    spec_.num_kv_stages = resolve_("num_kv_stages", schedule_.num_kv_stages, spec_.num_kv_stages,
                                   fmt::format("as many as fit shared memory, {} at most", wanted));
  }

  void choose_order() {
    const bool alone = spec_.math_warpgroups == 1;
    // Where a product with V has registers of its own, kernels without turns spilled a few bytes.
    const bool in_turn = target_.overlap == Overlap::kNone && spec_.head_dim_v <= 128 &&
                         !contract::shares_scores(true, spec_.block_n, spec_.head_dim_v);
    // Products of parts that take turns follow each other closely. Parts that wait for each other would hold a turn
    // long.
    const bool fills_turns = target_.overlap == Overlap::kNone && planned_buffers() == 2;
    spec_.overlap = resolve_(
        "overlap", schedule_.overlap,
        alone                    ? Overlap::kIntra
        : in_turn || fills_turns ? Overlap::kPingPong
                                 : target_.overlap,
        alone         ? "one warpgroup has nobody to take turns with"
        : fills_turns ? "exponentials hide behind the other warpgroup's turn, whose products follow each other closely"
        : target_.overlap == Overlap::kBoth
            ? "exponentials hide behind the other warpgroups' products and behind the tile's own"
        : target_.pv_promote != 1 ? "a tile's two products run together; those of the other warpgroup hide exponentials"
        : target_.overlap == Overlap::kIntra
            ? "the tile's own products hide the exponentials"
            : "exponentials hide behind the other warpgroups' products; the tile's own take the "
              "registers of scores");
    const bool mixed = spec_.pack_gqa && spec_.q_layout == QLayout::kRagged;
    const bool uneven = spec_.mask != MaskKind::kNone;
    // Items of a short sequence end before the queue's answer pays for the question. So do items that see little of a
    // long sequence.
    const int reach = window_span(problem_, spec_.pack_gqa ? spec_.block_m / spec_.group : spec_.block_m);
    const bool brief = uneven && ((problem_.max_q_len > 0 && problem_.max_q_len <= kBriefQueries) ||
                                  (reach > 0 && reach <= kBriefQueries));
    const bool queues = !mixed && !brief && spec_.cluster_m == 1 && !contract::hopper_gathers_kv(spec_.page_size);
    const Scheduler dealt = uneven && !mixed ? Scheduler::kLongestFirst : Scheduler::kPersistent;
    spec_.scheduler =
        resolve_("scheduler", schedule_.scheduler, queues ? Scheduler::kQueued : dealt,
                 mixed    ? "in the order of the batch, every other CTA backwards: chunks multiply while decodes load"
                 : queues ? "tiles go to whoever is free: up to 3 % over dealing them beforehand"
                 : uneven ? "the mask makes tiles of unequal length: long ones first end together"
                          : "tiles are alike: a CTA an SM walks its share");
    const detail::PlannedSwizzle planned = detail::planned_swizzle(spec_);
    spec_.swizzle = resolve_("swizzle", schedule_.swizzle, planned.swizzle, planned.reason);
    spec_.rescale =
        resolve_("rescale", schedule_.rescale, Rescale::kLazy, "most tiles leave the row maximum nearly as it was");
    const bool narrow = bits_of(spec_.q) == 8;
    if (narrow || !schedule_.exp2_emulated.is_auto())
      detail::choose_exponentials(
          schedule_, 0, "the special-function unit takes all: shares of 1/8 and 1/4 were no faster on an H100", spec_,
          resolve_);
    if (!narrow) return;
    if (spec_.pv_promote == 0)
      resolve_.derived("pv_promote", 0,
                       "the schedule leaves sums of P V in the tensor cores, which keep 14 bits of them");
    else
      resolve_(
          "pv_promote", schedule_.pv_promote, target_.pv_promote,
          target_.pv_promote == 1
              ? "tensor cores keep 14 bits of sums of fp8, so P V is added to the output in f32 after every key tile"
              : "tensor cores keep 14 bits of sums of fp8: enough for so many key tiles, whose sum then moves on");
    choose_buffers();
  }

  /// Tiles of registers that parts of a product with V take in turn.
  int planned_buffers() const {
    AttentionSpec two = spec_;
    two.pv_buffers = schedule_.pv_buffers.value_or(spec_.head_dim_v >= kTurnsOfParts ? 2 : 1);
    const bool fit = detail::hopper_registers(two) <= detail::hopper_register_budget(two, two.math_warpgroups);
    return spec_.parts_take_turns() && fit ? two.pv_buffers : 1;
  }
  void choose_buffers() {
    if (!spec_.promotes()) return;
    const int planned = planned_buffers();
    spec_.pv_buffers =
        resolve_("pv_buffers", schedule_.pv_buffers, planned,
                 planned == 2                ? "a part of P V multiplies while the one before is added to the output"
                 : !spec_.parts_take_turns() ? "no parts as wide as the scores could take turns"
                 : spec_.head_dim_v < kTurnsOfParts ? "parts in turn have been timed for heads of 256 alone"
                                                    : "registers have no room for a second part of P V");
  }

  AttentionSpec& spec_;
  const AttentionSchedule& schedule_;
  Resolver& resolve_;
  const AttentionProblem& problem_;
  const ArchInfo& machine_;
  const bool packs_;
  const Target& target_;
};

}  // namespace

void detail::plan_hopper(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan) {
  if (plan.main.token_gen) return plan_hopper_decode(problem, schedule, plan);
  Resolver resolve(plan.choices);
  plan.splits = 1;
  Tile(problem, plan.main, schedule, resolve).choose();
}

}  // namespace kernelwright
