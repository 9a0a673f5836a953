// A layer's arguments become those of its kernels. Every rule is checked before the first kernel is queued.
#include "kernelwright/runtime/moe/launch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernelwright/runtime/gemm/kind.h"
#include "kernelwright/runtime/moe/calls.h"
#include "kernelwright/runtime/moe_combine/kind.h"
#include "kernelwright/runtime/route/kind.h"
#include "kernelwright/runtime/row_op/kind.h"
#include "kernelwright/runtime/slot/kernel_handle_impl.h"

namespace kernelwright::detail {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Elements from one row of a quantised operand's scales to the next: the GEMM takes a multiple of 4.
std::int64_t scale_stride(std::int64_t rows) { return ceil_div(rows, 4) * 4; }

std::int64_t pairs_of(const MoeProblem& problem, const MoeTensors& t) { return t.tokens * problem.route.top_k; }
bool is_quantised(const MoeProblem& problem) { return problem.scales == ScaleKind::kPerBlock; }

/// Experts that have tokens have so many of them if all have equally many. Those of other ranks have their share.
int expected_rows(const MoeProblem& problem, const MoeTensors& t) {
  const std::int64_t pairs = pairs_of(problem, t);
  const std::int64_t busy = std::max<std::int64_t>(1, std::min<std::int64_t>(problem.route.experts, pairs));
  return static_cast<int>(std::max<std::int64_t>(1, ceil_div(pairs, busy)));
}

/// The weights of pairs: the caller's, or those that stay in the workspace.
DevicePtr weights_of(const MoeProblem& problem, const MoeTensors& t, const MoeWorkspace& at) {
  return t.weights || problem.route.is_given() ? t.weights : t.workspace + at.weights;
}

// Only the first kernel begins as the caller says. Each other one waits for the one ahead of it, which has waited
// likewise: so for all that is ahead.

RouteTensors route_call(const MoeProblem& problem, const MoeTensors& t, const MoeWorkspace& at) {
  return {.logits = t.logits,
          .bias = t.bias,
          .local_ids = t.local_ids,
          .ids = t.ids || problem.route.is_given() ? t.ids : t.workspace + at.ids,
          .weights = weights_of(problem, t, at),
          .starts = t.workspace + at.starts,
          .source_rows = t.workspace + at.source_rows,
          .positions = t.workspace + at.positions,
          .workspace = t.workspace + at.counts,
          .workspace_bytes = at.counts_bytes,
          .tokens = t.tokens,
          .logits_stride = t.logits_stride,
          .factor = t.factor,
          .pdl = t.pdl};
}

RowOpTensors quantize_x_call(const MoeTensors& t, const MoeWorkspace& at, bool has_pdl) {
  RowOpTensors call;
  call.x = t.x, call.x_stride = t.x_stride, call.rows = t.tokens;
  call.out = t.workspace + at.x;
  call.scale = t.workspace + at.x_scale, call.scale_stride = scale_stride(t.tokens);
  call.pdl = has_pdl;
  return call;
}

GemmTensors gate_up_call(const MoeProblem& problem, const MoeTensors& t, const MoeWorkspace& at, bool has_pdl) {
  GemmTensors call;
  call.a = t.x, call.a_stride = t.x_stride;
  if (is_quantised(problem)) {
    call.a = t.workspace + at.x, call.a_stride = problem.hidden;
    call.scale_a = t.workspace + at.x_scale, call.scale_a_stride = scale_stride(t.tokens);
  }
  call.b = t.gate_up, call.scale_b = t.gate_up_scale, call.bias = t.gate_up_bias;
  call.d = t.workspace + at.inner;
  call.m = static_cast<int>(pairs_of(problem, t)), call.source_rows = static_cast<int>(t.tokens);
  call.bounds = t.workspace + at.starts, call.gather = t.workspace + at.source_rows;
  call.expected_m = expected_rows(problem, t);
  call.pdl = has_pdl;
  return call;
}

RowOpTensors quantize_rows_call(const MoeProblem& problem, const MoeTensors& t, const MoeWorkspace& at, bool has_pdl) {
  RowOpTensors call;
  call.x = t.workspace + at.inner, call.rows = pairs_of(problem, t);
  call.out = t.workspace + at.rows;
  call.scale = t.workspace + at.rows_scale, call.scale_stride = scale_stride(call.rows);
  call.pdl = has_pdl;
  return call;
}

GemmTensors down_call(const MoeProblem& problem, const MoeTensors& t, const MoeWorkspace& at, bool has_pdl) {
  GemmTensors call;
  call.a = t.workspace + at.inner;
  if (is_quantised(problem)) {
    call.a = t.workspace + at.rows;
    call.scale_a = t.workspace + at.rows_scale, call.scale_a_stride = scale_stride(pairs_of(problem, t));
  }
  call.b = t.down, call.scale_b = t.down_scale, call.bias = t.down_bias;
  call.d = t.workspace + at.made;
  call.m = static_cast<int>(pairs_of(problem, t));
  call.bounds = t.workspace + at.starts;
  call.expected_m = expected_rows(problem, t);
  call.pdl = has_pdl;
  return call;
}

MoeCombineTensors combine_call(const MoeProblem& problem, const MoeTensors& t, const MoeWorkspace& at, bool has_pdl) {
  return {.rows = t.workspace + at.made,
          .positions = t.workspace + at.positions,
          .weights = weights_of(problem, t, at),
          .residual = t.residual,
          .out = t.out,
          .num_rows = pairs_of(problem, t),
          .tokens = t.tokens,
          .rows_stride = problem.hidden,
          .residual_stride = t.residual_stride,
          .out_stride = t.out_stride,
          .pdl = has_pdl};
}

}  // namespace

std::int64_t most_tokens(const MoeProblem& problem) noexcept {
  constexpr std::int64_t kMostPairs = (std::int64_t{1} << 31) - (1 << 16);  // a GEMM counts to rows of whole tiles
  return kMostPairs / std::max(1, problem.route.top_k);
}

MoeWorkspace plan_moe_workspace(const MoeProblem& problem, std::int64_t tokens, std::uint64_t counts_bytes) noexcept {
  constexpr std::uint64_t kAlignment = 256;
  MoeWorkspace plan;
  const auto place = [&](std::uint64_t& offset, std::uint64_t bytes) {
    offset = plan.bytes;
    plan.bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  const auto count = static_cast<std::uint64_t>(tokens),
             pairs = count * static_cast<std::uint64_t>(problem.route.top_k);
  const auto hidden = static_cast<std::uint64_t>(problem.hidden);
  const auto intermediate = static_cast<std::uint64_t>(problem.intermediate);
  const auto element = static_cast<std::uint64_t>(bits_of(problem.dtype) / 8);
  if (!problem.route.is_given()) place(plan.ids, 4 * pairs), place(plan.weights, 4 * pairs);
  place(plan.starts, 4 * (static_cast<std::uint64_t>(problem.own_experts()) + 1));
  place(plan.source_rows, 4 * pairs);
  place(plan.positions, 4 * pairs);
  plan.counts_bytes = counts_bytes;
  place(plan.counts, counts_bytes);
  if (problem.scales == ScaleKind::kPerBlock) {
    constexpr std::uint64_t kBlock = 128;
    place(plan.x, count * hidden);
    place(plan.x_scale, 4 * (hidden / kBlock) * static_cast<std::uint64_t>(scale_stride(tokens)));
    place(plan.rows, pairs * intermediate);
    place(plan.rows_scale,
          4 * (intermediate / kBlock) * static_cast<std::uint64_t>(scale_stride(static_cast<std::int64_t>(pairs))));
  }
  place(plan.inner, element * pairs * intermediate);
  place(plan.made, element * pairs * hidden);
  return plan;
}

MoeCalls calls_of(const MoeProblem& problem, const MoeTensors& t, const MoeWorkspace& at, bool has_pdl) noexcept {
  return {.route = route_call(problem, t, at),
          .quantize_x = quantize_x_call(t, at, has_pdl),
          .gate_up = gate_up_call(problem, t, at, has_pdl),
          .quantize_rows = quantize_rows_call(problem, t, at, has_pdl),
          .down = down_call(problem, t, at, has_pdl),
          .combine = combine_call(problem, t, at, has_pdl)};
}

std::uint64_t MoeLayer::counts_bytes(std::int64_t tokens) const { return route.workspace_bytes(tokens); }

void MoeLayer::launch(const MoeTensors& tensors, Stream stream) const {
  MoeTensors t = tensors;
  const auto fill = [](std::int64_t& stride, std::int64_t usual) {
    if (stride == 0) stride = usual;
  };
  fill(t.x_stride, problem.hidden);
  fill(t.residual_stride, problem.hidden);
  fill(t.out_stride, problem.hidden);
  fill(t.logits_stride, problem.route.experts);
  require_numbers(problem, t);
  if (t.tokens == 0) return;

  const auto loaded_of = [&](const auto& kernel) {
    return kernel ? &serving_kernel(slot_of(kernel), stream) : nullptr;
  };
  const LoadedMoe loaded{loaded_of(route), loaded_of(quantize_x),    loaded_of(gate_up),
                         loaded_of(down),  loaded_of(quantize_rows), loaded_of(combine)};
  const MoeWorkspace at = plan_moe_workspace(problem, t.tokens, counts_bytes(t.tokens));
  if (auto violations = broken_rules(problem, loaded, t, at); !violations.empty())
    throw ConfigError(std::move(violations));
  const MoeCalls calls = calls_of(problem, t, at, loaded.route->has_pdl);
  queue_launch(slot_of(route), *loaded.route, calls.route, stream);
  if (quantize_x) queue_launch(slot_of(quantize_x), *loaded.quantize_x, calls.quantize_x, stream);
  queue_launch(slot_of(gate_up), *loaded.gate_up, calls.gate_up, stream);
  if (quantize_rows) queue_launch(slot_of(quantize_rows), *loaded.quantize_rows, calls.quantize_rows, stream);
  queue_launch(slot_of(down), *loaded.down, calls.down, stream);
  queue_launch(slot_of(combine), *loaded.combine, calls.combine, stream);
}

}  // namespace kernelwright::detail
