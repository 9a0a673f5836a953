// Attention: which fields contradict each other, on any architecture and in any kernel family.
#include <algorithm>

#include "kernelwright/generator/message.h"
#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/policy_header.h"
#include "kernelwright/generator/problem/rule_check.h"
#include "kernelwright/generator/problem/score_mods.h"

namespace kernelwright {
namespace {

using namespace detail;
using Violations = std::vector<Violation>;

void check_dtypes(const AttentionDTypes& dtype, Violations& violations) {
  const auto refuse = [&](const char* path, DType found, const std::string& wanted) {
    violations.push_back(
        {std::string("/problem/dtype/") + path, in_quotes(to_string(found)) + " does not fit; " + wanted});
  };
  const bool is_q = is_one_of(dtype.q, {DType::kF16, DType::kBf16, DType::kE4m3});
  if (!is_q) refuse("q", dtype.q, "queries are f16, bf16 or e4m3");
  if (is_q && dtype.kv != dtype.q && !is_fp8(dtype.kv))
    refuse("kv", dtype.kv,
           "with " + std::string(to_string(dtype.q)) + " queries, keys and values are " +
               (is_fp8(dtype.q) ? "" : std::string(to_string(dtype.q)) + ", ") + "e4m3 or e5m2");
  if (!is_one_of(dtype.out, {DType::kF16, DType::kBf16, DType::kF32, DType::kE4m3}))
    refuse("out", dtype.out, "the output is f16, bf16 or f32");
  else if (is_q && bits_of(dtype.out) < bits_of(dtype.q))
    refuse("out", dtype.out, "the output is no narrower than the queries: f16, bf16 or f32");
}

void check_layouts(const AttentionProblem& problem, Violations& violations) {
  const KvLayout& kv = problem.kv_layout;
  const std::string kind = in_quotes(to_string(kv.kind));
  if (kv.kind == KvLayoutKind::kPaged && kv.page_size == 0)
    violations.push_back({"/problem/kv_layout/page_size", "is missing for kind \"paged\"; it takes 1 to 65536"});
  if (kv.kind != KvLayoutKind::kPaged && kv.page_size != 0)
    violations.push_back({"/problem/kv_layout/page_size", std::to_string(kv.page_size) + " has no meaning for kind " +
                                                              kind + "; leave it out, or make the kind \"paged\""});
  if (problem.kv_offsets && kv.kind != KvLayoutKind::kRagged)
    violations.push_back({"/problem/kv_offsets",
                          "true has no meaning for kv_layout " + kind + "; leave it out, or make the kind \"ragged\""});
  if (kv.kind == KvLayoutKind::kRagged && problem.q_layout == QLayout::kPadded && !problem.kv_offsets)
    violations.push_back({"/problem/kv_offsets",
                          "false leaves ragged keys beside padded queries without offsets; "
                          "set it to true, or make q_layout \"ragged\""});
  if (problem.kv_starts && kv.kind == KvLayoutKind::kRagged)
    violations.push_back({"/problem/kv_starts",
                          "true has no meaning for kv_layout \"ragged\", whose offsets say where sequences begin; "
                          "leave it out"});
  if (problem.cache_length == CacheLength::kPrompt && kv.kind == KvLayoutKind::kRagged)
    violations.push_back({"/problem/cache_length",
                          "\"prompt\" has no meaning for kv_layout \"ragged\", whose offsets say where all keys lie; "
                          "\"accurate\" would do"});
}

/// Values that are the first elements of keys.
void check_key_prefix(const AttentionProblem& problem, Violations& violations) {
  const HeadDim& head_dim = problem.head_dim;
  if (!problem.is_latent()) return;
  if (head_dim.v > head_dim.qk)
    violations.push_back(
        {"/problem/head_dim/v", std::to_string(head_dim.v) + " does not fit v_layout \"key_prefix\": keys of " +
                                    std::to_string(head_dim.qk) + " elements have at most so many for values"});
  if (problem.dtype.kv != problem.dtype.q && problem.dtype.kv != DType::kE4m3)
    violations.push_back({"/problem/dtype/kv",
                          in_quotes(to_string(problem.dtype.kv)) + " does not fit v_layout \"key_prefix\" with " +
                              std::string(to_string(problem.dtype.q)) + " queries; the same dtype would do, or e4m3"});
}

/// Whether `name` can name a type, as "mine::MyMask" does: it becomes a type in a kernel's source.
bool is_type_name(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (;;) {
    const std::size_t end = std::min(name.find("::"), name.size());
    const std::string_view part = name.substr(0, end);
    if (part.empty() || is_digit(part[0])) return false;
    for (const char c : part)
      if (!is_letter(c) && !is_digit(c)) return false;
    if (end == name.size()) return true;
    name.remove_prefix(end + 2);
  }
}

void check_source(const PolicySource& source, bool is_source, const std::string& path, const std::string& kind,
                  Violations& violations) {
  const auto refuse = [&](const char* field, std::string message) {
    violations.push_back({path + "/" + field, std::move(message)});
  };
  if (!is_source) {
    const PolicySource none;
    for (const auto& [name, given] :
         {std::pair("file", source.file != none.file), std::pair("type", source.type != none.type),
          std::pair("text", source.text != none.text), std::pair("reference", source.reference != none.reference)})
      if (given) refuse(name, "has no meaning for kind " + kind + "; leave it out, or make the kind \"source\"");
    return;
  }
  if (source.type.empty())
    refuse("type", "is missing for kind \"source\"; it takes the name of the header's type that is the policy");
  else if (!is_type_name(source.type))
    refuse("type",
           in_quotes(source.type) + " is no name of a type; a name with its namespaces, as \"mine::MyMask\", would do");
  if (source.text.empty() && source.file.empty())
    refuse("file",
           "is missing for kind \"source\"; it takes a header, relative to the config, or \"text\" the header itself");
  else if (source.text.empty())
    refuse("file", in_quotes(source.file) +
                       " has not been read, or is empty; a config that is no file has no folder to find it in: give "
                       "the header's \"text\"");
  else if (auto why = detail::header_verdict(source.text))
    refuse(source.file.empty() ? "text" : "file", (source.file.empty() ? "" : in_quotes(source.file) + " ") + *why);
  const PolicyReference& reference = source.reference;
  if (reference.library.empty() != reference.symbol.empty())
    refuse("reference", "has a library or a symbol without the other; it takes both, or an array");
  if (!reference.library.empty() && !reference.array.empty())
    refuse("reference", "has a library and an array; one of them would do");
}

void check_mask(const Mask& mask, const std::string& path, Violations& violations, int depth = 0) {
  if (depth > kMaxMaskDepth) return;  // check_fields() has reported it
  const std::string kind = in_quotes(to_string(mask.kind));
  if (mask.kind != MaskKind::kSlidingWindow && mask.window != Window{})
    violations.push_back(
        {path + "/window", "has no meaning for kind " + kind + "; leave it out, or make the kind \"sliding_window\""});
  if (mask.kind == MaskKind::kChunked && mask.chunk == 0)
    violations.push_back(
        {path + "/chunk", "is missing for kind \"chunked\"; it takes the keys of one chunk, 1 or more"});
  if (mask.kind != MaskKind::kChunked && mask.chunk != 0)
    violations.push_back({path + "/chunk", std::to_string(mask.chunk) + " has no meaning for kind " + kind +
                                               "; leave it out, or make the kind \"chunked\""});
  const bool joins = mask.kind == MaskKind::kAnd || mask.kind == MaskKind::kOr;
  if (joins && mask.operands.size() < 2)
    violations.push_back({path + "/operands",
                          "has " + std::to_string(mask.operands.size()) + " masks; kind " + kind + " joins 2 or more"});
  if (!joins && !mask.operands.empty())
    violations.push_back(
        {path + "/operands", "has no meaning for kind " + kind + "; leave it out, or make the kind \"and\" or \"or\""});
  if (mask.kind != MaskKind::kTensor && mask.tensor != ScoreTensor{})
    violations.push_back(
        {path + "/tensor", "has no meaning for kind " + kind + "; leave it out, or make the kind \"tensor\""});
  check_source(mask.source, mask.kind == MaskKind::kSource, path, kind, violations);
  for (std::size_t i = 0; i < mask.operands.size(); ++i)
    check_mask(mask.operands[i], pointer_to(path + "/operands", i), violations, depth + 1);
}

void check_score_mod(const ScoreMod& mod, Violations& violations) {
  const std::string kind = in_quotes(to_string(mod.kind));
  const bool takes_cap = facts_of(mod.kind).cap != 0;
  if (takes_cap && mod.cap == 0)
    violations.push_back({"/problem/score_mod/cap", "is missing for kind " + kind + "; it takes a number above 0"});
  if (!takes_cap && mod.cap != 0)
    violations.push_back(
        {"/problem/score_mod/cap", "has no meaning for kind " + kind + "; leave it out, or make the kind \"softcap\""});
  check_source(mod.source, mod.kind == ScoreModKind::kSource, "/problem/score_mod", kind, violations);
  const bool tensor = mod.kind == ScoreModKind::kTensor;
  for (const auto& [name, given] :
       {std::pair("tensor", mod.tensor != ScoreTensor{}), std::pair("dtype", mod.dtype != DType::kBf16)})
    if (!tensor && given)
      violations.push_back({std::string("/problem/score_mod/") + name,
                            "has no meaning for kind " + kind + "; leave it out, or make the kind \"tensor\""});
  if (tensor && !is_one_of(mod.dtype, {DType::kF16, DType::kBf16, DType::kF32}))
    violations.push_back(
        {"/problem/score_mod/dtype", in_quotes(to_string(mod.dtype)) + " does not fit; it takes f16, bf16 or f32"});
}

void check_rope(const AttentionProblem& problem, Violations& violations) {
  const Rope& rope = problem.rope;
  if (rope.width == 0 && rope != Rope{})
    violations.push_back(
        {"/problem/rope/width", "is missing beside a dtype; it takes the elements of the rotary part"});
  if (rope.width > problem.head_dim.qk || rope.width % 2 != 0)
    violations.push_back({"/problem/rope/width", std::to_string(rope.width) +
                                                     " does not fit; it takes an even number up to "
                                                     "head_dim.qk, " +
                                                     std::to_string(problem.head_dim.qk)});
  if (!is_one_of(rope.dtype, {DType::kF16, DType::kBf16}))
    violations.push_back(
        {"/problem/rope/dtype", in_quotes(to_string(rope.dtype)) + " does not fit; it takes f16 or bf16"});
}

void check_starts(const AttentionProblem& problem, const AttentionShape& shape, const std::string& path,
                  Violations& violations) {
  if (!shape.kv_starts.empty() && !problem.kv_starts)
    violations.push_back(
        {path + "/kv_starts",
         "has no meaning for a problem without kv_starts; leave it out, or set the problem's to true"});
  for (std::size_t i = 0; i < shape.kv_starts.size(); ++i) {
    const int keys = i < shape.kv_lens.size() ? shape.kv_lens[i] : shape.kv_len;
    if (shape.kv_starts[i] > keys)
      violations.push_back({pointer_to(path + "/kv_starts", i),
                            std::to_string(shape.kv_starts[i]) + " is behind the sequence's keys; it takes at most " +
                                std::to_string(keys)});
  }
}

void check_shape(const AttentionProblem& problem, const AttentionShape& shape, const std::string& path,
                 Violations& violations) {
  const auto check_list = [&](const char* name, const char* entries, const std::vector<int>& list) {
    if (list.empty() || list.size() == static_cast<std::size_t>(shape.batch)) return;
    violations.push_back({path + "/" + name, "has " + std::to_string(list.size()) + " " + entries + " for batch " +
                                                 std::to_string(shape.batch) + "; it takes one for each sequence"});
  };
  check_list("q_lens", "lengths", shape.q_lens);
  check_list("kv_lens", "lengths", shape.kv_lens);
  check_list("kv_starts", "starts", shape.kv_starts);
  check_starts(problem, shape, path, violations);
  if (!shape.q_lens.empty() && problem.q_layout == QLayout::kPadded)
    violations.push_back({path + "/q_lens",
                          "has no meaning for q_layout \"padded\", where every sequence has q_len "
                          "queries; leave it out, or make q_layout \"ragged\""});
  const bool shares_offsets = problem.kv_layout.kind == KvLayoutKind::kRagged && !problem.kv_offsets;
  const bool lists_match = shape.q_lens == shape.kv_lens && (!shape.q_lens.empty() || shape.q_len == shape.kv_len);
  if (shares_offsets && problem.q_layout == QLayout::kRagged && !lists_match)
    violations.push_back({path + "/kv_lens",
                          "differ from the queries', whose offsets the keys share; make them equal, or "
                          "set kv_offsets to true"});
  if (problem.cache_length == CacheLength::kPrompt)
    for (std::size_t i = 0; i < std::max(std::size_t{1}, std::max(shape.q_lens.size(), shape.kv_lens.size())); ++i) {
      const int queries = i < shape.q_lens.size() ? shape.q_lens[i] : shape.q_len;
      const int keys = i < shape.kv_lens.size() ? shape.kv_lens[i] : shape.kv_len;
      if (keys >= queries) continue;
      violations.push_back({path + (shape.kv_lens.empty() ? "/kv_len" : "/kv_lens"),
                            std::to_string(keys) + " keys are fewer than their sequence's " + std::to_string(queries) +
                                " queries, each of which has a key of its own (cache_length \"prompt\"); " +
                                std::to_string(queries) + " would do"});
      break;
    }
  if (problem.max_q_len == 0) return;
  const int longest = shape.q_lens.empty() ? shape.q_len : *std::max_element(shape.q_lens.begin(), shape.q_lens.end());
  if (longest > problem.max_q_len)
    violations.push_back(
        {path + (shape.q_lens.empty() ? "/q_len" : "/q_lens"),
         std::to_string(longest) + " is above max_q_len; it takes at most " + std::to_string(problem.max_q_len)});
}

}  // namespace

std::vector<Violation> contradictions(const AttentionConfig& config) {
  Violations violations;
  check_fields(config, violations);
  const AttentionProblem& problem = config.problem;
  check_dtypes(problem.dtype, violations);
  if (problem.heads.q > 0 && problem.heads.kv > 0 && problem.heads.q % problem.heads.kv != 0)
    violations.push_back({"/problem/heads/q", std::to_string(problem.heads.q) + " query heads do not share " +
                                                  std::to_string(problem.heads.kv) +
                                                  " key/value heads evenly; it takes a multiple of " +
                                                  std::to_string(problem.heads.kv)});
  check_layouts(problem, violations);
  check_v_layout(problem.v_layout, problem.dtype.kv, problem.kv_layout, violations);
  check_key_prefix(problem, violations);
  check_mask(problem.mask, "/problem/mask", violations);
  check_score_mod(problem.score_mod, violations);
  check_rope(problem, violations);
  if (problem.scales != ScaleKind::kNone && !is_fp8(problem.dtype.kv))
    violations.push_back({"/problem/scales", in_quotes(to_string(problem.scales)) + " has no meaning for " +
                                                 std::string(to_string(problem.dtype.kv)) +
                                                 " keys and values; leave it out, or make dtype.kv e4m3 or e5m2"});
  if (problem.scales == ScaleKind::kPerPage && problem.kv_layout.kind != KvLayoutKind::kPaged)
    violations.push_back({"/problem/scales",
                          "\"per_page\" belongs to paged keys; it takes \"per_token\" here, or "
                          "kv_layout.kind \"paged\""});
  if (problem.batch_invariant && config.schedule.scheduler == Auto<Scheduler>(Scheduler::kBalanced))
    violations.push_back({"/schedule/scheduler",
                          "\"balanced\" cuts keys where the shares of the whole batch end, and the problem is "
                          "batch_invariant; \"grid\" is accepted"});
  for (std::size_t i = 0; i < config.shapes.size(); ++i)
    check_shape(problem, config.shapes[i], pointer_to("/shapes", i), violations);
  check_family(config.schedule, violations);
  return violations;
}

}  // namespace kernelwright
