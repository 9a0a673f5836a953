#include "kernelwright/runtime/attention/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "contract/attention_decode_sm90.h"
#include "contract/attention_latent_sm90.h"
#include "contract/attention_params.h"
#include "contract/attention_sm100.h"
#include "contract/attention_sm90.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/range_mask.h"
#include "kernelwright/runtime/attention/arguments.h"
#include "kernelwright/runtime/attention/tensor_maps.h"
#include "kernelwright/runtime/launch/packing.h"
#include "kernelwright/runtime/launch/rules.h"

namespace kernelwright::detail {

namespace {

using contract::AttentionParams;
using contract::CombineParams;

contract::Strides packed(const TensorStrides& strides) { return {strides.batch, strides.token, strides.head}; }

/// Throws every broken rule at once. Not inlined: the messages would crowd the hot path out of the cache.
[[gnu::noinline]] void check_each(const LoadedAttention& kernel, const AttentionTensors& tensors,
                                  const ResolvedStrides& strides) {
  if (auto violations = broken_rules(kernel, tensors, strides); !violations.empty())
    throw ConfigError(std::move(violations));
}

class WorkspaceRules : public ArgumentRules {
 public:
  WorkspaceRules(const AttentionTensors& tensors, const AttentionLaunch& launch) {
    workspace(tensors.workspace, tensors.workspace_bytes, launch.workspace_bytes, [&] {
      return fmt::format(
          "{}; see AttentionKernel::workspace_bytes()",
          launch.queued ? "for the queue of tiles" : fmt::format("to merge {} parts of the keys", launch.num_splits));
    });
  }
};

[[gnu::cold, noreturn]] void refuse_workspace(const AttentionTensors& tensors, const AttentionLaunch& launch) {
  throw ConfigError(WorkspaceRules(tensors, launch).broken());
}

[[gnu::cold, noreturn]] void refuse_grid(const AttentionTensors& tensors) {
  throw ConfigError("/tensors/batch", fmt::format("{} sequences of up to {} queries are more than 2^31 - 1 CTAs, and a "
                                                  "launch has no more; launch fewer sequences at a time",
                                                  tensors.batch, tensors.q_len));
}

/// AttentionTensors::sm_budget: fewer clusters, but one at least.
void keep_to_budget(LaunchPlan& plan, int sm_budget) {
  const std::uint32_t clusters = std::max(1u, static_cast<std::uint32_t>(sm_budget) / plan.cluster);
  plan.grid[0] = std::min(plan.grid[0], clusters * plan.cluster);
}

AttentionParams main_params(const LoadedAttention& kernel, const AttentionTensors& tensors,
                            const ResolvedStrides& strides, const AttentionLaunch& launch) {
  const bool split = launch.num_splits > 1 || launch.balanced;
  const Window window = tensors.window.value_or(kernel.window);
  const float scale = tensors.scale.value_or(kernel.scale);
  const auto extent = [](std::int64_t rows) {  // of rows that kernels count in 32 bits; 0: not known
    return static_cast<std::int32_t>(rows > 0 ? std::min<std::int64_t>(rows, contract::kUnknownExtent)
                                              : contract::kUnknownExtent);
  };
  return {
      .q = pointer<const void>(tensors.q),
      .k = pointer<const void>(tensors.k),
      .v = pointer<const void>(tensors.v),
      .o = pointer<void>(tensors.o),
      .lse = pointer<float>(tensors.lse),
      .partial_o = split ? pointer<float>(tensors.workspace) : nullptr,
      .partial_lse = split ? pointer<float>(tensors.workspace + launch.partial_lse_offset) : nullptr,
      .merge_counters = launch.merge_counters_offset
                            ? pointer<std::uint64_t>(tensors.workspace + launch.merge_counters_offset)
                            : nullptr,
      .q_offsets = pointer<const std::int32_t>(tensors.q_offsets),
      .kv_offsets = pointer<const std::int32_t>(kernel.spec.kv_starts ? tensors.kv_starts : tensors.kv_offsets),
      .kv_lengths = pointer<const std::int32_t>(tensors.kv_lengths),
      .page_table = pointer<const std::int32_t>(tensors.page_table),
      .sinks = pointer<const float>(tensors.sinks),
      .k_scale = pointer<const float>(tensors.k_scale),
      .v_scale = pointer<const float>(tensors.v_scale),
      .q_strides = packed(strides.q),
      .k_strides = packed(strides.k),
      .v_strides = packed(strides.v),
      .o_strides = packed(strides.o),
      .scale = scale,
      .exponent_scale = (scale == 0 ? 1.f : std::abs(scale)) * 1.4426950408889634f,
      .softcap = tensors.softcap.value_or(kernel.softcap),
      .batch = tensors.batch,
      .q_heads = kernel.q_heads,
      .kv_heads = kernel.kv_heads,
      .q_len = tensors.q_len,
      .kv_len = tensors.kv_len,
      .window_left = window.left,
      .window_right = window.right,
      .page_table_stride = tensors.page_table_stride,
      .num_splits = launch.num_splits,
      .num_m_blocks = launch.num_m_blocks,
      .head_section = launch.head_section,
      .alibi_slopes = pointer<const float>(tensors.alibi_slopes),
      .chunk_reach = kernel.chunk_reach,
      .num_pages = extent(tensors.num_pages),
      .q_scale = pointer<const float>(tensors.q_scale),
      .q_tokens = extent(tensors.q_tokens),
      .kv_tokens = extent(kv_tokens_of(tensors)),
      .zero_padding = tensors.zero_padding ? 1 : 0,
      .mask = pointer<const std::uint8_t>(tensors.mask),
      .bias = pointer<const void>(tensors.bias),
      .mask_strides = packed(strides.mask),
      .bias_strides = packed(strides.bias),
      .k_scale_strides = packed(strides.k_scale),
      .v_scale_strides = packed(strides.v_scale),
  };
}

/// attention_sm90, attention_decode_sm90, attention_sm100, attention_latent_sm90 and attention_latent_sm100.
void launch_mapped(const LoadedAttention& kernel, const AttentionTensors& tensors, const ResolvedStrides& strides,
                   const AttentionLaunch& launch, const AttentionParams& params, Stream stream) {
  const AttentionTensorMaps wanted = tensor_maps_of(kernel, tensors, strides);
  const auto launch_with = [&](auto& all) {
    if constexpr (requires { all.q; }) encode(*kernel.device, all.q, wanted.q);
    if (!wanted.gathers) {
      encode(*kernel.device, all.k, wanted.k);
      if constexpr (requires { all.v; }) encode(*kernel.device, all.v, wanted.v);
      if constexpr (requires { all.k_scale; })
        if (kernel.spec.has_records()) encode(*kernel.device, all.k_scale, wanted.k_scale);
    }
    if constexpr (requires { all.q_rope; })
      if (kernel.spec.rope_width > 0) {
        encode(*kernel.device, all.q_rope, wanted.q_rope);
        encode(*kernel.device, all.k_rope, wanted.k_rope);
        all.rope_head_step = wanted.one_rope ? 0 : 1;
      }
    all.attention = params;
    kernel.device->launch(*kernel.main, config_of(launch.main, tensors.pdl), &all, sizeof all, stream);
  };
  switch (kernel.spec.form()) {
    case AttentionForm::kHopperDecode: {
      contract::HopperDecodeParams decode{};
      return launch_with(decode);
    }
    case AttentionForm::kHopperLatent:
    case AttentionForm::kBlackwellLatent: {
      if (kernel.spec.kv == kernel.spec.q) {
        contract::LatentParams latent{};
        return launch_with(latent);
      }
      contract::LatentBytesParams latent{};
      return launch_with(latent);
    }
    case AttentionForm::kBlackwellPrefill: {
      contract::BlackwellAttentionParams blackwell{};
      return launch_with(blackwell);
    }
    default: {
      const auto launch_hopper = [&](auto hopper) {
        hopper.num_items = launch.num_items;
        hopper.m_chunk = launch.m_chunk;
        hopper.queue = launch.queued ? pointer<std::uint64_t>(tensors.workspace) : nullptr;
        launch_with(hopper);
      };
      return kernel.spec.rope_width > 0 ? launch_hopper(contract::HopperRotaryParams{})
                                        : launch_hopper(contract::HopperAttentionParams{});
    }
  }
}

/// attention_portable, its decode form and attention_latent_portable.
void launch_portable(const LoadedAttention& kernel, const AttentionTensors& tensors, const ResolvedStrides& strides,
                     const AttentionLaunch& launch, const AttentionParams& params, Stream stream) {
  const auto launch_with = [&](const auto& all) {
    kernel.device->launch(*kernel.main, config_of(launch.main, tensors.pdl), &all, sizeof all, stream);
  };
  if (kernel.spec.rope_width == 0) return launch_with(params);
  launch_with(contract::PortableRotaryParams{params, pointer<const void>(tensors.q_rope),
                                             pointer<const void>(tensors.k_rope), packed(strides.q_rope),
                                             packed(strides.k_rope)});
}

}  // namespace

int forced_splits(const AttentionPlan& plan) noexcept { return plan.main.splits_keys() ? plan.splits : 1; }

LoadedAttention describe(const AttentionProblem& problem, const AttentionPlan& plan, const DeviceInfo& device) {
  LoadedAttention loaded;
  loaded.spec = plan.main;
  loaded.forced_splits = forced_splits(plan);
  loaded.num_sms = device.num_sms;
  loaded.q_heads = problem.heads.q;
  loaded.kv_heads = problem.heads.kv;
  loaded.max_q_len = problem.max_q_len;
  loaded.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(problem.head_dim.qk)));
  loaded.softcap = static_cast<float>(problem.score_mod.cap);
  if (const Mask* tensor = open_mask(problem.mask).tensor) loaded.mask = tensor->tensor;
  loaded.bias = problem.score_mod.tensor;
  const RangeMask mask = range_mask(problem.mask);
  loaded.window = mask.window;
  loaded.chunk_reach = mask.chunk_reach;
  loaded.takes_window = problem.mask.kind == MaskKind::kSlidingWindow;
  const AttentionSpec& spec = plan.main;
  for (std::size_t i = 0; i < std::size(kOptionalOperands); ++i) {
    const OperandUse use = kOptionalOperands[i].use(spec);
    loaded.takes |= unsigned{use.taken} << i;
    loaded.needs |= unsigned{use.needed} << i;
  }
  const auto step = [](DType dtype) { return std::int64_t{16 * 8 / bits_of(dtype)}; };
  loaded.q_step = step(spec.q);
  loaded.kv_step = step(spec.kv);
  loaded.o_step = step(spec.out);
  loaded.tensor_maps = spec.family != Family::kPortable;
  loaded.has_pdl = arch_info(plan.main.arch).pdl;
  return loaded;
}

std::vector<Spec> specs_of(const AttentionPlan& plan) {
  std::vector<Spec> specs{plan.main};
  if (plan.combine) specs.push_back(*plan.combine);
  return specs;
}

void attach(LoadedAttention& loaded, std::vector<const LoadedKernel*> kernels,
            std::vector<std::shared_ptr<const Binary>> binaries) {
  loaded.main = kernels[0];
  loaded.main_binary = std::move(binaries[0]);
  if (const AttentionSpec& spec = loaded.spec;
      spec.cluster_m > 1 && (spec.form() == AttentionForm::kHopperPrefill || spec.latent)) {
    // A persistent grid of more clusters than the device holds at a time would run twice as long, and so would more
    // parts of split keys.
    const LaunchConfig config = config_of_cluster(spec.cluster_m, spec.threads(), shared_bytes(spec));
    loaded.num_sms = loaded.device->max_active_clusters(*kernels[0], config) * spec.cluster_m;
  }
  if (kernels.size() == 1) return;
  loaded.combine = kernels[1];
  loaded.combine_binary = std::move(binaries[1]);
}

void attach(LoadedAttention& loaded, const LoadedAttention& twin) {
  loaded.main = twin.main;
  loaded.combine = twin.combine;
  loaded.num_sms = twin.num_sms;
  loaded.main_binary = twin.main_binary;
  loaded.combine_binary = twin.combine_binary;
}

AttentionExtent extent_of(Heads heads, QLayout layout, const AttentionTensors& tensors) noexcept {
  return {.batch = tensors.batch,
          .q_heads = heads.q,
          .kv_heads = heads.kv,
          .q_len = tensors.q_len,
          .kv_len = tensors.kv_len,
          .q_tokens = query_rows(layout, tensors)};
}

void launch_attention(const LoadedAttention& kernel, const AttentionTensors& given, Stream stream) {
  AttentionTensors with_values;  // where keys hold their values, v is k
  if (kernel.spec.latent) with_values = values_in_keys(given);
  const AttentionTensors& tensors = kernel.spec.latent ? with_values : given;
  const ResolvedStrides strides = resolve_strides(kernel, tensors);
  const bool ragged = kernel.spec.q_layout == QLayout::kRagged;
  const AttentionExtent extent = extent_of({kernel.q_heads, kernel.kv_heads}, kernel.spec.q_layout, tensors);
  const std::int64_t rows = extent.q_tokens;
  const bool empty = rows == 0 && tensors.batch >= 0 && tensors.q_len >= 0 && tensors.kv_len >= 0;
  if (empty) return;  // null operands are fine: there are no rows

  if (!surely_fine(kernel, tensors, strides, rows)) check_each(kernel, tensors, strides);

  const int sms =
      kernel.spec.balanced && tensors.sm_budget > 0 ? std::min(kernel.num_sms, tensors.sm_budget) : kernel.num_sms;
  AttentionLaunch launch = plan_launch(kernel.spec, extent, sms, kernel.forced_splits);
  if (launch.persistent && tensors.sm_budget > 0) keep_to_budget(launch.main, tensors.sm_budget);
  constexpr std::uint32_t kMostCtas = 0x7fffffff;  // of a grid, along x
  if (launch.main.grid[0] > kMostCtas) [[unlikely]]
    refuse_grid(tensors);
  const bool split = launch.num_splits > 1;
  // A queue of tiles is welcome, not needed: without one they are dealt beforehand.
  const bool works_in_memory = launch.workspace_bytes > 0 && !(launch.queued && !tensors.workspace);
  if (works_in_memory && (launch.workspace_bytes > tensors.workspace_bytes || !tensors.workspace ||
                          (tensors.workspace & 15) || !is_span(tensors.workspace, launch.workspace_bytes))) [[unlikely]]
    refuse_workspace(tensors, launch);

  const AttentionParams params = main_params(kernel, tensors, strides, launch);
  if (kernel.tensor_maps)
    launch_mapped(kernel, tensors, strides, launch, params, stream);
  else
    launch_portable(kernel, tensors, strides, launch, params, stream);
  if (!split || !kernel.combine) return;

  const CombineParams combine{
      .partial_o = params.partial_o,
      .partial_lse = params.partial_lse,
      .o = params.o,
      .lse = params.lse,
      .o_strides = params.o_strides,
      .num_splits = launch.num_splits,
      .rows = static_cast<std::int32_t>(rows * kernel.q_heads),
      .q_heads = kernel.q_heads,
      .q_len = ragged ? 0 : tensors.q_len,
      .batch = tensors.batch,
      .q_offsets = params.q_offsets,
  };
  // Its wait ends with the kernel above, and that one has waited for what was ahead of both.
  kernel.device->launch(*kernel.combine, config_of(launch.combine, kernel.has_pdl), &combine, sizeof combine, stream);
}

}  // namespace kernelwright::detail
