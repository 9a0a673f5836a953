/// Latent attention on Hopper: values are the first elements of each key (multi-head latent attention, DeepSeek-V2,
/// arXiv:2405.04434, in its absorbed form). One KV head serves all query heads, so that 64 rows read each key. Every
/// key is read once for both products.
///
/// A CTA owns 64 query rows and a part of the keys. Their output, 64 x 512 f32, fills the registers of two warpgroups:
/// each has half of the columns. Scores are shared out by key tiles, as in FlashMLA's kernel. Side 0 takes the even
/// tiles and side 1 the odd ones. Each posts its probabilities in shared memory for the other:
///
///     side 0   P(0) posted   O += P(0) V(0)   S(2) = Q K(2)^T behind O += P(1) V(1)   ...
///     side 1   S(1) = Q K(1)^T   O += P(0) V(0) behind it   P(1) posted   O += P(1) V(1)   ...
///
/// Both sides compute exponentials at a time, each relative to maxima of the turn before. Side 1 then follows those
/// that side 0 has reached, and side 0 those of side 1. Both add tiles in the same order, so an output does not depend
/// on which warpgroup was faster.
///
/// One thread of a third warpgroup loads keys by TMA. A slot has four parts: scores begin when the first part lands,
/// and a part is filled again as soon as both products have read it. In a cluster of two, each CTA loads half of every
/// tile for both: with 128 heads that halves what the L2 must deliver.
///
/// Keys of 8 bits are converted behind the load, by warps of the same warpgroup: attention_latent_sm90_convert.cuh.
///
/// attention_latent_load.cuh has the loading thread, attention_latent_sm90_math.cuh the warpgroups that multiply,
/// attention_latent_sm90_store.cuh how they end, attention_latent_sm90_tiles.cuh what all share.
#include "spec.h"

#include "kernels/attention/latent/attention_latent_load.cuh"
#include "kernels/attention/latent/attention_latent_sm90_convert.cuh"
#include "kernels/attention/latent/attention_latent_sm90_math.cuh"
#include "kernels/attention/latent/attention_latent_sm90_store.cuh"
#include "policy/padding_rows.cuh"
#include "ptx/launch.cuh"

namespace kernelwright {
namespace {

__device__ __forceinline__ void make_barriers(const Shared& shared) {
  KeyRing::init_unfenced(shared.key_barriers(), kConverts ? kConvertWarps : 1, 4 * Release::arrivals_per_warp);
  for (int side = 0; side < kSides; ++side) shared.posted(side).init();
  if constexpr (kConverts)
    for (int part = 0; part < contract::kLatentSlots * contract::kLatentParts; ++part) shared.landed(0, part).init();
  pipeline::fence_barrier_init();
  if constexpr (spec::kBalanced)
    for (int i = 0; i < 2; ++i) ptx::st_shared_u32(shared.cut(i), 0);
}

/// The role of a math warpgroup.
template <int kSide>
__device__ __forceinline__ void multiply(const contract::AttentionParams& params, Items& items, const Shared& shared,
                                         Laps& laps) {
#pragma unroll 1
  for (;; items.next()) {
    // Teams walk by what memory says. Without uniform() ptxas builds descriptors of operands in the loops over tiles.
    if (!(spec::kBalanced ? ptx::uniform(items.exists()) : items.exists())) break;
    MathWarpgroup<kSide>(params, items.work, shared, laps).run();
    laps.add(items.work.count());
  }
}

}  // namespace
}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::kThreads, 1)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::Params params) {
  using namespace kernelwright;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{ptx::shared_address(memory)};
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);  // the same in all lanes, also for the compiler
  if (threadIdx.x == 0) {
    ptx::prefetch_tensormap(params.k);
    if constexpr (kRecords) ptx::prefetch_tensormap(scale_map(params));
    make_barriers(shared);
  }
  ptx::sync_ctas<kCluster>();  // no CTA uses its barriers before all have made them
  ptx::griddepcontrol_wait();  // the grid ahead may write lengths and offsets, too
  const contract::AttentionParams& attention = params.attention;
  Items items(attention, shared);
  Laps laps;
  if (warp < 4) {
    ptx::setmaxnreg_dec<kLoadRegisters>();
    if (warp == 0) {
      if (ptx::elect_one())
        for (; items.exists(); items.next()) Loader(params, items.work, shared, laps).run();
    } else {
      policy::fill_padding_rows<spec::kQLayout, spec::kOutDType, spec::kHeadDimV, spec::kLse>(
          attention, blockIdx.x * 3 + warp - 1, gridDim.x * 3, static_cast<int>(threadIdx.x % 32));
      if constexpr (kConverts)
        if (items.exists()) Converter(items.work, shared, static_cast<int>(warp) - 1).run();
    }
  } else {
    ptx::setmaxnreg_inc<kMathRegisters>();
    if (warp < 8)
      multiply<0>(attention, items, shared, laps);
    else
      multiply<1>(attention, items, shared, laps);
    if constexpr (spec::kBalanced) merge_cuts(attention, shared);
  }
  if constexpr (kCluster > 1) ptx::sync_ctas<kCluster>();  // no CTA ends while others send to it
}
