/// GEMM on Hopper: TMA loads, wgmma multiplies, TMA stores. D = A B^T, both operands K-major.
///
/// A persistent CTA walks tiles of the output. Warpgroup 0 loads: one thread keeps the input ring
/// (pipeline/tile_pipeline.cuh) full, over the ends of tiles. The others multiply. Cooperative: all own rows of one
/// tile. Ping-pong: each owns a tile, and while one's products run the other stores.
///
/// CTAs of a cluster lie above each other and share columns of the output: each loads its own rows of A and an equal
/// share of B's rows for all. Or they share a tile and each has a part of k (split_k): at the end every CTA gets its
/// band of columns from all others by way of shared memory, adds the parts in the order of k, and stores that band.
#include "spec.h"

#include "contract/gemm_params.h"
#include "contract/spec_words.h"
#include "pipeline/kv_consumer_pipeline.cuh"
#include "pipeline/tile_pipeline.cuh"
#include "policy/tile_raster.cuh"
#include "policy/turns.cuh"
#include "ptx/barrier.cuh"
#include "ptx/cluster.cuh"
#include "ptx/launch.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "tile/staged_store.cuh"

namespace kernelwright {
namespace {

using contract::GemmParams;

constexpr int kMathWarps = 4 * spec::kMathWarpgroups, kThreads = 128 + 32 * kMathWarps;
constexpr bool kPingPong = spec::kPingPong;
constexpr int kTileWarpgroups = kPingPong ? 1 : spec::kMathWarpgroups;  // that share a tile
constexpr int kWaves = spec::kBlockM / 64 / kTileWarpgroups;            // products of 64 rows, of a warpgroup
static_assert(kWaves * 64 * kTileWarpgroups == spec::kBlockM, "whole products for each warpgroup");
constexpr int kSlab = contract::kGemmSlabColumns;  // k of a tile
constexpr uint32_t kRowBytes = 128, kAtomBytes = 8 * kRowBytes;
constexpr int kCluster = spec::kClusterM;
constexpr int kParts = spec::kSplitK, kBand = spec::kBlockN / kParts;  // of k; columns that a CTA stores
static_assert(kParts == 1 || (kCluster == 1 && !kPingPong && kBand % contract::kGemmSlabColumns == 0),
              "bands of whole slabs");
static_assert(spec::kBlockN % (8 * kCluster) == 0, "equal shares of B, whole patterns of the swizzle");
constexpr uint32_t kABytes = spec::kBlockM * kRowBytes, kBBytes = spec::kBlockN * kRowBytes;
constexpr uint32_t kBShareBytes = kBBytes / kCluster;

constexpr contract::GemmLayout kLayout = contract::gemm_layout(
    spec::kBlockM, spec::kBlockN, spec::kStages, spec::kKGroup, spec::kMathWarpgroups, spec::kStoreStages);

using Payload = pipeline::StandardTilePayload<kABytes, kBBytes, spec::kStages>;
using Input = pipeline::InputTilePipeline<Payload, spec::kStages, spec::kKGroup, (kCluster > 1)>;
using Release = pipeline::WarpRelease<kCluster>;

constexpr int kLoadRegisters = spec::kMathWarpgroups == 1 ? 56 : spec::kMathWarpgroups == 2 ? 40 : 32;
constexpr int kMathRegisters = spec::kMathWarpgroups == 1 ? 248 : spec::kMathWarpgroups == 2 ? 232 : 160;

/// Slabs of k.
struct Part {
  int begin, end;
};

/// What every role derives from the launch, alike.
struct Work {
  policy::TileRaster raster;  // rows are rows of clusters
  int slabs;                  // of k
  int first, step;
  bool turned;

  __device__ __forceinline__ explicit Work(const GemmParams& params) {
    const int rows = (params.m + spec::kBlockM * kCluster - 1) / (spec::kBlockM * kCluster);
    const int columns = (params.n + spec::kBlockN - 1) / spec::kBlockN;
    turned = params.bands_of_n;
    raster = {turned ? columns : rows, turned ? rows : columns, params.band};
    slabs = (params.k + kSlab - 1) / kSlab;
    first = static_cast<int>(blockIdx.x) / (kCluster * kParts);
    step = static_cast<int>(gridDim.x) / (kCluster * kParts);
  }
  /// The CTA's slabs: whole groups, but for the last part's end.
  __device__ __forceinline__ Part part() const {
    if constexpr (kParts == 1) return {0, slabs};
    const int groups = (slabs + spec::kKGroup - 1) / spec::kKGroup, rank = static_cast<int>(ptx::cluster_ctarank());
    return {groups * rank / kParts * spec::kKGroup, min(slabs, groups * (rank + 1) / kParts * spec::kKGroup)};
  }
  /// Row and column of tile `index`, the CTA's own of the cluster's.
  __device__ __forceinline__ policy::TileRaster::Tile at(int index, int rank) const {
    const policy::TileRaster::Tile tile = raster.at(index);
    return {(turned ? tile.column : tile.row) * kCluster + rank, turned ? tile.row : tile.column};
  }
};

__device__ __forceinline__ int rank_in_cluster() { return kCluster > 1 ? static_cast<int>(ptx::cluster_ctarank()) : 0; }

/// Role of one thread: keeps the ring full.
__device__ __forceinline__ void load(const GemmParams& params, uint32_t barriers, const Payload& payload) {
  pipeline::InputProducer<Input> input(barriers, payload);
  const Work work(params);
  const int rank = rank_in_cluster();
  const Part part = work.part();
#pragma unroll 1
  for (int t = work.first; t < work.raster.count(); t += work.step) {
    const policy::TileRaster::Tile tile = work.at(t, rank);
    const int row = tile.row * spec::kBlockM, column = tile.column * spec::kBlockN + rank * (spec::kBlockN / kCluster);
#pragma unroll 1
    for (int slab = part.begin; slab < part.end; slab += spec::kKGroup) {
      const auto stage = input.acquire();
      input.expect_bytes(stage, Input::group_bytes);
#pragma unroll
      for (int j = 0; j < spec::kKGroup; ++j) {
        const int k = (slab + j) * kSlab;  // past the end TMA brings zeros
        ptx::cp_async_bulk_tensor_2d(payload.a(stage.tile(j)), params.a, k, row, stage.full);
        const uint32_t share = payload.b(stage.tile(j)) + static_cast<uint32_t>(rank) * kBShareBytes;
        if constexpr (kCluster > 1)
          ptx::cp_async_bulk_tensor_2d_multicast(share, params.b, k, column, stage.full, (1 << kCluster) - 1);
        else
          ptx::cp_async_bulk_tensor_2d(share, params.b, k, column, stage.full);
      }
      input.step();
    }
  }
  if constexpr (kCluster > 1) input.drain();
}

/// Role of a warpgroup.
class MathWarpgroup {
  using Turns = policy::Turns<kPingPong, spec::kMathWarpgroups>;

 public:
  __device__ __forceinline__ MathWarpgroup(const GemmParams& params, uint32_t base, uint32_t barriers,
                                           const Payload& payload, uint32_t warpgroup)
      : params_(params),
        work_(params),
        input_(barriers, payload),
        base_(base),
        warpgroup_(warpgroup),
        warp_(threadIdx.x / 32 % 4),
        lane_(threadIdx.x % 32),
        output_(base + kLayout.output + (warpgroup * 4 + warp_) * spec::kStoreStages * contract::kGemmStoreSlabBytes) {}

  __device__ __forceinline__ void run() {
    const Part part = work_.part();
    const int groups = (part.end - part.begin + spec::kKGroup - 1) / spec::kKGroup;
    const int rank = rank_in_cluster(), sharers = kPingPong ? spec::kMathWarpgroups : 1;
    const int mine = kPingPong ? static_cast<int>(warpgroup_) : 0;  // of the tiles that the warpgroups deal
    const Turns turns(warpgroup_);
    input_.skip(groups * mine);
#pragma unroll 1
    for (int t = work_.first; t < work_.raster.count(); t += work_.step * sharers) {
      const int own = t + mine * work_.step;
      const bool works = own < work_.raster.count();  // whoever has no tile in the last round passes the turn on
      turns.wait();
      if (works) multiply(groups);
      turns.pass();
      if (!works) break;
      const policy::TileRaster::Tile tile = work_.at(own, rank);
      const int row = tile.row * spec::kBlockM + (kPingPong ? 0 : static_cast<int>(warpgroup_) * kWaves * 64);
      if constexpr (kParts > 1)
        exchange_and_store(row, tile.column * spec::kBlockN, groups > 0);
      else
        store<0, spec::kBlockN>(row, tile.column * spec::kBlockN);
      input_.skip(groups * (sharers - 1));
    }
    turns.finish();
    if (lane_ == 0) ptx::cp_async_bulk_wait_group_read<0>();  // shared memory outlives what is read of it
  }

 private:
  __device__ __forceinline__ void multiply(int groups) {
    const Release release{lane_};
    const uint32_t rows = kPingPong ? 0 : warpgroup_ * (kWaves * 64 * kRowBytes);
    uint32_t held = 0;
#pragma unroll 1
    for (int group = 0; group < groups; ++group) {
      const auto stage = input_.acquire();
      ptx::wgmma_fence();
#pragma unroll
      for (int j = 0; j < spec::kKGroup; ++j) {
        const uint64_t b = ptx::wgmma_descriptor(stage.payload.b(stage.tile(j)), 0, kAtomBytes);
        const uint64_t a = ptx::wgmma_descriptor(stage.payload.a(stage.tile(j)) + rows, 0, kAtomBytes);
#pragma unroll
        for (int wave = 0; wave < kWaves; ++wave)
          ptx::wgmma_ss_x4<spec::kADType, false, 2, 2>(sums_[wave], a + wave * (64 * kRowBytes / 16), b,
                                                       j > 0 ? 1 : group > 0);
      }
      ptx::wgmma_commit_group();
      if constexpr (spec::kMmaInFlight > 0) {
        ptx::wgmma_wait_group<1>();
        if (group > 0) input_.release(held, release);
        held = stage.index;
      } else {
        ptx::wgmma_wait_group<0>();
        input_.release(stage.index, release);
      }
      input_.step();
    }
    ptx::wgmma_wait_group<0>();
    if constexpr (spec::kMmaInFlight > 0) input_.release(held, release);
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave) ptx::pin_registers(sums_[wave]);
  }

  // ---- parts of k: a CTA has one tile, so that the ring is free at its end ----

  static constexpr int kBandPieces = kWaves * kBand / 2 / 4, kMathThreads = 32 * kMathWarps;
  static_assert(kParts == 1 || kParts * kBandPieces * kMathThreads * 16 <= kLayout.output,
                "what the ring has room for");
  /// Where CTA `from` puts piece i, 16 bytes, of its sums in another CTA's band, for the thread there that is this one.
  __device__ __forceinline__ uint32_t staged(int from, int i) const {
    const uint32_t thread = warpgroup_ * 128 + threadIdx.x % 128;
    return base_ + (static_cast<uint32_t>(from * kBandPieces + i) * kMathThreads + thread) * 16;
  }
  template <int kWhich>
  __device__ __forceinline__ float (&piece(int i))[4] {
    constexpr int kOfWave = kBand / 2;
    return reinterpret_cast<float(&)[4]>(sums_[i * 4 / kOfWave][kWhich * kOfWave + i * 4 % kOfWave]);
  }

  __device__ __forceinline__ void exchange_and_store(int row, int column, bool any) {
    const int rank = static_cast<int>(ptx::cluster_ctarank());
    if (!any) {
#pragma unroll
      for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
        for (float& sum : sums_[wave]) sum = 0;
    }
    sync_cluster();  // all products have read their rings
    send<0>(rank);
    sync_cluster();
    add_and_store<0>(rank, row, column);
  }
  __device__ __forceinline__ static void sync_cluster() {
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  }
  template <int kWhich>
  __device__ __forceinline__ void send(int rank) {
    if (kWhich != rank) {
#pragma unroll
      for (int i = 0; i < kBandPieces; ++i) ptx::st_shared_cluster_v4(staged(rank, i), kWhich, piece<kWhich>(i));
    }
    if constexpr (kWhich + 1 < kParts) send<kWhich + 1>(rank);
  }
  /// In the order of k, whoever adds.
  template <int kWhich>
  __device__ __forceinline__ void add_and_store(int rank, int row, int column) {
    if (kWhich == rank) {
#pragma unroll
      for (int i = 0; i < kBandPieces; ++i) {
        float(&own)[4] = piece<kWhich>(i);
        float sum[4];
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          float value[4];
          if (part == kWhich)
            for (int j = 0; j < 4; ++j) value[j] = own[j];
          else
            ptx::ld_shared_v4_f32(staged(part, i), value);
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[j] = part == 0 ? value[j] : sum[j] + value[j];
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) own[j] = sum[j];
      }
      store<kWhich * kBand, kBand>(row, column);
    }
    if constexpr (kWhich + 1 < kParts) add_and_store<kWhich + 1>(rank, row, column);
  }

  // ---- stores ----

  /// Columns [kFirst, kFirst + kCount) of the tile, each warp for itself: 16 rows and 64 columns at a time to shared
  /// memory, from where TMA stores them; rows and columns past the end are not stored.
  template <int kFirst, int kCount>
  __device__ __forceinline__ void store(int row, int column) {
    constexpr int kFirstChunk = kFirst / kSlab, kChunks = (kCount + kSlab - 1) / kSlab;
#pragma unroll
    for (int wave = 0; wave < kWaves; ++wave)
#pragma unroll
      for (int chunk = kFirstChunk; chunk < kFirstChunk + kChunks; ++chunk) {
        constexpr int kStages = spec::kStoreStages;
        const int number = wave * kChunks + chunk;
        if (lane_ == 0) ptx::cp_async_bulk_wait_group_read<kStages - 1>();
        __syncwarp();
        const uint32_t slab = output_ + number % kStages * contract::kGemmStoreSlabBytes;
        const bool whole = chunk < spec::kBlockN / kSlab;
        if (whole)
          put(slab, sums_[wave], chunk);
        else
          put_tail(slab, sums_[wave]);
        ptx::fence_proxy_async_shared();
        __syncwarp();
        if (lane_ == 0) {
          ptx::cp_async_bulk_tensor_2d_store(whole ? params_.d : params_.d_tail, column + chunk * kSlab,
                                             row + wave * 64 + static_cast<int>(warp_) * 16, slab);
          ptx::cp_async_bulk_commit_group();
        }
      }
  }

  __device__ __forceinline__ void put(uint32_t slab, const float (&sums)[spec::kBlockN / 2], int chunk) const {
    const tile::StagedRows<spec::kDDType, kSlab, 0> rows(slab, lane_);
    rows.put(reinterpret_cast<const float(&)[kSlab / 2]>(sums[chunk * (kSlab / 2)]), 1.f, 1.f);
  }
  /// Columns past the last whole 64 of the tile: a box of their own, rows one behind the other. Stored as 64 they would
  /// reach into the next tile.
  __device__ __forceinline__ void put_tail(uint32_t slab, const float (&sums)[spec::kBlockN / 2]) const {
    constexpr int kColumns = spec::kBlockN % kSlab, kFirst = spec::kBlockN - kColumns;
    const uint32_t row = slab + lane_ % 16 * (kColumns * 2), half = lane_ / 16 * 16;
#pragma unroll
    for (int tile = 0; tile < kColumns / 8; tile += 2) {
      const float* const at = &sums[(kFirst + tile * 8) / 2];
      const auto word = [&](int i) { return tile::Element<spec::kDDType>::pack(at[2 * i], at[2 * i + 1]); };
      if (tile + 1 < kColumns / 8)
        ptx::stmatrix_x4(row + half + tile * 16, {word(0), word(1), word(2), word(3)});
      else
        ptx::stmatrix_x2(row + tile * 16, {word(0), word(1)});
    }
  }

  const GemmParams& params_;
  const Work work_;
  pipeline::InputConsumer<Input> input_;
  const uint32_t base_, warpgroup_, warp_, lane_, output_;
  float sums_[kWaves][spec::kBlockN / 2];
};

}  // namespace
}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::kThreads, 1)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::GemmParams params) {
  using namespace kernelwright;
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t base = ptx::shared_address(memory), barriers = base + kLayout.barriers;
  const Payload payload{base + kLayout.a, base + kLayout.b};
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) {
    Input::init(barriers, 1, 4 * kTileWarpgroups * kCluster);
  } else if (threadIdx.x == 32) {
    ptx::prefetch_tensormap(params.a);
    ptx::prefetch_tensormap(params.b);
    ptx::prefetch_tensormap(params.d);
  }
  if constexpr (kCluster > 1) {
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  } else {
    __syncthreads();
  }
  ptx::griddepcontrol_wait();
  if (warp < 4) {
    ptx::setmaxnreg_dec<kLoadRegisters>();
    if (warp == 0 && ptx::elect_one()) load(params, barriers, payload);
  } else {
    ptx::setmaxnreg_inc<kMathRegisters>();
    MathWarpgroup(params, base, barriers, payload, warp / 4 - 1).run();
  }
  ptx::griddepcontrol_launch_dependents();
}
