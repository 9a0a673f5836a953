#include "kernelwright/runtime/kv_write/launch.h"

#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/launch/packing.h"

namespace kernelwright::detail {
namespace {

bool is_zero(const TensorStrides& strides) { return (strides.batch | strides.token | strides.head) == 0; }

void fill(TensorStrides& strides, std::int64_t heads, std::int64_t head_dim, std::int64_t keys_of_page) {
  if (!is_zero(strides)) return;
  strides.head = head_dim;
  strides.token = heads * head_dim;
  strides.batch = keys_of_page * strides.token;
}

contract::RowStrides packed(const TensorStrides& strides) { return {strides.token, strides.head}; }

/// A page of a ragged cache is one row.
contract::Strides packed_cache(const TensorStrides& strides, KvLayoutKind layout) {
  return {layout == KvLayoutKind::kRagged ? strides.token : strides.batch, strides.token, strides.head};
}

}  // namespace

KvWriteTensors resolved(const KvWriteSpec& spec, KvWriteTensors t) {
  const std::int64_t keys = spec.kv_layout == KvLayoutKind::kPaged ? spec.page_size : t.kv_len;
  fill(t.q_strides, spec.q_heads, spec.head_dim_qk, 0);
  fill(t.q_out_strides, spec.q_heads, spec.head_dim_qk, 0);
  fill(t.k_strides, spec.kv_heads, spec.head_dim_qk, 0);
  fill(t.v_strides, spec.kv_heads, spec.head_dim_v, 0);
  fill(t.k_cache_strides, spec.kv_heads, spec.head_dim_qk, keys);
  if (spec.v_columns && is_zero(t.v_cache_strides)) {
    t.v_cache_strides.head = spec.head_dim_v * keys;
    t.v_cache_strides.batch = spec.kv_heads * t.v_cache_strides.head;
  }
  fill(t.v_cache_strides, spec.kv_heads, spec.head_dim_v, keys);
  // Scales that the caller gives have no strides: broken_rules() refuses some.
  if (spec.k_scales == ScaleKind::kPerToken) fill(t.k_scale_strides, spec.kv_heads, 1, keys);
  if (spec.v_scales == ScaleKind::kPerToken) fill(t.v_scale_strides, spec.kv_heads, 1, keys);
  return t;
}

LoadedKvWrite describe(const KvWriteProblem& problem, const KvWritePlan& plan, const DeviceInfo&) {
  LoadedKvWrite loaded;
  loaded.spec = plan.spec;
  loaded.eps = static_cast<float>(problem.qk_norm.eps);
  loaded.least = static_cast<float>(problem.scales.least);
  loaded.has_pdl = arch_info(plan.spec.arch).pdl;
  return loaded;
}

std::vector<Spec> specs_of(const KvWritePlan& plan) { return {plan.spec}; }

contract::KvWriteParams params_of(const LoadedKvWrite& kernel, const KvWriteTensors& t) {
  const KvWriteSpec& spec = kernel.spec;
  return {
      .tokens = static_cast<std::int32_t>(t.tokens),
      .few_tokens = has_few(spec, t.tokens),
      .position_bytes = t.position_bytes,
      .cos_sin_rows = t.cos_sin_rows,
      .num_pages = spec.kv_layout == KvLayoutKind::kRagged ? static_cast<std::int32_t>(t.kv_tokens) : t.num_pages,
      .eps = t.eps.value_or(kernel.eps),
      .positions = pointer<const void>(t.positions),
      .cos_sin = pointer<const float>(t.cos_sin),
      .slot_mapping = pointer<const std::int64_t>(t.slot_mapping),
      .q = pointer<const void>(t.q),
      .q_strides = packed(t.q_strides),
      .q_out = pointer<void>(t.q_out),
      .q_out_strides = packed(t.q_out_strides),
      .q_weight = pointer<const void>(t.q_weight),
      .q_scale = pointer<float>(t.q_scale),
      .k = pointer<const void>(t.k),
      .k_strides = packed(t.k_strides),
      .k_cache = pointer<void>(t.k_cache),
      .k_cache_strides = packed_cache(t.k_cache_strides, spec.kv_layout),
      .k_weight = pointer<const void>(t.k_weight),
      .k_scale = pointer<float>(t.k_scale),
      .k_scale_strides = packed_cache(t.k_scale_strides, spec.kv_layout),
      .v = pointer<const void>(t.v),
      .v_strides = packed(t.v_strides),
      .v_cache = pointer<void>(t.v_cache),
      .v_cache_strides = packed_cache(t.v_cache_strides, spec.kv_layout),
      .v_scale = pointer<float>(t.v_scale),
      .v_scale_strides = packed_cache(t.v_scale_strides, spec.kv_layout),
      .batch_indices = pointer<const std::int32_t>(t.batch_indices),
      .page_table = pointer<const std::int32_t>(t.page_table),
      .batch = t.batch,
      .page_table_stride = t.page_table_stride,
      .kv_len = t.kv_len,
      .least = kernel.least,
  };
}

void launch_kv_write(const LoadedKvWrite& kernel, const KvWriteTensors& given, Stream stream) {
  const KvWriteSpec& spec = kernel.spec;
  const KvWriteTensors t = resolved(spec, given);
  if (auto violations = broken_rules(kernel, t); !violations.empty()) throw ConfigError(std::move(violations));
  if (t.tokens == 0) return;
  const contract::KvWriteParams params = params_of(kernel, t);
  kernel.device->launch(*kernel.kernel, config_of(plan_launch(spec, t.tokens), t.pdl), &params, sizeof params, stream);
}

}  // namespace kernelwright::detail
