#include "kernelwright/runtime/row_op/launch.h"

#include <fmt/format.h>

#include <utility>

#include "contract/block_scales.h"
#include "contract/row_op.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/launch/matrix.h"
#include "kernelwright/runtime/launch/packing.h"

namespace kernelwright {

std::uint64_t row_op_scale_bytes(const RowOpProblem& problem, std::int64_t rows) {
  if (rows < 0 || rows > kMostRows) throw ConfigError("/rows", fmt::format("{} is outside [0, {}]", rows, kMostRows));
  const DType out = problem.dtype.out;
  if (is_block_scaled(out))
    return static_cast<std::uint64_t>(contract::block_scale_bytes(rows, problem.width, scale_vector(out)));
  const auto count = static_cast<std::uint64_t>(rows);
  if (problem.scales.kind == ScaleKind::kPerToken) return 4 * count;
  if (problem.scales.kind != ScaleKind::kPerBlock) return 0;
  const auto blocks = static_cast<std::uint64_t>(problem.width / contract::kRowScaleBlock);
  return 4 * blocks * (problem.scales.layout == ScaleLayout::kColumns ? (count + 3) / 4 * 4 : count);
}

}  // namespace kernelwright

namespace kernelwright::detail {

RowOpTensors resolved(const RowOpSpec& spec, RowOpTensors t) {
  const auto fill = [](std::int64_t& stride, std::int64_t usual) {
    if (stride == 0) stride = usual;
  };
  fill(t.x_stride, read_width(spec));
  fill(t.residual_stride, spec.width);
  fill(t.residual_out_stride, spec.width);
  fill(t.out_stride, spec.width);
  fill(t.lse_stride, spec.heads);
  fill(t.lse_head_stride, 1);
  fill(t.scale_stride, spec.scale_columns ? (t.rows + 3) / 4 * 4 : spec.width / contract::kRowScaleBlock);
  return t;
}

LoadedRowOp describe(const RowOpProblem& problem, const RowOpPlan& plan, const DeviceInfo&) {
  LoadedRowOp loaded;
  loaded.spec = plan.spec;
  loaded.eps = static_cast<float>(problem.norm.eps);
  loaded.least = static_cast<float>(problem.scales.least);
  loaded.alpha = static_cast<float>(problem.gate.alpha);
  loaded.limit = static_cast<float>(problem.gate.limit);
  loaded.has_pdl = arch_info(plan.spec.arch).pdl;
  return loaded;
}

std::vector<Spec> specs_of(const RowOpPlan& plan) { return {plan.spec}; }

void launch_row_op(const LoadedRowOp& kernel, const RowOpTensors& given, Stream stream) {
  const RowOpSpec& spec = kernel.spec;
  const RowOpTensors t = resolved(spec, given);
  if (auto violations = broken_rules(kernel, t); !violations.empty()) throw ConfigError(std::move(violations));
  if (t.rows == 0) return;
  const contract::RowOpParams of_rows{
      .x = pointer<const void>(t.x),
      .residual = pointer<const void>(t.residual),
      .residual_out = pointer<void>(t.residual_out),
      .weight = pointer<const void>(t.weight),
      .out = pointer<void>(t.out),
      .scale = pointer<void>(t.scale),
      .x_stride = t.x_stride,
      .residual_stride = t.residual_stride,
      .residual_out_stride = t.residual_out_stride,
      .out_row_bytes = Matrix{t.out, spec.out, t.rows, spec.width, t.out_stride}.stride_bytes(),
      .scale_stride = t.scale_stride,
      .rows = t.rows,
      .eps = t.eps.value_or(kernel.eps),
      .least = kernel.least,
      .alpha = t.gate_alpha.value_or(kernel.alpha),
      .limit = t.gate_limit.value_or(kernel.limit),
      .tensor_scale = t.tensor_scale,
      .constant_weight = t.pdl && t.constant_weight,
  };
  const auto queue = [&](const auto& params) {
    kernel.device->launch(*kernel.kernel, config_of(plan_launch(spec, t.rows), t.pdl), &params, sizeof params, stream);
  };
  if (!spec.merges) return queue(of_rows);
  queue(contract::RowMergeParams{of_rows, pointer<const float>(t.lse), pointer<const float>(t.residual_lse),
                                 pointer<float>(t.lse_out), t.lse_stride, t.lse_head_stride});
}

}  // namespace kernelwright::detail
