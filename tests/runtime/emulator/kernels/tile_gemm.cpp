// A Spec of gemm_sm90 as text, as notes for reports, and as a launch.
#include "runtime/emulator/kernels/tile_gemm.h"

#include <fmt/format.h>

#include "kernelwright/generator/plan/launch.h"
#include "runtime/emulator/kernels/hopper_buffers.h"

namespace kernelwright::test {
namespace {

std::string type_of(bool) { return "bool"; }
std::string type_of(int) { return "int"; }
std::string type_of(float) { return "float"; }
template <Enum E>
std::string type_of(E) {
  return std::string(EnumTable<E>::type);
}

/// "block_m" -> "kBlockM"; dtypes say that they are.
template <class T>
std::string constant_name(const char* field) {
  std::string name = "k";
  bool upper = true;
  for (const char* c = field; *c != 0; ++c) {
    if (*c != '_') name += upper ? static_cast<char>(*c - 'a' + 'A') : *c;
    upper = *c == '_';
  }
  return std::is_same_v<T, DType> ? name + "DType" : name;
}

std::string spec_of(GemmSpec spec) {
  std::string text =
      "#pragma once\n#define KERNELWRIGHT_ENTRY gemm_sm90\n#include \"contract/words.h\"\nnamespace "
      "kernelwright::spec {\n";
  visit_fields(spec, [&](const char* field, auto value, const auto&, const char*) {
    using T = decltype(value);
    if constexpr (std::is_same_v<T, Swizzle>)
      text += fmt::format("constexpr int kSwizzleBytes = {};\n",
                          value == Swizzle::kNone ? 0 : 16 << static_cast<int>(value));
    else if constexpr (std::is_same_v<T, Arch>)
      text += "constexpr int kArch = 90;\n";
    else if constexpr (!std::is_same_v<T, Family>)
      text += fmt::format("constexpr {0} {1} = static_cast<{0}>({2});\n", type_of(value), constant_name<T>(field),
                          static_cast<int>(value));
  });
  return text + "}\n";
}

KernelNotes notes_of(const GemmSpec& spec) {
  const contract::GemmLayout layout = tile_gemm_layout(spec);
  const auto at = [](std::int32_t offset) { return static_cast<std::uint32_t>(offset); };
  KernelNotes notes;
  notes.roles = {{0, 4, "load"}};
  for (int i = 0; i < spec.math_warpgroups; ++i)
    notes.roles.push_back({4 + 4 * static_cast<std::uint32_t>(i), 4, fmt::format("math {}", i)});
  notes.shared = {{at(layout.a), at(layout.b - layout.a), "A", at(spec.block_m * 128)},
                  {at(layout.b), at(layout.output - layout.b), "B", at(spec.block_n * 128)},
                  {at(layout.output), at(layout.scales - layout.output), "D"},
                  {at(layout.barriers), at(layout.total - layout.barriers), "barriers", 8}};
  if (layout.barriers > layout.scales)
    notes.shared.push_back({at(layout.scales), at(layout.barriers - layout.scales), "scales",
                            at(layout.barriers - layout.scales) / static_cast<std::uint32_t>(spec.stages)});
  return notes;
}

}  // namespace

GemmSpec tile_gemm_spec() {
  GemmSpec spec;
  spec.family = Family::kHopper;
  spec.arch = Arch::kSm90a;
  spec.stages = 3;
  return spec;
}

contract::GemmLayout tile_gemm_layout(const GemmSpec& spec) {
  const int scales = spec.scales == ScaleKind::kPerBlock ? spec.swap_ab ? spec.block_n : spec.block_m : 0;
  return contract::gemm_layout(spec.block_m, spec.block_n, spec.stages, spec.k_group, spec.math_warpgroups,
                               spec.store_stages, contract::gemm_scale_bytes(scales), spec.takes_turns());
}

HopperCase tile_gemm(const std::string& name, const TileGemmCase& gemm, TileGemmRun run) {
  return {"tile_gemm_" + name,
          "gemm_sm90",
          "gemm_sm90",
          spec_of(gemm.spec),
          notes_of(gemm.spec),
          [gemm, run](Device& device, const KernelImage& image, std::uint64_t seed) {
            return run(gemm, device, image, seed);
          },
          /*of_templates=*/true};
}

void set_output(const TileGemmCase& gemm, Device& device, DevicePtr d, contract::GemmParams& params) {
  const int bytes = static_cast<int>(bytes_of(gemm.spec.d)), whole = contract::gemm_store_columns(bytes);
  const auto map = [&](int tile_columns) {
    const contract::GemmStoreBox box = contract::gemm_store_box(bytes, gemm.spec.swap_ab, tile_columns);
    const Swizzle swizzle = box.swizzle_bytes == 128  ? Swizzle::k128B
                            : box.swizzle_bytes == 64 ? Swizzle::k64B
                            : box.swizzle_bytes == 32 ? Swizzle::k32B
                                                      : Swizzle::kNone;
    return matrix_map(device, d, gemm.spec.d, gemm.size.m, gemm.size.n, box.rows, box.columns, swizzle);
  };
  if (gemm.spec.block_n >= whole) params.d = map(whole);
  if (const int tail = gemm.spec.block_n % whole; tail != 0) params.d_tail = map(tail);
}

void launch_tile_gemm(const TileGemmCase& gemm, Device& device, const KernelImage& image,
                      const contract::GemmParams& operands) {
  const GemmSpec& spec = gemm.spec;
  contract::GemmParams params = operands;
  params.m = spec.swap_ab ? gemm.size.n : gemm.size.m, params.n = spec.swap_ab ? gemm.size.m : gemm.size.n;
  params.k = gemm.size.k;
  const auto rows = static_cast<int>(ceil_div(params.m, spec.block_m * spec.cluster_m));
  const auto columns = static_cast<int>(ceil_div(params.n, spec.block_n));
  params.launch.bands =
      gemm.bands_of_n ? contract::tile_bands(columns, rows, gemm.band) : contract::tile_bands(rows, columns, gemm.band);
  params.launch.bands_of_n = gemm.bands_of_n;
  LaunchConfig config;
  config.grid[0] = static_cast<std::uint32_t>(gemm.ctas);
  config.block = static_cast<std::uint32_t>(spec.threads());
  config.cluster[0] = static_cast<std::uint32_t>(spec.cluster_m * spec.split_k);
  config.shared_bytes = static_cast<std::uint32_t>(tile_gemm_layout(spec).total);
  launch(device, image, "gemm_sm90", config, params);
}

}  // namespace kernelwright::test
