/// Layers of experts: several kernels, prepared and found as one.
#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/contradictions.h"
#include "kernelwright/generator/problem/moe_parts.h"
#include "kernelwright/runtime/engine/engine_state.h"

namespace kernelwright {

using detail::MoeLayer;

namespace {

/// Calls `prepare()`, and puts the part's name ahead of what it says is wrong.
template <class Prepare>
auto of_part(const char* part, const Prepare& prepare) {
  try {
    return prepare();
  } catch (const ConfigError& error) {
    std::vector<Violation> violations = error.violations();
    for (Violation& violation : violations) violation.path = fmt::format("/{}{}", part, violation.path);
    throw ConfigError(std::move(violations));
  } catch (const NotReadyError& error) {
    throw NotReadyError(fmt::format("{}: {}", part, error.what()));
  }
}

MoeLayer prepared(Engine& engine, const MoeProblem& problem, const PrepareOptions& options) {
  const MoeParts parts = moe_parts(problem);
  const auto prepare = [&](const char* part, const auto& of) {
    return of_part(part, [&] { return engine.prepare(of, {}, options); });
  };
  MoeLayer layer;
  layer.problem = problem;
  layer.route = prepare("route", parts.route);
  if (parts.quantize_x) layer.quantize_x = prepare("quantize_x", *parts.quantize_x);
  layer.gate_up = prepare("gate_up", parts.gate_up);
  if (parts.quantize_rows) layer.quantize_rows = prepare("quantize_rows", *parts.quantize_rows);
  layer.down = prepare("down", parts.down);
  layer.combine = prepare("combine", parts.combine);
  return layer;
}

}  // namespace

MoeKernel Engine::prepare(const MoeProblem& problem, const PrepareOptions& options) {
  if (auto violations = contradictions(MoeConfig{"", problem}); !violations.empty())
    throw ConfigError(std::move(violations));
  // The parts compile side by side. Then each is waited for, and says what is wrong as it does alone. A fallback would
  // take the place of what is only waited for, and a sealed engine compiles nothing.
  if (!options.background && options.on_miss != OnMiss::kFallback && (!state_->sealed || options.allow_when_sealed)) {
    PrepareOptions ahead = options;
    ahead.background = true;
    prepared(*this, problem, ahead);
  }
  MoeLayer made = prepared(*this, problem, options);
  std::lock_guard lock(state_->layers_mutex);
  for (const auto& known : state_->layers)
    if (known->problem == problem && known->route.device() == options.device) return MoeKernel(known.get());
  return MoeKernel(state_->layers.emplace_back(std::make_unique<const MoeLayer>(std::move(made))).get());
}

MoeKernel Engine::find(const MoeProblem& problem, int device) const noexcept {
  std::lock_guard lock(state_->layers_mutex);
  for (const auto& known : state_->layers)
    if (known->problem == problem && known->route.device() == device) return MoeKernel(known.get());
  return MoeKernel();
}

void Engine::moe(const MoeProblem& problem, const MoeTensors& tensors, Stream stream, int device) {
  MoeKernel kernel = find(problem, device);
  const bool retry = kernel && kernel.state() == KernelState::kFailed && !kernel.serves_fallback();
  if (!kernel || retry) {
    if (this->device(device).capture_state(stream) != CaptureState::kNone)
      throw NotReadyError(
          "a layer of experts was not prepared and its stream is capturing, so it can be neither compiled nor loaded; "
          "call prepare() before the capture begins");
    kernel = prepare(problem, {.device = device,
                               .on_miss = state_->options.on_miss,
                               .background = state_->options.on_miss != OnMiss::kBlock});
  }
  kernel.launch(tensors, stream);
}

}  // namespace kernelwright
