/// route where several CTAs have tokens: the second kernel sorts. Each CTA adds the counts of all, and places the pairs
/// of the tokens that the CTA of the same number has in the first kernel (policy/expert_sort.cuh).
#include "spec.h"

#include "policy/cta_counts.cuh"
#include "policy/expert_sort.cuh"
#include "policy/of_warps.cuh"
#include "ptx/launch.cuh"

namespace kernelwright {

template <int kWarps>
struct Cta {
  policy::ExpertSort<spec::kExperts, spec::kBuckets, spec::kTopK, kWarps, spec::kAlignment, spec::kMapped, spec::kGiven>
      sort;
  policy::CtaCounts<spec::kShortCounts, spec::kBuckets, kWarps> counts;

  __device__ __forceinline__ void run(const contract::RouteParams& params) {
    sort.clear(true);
    __syncthreads();
    if constexpr (spec::kArch >= 90) {
      ptx::griddepcontrol_wait();
      ptx::griddepcontrol_launch_dependents();
    }
    const policy::TokensOfWarp tokens(params);
    sort.read_counts(params, counts, tokens.first, tokens.last);
    sort.place(params, tokens.first, tokens.last);
  }
};

}  // namespace kernelwright

// With programmatic dependent launch, registers of two CTAs: one of the kernel ahead leaves room for one of this
// kernel.
extern "C" __global__ void __launch_bounds__(32 * kernelwright::spec::kWarps, kernelwright::spec::kArch >= 90 ? 2 : 1)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::RouteParams params) {
  using namespace kernelwright;
  __shared__ policy::OfWarps<Cta, spec::kWarps, spec::kFewWarps> cta;
  cta.visit([&](auto& of_warps) { of_warps.run(params); });
}
