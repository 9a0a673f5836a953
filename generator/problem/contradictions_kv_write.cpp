// kv_write: which fields contradict each other, on any architecture and in any kernel family.
#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/rule_check.h"

namespace kernelwright {
namespace {

using namespace detail;
using Violations = std::vector<Violation>;

constexpr int kVectorElements = 8;                  // 16 bytes of what is read
constexpr int kLaneElements = 2 * kVectorElements;  // of a head
constexpr const char* kLeaveOut = " has no meaning here; leave it out";

void check_dtypes(const KvWriteDTypes& dtype, Violations& violations) {
  takes("/problem/dtype/in", dtype.in, {DType::kF16, DType::kBf16}, violations);
  takes("/problem/dtype/q", dtype.q, {DType::kF16, DType::kBf16, DType::kE4m3, DType::kE5m2}, violations);
  takes("/problem/dtype/kv", dtype.kv, {DType::kF16, DType::kBf16, DType::kE4m3, DType::kE5m2}, violations);
}

void check_heads(const KvWriteProblem& problem, Violations& violations) {
  const auto check = [&](const char* path, int elements) {
    if (elements % kVectorElements != 0)
      violations.push_back({path, std::to_string(elements) +
                                      " elements leave heads off their 16-byte boundaries; it takes a multiple of " +
                                      std::to_string(kVectorElements)});
  };
  check("/problem/head_dim/qk", problem.head_dim.qk);
  check("/problem/head_dim/v", problem.head_dim.v);
  if (problem.heads.kv > 0 && problem.heads.q % problem.heads.kv != 0)
    violations.push_back({"/problem/heads/q", std::to_string(problem.heads.q) + " is no multiple of " +
                                                  std::to_string(problem.heads.kv) + " key/value heads"});
}

void check_cache(const KvWriteProblem& problem, Violations& violations) {
  const bool is_paged = problem.kv_layout.kind == KvLayoutKind::kPaged;
  if (is_paged && problem.kv_layout.page_size == 0)
    violations.push_back({"/problem/kv_layout/page_size", "is missing; pages have 1 key or more"});
  if (!is_paged && problem.kv_layout.page_size != 0)
    violations.push_back({"/problem/kv_layout/page_size",
                          std::to_string(problem.kv_layout.page_size) + " belongs to kind \"paged\"; leave it out"});
  check_v_layout(problem.v_layout, problem.dtype.kv, problem.kv_layout, violations);
  if (problem.index != CacheIndex::kPositions) return;
  if (problem.kv_layout.kind == KvLayoutKind::kRagged)
    violations.push_back({"/problem/index",
                          "\"positions\" do not say where a sequence of a ragged cache begins; slots "
                          "would do"});
  if (problem.rope.sections.pairs() > 0)
    violations.push_back({"/problem/index", "\"positions\" of three streams are no places of a cache; slots would do"});
}

void check_norm(const QkNorm& norm, Violations& violations) {
  if (norm.kind == NormKind::kNone && norm.v)
    violations.push_back({"/problem/qk_norm/v", "true needs a norm of queries and keys; \"rms\" would do"});
  if (norm.weight_offset != 0 && (norm.kind == NormKind::kNone || !norm.weight))
    violations.push_back({"/problem/qk_norm/weight_offset", std::to_string(norm.weight_offset) + kLeaveOut});
}

void check_sections(const RopeRotation& rope, Violations& violations) {
  const RopeSections& sections = rope.sections;
  if (sections.pairs() == 0) {
    if (rope.interleaved) violations.push_back({"/problem/rope/interleaved", "true needs sections"});
    return;
  }
  const int pairs = rope.width / 2;
  if (sections.pairs() != pairs)
    violations.push_back({"/problem/rope/sections", "have " + std::to_string(sections.pairs()) + " pairs, and " +
                                                        std::to_string(rope.width) +
                                                        " elements turn: " + std::to_string(pairs) + " pairs"});
  else if (rope.interleaved && (3 * sections.second - 1 > pairs || 3 * sections.third > pairs))
    violations.push_back(
        {"/problem/rope/sections", "do not fit turns of three among " + std::to_string(pairs) +
                                       " pairs; the second and the third stream have at most a third of them each"});
}

void check_rope(const KvWriteProblem& problem, Violations& violations) {
  const RopeRotation& rope = problem.rope;
  if (rope.style == RopeStyle::kNone) {
    if (rope.width != 0) violations.push_back({"/problem/rope/width", std::to_string(rope.width) + kLeaveOut});
    if (rope.begin != 0) violations.push_back({"/problem/rope/begin", std::to_string(rope.begin) + kLeaveOut});
    if (rope.sections.pairs() != 0)
      violations.push_back({"/problem/rope/sections", std::string("have no meaning here")});
    return;
  }
  const int step = rope.style == RopeStyle::kNeox ? 2 * kVectorElements : kVectorElements;
  if (rope.width == 0 || rope.width % step != 0)
    violations.push_back({"/problem/rope/width", std::to_string(rope.width) + " does not fit " +
                                                     in_quotes(to_string(rope.style)) + "; it takes a multiple of " +
                                                     std::to_string(step)});
  if (rope.begin % kVectorElements != 0)
    violations.push_back({"/problem/rope/begin", std::to_string(rope.begin) + " does not fit; it takes a multiple of " +
                                                     std::to_string(kVectorElements)});
  if (rope.begin + rope.width > problem.head_dim.qk)
    violations.push_back(
        {"/problem/rope/width", std::to_string(rope.width) + " elements from " + std::to_string(rope.begin) +
                                    " on end behind the head, which has " + std::to_string(problem.head_dim.qk)});
  check_sections(rope, violations);
}

void check_scale(const char* path, ScaleKind kind, DType dtype, Violations& violations) {
  takes(path, kind, {ScaleKind::kNone, ScaleKind::kPerTensor, ScaleKind::kPerHead, ScaleKind::kPerToken}, violations);
  if (kind != ScaleKind::kNone && !is_fp8(dtype))
    violations.push_back({path, in_quotes(to_string(kind)) + " has no meaning for " + std::string(to_string(dtype)) +
                                    "; leave it out, or make them e4m3 or e5m2"});
}

void check_scales(const KvWriteProblem& problem, Violations& violations) {
  const KvWriteScales& scales = problem.scales;
  check_scale("/problem/scales/q", scales.q, problem.dtype.q, violations);
  check_scale("/problem/scales/k", scales.k, problem.dtype.kv, violations);
  check_scale("/problem/scales/v", scales.v, problem.dtype.kv, violations);
  const bool makes =
      scales.q == ScaleKind::kPerToken || scales.k == ScaleKind::kPerToken || scales.v == ScaleKind::kPerToken;
  if (scales.power_of_two && !makes)
    violations.push_back({"/problem/scales/power_of_two", "true is for scales that the kernel makes: per_token"});
  if (scales.ue8m0 && !scales.power_of_two)
    violations.push_back({"/problem/scales/ue8m0", "true needs power_of_two: a byte has an exponent alone"});
  if (scales.least > 0 && !makes)
    violations.push_back({"/problem/scales/least", "is for scales that the kernel makes: per_token"});
  if (!problem.v_out && scales.v != ScaleKind::kNone)
    violations.push_back({"/problem/scales/v", in_quotes(to_string(scales.v)) + kLeaveOut});
  if (!problem.q_out && scales.q != ScaleKind::kNone)
    violations.push_back({"/problem/scales/q", in_quotes(to_string(scales.q)) + kLeaveOut});
}

}  // namespace

void detail::check_v_layout(VLayout v_layout, DType kv, const KvLayout& layout, std::vector<Violation>& violations) {
  constexpr int kKeys = 16;
  if (v_layout != VLayout::kColumns) return;
  if (!is_fp8(kv))
    violations.push_back({"/problem/v_layout",
                          "\"columns\" does not fit " + std::string(to_string(kv)) + " values; it takes e4m3 or e5m2"});
  if (layout.kind != KvLayoutKind::kPaged || layout.page_size % kKeys != 0)
    violations.push_back(
        {"/problem/v_layout", "\"columns\" needs pages of a multiple of " + std::to_string(kKeys) + " keys"});
}

std::vector<Violation> contradictions(const KvWriteConfig& config) {
  Violations violations;
  check_fields(config, violations);
  const KvWriteProblem& problem = config.problem;
  check_dtypes(problem.dtype, violations);
  check_heads(problem, violations);
  check_cache(problem, violations);
  check_norm(problem.qk_norm, violations);
  check_rope(problem, violations);
  check_scales(problem, violations);
  if (const int qk = problem.head_dim.qk; problem.hadamard && qk % kLaneElements != 0)
    violations.push_back({"/problem/hadamard", "true does not fit heads of " + std::to_string(qk) +
                                                   " elements; it takes a multiple of " +
                                                   std::to_string(kLaneElements)});
  if (!problem.v_out && problem.qk_norm.v)
    violations.push_back({"/problem/qk_norm/v", "true has no meaning without values; leave it out"});
  if (problem.v_layout == VLayout::kKeyPrefix)
    violations.push_back(
        {"/problem/v_layout",
         "\"key_prefix\" is attention's: a cache of such keys takes no values; \"v_out\": false would do"});
  else if (!problem.v_out && problem.v_layout != VLayout::kRows)
    violations.push_back({"/problem/v_layout", in_quotes(to_string(problem.v_layout)) + kLeaveOut});
  if (problem.hadamard_signs && !problem.hadamard)
    violations.push_back({"/problem/hadamard_signs", "true needs hadamard"});
  check_family(config.schedule, violations);
  return violations;
}

}  // namespace kernelwright
