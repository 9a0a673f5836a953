#include "kernelwright/runtime/moe_combine/launch.h"

#include <utility>

#include "contract/moe_combine.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/launch/packing.h"

namespace kernelwright::detail {

LoadedMoeCombine describe(const MoeCombineProblem&, const MoeCombinePlan& plan, const DeviceInfo&) {
  LoadedMoeCombine loaded;
  loaded.spec = plan.spec;
  loaded.has_pdl = arch_info(plan.spec.arch).pdl;
  return loaded;
}

std::vector<Spec> specs_of(const MoeCombinePlan& plan) { return {plan.spec}; }

void launch_moe_combine(const LoadedMoeCombine& kernel, const MoeCombineTensors& given, Stream stream) {
  MoeCombineTensors t = given;
  for (std::int64_t* stride : {&t.rows_stride, &t.residual_stride, &t.out_stride})
    if (*stride == 0) *stride = kernel.spec.width;
  if (auto violations = broken_rules(kernel, t); !violations.empty()) throw ConfigError(std::move(violations));
  if (t.tokens == 0) return;
  const contract::MoeCombineParams params{
      .rows = pointer<const void>(t.rows),
      .positions = pointer<const std::int32_t>(t.positions),
      .weights = pointer<const float>(t.weights),
      .residual = pointer<const void>(t.residual),
      .out = pointer<void>(t.out),
      .rows_stride = t.rows_stride,
      .residual_stride = t.residual_stride,
      .out_stride = t.out_stride,
      .tokens = static_cast<std::int32_t>(t.tokens),
      .num_rows = static_cast<std::uint32_t>(t.num_rows),
  };
  kernel.device->launch(*kernel.kernel, config_of(plan_launch(kernel.spec, t.tokens), t.pdl), &params, sizeof params,
                        stream);
}

}  // namespace kernelwright::detail
