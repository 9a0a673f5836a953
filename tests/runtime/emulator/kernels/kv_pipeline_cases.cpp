// kv_pipeline_sm90 compared with sums of small integers: every sum must be equal.
#include <fmt/format.h>

#include "runtime/emulator/kernels/hopper_buffers.h"
#include "runtime/emulator/kernels/hopper_case_lists.h"

namespace kernelwright::test {
namespace {

constexpr std::size_t kKeyWords = 256, kValueWords = 128, kLanes = 64;
const std::vector<std::int32_t> kTiles = {3, 0, 1, 7, 2, 0};  // of each item

std::vector<float> small_integers(Random& random, std::size_t count) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random.below(17)) - 8);
  return values;
}

HopperOutcome run(Device& device, const KernelImage& image, std::uint64_t seed) {
  Random random(seed);
  const std::vector<float> k = small_integers(random, 7 * kKeyWords), v = small_integers(random, 7 * kValueWords);
  const DeviceBuffer d_k(device, k), d_v(device, v), d_tiles(device, kTiles);
  const DeviceBuffer d_out(device, kTiles.size() * kLanes * 4);
  KvPipelineParams params{};
  params.k = d_k.pointer<const float>(), params.v = d_v.pointer<const float>();
  params.tiles = d_tiles.pointer<const std::int32_t>(), params.out = d_out.pointer<float>();
  params.items = static_cast<std::int32_t>(kTiles.size());
  LaunchConfig config;
  config.block = kKvPipelineThreads;
  config.shared_bytes = kKvPipelineSharedBytes;
  launch(device, image, "kv_pipeline_sm90", config, params);

  HopperOutcome outcome;
  outcome.failure = d_out.guards();
  outcome.output = d_out.read();
  const std::vector<float> found = d_out.read_as<float>();
  for (std::size_t at = 0; at < found.size() && outcome.failure.empty(); ++at) {
    const std::size_t item = at / kLanes, lane = at % 32;
    float expected = 0;
    for (std::size_t j = 0; j < static_cast<std::size_t>(kTiles[item]); ++j) {
      for (std::size_t i = lane; i < kKeyWords; i += 32) expected += static_cast<float>(j + 1) * k[j * kKeyWords + i];
      for (std::size_t i = lane; i < kValueWords; i += 32) expected += v[j * kValueWords + i];
    }
    if (found[at] != expected)
      outcome.failure =
          fmt::format("item {}, warp {}, lane {}: {} and should be {}", item, at / 32 % 2, lane, found[at], expected);
  }
  return outcome;
}

HopperCase kv_pipeline(const std::string& name, const KvPipelineVariant& variant) {
  HopperCase test;
  test.name = "kv_pipeline_" + name;
  test.kernel = test.entry = "kv_pipeline_sm90";
  test.spec = fmt::format(
      "#include \"hopper_params.h\"\nnamespace kernelwright::test::spec {{\n"
      "constexpr KvPipelineVariant kVariant = {{{}, {}, {}, {}, {}}};\n}}\n",
      variant.shared_ring, variant.keys_ahead, variant.stages, variant.of_k, variant.of_v);
  test.notes.roles = {{0, 2, "math"}, {2, 1, "load"}};
  test.run = run;
  return test;
}

}  // namespace

std::vector<HopperCase> kv_pipeline_cases() {
  return {
      kv_pipeline("shared_in_turn", {true, false, 2, 1, 1}),   kv_pipeline("shared_keys_ahead", {true, true, 3, 1, 1}),
      kv_pipeline("shared_sub_stages", {true, true, 2, 2, 2}), kv_pipeline("split_in_turn", {false, false, 1, 2, 1}),
      kv_pipeline("split_keys_ahead", {false, true, 2, 1, 2}), kv_pipeline("split_four_chunks", {false, true, 3, 4, 4}),
  };
}

}  // namespace kernelwright::test
