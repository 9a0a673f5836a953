// templates/kernels/gemm_sm90.cu against sums in fp64.
#include <fmt/format.h>

#include "contract/gemm_params.h"
#include "runtime/emulator/kernels/hopper_buffers.h"
#include "runtime/emulator/kernels/hopper_case_lists.h"

namespace kernelwright::test {
namespace {

/// What a Spec of gemm_sm90 chooses.
struct TileGemm {
  int block_m = 128, block_n = 128, stages = 3, k_group = 1, math_warpgroups = 2;
  bool ping_pong = false;
  int mma_in_flight = 1, cluster = 1, store_stages = 2, split_k = 1;
};
struct TileGemmCase {
  TileGemm spec;
  GemmSize size;
  int ctas = 2, band = 2;
  bool bands_of_n = false;
};

std::string spec_of(const TileGemm& spec) {
  return fmt::format(
      "#define KERNELWRIGHT_WGMMA_N0 {1}\n#define KERNELWRIGHT_ENTRY gemm_sm90\n#include \"contract/spec_words.h\"\n"
      "namespace kernelwright::spec {{\nconstexpr DType kADType = DType::kBf16, kDDType = DType::kBf16;\n"
      "constexpr int kBlockM = {0}, kBlockN = {1}, kStages = {2}, kKGroup = {3}, kMathWarpgroups = {4};\n"
      "constexpr Roles kRoles = Roles::{5};\nconstexpr int kMmaInFlight = {6}, kClusterM = {7}, kStoreStages = {8}, "
      "kSplitK "
      "= {9};\n}}\n",
      spec.block_m, spec.block_n, spec.stages, spec.k_group, spec.math_warpgroups,
      spec.ping_pong ? "kPingPong" : "kCooperative", spec.mma_in_flight, spec.cluster, spec.store_stages, spec.split_k);
}

contract::GemmLayout layout_of(const TileGemm& spec) {
  return contract::gemm_layout(spec.block_m, spec.block_n, spec.stages, spec.k_group, spec.math_warpgroups,
                               spec.store_stages);
}

KernelNotes notes_of(const TileGemm& spec) {
  const contract::GemmLayout layout = layout_of(spec);
  const auto at = [](std::int32_t offset) { return static_cast<std::uint32_t>(offset); };
  KernelNotes notes;
  notes.roles = {{0, 4, "load"}};
  for (int i = 0; i < spec.math_warpgroups; ++i)
    notes.roles.push_back({4 + 4 * static_cast<std::uint32_t>(i), 4, fmt::format("math {}", i)});
  notes.shared = {{at(layout.a), at(layout.b - layout.a), "A", at(spec.block_m * 128)},
                  {at(layout.b), at(layout.output - layout.b), "B", at(spec.block_n * 128)},
                  {at(layout.output), at(layout.barriers - layout.output), "D"},
                  {at(layout.barriers), at(layout.total - layout.barriers), "barriers", 8}};
  return notes;
}

HopperOutcome run(const TileGemmCase& gemm, Device& device, const KernelImage& image, std::uint64_t seed) {
  const TileGemm& spec = gemm.spec;
  const auto [m, n, k, exact] = gemm.size;
  const auto count = [](int rows, int columns) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  };
  Random random(seed);
  const int limit = exact ? kExactLimit : 0;
  const std::vector<std::uint16_t> a = random_bf16(random, count(m, k), limit);
  const std::vector<std::uint16_t> b = random_bf16(random, count(n, k), limit);
  const DeviceBuffer a_memory(device, a), b_memory(device, b), d_memory(device, count(m, n) * 2);
  contract::GemmParams params = {};
  params.a = matrix_map(device, a_memory.address(), DType::kBf16, m, k, spec.block_m, contract::kGemmSlabColumns);
  params.b = matrix_map(device, b_memory.address(), DType::kBf16, n, k, spec.block_n / spec.cluster,
                        contract::kGemmSlabColumns);
  params.d =
      matrix_map(device, d_memory.address(), DType::kBf16, m, n, contract::kGemmStoreRows, contract::kGemmSlabColumns);
  if (const int tail = spec.block_n % contract::kGemmSlabColumns; tail != 0)
    params.d_tail =
        matrix_map(device, d_memory.address(), DType::kBf16, m, n, contract::kGemmStoreRows, tail, Swizzle::kNone);
  params.m = m, params.n = n, params.k = k;
  params.band = gemm.band, params.bands_of_n = gemm.bands_of_n;
  LaunchConfig config;
  config.grid[0] = static_cast<std::uint32_t>(gemm.ctas);
  config.block = static_cast<std::uint32_t>(128 + 128 * spec.math_warpgroups);
  config.cluster[0] = static_cast<std::uint32_t>(spec.cluster * spec.split_k);
  config.shared_bytes = static_cast<std::uint32_t>(layout_of(spec).total);
  launch(device, image, "gemm_sm90", config, params);

  HopperOutcome outcome;
  outcome.output = d_memory.read();
  outcome.failure = d_memory.guards();
  compare_gemm(gemm.size, DType::kBf16, a, b, outcome);
  return outcome;
}

HopperCase tile_gemm(const std::string& name, const TileGemmCase& gemm) {
  return {
      "tile_gemm_" + name,
      "gemm_sm90",
      "gemm_sm90",
      spec_of(gemm.spec),
      notes_of(gemm.spec),
      [gemm](Device& device, const KernelImage& image, std::uint64_t seed) { return run(gemm, device, image, seed); },
      /*of_templates=*/true};
}

}  // namespace

std::vector<HopperCase> tile_gemm_cases() {
  // Odd numbers of k slabs, so that tiles begin in every slot of the ring; ragged m, n and k; more tiles than CTAs.
  TileGemm cooperative, ping_pong, pairs, groups, narrow, tall, halves, quarters;
  ping_pong.block_m = 64, ping_pong.ping_pong = true;
  pairs.cluster = 2, pairs.mma_in_flight = 0;
  groups.block_n = 64, groups.stages = 4, groups.k_group = 2, groups.store_stages = 1;
  narrow.block_m = 64, narrow.block_n = 72, narrow.ping_pong = true, narrow.cluster = 1;
  tall.block_m = 256, tall.block_n = 80, tall.cluster = 2;
  halves.split_k = 2;
  quarters.split_k = 4, quarters.block_n = 256, quarters.store_stages = 1;
  return {
      tile_gemm("cooperative", {cooperative, {300, 264, 328}, 2, 2}),
      tile_gemm("ping_pong", {ping_pong, {200, 392, 200}, 2, 1}),
      tile_gemm("ping_pong_one_tile", {ping_pong, {40, 128, 448}, 1, 1}),
      tile_gemm("cluster2", {pairs, {600, 264, 200}, 4, 1, true}),
      tile_gemm("k_groups_of_2", {groups, {256, 200, 328}, 3, 2}),
      tile_gemm("tail_of_8_columns", {narrow, {130, 152, 72}, 2, 2}),
      tile_gemm("tail_of_16_columns_cluster2", {tall, {700, 168, 136}, 2, 2}),
      tile_gemm("halves_of_k", {halves, {200, 200, 456}, 8, 2}),
      tile_gemm("quarters_of_k_of_which_one_is_empty", {quarters, {120, 264, 136}, 8, 1}),
      tile_gemm("normal_values_in_halves_of_k", {halves, {128, 128, 512, false}, 2, 1}),
      tile_gemm("normal_values", {cooperative, {128, 256, 512, false}, 2, 1}),
  };
}

}  // namespace kernelwright::test
