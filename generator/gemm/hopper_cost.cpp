// A model of the hopper GEMM on an H100 and an H200, which ranks tiles.
#include <algorithm>
#include <cmath>

#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/plan/machine.h"

namespace kernelwright::detail {
namespace {

constexpr double kFewRows = 16;  // of a group: weights count, and tokens are the columns of a product

/// The mean number of tiles of a group, of `mean` rows. Many rows end, on average, in the middle of a tile. Few rows
/// are spread like exp(-rows / (2 mean)): routers prefer some experts. Masked groups hold the tokens of many ranks,
/// which spreads them less. The rows of a single token are one in each group. Groups of a batch have as many rows each,
/// and those of kind k too.
double tiles_of_group(GroupKind kind, double mean, double of_tile) {
  if (kind == GroupKind::kBatch || kind == GroupKind::kK) return std::ceil(mean / of_tile);
  if (mean > kFewRows || kind == GroupKind::kMasked)
    return 2 * mean > of_tile ? mean / of_tile + 0.5 : std::ceil(mean / of_tile);
  if (mean <= 1) return 1;
  return std::min(mean / of_tile + 1, 1 / (1 - std::exp(-of_tile / (2 * mean))));
}

/// Fitted to times of an H200 with 16 to 4096 rows: bench/results/gemm/2026-11-28-h200-steps.md. Its memory is slower
/// than an H200's, so that the choice also suits an H100.
double cost_of_steps_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms) {
  constexpr double kMhz = 1700, kBytesPerUs = 3.4e6, kLaunchUs = 1.8, kL2Bytes = 59, kStoreBytes = 11;
  constexpr double kFirst = 520, kTurn = 260, kSlab = 12, kLong = 1200, kPart = 20000;  // clocks
  constexpr double kTurns = 1.14, kShared = 1.04, kTall = 1.01, kThree = 1.03;          // of a slab's clocks
  constexpr double kPromoted = 1.01, kPromotedAlone = 1.21, kDrift = 1.05, kTogether = 0.99;
  constexpr double kEnoughSms = 0.6;  // this share of the SMs keeps the memory busy
  const double rows = spec.swap_ab ? extent.n : extent.m, columns = spec.swap_ab ? extent.m : extent.n;
  const double tile_rows = std::ceil(rows / (spec.block_m * spec.cluster_m)) * spec.cluster_m;
  const double tile_columns = std::ceil(columns / spec.block_n);
  const double tiles = tile_rows * tile_columns * spec.split_k, rounds = std::ceil(tiles / num_sms);
  const double slabs = std::ceil(std::ceil(extent.k * bits_of(spec.a) / 8.0 / spec.slab_bytes) / spec.split_k);
  // A product of 64 rows, n columns and 32 bytes of k takes n / 2 clocks of an SM's tensor cores.
  const double tensor = spec.block_m / 64.0 * spec.slab_bytes / 64 * spec.block_n;
  const double l2 = (spec.block_m + spec.block_n) * spec.slab_bytes / kL2Bytes;
  const bool turns = spec.roles == Roles::kPingPong, one = spec.math_warpgroups == 1;
  double slab = std::max(tensor, l2) + kSlab;
  if (turns) slab *= kTurns * (rounds * slabs <= kLong ? 1 : spec.cluster_m > 1 ? kTogether : kDrift);
  if (!turns && !one) slab *= spec.math_warpgroups == 3 ? kThree : spec.block_m == 256 ? kTall : kShared;
  if (spec.promotion > 0) slab *= turns || one ? kPromotedAlone : kPromoted;
  const double store = spec.block_m * spec.block_n * bits_of(spec.d) / 8.0 / kStoreBytes;
  const double exposed = kFirst + (turns ? store + rounds * kTurn : rounds * store) + (spec.split_k > 1 ? kPart : 0);
  const double sm_us = (rounds * slabs * slab + exposed) / kMhz;
  // Rows of a tile past the end are not read, but cost time as if a quarter of them were.
  const double padded =
      std::max(0.0, tile_rows * spec.block_m - rows) + std::max(0.0, tile_columns * spec.block_n - columns);
  const double bytes = (extent.m + extent.n + padded / 4) * extent.k * bits_of(spec.a) / 8.0 +
                       extent.m * extent.n * bits_of(spec.d) / 8.0;
  const double busy = std::min(1.0, tiles / (kEnoughSms * num_sms));
  return kLaunchUs + std::max(sm_us, bytes / (kBytesPerUs * busy));
}

/// Groups of rows of 16 bits whose tiles a warp deals, as an H200 measured them:
/// bench/results/gemm/2026-11-30-h200-groups-of-16-bits.md. The L2 bounds only tiles of 64 rows there. Epilogues and
/// masked groups were not measured.
bool deals_16_bits(const GemmSpec& spec) {
  return spec.deals_tiles() && spec.groups == GroupKind::kRows && spec.stores_sums() && bits_of(spec.a) == 16 &&
         !spec.swap_ab;
}
constexpr double kDealtL2Bytes = 64;  // of the L2, for each SM and clock

/// The factor on a slab's time where warpgroups take turns. `slabs`: of each SM in the launch. In long launches, CTAs
/// that take turns by themselves drift apart, and then share less in the L2. They reached 0.89 to 1.05 of cuBLAS' speed
/// from one run to the next. Pairs wait for each other, and stayed at 1.05. With dealt tiles of 16 bits neither was so.
double factor_of_turns(const GemmSpec& spec, double slabs) {
  constexpr double kLong = 1200, kDrift = 1.05, kTogether = 0.99, kWide = 1.02;
  if (spec.roles != Roles::kPingPong) return 1;
  if (deals_16_bits(spec)) return spec.block_m * spec.block_n > 128 * 128 ? kWide : 1;
  return slabs <= kLong ? 1 : spec.cluster_m > 1 ? kTogether : kDrift;
}

/// Clocks of a slab, which are `slab` by the model of all tiles, where a tile with scales of blocks is stored behind
/// the next one's first products. `products`: what they take without the L2, which does not bound tiles of one product.
/// `rounds`: tiles of a CTA. As an H200 measured them: bench/results/gemm/2026-11-30-h200-dealer.md, and
/// 2026-11-30-h200-three-warpgroups.md beside it.
double slab_stored_behind(const GemmSpec& spec, bool of_groups, double rounds, double products, double slab) {
  constexpr double kOneProduct = 0.975, kTwoOfColumns = 1.03;
  // While one of three warpgroups adds a product, those of two others run. Dense launches of one round or two gained in
  // two shapes, and lost in seven.
  constexpr double kThreeOfGroups = 0.93, kThree = 0.975, kShort = 1.1;
  if (!spec.may_store_behind()) return slab;
  if (spec.math_warpgroups == 3 && spec.block_m == 192)
    return products * (of_groups ? kThreeOfGroups : rounds < 3 ? kThree * kShort : kThree);
  if (!of_groups || !spec.has_bounds() || spec.block_m != 128) return slab;
  return spec.block_n == 192 ? products * kOneProduct : spec.block_n == 256 ? slab * kTwoOfColumns : slab;
}

double cost_of_others_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms) {
  // A product of 64 rows, n columns and 32 bytes of k takes n / 2 clocks of an SM's tensor cores. If no other tile's
  // loop hides it, a tile also costs its results and some clocks more. The constants here are fitted to an H100's
  // times, bench/results/gemm/steps/gemm-tiles.txt.
  const GemmRates& machine = *usual_machine(spec.arch).gemm;
  constexpr double kFirst = 1500, kTurn = 400, kExchange = 20000;
  constexpr double kNextPart = 1500;  // clocks from one part's last sum to the next one's first; not measured
  constexpr double kCooperative = 1.085, kPromoted = 1.08, kPromotedAlone = 1.5;
  constexpr double kEnoughSms = 0.85;  // this share of the SMs keeps the memory busy
  const double groups = std::max(1, extent.groups), m = extent.rows_of_group();
  const double rows = spec.swap_ab ? extent.n : m, columns = spec.swap_ab ? m : extent.n;
  const auto tiles_along = [&](double count, double of_tile, bool of_groups) {
    return of_groups && extent.groups > 1 ? tiles_of_group(spec.groups, count, of_tile) : std::ceil(count / of_tile);
  };
  const double tile_rows = tiles_along(rows, spec.block_m * spec.cluster_m, !spec.swap_ab) * spec.cluster_m;
  // Tiles that a CTA takes together are as many rounds.
  const int halves = spec.halves();
  const double tile_columns = tiles_along(columns, spec.block_n * halves, spec.swap_ab) * halves;
  const double tiles = groups * tile_rows * tile_columns * spec.split_k;
  const double slabs = std::ceil(std::ceil(extent.k * bits_of(spec.a) / 8.0 / spec.slab_bytes) / spec.split_k);
  const double waves = spec.block_m / 64.0;
  const double tensor = waves * spec.slab_bytes / 64 * spec.block_n;
  const double l2 =
      (spec.block_m + spec.block_n) * spec.slab_bytes / (deals_16_bits(spec) ? kDealtL2Bytes : machine.l2_bytes);
  const bool hidden = spec.roles == Roles::kPingPong;
  // A CTA that takes turns does not multiply while it adds sums. Slabs of groups arrive meanwhile, and those of the
  // tiles for few rows with scales of blocks.
  const bool alone = hidden || spec.math_warpgroups == 1;
  constexpr double kTimedSms = 0.65, kTimedSlabs = 12;  // launches of fewer tiles or slabs were not timed
  const bool of_few_rows = spec.math_warpgroups == 1 && spec.scales == ScaleKind::kPerBlock && !spec.swap_ab &&
                           spec.split_k == 1 && !spec.quantizes && tiles >= kTimedSms * num_sms && slabs >= kTimedSlabs;
  const double added = spec.promotion == 0 ? 1 : alone ? kPromotedAlone : kPromoted;
  const bool arrives = alone && (extent.groups > 0 || of_few_rows);
  double slab = arrives ? std::max(tensor * added, l2) : std::max(tensor, l2) * added;
  const double rounds = std::ceil(tiles / halves / num_sms) * halves;
  slab = slab_stored_behind(spec, extent.groups > 0, rounds, tensor * added, slab);
  if (!hidden) slab *= kCooperative;
  const double store = spec.block_m * spec.block_n * bits_of(spec.d) / 8.0 / machine.store_bytes;
  const double sums =
      spec.block_m * spec.block_n * 4 * 2 / machine.store_bytes;  // each part behind the first reads and writes them
  const double meeting = spec.takes_turns() ? (spec.split_k - 1) * (sums + kNextPart)
                         : spec.split_k > 1 ? kExchange
                                            : 0;
  // Between the products of two tiles of few tokens: their sums are rounded and stored, and the next group is found.
  // Other tiles than those of few tokens did not pay on an H100.
  constexpr double kTileOfFew = 1500, kMostTokens = 64, kNotForFew = 2;
  const bool few = extent.groups > 0 && m <= kFewRows;
  const double not_for_few = few && !(spec.swap_ab && spec.block_n <= kMostTokens) ? kNotForFew : 1;
  const double exposed =
      (hidden ? store + rounds * kTurn : rounds * store) + kFirst + meeting + (few ? rounds * kTileOfFew : 0);
  slab *= factor_of_turns(spec, rounds * slabs);
  const double sm_us = (rounds * slabs * slab + exposed) / machine.clock_mhz;
  // Rows of a tile past the end are not read, but cost time as if a quarter of them were.
  const double padded =
      std::max(0.0, tile_rows * spec.block_m - rows) + std::max(0.0, tile_columns * spec.block_n - columns);
  // A group's second tile of few tokens reads its weights again, as they arrive: an H100 took 1.25 of the time.
  constexpr double kReadAgain = 0.3, kFewTokens = 32;
  const double token_tiles = spec.swap_ab ? tile_columns : tile_rows;
  const bool reads_again = extent.groups > 0 && (spec.swap_ab ? spec.block_n : spec.block_m) <= kFewTokens;
  const double reads = reads_again ? 1 + kReadAgain * (std::min(token_tiles, 2.0) - 1) : 1;
  const double bytes = groups * ((m + reads * extent.n + padded / 4) * extent.k * bits_of(spec.a) / 8.0 +
                                 m * extent.n * bits_of(spec.d) / 8.0);
  const double busy = std::min(1.0, tiles / (kEnoughSms * num_sms));
  // Where each SM has one tile of a batch, no tile loads while another one is stored: 2 % on an H100.
  const bool one_way = spec.is_batched() && !spec.swap_ab && rounds <= 1;
  // Slots have room for tokens beside the weights, so that fewer weights are on their way. An H200 took 1.3 % longer
  // for 16 columns more: bench/results/gemm/2026-11-29-h200-few-tokens.md.
  constexpr double kSlotOfTokens = 0.0007;
  const double on_its_way = few && spec.swap_ab ? 1 + kSlotOfTokens * spec.block_n : 1;
  const double memory_us = bytes / (machine.bytes_per_us * busy) * (one_way ? 1.02 : 1) * on_its_way;
  return not_for_few * (machine.launch_us + std::max(sm_us, memory_us));
}

}  // namespace

bool hopper_gemm_has_steps(const GemmSpec& spec) {
  return !spec.is_grouped() && !spec.has_groups_of_columns() && !spec.rstd && !spec.writes_kv && !spec.adds_c &&
         spec.layout == OperandLayout::kNt && spec.scales != ScaleKind::kPerBlock;
}

double hopper_gemm_cost_us(const GemmSpec& spec, const GemmExtent& extent, int num_sms) {
  const bool is_step = hopper_gemm_has_steps(spec) && extent.m <= most_rows_of_steps(extent.n);
  return is_step ? cost_of_steps_us(spec, extent, num_sms) : cost_of_others_us(spec, extent, num_sms);
}

}  // namespace kernelwright::detail
