#include "kernelwright/runtime/moe/kernel.h"

#include <fmt/format.h>

#include "kernelwright/runtime/moe/launch.h"

namespace kernelwright {

const detail::MoeLayer& MoeKernel::layer() const {
  if (!layer_) [[unlikely]]
    throw Error("MoeKernel: an empty handle was used; take one from Engine::prepare()");
  return *layer_;
}

void MoeKernel::launch(const MoeTensors& tensors, Stream stream) const { layer().launch(tensors, stream); }

std::uint64_t MoeKernel::workspace_bytes(std::int64_t tokens) const {
  const detail::MoeLayer& of = layer();
  if (tokens < 0 || tokens > most_tokens())
    throw ConfigError("/tokens", fmt::format("{} is outside [0, {}]", tokens, most_tokens()));
  return tokens == 0 ? 0 : detail::plan_moe_workspace(of.problem, tokens, of.counts_bytes(tokens)).bytes;
}

std::int64_t MoeKernel::most_tokens() const { return detail::most_tokens(layer().problem); }

KernelState MoeKernel::state() const {
  KernelState found = KernelState::kReady;
  layer().each_part([&](const char*, const auto& kernel) {
    const KernelState state = kernel.state();
    if (state == KernelState::kFailed || found == KernelState::kReady) found = state;
  });
  return found;
}

bool MoeKernel::serves_fallback() const {
  bool found = false;
  layer().each_part([&](const char*, const auto& kernel) { found = found || kernel.serves_fallback(); });
  return found;
}

std::string MoeKernel::error() const {
  std::string found;
  layer().each_part([&](const char* part, const auto& kernel) {
    if (const std::string why = found.empty() ? kernel.error() : ""; !why.empty())
      found = fmt::format("{}: {}", part, why);
  });
  return found;
}

void MoeKernel::wait() const {
  layer().each_part([](const char*, const auto& kernel) { kernel.wait(); });
}

const MoeProblem& MoeKernel::problem() const { return layer().problem; }
int MoeKernel::device() const { return layer().route.device(); }

const RouteKernel& MoeKernel::route() const { return layer().route; }
const RowOpKernel& MoeKernel::quantize_x() const { return layer().quantize_x; }
const GemmKernel& MoeKernel::gate_up() const { return layer().gate_up; }
const RowOpKernel& MoeKernel::quantize_rows() const { return layer().quantize_rows; }
const GemmKernel& MoeKernel::down() const { return layer().down; }
const MoeCombineKernel& MoeKernel::combine() const { return layer().combine; }

}  // namespace kernelwright
