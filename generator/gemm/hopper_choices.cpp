// Tiles of the hopper GEMM: a few forms, which the model of hopper_cost.cpp ranks.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "contract/gemm_params.h"
#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/plan/machine.h"

namespace kernelwright::detail {
namespace {

/// A tile, and the warps or CTAs that work on it.
struct Form {
  int block_m, block_n, math_warpgroups;
  Roles roles;
  int k_group = 1;
  bool swap_ab = false;
  int split_k = 1;
  // The problems for which it may be the best.
  enum {
    kAny,
    kOf8Bits,
    kOfBlocks,
    kOfFewBlocks,
    kOfStoredBlocks,
    kNotOfBlocks,
    kOfGroups,
    kOf8BitGroups,
    kOf16BitGroups,
    kOf16BitDealt,
    kOf16BitBatch,
    kOfQuantized,
    kOfScaledGates,
    kOfHeads,
    kOfLongHeads
  } for_ = kAny;
  int cluster_m = 1;
  int store_stages = 2;
};

// The forms are few, so that problems share kernels: a model's dense layers need two dozen kernels for all row counts.
// Measured on an H100: docs/gemm/README.md. Of tiles with equal cost, the first is taken. Where each slab's products
// are scaled, 256 x 128 comes before 128 x 256, because an H100 was 1 % faster with it. Groups that are bound by memory
// take tiles of 64 rows: warpgroups that take turns keep the weights flowing.
// A batch has few slabs of k, and memory bounds it: its tiles store much at a time, or share an SM.
constexpr Form kForms[] = {{128, 256, 2, Roles::kCooperative, 1, false, 1, Form::kOf16BitBatch, 1, 4},
                           {128, 128, 2, Roles::kPingPong, 1, false, 1, Form::kOf16BitBatch, 1, 4},
                           {64, 128, 1, Roles::kCooperative, 1, false, 1, Form::kOf16BitBatch},
                           {64, 256, 2, Roles::kPingPong, 1, false, 1, Form::kOf16BitGroups},
                           {128, 64, 2, Roles::kCooperative, 2, true, 1, Form::kOf8BitGroups},
                           {64, 192, 2, Roles::kPingPong, 1, false, 1, Form::kOf8BitGroups},
                           {256, 128, 2, Roles::kCooperative, 1, false, 1, Form::kOfBlocks},
                           {192, 128, 3, Roles::kCooperative, 1, false, 1, Form::kOfStoredBlocks},
                           {128, 256, 2, Roles::kCooperative},
                           {256, 128, 2, Roles::kCooperative},
                           {128, 192, 2, Roles::kCooperative},
                           {128, 128, 2, Roles::kCooperative},
                           {128, 192, 2, Roles::kPingPong, 1, false, 1, Form::kOf8Bits},
                           {128, 192, 2, Roles::kPingPong, 1, false, 1, Form::kOf16BitDealt},
                           {128, 176, 2, Roles::kPingPong},
                           {128, 176, 2, Roles::kPingPong, 1, false, 1, Form::kAny, 2},
                           {128, 160, 2, Roles::kPingPong, 1, false, 1, Form::kOf16BitGroups, 2},
                           {128, 128, 2, Roles::kPingPong},
                           {64, 128, 2, Roles::kPingPong},
                           {64, 64, 1, Roles::kCooperative, 2, false, 1, Form::kNotOfBlocks},
                           {64, 64, 1, Roles::kCooperative, 2, true, 1, Form::kOfBlocks},
                           {128, 32, 2, Roles::kCooperative, 2, true, 1, Form::kOf8BitGroups},
                           {128, 16, 2, Roles::kCooperative, 2, true, 1, Form::kOf8BitGroups},
                           {64, 32, 1, Roles::kCooperative, 2, true},
                           {64, 16, 1, Roles::kCooperative, 2, true},
                           {64, 8, 1, Roles::kCooperative, 2, true, 1, Form::kOfGroups},
                           {256, 64, 2, Roles::kCooperative, 1, true, 1, Form::kOfScaledGates},
                           {256, 32, 2, Roles::kCooperative, 1, true, 1, Form::kOfScaledGates},
                           {256, 16, 2, Roles::kCooperative, 1, true, 1, Form::kOfScaledGates},
                           {256, 8, 2, Roles::kCooperative, 1, true, 1, Form::kOfScaledGates},
                           {256, 32, 2, Roles::kCooperative, 1, true, 4, Form::kOfScaledGates},
                           {256, 16, 2, Roles::kCooperative, 1, true, 2, Form::kOfScaledGates},
                           {128, 32, 2, Roles::kCooperative, 1, true, 4, Form::kOfQuantized},
                           {128, 16, 2, Roles::kCooperative, 1, true, 2, Form::kOfQuantized},
                           {128, 32, 2, Roles::kCooperative, 2, true, 1, Form::kOfQuantized},
                           {128, 16, 2, Roles::kCooperative, 2, true, 1, Form::kOfQuantized},
                           {64, 256, 2, Roles::kPingPong, 1, false, 1, Form::kOfQuantized},
                           {64, 256, 1, Roles::kCooperative, 1, false, 1, Form::kOfQuantized},
                           {64, 128, 1, Roles::kCooperative, 1, false, 1, Form::kOfQuantized},
                           {64, 256, 1, Roles::kCooperative, 1, false, 2, Form::kOfQuantized},
                           {64, 256, 1, Roles::kCooperative, 1, false, 4, Form::kOfQuantized},
                           {128, 64, 2, Roles::kCooperative, 1, true, 1, Form::kOfHeads},
                           {128, 64, 2, Roles::kCooperative, 1, true, 2, Form::kOfHeads},
                           {128, 32, 2, Roles::kCooperative, 1, true, 2, Form::kOfHeads},
                           {128, 16, 2, Roles::kCooperative, 1, true, 1, Form::kOfHeads},
                           {256, 32, 2, Roles::kCooperative, 1, true, 1, Form::kOfLongHeads},
                           {256, 32, 2, Roles::kCooperative, 1, true, 4, Form::kOfLongHeads},
                           {256, 16, 2, Roles::kCooperative, 1, true, 2, Form::kOfLongHeads},
                           {64, 128, 1, Roles::kCooperative, 1, false, 2},
                           {64, 64, 1, Roles::kCooperative, 2, false, 4}};

// Forms of plain products of up to most_rows_of_steps(): hopper_gemm_has_steps(). Servers launch these with any number
// of rows. A swapped tile has as many columns as rows of the result, in steps of 8, so that few of them are padding.
// These are what is left of a hundred that an H200 timed: bench/results/gemm/2026-11-28-h200-steps.md. Longer launches
// have many rounds of tiles, and what counts for them is power: they keep the forms above.
constexpr Form kFormsOfSteps[] = {{128, 256, 2, Roles::kCooperative},
                                  {256, 128, 2, Roles::kCooperative},
                                  {256, 192, 2, Roles::kCooperative},
                                  {192, 192, 3, Roles::kCooperative},
                                  {192, 128, 3, Roles::kCooperative},
                                  {128, 192, 2, Roles::kCooperative},
                                  {128, 128, 2, Roles::kCooperative},
                                  {128, 176, 2, Roles::kPingPong},
                                  {128, 176, 2, Roles::kPingPong, 1, false, 1, Form::kAny, 2},
                                  {256, 176, 2, Roles::kCooperative, 1, true},
                                  {256, 80, 2, Roles::kCooperative, 1, true},
                                  {128, 240, 2, Roles::kCooperative, 1, true},
                                  {128, 208, 2, Roles::kCooperative, 1, true},
                                  {128, 176, 2, Roles::kCooperative, 1, true},
                                  {128, 160, 2, Roles::kPingPong, 1, true},
                                  {128, 112, 2, Roles::kCooperative, 1, true},
                                  {128, 96, 2, Roles::kCooperative, 1, true},
                                  {128, 80, 2, Roles::kCooperative, 1, true},
                                  {128, 64, 2, Roles::kCooperative, 1, true},
                                  {128, 48, 2, Roles::kCooperative, 1, true},
                                  {64, 64, 1, Roles::kCooperative, 2},
                                  {64, 48, 1, Roles::kCooperative, 2, true},
                                  {64, 32, 1, Roles::kCooperative, 2, true},
                                  {64, 16, 1, Roles::kCooperative, 2, true}};

// Forms of dense products with scales of blocks, for 33 to 128 rows: bench/results/gemm/2026-11-29-h200-few-rows.md.
// Swapped tiles pay more for their scales. Narrower tiles than these lose where rows end within a tile.
constexpr RowRange kFewRows{33, 128};
constexpr Form kFormsOfFewRows[] = {{64, 128, 1, Roles::kCooperative, 2, false, 1, Form::kOfFewBlocks},
                                    {64, 112, 1, Roles::kCooperative, 2, false, 1, Form::kOfFewBlocks},
                                    {64, 64, 1, Roles::kCooperative, 2, false, 1, Form::kOfFewBlocks}};

bool is_for(const Form& form, const GemmProblem& problem, const GemmSpec& spec) {
  const bool blocks = problem.scales == ScaleKind::kPerBlock;
  switch (form.for_) {
    case Form::kAny: break;
    case Form::kOf8Bits: return bits_of(problem.dtype.a) == 8;
    case Form::kOfBlocks: return blocks;
    case Form::kOfFewBlocks:
      return blocks && !problem.groups.any() && !spec.gated && !spec.has_groups_of_columns() && !spec.writes_kv;
    case Form::kOfStoredBlocks:  // others were not measured
      return blocks && spec.needs_sums_alone() && !spec.copies() &&
             !(spec.gated && spec.quantizes && problem.groups.any()) &&
             (spec.quantizes || bits_of(problem.dtype.d) == 16) &&
             (!problem.groups.any() || problem.groups.kind == GroupKind::kRows);
    case Form::kNotOfBlocks: return !blocks;
    case Form::kOfGroups: return problem.groups.any();
    case Form::kOf8BitGroups: return problem.groups.any() && bits_of(problem.dtype.a) == 8;
    case Form::kOf16BitGroups: return problem.groups.has_bounds() && bits_of(problem.dtype.a) == 16;
    case Form::kOf16BitDealt: return spec.deals_tiles() && spec.stores_sums() && bits_of(problem.dtype.a) == 16;
    case Form::kOf16BitBatch: return problem.groups.is_batch() && bits_of(problem.dtype.a) == 16 && !spec.quantizes;
    case Form::kOfQuantized: return spec.has_groups_of_columns() || spec.writes_kv;
    case Form::kOfScaledGates: return spec.has_groups_of_columns() && spec.gated;
    case Form::kOfHeads: return spec.writes_kv;
    case Form::kOfLongHeads: return spec.head_columns() > 128;
  }
  return true;
}

/// Whether products can run while others are added: those need registers of their own. With scales of blocks, a product
/// may need fewer columns for that. A product of 64 columns already reads shared memory at its full rate, and one of 96
/// nearly so. The latter is still worth it where no tile is stored behind the next one's first products.
bool has_room_for_two_products(GemmSpec spec) {
  const int narrow = spec.may_store_behind() ? 96 : 64;
  const int columns = spec.product_columns();
  spec.mma_in_flight = 0;
  const bool narrowed = spec.scales == ScaleKind::kPerBlock && columns < spec.product_columns();
  return columns > (narrowed ? narrow : 0);
}

/// Slots of a batch, whose products are short: for the slabs of two tiles, and from 4 to 8. On an H100 more of them
/// cost more to set up than they bring: with 16 heads and a token, 22 slots take 6.9 us and 8 take 6.7. Where one
/// warpgroup multiplies, two CTAs share an SM, if 4 slots leave room for that: one loads while the other one stores.
int batch_stages(const GemmSpec& spec, int k, int most) {
  constexpr int kLeast = 4, kMost = 8;
  int stages = kMost;
  if (spec.math_warpgroups == 1) {
    const ArchInfo& arch = arch_info(spec.arch);
    const int of_half = most_gemm_stages(spec, arch.shared_bytes_per_sm / 2 - arch.reserved_shared_bytes_per_cta);
    const std::int64_t slabs = ceil_div(std::int64_t{k} * bits_of(spec.a) / 8, spec.slab_bytes);
    const int of_two_tiles = static_cast<int>(std::clamp<std::int64_t>(2 * slabs, kLeast, kMost));
    stages = std::max(std::min(of_half, of_two_tiles), kLeast);
  }
  return std::max(std::min(stages, most) / spec.k_group, 2) * spec.k_group;  // a slot has whole groups of slabs
}

/// Store stages for all results of a tile, where the kernel stores them at once behind the next tile's first product:
/// where a slab is one product for each warpgroup.
int stages_of_tile(const GemmSpec& spec) {
  constexpr int kMost = 3;
  const bool one_product = spec.may_store_behind() && spec.mma_in_flight == 0 &&
                           spec.block_m == 64 * spec.math_warpgroups && spec.product_columns() == spec.block_n;
  const int stages = ceil_div(spec.block_n, contract::gemm_store_columns(bits_of(spec.d) / 8, spec.halves_columns()));
  return one_product && stages <= kMost ? stages : 1;
}

/// The form, with the schedule's fields put in.
GemmSpec filled(const Form& form, GemmSpec spec, const GemmProblem& problem, const GemmSchedule& schedule) {
  spec.roles = schedule.roles.value_or(form.roles);
  spec.math_warpgroups = schedule.math_warpgroups.value_or(form.math_warpgroups);
  spec.block_m = schedule.block_m.value_or(form.block_m);
  spec.block_n = schedule.block_n.value_or(form.block_n);
  const bool own_tile = !schedule.block_m.is_auto() || !schedule.block_n.is_auto();  // not the form's any more
  // Groups of twice as many slabs, because products of 8 bits end sooner. A slot of a wide tile lasts long enough for a
  // barrier: with two slabs of 128 x 192 to a slot, an H200 took 12 % longer.
  constexpr int kWide = 256;  // rows and columns together
  const bool counted = form.for_ == Form::kOf8BitGroups || form.for_ == Form::kOfFewBlocks;  // as the form says
  const bool doubles = form.k_group > 1 && bits_of(spec.a) == 8 && !counted;
  const bool wide = own_tile && spec.block_m + spec.block_n >= kWide;
  spec.k_group = schedule.k_group.value_or(wide ? 1 : doubles ? 2 * form.k_group : form.k_group);
  spec.cluster_m = schedule.cluster.value_or({own_tile ? 1 : form.cluster_m, 1}).m;
  spec.split_k = schedule.split_k.value_or(own_tile ? 1 : form.split_k);
  if (spec.split_k > 1) spec.split_mode = schedule.split_mode.value_or(SplitMode::kCluster);
  spec.swap_ab = schedule.swap_ab.value_or(own_tile ? false : form.swap_ab);
  spec.mma_in_flight = schedule.mma_in_flight.value_or(1);
  if (schedule.mma_in_flight.is_auto() && !has_room_for_two_products(spec)) spec.mma_in_flight = 0;
  const int least = spec.writes_kv ? slabs_of_heads(spec) : stages_of_tile(spec);
  spec.store_stages = schedule.store_stages.value_or(std::max(form.store_stages, least));
  const int room = arch_info(spec.arch).shared_bytes_per_cta;
  int most = most_gemm_stages(spec, room);
  spec.stages = schedule.stages.value_or(most);
  if (schedule.store_stages.is_auto() && !spec.writes_kv && shared_bytes(spec) > static_cast<std::uint32_t>(room)) {
    spec.store_stages = form.store_stages;  // the slots leave no room for a whole tile
    most = most_gemm_stages(spec, room);
  }
  spec.stages = schedule.stages.value_or(spec.is_batched() ? batch_stages(spec, problem.k, most) : most);
  return spec;
}

/// The same of the steps of heads that go to a cache. Four parts of a swapped tile each have the steps, unrolled.
bool spills_steps(const GemmSpec& spec) {
  const auto per_token = [](ScaleKind kind) { return kind == ScaleKind::kPerToken; };
  if (!per_token(spec.kv.q_scales) && !per_token(spec.kv.k_scales) && !per_token(spec.kv.v_scales)) return false;
  const bool norms = spec.kv.norm != NormKind::kNone, long_heads = spec.head_columns() > 128;
  if (spec.swap_ab) return spec.split_k > 2 && (norms || long_heads);
  return norms && long_heads && spec.block_m > 64;
}

/// Whether a form's tile takes more registers than there are, by ptxas' output. Where threads copy an operand, math
/// warps have 224, or 216 if it is both. A gathering thread has the addresses of an eighth of a warp's rows.
bool spills(const GemmSpec& spec) {
  const bool halves = spec.halves_columns();
  // Blocks of gates that begin within a tile take 4 more scales of a slab.
  const bool begins_within = spec.scales == ScaleKind::kPerBlock && halves && (spec.block_n & (spec.block_n - 1)) != 0;
  if (spec.copies() && (begins_within || (spec.block_m > 128 && !spec.swap_ab))) return true;
  // One register of warpgroups that take turns, whose results of 16-bit gates are quantised.
  if (spec.copies() && spec.quantizes && halves && spec.roles == Roles::kPingPong && bits_of(spec.a) == 16) return true;
  const int rows = spec.block_m / (spec.roles == Roles::kPingPong ? 1 : spec.math_warpgroups);  // of a warpgroup
  // Two registers of a warpgroup's 128 x 176 sums, where threads copy both operands.
  if (spec.gather && spec.pointers && !spec.swap_ab && rows * spec.block_n > 128 * 128) return true;
  // Scales of columns where a warpgroup has 128 rows, and rows of f32 are scattered or b is by pointers.
  const bool takes_more = (spec.scatter && bits_of(spec.d) == 32) || spec.pointers;
  if (takes_more && spec.scales == ScaleKind::kPerToken && !spec.swap_ab && rows > 64) return true;
  if (spec.writes_kv && spills_steps(spec)) return true;
  // Each column of a group has a scale, and its gate or up another one. Results of f32 take registers too, and so do
  // those that are quantised.
  const bool fewer = spec.copies() || spec.scatter || spec.quantizes || bits_of(spec.d) == 32;
  const int most = halves ? 128 : fewer ? 192 : 256;
  return spec.is_grouped() && spec.scales == ScaleKind::kPerToken && !spec.swap_ab && spec.block_n > most;
}

}  // namespace

/// Bands of columns where sums are scaled slab by slab, if the tile is taller than wide: a gain of 0 to 2 % on an H100.
/// Wide tiles of groups whose results are stored at once gain 0 to 0.9 % on an H200, because their bands are narrower
/// then: bench/results/gemm/2026-11-30-h200-groups-of-16-bits.md.
Raster hopper_raster(const GemmSpec& spec) {
  const bool narrower = spec.has_bounds() && spec.block_n > spec.block_m && stages_of_tile(spec) > 1;
  const bool taller = spec.scales == ScaleKind::kPerBlock && spec.block_m > spec.block_n;
  return taller || narrower ? Raster::kAlongN : Raster::kAlongM;
}

std::vector<GemmTile> hopper_gemm_tiles(const GemmSpec& base, const GemmProblem& problem,
                                        const GemmSchedule& schedule) {
  std::vector<GemmTile> tiles;
  const bool own_tile = !schedule.block_m.is_auto() || !schedule.block_n.is_auto();
  const auto add = [&](std::span<const Form> forms, RowRange rows) {
    for (const Form& form : forms) {
      // Parts of k change the order of sums. A row's result would then depend on the number of rows.
      // A CTA of groups walks many tiles, and CTAs that share a tile's k have one.
      const bool whole = problem.batch_invariant || problem.groups.any();
      if ((whole && form.split_k > 1) || !is_for(form, problem, base)) continue;
      if ((problem.groups.gather || problem.groups.pointers) && form.cluster_m > 1)
        continue;  // threads copy rows to their own CTA
      // The warpgroups of a CTA share a tile of kind k, and clear the end of its slice.
      const bool is_shared = form.roles == Roles::kCooperative && form.cluster_m == 1 && !form.swap_ab;
      if (problem.groups.slices_k() && !is_shared) continue;
      const GemmSpec spec = filled(form, base, problem, schedule);
      if (own_tile || !spills(spec)) tiles.push_back({spec, rows});
    }
  };
  const bool has_steps = hopper_gemm_has_steps(base);
  const int most = has_steps ? most_rows_of_steps(problem.n) : 0;
  if (most > 0) add(kFormsOfSteps, {1, most});
  add(kFormsOfFewRows, kFewRows);
  add(kForms, {most + 1, GemmTile{}.rows.most});
  return tiles;
}

void explain_hopper_gemm(const GemmSpec& spec, const GemmSchedule& schedule, const std::string& why,
                         std::vector<Choice>& choices) {
  Resolver resolve(choices);
  resolve.derived("arch", spec.arch, "the device, or --arch");
  resolve("family", schedule.family, spec.family, "wgmma and TMA: the architecture's own");
  resolve("block_m", schedule.block_m, spec.block_m, why);
  resolve("block_n", schedule.block_n, spec.block_n, why);
  resolve("roles", schedule.roles, spec.roles,
          spec.roles == Roles::kPingPong ? "one warpgroup stores while the other multiplies"
                                         : "the warpgroups share a tile: fewer bytes for each product");
  resolve("math_warpgroups", schedule.math_warpgroups, spec.math_warpgroups, "what the tile's sums need of registers");
  explain_slab(spec, schedule, choices);
  resolve("k_group", schedule.k_group, spec.k_group,
          spec.k_group > 1 ? "small slots share the cost of a barrier" : "slots are long enough for a barrier each");
  resolve("stages", schedule.stages, spec.stages,
          spec.is_batched() ? "products of a batch are short: more slots cost more to set up than they bring"
                            : "all that fit beside the results on their way");
  resolve("store_stages", schedule.store_stages, spec.store_stages,
          stages_of_tile(spec) == spec.store_stages ? "all results of a tile are stored at once"
                                                    : "one is filled while another is stored");
  resolve("mma_in_flight", schedule.mma_in_flight, spec.mma_in_flight,
          spec.mma_in_flight > 0 ? "a slot is released one product late, so that the tensor cores never wait"
                                 : "products and sums leave no room for more");
  resolve("cluster", schedule.cluster, ClusterShape{spec.cluster_m, 1},
          spec.cluster_m > 1 ? "pairs load for each other, and stay together in a long launch"
                             : "loads of one CTA for several did not pay on an H100");
  resolve("split_k", schedule.split_k, spec.split_k,
          spec.split_k > 1 ? "too few tiles for all SMs" : "one part keeps the sums' order whatever m is");
  resolve("split_mode", schedule.split_mode, spec.split_mode,
          spec.split_k > 1 ? "parts add up in a cluster's shared memory, without a workspace" : "there is one part");
  resolve("raster", schedule.raster, hopper_raster(spec),
          fmt::format("bands of {}, about as tall as what is worked on is wide",
                      hopper_raster(spec) == Raster::kAlongM ? "rows" : "columns"));
  resolve(
      "swap_ab", schedule.swap_ab, spec.swap_ab,
      spec.quantizes ? "a warp has all columns of d that share a scale" : "rows of the result are rows of the tile");
}

}  // namespace kernelwright::detail
