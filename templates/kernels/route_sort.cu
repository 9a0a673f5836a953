/// route where several CTAs have tokens: the second kernel sorts. Each CTA adds the counts of all, and places the pairs
/// of the tokens that the CTA of the same number has in the first kernel (policy/expert_sort.cuh).
#include "spec.h"

#include "policy/expert_sort.cuh"
#include "ptx/launch.cuh"

namespace kernelwright {

using Sort = policy::ExpertSort<spec::kExperts, spec::kBuckets, spec::kTopK, spec::kWarps, spec::kAlignment,
                                spec::kMapped, spec::kGiven>;

}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(32 * kernelwright::spec::kWarps)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::RouteParams params) {
  using namespace kernelwright;
  __shared__ Sort sort;
  sort.clear();
  __syncthreads();
  if constexpr (spec::kArch >= 90) {
    ptx::griddepcontrol_wait();
    ptx::griddepcontrol_launch_dependents();
  }
  const policy::TokensOfWarp tokens(params, spec::kWarps);
  for (int token = tokens.first; token < tokens.last; ++token) sort.count(params, Sort::expert_of(params, token));
  sort.read_counts(params);
  sort.place(params, tokens.first, tokens.last);
}
