#include "kernelwright/runtime/route/launch.h"

#include <fmt/format.h>

#include <utility>

#include "contract/route.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/launch/packing.h"

namespace kernelwright {

std::int64_t route_sorted_rows(const RouteProblem& problem, std::int64_t tokens) {
  const RouteSpec spec = plan_route(problem, {}, Arch::kSm80).spec;
  detail::require_tokens(spec, tokens);
  return most_sorted_rows(spec, tokens);
}

}  // namespace kernelwright

namespace kernelwright::detail {

void require_tokens(const RouteSpec& spec, std::int64_t tokens) {
  if (tokens < 0 || tokens > most_tokens(spec))
    throw ConfigError("/tokens", fmt::format("{} is outside [0, {}]", tokens, most_tokens(spec)));
}

LoadedRoute describe(const RouteProblem& problem, const RoutePlan& plan, const DeviceInfo&) {
  LoadedRoute loaded;
  loaded.spec = plan.spec;
  loaded.factor = static_cast<float>(problem.factor);
  loaded.has_pdl = arch_info(plan.spec.arch).pdl;
  return loaded;
}

std::vector<Spec> specs_of(const RoutePlan& plan) {
  std::vector<Spec> specs{plan.spec};
  if (plan.sort) specs.push_back(*plan.sort);
  return specs;
}

void attach(LoadedRoute& loaded, std::vector<const LoadedKernel*> kernels,
            std::vector<std::shared_ptr<const Binary>> binaries) {
  loaded.kernel = kernels[0];
  if (kernels.size() > 1) loaded.sort = kernels[1];
  loaded.binaries = std::move(binaries);
}

void attach(LoadedRoute& loaded, const LoadedRoute& twin) {
  loaded.kernel = twin.kernel;
  loaded.sort = twin.sort;
  loaded.binaries = twin.binaries;
}

void launch_route(const LoadedRoute& kernel, const RouteTensors& given, Stream stream) {
  RouteTensors t = given;
  if (t.logits_stride == 0) t.logits_stride = kernel.spec.experts;
  if (auto violations = broken_rules(kernel, t); !violations.empty()) throw ConfigError(std::move(violations));
  if (t.tokens == 0 && !kernel.spec.sorts) return;
  const RouteLaunch launch = plan_launch(kernel.spec, t.tokens);
  const contract::RouteParams params{
      .logits = pointer<const void>(t.logits),
      .bias = pointer<const float>(t.bias),
      .local_ids = pointer<const std::int32_t>(t.local_ids),
      .ids = pointer<std::int32_t>(t.ids),
      .weights = pointer<float>(t.weights),
      .starts = pointer<std::int32_t>(t.starts),
      .source_rows = pointer<std::int32_t>(t.source_rows),
      .positions = pointer<std::int32_t>(t.positions),
      .sorted_weights = pointer<float>(t.sorted_weights),
      .counts = pointer<void>(t.workspace),
      .logits_stride = t.logits_stride,
      .tokens = static_cast<std::int32_t>(t.tokens),
      .tokens_per_warp = launch.tokens_per_warp,
      .factor = t.factor.value_or(kernel.factor),
  };
  kernel.device->launch(*kernel.kernel, config_of(launch.main, t.pdl), &params, sizeof params, stream);
  // Its wait ends with the kernel above, and that one has waited for what was ahead of both.
  if (launch.sorts_apart)
    kernel.device->launch(*kernel.sort, config_of(launch.main, kernel.has_pdl), &params, sizeof params, stream);
}

}  // namespace kernelwright::detail
