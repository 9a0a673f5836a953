// Attention: the rules that hopper and blackwell share, whose kernels load through tensor maps into rings of K and V.
// Portable has those of rotary parts, too.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernelwright/generator/attention/family.h"
#include "kernelwright/generator/plan/validate_rules.h"

namespace kernelwright::detail {
namespace {

constexpr int kMinHeadDim = 16;
// A tensor map needs rows of whole 16 bytes.
constexpr int kNarrowHeadDimStep = 16, kRopeStep = 8;
constexpr int kMostRope = 64;

/// The nearest count of sub-stages for which `does` is true, the lower one of two. It is true for 1.
template <class Does>
int nearest_stages(int stages, const Does& does) {
  for (int apart = 1;; ++apart) {
    if (stages - apart <= 1 || does(stages - apart)) return std::max(1, stages - apart);
    if (stages + apart <= contract::kMostMmaStages && does(stages + apart)) return stages + apart;
  }
}

/// Suggests as many keys, or fewer, that num_mma_stages divides.
std::string nearest_keys(const AttentionSpec& spec) {
  const int step = spec.num_mma_stages * value_key_step(spec), keys = spec.block_n / step * step;
  return keys > 0 ? fmt::format(", or block_n {},", keys) : "";
}

}  // namespace

void check_mapped_problem(const AttentionProblem& problem, const MappedOperands& takes, FamilyRules& rules) {
  std::vector<DType> queries{DType::kF16, DType::kBf16};
  if (takes.multiplies_narrow) queries.push_back(DType::kE4m3);
  rules.takes("/problem/dtype/q", problem.dtype.q, queries);
  const bool narrow = takes.multiplies_narrow && problem.dtype.q == DType::kE4m3;
  // K and V pass through the same instructions as Q, whose dtype they share; a wider output may leave.
  if (is_one_of(problem.dtype.q, {DType::kF16, DType::kBf16}) || narrow) {
    std::vector<DType> keys{problem.dtype.q};
    if (takes.converts_narrow && !narrow) keys.insert(keys.end(), {DType::kE4m3, DType::kE5m2});
    rules.takes("/problem/dtype/kv", problem.dtype.kv, keys);
    std::vector<DType> outputs{problem.dtype.q};
    if (narrow) outputs = {DType::kF16, DType::kBf16};
    if (narrow && takes.stores_narrow) outputs.push_back(DType::kE4m3);
    if (takes.widens) outputs.push_back(DType::kF32);
    rules.takes("/problem/dtype/out", problem.dtype.out, outputs);
  }
  const bool converts = takes.converts_narrow && !narrow && problem.dtype.kv != problem.dtype.q;
  const int depth_step = narrow || converts ? std::max(takes.depth_step, kNarrowHeadDimStep) : takes.depth_step;
  const auto check_depth = [&](const char* path, int depth, int most) {
    const bool fits = depth >= kMinHeadDim && depth <= most && depth % depth_step == 0;
    if (!fits)
      rules.refuse(path, std::to_string(depth),
                   fmt::format("multiples of {} from {} to {}", depth_step, kMinHeadDim, most));
    return fits;
  };
  const bool qk_fits = check_depth("/problem/head_dim/qk", problem.head_dim.qk, takes.most_qk);
  const bool v_fits = check_depth("/problem/head_dim/v", problem.head_dim.v, takes.most_v);
  if (qk_fits && v_fits && problem.head_dim.v > problem.head_dim.qk)
    rules.refuse("/problem/head_dim/v", std::to_string(problem.head_dim.v),
                 fmt::format("values no wider than keys, {}", problem.head_dim.qk));
  // A box of TMA lies within one page and begins where the swizzle's pattern does, every 8 rows. The gathering warps
  // copy k and v alone: no warp copies the rotary part or the scales.
  if (!(takes.gathers && problem.rope.width == 0 && !scales_differ_by_key(problem.scales)) &&
      problem.kv_layout.kind == KvLayoutKind::kPaged && contract::hopper_gathers_kv(problem.kv_layout.page_size))
    rules.refuse("/problem/kv_layout/page_size", std::to_string(problem.kv_layout.page_size),
                 fmt::format("multiples of {}", contract::kMinPagedBoxRows));
  rules.takes_masks("/problem/mask", problem.mask);
  rules.takes_score_mod("/problem/score_mod", problem.score_mod);
  if (problem.v_layout == VLayout::kColumns && !((narrow || converts) && takes.takes_columns))
    rules.refuse("/problem/v_layout", "\"columns\"", "rows");
  std::vector<ScaleKind> scales{ScaleKind::kNone};
  if (narrow || converts)
    scales.insert(scales.end(),
                  {ScaleKind::kPerTensor, ScaleKind::kPerHead, ScaleKind::kPerPage, ScaleKind::kPerToken});
  rules.takes("/problem/scales", problem.scales, scales);
  if (problem.rope.width == 0) return;
  if (!takes.has_rotary_parts)
    rules.refuse("/problem/rope/width", std::to_string(problem.rope.width), kNoRotaryPart);
  else
    check_rotary_width(problem, kRopeStep, qk_fits ? depth_step : 1, rules);
}

void check_rotary_width(const AttentionProblem& problem, int step, int plain_step, FamilyRules& rules) {
  const int rope = problem.rope.width, plain = problem.head_dim.qk - rope;
  if (rope > kMostRope || rope % step != 0)
    rules.refuse("/problem/rope/width", std::to_string(rope),
                 fmt::format("0 and multiples of {} to {}", step, kMostRope));
  else if (plain < kMinHeadDim || plain % plain_step != 0)
    rules.refuse("/problem/rope/width", fmt::format("{}, which leaves {} of {},", rope, plain, problem.head_dim.qk),
                 fmt::format("remainders that are multiples of {} from {} on", plain_step, kMinHeadDim));
}

void check_rotary_type(const AttentionProblem& problem, FamilyRules& rules) {
  if (bits_of(problem.dtype.q) == 8 || bits_of(problem.dtype.kv) == 8)
    rules.refuse("/problem/rope/width",
                 fmt::format("{} beside keys of {}", problem.rope.width, to_string(problem.dtype.kv)),
                 fmt::format("{}, or 16-bit queries and keys", kNoRotaryPart));
  else if (problem.rope.dtype != problem.dtype.q)
    rules.refuse("/problem/rope/dtype",
                 fmt::format("\"{}\" beside queries of {}", to_string(problem.rope.dtype), to_string(problem.dtype.q)),
                 fmt::format("that of q, {}", to_string(problem.dtype.q)));
}

void check_rings(const AttentionSpec& spec, int qk_slabs, int least_kv_stages, std::vector<Violation>& violations) {
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({std::string("/schedule/") + field, std::move(message)});
  };
  const int swizzle = bytes_of(spec.swizzle), together = contract::slabs_of_step(swizzle), slabs = qk_slabs / together;
  const bool shared_ring = spec.kv_ring == KvRing::kShared;
  const auto divides_keys = [&](int stages) { return slabs % stages == 0; };
  const auto divides_values = [&](int stages) { return spec.block_n % (stages * value_key_step(spec)) == 0; };
  // Where K follows V, or shares its slots, num_mma_stages has to suit both.
  const bool one_count = spec.num_qk_stages == spec.num_mma_stages;
  if (shared_ring && !one_count)
    refuse("num_qk_stages",
           fmt::format("{}: a slot that K and V share has num_mma_stages sub-stages, {}; {}, or kv_ring \"split\", "
                       "would do",
                       spec.num_qk_stages, spec.num_mma_stages, spec.num_mma_stages));
  else if (!divides_keys(spec.num_qk_stages))
    refuse(one_count ? "num_mma_stages" : "num_qk_stages",
           fmt::format("{} does not divide the {} slab{} of {} columns of a key tile; {} would do", spec.num_qk_stages,
                       slabs, slabs == 1 ? "" : "s", together * contract::slab_width(swizzle) * 8 / bits_of(spec.q),
                       nearest_stages(spec.num_qk_stages, [&](int stages) {
                         return divides_keys(stages) && (!one_count || divides_values(stages));
                       })));
  else if (spec.num_mma_stages > 1 && !divides_values(spec.num_mma_stages))
    refuse("num_mma_stages",
           fmt::format("{}: {} keys of a tile are not {} times whole {}s, which {} takes at a time; {}{} would do",
                       spec.num_mma_stages, spec.block_n, spec.num_mma_stages, value_key_step(spec),
                       spec.multicast > 1 ? "a cluster" : "a product with V",
                       nearest_stages(
                           spec.num_mma_stages,
                           [&](int stages) { return divides_values(stages) && (!one_count || divides_keys(stages)); }),
                       nearest_keys(spec)));
  if (spec.num_kv_stages < least_kv_stages)
    refuse("num_kv_stages", fmt::format("{}: {}; {} would do", spec.num_kv_stages,
                                        shared_ring ? "K and V of a tile are held at once"
                                                    : "a tile arrives while another is multiplied",
                                        least_kv_stages));
}

}  // namespace kernelwright::detail
