// The blackwell family's choices: a first guess from tensor memory and shared memory, which tuned rows override.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/launch.h"

namespace kernelwright {
namespace {

using detail::Resolver;

constexpr int kMostKeys = 128, kLeastKeys = 64;
constexpr int kMostSharedSlots = 8, kMostSplitSlots = 4;  // of whole tiles; a pair's slot has half a tile
constexpr int kLeastSlots = 2;
constexpr int kGoodSharedSlots = 3;  // a K and a V are held while the next K arrives
constexpr int kGoodBoxRows = 32;     // of a page: smaller boxes would be many copies

/// How many of every 16 exponentials a polynomial computes. The special-function unit computes the others. sm_103a's
/// unit is twice as fast.
int emulated_by_default(Arch arch) { return arch == Arch::kSm103a ? 0 : 3; }

class Tile {
 public:
  Tile(const AttentionProblem& problem, AttentionPlan& plan, const AttentionSchedule& schedule, Resolver& resolve)
      : problem_(problem),
        plan_(plan),
        spec_(plan.main),
        schedule_(schedule),
        resolve_(resolve),
        machine_(arch_info(spec_.arch)) {}

  void choose() {
    choose_rows();
    choose_parts();
    spec_.swizzle = schedule_.swizzle.value_or(detail::planned_swizzle(spec_).swizzle);  // slots are as wide
    choose_keys();
    choose_rings();
    choose_order();
  }

 private:
  void choose_rows() {
    const bool packs = detail::packs_well(problem_, contract::kQueryTileRows);
    spec_.pack_gqa = resolve_("pack_gqa", schedule_.pack_gqa, packs,
                              packs                   ? "the heads of a group read the same keys: one tile for all"
                              : problem_.group() == 1 ? "each head has keys of its own"
                                                      : "128 rows of a query tile are not whole groups");
    const int asked_rows = schedule_.block_m.value_or(0), queries = problem_.max_q_len;  // 0: any
    const int rows = queries * (spec_.pack_gqa ? spec_.group : 1);
    const bool by_rows = asked_rows == contract::kQueryTileRows || asked_rows == 2 * contract::kQueryTileRows;
    const bool pair = schedule_.cta_group.value_or(1) == 2, shares = schedule_.cluster.value_or({}).n > 1;
    few_rows_ = !pair && rows > 0 && rows <= contract::kQueryTileRows;
    const bool one = !pair && (by_rows ? asked_rows == contract::kQueryTileRows : few_rows_ || shares);
    spec_.num_q =
        resolve_("num_q", schedule_.num_q, one ? 1 : 2,
                 pair        ? "each CTA of a pair has two: products are 256 rows of both"
                 : by_rows   ? fmt::format("one for each {} of block_m's {} rows", contract::kQueryTileRows, asked_rows)
                 : few_rows_ ? fmt::format("at most {} rows: its key tiles are dealt to two accumulators", rows)
                 : shares    ? "the CTAs of a cluster share one"
                             : "one tile's exponentials hide behind the other's products");
    spec_.block_m = resolve_("block_m", schedule_.block_m, contract::kQueryTileRows * spec_.num_q,
                             "128 rows a query tile: a softmax thread has one");
    choose_ctas();
  }

  /// A pair leaves room for more stages, but each CTA waits for the other's probabilities. No measurement says which
  /// matters more.
  void choose_ctas() {
    spec_.cta_group =
        resolve_("cta_group", schedule_.cta_group, 1, "a CTA that multiplies for itself waits for no other");
    const ClusterShape cluster =
        resolve_("cluster", schedule_.cluster, ClusterShape{spec_.cta_group, 1},
                 spec_.cta_group == 2 ? "the two that share each product" : "nothing is shared");
    spec_.cluster_m = cluster.m, spec_.cluster_n = cluster.n;
  }

  /// Chooses into how many parts the keys of an item are cut, and where the parts meet.
  void choose_parts() {
    if (spec_.cluster_n > 1) {
      plan_.splits = spec_.cluster_n;
      return resolve_.derived("splits", plan_.splits, "each CTA of a cluster takes a part of the keys");
    }
    // A schedule that names a merge asks for parts. A queue gives out whole items, so it excludes parts.
    const bool queued = schedule_.scheduler.value_or(Scheduler::kGrid) == Scheduler::kQueued;
    const bool may_split = (few_rows_ && !queued) || !schedule_.merge.is_auto();
    plan_.splits = schedule_.splits.value_or(may_split ? 0 : 1);
    resolve_.derived("splits", plan_.splits,
                     !schedule_.splits.is_auto() ? "the schedule says so"
                     : may_split                 ? "0: from the shape, at launch"
                     : queued                    ? "a queue hands out whole items"
                                                 : "queries enough to fill the machine");
    spec_.split_keys = plan_.splits != 1;
    if (!spec_.split_keys) return;
    spec_.merge =
        resolve_("merge", schedule_.merge, Merge::kCombine,
                 "rows of 128 a tile: all SMs merge them, where one CTA would take as long as for their keys");
    if (spec_.merge == Merge::kCombine) plan_.combine = CombineSpec{spec_.arch, spec_.out, spec_.head_dim_v, spec_.lse};
  }

  /// Takes as many keys as tensor memory holds. It takes fewer if only few tiles of long heads fit, because loads would
  /// then wait for products.
  void choose_keys() {
    spec_.num_mma_stages = schedule_.num_mma_stages.value_or(1);
    const int step = detail::staged_key_step(spec_, detail::blackwell_key_step(spec_));
    const int most = kMostKeys / step * step;
    int keys = most;
    while (keys - step >= kLeastKeys && !runs_well(keys)) keys -= step;
    if (!runs_well(keys)) keys = most;
    spec_.block_n = resolve_("block_n", schedule_.block_n, keys,
                             keys == most ? "two tiles of scores and two of outputs fit tensor memory"
                                          : "shared memory takes a tile of K and one of V, and the next one");
  }
  bool runs_well(int keys) {
    spec_.block_n = keys;
    const auto box_rows = [&](int rows) {
      return contract::hopper_kv_box_rows(rows / spec_.cta_group, spec_.page_size);
    };
    if (box_rows(keys) < std::min(kGoodBoxRows, box_rows(kMostKeys))) return false;
    const bool shared = schedule_.kv_ring.value_or(KvRing::kShared) == KvRing::kShared;
    const bool split = schedule_.kv_ring.value_or(KvRing::kSplit) == KvRing::kSplit;
    return (shared && fits_with(KvRing::kShared, kGoodSharedSlots)) ||
           (split && fits_with(KvRing::kSplit, kLeastSlots));
  }
  bool fits_with(KvRing ring, int slots) const {
    AttentionSpec spec = spec_;
    spec.kv_ring = ring;
    spec.num_kv_stages = slots;
    spec.num_mma_stages = schedule_.num_mma_stages.value_or(1);
    spec.num_qk_stages =
        ring == KvRing::kShared ? spec.num_mma_stages : schedule_.num_qk_stages.value_or(spec.num_mma_stages);
    return static_cast<int>(shared_bytes(spec)) <= machine_.shared_bytes_per_cta;
  }

  /// The slots of a ring that fit, at most `most`.
  int slots(KvRing ring, int most) const {
    AttentionSpec spec = spec_;
    spec.kv_ring = ring;
    if (ring == KvRing::kShared) spec.num_qk_stages = spec.num_mma_stages;
    spec.num_kv_stages = most;
    while (spec.num_kv_stages > kLeastSlots && static_cast<int>(shared_bytes(spec)) > machine_.shared_bytes_per_cta)
      --spec.num_kv_stages;
    return spec.num_kv_stages;
  }

  void choose_rings() {
    const int stages = schedule_.num_mma_stages.value_or(1);
    spec_.num_mma_stages = resolve_("num_mma_stages", schedule_.num_mma_stages, 1, "V arrives whole");
    spec_.num_qk_stages = schedule_.num_qk_stages.value_or(stages);
    const int most_shared = kMostSharedSlots * spec_.cta_group, most_split = kMostSplitSlots * spec_.cta_group;
    const int shared_slots = slots(KvRing::kShared, most_shared), pairs = slots(KvRing::kSplit, most_split);
    const bool chunks = spec_.num_qk_stages != stages;
    // Two rings of an odd number of slots would leave one slot unused.
    const bool shared = !chunks && (shared_slots > 2 * pairs || !fits_with(KvRing::kSplit, pairs));
    spec_.kv_ring = resolve_("kv_ring", schedule_.kv_ring, shared ? KvRing::kShared : KvRing::kSplit,
                             shared   ? fmt::format("{} slots fit, more than two rings would hold", shared_slots)
                             : chunks ? "one ring would hold K as it holds V"
                                      : "K runs ahead of V by its own count");
    spec_.num_qk_stages = resolve_("num_qk_stages", schedule_.num_qk_stages, stages,
                                   stages == 1 ? "K arrives whole" : "K arrives in as many sub-stages as V");
    const bool one = spec_.kv_ring == KvRing::kShared;
    const int most = one ? most_shared : most_split;
    spec_.num_kv_stages = resolve_("num_kv_stages", schedule_.num_kv_stages, one ? shared_slots : pairs,
                                   fmt::format("as many as fit shared memory, {} at most", most));
  }

  void choose_order() {
    const bool uneven = spec_.mask != MaskKind::kNone;
    spec_.scheduler = resolve_("scheduler", schedule_.scheduler, uneven ? Scheduler::kLongestFirst : Scheduler::kGrid,
                               uneven ? "the mask makes tiles of unequal length: long ones first end together"
                                      : "tiles are alike: those of a head follow each other");
    const detail::PlannedSwizzle planned = detail::planned_swizzle(spec_);
    spec_.swizzle = resolve_("swizzle", schedule_.swizzle, planned.swizzle, planned.reason);
    spec_.rescale =
        resolve_("rescale", schedule_.rescale, Rescale::kLazy, "most tiles leave the row maximum nearly as it was");
    const int emulated = emulated_by_default(spec_.arch);
    detail::choose_exponentials(
        schedule_, emulated,
        emulated == 0
            ? "the special-function unit keeps up with the products"
            : fmt::format("{} of every {}: the special-function unit takes the others meanwhile", emulated, kExp2Step),
        spec_, resolve_);
  }

  const AttentionProblem& problem_;
  AttentionPlan& plan_;
  AttentionSpec& spec_;
  const AttentionSchedule& schedule_;
  Resolver& resolve_;
  const ArchInfo& machine_;
  bool few_rows_ = false;  // all of a sequence's queries fit one query tile
};

}  // namespace

void detail::plan_blackwell(const AttentionProblem& problem, const AttentionSchedule& schedule, AttentionPlan& plan) {
  Resolver resolve(plan.choices);
  Tile(problem, plan, schedule, resolve).choose();
}

}  // namespace kernelwright
