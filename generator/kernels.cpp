#include "kernelwright/generator/kernels.h"

namespace kernelwright {

std::vector<Violation> validate(const Config& config, std::optional<Arch> arch) {
  return std::visit([&](const auto& kind) { return validate(kind, arch); }, config);
}

}  // namespace kernelwright
