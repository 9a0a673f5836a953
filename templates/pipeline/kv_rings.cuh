/// The rings that carry K and V tiles from the producer to the consumers, and the order of tiles in them. Both sides
/// have to agree on these.
///
/// A kernel names a struct of constants, here `Tiles`:
///   element_bytes    bytes of an element of K and V
///   k_rows_per_cta   keys of a tile of K in this CTA's shared memory
///   v_cols_per_cta   columns of V in this CTA's shared memory, padded to the swizzle
///   BK0              columns of a sub-stage of K: the padded head dim / num_qk_stages
///   BK1              keys of a sub-stage of V: those of a tile / num_mma_stages
///   num_kv_stages    slots of a ring
///   num_qk_stages    sub-stages of a tile of K
///   num_mma_stages   sub-stages of a tile of V; in a shared ring of every slot, so of K's too
///   shared_ring      K and V pass through one ring in turn, or each through its own
///   order            KvOrder
///   cluster          CTAs that share what is loaded; 1 without multicast
///
/// A sub-stage has barriers of its own: it is loaded, waited for and released by itself. Each product takes a tile's
/// sub-stages along its depth: S = Q K^T takes columns of K, O += P V takes keys of V.
#pragma once

#include "pipeline/staged_pipeline.cuh"

namespace kernelwright::pipeline {

/// The order in which the producer fills slots and the consumers wait for them. A side may release slots in another
/// order.
///   kAlternating  K0 V0 K1 V1 .. K(T-1) V(T-1)        a step's product with V ends before the next step's scores
///   kKeysAhead    K0 K1 V0 K2 V1 .. K(T-1) V(T-2) V(T-1)    scores of a step run under the softmax of the one before
/// A work item without tiles takes no slot, and the next item goes on where the last one ended. In one shared ring both
/// sides have to follow this order exactly; otherwise they wait for each other for ever. In split rings both orders
/// have the same order of K among K, and of V among V. The producer still has to fill in this order, because it is one
/// thread. Otherwise it waits for a slot of V that stays taken until a K comes, and it has not sent that K yet.
enum class KvOrder { kAlternating, kKeysAhead };

/// Calls load_k(j) and load_v(j) for the `tiles` tiles of one work item in the order kOrder.
template <KvOrder kOrder, class LoadK, class LoadV>
__device__ __forceinline__ void for_each_load(int tiles, const LoadK& load_k, const LoadV& load_v) {
  if constexpr (kOrder == KvOrder::kAlternating) {
#pragma unroll 1
    for (int j = 0; j < tiles; ++j) {
      load_k(j);
      load_v(j);
    }
  } else {
    // Each function is called at one place, so that the loads are inlined once.
#pragma unroll 1
    for (int j = 0; j <= tiles; ++j) {
      if (j < tiles) load_k(j);
      if (j > 0) load_v(j - 1);
    }
  }
}

/// The rings of `Tiles`: their types, and the places of their barriers. K's come first, then V's unless they share.
template <class Tiles>
struct KvRings {
  static_assert(!Tiles::shared_ring || Tiles::num_qk_stages == Tiles::num_mma_stages,
                "a slot of a shared ring has one number of sub-stages");
  static constexpr bool kClusterScope = Tiles::cluster > 1;
  template <bool kIsK>
  using Ring = StagedPipeline<Tiles::num_kv_stages, kIsK ? Tiles::num_qk_stages : Tiles::num_mma_stages, kClusterScope>;
  using KRing = Ring<true>;
  using VRing = Ring<false>;
  static constexpr uint32_t bytes = KRing::bytes + (Tiles::shared_ring ? 0 : VRing::bytes);  // of the barriers

  static __device__ __forceinline__ uint32_t k_barriers(uint32_t base) { return base; }
  static __device__ __forceinline__ uint32_t v_barriers(uint32_t base) {
    return Tiles::shared_ring ? base : base + KRing::bytes;
  }

  /// Makes the barriers of all rings: StagedPipeline::init(). One thread of one side calls it.
  static __device__ __forceinline__ void init(uint32_t base, uint32_t producer_arrivals, uint32_t consumer_arrivals) {
    KRing::init(k_barriers(base), producer_arrivals, consumer_arrivals);
    if constexpr (!Tiles::shared_ring) VRing::init(v_barriers(base), producer_arrivals, consumer_arrivals);
  }
};

/// Bytes of the tiles, and of the slots that hold them. In a shared ring, each sub-stage of a slot has room for the
/// larger of both kinds. So a new tile cannot overwrite a sub-stage of the other kind that is still read.
template <class Tiles>
struct KvBytes {
  static constexpr uint32_t k_stage = Tiles::k_rows_per_cta * Tiles::BK0 * Tiles::element_bytes;  // a sub-stage
  static constexpr uint32_t v_stage = Tiles::v_cols_per_cta * Tiles::BK1 * Tiles::element_bytes;
  static constexpr uint32_t k_tile = k_stage * Tiles::num_qk_stages;
  static constexpr uint32_t v_tile = v_stage * Tiles::num_mma_stages;
  static constexpr uint32_t larger = k_stage > v_stage ? k_stage : v_stage;
  static constexpr uint32_t k_stride = Tiles::shared_ring ? larger : k_stage;  // from one sub-stage to the next
  static constexpr uint32_t v_stride = Tiles::shared_ring ? larger : v_stage;
  static constexpr uint32_t k_slot = k_stride * Tiles::num_qk_stages, v_slot = v_stride * Tiles::num_mma_stages;
};

}  // namespace kernelwright::pipeline
