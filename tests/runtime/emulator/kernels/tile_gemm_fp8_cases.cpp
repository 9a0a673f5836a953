// templates/kernels/gemm/sm90/gemm_sm90.cu on fp8 operands and their scales, compared with sums in fp64.
#include <fmt/format.h>

#include <cmath>

#include "runtime/emulator/kernels/hopper_buffers.h"
#include "runtime/emulator/kernels/tile_gemm.h"

namespace kernelwright::test {
namespace {

// Tensor cores keep 14 bits of a sum of fp8 products: 4 * 4 * 512 has 13.
constexpr int kFp8Limit = 4, kBlock = 128;

std::size_t index(int row, int columns, int column) {
  return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns) + static_cast<std::size_t>(column);
}
int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// fp8 values as stored, and as doubles.
struct Fp8 {
  std::vector<std::uint8_t> bits;
  std::vector<double> values;
};

/// Normal, or integers within kFp8Limit of which half are 0: e4m3 and e5m2 have all of them.
Fp8 random_fp8(Random& random, DType dtype, std::size_t count, bool exact) {
  Fp8 made;
  while (made.bits.size() < count) {
    float pair[2];
    random.normal_pair(pair[0], pair[1]);
    for (const float normal : pair) {
      const float integer = random.below(2) ? static_cast<float>(random.below(2 * kFp8Limit + 1)) - kFp8Limit : 0.0f;
      const std::uint32_t bits = encode_float(dtype, exact ? integer : normal);
      made.bits.push_back(static_cast<std::uint8_t>(bits));
      made.values.push_back(decode_float(dtype, bits));
    }
  }
  made.bits.resize(count), made.values.resize(count);
  return made;
}

/// Positive: powers of two between 1/4 and 4, or any between 1/2 and 2.
std::vector<float> random_scales(Random& random, std::size_t count, bool exact) {
  std::vector<float> scales(count);
  for (float& scale : scales)
    scale =
        exact ? std::ldexp(1.0f, static_cast<int>(random.below(5)) - 2)
              : std::ldexp(1.0f + static_cast<float>(random.below(4096)) / 4096, static_cast<int>(random.below(2)) - 1);
  return scales;
}

/// The scales of both operands, with room behind each row.
struct Scales {
  std::vector<float> a, b;
  int a_stride = 0, b_stride = 0;
  double of(ScaleKind kind, int row, int column, int k) const {
    if (kind == ScaleKind::kNone) return 1;
    if (kind == ScaleKind::kPerTensor) return static_cast<double>(a[0]) * b[0];
    if (kind == ScaleKind::kPerToken)
      return static_cast<double>(a[static_cast<std::size_t>(row)]) * b[static_cast<std::size_t>(column)];
    return static_cast<double>(a[index(k / kBlock, a_stride, row)]) * b[index(column / kBlock, b_stride, k / kBlock)];
  }
};

Scales random_scales(Random& random, const TileGemmCase& gemm) {
  const auto [m, n, k, exact] = gemm.size;
  Scales scales;
  const auto make = [&](int count) { return random_scales(random, static_cast<std::size_t>(count), exact); };
  switch (gemm.spec.scales) {
    case ScaleKind::kPerTensor: scales.a = make(1), scales.b = make(1); break;
    case ScaleKind::kPerToken: scales.a = make(m), scales.b = make(n); break;
    case ScaleKind::kPerBlock:
      scales.a_stride = ceil_div(m, 4) * 4 + 4, scales.b_stride = ceil_div(k, kBlock) + 1;
      scales.a = make(scales.a_stride * ceil_div(k, kBlock)), scales.b = make(scales.b_stride * ceil_div(n, kBlock));
      break;
    default: break;
  }
  return scales;
}

/// If exact, compares bit by bit. Otherwise by what the tensor cores keep: each sum of 32 products, and the sum to
/// which it is added, loses what is below 2^-13 of the largest. A run of such sums ends where they are promoted to f32.
void compare(const TileGemmCase& gemm, const Fp8& a, const Fp8& b, const Scales& scales, HopperOutcome& outcome) {
  const auto [m, n, k, exact] = gemm.size;
  const int run = gemm.spec.promotion > 0 ? 4 * gemm.spec.promotion : ceil_div(k, 32);
  const double lost = run * 0x1p-13 + ceil_div(k, kBlock) * 0x1p-22;
  for (int row = 0; row < m; ++row)
    for (int column = 0; column < n; ++column) {
      double sum = 0, absolutes = 0;
      for (int begin = 0; begin < k; begin += kBlock) {
        double part = 0, part_absolutes = 0;
        for (int i = begin; i < std::min(begin + kBlock, k); ++i) {
          const double product = a.values[index(row, k, i)] * b.values[index(column, k, i)];
          part += product, part_absolutes += std::abs(product);
        }
        const double scale = scales.of(gemm.spec.scales, row, column, begin);
        sum += scale * part, absolutes += scale * part_absolutes;
      }
      std::uint16_t bits = 0;
      std::memcpy(&bits, outcome.output.data() + index(row, n, column) * 2, 2);
      const double found = bf16_value(bits);
      const double accumulated = lost * absolutes;
      const double bound =
          accumulated + float_format(DType::kBf16).unit_roundoff * (std::abs(sum) + accumulated) + 1e-30;
      const double ratio = std::abs(found - sum) / bound;
      const bool wrong = exact ? bits != encode_float(DType::kBf16, static_cast<float>(sum)) : !(ratio <= 1);
      if (!exact && ratio > outcome.worst_ratio) outcome.worst_ratio = ratio;
      if (wrong && outcome.failure.empty())
        outcome.failure = fmt::format("D[{}][{}] is {} and should be {}{}", row, column, found, sum,
                                      exact ? " to the bit" : fmt::format(" within {:.3g}", bound));
    }
}

/// The map of the scales of single rows of a, [k / 128][stride].
TensorMap scales_map(Device& device, DevicePtr address, const TileGemmCase& gemm, int stride) {
  TensorMapRequest request;
  request.address = address;
  request.dtype = DType::kF32;
  request.rank = 2;
  request.dims[0] = static_cast<std::uint64_t>(gemm.size.m);
  request.dims[1] = static_cast<std::uint64_t>(ceil_div(gemm.size.k, kBlock));
  request.strides_bytes[0] = static_cast<std::uint64_t>(stride) * 4;
  request.box[0] = static_cast<std::uint32_t>(gemm.spec.swap_ab ? gemm.spec.block_n : gemm.spec.block_m);
  request.box[1] = 1;
  request.swizzle = Swizzle::kNone;
  return tensor_map(device, request);
}

HopperOutcome run(const TileGemmCase& gemm, Device& device, const KernelImage& image, std::uint64_t seed) {
  const GemmSpec& spec = gemm.spec;
  const auto [m, n, k, exact] = gemm.size;
  Random random(seed);
  const Fp8 a = random_fp8(random, spec.a, index(m, k, 0), exact),
            b = random_fp8(random, spec.b, index(n, k, 0), exact);
  const Scales scales = random_scales(random, gemm);
  const DeviceBuffer a_memory(device, a.bits), b_memory(device, b.bits), d_memory(device, index(m, n, 0) * 2),
      scale_a(device, scales.a), scale_b(device, scales.b);
  contract::GemmParams params = {};
  const auto of_a = [&](int box_rows) {
    return matrix_map(device, a_memory.address(), spec.a, m, k, box_rows, contract::kGemmSlabBytes);
  };
  const auto of_b = [&](int box_rows) {
    return matrix_map(device, b_memory.address(), spec.b, n, k, box_rows, contract::kGemmSlabBytes);
  };
  const bool swap = spec.swap_ab;
  params.a = swap ? of_b(spec.block_m) : of_a(spec.block_m);
  params.b = swap ? of_a(spec.block_n / spec.cluster_m) : of_b(spec.block_n / spec.cluster_m);
  params.scale_a = (swap ? scale_b : scale_a).pointer<float>(),
  params.scale_b = (swap ? scale_a : scale_b).pointer<float>();
  params.scale_a_stride = swap ? scales.b_stride : scales.a_stride;
  params.scale_b_stride = swap ? scales.a_stride : scales.b_stride;
  if (spec.scales == ScaleKind::kPerBlock) params.scales = scales_map(device, scale_a.address(), gemm, scales.a_stride);
  set_output(gemm, device, d_memory.address(), params);
  launch_tile_gemm(gemm, device, image, params);

  HopperOutcome outcome;
  outcome.output = d_memory.read();
  outcome.failure = d_memory.guards();
  compare(gemm, a, b, scales, outcome);
  return outcome;
}

HopperCase fp8(const std::string& name, const TileGemmCase& gemm) { return tile_gemm("fp8_" + name, gemm, run); }

}  // namespace

std::vector<HopperCase> tile_gemm_fp8_cases() {
  // Like bf16's cases: rings wrap, edges are ragged, and k too (in 16 bytes).
  GemmSpec plain = tile_gemm_spec();
  plain.a = plain.b = DType::kE4m3;
  GemmSpec mixed = plain, tensor = plain, token = plain, token_pairs = plain, parts = plain;
  mixed.a = DType::kE5m2, mixed.block_n = 72, mixed.block_m = 64, mixed.roles = Roles::kPingPong;
  tensor.b = DType::kE5m2, tensor.scales = ScaleKind::kPerTensor, tensor.mma_in_flight = 0;
  token.scales = ScaleKind::kPerToken, token.roles = Roles::kPingPong;
  token_pairs.scales = ScaleKind::kPerToken, token_pairs.cluster_m = 2, token_pairs.block_n = 80;
  parts.scales = ScaleKind::kPerTensor, parts.a = parts.b = DType::kE5m2, parts.split_k = 2;
  GemmSpec added = plain, added_late = plain, added_in_shares = plain, added_in_runs = plain;
  added.promotion = 1, added.mma_in_flight = 0, added.scales = ScaleKind::kPerToken;
  added_late.promotion = 1, added_late.k_group = 2, added_late.stages = 4, added_late.roles = Roles::kPingPong;
  added_late.block_m = 64;
  added_in_shares.promotion = 1, added_in_shares.scales = ScaleKind::kPerTensor, added_in_shares.split_k = 2;
  added_in_runs.promotion = 2, added_in_runs.b = DType::kE5m2;
  GemmSpec block = plain, block_late = plain, block_160 = plain, block_tall = plain, block_shares = plain,
           block_parts = plain, block_turns = plain;
  block.scales = block_late.scales = block_160.scales = block_tall.scales = block_shares.scales = block_parts.scales =
      block_turns.scales = ScaleKind::kPerBlock;
  block.promotion = block_late.promotion = block_160.promotion = block_tall.promotion = block_shares.promotion =
      block_parts.promotion = block_turns.promotion = 1;
  block.mma_in_flight = block_tall.mma_in_flight = block_shares.mma_in_flight = block_parts.mma_in_flight = 0;
  block_late.block_n = 192;
  block_160.block_n = 160, block_160.k_group = 2, block_160.stages = 4;
  block_tall.block_m = 256, block_tall.cluster_m = 2, block_tall.stages = 2;
  block_shares.block_n = 256;
  block_parts.split_k = 2, block_parts.a = DType::kE5m2;
  block_turns.roles = Roles::kPingPong, block_turns.block_n = 48;
  GemmSpec swapped = block, swapped_low = block, swapped_parts = block, token_swapped = token;
  swapped.swap_ab = swapped_low.swap_ab = swapped_parts.swap_ab = token_swapped.swap_ab = true;
  swapped.block_n = 32, swapped.block_m = 256, swapped.b = DType::kE5m2;
  swapped_low.block_m = 64, swapped_low.block_n = 40, swapped_low.math_warpgroups = 1, swapped_low.k_group = 2;
  swapped_low.stages = 4, swapped_low.mma_in_flight = 1;
  swapped_parts.split_k = 2, swapped_parts.block_m = 64, swapped_parts.math_warpgroups = 1;
  token_swapped.block_n = 32;
  return {
      fp8("added", {added, {300, 264, 464}, 2, 2}),
      fp8("added_late_ping_pong", {added_late, {200, 264, 592}, 2, 2}),
      fp8("added_in_halves_of_k", {added_in_shares, {200, 200, 720}, 8, 2}),
      fp8("added_in_runs", {added_in_runs, {200, 264, 592}, 2, 2}),
      fp8("added_normal_values", {added, {128, 256, 512, false}, 2, 1}),
      fp8("blocks", {block, {300, 264, 464}, 2, 2}),
      fp8("blocks_192_columns", {block_late, {140, 800, 336}, 2, 2}),
      fp8("blocks_160_columns", {block_160, {140, 808, 592}, 2, 2}),
      fp8("blocks_256_rows_cluster2", {block_tall, {700, 264, 336}, 2, 2}),
      fp8("blocks_256_columns", {block_shares, {140, 520, 464}, 2, 2}),
      fp8("blocks_halves_of_k", {block_parts, {200, 200, 720}, 8, 2}),
      fp8("blocks_ping_pong_48_columns", {block_turns, {200, 304, 464}, 2, 2}),
      fp8("blocks_swapped", {swapped, {20, 304, 464}, 2, 2}),
      fp8("blocks_swapped_64_rows", {swapped_low, {70, 200, 720}, 2, 2}),
      fp8("blocks_swapped_halves_of_k", {swapped_parts, {100, 200, 720}, 8, 2}),
      fp8("scales_of_tokens_swapped", {token_swapped, {40, 304, 336}, 2, 2}),
      fp8("blocks_normal_values", {block, {128, 256, 512, false}, 2, 1}),
      fp8("cooperative", {plain, {300, 264, 464}, 2, 2}),
      fp8("ping_pong_mixed", {mixed, {130, 152, 336}, 2, 1}),
      fp8("scale_of_tensor", {tensor, {200, 264, 464}, 2, 1, true}),
      fp8("scales_of_tokens_ping_pong", {token, {300, 264, 208}, 2, 1}),
      fp8("scales_of_tokens_cluster2", {token_pairs, {600, 168, 400}, 4, 1}),
      fp8("halves_of_k_scale_of_tensor", {parts, {200, 200, 464}, 8, 2}),
      fp8("normal_values_scales_of_tokens", {token, {128, 256, 512, false}, 2, 1}),
  };
}

}  // namespace kernelwright::test
