#include "kernelwright/runtime/quantize/launch.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "contract/block_scales.h"
#include "contract/quantize.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/launch/matrix.h"
#include "kernelwright/runtime/launch/packing.h"
#include "kernelwright/runtime/launch/rules.h"

namespace kernelwright {

std::int64_t quantize_scale_bytes(DType to, std::int64_t rows, int k) {
  if (rows < 0 || rows > std::numeric_limits<std::int32_t>::max())
    throw ConfigError("/rows", fmt::format("{} is negative, or more than 31 bits hold", rows));
  if (k < 0 || k > kMostQuantizedElements)
    throw ConfigError("/k", fmt::format("{} is outside [0, {}]", k, kMostQuantizedElements));
  return contract::block_scale_bytes(rows, k, scale_vector(to));
}

}  // namespace kernelwright

namespace kernelwright::detail {
namespace {

constexpr int kRowBytes = 16;       // rows of elements begin at multiples of this
constexpr int kWholeElements = 32;  // of k: a block, and 16 bytes of the narrowest format

class QuantizeRules : public ArgumentRules {
 public:
  QuantizeRules(const LoadedQuantize& kernel, const QuantizeTensors& t, const Matrix& x, const Matrix& elements) {
    matrix("/x", x, bits_of(x.dtype) / 8);
    matrix("/elements", elements, kRowBytes);
    const int step = kRowBytes * 8 / bits_of(elements.dtype);
    bad(elements.stride % step != 0, "/elements_stride", [&] {
      return fmt::format("{} elements of {} put rows off their 16-byte boundaries; pad rows to a multiple of {}",
                         elements.stride, to_string(elements.dtype), step);
    });
    bad(elements.overlaps(x), "/elements",
        [] { return std::string("overlaps x, which is still read while elements are written"); });
    const Matrix scales{t.scales, DType::kE4m3, 1, quantize_scale_bytes(kernel.spec.to, t.rows, t.k), 0};
    not_null("/scales", t.scales);
    aligned("/scales", t.scales, kRowBytes);
    span_within_memory("/scales", t.scales, static_cast<std::uint64_t>(scales.columns));
    bad(scales.overlaps(x), "/scales",
        [] { return std::string("overlaps x, which is still read while scales are written"); });
    bad(scales.overlaps(elements), "/scales",
        [] { return std::string("overlaps elements; give one of them other memory"); });
    bad(!(t.tensor_scale > 0) || std::isinf(t.tensor_scale), "/tensor_scale",
        [&] { return fmt::format("{} does not divide; give a finite number above 0", t.tensor_scale); });
    pdl(t.pdl, kernel.has_pdl, kernel.spec.arch);
  }
};

/// Rules that must hold before any arithmetic on rows and k.
std::vector<Violation> broken_extents(const QuantizeTensors& t) {
  std::vector<Violation> violations;
  if (t.rows < 0) violations.push_back({"/tensors/rows", fmt::format("{} is negative", t.rows)});
  if (t.k < 0)
    violations.push_back({"/tensors/k", fmt::format("{} is negative", t.k)});
  else if (t.k % kWholeElements != 0)
    violations.push_back(
        {"/tensors/k", fmt::format("{} is no whole number of blocks; it takes a multiple of {}", t.k, kWholeElements)});
  else if (t.k > kMostQuantizedElements)
    violations.push_back({"/tensors/k", fmt::format("{} is more than a GEMM takes, {}", t.k, kMostQuantizedElements)});
  return violations;
}

}  // namespace

LoadedQuantize describe(const QuantizeProblem&, const QuantizePlan& plan, const DeviceInfo&) {
  LoadedQuantize loaded;
  loaded.spec = plan.spec;
  loaded.has_pdl = arch_info(plan.spec.arch).pdl;
  return loaded;
}

std::vector<Spec> specs_of(const QuantizePlan& plan) { return {plan.spec}; }

void launch_quantize(const LoadedQuantize& kernel, const QuantizeTensors& t, Stream stream) {
  if (auto violations = broken_extents(t); !violations.empty()) throw ConfigError(std::move(violations));
  if (t.rows == 0 || t.k == 0) return;  // null tensors are fine: they have no elements
  const Matrix x{t.x, kernel.spec.from, t.rows, t.k, t.x_stride ? t.x_stride : t.k};
  const Matrix elements{t.elements, kernel.spec.to, t.rows, t.k, t.elements_stride ? t.elements_stride : t.k};
  if (auto violations = QuantizeRules(kernel, t, x, elements).broken(); !violations.empty())
    throw ConfigError(std::move(violations));

  const contract::QuantizeParams params{
      .x = pointer<const void>(t.x),
      .elements = pointer<void>(t.elements),
      .scales = pointer<std::uint8_t>(t.scales),
      .x_stride = x.stride,
      .row_bytes = elements.stride_bytes(),
      .rows = t.rows,
      .k = t.k,
      .tensor_scale = t.tensor_scale,
  };
  const LaunchPlan plan = plan_launch(kernel.spec, t.rows, t.k);
  kernel.device->launch(*kernel.kernel, config_of(plan, t.pdl), &params, sizeof params, stream);
}

}  // namespace kernelwright::detail
