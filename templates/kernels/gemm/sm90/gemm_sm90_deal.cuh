/// How roles of gemm_sm90 learn their tiles where groups have bounds and TMA loads. To look up a tile takes 600 to 900
/// clocks, and no product runs if math warps do it between two tiles. So a warp of the loading warpgroup, which has no
/// other work, looks up each tile of the CTA once, ahead of its use. All roles read it from a ring in shared memory.
#pragma once

#include "kernels/gemm/sm90/gemm_sm90_tiles.cuh"
#include "pipeline/staged_pipeline.cuh"
#include "policy/either.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

// Where threads copy operands, all warps of the loading warpgroup do, and each role looks up its own tiles.
constexpr bool kDeals = kGrouped && !kCopies;

/// The ring: entries of 32 bytes, and its barriers. Tiles are dealt in rounds: in ping-pong, a round has a tile for
/// each math warpgroup. Math warpgroups ask for the tile behind their last one, so a round follows the last tile. Every
/// role reads or passes over all of them: then no slot is half released when the CTA ends.
struct DealtTiles {
  using Ring = pipeline::StagedPipeline<contract::kGemmDealtTiles>;
  static constexpr uint32_t kEntryBytes = contract::kGemmDealtTileBytes;
  static constexpr int kRound = kPingPong ? spec::kMathWarpgroups : 1;
  static_assert(kEntryBytes == 2 * sizeof(ptx::Vector16));

  /// Called by one thread. A fence of barriers follows.
  __device__ __forceinline__ static void init(uint32_t base) {
    Ring::init(barriers(base), 1, 1 + kMathWarps);  // the loading thread, and a lane of each math warp
  }
  __device__ __forceinline__ static uint32_t entry(uint32_t base, uint32_t slot) {
    return base + kLayout.dealt + slot * kEntryBytes;
  }
  __device__ __forceinline__ static uint32_t barriers(uint32_t base) { return entry(base, Ring::num_stages); }
};
static_assert(DealtTiles::Ring::bytes == contract::kGemmDealtTiles * 16);

/// Role of the dealing warp. A template, so that other kernels do not compile it.
template <class Work>
class Dealer {
 public:
  __device__ __forceinline__ Dealer(const Work& work, uint32_t base) : work_(work), base_(base) {}

  __device__ __forceinline__ void run() const {
    auto ring = DealtTiles::Ring::producer(DealtTiles::barriers(base_));
    const int rank = rank_in_cluster();
    int t = work_.first;
    bool is_last = false;
#pragma unroll 1
    for (int i = 0; !is_last || i % DealtTiles::kRound != 0; ++i, t = work_.after(t), ring.step()) {
      if (i % DealtTiles::kRound == 0) is_last = t >= work_.count();
      const Tile tile = work_.at(t, rank);
      ring.producer_wait();
      if (threadIdx.x % 32 == 0) {
        const uint32_t at = DealtTiles::entry(base_, ring.state.index);
        ptx::st_shared_v4(at, {{word(tile.row), word(tile.column), word(tile.row_end), word(tile.column_end)}});
        ptx::st_shared_v4(at + 16, {{word(tile.group), word(tile.scale_row), 0, 0}});
        ring.fill();
      }
      __syncwarp();
    }
  }

 private:
  __device__ __forceinline__ static uint32_t word(int value) { return static_cast<uint32_t>(value); }

  const Work work_;
  const uint32_t base_;
};

/// The work of a role that takes the CTA's tiles from the dealer, each one once, in order.
template <bool kWarp>
class DealtWork : public GroupedWork<kWarp> {
 public:
  __device__ __forceinline__ DealtWork(const GemmParams& params, uint32_t base)
      : GroupedWork<kWarp>(params, base), base_(base), ring_(DealtTiles::Ring::consumer(DealtTiles::barriers(base))) {}

  /// The next tile. Behind the last one: any.
  __device__ __forceinline__ Tile take() {
    ring_.consumer_wait();
    const uint32_t at = DealtTiles::entry(base_, ring_.state.index);
    const ptx::Vector16 low = ptx::ld_shared_v4(at), high = ptx::ld_shared_v4(at + 16);
    release();
    return {word(low.word[0]),
            word(low.word[1]),
            word(low.word[2]),
            word(low.word[3]),
            word(high.word[0]),
            word(high.word[1]),
            0,
            0};
  }
  /// Passes over a tile.
  __device__ __forceinline__ void skip() {
    ring_.consumer_wait();
    release();
  }
  /// Passes over what is left of the round, and then over `rounds` more.
  __device__ __forceinline__ void finish(int rounds) {
    for (int left = (DealtTiles::kRound - taken_) % DealtTiles::kRound + rounds * DealtTiles::kRound; left > 0; --left)
      skip();
  }

 private:
  __device__ __forceinline__ void release() {
    if constexpr (kWarp) __syncwarp();  // all lanes have read the entry
    ring_.release(ring_.state.index, pipeline::WarpRelease<>{kWarp ? threadIdx.x % 32 : 0});
    ring_.step();
    taken_ = (taken_ + 1) % DealtTiles::kRound;
  }
  __device__ __forceinline__ static int word(uint32_t value) {
    if constexpr (kWarp) return ptx::uniform(static_cast<int>(value));
    return static_cast<int>(value);
  }

  const uint32_t base_;
  DealtTiles::Ring ring_;
  int taken_ = 0;  // tiles of the round
};
using LoadWork = policy::Either<kDeals, DealtWork<false>, ThreadWork>::type;
using MathWork = policy::Either<kDeals, DealtWork<true>, WarpWork>::type;

/// Tile `index` of the launch. A role asks for the CTA's tiles, each one once, in order.
template <class AnyWork>
__device__ __forceinline__ Tile next_tile(AnyWork& work, int index, int rank) {
  if constexpr (kDeals)
    return work.take();
  else
    return work.at(index, rank);
}
/// Passes over a tile of the CTA that the role does not ask for.
template <class AnyWork>
__device__ __forceinline__ void pass_tile(AnyWork& work) {
  if constexpr (kDeals) work.skip();
}
/// At the role's end: passes over the tiles that are left, in the round it stands in and `rounds` more.
template <class AnyWork>
__device__ __forceinline__ void pass_last_tiles(AnyWork& work, int rounds) {
  if constexpr (kDeals) work.finish(rounds);
}

/// The work of a role. `base`: the shared memory, which has the CTA's item or its table of groups.
template <class AnyWork>
__device__ __forceinline__ AnyWork work_of(const EntryParams& params, uint32_t base) {
  if constexpr (kHasBounds)
    return AnyWork(params, base);
  else
    return AnyWork(params, kTakesTurns ? static_cast<int>(ptx::ld_shared_u32(base + kLayout.item)) : 0);
}

}  // namespace
}  // namespace kernelwright
