/// GEMM on Hopper: TMA loads, wgmma multiplies, TMA stores. D = A B^T of 16-bit operands, or of fp8 operands with
/// scales and k innermost. The epilogue follows.
///
/// A persistent CTA walks tiles of the output. Warpgroup 0 loads: one thread keeps the input ring
/// (pipeline/tile_pipeline.cuh) full, across the ends of tiles. The other warpgroups multiply. Cooperative: each owns
/// some rows of one tile. Ping-pong: each owns a tile, and one stores while the other's products run.
///
/// The tensor cores keep 14 bits of a sum of fp8 products. With promotion they sum one slab at most, or a few. Math
/// warps add that to sums in f32, times the slab's scales where blocks have them, while other products run: the other
/// warpgroup's, or (mma_in_flight) the warpgroup's next ones. With scales of blocks, a tile is stored while the next
/// tile's first products run.
///
/// CTAs of a cluster share columns of the output. Each loads its own rows of A, and an equal share of B's rows for all.
/// With split_k they share a tile instead, and each has a part of k. At the end each CTA gets its band of columns from
/// the others through shared memory, adds the parts in the order of k, and stores the band. In the turnstile mode a
/// part is a CTA by itself. Such CTAs take turns at a tile (policy/turnstile.cuh), and the last one finishes it.
///
/// With groups, rows of the problem's a and d belong to groups, and each group has a matrix b of its own. A CTA walks
/// tiles of all groups, which one warp of warpgroup 0 deals (gemm_sm90_deal.cuh). A tile may begin at any row. It loads
/// rows of the next group, but does not store them. Groups of kind k have slices of k, and a matrix d each. A slice's
/// last slab has rows of the next one too. Math warps write zeros over them, because 0 times NaN would be NaN.
#include "kernels/gemm/sm90/gemm_sm90_copy.cuh"
#include "kernels/gemm/sm90/gemm_sm90_load.cuh"
#include "kernels/gemm/sm90/gemm_sm90_math.cuh"
#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "ptx/barrier.cuh"
#include "ptx/launch.cuh"

extern "C" __global__ void __launch_bounds__(kernelwright::kThreads, 1)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::EntryParams params) {
  using namespace kernelwright;
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t base = ptx::shared_address(memory), barriers = base + kLayout.barriers;
  const Payload payload{{base + kLayout.a, base + kLayout.b}, base + kLayout.scales};
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) {
    if constexpr (kDeals) DealtTiles::init(base);
    Input::init(barriers, kCopies ? kSomeMapped + kLoadThreads : 1, 4 * kTileWarpgroups * kCluster);
  } else if (threadIdx.x == 32) {
    if constexpr (kMapsRows) ptx::prefetch_tensormap(params.a);
    if constexpr (kMapsColumns) ptx::prefetch_tensormap(params.b);
    if constexpr (!kSwapsScales && !spec::kScatter && !kMakesBlocks && !spec::kWritesKv)
      ptx::prefetch_tensormap(spec::kBlockN >= kStoreColumns ? params.d : params.d_tail);
    if constexpr (kBlockScales && !kGrouped) ptx::prefetch_tensormap(params.scales);
  } else if (kTakesTurns && threadIdx.x == 64) {
    ptx::st_shared_u32(base + kLayout.item, policy::take_item(params.turnstile));
  }
  if constexpr (kHasBounds) {
    ptx::griddepcontrol_wait();  // a launch ahead may write the bounds
    Groups(base + kLayout.groups, params.groups).make(params.groups, kThreads);
    if constexpr (kBlockScales && !kGathers) clear_scales(base);
  }
  if constexpr (kCluster > 1) {
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  } else {
    __syncthreads();
  }
  if (warp < 4) {
    if constexpr (kMovesRegisters) ptx::setmaxnreg_dec<kLoadRegisters>();
    if constexpr (kCopies) {
      CopyLoader(params, work_of<WarpWork>(params, base), barriers, payload).run();
    } else {
      if constexpr (kDeals) {
        if (warp == 1) return Dealer<WarpWork>(work_of<WarpWork>(params, base), base).run();
      }
      // Nothing may follow: ptxas would keep the loader's addresses out of uniform registers (67 clocks for a slab).
      if (warp == 0 && ptx::elect_one()) Loader(params, work_of<LoadWork>(params, base), barriers, payload).run();
    }
  } else {
    if constexpr (kMovesRegisters) ptx::setmaxnreg_inc<kMathRegisters>();
    if constexpr (!kWaitsAtStart) ptx::griddepcontrol_wait();
    MathWarpgroup(params, work_of<MathWork>(params, base), base, barriers, payload, warp / 4 - 1).run();
  }
}
