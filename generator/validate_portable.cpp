// Attention: what the portable family has. A feature joins a list here when its kernel lands; then the tile against the
// machine.
#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/generator/families.h"
#include "kernelwright/generator/launch_plan.h"
#include "kernelwright/generator/validate.h"
#include "kernelwright/generator/validate_rules.h"

namespace kernelwright {
namespace {

using namespace detail;
using Violations = std::vector<Violation>;

// Never destroyed: a thread may read a config while the process exits.
const std::vector<std::string_view>& kPortableFields = *new std::vector<std::string_view>{
    "arch",      "family",    "block_m", "block_n",  "block_k", "num_stages", "token_gen",
    "num_warps", "scheduler", "swizzle", "pack_gqa", "splits",  "merge",      "rescale"};
const std::vector<int>& kHeadDims = *new std::vector<int>{64, 80, 96, 128, 192, 256};

}  // namespace

namespace detail {

void check_portable(const AttentionProblem& problem, const AttentionSchedule& schedule, Violations& violations) {
  FamilyRules portable(Family::kPortable, violations);
  portable.takes("/problem/dtype/q", problem.dtype.q, {DType::kF16, DType::kBf16});
  portable.takes("/problem/dtype/out", problem.dtype.out, {DType::kF16, DType::kBf16, DType::kF32});
  portable.takes("/problem/head_dim/qk", problem.head_dim.qk, kHeadDims);
  portable.takes("/problem/head_dim/v", problem.head_dim.v, kHeadDims);
  portable.takes_ranges("/problem/mask", problem.mask);
  portable.takes("/problem/score_mod/kind", problem.score_mod.kind,
                 {ScoreModKind::kNone, ScoreModKind::kSoftcap, ScoreModKind::kAlibi});
  portable.takes("/problem/scales", problem.scales, {ScaleKind::kNone, ScaleKind::kPerTensor, ScaleKind::kPerHead});
  if (problem.rope.width != 0)
    portable.refuse("/problem/rope/width", std::to_string(problem.rope.width), "0, no rotary part");
  portable.has_only(schedule, kPortableFields);
  if (!schedule.scheduler.is_auto())
    portable.takes("/schedule/scheduler", schedule.scheduler.value(), {Scheduler::kLongestFirst});
}

void check_portable_tile(const AttentionSpec& spec, const ArchInfo& arch, std::vector<Violation>& violations) {
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
  };
  const int row_tile = spec.token_gen ? 16 : 16 * spec.num_warps;
  if (spec.block_m % row_tile != 0)
    refuse("block_m", fmt::format("{} is no multiple of {}, the 16 rows of {}", spec.block_m, row_tile,
                                  spec.token_gen ? "an MMA" : fmt::format("each of {} warps", spec.num_warps)));
  const int row_tiles = std::max(1, spec.block_m / row_tile);
  if (row_tiles * std::max(spec.head_dim_v, spec.head_dim_qk) > 256)
    refuse("block_m",
           fmt::format("{} rows on {} warps need {} accumulator registers a thread; at most {} rows would fit",
                       spec.block_m, spec.num_warps, row_tiles * spec.head_dim_v / 2,
                       256 / std::max(spec.head_dim_v, spec.head_dim_qk) * row_tile));
  const int key_step = spec.token_gen ? 16 * spec.num_warps : 16;
  if (spec.block_n % key_step != 0)
    refuse("block_n", fmt::format("{} is no multiple of {}, 16 keys {}", spec.block_n, key_step,
                                  spec.token_gen ? fmt::format("for each of {} warps", spec.num_warps)
                                                 : std::string("of an MMA step")));
  if (spec.head_dim_qk % spec.block_k != 0)
    refuse("block_k", fmt::format("{} does not divide head_dim.qk, {}", spec.block_k, spec.head_dim_qk));
  if (spec.register_staged && spec.num_stages != 1)
    refuse("num_stages",
           fmt::format("{} stages, but keys that are converted on the way pass through one slot; 1 would do",
                       spec.num_stages));
  if (spec.token_gen && !spec.register_staged && spec.num_stages < 2)
    refuse("num_stages", "1 stage, but the decode form fills one slot while it reads another; 2 would do");
  if (spec.token_gen && !spec.pack_gqa)
    refuse("pack_gqa", "false, but the decode form packs the heads of a group; true would do");
  if (!violations.empty()) return;
  const auto bytes = shared_bytes(spec);
  if (static_cast<int>(bytes) > arch.shared_bytes_per_cta) {
    AttentionSpec smaller = spec;
    std::string nearest;
    while (smaller.num_stages > (spec.token_gen ? 2 : 1) && nearest.empty()) {
      --smaller.num_stages;
      if (static_cast<int>(shared_bytes(smaller)) <= arch.shared_bytes_per_cta)
        nearest = fmt::format("; {} stage{} would fit", smaller.num_stages, smaller.num_stages == 1 ? "" : "s");
    }
    while (smaller.block_n > key_step && nearest.empty()) {
      smaller.block_n -= key_step;
      if (static_cast<int>(shared_bytes(smaller)) <= arch.shared_bytes_per_cta)
        nearest = fmt::format("; block_n {} would fit", smaller.block_n);
    }
    refuse(nearest.find("block_n") == std::string::npos ? "num_stages" : "block_n",
           fmt::format("{}: needs {} shared bytes and {} has {}{}", kernel_name(spec), bytes, arch.name,
                       arch.shared_bytes_per_cta, nearest));
  }
}

}  // namespace detail

}  // namespace kernelwright
