// What the kernels lack of GEMMs whose columns are queries, keys and values, and the tiles that hold whole heads.
#include "contract/gemm_kv_write.h"

#include <fmt/format.h>

#include "kernelwright/generator/gemm/family.h"
#include "kernelwright/generator/plan/validate_rules.h"

namespace kernelwright::detail {

void check_heads(const GemmProblem& problem, Family family, std::vector<Violation>& violations) {
  if (!problem.kv_write) return;
  FamilyRules rules(family, violations);
  const KvWriteProblem& of = *problem.kv_write;
  // Blackwell's warps have two slabs of results. A tile of the portable kernel has one scale of blocks of columns.
  const bool narrow =
      family == Family::kBlackwell || (family == Family::kPortable && problem.scales == ScaleKind::kPerBlock);
  rules.takes("/problem/kv_write/head_dim/qk", of.head_dim.qk,
              narrow ? std::vector<int>{64, 128} : std::vector<int>{64, 128, 256});
  if (of.head_dim.v != of.head_dim.qk)
    rules.refuse("/problem/kv_write/head_dim/v", fmt::format("{} beside keys of {}", of.head_dim.v, of.head_dim.qk),
                 "values of that size");
  rules.takes("/problem/kv_write/qk_norm/kind", of.qk_norm.kind, {NormKind::kNone, NormKind::kRms, NormKind::kL2});
}

int slabs_of_heads(const GemmSpec& spec) {
  if (spec.family == Family::kBlackwell) return spec.swap_ab ? 1 : contract::gemm_kv_slabs(spec.head_columns());
  const int waves = spec.block_m / 64 / (spec.roles == Roles::kPingPong ? 1 : spec.math_warpgroups);
  return spec.swap_ab ? contract::gemm_kv_swapped_slabs(spec.block_n, waves)
                      : contract::gemm_kv_slabs(spec.head_columns());
}

void check_heads_of_tile(const GemmSpec& spec, std::vector<Violation>& violations) {
  if (!spec.writes_kv) return;
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
  };
  const int head = spec.head_columns();
  const bool mapped = spec.family != Family::kPortable;
  if (spec.swap_ab && spec.block_m % head != 0)
    return refuse("block_m", fmt::format("{} rows of a swapped tile hold a part of a head of {}; {} would do",
                                         spec.block_m, head, (spec.block_m + head - 1) / head * head));
  if (!spec.swap_ab && spec.block_n % head != 0)
    return refuse("block_n", fmt::format("{} columns hold a part of a head of {}; {} would do", spec.block_n, head,
                                         (spec.block_n + head - 1) / head * head));
  if (mapped) {
    if (const int slabs = slabs_of_heads(spec); spec.store_stages < slabs)
      refuse("store_stages", fmt::format("{} have no room for {}; {} would do", spec.store_stages,
                                         spec.swap_ab ? fmt::format("the heads of {} tokens", spec.block_n)
                                                      : fmt::format("a head of {}", head),
                                         slabs));
    return;
  }
  if (constexpr int kOfScale = 128; spec.scales == ScaleKind::kPerBlock && spec.block_n > kOfScale)
    return refuse("block_n",
                  fmt::format("{} columns have more than one scale of blocks; {} would do", spec.block_n, kOfScale));
  const int ring = spec.stages * (spec.block_m + spec.block_n) * spec.slab_bytes;
  if (const int bytes = spec.block_m * contract::gemm_kv_pitch(spec.block_n); bytes > ring)
    refuse("stages", fmt::format("{} slots have {} bytes, and a tile's heads take {}; {} would do", spec.stages, ring,
                                 bytes, (bytes * spec.stages + ring - 1) / ring));
}

}  // namespace kernelwright::detail
