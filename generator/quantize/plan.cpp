#include "kernelwright/generator/quantize/plan.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "contract/block_scales.h"
#include "contract/quantize.h"
#include "kernelwright/generator/error.h"

namespace kernelwright {

QuantizePlan plan_quantize(const QuantizeProblem& problem, Arch arch) {
  std::vector<Violation> violations;
  const auto in_quotes = [](DType dtype) { return "\"" + std::string(to_string(dtype)) + "\""; };
  if (const DType from = problem.from; from != DType::kF16 && from != DType::kBf16 && from != DType::kF32)
    violations.push_back({"/problem/from", in_quotes(from) + " does not fit; it takes f16, bf16 or f32"});
  if (!is_block_scaled(problem.to))
    violations.push_back({"/problem/to", in_quotes(problem.to) + " has no scales; it takes mxfp8, mxfp4 or nvfp4"});
  if (!violations.empty()) throw ConfigError(std::move(violations));
  return {{arch, problem.from, problem.to}};
}

LaunchPlan plan_launch(const QuantizeSpec&, std::int64_t rows, int k) noexcept {
  constexpr std::int64_t kMostGridY = 65535;  // CUDA C++ Programming Guide, 16.2; a CTA goes on where the grid ends
  const std::int64_t atom_rows = ceil_div(rows, contract::kScaleAtomRows) * contract::kScaleAtomRows;
  LaunchPlan plan;
  plan.block = 32 * contract::kQuantizeRows;
  plan.grid[0] = static_cast<std::uint32_t>(atom_rows / contract::kQuantizeRows);
  plan.grid[1] = static_cast<std::uint32_t>(std::min(ceil_div(k, contract::kQuantizeColumns), kMostGridY));
  return plan;
}

}  // namespace kernelwright
