// streamk_sm80 and streamk_sm90 compared with sums in fp64.
#include <fmt/format.h>

#include "runtime/emulator/foreign/foreign_cases.h"
#include "runtime/emulator/kernels/hopper_buffers.h"
#include "runtime/emulator/kernels/hopper_case_lists.h"

namespace kernelwright::test {
namespace {

struct StreamkCase {
  StreamkVariant variant;
  int m, n, k, ctas;
};

HopperOutcome run_streamk(const StreamkCase& test, Device& device, const KernelImage& image, std::uint64_t seed) {
  const auto m = static_cast<std::size_t>(test.m), n = static_cast<std::size_t>(test.n),
             k = static_cast<std::size_t>(test.k), ctas = static_cast<std::size_t>(test.ctas);
  Random random(seed);
  const std::vector<std::uint16_t> a = random_bf16(random, m * k), b = random_bf16(random, n * k);
  const std::size_t tile = kStreamkTile, tiles = (m + tile - 1) / tile * ((n + tile - 1) / tile);
  const std::size_t parts = std::max(ctas, tiles);
  const DeviceBuffer a_memory(device, a), b_memory(device, b), d_memory(device, m * n * 2),
      part_memory(device, parts * tile * tile * 4), flags(device, std::vector<std::uint32_t>(parts));
  StreamkParams params = {};
  params.a = a_memory.pointer<const std::uint16_t>(), params.b = b_memory.pointer<const std::uint16_t>();
  params.d = d_memory.pointer<std::uint16_t>();
  params.parts = part_memory.pointer<float>(), params.flags = flags.pointer<std::uint32_t>();
  params.m = test.m, params.n = test.n, params.k = test.k;
  LaunchConfig config;
  config.grid[0] = static_cast<std::uint32_t>(test.ctas);
  config.block = kStreamkThreads;
  config.shared_bytes = kStreamkSharedBytes;
  launch(device, image, "streamk_sm80", config, params);

  HopperOutcome outcome;
  outcome.output = d_memory.read();
  outcome.failure = d_memory.guards() + part_memory.guards() + flags.guards();
  compare_gemm({test.m, test.n, test.k, /*exact=*/false}, DType::kBf16, a, b, outcome);
  return outcome;
}

HopperOutcome run_streamk_sm90(const StreamkCase& test, Device& device, const KernelImage& image, std::uint64_t seed) {
  const auto m = static_cast<std::size_t>(test.m), n = static_cast<std::size_t>(test.n),
             k = static_cast<std::size_t>(test.k), ctas = static_cast<std::size_t>(test.ctas);
  Random random(seed);
  const std::vector<std::uint16_t> a = random_bf16(random, m * k), b = random_bf16(random, n * k);
  const std::size_t parts = std::max(ctas, (m + 127) / 128 * ((n + 63) / 64));
  const DeviceBuffer a_memory(device, a), b_memory(device, b), d_memory(device, m * n * 2),
      part_memory(device, parts * 128 * 64 * 4), flags(device, std::vector<std::uint32_t>(2 * parts));
  StreamkHopperParams params = {};
  params.a = matrix_map(device, a_memory.address(), DType::kBf16, test.m, test.k, 128, 64);
  params.b = matrix_map(device, b_memory.address(), DType::kBf16, test.n, test.k, 64, 64);
  params.d = matrix_map(device, d_memory.address(), DType::kBf16, test.m, test.n, 64, 64);
  params.parts = part_memory.pointer<float>(), params.flags = flags.pointer<std::uint32_t>();
  params.m = test.m, params.n = test.n, params.k = test.k;
  LaunchConfig config;
  config.grid[0] = static_cast<std::uint32_t>(test.ctas);
  config.block = kStreamkHopperThreads;
  config.shared_bytes = kStreamkHopperSharedBytes;
  launch(device, image, "streamk_sm90", config, params);

  HopperOutcome outcome;
  outcome.output = d_memory.read();
  outcome.failure = d_memory.guards() + part_memory.guards() + flags.guards();
  compare_gemm({test.m, test.n, test.k, /*exact=*/false}, DType::kBf16, a, b, outcome);
  return outcome;
}

HopperCase streamk_case(const std::string& name, const StreamkCase& test, bool hopper = false) {
  const std::string kernel = hopper ? "streamk_sm90" : "streamk_sm80";
  KernelNotes notes;
  const auto slot = static_cast<std::uint32_t>(2 * kStreamkTile * kStreamkBlockK * 2);
  notes.shared = {{0, kStreamkSharedBytes, "ring", slot}};
  if (hopper) {
    const std::uint32_t ring = kStreamkHopperStages * kStreamkSlotBytes;
    notes.roles = {{0, 4, "load"}, {4, 4, "math 0"}, {8, 4, "math 1"}};
    notes.shared = {{0, ring, "A and B", kStreamkSlotBytes},
                    {ring, 2 * kStreamkStagingBytes, "D", kStreamkStagingBytes},
                    {kStreamkBarriersAt, kStreamkHopperStages * 8, "full barriers", 8},
                    {kStreamkBarriersAt + kStreamkHopperStages * 8, kStreamkHopperStages * 8, "empty barriers", 8}};
  }
  HopperCase result = {name,
                       kernel,
                       kernel,
                       fmt::format("#define KERNELWRIGHT_WGMMA_N0 64\n#include \"foreign_params.h\"\n"
                                   "namespace kernelwright::test::spec {{\n"
                                   "constexpr StreamkVariant kVariant = {{static_cast<StreamkFixup>({}), {}}};\n}}\n",
                                   static_cast<int>(test.variant.fixup), test.variant.fences),
                       notes,
                       [test, hopper](Device& device, const KernelImage& image, std::uint64_t seed) {
                         return hopper ? run_streamk_sm90(test, device, image, seed)
                                       : run_streamk(test, device, image, seed);
                       }};
  result.folder = "foreign";
  if (!hopper) result.arch = Arch::kSm80;
  return result;
}

}  // namespace

// A CTA has more steps than a tile. So tiles of one CTA and of two follow each other, and edges are ragged. In the
// cases of many, three or four CTAs share a tile. For sm_90, k is longer than 8 laps of the ring: then a warp whose
// arrival is too many has pushed the others a phase ahead.
std::vector<HopperCase> streamk_cases() {
  const auto parts = StreamkFixup::kParts, chain = StreamkFixup::kChain;
  return {
      streamk_case("foreign_streamk_parts", {{parts, false}, 130, 136, 200, 4}),
      streamk_case("foreign_streamk_parts_fences", {{parts, true}, 130, 136, 200, 4}),
      streamk_case("foreign_streamk_chain", {{chain, false}, 130, 136, 200, 4}),
      streamk_case("foreign_streamk_chain_fences", {{chain, true}, 130, 136, 200, 4}),
      streamk_case("foreign_streamk_parts_many", {{parts, false}, 72, 64, 520, 7}),
      streamk_case("foreign_streamk_chain_many", {{chain, true}, 72, 64, 520, 7}),
      streamk_case("foreign_streamk_sm90_parts", {{parts, false}, 136, 72, 1160, 3}, true),
      streamk_case("foreign_streamk_sm90_chain", {{chain, true}, 136, 72, 1160, 3}, true),
  };
}

}  // namespace kernelwright::test
