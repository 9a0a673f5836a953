// gemm_sm90 compared with sums in fp64.
#include <fmt/format.h>

#include <cmath>

#include "runtime/emulator/kernels/hopper_buffers.h"
#include "runtime/emulator/kernels/hopper_case_lists.h"

namespace kernelwright::test {
namespace {

/// One f32 addition that truncates loses 2^-23 of the larger operand, and tensor cores truncate (no standard says how
/// they round). There are k additions, each to a partial sum no larger than sum |a b|.
double accumulation_bound(int k, double sum_of_absolutes) { return k * 0x1p-23 * sum_of_absolutes; }

std::vector<float> decoded(const std::vector<std::uint16_t>& bits) {
  std::vector<float> values(bits.size());
  for (std::size_t i = 0; i < bits.size(); ++i) values[i] = bf16_value(bits[i]);
  return values;
}

}  // namespace

void compare_gemm(const GemmSize& gemm, DType dtype, const std::vector<std::uint16_t>& a_bits,
                  const std::vector<std::uint16_t>& b_bits, HopperOutcome& outcome) {
  const std::vector<float> a = decoded(a_bits), b = decoded(b_bits);
  const std::size_t size = bytes_of(dtype), k = static_cast<std::size_t>(gemm.k);
  for (int row = 0; row < gemm.m; ++row) {
    const float* a_row = a.data() + static_cast<std::size_t>(row) * k;
    for (int column = 0; column < gemm.n; ++column) {
      const float* b_row = b.data() + static_cast<std::size_t>(column) * k;
      double sum = 0, absolutes = 0;
      for (std::size_t i = 0; i < k; ++i) {
        const double product = static_cast<double>(a_row[i]) * b_row[i];
        sum += product;
        absolutes += std::abs(product);
      }
      const std::size_t at =
          static_cast<std::size_t>(row) * static_cast<std::size_t>(gemm.n) + static_cast<std::size_t>(column);
      std::uint32_t bits = 0;
      std::memcpy(&bits, outcome.output.data() + at * size, size);
      const double found = decode_float(dtype, bits);
      const double rounding = dtype == DType::kF32 ? 0 : float_format(dtype).unit_roundoff;
      const double accumulated = accumulation_bound(gemm.k, absolutes);
      const double bound = accumulated + rounding * (std::abs(sum) + accumulated) + 1e-30;
      const double ratio = std::abs(found - sum) / bound;
      const bool wrong = gemm.exact ? bits != encode_float(dtype, static_cast<float>(sum)) : !(ratio <= 1);
      if (!gemm.exact && ratio > outcome.worst_ratio) outcome.worst_ratio = ratio;
      if (wrong && outcome.failure.empty())
        outcome.failure = fmt::format("D[{}][{}] is {} and should be {}{}", row, column, found, sum,
                                      gemm.exact ? " to the bit" : fmt::format(" within {:.3g}", bound));
    }
  }
}

namespace {

HopperOutcome run_gemm(const HopperGemm& gemm, Device& device, const KernelImage& image, std::uint64_t seed) {
  const GemmVariant& variant = gemm.variant;
  const auto m = static_cast<std::size_t>(gemm.m), n = static_cast<std::size_t>(gemm.n),
             k = static_cast<std::size_t>(gemm.k);
  Random random(seed);
  const int limit = gemm.exact ? kExactLimit : 0;
  const std::vector<std::uint16_t> a = random_bf16(random, m * k, limit), b = random_bf16(random, n * k, limit);
  std::vector<std::uint16_t> b_stored = b;  // [k][n] where it is MN-major
  if (variant.b_mn_major)
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < k; ++j) b_stored[j * n + i] = b[i * k + j];

  const DeviceBuffer a_memory(device, a), b_memory(device, b_stored),
      d_memory(device, m * n * (variant.output_f32 ? 4 : 2));
  GemmParams params = {};
  params.m = gemm.m, params.n = gemm.n, params.k = gemm.k;
  params.a = matrix_map(device, a_memory.address(), DType::kBf16, gemm.m, gemm.k, 2 * variant.rows_per_warpgroup, 64);
  params.b = variant.b_mn_major ? matrix_map(device, b_memory.address(), DType::kBf16, gemm.k, gemm.n, 64, 64)
                                : matrix_map(device, b_memory.address(), DType::kBf16, gemm.n, gemm.k,
                                             variant.block_n / variant.cluster, 64);
  if (variant.output_f32) {
    params.d_f32 = d_memory.pointer<float>();
  } else {
    params.d = matrix_map(device, d_memory.address(), DType::kBf16, gemm.m, gemm.n, variant.rows_per_warpgroup, 64);
  }
  LaunchConfig config;
  config.grid[0] = static_cast<std::uint32_t>(gemm.ctas);
  config.block = kGemmThreads;
  config.cluster[0] = static_cast<std::uint32_t>(variant.cluster);
  config.shared_bytes = gemm_shared_bytes(variant);
  launch(device, image, "gemm_sm90", config, params);

  HopperOutcome outcome;
  outcome.output = d_memory.read();
  outcome.failure = d_memory.guards();
  compare_gemm({gemm.m, gemm.n, gemm.k, gemm.exact}, variant.output_f32 ? DType::kF32 : DType::kBf16, a, b, outcome);
  return outcome;
}

std::string spec_of(const GemmVariant& v) {
  return fmt::format(
      "#define KERNELWRIGHT_WGMMA_N0 {}\n#include \"hopper_params.h\"\nnamespace kernelwright::test::spec {{\n"
      "constexpr GemmVariant kVariant = {{{}, {}, {}, {}, {}, {}, {}, {}}};\n}}\n",
      v.block_n, v.rows_per_warpgroup, v.block_n, v.stages, v.cluster, v.b_mn_major, v.output_f32, v.mma_in_flight,
      v.cluster_barrier_exit);
}

KernelNotes notes_of(const GemmVariant& v) {
  const auto stages = static_cast<std::uint32_t>(v.stages);
  const auto a_bytes = static_cast<std::uint32_t>(2 * v.rows_per_warpgroup * 128);
  const auto b_bytes = static_cast<std::uint32_t>(v.block_n * 128);
  const std::uint32_t ring = gemm_ring_bytes(v), staging = gemm_staging_bytes(v);
  KernelNotes notes;
  notes.roles = {{0, 4, "load"}, {4, 4, "math 0"}, {8, 4, "math 1"}};
  notes.shared = {{0, stages * a_bytes, "A", a_bytes},
                  {stages * a_bytes, stages * b_bytes, "B", b_bytes},
                  {ring + staging, stages * 8, "full barriers", 8},
                  {ring + staging + stages * 8, stages * 8, "empty barriers", 8}};
  if (staging) notes.shared.push_back({ring, staging, "D"});
  return notes;
}

}  // namespace

HopperCase hopper_gemm(const std::string& name, const HopperGemm& gemm) {
  return {name,
          "gemm_sm90",
          "gemm_sm90",
          spec_of(gemm.variant),
          notes_of(gemm.variant),
          [gemm](Device& device, const KernelImage& image, std::uint64_t seed) {
            return run_gemm(gemm, device, image, seed);
          }};
}

std::vector<HopperCase> gemm_cases() {
  // Odd numbers of k blocks, so that tiles begin in every slot of the ring and with both parities; ragged m, n and k.
  const GemmVariant plain = {64, 128, 3, 1, false, false, 0, false};
  GemmVariant lagged = plain, cluster = plain, mn_major = plain, f32 = plain, tall = plain;
  lagged.mma_in_flight = 1, lagged.stages = 4;
  cluster.cluster = 2, cluster.mma_in_flight = 1;
  mn_major.b_mn_major = true;
  f32.output_f32 = true, f32.block_n = 64, f32.stages = 2;
  tall.rows_per_warpgroup = 128, tall.mma_in_flight = 1;
  GemmVariant cluster_barrier = cluster, cluster_mn_major = cluster, wide = lagged, tall_cluster = tall;
  cluster_barrier.cluster_barrier_exit = true, cluster_barrier.mma_in_flight = 0, cluster_barrier.stages = 2;
  cluster_mn_major.b_mn_major = true, cluster_mn_major.block_n = 256;
  wide.block_n = 192, wide.output_f32 = true, wide.b_mn_major = true, wide.stages = 2;
  tall_cluster.cluster = 2, tall_cluster.block_n = 64, tall_cluster.cluster_barrier_exit = true;
  return {
      hopper_gemm("gemm_plain", {plain, 256, 256, 320, 2}),
      hopper_gemm("gemm_lagged_release", {lagged, 384, 256, 448, 3}),
      hopper_gemm("gemm_cluster2", {cluster, 512, 256, 320, 2}),
      hopper_gemm("gemm_cluster2_barrier_exit", {cluster_barrier, 512, 384, 192, 4}),
      hopper_gemm("gemm_cluster2_ragged", {cluster, 200, 328, 200, 4}),
      hopper_gemm("gemm_cluster2_mn_major", {cluster_mn_major, 256, 512, 192, 2}),
      hopper_gemm("gemm_mn_major", {mn_major, 128, 384, 192, 2}),
      hopper_gemm("gemm_f32_out", {f32, 250, 130, 136, 2}),
      hopper_gemm("gemm_192_columns_mn_major_f32_out", {wide, 128, 400, 72, 2}),
      hopper_gemm("gemm_128_rows", {tall, 512, 256, 256, 2}),
      hopper_gemm("gemm_128_rows_cluster2", {tall_cluster, 1000, 72, 264, 2}),
      hopper_gemm("gemm_normal_values", {cluster, 256, 256, 512, 4, false}),
      hopper_gemm("gemm_normal_values_f32_out", {f32, 256, 128, 512, 2, false}),
  };
}

}  // namespace kernelwright::test
