// The configs in which takers.cpp tries a field.
#include "kernelwright/generator/schema/taker_probes.h"

#include "kernelwright/generator/problem/score_mods.h"

namespace kernelwright::detail {

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
        c.problem.dtype = {DType::kF16, DType::kF16, DType::kF16};
        c.problem.head_dim = {192, 128};
        c.problem.rope = {64, DType::kF16};
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
      [](C& c) {
        c.problem.head_dim = {576, 512}, c.problem.heads = {16, 1};
        c.problem.v_layout = VLayout::kKeyPrefix;
      },
      [](C& c) {
        c.problem.head_dim = {576, 512}, c.problem.heads = {16, 1};
        c.problem.v_layout = VLayout::kKeyPrefix;
        c.problem.dtype.kv = DType::kE4m3, c.problem.scales = ScaleKind::kPerBlock;
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
      [](C& c) { c.problem.layout = OperandLayout::kTn; },
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

}  // namespace kernelwright::detail
