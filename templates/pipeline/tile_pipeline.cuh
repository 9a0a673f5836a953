/// The rings of a GEMM: an input ring of operand tiles between the loading warp and those that multiply, and an output
/// ring of accumulators between these and whoever stores them. What a slot holds (a payload) is apart from the barriers
/// that say when it may be read and written: a payload with scales, or one more operand, changes no protocol.
///
/// A payload is trivially copyable and has
///     num_tiles             tiles of each kind that shared memory holds
///     bytes_per_tile        bytes that TMA brings for one of them, all kinds together
/// and a member function for the address of each kind. A slot of the ring is a group of k_group tiles, which are full
/// and empty together: small tiles share the cost of a barrier.
#pragma once

#include "pipeline/staged_pipeline.cuh"

namespace kernelwright::pipeline {

/// Tiles of A and of B, each kind on its own so that both stay aligned to their swizzle's pattern.
template <uint32_t kABytes, uint32_t kBBytes, int kTiles>
struct StandardTilePayload {
  static constexpr int num_tiles = kTiles;
  static constexpr uint32_t a_bytes = kABytes, b_bytes = kBBytes, bytes_per_tile = kABytes + kBBytes;
  uint32_t a_base, b_base;

  __device__ __forceinline__ uint32_t a(int tile) const { return a_base + static_cast<uint32_t>(tile) * kABytes; }
  __device__ __forceinline__ uint32_t b(int tile) const { return b_base + static_cast<uint32_t>(tile) * kBBytes; }
};

/// As above, and kScales f32 with each, kPitch bytes from one tile's to the next.
template <uint32_t kABytes, uint32_t kBBytes, int kScales, uint32_t kPitch, int kTiles>
struct ScaledTilePayload : StandardTilePayload<kABytes, kBBytes, kTiles> {
  static constexpr uint32_t bytes_per_tile = kABytes + kBBytes + kScales * 4;
  static_assert(kScales * 4 <= kPitch && kPitch % 128 == 0, "room for the scales, aligned for TMA");
  uint32_t scales_base;

  __device__ __forceinline__ uint32_t scales(int tile) const {
    return scales_base + static_cast<uint32_t>(tile) * kPitch;
  }
};

/// As StandardTilePayload, and atoms of 8-bit scales of both operands, kept as tcgen05.cp copies them to tensor memory:
/// 512 bytes for 128 rows. kCopiedBytes: those of a tile that TMA brings; threads put the others in their places.
template <uint32_t kABytes, uint32_t kBBytes, uint32_t kScaleABytes, uint32_t kScaleBBytes, uint32_t kCopiedBytes,
          int kTiles>
struct BlockScaledTilePayload : StandardTilePayload<kABytes, kBBytes, kTiles> {
  static constexpr uint32_t bytes_per_tile = kABytes + kBBytes + kCopiedBytes;
  static_assert(kScaleABytes % 512 == 0 && kScaleBBytes % 512 == 0, "whole atoms");
  uint32_t scales_a_base, scales_b_base;

  __device__ __forceinline__ uint32_t scales_a(int tile) const {
    return scales_a_base + static_cast<uint32_t>(tile) * kScaleABytes;
  }
  __device__ __forceinline__ uint32_t scales_b(int tile) const {
    return scales_b_base + static_cast<uint32_t>(tile) * kScaleBBytes;
  }
};

/// One role's view of the input ring. kClusterScope: CTAs of a cluster write into each other's slots, and let go of
/// each other's.
template <class PayloadT, int kStages, int kKGroup = 1, bool kClusterScope = false>
class InputTilePipeline {
 public:
  using Payload = PayloadT;
  static_assert(kStages % kKGroup == 0, "a slot holds k_group whole tiles");
  static_assert(Payload::num_tiles == kStages, "a payload has the ring's tiles");
  static constexpr int num_group_stages = kStages / kKGroup, k_group = kKGroup;
  static constexpr uint32_t group_bytes = Payload::bytes_per_tile * kKGroup;
  using Ring = StagedPipeline<num_group_stages, 1, kClusterScope>;
  static constexpr uint32_t barrier_bytes = Ring::bytes;

  /// A slot while a role holds it.
  struct Stage {
    Payload payload;
    uint32_t index, full;
    /// Tile j of the group, 0 to k_group - 1, for the payload's functions.
    __device__ __forceinline__ int tile(int j) const { return static_cast<int>(index) * kKGroup + j; }
  };

  __device__ __forceinline__ const Payload& payload() const { return payload_; }

  static __device__ __forceinline__ void init(uint32_t barriers, uint32_t producer_arrivals,
                                              uint32_t consumer_arrivals) {
    Ring::init(barriers, producer_arrivals, consumer_arrivals);
  }

 protected:
  __device__ __forceinline__ InputTilePipeline(const Ring& ring, const Payload& payload)
      : ring_(ring), payload_(payload) {}
  __device__ __forceinline__ Stage stage() const {
    return {payload_, ring_.state.index, ring_.full(ring_.state.index)};
  }
  Ring ring_;
  Payload payload_;
};

/// The loading thread's side.
template <class Pipeline>
class InputProducer : public Pipeline {
 public:
  using typename Pipeline::Payload, typename Pipeline::Ring, typename Pipeline::Stage;
  __device__ __forceinline__ InputProducer(uint32_t barriers, const Payload& payload)
      : Pipeline(Ring::producer(barriers), payload) {}

  /// The next slot, once all consumers have let go of it. Its barrier is to be armed with the bytes that will land in
  /// this CTA, whoever sends them.
  __device__ __forceinline__ Stage acquire() {
    this->ring_.producer_wait();
    return this->stage();
  }
  __device__ __forceinline__ static void expect_bytes(const Stage& stage, uint32_t bytes) {
    ptx::mbarrier_arrive_expect_tx(stage.full, bytes);
  }
  /// On to the next slot: the copies themselves complete this one.
  __device__ __forceinline__ void step() { this->ring_.step(); }
  /// At the end, where CTAs of a cluster arrive on each other's barriers.
  __device__ __forceinline__ void drain() { this->ring_.drain(); }
};

/// A multiplying warp's side.
template <class Pipeline>
class InputConsumer : public Pipeline {
 public:
  using typename Pipeline::Payload, typename Pipeline::Ring, typename Pipeline::Stage;
  __device__ __forceinline__ InputConsumer(uint32_t barriers, const Payload& payload)
      : Pipeline(Ring::consumer(barriers), payload) {}

  /// Whether the next slot has landed, without waiting. The answer is some 30 clocks away: ask, work, acquire(answer).
  __device__ __forceinline__ bool try_acquire() const { return this->ring_.consumer_test(); }
  /// The next slot, once it has landed. `landed`: what try_acquire() said of this very slot.
  __device__ __forceinline__ Stage acquire(bool landed = false) {
    if (!landed) this->ring_.consumer_wait();
    return this->stage();
  }
  __device__ __forceinline__ void step() { this->ring_.step(); }
  /// Lets go of slot `index`, in the way that `signal` says: behind products that are still running no plain arrival
  /// would do.
  template <class Signal>
  __device__ __forceinline__ void release(uint32_t index, const Signal& signal) const {
    this->ring_.release(index, signal);
  }
  /// Passes over `groups` slots that are another consumer's.
  __device__ __forceinline__ void skip(int groups) {
    if (groups == 0) return;
    const uint32_t sum = this->ring_.state.index + static_cast<uint32_t>(groups);
    constexpr uint32_t kCount = Pipeline::num_group_stages;
    this->ring_.state.phase ^= sum / kCount & 1;
    this->ring_.state.index = sum % kCount;
  }
};

}  // namespace kernelwright::pipeline
