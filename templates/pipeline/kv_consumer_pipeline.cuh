/// The multiplying side's view of the rings of K and V. It waits for tiles, gives their places in the form that the
/// product takes, and releases them, late if need be.
///
/// The cursor of a ring stands on the slot that was last waited for. It steps just before the next wait. So a role may
/// wait for the next tile before it releases this one's slot. At the end of a work item no slot is left to step over.
/// Items follow each other without a seam, and all roles skip an item without tiles. A fresh consumer has waited for
/// nothing: its first tile is in the slot that its ring stands on. The consumer may wait for that tile as K0, by
/// wait_k<0, false>(), or as for every other tile.
///
/// Both orders of KvOrder, in a shared ring or in split ones (w waits, r releases):
///   kAlternating  wK0 rK0 wV0 | wK1 rV0 rK1 wV1 | wK2 rV1 rK2 wV2 | .. rV(T-1)
///   kKeysAhead    wK0 rK0 | wK1 wV0 rK1 rV0 | wK2 wV1 rK2 rV1 | .. | wV(T-1) rV(T-1)
/// Waits come in the order of the ring. Each tile is released once, before the wait for the next tile of its kind.
///
/// A release must come after the last read has ended: after wgmma_wait_group for an operand of wgmma. The policy
/// `Release` says how a slot is released.
#pragma once

#include "pipeline/kv_rings.cuh"
#include "ptx/cluster.cuh"

namespace kernelwright::pipeline {

/// Hopper's release: one lane of each warp arrives. In a cluster one lane arrives for each CTA, because each CTA's
/// producer sends to all of them. The empty barriers expect warps * kCluster arrivals. wgmma's wait covers the whole
/// warp, so that its lanes need no further synchronisation; reads by ld.shared need a __syncwarp() before the release.
template <int kCluster = 1>
struct WarpRelease {
  static constexpr int arrivals_per_warp = kCluster;
  uint32_t lane;

  __device__ __forceinline__ void operator()(uint32_t empty) const {
    if constexpr (kCluster == 1) {
      if (lane == 0) ptx::mbarrier_arrive(empty);
    } else {
      if (lane < kCluster) ptx::mbarrier_arrive_remote(ptx::mapa(empty, lane));
    }
  }
};

/// Gives the places of tiles as plain shared addresses. A policy like this one turns them into the form that a product
/// takes. wgmma and tcgen05 take a 64-bit descriptor, with a layout of their own each.
struct AddressesOfTiles {
  __device__ __forceinline__ uint32_t k(uint32_t address) const { return address; }
  __device__ __forceinline__ uint32_t v(uint32_t address) const { return address; }
};

/// A tile is used sub-stage by sub-stage: K has num_qk_stages of them, V has num_mma_stages (kv_rings.cuh). A role
/// waits for each one and releases each one by itself, in any order. The wait for sub-stage 0 moves the cursor on to
/// the tile. The other sub-stages of that tile use the same slot, even after waits for other tiles. A call that names
/// no sub-stage means the last one. With one sub-stage, that is the whole tile.
template <class Tiles, class Release, class Descriptors = AddressesOfTiles>
class KvConsumerPipeline {
  using Rings = KvRings<Tiles>;
  using KRing = typename Rings::KRing;
  using VRing = typename Rings::VRing;
  using State = typename KRing::State;
  static_assert(!Tiles::shared_ring || Tiles::num_kv_stages >= 2, "a K and a V are held at a time");
  static constexpr int kLastK = Tiles::num_qk_stages - 1, kLastV = Tiles::num_mma_stages - 1;

 public:
  static constexpr int num_kv_stages = Tiles::num_kv_stages;
  static constexpr int num_qk_stages = Tiles::num_qk_stages, num_mma_stages = Tiles::num_mma_stages;
  static constexpr uint32_t full_k_bytes = KvBytes<Tiles>::k_slot, full_v_bytes = KvBytes<Tiles>::v_slot;  // of slots
  static constexpr uint32_t mma_k_bytes = KvBytes<Tiles>::k_stride;  // from one sub-stage to the next
  static constexpr uint32_t mma_v_bytes = KvBytes<Tiles>::v_stride;

  /// Rings at their start, for one thread. The addresses are those that the producer has.
  __device__ __forceinline__ KvConsumerPipeline(uint32_t barriers, uint32_t k_smem, uint32_t v_smem, Release release,
                                                Descriptors descriptors = {})
      : KvConsumerPipeline(KRing::consumer(Rings::k_barriers(barriers)), VRing::consumer(Rings::v_barriers(barriers)),
                           k_smem, v_smem, release, descriptors) {}
  /// Copies of rings that exist: each stands on the slot whose tile is taken next. A shared ring is `k_ring`.
  __device__ __forceinline__ KvConsumerPipeline(const KRing& k_ring, const VRing& v_ring, uint32_t k_smem,
                                                uint32_t v_smem, Release release, Descriptors descriptors = {})
      : k_ring_{k_ring.base, k_ring.state.before()},
        v_ring_{v_ring.base, v_ring.state.before()},
        k_at_(k_ring.state),
        v_at_(Tiles::shared_ring ? k_ring.state : v_ring.state),
        k_smem_(k_smem),
        v_smem_(Tiles::shared_ring ? k_smem : v_smem),
        release_(release),
        descriptors_(descriptors) {}
  /// The one ring of K and V, which exists, and the address of its slots.
  __device__ __forceinline__ KvConsumerPipeline(const KRing& ring, uint32_t smem, Release release,
                                                Descriptors descriptors = {})
      : KvConsumerPipeline(ring, ring, smem, smem, release, descriptors) {
    static_assert(Tiles::shared_ring, "a ring each for K and V");
  }

  /// Makes the barriers of all rings: KvRings::init(). One thread of one side calls it.
  static __device__ __forceinline__ void init(uint32_t barriers, uint32_t producer_arrivals,
                                              uint32_t consumer_arrivals) {
    Rings::init(barriers, producer_arrivals, consumer_arrivals);
  }

  /// Waits for sub-stage kStage of the slot under K's cursor, and returns its address.
  template <int kStage = kLastK>
  __device__ __forceinline__ uint32_t wait() const {
    k_ring_.template consumer_wait<kStage>();
    return k_smem_ + k_ring_.state.index * full_k_bytes + kStage * mma_k_bytes;
  }

  /// Waits for sub-stage kStage of a tile of K. Sub-stage 0 moves on to the next tile. Without kPreIncrement it does
  /// not move, and takes the tile that K's cursor stands on. That is K0, for a consumer that has waited for nothing
  /// yet. Or it is the last tile of K again, before any other wait.
  template <int kStage = kLastK, bool kPreIncrement = true>
  __device__ __forceinline__ auto wait_k() {
    static_assert(kStage >= 0 && kStage <= kLastK, "which of num_qk_stages");
    static_assert(kStage == 0 || kPreIncrement, "sub-stages behind the first follow it");
    if constexpr (kStage == 0 && kPreIncrement) {
      k_ring_.step();
      k_at_ = k_ring_.state;
    } else if constexpr (kStage == 0) {
      k_ring_.state = k_at_;
    }
    k_ring_.template consumer_wait_at<kStage>(k_at_);
    return k_tile<kStage>();
  }

  /// Waits for sub-stage kStage of a tile of V. Sub-stage 0 moves on to the next tile.
  template <int kStage = kLastV>
  __device__ __forceinline__ auto wait_v() {
    static_assert(kStage >= 0 && kStage <= kLastV, "which of num_mma_stages");
    auto& ring = v_ring();
    if constexpr (kStage == 0) {
      ring.step();
      v_at_ = ring.state;
    }
    ring.template consumer_wait_at<kStage>(v_at_);
    return v_tile<kStage>();
  }

  /// Releases sub-stage kStage of the tile of K that was waited for last.
  template <int kStage = kLastK>
  __device__ __forceinline__ void release_k() {
    k_ring_.template release<kStage>(k_at_.index, release_);
  }

  /// Releases sub-stage kStage of the tile of V that was waited for last. Waits for tiles of K may have come since.
  template <int kStage = kLastV>
  __device__ __forceinline__ void release_v() {
    v_ring().template release<kStage>(v_at_.index, release_);
  }

  /// The place of sub-stage kStage of the tile of K, or of V, that was waited for last.
  template <int kStage = 0>
  __device__ __forceinline__ auto k_tile() const {
    return descriptors_.k(k_smem_ + k_at_.index * full_k_bytes + kStage * mma_k_bytes);
  }
  template <int kStage = 0>
  __device__ __forceinline__ auto v_tile() const {
    return descriptors_.v(v_smem_ + v_at_.index * full_v_bytes + kStage * mma_v_bytes);
  }

  // All sub-stages of a tile, for a role that takes it whole.
  __device__ __forceinline__ auto wait_whole_k() {
    wait_k<0>();
    wait_more_k<1>();
    return k_tile();
  }
  __device__ __forceinline__ auto wait_whole_v() {
    wait_v<0>();
    wait_more_v<1>();
    return v_tile();
  }
  template <int kFirst = 0>
  __device__ __forceinline__ void release_whole_k() {
    release_k<kFirst>();
    if constexpr (kFirst < kLastK) release_whole_k<kFirst + 1>();
  }
  template <int kFirst = 0>
  __device__ __forceinline__ void release_whole_v() {
    release_v<kFirst>();
    if constexpr (kFirst < kLastV) release_whole_v<kFirst + 1>();
  }
  /// Sub-stages of the tile from kFirst on, which must not be 0.
  template <int kFirst>
  __device__ __forceinline__ void wait_more_k() {
    static_assert(kFirst > 0, "sub-stage 0 moves on to a tile");
    if constexpr (kFirst <= kLastK) {
      wait_k<kFirst>();
      wait_more_k<kFirst + 1>();
    }
  }
  template <int kFirst>
  __device__ __forceinline__ void wait_more_v() {
    static_assert(kFirst > 0, "sub-stage 0 moves on to a tile");
    if constexpr (kFirst <= kLastV) {
      wait_v<kFirst>();
      wait_more_v<kFirst + 1>();
    }
  }

 private:
  __device__ __forceinline__ auto& v_ring() {
    if constexpr (Tiles::shared_ring) {
      return k_ring_;
    } else {
      return v_ring_;
    }
  }

  KRing k_ring_;
  VRing v_ring_;       // unused beside a shared ring
  State k_at_, v_at_;  // the tiles waited for last; at first, the first ones
  uint32_t k_smem_, v_smem_;
  Release release_;
  Descriptors descriptors_;
};

}  // namespace kernelwright::pipeline
