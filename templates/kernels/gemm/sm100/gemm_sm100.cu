/// GEMM on Blackwell: TMA loads, tcgen05 multiplies into tensor memory, TMA stores. D = A B^T of 16-bit, fp8 or
/// block-scaled operands, and what the epilogue makes of it.
///
/// A CTA has 128 rows of a tile and walks from tile to tile (gemm_sm100_walk.cuh). Each role is a function of its own.
/// All roles derive the same items, and wait for each other on mbarriers (contract/gemm_sm100.h):
///
///     warps 0-3   take sums out of tensor memory, a row each thread, finish them and store; of one tile while the next
///                 is multiplied
///     warp 4      one thread multiplies; with block-scaled formats it also copies scales to tensor memory
///     warp 5      one thread loads; where rows are gathered, all lanes
///     warp 6      one thread asks for tiles, if they are queued
///     warp 7      gathers scales of the columns of narrow tiles
///     6 and 7     copy matrices b, if the launch gives pointers to them
///
/// In a pair of CTAs (cta_group 2) the CTAs share each product. It has 256 rows: each CTA's shared memory holds 128 of
/// them and half of b's rows. The first CTA multiplies for both; the other roles run in each CTA as without pairs. CTAs
/// of a cluster load for each other: CTAs with the same rows share A, CTAs with the same columns share B.
///
/// Block-scaled formats (mxfp8, mxfp4, nvfp4): the tensor cores apply the scales. With f32 scales of 128 elements of k,
/// each slab's products have an accumulator of their own. The storing warps multiply them by their scales and add them
/// up, in f32.
///
/// With groups, rows of the problem's a and d belong to groups, and each group has a matrix b of its own. A CTA walks
/// the tiles of all groups (policy/group_table.cuh). A tile may begin at any row. It loads rows of the next group too,
/// but does not store them.
///
/// split_k: parts of k are items of their own. The CTAs of a tile's parts take turns, in the order of k
/// (gemm_sm100_store.cuh).
#include "kernels/gemm/sm100/gemm_sm100_gather.cuh"
#include "kernels/gemm/sm100/gemm_sm100_matrices.cuh"
#include "kernels/gemm/sm100/gemm_sm100_mma.cuh"
#include "kernels/gemm/sm100/gemm_sm100_store.cuh"
#include "kernels/gemm/sm100/gemm_sm100_walk.cuh"
#include "ptx/barrier.cuh"

namespace kernelwright {
namespace {

/// Called by one thread.
__device__ __forceinline__ void init_barriers(const Shared& shared) {
  Output::init(shared.accumulators());
  if constexpr (kQueued) {
    ItemQueue<true>::init(shared);
    shared.item_wanted().init();
  }
  Input::init(shared.input(), kGathers ? 2 : 1 + kCopyThreads, kConsumers);  // and a fence for all barriers
}

/// Called by all threads, which meet behind it. A template, as are GroupTable's constants.
template <class Table>
__device__ __forceinline__ void make_table_of_groups(const EntryParams& params, const Shared& shared) {
  const Table groups(shared.groups(), groups_of(params));
  groups.make(groups_of(params), contract::kBlackwellGemmThreads);
  if constexpr (kCountsAtoms)
    policy::GroupAtoms<spec::kMostGroups>(shared.groups())
        .make(groups, groups_of(params).count, contract::kBlackwellGemmThreads);
}

}  // namespace
}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::contract::kBlackwellGemmThreads, 1)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::EntryParams params) {
  using namespace kernelwright;
  extern __shared__ __align__(1024) unsigned char memory[];
  const Shared shared{ptx::shared_address(memory)};
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if constexpr (kPair) ptx::sync_ctas<kClusterSize>();  // a pair allocates together: now both CTAs run
  if (warp == kMmaWarp) {
    ptx::tcgen05_alloc<kCtas>(shared.tensor_address(), kTensorColumns.allocated);
    ptx::tcgen05_relinquish_alloc_permit<kCtas>();
  } else if (warp == kLoadWarp && ptx::elect_one()) {
    init_barriers(shared);
    if constexpr (!(spec::kPointers && spec::kSwapAb)) ptx::prefetch_tensormap(params.a);
    if constexpr (!spec::kPointers || spec::kSwapAb) ptx::prefetch_tensormap(params.b);
  } else if (kParts > 1 && warp == kItemWarp && cluster_rank() == 0 && ptx::elect_one()) {
    take_first_item(params, shared);
  }
  if constexpr (kHasBounds) {
    ptx::griddepcontrol_wait();  // a launch ahead may write the bounds
    make_table_of_groups<Groups>(params, shared);
  }
  ptx::sync_ctas<kClusterSize>();
  const uint32_t tensor = ptx::ld_shared_u32(shared.tensor_address()), rank = cluster_rank();
  const AnyWork work(params, shared, first_item(shared));
  if (warp < kMmaWarp) {
    TileStore(params, shared, work, tensor, rank, warp).run();
  } else if (warp == kMmaWarp) {
    if (leads(rank) && ptx::elect_one()) Multiplier(params, shared, work, tensor, rank).run();
  } else if (warp == kLoadWarp) {
    load_operands<spec::kGather>(params, shared, work, rank);
  } else if (!spec::kPointers && warp == kItemWarp) {
    if (kQueued && ptx::elect_one()) ask_for_items(shared, work, rank);
  } else if constexpr (kGathers) {
    gather_any_scales<spec::kGather>(params, shared, work, rank);
  } else if constexpr (spec::kPointers) {
    copy_matrices<spec::kPointers>(params, shared, work);
  }
  ptx::sync_ctas<kClusterSize>();  // now no thread reads tensor memory, and no arrival is on its way to another CTA
  if (warp == kMmaWarp) ptx::tcgen05_dealloc<kCtas>(tensor, kTensorColumns.allocated);
}
