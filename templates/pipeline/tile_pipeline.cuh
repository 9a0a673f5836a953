/// The rings of a GEMM. An input ring of operand tiles is between the loading warp and the multiplying warps. An output
/// ring of accumulators is between these and the storing warps. The data of a slot (its payload) is separate from the
/// barriers that say when it may be read and written. So a payload with scales, or with one more operand, changes no
/// protocol.
///
/// A role acquires a slot as a scope. When the scope ends, it signals once that the role is done:
///
///     for (..) {                                            for (..) {
///       const auto stage = producer.acquire();                const auto stage = consumer.acquire(signal);
///       stage.expect_bytes(Pipeline::group_bytes);            for (int j = 0; j < Pipeline::k_group; ++j)
///       for (int j = 0; j < Pipeline::k_group; ++j)             multiply(stage.get_tile(j));
///         load(stage.get_tile(j), stage.full());            }  // releases the slot, and steps on
///     }  // steps on: the copies signal themselves
///
/// A role that is done sooner, later, or in another order says so by name: release_early(), release_later(), or a move.
/// A slot of the ring is a group of k_group tiles, which are full and empty together: small tiles share the cost of a
/// barrier.
#pragma once

#include "pipeline/staged_pipeline.cuh"
#include "pipeline/tile_payload.cuh"

namespace kernelwright::pipeline {

/// The copies into a producer's slot complete it, by their bytes. The stage signals nothing itself.
struct SignalledByCopies {
  __device__ __forceinline__ void operator()(uint32_t) const {}
};

/// A slot that a stage has left to be released later. A plain value: its holder releases the slot, once.
struct HeldSlot {
  uint32_t index;
};

/// A slot while a role holds it. `Signal` is called once, with the barrier that says the role is done.
///
/// At its end a stage signals, and its role steps on to the next slot. So stages of a role begin and end in the order
/// of the ring, one at a time. Slots may be released in any order.
template <class Role, class Signal>
class TileStage {
 public:
  using Payload = typename Role::Pipeline::Payload;

  /// Called by Role::acquire(). The slot that `role` stands on belongs to this stage from here on.
  __device__ __forceinline__ TileStage(Role& role, const Signal& signal)
      : role_(role), payload_(role.payload()), signal_(signal), index_(role.ring_.state.index) {}
  TileStage(const TileStage&) = delete;
  TileStage& operator=(const TileStage&) = delete;
  TileStage& operator=(TileStage&&) = delete;
  /// Moves the slot to the new stage: `from` neither signals nor steps.
  __device__ __forceinline__ TileStage(TileStage&& from)
      : role_(from.role_),
        payload_(from.payload_),
        signal_(from.signal_),
        index_(from.index_),
        signals_(from.signals_),
        steps_(from.steps_) {
    from.signals_ = from.steps_ = false;
  }
  __device__ __forceinline__ ~TileStage() {
    if (signals_) role_.signal(index_, signal_);
    if (steps_) role_.ring_.step();
  }

  /// Tile number j of the group, of all kinds; j is 0 to k_group - 1.
  __device__ __forceinline__ auto get_tile(int j) const { return payload_.get_tile(tile(j)); }
  /// The number of that tile in shared memory, 0 to stages - 1.
  __device__ __forceinline__ int tile(int j) const { return static_cast<int>(index_) * Role::Pipeline::k_group + j; }
  __device__ __forceinline__ uint32_t index() const { return index_; }
  __device__ __forceinline__ const Payload& payload() const { return payload_; }

  /// Signals now; the end then steps only. Must not follow another release.
  __device__ __forceinline__ void release_early() {
    role_.signal(index_, signal_);
    signals_ = false;
  }
  /// The end steps only. The role has to release the slot by Role::release(), late or out of order.
  __device__ __forceinline__ HeldSlot release_later() {
    signals_ = false;
    return {index_};
  }

 protected:
  Role& role_;
  const Payload payload_;
  const Signal signal_;
  const uint32_t index_;
  bool signals_ = true, steps_ = true;
};

/// The loading side's stage.
template <class Role, class Signal = SignalledByCopies>
class InputProducerStage : public TileStage<Role, Signal> {
 public:
  __device__ __forceinline__ InputProducerStage(Role& role, const Signal& signal)
      : TileStage<Role, Signal>(role, signal), full_(role.ring_.full(this->index_)) {}
  /// The barrier that copies complete on.
  __device__ __forceinline__ uint32_t full() const { return full_; }
  /// Arms it with the bytes that will land in this CTA, from any CTA.
  __device__ __forceinline__ void expect_bytes(uint32_t bytes) const { ptx::mbarrier_arrive_expect_tx(full_, bytes); }
  /// One arrival, once this thread's copies so far (cp.async) have landed. Consumers fence behind their wait, if they
  /// read the slot through the async proxy.
  __device__ __forceinline__ void arrive_with_copies() const { ptx::cp_async_mbarrier_arrive_noinc(full_); }

 private:
  const uint32_t full_;
};

/// The multiplying side's stage.
template <class Role, class Signal>
class InputConsumerStage : public TileStage<Role, Signal> {
 public:
  using TileStage<Role, Signal>::TileStage;
};

template <class Pipeline>
class InputProducer;
template <class Pipeline>
class InputConsumer;

/// The input ring, as each thread of a role has it. `PayloadT`: a TilePayload with kStages tiles of each kind.
/// kClusterScope: CTAs of a cluster write into each other's slots, and release each other's slots.
template <class PayloadT, int kStages, int kKGroup = 1, bool kClusterScope = false>
class InputTilePipeline {
  static_assert(TilePayload<PayloadT>::is_trivially_copyable(), "a TilePayload is trivially copyable");
  static_assert(TilePayload<PayloadT>::has_num_tiles(), "a TilePayload has a constant num_tiles: tiles of each kind");
  static_assert(TilePayload<PayloadT>::has_bytes_per_tile(),
                "a TilePayload has a constant bytes_per_tile: what TMA brings for one of each kind");
  static_assert(TilePayload<PayloadT>::has_get_tile(),
                "a TilePayload has get_tile(int) const: addresses of the tiles with one number");

 public:
  using Payload = PayloadT;
  static_assert(kStages % kKGroup == 0, "a slot holds k_group whole tiles");
  static_assert(TilePayload<PayloadT>::template has_tiles<kStages>(), "a payload has the ring's tiles");
  static constexpr int num_group_stages = kStages / kKGroup, k_group = kKGroup;
  static constexpr uint32_t group_bytes = TilePayload<PayloadT>::bytes_per_tile() * kKGroup;
  using Ring = StagedPipeline<num_group_stages, 1, kClusterScope>;
  static constexpr uint32_t barrier_bytes = Ring::bytes;
  using Producer = InputProducer<InputTilePipeline>;
  using Consumer = InputConsumer<InputTilePipeline>;

  /// `barriers`: barrier_bytes of shared memory, at a multiple of 8.
  __device__ __forceinline__ InputTilePipeline(uint32_t barriers, const Payload& payload)
      : barriers_(barriers), payload_(payload) {}
  /// Makes the barriers: StagedPipeline::init(). Unrolled, because an H200 took 1 % less for GEMMs of few rows. Of
  /// attention, one kernel took 1.7 % longer with it, and no other row gained more than 0.6 %.
  static __device__ __forceinline__ void init(uint32_t barriers, uint32_t producer_arrivals,
                                              uint32_t consumer_arrivals) {
    Ring::template init<true>(barriers, producer_arrivals, consumer_arrivals);
  }

  __device__ __forceinline__ Producer producer() const { return {barriers_, payload_}; }
  __device__ __forceinline__ Consumer consumer() const { return {barriers_, payload_}; }

 private:
  uint32_t barriers_;
  Payload payload_;
};

/// The side of the loading thread, or of a warp whose threads load.
template <class PipelineT>
class InputProducer {
 public:
  using Pipeline = PipelineT;
  using Payload = typename Pipeline::Payload;
  using Ring = typename Pipeline::Ring;
  template <class Signal = SignalledByCopies>
  using Stage = InputProducerStage<InputProducer, Signal>;

  __device__ __forceinline__ InputProducer(uint32_t barriers, const Payload& payload)
      : ring_(Ring::producer(barriers)), payload_(payload) {}

  __device__ __forceinline__ const Payload& payload() const { return payload_; }
  /// The next slot, once all consumers have released it.
  template <class Signal = SignalledByCopies>
  __device__ __forceinline__ Stage<Signal> acquire(const Signal& signal = {}) {
    ring_.producer_wait();
    return {*this, signal};
  }
  /// Called at the end, where CTAs of a cluster arrive on each other's barriers.
  __device__ __forceinline__ void drain() { ring_.drain(); }

 private:
  template <class, class>
  friend class TileStage;
  template <class, class>
  friend class InputProducerStage;
  template <class Signal>
  __device__ __forceinline__ void signal(uint32_t index, const Signal& signal) const {
    signal(ring_.full(index));
  }
  Ring ring_;
  Payload payload_;
};

/// A multiplying warp's side.
template <class PipelineT>
class InputConsumer {
 public:
  using Pipeline = PipelineT;
  using Payload = typename Pipeline::Payload;
  using Ring = typename Pipeline::Ring;
  template <class Signal>
  using Stage = InputConsumerStage<InputConsumer, Signal>;

  __device__ __forceinline__ InputConsumer(uint32_t barriers, const Payload& payload)
      : ring_(Ring::consumer(barriers)), payload_(payload) {}

  __device__ __forceinline__ const Payload& payload() const { return payload_; }
  /// Whether the next slot has landed, without a wait. The answer takes some 30 clocks: ask, work, then
  /// acquire(answer).
  __device__ __forceinline__ bool try_acquire() const { return ring_.consumer_test(); }
  /// The next slot, once it has landed. `landed`: what try_acquire() said of this very slot. `signal`: how the slot is
  /// released. Behind products that are still running, a plain arrival is not enough.
  template <class Signal>
  __device__ __forceinline__ Stage<Signal> acquire(const Signal& signal, bool landed = false) {
    if (!landed) ring_.consumer_wait();
    return {*this, signal};
  }
  /// Releases a slot that release_later() returned.
  template <class Signal>
  __device__ __forceinline__ void release(HeldSlot slot, const Signal& signal) const {
    this->signal(slot.index, signal);
  }
  /// Passes over `groups` slots that belong to another consumer.
  __device__ __forceinline__ void skip(int groups) {
    if (groups == 0) return;
    const uint32_t sum = ring_.state.index + static_cast<uint32_t>(groups);
    constexpr uint32_t kCount = Pipeline::num_group_stages;
    ring_.state.phase ^= sum / kCount & 1;
    ring_.state.index = sum % kCount;
  }

 private:
  template <class, class>
  friend class TileStage;
  template <class Signal>
  __device__ __forceinline__ void signal(uint32_t index, const Signal& signal) const {
    ring_.release(index, signal);
  }
  Ring ring_;
  Payload payload_;
};

/// The same for tiles of A and of B alone.
template <uint32_t kABytes, uint32_t kBBytes, int kStages, int kKGroup = 1, bool kClusterScope = false>
using TilePipeline = InputTilePipeline<StandardTilePayload<kABytes, kBBytes, kStages>, kStages, kKGroup, kClusterScope>;
template <class Pipeline>
using TileProducer = InputProducer<Pipeline>;
template <class Pipeline>
using TileConsumer = InputConsumer<Pipeline>;
/// The type of a role's stage, for a pipeline.
template <class Pipeline, class Signal = SignalledByCopies>
using ProducerStage = typename TileProducer<Pipeline>::template Stage<Signal>;
template <class Pipeline, class Signal>
using ConsumerStage = typename TileConsumer<Pipeline>::template Stage<Signal>;

}  // namespace kernelwright::pipeline
