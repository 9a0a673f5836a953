/// The hot path of a GEMM: arguments checked, tensor maps looked up, one launch queued. No allocation, no text; no lock
/// but those of the tensor map cache.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/gemm/kernel.h"
#include "kernelwright/runtime/kv_write/launch.h"
#include "kernelwright/runtime/launch/matrix.h"

namespace kernelwright::detail {

/// The kernels of a GEMM loaded onto a device, with everything that a launch needs and does not change.
struct LoadedGemm {
  struct Variant {
    int most_m = 0;
    GemmSpec spec;
    bool bands_of_n = false;
    int max_clusters = 0;  // that the device holds at a time; 0: not asked, an SM has one CTA
    const LoadedKernel* kernel = nullptr;
    std::shared_ptr<const Binary> binary;
  };
  std::vector<Variant> variants;  // as GemmPlan::variants
  int n = 0, k = 0;
  int d_columns = 0;  // n, or with gates half of them
  GemmGroups groups;
  std::optional<LoadedKvWrite> kv;  // what is done with queries, keys and values; no kernel
  int num_sms = 0;
  bool has_pdl = false;
  bool fallback = false;  // the portable kernel in another one's place
  bool watched = false;   // a launch is more than that: KernelSlot::watched_launch()
  Device* device = nullptr;
  /// Where k is 0: one element that is zero, whatever the dtype, stands for both operands. No tensor map is empty.
  std::shared_ptr<const DevicePtr> zero;

  const Variant& variant_for(int m) const noexcept {
    for (const Variant& variant : variants)
      if (m <= variant.most_m) return variant;
    return variants.back();
  }
  const Variant& variant_for(const GemmTensors& tensors) const noexcept {
    if (!groups.any()) return variant_for(tensors.m);
    return variant_for(tensors.expected_m > 0 ? tensors.expected_m : extent_of(tensors).rows_of_group());
  }
  GemmExtent extent_of(const GemmTensors& tensors) const noexcept {
    return {tensors.m, n, k, tensors.sm_budget, groups.any() ? groups.count : 0};
  }
};

/// Fills all but device, kernels and binaries.
LoadedGemm describe(const GemmProblem& problem, const GemmPlan& plan, const DeviceInfo& device);

/// The kernels of a plan, and where their binaries belong in what is loaded, in the same order.
std::vector<Spec> specs_of(const GemmPlan& plan);
void attach(LoadedGemm& loaded, std::vector<const LoadedKernel*> kernels,
            std::vector<std::shared_ptr<const Binary>> binaries);
/// Those that another problem has loaded.
void attach(LoadedGemm& loaded, const LoadedGemm& twin);

/// As kv_write's launch would have them, resolved(). The problem writes a cache. q, k and v are left out.
KvWriteTensors kv_tensors_of(const LoadedGemm& kernel, const GemmTensors& tensors, const Matrix& d);

void launch_gemm(const LoadedGemm& kernel, const GemmTensors& tensors, Stream stream);

/// As in runtime/kv_write/data.h: the slots, positions, pages and scales of a problem that writes a cache.
std::vector<std::string> find_bad_data(const LoadedGemm& kernel, const GemmTensors& tensors, Stream stream);

}  // namespace kernelwright::detail
