/// The loading thread's view of the ring of K or of V. A tile arrives in sub-stages, each on barriers of its own. So a
/// product may start before its tile is whole. A tile of K has num_qk_stages of columns, a tile of V has num_mma_stages
/// of keys.
///
/// For each sub-stage q of each tile, acquire<q>() waits until it is free. get_tile<q>(..) arms its full barrier with
/// the bytes to come, and returns their place. The kernel then issues the copies. commit_step() follows. It signals
/// nothing, because the copies complete the barrier themselves.
///
/// Where threads copy by cp.async instead, each of them walks the ring: acquire<q>(), get_smem<q>(), its copies,
/// arrive_with_copies<q>(), and commit_step(). The full barriers are made with as many arrivals as there are such
/// threads. Such copies are in the generic proxy: a thread that reads them by wgmma needs a fence.proxy.async behind
/// its wait.
///
/// See kv_rings.cuh for `Tiles` and for the order of tiles.
#pragma once

#include "pipeline/kv_rings.cuh"

namespace kernelwright::pipeline {

/// The place of a part of a tile, and the barrier that its bytes complete on.
struct TileTarget {
  uint32_t full, smem;
};

/// kIsK: a view of K's tiles, else of V's. Ring: the ring itself, or a reference to a ring that another view steps as
/// well.
template <bool kIsK, class Tiles, class Ring = typename KvRings<Tiles>::template Ring<kIsK>>
class TmaProducerPipeline {
 public:
  static constexpr bool is_k = kIsK;
  static constexpr int num_stages = kIsK ? Tiles::num_qk_stages : Tiles::num_mma_stages;  // parts of a tile
  static constexpr int k_rows_per_cta = Tiles::k_rows_per_cta, v_cols_per_cta = Tiles::v_cols_per_cta;
  static constexpr int BK0 = Tiles::BK0, BK1 = Tiles::BK1;
  static constexpr int elements = kIsK ? k_rows_per_cta * BK0 : v_cols_per_cta * BK1;  // of a part
  static constexpr int elements_full = elements * num_stages;                          // of a tile
  static constexpr uint32_t tile_bytes = elements * Tiles::element_bytes;              // of a part
  static constexpr uint32_t part_stride = kIsK ? KvBytes<Tiles>::k_stride : KvBytes<Tiles>::v_stride;
  static constexpr uint32_t slot_bytes = kIsK ? KvBytes<Tiles>::k_slot : KvBytes<Tiles>::v_slot;

  /// A ring at its start: the address of its barriers, and of its slots.
  __device__ __forceinline__ TmaProducerPipeline(uint32_t barriers, uint32_t smem)
      : ring_{barriers, {0, 1}}, smem_(smem) {}
  /// A ring that exists, copied or referred to as `Ring` says: it stands on the slot that is filled next.
  __device__ __forceinline__ TmaProducerPipeline(Ring& ring, uint32_t smem) : ring_(ring), smem_(smem) {}

  /// Waits until every consumer has released part kPart of this slot.
  template <int kPart = 0>
  __device__ __forceinline__ void acquire() const {
    ring_.template producer_wait<kPart>();
  }

  /// The place of part kPart of this tile.
  template <int kPart = 0>
  __device__ __forceinline__ uint32_t get_smem() const {
    static_assert(kPart >= 0 && kPart < num_stages);
    return smem_ + ring_.state.index * slot_bytes + kPart * part_stride;
  }

  /// Does not arm the barrier: for a caller that arms it itself.
  template <int kPart = 0>
  __device__ __forceinline__ TileTarget get_tile() const {
    return {ring_.template full<kPart>(ring_.state.index), get_smem<kPart>()};
  }

  /// The thread that is `elected` arms the barrier with `bytes`: all bytes that will complete on it. They may be more
  /// than the tile (Q beside the first K, the halves that other CTAs send) or less (a part of a page). Boxes that hang
  /// over the tensor's edge count in full.
  template <int kPart = 0>
  __device__ __forceinline__ TileTarget get_tile(bool elected, uint32_t bytes) const {
    const TileTarget target = get_tile<kPart>();
    if (elected) ptx::mbarrier_arrive_expect_tx(target.full, bytes);
    return target;
  }

  /// Arms the barrier with the bytes of this part alone.
  template <int kPart = 0>
  __device__ __forceinline__ TileTarget get_tile(bool elected) const {
    return get_tile<kPart>(elected, tile_bytes);
  }

  /// Used in place of arming. It makes one of the arrivals that fill part kPart of this slot, once all cp.async that
  /// this thread has issued are done. The thread does not wait for them here: it may fill the next slots meanwhile.
  template <int kPart = 0>
  __device__ __forceinline__ void arrive_with_copies() const {
    ptx::cp_async_mbarrier_arrive_noinc(ring_.template full<kPart>(ring_.state.index));
  }

  /// Steps to the next slot of this ring.
  __device__ __forceinline__ void commit_step() { ring_.step(); }

  /// Waits until consumers have released every slot that was ever loaded: StagedPipeline::drain().
  __device__ __forceinline__ void drain() { ring_.drain(); }

  // The same by name, for code that holds a view of each.
  template <int kPart = 0>
  __device__ __forceinline__ void acquire_k() const {
    static_assert(kIsK, "a view of V");
    acquire<kPart>();
  }
  template <int kPart = 0>
  __device__ __forceinline__ void acquire_v() const {
    static_assert(!kIsK, "a view of K");
    acquire<kPart>();
  }
  template <int kPart = 0, class... Arming>
  __device__ __forceinline__ TileTarget get_k(Arming... arming) const {
    static_assert(kIsK, "a view of V");
    return get_tile<kPart>(arming...);
  }
  template <int kPart = 0, class... Arming>
  __device__ __forceinline__ TileTarget get_v(Arming... arming) const {
    static_assert(!kIsK, "a view of K");
    return get_tile<kPart>(arming...);
  }
  template <int kPart = 0>
  __device__ __forceinline__ uint32_t get_k_smem() const {
    static_assert(kIsK, "a view of V");
    return get_smem<kPart>();
  }
  template <int kPart = 0>
  __device__ __forceinline__ uint32_t get_v_smem() const {
    static_assert(!kIsK, "a view of K");
    return get_smem<kPart>();
  }

 private:
  Ring ring_;
  uint32_t smem_;  // of slot 0
};

/// The producer's rings, one or two as Tiles::shared_ring says, and a view of them for K and for V. The views refer to
/// this object. The object outlives them, and is not copied while they live.
///
///   KvProducer<Tiles> rings(barriers, k_smem, v_smem);
///   auto k = rings.k();
///   auto v = rings.v();
///   for (each work item) for_each_load<Tiles::order>(tiles, [&](int j) { k.acquire(); .. k.commit_step(); }, ..);
template <class Tiles>
class KvProducer {
  using KRing = typename KvRings<Tiles>::KRing;
  using VRing = typename KvRings<Tiles>::VRing;

 public:
  using K = TmaProducerPipeline<true, Tiles, KRing&>;
  using V = TmaProducerPipeline<false, Tiles, VRing&>;

  /// Rings at their start. A shared ring has its slots at `k_smem`, and ignores `v_smem`.
  __device__ __forceinline__ KvProducer(uint32_t barriers, uint32_t k_smem, uint32_t v_smem)
      : KvProducer(KRing::producer(KvRings<Tiles>::k_barriers(barriers)),
                   VRing::producer(KvRings<Tiles>::v_barriers(barriers)), k_smem, v_smem) {}
  /// Copies of rings that exist: each stands on the slot that is filled next. A shared ring is `k_ring`.
  __device__ __forceinline__ KvProducer(const KRing& k_ring, const VRing& v_ring, uint32_t k_smem, uint32_t v_smem)
      : k_ring_(k_ring), v_ring_(v_ring), k_smem_(k_smem), v_smem_(Tiles::shared_ring ? k_smem : v_smem) {}
  KvProducer(const KvProducer&) = delete;

  __device__ __forceinline__ K k() { return K(k_ring_, k_smem_); }
  __device__ __forceinline__ V v() {
    if constexpr (Tiles::shared_ring) {
      return V(k_ring_, v_smem_);
    } else {
      return V(v_ring_, v_smem_);
    }
  }

  /// Waits until consumers have released every slot that was ever loaded.
  __device__ __forceinline__ void drain() {
    k_ring_.drain();
    if constexpr (!Tiles::shared_ring) v_ring_.drain();
  }

 private:
  KRing k_ring_;
  VRing v_ring_;  // unused beside a shared ring
  uint32_t k_smem_, v_smem_;
};

}  // namespace kernelwright::pipeline
