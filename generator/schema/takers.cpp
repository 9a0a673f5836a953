#include "kernelwright/generator/schema/takers.h"

#include <charconv>
#include <functional>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/generator/moe_combine/plan.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/field_rules.h"
#include "kernelwright/generator/problem/score_mods.h"
#include "kernelwright/generator/route/plan.h"
#include "kernelwright/generator/row_op/plan.h"

namespace kernelwright {
namespace {

template <class T>
bool set_word(T& value, std::string_view word) {
  if constexpr (is_auto_v<T>) {
    std::remove_cvref_t<decltype(value.value())> inner{};
    if (!set_word(inner, word)) return false;
    value = inner;
    return true;
  } else if constexpr (Enum<T>) {
    const auto entry = from_string<T>(word);
    if (entry) value = *entry;
    return entry.has_value();
  } else if constexpr (std::same_as<T, bool>) {
    value = word == "true";
    return word == "true" || word == "false";
  } else if constexpr (std::same_as<T, int> || std::same_as<T, double>) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    return error == std::errc() && end == word.data() + word.size();
  } else if constexpr (std::same_as<T, ClusterShape>) {
    const std::size_t comma = word.find(", ");
    return word.starts_with('[') && word.ends_with(']') && comma != word.npos &&
           set_word(value.m, word.substr(1, comma - 1)) &&
           set_word(value.n, word.substr(comma + 2, word.size() - comma - 3));
  } else {
    return false;  // lists and texts
  }
}

/// Sets the field at `path`, names with dots between them. Returns false if there is no such field, or if it does not
/// take the word.
template <FieldStruct T>
bool set_field(T& of, std::string_view path, std::string_view word) {
  const std::string_view first = path.substr(0, path.find('.'));
  bool set = false;
  visit_fields(of, [&](const char* name, auto& member, const auto&, const char*) {
    if (first != name) return;
    if constexpr (FieldStruct<std::remove_cvref_t<decltype(member)>>) {
      if (first.size() < path.size()) set = set_field(member, path.substr(first.size() + 1), word);
    } else {
      set = first.size() == path.size() && set_word(member, word);
    }
  });
  return set;
}

template <class KindOfConfig>
bool set_field_of(KindOfConfig& config, std::string_view path, std::string_view word) {
  const std::size_t dot = path.find('.');
  if (dot == path.npos) return false;
  const std::string_view rest = path.substr(dot + 1);
  if (path.substr(0, dot) == "problem") return set_field(config.problem, rest, word);
  if (path.substr(0, dot) == "schedule") return set_field(config.schedule, rest, word);
  return false;
}

template <class KindOfConfig>
using Change = std::function<void(KindOfConfig&)>;

// Configs to start from: one for each kind of problem for which kernels differ.
const std::vector<Change<AttentionConfig>>& starts(const AttentionConfig&) {
  using C = AttentionConfig;
  static const auto& all = *new std::vector<Change<C>>{
      [](C&) {},
      [](C& c) { c.problem.max_q_len = 1; },
      [](C& c) {
        c.problem.dtype = {DType::kBf16, DType::kE4m3, DType::kBf16};
      },
      [](C& c) {
        c.problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
      },
      [](C& c) {
        c.problem.dtype = {DType::kBf16, DType::kE4m3, DType::kBf16};
        c.problem.scales = ScaleKind::kPerTensor;
      },
      [](C& c) {
        c.problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
        c.problem.scales = ScaleKind::kPerToken;
        c.problem.head_dim = {192, 128};
        c.problem.rope.width = 64;
      },
      [](C& c) {
        c.problem.head_dim = {64, 64};
      },
      [](C& c) {
        c.problem.head_dim = {32, 32};
      },
      [](C& c) {
        c.problem.head_dim = {16, 16};
      },
      [](C& c) {
        c.problem.head_dim = {192, 128};
        c.problem.rope.width = 64;
      },
      [](C& c) {
        c.problem.kv_layout = {KvLayoutKind::kPaged, 64};
      },
      [](C& c) {
        c.problem.max_q_len = 1;
        c.problem.dtype = {DType::kBf16, DType::kE4m3, DType::kBf16};
      },
      [](C& c) {
        c.problem.kv_layout = {KvLayoutKind::kPaged, 64};
        c.problem.dtype = {DType::kE4m3, DType::kE4m3, DType::kBf16};
      },
      [](C& c) {
        c.problem.kv_layout = {KvLayoutKind::kPaged, 64};
        c.problem.dtype = {DType::kBf16, DType::kE4m3, DType::kBf16};
      },
      [](C& c) { c.problem.max_q_len = 1, c.schedule.splits = 4; },
      [](C& c) { c.problem.max_q_len = 1, c.schedule.token_gen = true; },
      [](C& c) { c.problem.max_q_len = 1, c.problem.q_layout = QLayout::kRagged; },
  };
  return all;
}
const std::vector<Change<GemmConfig>>& starts(const GemmConfig&) {
  using C = GemmConfig;
  const auto of = [](DType ab, DType d, ScaleKind scales) {
    return [=](C& c) {
      c.problem.dtype = {ab, ab, d, DType::kBf16};
      c.problem.scales = scales;
    };
  };
  static const auto& all = *new std::vector<Change<C>>{
      [](C&) {},
      of(DType::kE4m3, DType::kBf16, ScaleKind::kNone),
      of(DType::kE4m3, DType::kBf16, ScaleKind::kPerTensor),
      of(DType::kE4m3, DType::kBf16, ScaleKind::kPerBlock),
      of(DType::kTf32, DType::kF32, ScaleKind::kNone),
      of(DType::kMxfp8, DType::kBf16, ScaleKind::kNone),
      [](C& c) { c.problem.epilogue = "acc + bias"; },
      [](C& c) { c.schedule.split_k = 2; },
      [](C& c) { c.schedule.cta_group = 2; },
  };
  return all;
}

const std::vector<Change<KvWriteConfig>>& starts(const KvWriteConfig&) {
  using C = KvWriteConfig;
  static const auto& all = *new std::vector<Change<C>>{
      [](C&) {},
      [](C& c) { c.problem.dtype.q = c.problem.dtype.kv = DType::kE4m3; },
      [](C& c) {
        c.problem.qk_norm.kind = NormKind::kRms;
        c.problem.rope = {.style = RopeStyle::kNeox, .width = 128};
      },
  };
  return all;
}

const std::vector<Change<RowOpConfig>>& starts(const RowOpConfig&) {
  using C = RowOpConfig;
  static const auto& all = *new std::vector<Change<C>>{
      [](C&) {},
      [](C& c) { c.problem.input = RowInput::kGateUp; },
      [](C& c) { c.problem.dtype.out = DType::kE4m3; },
  };
  return all;
}

const std::vector<Change<RouteConfig>>& starts(const RouteConfig&) {
  static const auto& all = *new std::vector<Change<RouteConfig>>{
      [](RouteConfig&) {}, [](RouteConfig& c) { c.problem.n_group = 8, c.problem.topk_group = 4; }};
  return all;
}

const std::vector<Change<MoeCombineConfig>>& starts(const MoeCombineConfig&) {
  static const auto& all = *new std::vector<Change<MoeCombineConfig>>{[](MoeCombineConfig&) {}};
  return all;
}

// Other fields that a value may need. They are tried one after another behind it.
const std::vector<Change<AttentionConfig>>& completions(const AttentionConfig&) {
  using C = AttentionConfig;
  static const auto& all = *new std::vector<Change<C>>{
      [](C& c) {
        AttentionProblem& p = c.problem;
        if (p.mask.kind == MaskKind::kChunked) p.mask.chunk = 64;
        if (p.mask.kind == MaskKind::kAnd || p.mask.kind == MaskKind::kOr) {
          Mask causal, window;
          causal.kind = MaskKind::kCausal;
          window.kind = MaskKind::kSlidingWindow;
          window.window.left = 63;
          p.mask.operands = {causal, window};
        }
        p.score_mod.cap = facts_of(p.score_mod.kind).cap;
        if (p.mask.kind == MaskKind::kSource) p.mask.source = {.file = "mask.cuh", .type = "Mask", .text = "//"};
        if (p.score_mod.kind == ScoreModKind::kSource)
          p.score_mod.source = {.file = "modifier.cuh", .type = "Modifier", .text = "//"};
        if (p.kv_layout.kind == KvLayoutKind::kPaged && p.kv_layout.page_size == 0) p.kv_layout.page_size = 64;
        if (p.kv_layout.kind == KvLayoutKind::kRagged) p.kv_offsets = true;
      },
      [](C& c) {  // kv_offsets
        c.problem.kv_layout.kind = KvLayoutKind::kRagged;
        c.problem.q_layout = QLayout::kRagged;
      },
      [](C& c) { c.problem.dtype.kv = c.problem.dtype.out = c.problem.dtype.q; },
      [](C& c) { c.problem.dtype.q = c.problem.dtype.out = c.problem.dtype.kv; },
      [](C& c) { c.problem.dtype.q = c.problem.dtype.kv = c.problem.dtype.out; },
      [](C& c) { c.problem.dtype.out = DType::kF32; },
      [](C& c) {
        c.problem.dtype = {c.problem.dtype.kv, c.problem.dtype.kv, DType::kBf16};
      },
      [](C& c) { c.problem.dtype.kv = c.problem.dtype.q, c.problem.dtype.out = DType::kBf16; },
  };
  return all;
}
const std::vector<Change<GemmConfig>>& completions(const GemmConfig&) {
  using C = GemmConfig;
  static const auto& all = *new std::vector<Change<C>>{
      [](C&) {},
      [](C& c) { c.problem.dtype.b = c.problem.dtype.a; },
      [](C& c) { c.problem.dtype.b = c.problem.dtype.a, c.problem.dtype.d = DType::kF32; },
      [](C& c) { c.problem.dtype.a = c.problem.dtype.b; },
      [](C& c) { c.problem.dtype.a = c.problem.dtype.b, c.problem.dtype.d = DType::kF32; },
      [](C& c) {
        GemmGroups& of = c.problem.groups;
        const bool masked = of.kind == GroupKind::kMasked || of.bounds == GroupBounds::kCounts;
        of.kind = masked ? GroupKind::kMasked : GroupKind::kRows;
        if (masked) of.bounds = GroupBounds::kCounts;
      },
      [](C& c) { c.schedule.block_m = 128; },
      [](C& c) { c.schedule.math_warpgroups = 1, c.schedule.block_m = 64; },
  };
  return all;
}

const std::vector<Change<KvWriteConfig>>& completions(const KvWriteConfig&) {
  using C = KvWriteConfig;
  static const auto& all = *new std::vector<Change<C>>{
      [](C&) {},
      [](C& c) {
        RopeRotation& rope = c.problem.rope;
        if (rope.style == RopeStyle::kNone) rope.style = RopeStyle::kNeox;
        if (rope.interleaved || rope.sections.pairs() > 0) rope.sections = {.first = 24, .second = 20, .third = 20};
        if (rope.width == 0) rope.width = 128;
        if (rope.begin > 0) rope.width = 64;
        if (c.problem.hadamard_signs) c.problem.hadamard = true;
        if (c.problem.kv_layout.kind != KvLayoutKind::kPaged) c.problem.kv_layout.page_size = 0;
      },
      [](C& c) {
        c.problem.scales.k = ScaleKind::kPerToken;
        if (c.problem.scales.ue8m0) c.problem.scales.power_of_two = true;
      },
  };
  return all;
}

const std::vector<Change<RowOpConfig>>& completions(const RowOpConfig&) {
  using C = RowOpConfig;
  static const auto& all = *new std::vector<Change<C>>{
      [](C&) {},
      [](C& c) { c.problem.scales.kind = ScaleKind::kPerBlock; },
  };
  return all;
}

const std::vector<Change<RouteConfig>>& completions(const RouteConfig& config) { return starts(config); }
const std::vector<Change<MoeCombineConfig>>& completions(const MoeCombineConfig& config) { return starts(config); }

/// A config in which the field matters. Otherwise every dtype of an absent operand would be accepted.
AttentionConfig plain(const AttentionConfig&, std::string_view path) {
  AttentionConfig config;
  config.problem.heads = {8, 2};
  if (path.starts_with("problem.mask.window.")) config.problem.mask.kind = MaskKind::kSlidingWindow;
  if (path.starts_with("problem.mask.tensor.")) config.problem.mask.kind = MaskKind::kTensor;
  if (path.starts_with("problem.score_mod.tensor.") || path == "problem.score_mod.dtype")
    config.problem.score_mod.kind = ScoreModKind::kTensor;
  if (path == "problem.mask.chunk") config.problem.mask.kind = MaskKind::kChunked;
  if (path == "problem.kv_layout.page_size") config.problem.kv_layout.kind = KvLayoutKind::kPaged;
  if (path == "problem.rope.dtype") config.problem.rope.width = 64, config.problem.head_dim = {192, 128};
  return config;
}
GemmConfig plain(const GemmConfig&, std::string_view path) {
  GemmConfig config;
  config.problem.n = config.problem.k = 4096;
  if (path == "problem.dtype.c") config.problem.epilogue = "acc + bias";
  return config;
}

KvWriteConfig plain(const KvWriteConfig&, std::string_view) {
  KvWriteConfig config;
  config.problem.kv_layout = {KvLayoutKind::kPaged, 16};
  config.problem.heads = {8, 2};
  return config;
}

RowOpConfig plain(const RowOpConfig&, std::string_view) {
  RowOpConfig config;
  config.problem.width = 4096;
  config.problem.norm.kind = NormKind::kRms;
  return config;
}

RouteConfig plain(const RouteConfig&, std::string_view) {
  RouteConfig config;
  config.problem.experts = 256, config.problem.top_k = 8;
  return config;
}

MoeCombineConfig plain(const MoeCombineConfig&, std::string_view) {
  return {.name = "", .problem = {.width = 4096, .top_k = 8}};
}

bool has_plan(const AttentionConfig& config, Arch arch) {
  plan_by_model(config.problem, config.schedule, arch);
  return true;
}
bool has_plan(const GemmConfig& config, Arch arch) {
  plan_by_model(config.problem, config.schedule, arch);
  return true;
}

bool has_plan(const KvWriteConfig& c, Arch arch) { return plan_kv_write(c.problem, c.schedule, arch), true; }
bool has_plan(const RowOpConfig& c, Arch arch) { return plan_row_op(c.problem, c.schedule, arch), true; }
bool has_plan(const RouteConfig& c, Arch arch) { return plan_route(c.problem, c.schedule, arch), true; }
bool has_plan(const MoeCombineConfig& c, Arch arch) { return plan_moe_combine(c.problem, c.schedule, arch), true; }

template <class KindOfConfig>
bool takes(const KindOfConfig& config, Arch arch) try {
  return contradictions(config).empty() && has_plan(config, arch);
} catch (const ConfigError&) {
  return false;
}

/// The first architecture that the family is written for. For a family that runs everywhere: the oldest and the newest.
std::vector<Arch> tried_on(Family family) {
  for (const ArchInfo& row : all_archs())
    if (row.own == family) return {row.arch};
  return {all_archs().front().arch, all_archs().back().arch};
}

template <class KindOfConfig>
bool family_takes(Family family, std::string_view path, std::string_view word) {
  const KindOfConfig kind;
  for (const auto& start : starts(kind))
    for (const auto& complete : completions(kind)) {
      KindOfConfig config = plain(kind, path);
      start(config);
      if (!set_field_of(config, path, word)) return false;
      complete(config);
      set_field_of(config, path, word);  // a completion may have changed it
      if (!config.schedule.family.is_auto() && config.schedule.family.value() != family) return false;
      config.schedule.family = family;
      std::vector<Arch> archs = tried_on(family);
      if (!config.schedule.arch.is_auto()) archs = {config.schedule.arch.value()};
      for (const Arch arch : archs)
        if (takes(config, arch)) return true;
    }
  return false;
}

}  // namespace

std::vector<Family> families_that_take(std::string_view kind, std::string_view path, std::string_view word) {
  std::vector<Family> families;
  // What the one family of a kind takes needs no name of a family.
  const bool of_kv_write = kind == "kv_write" && family_takes<KvWriteConfig>(Family::kPortable, path, word);
  const bool of_row_op = kind == "row_op" && family_takes<RowOpConfig>(Family::kPortable, path, word);
  const bool of_route = kind == "route" && family_takes<RouteConfig>(Family::kPortable, path, word);
  const bool of_moe_combine = kind == "moe_combine" && family_takes<MoeCombineConfig>(Family::kPortable, path, word);
  for (const auto& [family, name] : EnumTable<Family>::entries) {
    const bool taken = kind == "attention" ? family_takes<AttentionConfig>(family, path, word)
                       : kind == "gemm"    ? family_takes<GemmConfig>(family, path, word)
                                           : of_kv_write || of_row_op || of_route || of_moe_combine;
    if (taken) families.push_back(family);
  }
  return families;
}

std::vector<std::int64_t> probes(const range& rule) {
  std::vector<std::int64_t> values{rule.low};
  for (const std::int64_t value : {1, 2, 3, 4, 6, 8, 16, 32, 48, 64, 96, 128, 160, 192, 256})
    if (value > values.back() && value < rule.high && (value - rule.low) % rule.step == 0) values.push_back(value);
  if (rule.high > values.back()) values.push_back(rule.high);
  return values;
}

std::string names_of(const std::vector<Family>& families) {
  if (families.empty()) return "no family";
  if (families.size() == kAllFamilies) return "all families";
  std::string names;
  for (const Family family : families) names.append(names.empty() ? "" : ", ").append(to_string(family));
  return names;
}

}  // namespace kernelwright
