// Tiles of the blackwell GEMM: a few forms, and a model of the machine. The model ranks the forms and says what a
// launch waits for. No such GPU has run any of it. Where the data sheet is silent, numbers are assumptions, and each
// one says so.
#include <algorithm>
#include <cmath>

#include "contract/gemm_sm100.h"
#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/plan/machine.h"

namespace kernelwright::detail {
namespace {

/// A tile, and the warps or CTAs that work on it.
struct Form {
  int block_n, ctas = 1;
  int k_group = 1;
  bool swap_ab = false;
  int split_k = 1;
  int cluster_m = ctas, cluster_n = 1;
};

// The forms are few, so that problems share kernels. A form that does not fit a problem's scales or layout is skipped.
constexpr Form kForms[] = {
    // Many rows: pairs of CTAs with half of b's rows each.
    {256, 2},
    {192, 2},
    {128, 2},
    // The same where CTAs belong to no pair, and 256 gates and ups share scales.
    {256},
    // Fewer rows: single CTAs, which wait for no other.
    {128},
    {64, 1, 2},
    {128, 1, 1, false, 2},
    {64, 1, 2, false, 4},
    // A few rows: the weights' rows are the tile's rows, so that no row of a product is unused.
    {64, 1, 2, true},
    {32, 1, 4, true},
    {16, 1, 4, true},
    {64, 1, 2, true, 4},
    {32, 1, 4, true, 4},
    {16, 1, 4, true, 4},
};

constexpr int kMostAccumulators = 2;          // one is read while the other is added to
constexpr int kMostPromotedAccumulators = 4;  // slabs that wait to be added
constexpr int kClcDepth = 2;                  // one tile is multiplied, one waits; an answer takes a microsecond

/// The form, with the schedule's fields put in.
GemmSpec filled(const Form& form, GemmSpec spec, const GemmSchedule& schedule) {
  const ClusterShape asked = schedule.cluster.value_or({0, 0});
  const bool own_tile = !schedule.block_n.is_auto() || !schedule.cta_group.is_auto() || asked.m > 0;
  spec.block_m = contract::kBlackwellGemmRows;
  spec.block_n = schedule.block_n.value_or(form.block_n);
  // A cluster with one CTA along m has no pairs.
  spec.cta_group = schedule.cta_group.value_or(asked.m % 2 != 0 ? 1 : form.ctas);
  const ClusterShape alone{spec.cta_group, 1};
  const ClusterShape cluster =
      schedule.cluster.value_or(own_tile ? alone : ClusterShape{form.cluster_m, form.cluster_n});
  spec.cluster_m = cluster.m, spec.cluster_n = cluster.n;
  spec.k_group = schedule.k_group.value_or(form.k_group);
  spec.swap_ab = schedule.swap_ab.value_or(own_tile ? false : form.swap_ab);
  spec.split_k = schedule.split_k.value_or(own_tile ? 1 : form.split_k);
  spec.store_stages = schedule.store_stages.value_or(2);
  // Pairs are for many tiles. There, CTAs that finish early take items of CTAs that have not begun.
  const bool queued =
      schedule.scheduler.value_or(schedule.clc_depth.value_or(0) > 0 ||
                                          (form.ctas == 2 && !own_tile && form.split_k == 1 && !spec.has_bounds())
                                      ? Scheduler::kQueued
                                      : Scheduler::kPersistent) == Scheduler::kQueued;
  spec.scheduler = queued ? Scheduler::kQueued : Scheduler::kPersistent;
  spec.clc_depth = schedule.clc_depth.value_or(queued ? kClcDepth : 0);

  const ArchInfo& arch = arch_info(spec.arch);
  spec.accumulators = 0;
  const int scales = contract::blackwell_gemm_columns(blackwell_gemm_shape_of(spec)).used;
  const int fit = (arch.tensor_memory_columns - scales) / spec.block_n;
  spec.accumulators = schedule.accumulator_stages.value_or(
      std::clamp(fit, 1, spec.promotion > 0 ? kMostPromotedAccumulators : kMostAccumulators));
  spec.stages = schedule.stages.value_or(most_gemm_stages(spec, arch.shared_bytes_per_cta));
  return spec;
}

/// Clocks of the busiest SM, and times of the device.
struct Times {
  double tensor = 0, shared = 0, l2 = 0, epilogue = 0;  // clocks of each unit, if it waited for no other
  double waves = 0;                                     // clocks in which the last round leaves SMs without work
  double sm = 0;                                        // clocks in all
  double memory_us = 0;
  double total_us = 0;
};

constexpr double kFirst = 2000;      // clocks until the first products: barriers, tensor memory, a load from memory
constexpr double kTile = 400;        // clocks between a tile's sums and its first store
constexpr double kBarrier = 40;      // clocks that a group of slots costs the multiplying warp
constexpr double kTurn = 1500;       // clocks from one part's last sum to the next one's first
constexpr double kHidden = 0.05;     // part of the shorter time, SMs' or memory's, that does not overlap
constexpr double kEnoughSms = 0.85;  // this share of the SMs keeps the memory busy

/// Clusters of `ctas` that the device holds at a time. Where a group of SMs is no multiple of `ctas`, some SMs have no
/// work. The shares are those of an H100, where 30 of 33 clusters of four have room.
double clusters_that_fit(int ctas, int num_sms) {
  const double share = ctas <= 2 ? 1 : ctas <= 4 ? 0.92 : 0.86;
  return std::max(1.0, std::floor(num_sms * share / ctas));
}

/// Tiles along one side of a product; of_groups: the mean of a group's. Groups end, on average, in the middle of a
/// tile.
double tiles_along(double count, double of_tile, bool of_groups) {
  return of_groups && 2 * count > of_tile ? count / of_tile + 0.5 : std::ceil(count / of_tile);
}

Times times_of(const GemmSpec& spec, const GemmExtent& extent, int num_sms, const GemmRates& machine) {
  const contract::BlackwellGemmShape shape = blackwell_gemm_shape_of(spec);
  const contract::BlackwellGemmBoxes boxes = contract::blackwell_gemm_boxes(shape);
  const double groups = std::max(1, extent.groups), m = extent.rows_of_group();
  const double rows = spec.swap_ab ? extent.n : m, columns = spec.swap_ab ? m : extent.n;
  const double tile_rows = tiles_along(rows, spec.block_m * spec.cluster_m, extent.groups > 1 && !spec.swap_ab);
  const double tile_columns = tiles_along(columns, spec.block_n * spec.cluster_n, extent.groups > 1 && spec.swap_ab);
  const double work = groups * tile_rows * tile_columns * spec.split_k;  // of clusters
  const double at_once = clusters_that_fit(spec.cluster(), num_sms), rounds = std::ceil(work / at_once);
  const double slab_bytes = spec.slab_bytes;
  const double slabs = std::ceil(std::ceil(extent.k * bits_of(spec.a) / 8.0 / slab_bytes) / spec.split_k);

  // Clocks of a slab. 128 bytes of k take two clocks a column for every dtype. Elements of twice as many bits make half
  // as many products, at half the rate.
  const double tensor = slab_bytes / 64 * spec.block_n;
  const double shared = (spec.block_m + spec.block_n / spec.cta_group) * slab_bytes / machine.shared_bytes;
  const double scale_bytes =
      contract::blackwell_gemm_scale_a_bytes(shape) + contract::blackwell_gemm_scale_b_bytes(shape);
  const double l2 = ((boxes.a_rows + boxes.b_rows) * slab_bytes + scale_bytes) / machine.l2_bytes;
  const double slab = std::max({tensor, shared, l2}) + kBarrier / spec.k_group;
  // A thread takes a row. With scales of blocks a column is an addition; at the end it is a few instructions.
  const double promoted = spec.promotion > 0 ? 2.0 * spec.block_n + kBarrier : 0;
  const double instructions =
      3 + (spec.activation != Activation::kNone ? 8 : 0) + (spec.adds_c ? 4 : 0) + (spec.bias ? 1 : 0);
  const double result_bits = bits_of(spec.d) * (spec.gated ? 0.5 : 1);  // of a column of the product
  const double stored = spec.block_m * spec.block_n * result_bits / 8.0 / machine.store_bytes;
  const double drain = instructions * spec.block_n, end = std::max(drain, stored) + kTile;
  const double of_epilogue = slabs * promoted + end;

  const double main = slabs * slab;
  const bool overlaps = spec.accumulators > 1;
  const double tile = spec.promotion > 0 || overlaps ? std::max(main, of_epilogue) : main + drain + kTile;
  const double turns = (spec.split_k - 1) * (spec.block_m * spec.block_n * 4 * 2 / machine.store_bytes + kTurn);
  Times times;
  times.tensor = rounds * slabs * tensor;
  times.shared = rounds * slabs * shared;
  times.l2 = rounds * slabs * l2;
  times.epilogue = rounds * of_epilogue + turns;
  times.waves = (rounds - work / at_once) * tile;
  times.sm = kFirst + rounds * tile + end + turns;
  // Rows of a tile past the end are not read, but cost time as if a quarter of them were.
  const double padded = std::max(0.0, tile_rows * spec.block_m * spec.cluster_m - rows) +
                        std::max(0.0, tile_columns * spec.block_n * spec.cluster_n - columns);
  const double row_bytes =
      extent.k * (bits_of(spec.a) / 8.0 + (shape.scale_atoms > 0 ? 1.0 / scale_vector(spec.a) : 0));
  const double bytes = groups * ((m + extent.n + padded / 4) * row_bytes + m * extent.n * result_bits / 8.0);
  const double busy = std::min(1.0, work * spec.cluster() / (kEnoughSms * num_sms));
  times.memory_us = bytes / (machine.bytes_per_us * busy);
  const double sm_us = times.sm / machine.clock_mhz, memory_us = times.memory_us + kFirst / machine.clock_mhz;
  times.total_us = machine.launch_us + std::max(sm_us, memory_us) + kHidden * std::min(sm_us, memory_us);
  return times;
}

}  // namespace

std::vector<GemmTile> blackwell_gemm_tiles(const GemmSpec& base, const GemmProblem& problem,
                                           const GemmSchedule& schedule) {
  std::vector<GemmTile> tiles;
  for (const Form& form : kForms) {
    // Parts of k change the order of sums. A row's result would then depend on the number of rows.
    // A CTA of groups walks many tiles, and CTAs with parts of k have one.
    if ((problem.batch_invariant || problem.groups.any()) && form.split_k > 1) continue;
    // Threads copy matrices, and scales of gathered rows, to their own CTA.
    const bool copies = problem.groups.pointers || (problem.groups.gather && is_block_scaled(problem.dtype.a));
    if (copies && form.ctas > 1) continue;
    const bool alone = form.ctas == 1 && form.block_n == 256;
    if (alone && !(copies && base.scaled_columns() == 256)) continue;
    tiles.push_back({filled(form, base, schedule)});
  }
  return tiles;
}

double blackwell_gemm_cost_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms) {
  return times_of(spec, extent, num_sms, *usual_machine(spec.arch).gemm).total_us;
}

void explain_blackwell_gemm(const GemmSpec& spec, const GemmSchedule& schedule, const std::string& why,
                            std::vector<Choice>& choices) {
  Resolver resolve(choices);
  const bool pair = spec.cta_group == 2, queued = spec.scheduler == Scheduler::kQueued;
  resolve.derived("arch", spec.arch, "the device, or --arch");
  resolve("family", schedule.family, spec.family, "tcgen05 and TMA: the architecture's own");
  resolve("block_m", schedule.block_m, spec.block_m, "the lanes of tensor memory");
  resolve("block_n", schedule.block_n, spec.block_n, why);
  resolve("cta_group", schedule.cta_group, spec.cta_group,
          pair ? "each CTA of a pair loads half of the columns' operand, and products read both halves"
               : "a CTA that multiplies for itself waits for no other");
  resolve("cluster", schedule.cluster, ClusterShape{spec.cluster_m, spec.cluster_n},
          pair ? "the two that share each product" : "nothing is shared");
  explain_slab(spec, schedule, choices);
  resolve("k_group", schedule.k_group, spec.k_group,
          spec.k_group > 1 ? "small slots share the cost of a barrier" : "slots are long enough for a barrier each");
  resolve("stages", schedule.stages, spec.stages, "all that fit beside the results on their way");
  resolve("store_stages", schedule.store_stages, spec.store_stages, "one is filled while another is stored");
  resolve("accumulator_stages", schedule.accumulator_stages, spec.accumulators,
          spec.promotion > 0      ? "each slab's products have one, until they are scaled and added"
          : spec.accumulators > 1 ? "one is stored while the other is added to"
                                  : "sums and scales leave no room for two");
  resolve("scheduler", schedule.scheduler, spec.scheduler,
          queued              ? "CTAs that are done take over what others have not begun"
          : spec.has_bounds() ? "the device alone knows how many tiles groups have"
                              : "few tiles: each CTA knows its own");
  resolve("clc_depth", schedule.clc_depth, spec.clc_depth,
          queued ? "one answer is read while the next is on its way" : "no CTA asks for tiles");
  resolve("split_k", schedule.split_k, spec.split_k,
          spec.split_k > 1 ? "too few tiles for all SMs" : "one part keeps the sums' order whatever m is");
  resolve("raster", schedule.raster, Raster::kAlongM, "bands of rows, about as tall as what is worked on is wide");
  resolve("swap_ab", schedule.swap_ab, spec.swap_ab, "rows of the result are rows of the tile");
}

std::optional<Predicted> predict_blackwell_gemm(const GemmSpec& spec, const GemmProblem& problem,
                                                const GemmShape& shape, const MachineClass& machine) {
  if (!machine.timeline || !machine.gemm) return std::nullopt;
  const GemmExtent extent = extent_of(problem, shape);
  const Times times = times_of(spec, extent, machine.timeline->sms, *machine.gemm);
  const auto us = [&](double clocks) { return clocks / machine.gemm->clock_mhz; };
  Predicted timeline;
  timeline.microseconds = extent.m > 0 ? times.total_us : 0;
  timeline.operations = 2.0 * extent.m * problem.n * problem.k;
  timeline.clock_ghz = machine.gemm->clock_mhz / 1e3;
  timeline.machine = machine.timeline;
  timeline.terms = {{"products", us(times.tensor), "tensor cores, of the busiest SM"},
                    {"shared memory", us(times.shared), "operands that products read"},
                    {"L2", us(times.l2), "operands that copies bring to an SM"},
                    {"memory", times.memory_us, "operands and results, each once"},
                    {"epilogue", us(times.epilogue), "sums to results, of the warps that store"},
                    {"waves", us(times.waves), "SMs without a tile in the last round"}};
  const auto longest =
      std::max_element(timeline.terms.begin(), timeline.terms.end(),
                       [](const PredictedTerm& a, const PredictedTerm& b) { return a.microseconds < b.microseconds; });
  timeline.bound = 2 * longest->microseconds > timeline.microseconds ? longest->name : "latency";
  return timeline;
}

}  // namespace kernelwright::detail
