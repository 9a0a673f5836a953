// fmha_sm100 compared with a softmax in fp64.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/emulator/foreign/foreign_cases.h"
#include "runtime/emulator/kernels/hopper_buffers.h"
#include "runtime/emulator/kernels/hopper_case_lists.h"

namespace kernelwright::test {
namespace {

HopperOutcome run_fmha(const HopperAttention& attention, Device& device, const KernelImage& image, std::uint64_t seed) {
  AttentionInputs inputs = make_attention_inputs(attention, seed);
  std::fill(inputs.bias.begin(), inputs.bias.end(), 0.0f);
  const DeviceBuffer q(device, inputs.q), k(device, inputs.k), v(device, inputs.v), o(device, inputs.q.size() * 2);
  FmhaParams params = {};
  params.q = attention_head_map(device, q, attention, attention.q_len, kFmhaQueries);
  params.o = attention_head_map(device, o, attention, attention.q_len, kFmhaQueries);
  params.k = attention_head_map(device, k, attention, attention.kv_len, kFmhaKeys);
  params.v = attention_head_map(device, v, attention, attention.kv_len, kFmhaKeys);
  params.kv_len = attention.kv_len;
  params.scale_log2 = static_cast<float>(std::numbers::log2e / std::sqrt(static_cast<double>(kFmhaHeadDim)));
  LaunchConfig config;
  config.grid[0] = static_cast<std::uint32_t>((attention.q_len + 2 * kFmhaQueries - 1) / (2 * kFmhaQueries));
  config.grid[1] = static_cast<std::uint32_t>(attention.batch_heads);
  config.block = kFmhaThreads;
  config.shared_bytes = kFmhaSharedBytes;
  launch(device, image, "fmha_sm100", config, params);

  HopperOutcome outcome;
  outcome.output = o.read();
  outcome.failure = o.guards();
  compare_attention(attention, inputs, outcome);
  return outcome;
}

HopperCase fmha_case(const std::string& name, FmhaVariant variant, int q_len, int kv_len, int batch_heads) {
  HopperAttention attention;
  attention.variant = {kFmhaHeadDim, kFmhaKeys, kFmhaStages, false, false};
  attention.batch_heads = batch_heads, attention.q_len = q_len, attention.kv_len = kv_len;
  KernelNotes notes;
  notes.roles = {{0, 4, "softmax 0"}, {4, 4, "softmax 1"}, {8, 4, "correction"},
                 {12, 1, "mma"},      {13, 1, "load"},     {14, 1, "store"}};
  notes.shared = {{0, 2 * kFmhaTileBytes, "Q", kFmhaTileBytes},
                  {kFmhaRingAt, kFmhaStages * kFmhaSlotBytes, "K and V", kFmhaSlotBytes},
                  {kFmhaStagingAt, 2 * kFmhaTileBytes, "O", kFmhaTileBytes},
                  {kFmhaPAt, 2 * kFmhaTileBytes, "P", kFmhaTileBytes},
                  {kFmhaBarriersAt, kFmhaBarriers * 8, "barriers", 8}};
  HopperCase result = {name,
                       "fmha_sm100",
                       "fmha_sm100",
                       fmt::format("#include \"foreign_params.h\"\nnamespace kernelwright::test::spec {{\n"
                                   "constexpr FmhaVariant kVariant = {{{}}};\n}}\n",
                                   variant.p_shared),
                       notes,
                       [attention](Device& device, const KernelImage& image, std::uint64_t seed) {
                         return run_fmha(attention, device, image, seed);
                       }};
  result.folder = "foreign";
  result.arch = Arch::kSm100a;
  return result;
}

}  // namespace

// The ring of three slots goes round, and the last step has fewer keys. In the second case there is one step alone, and
// the second tile of queries is empty. The long ones have more steps than a warp has lanes: an mbarrier that counts one
// arrival less has then completed a phase without a whole warp.
std::vector<HopperCase> fmha_cases() {
  const FmhaVariant tensor = {false}, shared = {true};
  return {fmha_case("foreign_fmha", tensor, 200, 296, 1), fmha_case("foreign_fmha_one_step", tensor, 72, 40, 2),
          fmha_case("foreign_fmha_long", tensor, 136, 4264, 1),
          fmha_case("foreign_fmha_shared_long", shared, 136, 4264, 1)};
}

}  // namespace kernelwright::test
