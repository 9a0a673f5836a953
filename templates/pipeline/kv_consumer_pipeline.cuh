/// The multiplying side's view of the rings of K and V: it waits for tiles, says where they lie in the form that the
/// product takes, and lets go of them, late if need be.
///
/// The cursor of a ring stands on the slot that was last waited for; it steps just before the next wait. So a wait may
/// be followed by the wait for the next tile before its slot is let go of, and nothing is left to step over at the end
/// of a work item: items follow each other without a seam, and one without tiles is skipped by all.
///
/// Both orders of KvOrder, in a shared ring or in split ones (w waits, r releases):
///   kAlternating  wK0 rK0 wV0 | wK1 rV0 rK1 wV1 | wK2 rV1 rK2 wV2 | .. rV(T-1)
///   kKeysAhead    wK0 rK0 | wK1 wV0 rK1 rV0 | wK2 wV1 rK2 rV1 | .. | wV(T-1) rV(T-1)
/// Waits come in the order of the ring. Each tile is let go of once, before the next tile of its kind is waited for.
///
/// A release must come after the last read has ended: after wgmma_wait_group for an operand of wgmma. What frees a slot
/// is the policy `Release`.
#pragma once

#include "pipeline/kv_rings.cuh"
#include "ptx/cluster.cuh"

namespace kernelwright::pipeline {

/// Hopper's release: one lane of each warp arrives, in a cluster one lane for each CTA, since each CTA's producer sends
/// to all of them. The empty barriers expect warps * kCluster arrivals. wgmma's wait is the warp's own, so that no
/// further synchronisation of its lanes is needed; reads by ld.shared need a __syncwarp() ahead of it.
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

/// Where tiles lie, as plain shared addresses. A policy like this one turns them into what a product takes: for wgmma
/// and tcgen05 a 64-bit descriptor, whose layout differs between the two.
struct AddressesOfTiles {
  __device__ __forceinline__ uint32_t k(uint32_t address) const { return address; }
  __device__ __forceinline__ uint32_t v(uint32_t address) const { return address; }
};

/// A tile is eaten in num_mma_stages steps, each of an equal and contiguous share of its columns, in the order 0, 1, ..
/// A step waits for the chunks that no step before it needed; a chunk is let go of with the step that reads it last.
/// With several steps every call says which; with one none has to.
template <class Tiles, class Release, class Descriptors = AddressesOfTiles>
class KvConsumerPipeline {
  using Rings = KvRings<Tiles>;
  using KRing = typename Rings::KRing;
  using VRing = typename Rings::VRing;
  static constexpr int kSteps = Tiles::num_mma_stages, kChunks = Tiles::num_qk_stages;
  static constexpr int kOnlyStep = kSteps == 1 ? 0 : -1;
  static_assert(kSteps >= 1 && (kSteps % kChunks == 0 || kChunks % kSteps == 0),
                "a step takes whole chunks of K, or a chunk whole steps");

 public:
  static constexpr int num_kv_stages = Tiles::num_kv_stages, num_mma_stages = kSteps;
  static constexpr uint32_t full_k_bytes = KvBytes<Tiles>::k_slot, full_v_bytes = KvBytes<Tiles>::v_slot;  // slots
  static constexpr uint32_t mma_k_bytes = KvBytes<Tiles>::k_tile / kSteps;  // from one step to the next
  static constexpr uint32_t mma_v_bytes = KvBytes<Tiles>::v_tile / kSteps;

  /// Rings at their start, for one thread. Addresses as the producer has them.
  __device__ __forceinline__ KvConsumerPipeline(uint32_t barriers, uint32_t k_smem, uint32_t v_smem, Release release,
                                                Descriptors descriptors = {})
      : k_ring_{Rings::k_barriers(barriers), KRing::State::before_consumer()},
        v_ring_{Rings::v_barriers(barriers), VRing::State::before_consumer()},
        k_slot_(0),
        v_slot_(0),
        k_smem_(k_smem),
        v_smem_(Tiles::shared_ring ? k_smem : v_smem),
        release_(release),
        descriptors_(descriptors) {}

  /// Makes the barriers of all rings: KvRings::init(). One side calls it, by one thread.
  static __device__ __forceinline__ void init(uint32_t barriers, uint32_t producer_arrivals,
                                              uint32_t consumer_arrivals) {
    Rings::init(barriers, producer_arrivals, consumer_arrivals);
  }

  /// Waits for what step kStep needs of the tile of K that the cursor stands on; the address of its columns.
  template <int kStep = kOnlyStep>
  __device__ __forceinline__ uint32_t wait() const {
    static_assert(kStep >= 0 && kStep < kSteps, "which of num_mma_stages");
    wait_chunks<first_chunk(kStep), last_chunk(kStep)>();
    return k_smem_ + k_ring_.state.index * full_k_bytes + kStep * mma_k_bytes;
  }

  /// The next tile of K: step 0 moves on to it (kPreIncrement), later steps stay on it.
  template <int kStep = kOnlyStep, bool kPreIncrement = (kStep == 0)>
  __device__ __forceinline__ auto wait_k() {
    static_assert(kStep >= 0 && kStep < kSteps, "which of num_mma_stages");
    if constexpr (kStep == 0 && kPreIncrement) k_ring_.step();
    if constexpr (kStep == 0) k_slot_ = k_ring_.state.index;
    if constexpr (begins_chunk(kStep)) wait<kStep>();
    return descriptors_.k(k_smem_ + k_slot_ * full_k_bytes + kStep * mma_k_bytes);
  }

  /// The next tile of V, whole with step 0; later steps say where their columns lie.
  template <int kStep = kOnlyStep>
  __device__ __forceinline__ auto wait_v() {
    static_assert(kStep >= 0 && kStep < kSteps, "which of num_mma_stages");
    if constexpr (kStep == 0) {
      auto& ring = v_ring();
      ring.step();
      v_slot_ = ring.state.index;
      ring.template consumer_wait<0>();
    }
    return descriptors_.v(v_smem_ + v_slot_ * full_v_bytes + kStep * mma_v_bytes);
  }

  /// Lets go of the chunks of the tile of K that was waited for last which no step after kStep reads.
  template <int kStep = kOnlyStep>
  __device__ __forceinline__ void release_k() {
    static_assert(kStep >= 0 && kStep < kSteps, "which of num_mma_stages");
    if constexpr (begins_chunk(kStep + 1)) {
      release_chunks<first_chunk(kStep), last_chunk(kStep)>();
    }
  }

  /// Lets go of the tile of V that was waited for last, with the last step; tiles of K may have been waited for since.
  template <int kStep = kOnlyStep>
  __device__ __forceinline__ void release_v() {
    static_assert(kStep >= 0 && kStep < kSteps, "which of num_mma_stages");
    if constexpr (kStep == kSteps - 1) v_ring().template release<0>(v_slot_, release_);
  }

 private:
  // Chunks [first, last) that step `step` reads. With several steps to a chunk they all read that one.
  static constexpr int first_chunk(int step) { return step * kChunks / kSteps; }
  static constexpr int last_chunk(int step) {
    const int last = (step + 1) * kChunks / kSteps;
    return last > first_chunk(step) ? last : first_chunk(step) + 1;
  }

  static constexpr bool begins_chunk(int step) { return kChunks >= kSteps || step % (kSteps / kChunks) == 0; }

  __device__ __forceinline__ auto& v_ring() {
    if constexpr (Tiles::shared_ring) {
      return k_ring_;
    } else {
      return v_ring_;
    }
  }

  template <int kChunk, int kLast>
  __device__ __forceinline__ void wait_chunks() const {
    k_ring_.template consumer_wait<kChunk>();
    if constexpr (kChunk + 1 < kLast) wait_chunks<kChunk + 1, kLast>();
  }

  template <int kChunk, int kLast>
  __device__ __forceinline__ void release_chunks() {
    k_ring_.template release<kChunk>(k_slot_, release_);
    if constexpr (kChunk + 1 < kLast) release_chunks<kChunk + 1, kLast>();
  }

  KRing k_ring_;
  VRing v_ring_;              // of no use beside a shared ring
  uint32_t k_slot_, v_slot_;  // what release_k() and release_v() let go of
  uint32_t k_smem_, v_smem_;
  Release release_;
  Descriptors descriptors_;
};

}  // namespace kernelwright::pipeline
