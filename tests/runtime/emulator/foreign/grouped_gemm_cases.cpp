// grouped_gemm_sm90 compared with sums in fp64.
#include <fmt/format.h>

#include <memory>

#include "runtime/emulator/foreign/foreign_cases.h"
#include "runtime/emulator/kernels/hopper_buffers.h"
#include "runtime/emulator/kernels/hopper_case_lists.h"

namespace kernelwright::test {
namespace {

/// Device memory of one group.
struct Group {
  GemmSize size;
  std::vector<std::uint16_t> a, b;
  DeviceBuffer a_memory, b_memory, d_memory;
  Group(Device& device, const GemmSize& gemm, Random& random)
      : size(gemm),
        a(random_bf16(random, static_cast<std::size_t>(gemm.m * gemm.k))),
        b(random_bf16(random, static_cast<std::size_t>(gemm.n * gemm.k))),
        a_memory(device, a),
        b_memory(device, b),
        d_memory(device, static_cast<std::size_t>(gemm.m * gemm.n) * 2) {}
  GroupedProblem problem() const {
    return {a_memory.address(), b_memory.address(), d_memory.address(), size.m, size.n, size.k};
  }
};

HopperOutcome run_grouped(const std::vector<GemmSize>& sizes, int ctas, Device& device, const KernelImage& image,
                          std::uint64_t seed) {
  Random random(seed);
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<GroupedProblem> problems;
  for (const GemmSize& size : sizes) {
    groups.push_back(std::make_unique<Group>(device, size, random));
    problems.push_back(groups.back()->problem());
  }
  const DeviceBuffer problem_memory(device, problems), any(device, 4096),
      maps(device, static_cast<std::size_t>(ctas * kGroupedMaps) * sizeof(TensorMap));
  GroupedParams params = {};
  params.a = matrix_map(device, any.address(), DType::kBf16, 8, 8, 128, 64);
  params.b = params.d = matrix_map(device, any.address(), DType::kBf16, 8, 8, 64, 64);
  params.groups = problem_memory.pointer<const GroupedProblem>();
  params.maps = maps.pointer<TensorMap>();
  params.num_groups = static_cast<int>(sizes.size());
  LaunchConfig config;
  config.grid[0] = static_cast<std::uint32_t>(ctas);
  config.block = kGroupedThreads;
  config.shared_bytes = kGroupedSharedBytes;
  launch(device, image, "grouped_gemm_sm90", config, params);

  HopperOutcome all;
  all.failure = maps.guards() + any.guards();
  for (const auto& group : groups) {
    HopperOutcome outcome;
    outcome.output = group->d_memory.read();
    outcome.failure = group->d_memory.guards();
    compare_gemm(group->size, DType::kBf16, group->a, group->b, outcome);
    if (all.failure.empty()) all.failure = outcome.failure;
    all.worst_ratio = std::max(all.worst_ratio, outcome.worst_ratio);
    all.output.insert(all.output.end(), outcome.output.begin(), outcome.output.end());
  }
  return all;
}

HopperCase grouped_case(const std::string& name, MapEdit edit) {
  // Tiles begin in every slot of the ring; edges are ragged; one group has no rows. The last one's k is longer than 8
  // laps of the ring: then a warp whose arrival is too many has pushed the others a phase ahead.
  const std::vector<GemmSize> sizes = {
      {200, 72, 136, false}, {0, 64, 64, false}, {64, 136, 64, false}, {130, 64, 1864, false}};
  KernelNotes notes;
  notes.roles = {{0, 4, "load"}, {4, 4, "math 0"}, {8, 4, "math 1"}};
  const std::uint32_t ring = kGroupedStages * kGroupedSlotBytes;
  notes.shared = {{0, ring, "A and B", kGroupedSlotBytes},
                  {ring, 2 * kGroupedStagingBytes, "D", kGroupedStagingBytes},
                  {kGroupedMapsAt, kGroupedMaps * 128, "maps", 128},
                  {kGroupedBarriersAt, kGroupedStages * 8, "full barriers", 8},
                  {kGroupedBarriersAt + kGroupedStages * 8, kGroupedStages * 8, "empty barriers", 8}};
  HopperCase result = {name,
                       "grouped_gemm_sm90",
                       "grouped_gemm_sm90",
                       fmt::format("#define KERNELWRIGHT_WGMMA_N0 64\n#include \"foreign_params.h\"\n"
                                   "namespace kernelwright::test::spec {{\n"
                                   "constexpr GroupedVariant kVariant = {{static_cast<MapEdit>({})}};\n}}\n",
                                   static_cast<int>(edit)),
                       notes,
                       [sizes](Device& device, const KernelImage& image, std::uint64_t seed) {
                         return run_grouped(sizes, 3, device, image, seed);
                       }};
  result.folder = "foreign";
  return result;
}

}  // namespace

std::vector<HopperCase> grouped_gemm_cases() {
  return {grouped_case("foreign_grouped_gemm_shared", MapEdit::kShared),
          grouped_case("foreign_grouped_gemm_global", MapEdit::kGlobal)};
}

}  // namespace kernelwright::test
