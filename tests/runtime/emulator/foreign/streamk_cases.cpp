// streamk_sm80 compared with sums in fp64.
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

HopperCase streamk_case(const std::string& name, const StreamkCase& test) {
  KernelNotes notes;
  const auto slot = static_cast<std::uint32_t>(2 * kStreamkTile * kStreamkBlockK * 2);
  notes.shared = {{0, kStreamkSharedBytes, "ring", slot}};
  HopperCase result = {name,
                       "streamk_sm80",
                       "streamk_sm80",
                       fmt::format("#include \"foreign_params.h\"\nnamespace kernelwright::test::spec {{\n"
                                   "constexpr StreamkVariant kVariant = {{static_cast<StreamkFixup>({}), {}}};\n}}\n",
                                   static_cast<int>(test.variant.fixup), test.variant.fences),
                       notes,
                       [test](Device& device, const KernelImage& image, std::uint64_t seed) {
                         return run_streamk(test, device, image, seed);
                       }};
  result.folder = "foreign";
  result.arch = Arch::kSm80;
  return result;
}

}  // namespace

// A CTA has more steps than a tile. So tiles of one CTA, of two, and in the last case of three or four follow each
// other, and edges are ragged.
std::vector<HopperCase> streamk_cases() {
  const auto parts = StreamkFixup::kParts, chain = StreamkFixup::kChain;
  return {
      streamk_case("foreign_streamk_parts", {{parts, false}, 130, 136, 200, 4}),
      streamk_case("foreign_streamk_parts_fences", {{parts, true}, 130, 136, 200, 4}),
      streamk_case("foreign_streamk_chain", {{chain, false}, 130, 136, 200, 4}),
      streamk_case("foreign_streamk_chain_fences", {{chain, true}, 130, 136, 200, 4}),
      streamk_case("foreign_streamk_parts_many", {{parts, false}, 72, 64, 520, 7}),
      streamk_case("foreign_streamk_chain_many", {{chain, true}, 72, 64, 520, 7}),
  };
}

}  // namespace kernelwright::test
