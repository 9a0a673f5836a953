// templates/kernels/gemm/sm90/gemm_sm90.cu on bf16, compared with sums in fp64.
#include "runtime/emulator/kernels/hopper_buffers.h"
#include "runtime/emulator/kernels/tile_gemm.h"

namespace kernelwright::test {
namespace {

HopperOutcome run_bf16(const TileGemmCase& gemm, Device& device, const KernelImage& image, std::uint64_t seed) {
  const GemmSpec& spec = gemm.spec;
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
  params.a = matrix_map(device, a_memory.address(), DType::kBf16, m, k, spec.block_m, contract::kGemmSlabBytes / 2);
  params.b = matrix_map(device, b_memory.address(), DType::kBf16, n, k, spec.block_n / spec.cluster_m,
                        contract::kGemmSlabBytes / 2);
  set_output(gemm, device, d_memory.address(), params);
  launch_tile_gemm(gemm, device, image, params);

  HopperOutcome outcome;
  outcome.output = d_memory.read();
  outcome.failure = d_memory.guards();
  compare_gemm(gemm.size, DType::kBf16, a, b, outcome);
  return outcome;
}

HopperCase bf16(const std::string& name, const TileGemmCase& gemm) { return tile_gemm(name, gemm, run_bf16); }

}  // namespace

std::vector<HopperCase> tile_gemm_cases() {
  // Odd numbers of k slabs, so that tiles begin in every slot of the ring; ragged m, n and k; more tiles than CTAs.
  const GemmSpec cooperative = tile_gemm_spec();
  GemmSpec ping_pong = cooperative, pairs = cooperative, groups = cooperative, narrow = cooperative, tall = cooperative,
           halves = cooperative, quarters = cooperative;
  ping_pong.block_m = 64, ping_pong.roles = Roles::kPingPong;
  pairs.cluster_m = 2, pairs.mma_in_flight = 0;
  groups.block_n = 64, groups.stages = 4, groups.k_group = 2, groups.store_stages = 1;
  narrow.block_m = 64, narrow.block_n = 72, narrow.roles = Roles::kPingPong;
  tall.block_m = 256, tall.block_n = 80, tall.cluster_m = 2;
  halves.split_k = 2;
  quarters.split_k = 4, quarters.block_n = 256, quarters.store_stages = 1;
  return {
      bf16("cooperative", {cooperative, {300, 264, 328}, 2, 2}),
      bf16("ping_pong", {ping_pong, {200, 392, 200}, 2, 1}),
      bf16("ping_pong_one_tile", {ping_pong, {40, 128, 448}, 1, 1}),
      bf16("cluster2", {pairs, {600, 264, 200}, 4, 1, true}),
      bf16("k_groups_of_2", {groups, {256, 200, 328}, 3, 2}),
      bf16("tail_of_8_columns", {narrow, {130, 152, 72}, 2, 2}),
      bf16("tail_of_16_columns_cluster2", {tall, {700, 168, 136}, 2, 2}),
      bf16("halves_of_k", {halves, {200, 200, 456}, 8, 2}),
      bf16("quarters_of_k_of_which_one_is_empty", {quarters, {120, 264, 136}, 8, 1}),
      bf16("normal_values_in_halves_of_k", {halves, {128, 128, 512, false}, 2, 1}),
      bf16("normal_values", {cooperative, {128, 256, 512, false}, 2, 1}),
  };
}

}  // namespace kernelwright::test
