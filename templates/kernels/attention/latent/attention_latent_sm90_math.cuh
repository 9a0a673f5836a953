/// A math warpgroup of attention_latent_sm90: scores and softmax of every second key tile, and half of the output's
/// columns over all of them. attention_latent_sm90_store.cuh has what follows the last tile.
#pragma once

#include "kernels/attention/latent/attention_latent_sm90_tiles.cuh"
#include "mma/latent_sm90.cuh"
#include "mma/sm90.cuh"
#include "policy/score_mod.cuh"
#include "policy/scores.cuh"
#include "policy/shared_softmax.cuh"
#include "ptx/barrier.cuh"
#include "ptx/memory.cuh"
#include "tile/row_tile.cuh"

namespace kernelwright {
namespace {

/// kSide 0: tiles of even number, and the first half of the columns. A turn is an even tile and the odd one behind it.
template <int kSide>
class MathWarpgroup {
  enum : int { kOther = 1 - kSide };
  using Softmax = policy::SharedSoftmax<spec::kRescale>;
  using Fragment = policy::WgmmaScores<32>;
  using Slab = tile::SharedTile<spec::kBlockM, 64, 128>;
  using Output = float[kSideColumns / 2];

 public:
  __device__ __forceinline__ MathWarpgroup(const contract::AttentionParams& params, const Work& work,
                                           const Shared& shared, const Laps& laps)
      : params_(params),
        work_(work),
        shared_(shared),
        laps_(laps),
        lane_(static_cast<int>(threadIdx.x % 32)),
        warp_(static_cast<int>(threadIdx.x / 32 % 4)),
        ring_(KeyRing::consumer(shared.key_barriers())),
        query_slabs_(mma::slab_descriptor(shared.queries())),
        key_slabs_(mma::slab_descriptor(shared.keys(kSide))),
        mod_(score_mod(params)),
        scale_(mod_.template exponent_scale<kTensorScale>(params.exponent_scale)),
        tiles_(uniform(work.tiles)),
        count_(tiles_.end - tiles_.begin) {}

  __device__ __forceinline__ void run() {
    take_queries();
#pragma unroll
    for (float& sum : output_) sum = 0;
    ptx::pin_registers<4>(output_);  // else the compiler writes the zeros behind the fence of the first product
    add_sinks();
    if (count_ > 0) {
      if constexpr (kSide == 0)
        walk_even();
      else
        walk_odd();
    }
    finish();
  }

 private:
  __device__ __forceinline__ static policy::TileList uniform(const policy::TileList& tiles) {
    return {{ptx::uniform(tiles.keys.low), ptx::uniform(tiles.keys.high)},
            ptx::uniform(tiles.begin),
            ptx::uniform(tiles.end),
            ptx::uniform(tiles.full_begin),
            ptx::uniform(tiles.full_end)};
  }

  // ---- queries ----

  /// All math threads bring Q. Its last slab moves to registers: the odd tiles' probabilities take its place.
  __device__ __forceinline__ void take_queries() {
    const int thread = static_cast<int>(threadIdx.x) - 128;
    bring_queries<kMathThreads>(shared_, params_, work_.item, thread);
    if (mod_.changes_queries()) {
      ptx::bar_sync(kMathBarrier, kMathThreads);
      QueryRows<kMathThreads>{shared_.queries()}.take_sign(thread, mod_.scale);
    }
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(kMathBarrier, kMathThreads);
    const Slab::Fragments fragments(warp_ * 16 + lane_ % 16, lane_ / 16);
    const uint32_t last = fragments.base(shared_.queries(kSlabs - 1));
#pragma unroll
    for (int step = 0; step < 4; ++step) ptx::ldmatrix_x4(held_[step], fragments.address(last, 0, step));
    ptx::bar_sync(kMathBarrier, kMathThreads);
  }

  // ---- steps ----

  /// A turn: P of the even tile; O += P V of that tile and, once the other warpgroup has posted P of the odd one, of
  /// that. Then the scores of the next even tile. A slot's parts are released as soon as they have been read: what is
  /// loaded late is multiplied late.
  __device__ __forceinline__ void walk_even() {
    issue_scores(0);
#pragma unroll 1
    for (int tile = 0;; tile += 2) {
      end_products();
      exponentiate(tile);
      softmax_.rescale(output_);
      pack();
      post(kSide);
      multiply_own(tile);
      end_products();
      release(kSide);
      if (tile + 1 >= count_) return;
      adopt(tile / 2);
      multiply_posted(tile + 1);
      end_products();
      release(kOther);
      if (tile + 2 >= count_) return;
      issue_scores(tile + 2);
    }
  }

  /// A turn: exponentials of the odd tile, relative to the maxima of the turn before, while side 0 computes those of
  /// the even tile. This side then follows side 0's maxima. O += P V of the even tile; the odd tile's P, and its
  /// product. (The first product cannot run behind the odd tile's scores: ptxas lets no instruction rescale an
  /// accumulator while another one is in flight.)
  __device__ __forceinline__ void walk_odd() {
    if (count_ > 1) {
      issue_scores(1);
#pragma unroll 1
      for (int tile = 1;; tile += 2) {
        end_products();
        const float before[2] = {softmax_.maximum[0], softmax_.maximum[1]};
        exponentiate(tile);
        softmax_.join(before, wait_for_post(tile / 2).of, scores_, scale_);
        softmax_.rescale(output_);
        multiply_posted(tile - 1);
        pack();
        post(kSide);
        end_products();
        release(kOther);
        softmax_.rescale_later(output_);
        multiply_own(tile);
        end_products();
        release(kSide);
        if (tile + 2 >= count_) break;
        issue_scores(tile + 2);
      }
      if (count_ % 2 == 0) return;
    }
    adopt(count_ / 2);  // the last tile is even
    multiply_posted(count_ - 1);
    end_products();
    release(kOther);
  }

  /// No product is in flight any more.
  __device__ __forceinline__ void end_products() {
    ptx::wgmma_wait_group<0>();
    ptx::pin_registers<4>(scores_);
    ptx::pin_registers<4>(output_);
  }

  /// Scores of tile `tile`, part by part as they land.
  __device__ __forceinline__ void issue_scores(int tile) {
    issue_part<0>({static_cast<uint32_t>(kSide), (static_cast<uint32_t>(tile / 2) & 1) ^ laps_.of(kSide)});
    ptx::wgmma_commit_group();
  }
  template <int kPart>
  __device__ __forceinline__ void issue_part(const KeyRing::State& at) {
    ring_.template consumer_wait_at<kPart>(at);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < slabs_of_part(kPart); ++i) {
      constexpr int kFirst = kPart * contract::kLatentPartSlabs;
      const int slab = kFirst + i;
      const uint64_t keys = mma::slab_behind(key_slabs_, slab);
      if (slab + 1 < kSlabs)
        mma::multiply_slab<spec::kQDType>(scores_, mma::slab_behind(query_slabs_, slab), keys, slab > 0);
      else
        mma::multiply_slab<spec::kQDType>(scores_, held_, keys, slab > 0);
    }
    if constexpr (kPart + 1 < contract::kLatentParts) issue_part<kPart + 1>(at);
  }

  /// O += P V of a tile of this side, whose P is in registers.
  __device__ __forceinline__ void multiply_own(int tile) {
    clean(tile, kSide);
    ptx::wgmma_fence();
    mma::issue_values<spec::kQDType>(output_, probabilities_, own_values(kSide));
  }
  /// O += P V of a tile of the other side, whose P has been posted.
  __device__ __forceinline__ void multiply_posted(int tile) {
    clean(tile, kOther);
    ptx::wgmma_fence();
    mma::issue_values<spec::kQDType>(output_, shared_.probabilities(kOther), own_values(kOther));
  }
  __device__ __forceinline__ uint32_t own_values(int slot) const {
    return shared_.keys(slot, kSide * (kValueSlabs / kSides));
  }

  /// This warpgroup has read its values of slot `slot`. The scores of the tile there are done too: its probabilities
  /// follow from them.
  __device__ __forceinline__ void release(int slot) const { release_part<kSide * kSideParts>(slot); }
  template <int kPart>
  __device__ __forceinline__ void release_part(int slot) const {
    ring_.template release<kPart>(slot, Release{static_cast<uint32_t>(lane_)});
    if constexpr (kPart + 1 < (kSide + 1) * kSideParts) release_part<kPart + 1>(slot);
  }

  // ---- softmax ----

  __device__ __forceinline__ int key_of(int tile) const { return (tiles_.begin + tile) * spec::kBlockN; }
  /// The thread's first row; its second is 8 rows further on.
  __device__ __forceinline__ int row() const { return warp_ * 16 + lane_ / 4; }

  /// Turns scores into exponentials.
  __device__ __forceinline__ void exponentiate(int tile) {
    const Fragment fragment{scores_};
    policy::modify(fragment, mod_, [] { return 0; });
    if (tiles_.is_partial(tiles_.begin + tile))
      policy::hide_keys<Mask::hides>(fragment, key_of(tile) + lane_ % 4 * 2, [&](int r) {
        return work_.mask.visible(work_.item.query(row() + Fragment::row(r)));
      });
    softmax_.exponentiate(scores_, scale_, policy::EqualKeys{});
  }
  __device__ __forceinline__ void pack() { mma::pack<spec::kQDType, spec::kBlockN>(scores_, probabilities_); }

  /// Shows the other warpgroup the probabilities of a tile, and the maxima that they are relative to.
  __device__ __forceinline__ void post(int side) const {
    const Slab::Fragments lanes(row(), 0);
    const uint32_t base = lanes.base(shared_.probabilities(side)) + lane_ % 4 * 4;
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int piece = 0; piece < spec::kBlockN / 8; ++piece)
        ptx::st_shared_u32(lanes.piece_address(base, r, piece), probabilities_[piece / 2][piece % 2 * 2 + r]);
    if (lane_ % 4 == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) ptx::st_shared_f32(shared_.maximum(side, row() + r * 8), softmax_.maximum[r]);
    }
    pipeline::SignalledByWarp{static_cast<uint32_t>(lane_)}(shared_.posted(side).address);
  }

  struct Maxima {
    float of[2];
  };
  /// Waits for what the other warpgroup posts in turn `turn`: its maxima of the thread's rows.
  __device__ __forceinline__ Maxima wait_for_post(int turn) const {
    shared_.posted(kOther).wait(turn + static_cast<int>(laps_.of(kOther)));
    return {
        {ptx::ld_shared_f32(shared_.maximum(kOther, row())), ptx::ld_shared_f32(shared_.maximum(kOther, row() + 8))}};
  }
  /// The same, and follows these maxima.
  __device__ __forceinline__ void adopt(int turn) {
    softmax_.adopt(wait_for_post(turn).of, scale_);
    softmax_.rescale(output_);
  }

  /// The scores hide keys that no row sees, but their values are multiplied by 0, and 0 * NaN is NaN.
  __device__ __forceinline__ void clean(int tile, int slot) const {
    const Bound bound{tiles_.keys.low, tiles_.keys.high};
    const int first = key_of(tile);
    if (bound.holds_all(first, spec::kBlockN)) return;
    constexpr int kPieces = kSideColumns / 8;  // of 16 bytes, in a key
#pragma unroll 1
    for (int at = static_cast<int>(threadIdx.x % 128); at < spec::kBlockN * kPieces; at += 128) {
      const int key = at / 8 % spec::kBlockN;
      if (!bound.holds(first + key)) ptx::st_shared_v4(own_values(slot) + at * 16, {});
    }
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(kSideBarrier + kSide, 128);
  }

  __device__ __forceinline__ void add_sinks() {
    if constexpr (spec::kSinks && kSide == 0) {
      if (work_.item.coord.split > 0) return;
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (row() + r * 8 < work_.item.num_rows)
          softmax_.add_sink(r, params_.sinks[work_.item.q_head(row() + r * 8)], scale_, lane_ % 4 == 0);
    }
  }

  // attention_latent_sm90_store.cuh
  __device__ __forceinline__ void finish();
  __device__ __forceinline__ void leave_part() const;

  const contract::AttentionParams& params_;
  const Work& work_;
  const Shared& shared_;
  const Laps laps_;  // of items before
  const int lane_, warp_;
  const KeyRing ring_;
  const uint64_t query_slabs_, key_slabs_;  // descriptors of the first slabs of Q, and of this side's slot
  const ScoreMod mod_;
  const float scale_;
  const policy::TileList tiles_;  // known to be the same in all lanes: ptx::uniform() has why
  const int count_;
  uint32_t held_[4][4];  // the last slab of Q
  float scores_[32];
  uint32_t probabilities_[4][4];
  Output output_;
  Softmax softmax_;
};

}  // namespace
}  // namespace kernelwright
