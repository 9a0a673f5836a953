/// What is asked of a kernel of any kind: the one place that switches over kinds. Each answer is the kind's own.
#pragma once

#include <optional>
#include <vector>

#include "kernelwright/generator/attention/validate.h"
#include "kernelwright/generator/gemm/validate.h"
#include "kernelwright/generator/problem/config.h"

namespace kernelwright {

/// The violations of a config of either kind.
std::vector<Violation> validate(const Config& config, std::optional<Arch> arch = std::nullopt);

}  // namespace kernelwright
