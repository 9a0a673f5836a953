// The portable attention family: the features it has, the limits that the machine sets to its tile, the values that a
// tuner tries, and its row. A feature joins a list here when its kernel lands. portable_choices.cpp plans it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "contract/attention_portable.h"
#include "kernelwright/generator/attention/candidates.h"
#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/plan/validate_rules.h"

namespace kernelwright {
namespace {

using namespace detail;
using Violations = std::vector<Violation>;

// Never destroyed: a thread may read a config while the process exits.
const std::vector<std::string_view>& kPortableFields = *new std::vector<std::string_view>{
    "arch",      "family",    "block_m",   "block_n", "block_k",  "warp_n", "num_stages", "staging",
    "token_gen", "num_warps", "scheduler", "swizzle", "pack_gqa", "splits", "merge",      "rescale"};
const std::vector<int>& kHeadDims = *new std::vector<int>{64, 80, 96, 128, 192, 256};

/// Registers of a thread for tiles of K and V that wait in them.
int waiting_registers(const AttentionSpec& spec) {
  if (spec.staging != Staging::kRegisters) return 0;
  const bool late = spec.token_gen && contract::decode_loads_late(spec.head_dim_qk, spec.head_dim_v);
  const int depth = late ? std::max(spec.head_dim_qk, spec.head_dim_v) : spec.head_dim_qk + spec.head_dim_v;
  return spec.num_stages * spec.block_n * depth * bits_of(spec.kv) / 32 / (32 * spec.num_warps);
}
/// Registers of a thread for the output, a tile of scores, and queries that stay in registers.
int product_registers(const AttentionSpec& spec, int row_tiles) {
  const int queries = row_tiles * spec.head_dim_qk / 4, kept = queries <= 32 ? queries : 0;
  return row_tiles * (spec.head_dim_v + spec.block_n / spec.num_warps_n()) / 2 + kept;
}
/// Of 255 registers: addresses, row statistics and loops need the rest.
constexpr int kMostRegisters = 240;

/// Checks K and V that wait in registers, and the problems that allow it: only registers convert.
void check_staging(const AttentionSpec& spec, int row_tiles, Violations& violations) {
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
  };
  if (spec.staging == Staging::kCpAsync) {
    if (spec.family == Family::kPortable && converts_to_16_bits(spec))
      refuse("staging", fmt::format("cp_async, but {} keys become {} on the way, which cp.async cannot do; registers "
                                    "would do",
                                    to_string(spec.kv), to_string(bits_of(spec.q) == 8 ? DType::kF16 : spec.q)));
    else if (spec.token_gen && spec.num_stages < 2)
      refuse("num_stages", "1 stage, but the decode form fills one slot while it reads another; 2 would do");
    return;
  }
  if (spec.token_gen && spec.num_stages > 1 && contract::decode_loads_late(spec.head_dim_qk, spec.head_dim_v))
    return refuse("num_stages", fmt::format("{} stages, but beside heads of {} and {} no tile waits in registers; 1 "
                                            "would do",
                                            spec.num_stages, spec.head_dim_qk, spec.head_dim_v));
  const auto fits = [&](const AttentionSpec& tile) {
    return product_registers(tile, row_tiles) + waiting_registers(tile) <= kMostRegisters;
  };
  if (fits(spec)) return;
  AttentionSpec smaller = spec;
  std::string nearest;
  while (smaller.num_stages > 1 && nearest.empty()) {
    --smaller.num_stages;
    if (fits(smaller))
      nearest = fmt::format("; {} stage{} would fit", smaller.num_stages, smaller.num_stages == 1 ? "" : "s");
  }
  const bool stages = !nearest.empty();
  const int columns = spec.num_warps_n();
  while (smaller.block_n > 16 * columns && nearest.empty()) {
    smaller.block_n -= 16 * columns;
    smaller.warp_n = smaller.block_n / columns;
    if (fits(smaller)) nearest = fmt::format("; block_n {} would fit", smaller.block_n);
  }
  refuse(stages ? "num_stages" : "block_n",
         fmt::format("{} stage{} of {} keys in registers take {} a thread beside {} for products, {} in all{}",
                     spec.num_stages, spec.num_stages == 1 ? "" : "s", spec.block_n, waiting_registers(spec),
                     product_registers(spec, row_tiles), kMostRegisters, nearest));
}

/// Checks the warps of a tile against its keys. Returns false if the later checks cannot count on them.
bool check_warp_tile(const AttentionSpec& spec, Violations& violations) {
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
    return false;
  };
  if (spec.token_gen) {
    if (spec.family == Family::kPortable && spec.block_n % (16 * spec.num_warps) == 0 &&
        spec.warp_n != spec.block_n / spec.num_warps)
      refuse("warp_n", fmt::format("{}, but in the decode form each of {} warps walks its part of {} keys; {} would do",
                                   spec.warp_n, spec.num_warps, spec.block_n, spec.block_n / spec.num_warps));
    return true;
  }
  const auto may_be = [&](int warp_n) {
    return spec.block_n % warp_n == 0 && spec.num_warps % (spec.block_n / warp_n) == 0;
  };
  if (may_be(spec.warp_n)) return true;
  int nearest = spec.block_n;
  for (int warp_n = 16; warp_n <= spec.block_n; warp_n += 16)
    if (may_be(warp_n) && std::abs(warp_n - spec.warp_n) < std::abs(nearest - spec.warp_n)) nearest = warp_n;
  if (spec.block_n % spec.warp_n != 0)
    return refuse("warp_n",
                  fmt::format("{} does not divide block_n, {}; {} would do", spec.warp_n, spec.block_n, nearest));
  return refuse("warp_n", fmt::format("{} warps are no multiple of {}, which {} of {} keys make; {} would do",
                                      spec.num_warps, spec.block_n / spec.warp_n, spec.warp_n, spec.block_n, nearest));
}

}  // namespace

namespace detail {

void check_portable(const AttentionProblem& problem, const AttentionSchedule& schedule, Violations& violations) {
  FamilyRules portable(Family::kPortable, violations);
  // Products are of 16 bits. The decode form converts fp8 queries, too.
  std::vector<DType> queries{DType::kF16, DType::kBf16};
  const bool decode = means_decode(problem, schedule);
  if (decode) queries.push_back(DType::kE4m3);
  portable.takes("/problem/dtype/q", problem.dtype.q, queries);
  if (decode && problem.dtype.q == DType::kE4m3) portable.takes("/problem/dtype/kv", problem.dtype.kv, {DType::kE4m3});
  portable.takes("/problem/dtype/out", problem.dtype.out, {DType::kF16, DType::kBf16, DType::kF32});
  portable.takes("/problem/head_dim/qk", problem.head_dim.qk, kHeadDims);
  portable.takes("/problem/head_dim/v", problem.head_dim.v, kHeadDims);
  portable.takes_masks("/problem/mask", problem.mask);
  portable.takes_score_mod("/problem/score_mod", problem.score_mod);
  portable.takes(
      "/problem/scales", problem.scales,
      {ScaleKind::kNone, ScaleKind::kPerTensor, ScaleKind::kPerHead, ScaleKind::kPerPage, ScaleKind::kPerToken});
  portable.takes("/problem/v_layout", problem.v_layout, {VLayout::kRows});
  constexpr int kProductStep = 16;  // columns
  if (problem.rope.width != 0 && decode) {
    portable.refuse("/problem/rope/width", std::to_string(problem.rope.width), kNoRotaryPart);
  } else if (problem.rope.width != 0) {
    check_rotary_width(problem, kProductStep, kProductStep, portable);
    check_rotary_type(problem, portable);
  }
  portable.has_only(schedule, kPortableFields);
  if (!schedule.scheduler.is_auto())
    portable.takes("/schedule/scheduler", schedule.scheduler.value(), {Scheduler::kLongestFirst});
}

void check_portable_tile(const AttentionSpec& spec, const ArchInfo& arch, std::vector<Violation>& violations) {
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
  };
  if (!check_warp_tile(spec, violations)) return;
  const int columns = spec.num_warps_n();
  const int row_groups = spec.token_gen ? 1 : spec.num_warps / columns;
  const int row_tile = 16 * row_groups;
  if (spec.block_m % row_tile != 0)
    refuse("block_m", fmt::format("{} is no multiple of {}, the 16 rows of {}", spec.block_m, row_tile,
                                  spec.token_gen ? "an MMA" : fmt::format("each of {} warps", row_groups)));
  const int row_tiles = std::max(1, spec.block_m / row_tile);
  if (row_tiles * std::max(spec.head_dim_v, spec.head_dim_qk) > 256)
    refuse("block_m",
           fmt::format("{} rows on {} warps need {} accumulator registers a thread; at most {} rows would fit",
                       spec.block_m, spec.num_warps, row_tiles * spec.head_dim_v / 2,
                       256 / std::max(spec.head_dim_v, spec.head_dim_qk) * row_tile));
  const int key_step = 16 * columns;
  if (spec.block_n % key_step != 0)
    refuse("block_n", fmt::format("{} is no multiple of {}, 16 keys {}", spec.block_n, key_step,
                                  spec.token_gen ? fmt::format("for each of {} warps", spec.num_warps)
                                                 : std::string("of an MMA step")));
  if (spec.head_dim_qk % spec.block_k != 0)
    refuse("block_k", fmt::format("{} does not divide head_dim.qk, {}", spec.block_k, spec.head_dim_qk));
  else if (spec.rope_width % spec.block_k != 0)
    refuse("block_k", fmt::format("{} does not divide rope.width, {}; {} would do", spec.block_k, spec.rope_width,
                                  std::gcd(spec.rope_width, spec.plain_depth())));
  check_staging(spec, row_tiles, violations);
  if (spec.token_gen && !spec.pack_gqa)
    refuse("pack_gqa", "false, but the decode form packs the heads of a group; true would do");
  if (!violations.empty()) return;
  const auto bytes = shared_bytes(spec);
  if (static_cast<int>(bytes) > arch.shared_bytes_per_cta) {
    AttentionSpec smaller = spec;
    std::string nearest;
    const int least_stages = spec.token_gen && spec.staging == Staging::kCpAsync ? 2 : 1;
    while (smaller.num_stages > least_stages && nearest.empty()) {
      --smaller.num_stages;
      if (static_cast<int>(shared_bytes(smaller)) <= arch.shared_bytes_per_cta)
        nearest = fmt::format("; {} stage{} would fit", smaller.num_stages, smaller.num_stages == 1 ? "" : "s");
    }
    const char* field = "num_stages";
    // Warps that split keys leave partial outputs in memory; without a split there are none.
    if (!spec.token_gen && columns > 1 && spec.block_m % (16 * spec.num_warps) == 0 && nearest.empty()) {
      AttentionSpec whole = spec;
      whole.warp_n = whole.block_n;
      if (static_cast<int>(shared_bytes(whole)) <= arch.shared_bytes_per_cta) {
        field = "warp_n";
        nearest = fmt::format("; warp_n {} would fit", whole.warp_n);
      }
    }
    while (smaller.block_n > key_step && nearest.empty()) {
      smaller.block_n -= key_step;
      smaller.warp_n = smaller.block_n / columns;
      if (static_cast<int>(shared_bytes(smaller)) <= arch.shared_bytes_per_cta) {
        field = "block_n";
        nearest = fmt::format("; block_n {} would fit", smaller.block_n);
      }
    }
    refuse(field, fmt::format("{}: needs {} shared bytes and {} has {}{}", kernel_name(spec), bytes, arch.name,
                              arch.shared_bytes_per_cta, nearest));
  }
}

namespace {

void check_tile(const AttentionSpec& spec, const AttentionSchedule& schedule, const ArchInfo& arch,
                Violations& violations) {
  check_portable_tile(spec, arch, violations);
  if (!spec.token_gen && schedule.splits.value_or(1) != 1)
    violations.push_back(
        {"/schedule/splits",
         fmt::format("{}: only the decode form splits keys; 1, or token_gen true, would do", schedule.splits.value())});
}

/// The values that a tuner tries. Values outside of these lists were measured to be slow everywhere, or do not exist:
/// see docs/attention/portable.md.
AxisSets portable_axes(const AttentionProblem& problem, const ArchInfo&) {
  using S = AttentionSchedule;
  const bool converts = bits_of(problem.dtype.kv) == 8;
  std::vector<int> chunks{problem.head_dim.qk};
  for (const int chunk : {32, 64, 128})
    if (chunk < problem.head_dim.qk && problem.head_dim.qk % chunk == 0) chunks.push_back(chunk);
  const Axis depth = axis("block_k", &S::block_k, chunks);
  const Axis rescale = axis("rescale", &S::rescale, {Rescale::kLazy, Rescale::kAlways});

  AxisSets sets;
  sets.push_back({axis("token_gen", &S::token_gen, {false}), axis("num_warps", &S::num_warps, {4, 8}),
                  axis("block_m", &S::block_m, {64, 128, 256}), axis("block_n", &S::block_n, {32, 48, 64, 80, 96, 128}),
                  axis("num_stages", &S::num_stages, converts ? std::vector{1, 2} : std::vector{1, 2, 3}), depth,
                  rescale});
  // The query heads of a KV head share its keys. The price: their rows are not neighbours in memory.
  if (problem.group() > 1) sets.back().push_back(axis("pack_gqa", &S::pack_gqa, {false, true}));
  // Warps that split the keys of a tile read fewer fragments each, but have to merge partial outputs at the end.
  sets.push_back({axis("token_gen", &S::token_gen, {false}), axis("num_warps", &S::num_warps, {4, 8}),
                  axis("block_m", &S::block_m, {32, 64, 128}), axis("block_n", &S::block_n, {64, 128}),
                  axis("warp_n", &S::warp_n, {16, 32, 64}), axis("num_stages", &S::num_stages, {1, 2})});
  const Axis registers = axis("staging", &S::staging, {Staging::kRegisters});
  // Tiles that wait in registers rather than in slots. If K and V are converted, every set has them.
  if (!converts)
    sets.push_back({axis("token_gen", &S::token_gen, {false}), registers, axis("num_warps", &S::num_warps, {4, 8}),
                    axis("block_m", &S::block_m, {64, 128}), axis("block_n", &S::block_n, {32, 48, 64}),
                    axis("num_stages", &S::num_stages, {1, 2, 3})});
  // Narrower swizzles, and none, are tried on few tiles, because ldmatrix meets no bank conflict with any of them.
  const Axis swizzles = axis("swizzle", &S::swizzle, {Swizzle::k64B, Swizzle::k32B, Swizzle::kNone});
  sets.push_back({swizzles, axis("token_gen", &S::token_gen, {false}), axis("num_warps", &S::num_warps, {4, 8}),
                  axis("block_m", &S::block_m, {64, 128}), axis("block_n", &S::block_n, {64, 128}),
                  axis("num_stages", &S::num_stages, {1, 2})});
  // To walk keys warp by warp pays where rows are few: the planner's own bound is 64 rows of a KV head.
  if (problem.max_q_len <= 0 || problem.max_q_len * problem.group() > 128) return sets;
  sets.push_back({axis("token_gen", &S::token_gen, {true}), axis("num_warps", &S::num_warps, {1, 2, 4, 8}),
                  axis("block_m", &S::block_m, {16, 32}), axis("block_n", &S::block_n, {16, 32, 48, 64, 96, 128, 256}),
                  axis("num_stages", &S::num_stages, converts ? std::vector{1, 2} : std::vector{2, 3, 4, 5, 6}), depth,
                  rescale});
  if (!converts)
    sets.push_back({axis("token_gen", &S::token_gen, {true}), registers, axis("num_warps", &S::num_warps, {2, 4, 8}),
                    axis("block_m", &S::block_m, {16, 32}), axis("block_n", &S::block_n, {32, 64, 128}),
                    axis("num_stages", &S::num_stages, {1, 2, 3})});
  sets.push_back({swizzles, axis("token_gen", &S::token_gen, {true}), axis("num_warps", &S::num_warps, {2, 4}),
                  axis("block_m", &S::block_m, {16}), axis("block_n", &S::block_n, {64, 128}),
                  axis("num_stages", &S::num_stages, converts ? std::vector{1, 2} : std::vector{2, 3})});
  return sets;
}

std::uint32_t shared_bytes_of(const AttentionSpec& spec) {
  const int slots = spec.kv_slots(), qk = spec.head_dim_qk, v = spec.head_dim_v;
  if (spec.token_gen) return portable_decode_layout_of(spec).total;
  return contract::prefill_layout(spec.block_m, spec.block_n, qk, v, slots, spec.num_warps_n()).total;
}

}  // namespace

const AttentionFamily& portable_attention() {
  static constexpr AttentionFamily row = {.family = Family::kPortable,
                                          .check = check_portable,
                                          .check_tile = check_tile,
                                          .plan = plan_portable,
                                          .axes = portable_axes,
                                          .shared_bytes = shared_bytes_of,
                                          .shared_map = portable_map,
                                          .roles = alike_roles};
  return row;
}

}  // namespace detail

}  // namespace kernelwright
