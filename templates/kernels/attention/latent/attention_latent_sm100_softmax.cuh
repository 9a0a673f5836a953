/// The warpgroups of attention_latent_sm100 that have the rows: one turns scores into probabilities, the other brings
/// the output along with the rows' maxima. attention_latent_sm100_store.cuh has what follows the last tile.
#pragma once

#include "kernels/attention/latent/attention_latent_sm100_store.cuh"
#include "kernels/attention/latent/attention_latent_sm100_tiles.cuh"
#include "policy/lane_softmax.cuh"
#include "policy/score_mod.cuh"
#include "policy/scores.cuh"
#include "ptx/barrier.cuh"
#include "ptx/memory.cuh"
#include "tile/element.cuh"

namespace kernelwright {
namespace {

/// A thread of the softmax warpgroup. It has a fold of a row: half of the keys of every tile.
class SoftmaxThread {
  using Softmax = policy::LaneSoftmax<spec::kRescale, 0>;
  using Scores = float[kFoldKeys];
  using Fragment = policy::LaneScores<kFoldKeys>;
  enum : int { kPieces = kFoldKeys * 2 / 16 };  // of 16 bytes, of probabilities

 public:
  __device__ __forceinline__ SoftmaxThread(const contract::AttentionParams& params, const Work& work,
                                           const Shared& shared, const Tensor& tensor)
      : params_(params),
        work_(work),
        shared_(shared),
        tensor_(tensor),
        bound_{work.tiles.keys.low, work.tiles.keys.high},
        seen_(work.mask.visible(work.item.query(at_.row()))),
        mod_(score_mod(params)),
        scale_(mod_.template exponent_scale<false>(params.exponent_scale)) {}

  __device__ __forceinline__ void run() {
    add_sink();
    const int count = work_.count();
#pragma unroll 1
    for (int n = 0; n < count; ++n) step(n);
    finish(count);
  }

 private:
  /// The tile's first key, counted as in the tile list.
  __device__ int key_of(int n) const { return (work_.tiles.begin + n) * spec::kBlockN; }
  __device__ bool exists() const { return at_.row() < work_.item.num_rows; }

  __device__ __forceinline__ void add_sink() {
    if constexpr (spec::kSinks) {
      if (work_.item.coord.split > 0 || !exists()) return;
      softmax_.add_sink(params_.sinks[work_.item.q_head(at_.row())], scale_);
      if (at_.fold() > 0) softmax_.sum = 0;  // it counts once in the row
    }
  }

  __device__ __forceinline__ void step(int n) {
    Scores scores;
    await(shared_.score_full(n % 2), n / 2);
    ptx::tcgen05_ld(at_.of(tensor_.scores(n % 2)), scores);
    ptx::tcgen05_wait_ld(scores);
    arrive(shared_.score_empty(n % 2));
    policy::modify(Fragment{scores}, mod_, [] { return 0; });
    policy::take_sign(Fragment{scores}, mod_);
    if (work_.tiles.is_partial(work_.tiles.begin + n))
      policy::hide_keys<Mask::hides>(Fragment{scores}, key_of(n) + at_.fold() * kFoldKeys, [&](int) { return seen_; });
    const float factor = softmax_.follow(largest_of_row(scores, n), scale_);
    if (n > 0) {
      // The correction has read the factor of the tile before last: the product of that tile has ended.
      ptx::st_shared_f32(shared_.factor(n % 2, at_.index()), factor);
      __syncwarp();
      if (at_.lane == 0) shared_.factor_full(n % 2).arrive();
    }
    Softmax::template exponentiate<0, kFoldKeys>(scores, scale_, softmax_.offset(scale_));
    float part[2] = {};
#pragma unroll
    for (int i = 0; i < kFoldKeys; i += 2) part[0] += scores[i], part[1] += scores[i + 1];
    softmax_.sum += part[0] + part[1];
    if (n > 0) shared_.output_full().wait(n - 1);  // the product before has read its probabilities
    put_probabilities(scores);
    clean(n);
    pipeline::SignalledByWarp{static_cast<uint32_t>(at_.lane)}(shared_.probability_ready().address);
  }

  /// The largest score of the row in tile n, of both folds. Two places take turns: a thread that writes one has passed
  /// the barrier behind which the other thread read it.
  __device__ __forceinline__ float largest_of_row(const Scores& scores, int n) const {
    float even = scores[0], odd = scores[1];
#pragma unroll
    for (int i = 2; i < kFoldKeys; i += 2) even = fmaxf(even, scores[i]), odd = fmaxf(odd, scores[i + 1]);
    const float own = fmaxf(even, odd);
    ptx::st_shared_f32(shared_.maximum(n % 2, at_.index()), own);
    ptx::bar_sync(kFoldBarrier + at_.warp % 2, kFolds * 32);
    return fmaxf(own, ptx::ld_shared_f32(shared_.maximum(n % 2, at_.twin())));
  }

  __device__ __forceinline__ void put_probabilities(const Scores& scores) const {
    const uint32_t line = shared_.probabilities() + at_.row() * 128;
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const auto word = [&](int i) { return tile::pack_word<spec::kQDType>(scores, piece * 8 + i * 2); };
      ptx::st_shared_v4(line + ((at_.fold() * kPieces + piece) ^ at_.row() % 8) * 16,
                        {word(0), word(1), word(2), word(3)});
    }
  }

  /// Writes zeros to the values of keys that no row sees. Their probabilities are 0, but 0 * NaN is NaN. The scores of
  /// the tile have ended, so nothing reads its keys but the product that waits for this warp.
  __device__ __forceinline__ void clean(int n) const {
    const int first = key_of(n);
    if (bound_.holds_all(first, spec::kBlockN)) return;
#pragma unroll 1
    for (int piece = at_.index(); piece < spec::kBlockN * kValueSlabs * 8; piece += kRoleWarps * 32)
      if (!bound_.holds(first + piece / 8 % spec::kBlockN)) ptx::st_shared_v4(shared_.keys(n % 2) + piece * 16, {});
  }

  __device__ __forceinline__ void finish(int count) {
    if (count > 0) await(shared_.output_full(), count - 1);
    ptx::st_shared_f32(shared_.sum(at_.index()), softmax_.sum);
    ptx::bar_sync(kEndBarrier, kRowThreads);
    softmax_.sum = row_sum(shared_, at_);
    Store<0>(params_, work_.item, shared_, tensor_, at_).run(count, softmax_.inverse());
    if (at_.fold() == 0) store_lse();
  }
  __device__ __forceinline__ void store_lse() const {
    if (!exists()) return;
    const float log2_sum = softmax_.log2_sum(scale_);
    if (params_.num_splits > 1)
      params_.partial_lse[part_offset(params_, work_.item, at_.row())] = log2_sum;
    else if constexpr (spec::kLse)
      params_.lse[work_.item.lse_index(params_, at_.row())] = log2_sum * policy::kLn2;
  }

  const contract::AttentionParams& params_;
  const Work& work_;
  const Shared shared_;
  const Tensor tensor_;
  const Lane at_;
  const Bound bound_;
  const policy::KeyRange seen_;
  const ScoreMod mod_;
  const float scale_;
  Softmax softmax_;
};

/// A thread of the correcting warpgroup. It multiplies its lane of the output by the row's factor where the row's
/// maximum has moved, between two products.
class CorrectionThread {
 public:
  __device__ __forceinline__ CorrectionThread(const contract::AttentionParams& params, const Work& work,
                                              const Shared& shared, const Tensor& tensor)
      : params_(params), work_(work), shared_(shared), tensor_(tensor) {}

  __device__ __forceinline__ void run() {
    const int count = work_.count();
    if (count > 0) arrive(shared_.probability_ready());  // the first product overwrites the output
#pragma unroll 1
    for (int n = 1; n < count; ++n) {
      shared_.factor_full(n % 2).wait((n - 1) / 2);
      const float factor = ptx::ld_shared_f32(shared_.factor(n % 2, at_.index()));
      await(shared_.output_full(), n - 1);
      if (__any_sync(0xffffffff, factor != 1)) rescale(factor);
      arrive(shared_.probability_ready());
    }
    if (count > 0) await(shared_.output_full(), count - 1);
    ptx::bar_sync(kEndBarrier, kRowThreads);
    const float sum = row_sum(shared_, at_);
    Store<1>(params_, work_.item, shared_, tensor_, at_).run(count, sum == 0 ? 0 : 1 / sum);
  }

 private:
  __device__ __forceinline__ void rescale(float factor) const {
    constexpr int kAtOnce = 32;
#pragma unroll 1
    for (int first = 0; first < contract::kLatentOutputs * kColumns.output_columns; first += kAtOnce) {
      const uint32_t columns = at_.of(tensor_.output(0)) + first;  // accumulators lie one behind the other
      float values[kAtOnce];
      ptx::tcgen05_ld(columns, values);
      ptx::tcgen05_wait_ld(values);
#pragma unroll
      for (float& value : values) value *= factor;
      ptx::tcgen05_st(columns, values);
    }
    ptx::tcgen05_wait_st();
  }

  const contract::AttentionParams& params_;
  const Work& work_;
  const Shared shared_;
  const Tensor tensor_;
  const Lane at_;
};

}  // namespace
}  // namespace kernelwright
