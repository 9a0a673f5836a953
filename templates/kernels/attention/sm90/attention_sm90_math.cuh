/// A math warpgroup of attention_sm90: scores, softmax and output of 64 query rows, step by step.
#pragma once

#include "kernels/attention/sm90/attention_sm90_keys.cuh"
#include "kernels/attention/sm90/attention_sm90_queries.cuh"
#include "kernels/attention/sm90/attention_sm90_rows.cuh"
#include "kernels/attention/sm90/attention_sm90_scores.cuh"
#include "kernels/attention/sm90/attention_sm90_tiles.cuh"
#include "mma/sm90.cuh"
#include "policy/item_record.cuh"
#include "policy/score_mod.cuh"
#include "policy/scores.cuh"
#include "ptx/barrier.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

class MathWarpgroup : policy::HiddenKeys<kMathCleansFirst>, QueryFactors<kSplitsQ>, Scales, KeyScales, Promotion {
 public:
  __device__ __forceinline__ MathWarpgroup(const HopperAttentionParams& params, const Shared& shared,
                                           uint32_t warpgroup)
      : params_(params.attention),
        shared_(shared),
        warpgroup_(warpgroup),
        lane_(threadIdx.x % 32),
        scale_{softmax_scale_of(params_.scale)},
        queries_(QueryRing::consumer(shared.query_barriers())),
        items_(ItemRing::consumer()),
        tiles_(shared.kv_barriers(), shared.keys(), shared.values(), {threadIdx.x % 32}),
        turns_(warpgroup) {}

  __device__ __forceinline__ void run() {
    begin_sums(halves());
    if constexpr (kSkipsRows)
      run_where_rows_are();
    else
      run_all();
    turns_.finish();
  }

 private:
  __device__ __forceinline__ void run_all() {
    if (take_item()) {
      issue_first_scores();
      for (;;) {
        walk_tiles();
        const DoneItem done = leave_item();
        if (!take_item()) {
          end_item(done, false);
          break;
        }
        cross_over(done);
      }
    }
  }

  /// The same for kernels in which items may have no rows of this warpgroup: it then only keeps step with the others.
  __device__ __forceinline__ void run_where_rows_are() {
    DoneItem done{};
    bool started = false, worked = false;
    for (;;) {
      const bool more = take_item();
      // This is read even if there is no further item: uniform() must not stand behind a condition.
      const int rows = ptx::uniform(item_.num_rows());
      const bool works = more && rows > static_cast<int>(warpgroup_ * 64);
      if (worked && works) {
        cross_over(done);
      } else {
        const bool idles = more && !works;
        if (idles) pass_keys();
        if (worked) {
          end_item(done, idles);
        } else if (!works) {
          if (started) pass_values();
          if (idles) pass_turn();
        }
        if (works)
          issue_first_scores(started && !worked);
        else
          note_last_keys();
      }
      if (!more) break;
      // This runs for every item, whichever warpgroups worked on it. ptxas would take a branch around it for one that
      // differs between lanes. It would then move the operands of products out of uniform registers. (In run_all()
      // ptxas does so here, and not in store().)
      if constexpr (kStagesOutput) release(done, started);
      if (works)
        walk_tiles();
      else
        pass_tiles();
      done = leave_item();
      started = true, worked = works;
    }
  }

  // ---- items ----

  /// Steps to the next item; returns false if there is none.
  __device__ __forceinline__ bool take_item() {
    queries_.template consumer_wait<>();
    item_ = {shared_.item(items_.index)};
    walk_ = item_.walk();
    walk_ = {ptx::uniform(walk_.begin), ptx::uniform(walk_.end), ptx::uniform(walk_.full_begin),
             ptx::uniform(walk_.full_end)};
    if constexpr (kSkipsRows && !kOthersClean) posted_keys_ = ptx::uniform(item_.last_keys<kHidesInTiles>());
    items_.step();
    if constexpr (kScaled) take_scales(params_, item_);
    if constexpr (kScaled && !kSplitsQ) scale_ = {exponent_scale_of(score_scale(params_))};
    if constexpr (kKeyScales)
      if (walk_.end >= 0) take_scales_of_keys(params_, item_, limits_of(item_.rows()), row(), lane_);
    if constexpr (PlaceMod::exists) {
#pragma unroll
      for (int r = 0; r < kPlaceHeads; ++r)
        place_heads_[r] = {params_, Rows{item_.rows().head}.q_head(row() + Fragment::row(r))};
    }
    return walk_.end >= 0;
  }

  __device__ __forceinline__ float exponent_scale_of(float scale) const {
    return ScoreMod{scale, params_.softcap}.template exponent_scale<kScaled>(params_.exponent_scale);
  }

  /// Of the softmax. Scores of keys that have scales become exponents.
  __device__ __forceinline__ float softmax_scale_of(float scale) const {
    return kKeyScales ? 1 : exponent_scale_of(scale);
  }

  /// The item's queries have landed, and this warpgroup has rows of them.
  __device__ __forceinline__ void begin_item() {
    if constexpr (kSplitsQ) {
      prepare_queries(own_queries(), warpgroup_);
      scale_ = exponent_scales(softmax_scale_of(score_scale(params_)));
    }
  }
  __device__ __forceinline__ uint32_t own_queries() const {
    return shared_.queries(queries_.state.index) + warpgroup_ * (64 * kRowBytes);
  }

  /// An item whose products are done, except the last one.
  struct DoneItem {
    policy::PostedItem record;
    uint32_t slot;  // of Q
    ExponentScale scale;
  };
  /// Called when Q has been read for the last time. Its slot is released once the output has left through it.
  __device__ __forceinline__ DoneItem leave_item() {
    const DoneItem done{item_, queries_.state.index, scale_};
    if constexpr (!kStagesOutput) release(done);
    if constexpr (kMathCleansFirst)
      hide(ptx::uniform(item_.hidden_keys()));  // of the item's first tile, which comes last
    queries_.step();
    return done;
  }
  __device__ __forceinline__ void release(const DoneItem& done, bool exists = true) {
    __syncwarp();
    if (exists) queries_.release(done.slot, pipeline::WarpRelease<>{lane_});
  }

  __device__ __forceinline__ void add_sinks(Softmax& softmax);  // attention_sm90_store.cuh

  // ---- steps ----

  /// The first step after an item on which only other warpgroups worked, or the first step of all.
  __device__ __forceinline__ void issue_first_scores(bool passes_values = false) {
    begin_item();
    const uint32_t keys = take_keys();
    if constexpr (kSkipsRows) {
      if (passes_values) pass_values();
      softmax_ = Softmax{};
    }
    take_gathered();
    turns_.wait();
    fence();
    if constexpr (kScoresInHalves)
      issue_halves<false>(keys);
    else
      issue_scores(keys);
    turns_.pass();
    ptx::wgmma_wait_group<0>();
    end_scores(walk_.end - 1);
    note_last_keys();
    mask_if_partial(walk_.end - 1);
    add_sinks(softmax_);
    exponentiate<true, false>(softmax_);
    pack();
  }

  /// Walks the key tiles of an item except the first. Only tiles that some row sees in part are masked.
  __device__ __forceinline__ void walk_tiles() {
#pragma unroll 1
    for (int tile = walk_.end - 2; tile >= walk_.begin; --tile) {
      if ((kRisesBehindDiagonal && tile == walk_.end - 2) || walk_.is_partial(tile) || last_keys_ < spec::kBlockN)
        step<true, true>(tile);
      else
        step<false, false>(tile);
    }
  }

  template <bool kMasked, bool kCleans>
  __device__ __forceinline__ void step(int tile) {
    constexpr bool kInHalves = kScoresLandInHalves && !kMasked;
    issue_both<kCleans, true, kInHalves>(tile);
    end_step<kPacksAtOnce>();
    if constexpr (kMasked) mask(tile);
    exponentiate<kMasked, true, kInHalves>(softmax_);
    end_step<!kPacksAtOnce>();
    softmax_.rescale(output_);
    pack();
  }

  /// The first step of an item, together with the last product of the item before.
  __device__ __forceinline__ void cross_over(const DoneItem& done) {
    begin_item();
    issue_both<true, false>(walk_.end - 1);
    end_step<kPacksAtOnce>();
    // Exponentials must follow the branches of store(), packed or not. Otherwise ptxas joins those branches at the
    // loop's end, takes the state of rings for one that differs between lanes, and moves descriptors out of uniform
    // registers.
    if constexpr (kPacksAtOnce) store(done, softmax_, output_);
    note_last_keys();
    mask_if_partial(walk_.end - 1);
    Softmax fresh;
    add_sinks(fresh);
    exponentiate<true, false>(fresh);
    end_step<!kPacksAtOnce>();
    if constexpr (!kPacksAtOnce) store(done, softmax_, output_);
    softmax_ = fresh;
    pack();
    accumulate_ = false;
    mma::forget<kNarrow>(output_);
  }

  /// The last product of an item that no other item follows at once.
  __device__ __forceinline__ void end_item(const DoneItem& done, bool takes_turn) {
    const uint32_t values = take_values<true>();
    take_gathered();
    if (takes_turn) turns_.wait();
    fence();
    issue_output(values);
    if (takes_turn) turns_.pass();
    end_output();
    store(done, softmax_, output_);
    accumulate_ = false;
    mma::forget<kNarrow>(output_);
  }

  // ---- steps of an item that has no rows of this warpgroup: attention_sm90_pass.cuh ----

  __device__ __forceinline__ void pass_keys();
  __device__ __forceinline__ void pass_values();
  __device__ __forceinline__ void pass_turn();
  __device__ __forceinline__ void pass_tiles();

  /// kEndsRuns: a run of products may end ahead of this product with V. The last one of an item joins the run before.
  /// kInHalves: the scores are still on their way.
  template <bool kCleans, bool kEndsRuns, bool kInHalves = false>
  __device__ __forceinline__ void issue_both(int tile) {
    // A warpgroup that may have to clean values together with the others does so ahead of its turn.
    constexpr bool kLooksAhead = kCleans || !kInStages;
    const uint32_t keys = take_keys();
    uint32_t values = 0;
    if constexpr (kLooksAhead) values = take_values<kCleans>();
    take_gathered();
    turns_.wait();
    fence();
    if constexpr (kOneProduct) {
      if constexpr (kEndsRuns) join_run();
      issue_output(values);
      if constexpr (kPartsTakeTurns) {
        ptx::wgmma_fence();  // the last part goes on
      } else {
        end_output();
        fence();
      }
    }
    if constexpr (kScoresInHalves)
      issue_halves<true>(keys);
    else
      issue_scores(keys);
    if constexpr (!kLooksAhead) {
      values = take_values<false>();
      take_more();
    }
    if constexpr (kEndsRuns && !kOneProduct) join_run();
    if constexpr (!kOneProduct) issue_output(values);
    turns_.pass();
    if constexpr (kPartsTakeTurns && !kScoresInHalves) end_output<1>();
    if constexpr (kInHalves) return;
    ptx::wgmma_wait_group<kOneProduct ? 0 : 1>();
    end_scores(tile);
  }

  // ---- scores in halves: attention_sm90_halves.cuh ----

  using HalfScores = float[spec::kBlockN / 4];
  template <int kHalf>
  __device__ __forceinline__ HalfScores& half_scores();
  template <int kHalf>
  __device__ __forceinline__ void end_half_scores();
  template <bool kBehindParts>
  __device__ __forceinline__ void issue_halves(uint32_t keys);
  template <bool kRises, class OnlineSoftmax, class Rescale>
  __device__ __forceinline__ void exponentiate_halves(OnlineSoftmax& softmax, const Rescale& rescale);

  // ---- tiles of V: attention_sm90_values.cuh ----

  template <bool kCleans>
  __device__ __forceinline__ uint32_t take_values();
  __device__ __forceinline__ void clean_first(uint32_t values);
  __device__ __forceinline__ void note_last_keys();
  __device__ __forceinline__ bool foreign_keys() const;

  // ---- products ----

  /// Gathering threads write rows in the generic proxy; wgmma reads them in the async proxy. Call it before a turn:
  /// inside, it would only make the turn longer.
  __device__ __forceinline__ void take_gathered() {
    if constexpr (kGathersKv) ptx::fence_proxy_async_shared();
  }
  /// Behind a wait amid products: ptxas keeps their registers across the wait only with a fence of its own.
  __device__ __forceinline__ void take_more() {
    take_gathered();
    ptx::wgmma_fence();
  }
  __device__ __forceinline__ void fence() {
    ptx::pin_registers<kPinnedAtOnce>(scores_);
    ptx::pin_registers<kPinnedAtOnce>(output_);
    ptx::pin_registers(probabilities_);
    Promotion::pin();
    ptx::wgmma_fence();
  }
  /// Waits for the next tile of K: for all of it, or for its first sub-stage.
  __device__ __forceinline__ uint32_t take_keys() {
    if constexpr (kInStages)
      return tiles_.template wait_k<0>();
    else
      return tiles_.wait_whole_k();
  }
  /// Multiplies share kStage of the sum, which has landed, and the later shares as they land.
  template <int kStage = 0>
  __device__ __forceinline__ void issue_scores(uint32_t keys) {
    if constexpr (kSplitsQ)
      mma::issue_term_scores<spec::kKvDType, spec::kHeadDimQk, shape().key_row(), spec::kBlockM, spec::kBlockN,
                             spec::kSwizzleBytes, shape().key_swizzle()>(scores_, own_queries(), keys);
    else
      mma::issue_scores<computed(), shape().score_depth(), spec::kBlockM, spec::kBlockN, spec::kSwizzleBytes, kStage,
                        kKeyStages>(scores_, own_queries(), keys);
    if constexpr (kStage + 1 < kKeyStages) {
      const uint32_t more = tiles_.template wait_k<kStage + 1>();
      take_more();
      issue_scores<kStage + 1>(more);
    }
  }
  /// For policy::modify(): the rows of the thread's scores in `tile`.
  __device__ __forceinline__ auto place_rows(int tile) const {
    const policy::ItemRecord::Rows item = item_.rows();
    const int key = tile * spec::kBlockN + lane_ % 4 * 2 - item.diagonal;
    return [this, item, key](int r) {
      return PlaceMod(place_heads_[spec::kPackGqa ? r : 0],
                      key - Rows::query(item.first_row + row() + Fragment::row(r)));
    };
  }
  __device__ __forceinline__ void end_scores(int tile) {
    ptx::pin_registers<kPinnedAtOnce>(scores_);
    tiles_.release_whole_k();
    take_factors(Fragment{scores_});
    scale_by_keys(params_, Fragment{scores_});
    const ScoreMod score_mod{score_scale(params_), params_.softcap};
    policy::modify(Fragment{scores_}, score_mod, [&] { return place_rows(tile); });
    policy::take_sign(Fragment{scores_}, score_mod);
    if constexpr (OpenRow::exists) open_scores(params_, item_, limits_of(item_.rows()), row(), tile, Fragment{scores_});
  }
  /// Multiplies share kStage of the sum, which has landed, and the later shares as they land.
  template <int kStage = 0>
  __device__ __forceinline__ void issue_output(uint32_t values) {
    if constexpr (kNarrow)
      issue(scores_, output_, probabilities_, values, accumulate_);
    else
      mma::issue_output<computed(), spec::kHeadDimV, spec::kBlockN, kValueSwizzleBytes, kStage, kValueStages,
                        !kKeysInside>(output_, probabilities_, values, accumulate_);
    if constexpr (kStage + 1 < kValueStages) {
      const uint32_t more = tiles_.template wait_v<kStage + 1>();
      take_more();
      issue_output<kStage + 1>(more);
    } else {
      accumulate_ = true;
    }
  }
  /// Ahead of a product with V: a run may end. The scores' product hides that.
  __device__ __forceinline__ void join_run() {
    if constexpr (kInRuns) {
      begin_product(output_, halves());
      ptx::pin_registers<kPinnedAtOnce>(output_);
      ptx::wgmma_fence();
    }
  }
  /// kPending: groups behind it that go on.
  template <int kPending = 0>
  __device__ __forceinline__ void end_output() {
    if constexpr (!kPacksAtOnce) ptx::pin_registers<kPinnedAtOnce>(scores_);  // else exponentials move behind the wait
    ptx::wgmma_wait_group<kPending>();
    if constexpr (!kPartsTakeTurns) ptx::pin_registers<kPinnedAtOnce>(output_);  // no product in flight writes it
    ptx::pin_registers(probabilities_);
    promote(scores_, output_, probabilities_, tiles_.v_tile());
    tiles_.release_whole_v();
  }
  /// Ends the step's product with V, if the step has not done so already.
  template <bool kHere>
  __device__ __forceinline__ void end_step() {
    if constexpr (kHere && !kOneProduct) end_output();
  }
  /// kRises: rows may have seen no key yet, or much smaller scores.
  /// kRescales, where kPacksAtOnce: the output has the sums so far, which take the factors of references that move.
  /// kInHalves: the second half of the scores is on its way, behind the first one.
  template <bool kRises, bool kRescales, bool kInHalves = false, class OnlineSoftmax>
  __device__ __forceinline__ void exponentiate(OnlineSoftmax& softmax) {
    const auto rescale_row = [this](int r, float factor) {
      if constexpr (kRescales) this->rescale(output_, r, factor);
    };
    if constexpr (kInHalves) return exponentiate_halves<kRises>(softmax, rescale_row);
    to_exponents(Fragment{scores_}, exponent_scale_of(params_.scale));
    if constexpr (kPacksAtOnce)
      softmax.template exponentiate<kRises, false>(
          scores_, scale_, probabilities_, keys(), [] {}, rescale_row);
    else
      softmax.exponentiate(scores_, scale_, keys());
  }
  __device__ __forceinline__ void pack() {
    if constexpr (!kPacksAtOnce) mma::pack<computed(), spec::kBlockN>(scores_, probabilities_);
  }

  // ---- rows ----

  /// The thread's halves of sums. The opaque index keeps the address from holding a register through the loop.
  __device__ __forceinline__ uint32_t halves() const {
    return kKeepsHalves ? shared_.halves(ptx::opaque(threadIdx.x) - 128) : 0;
  }
  __device__ __forceinline__ int row() const { return first_row(warpgroup_, lane_); }

  /// The item's mask, with keys counted as tiles are.
  template <bool kHides = kHidesInTiles>
  __device__ __forceinline__ SpecMask<kHides> limits_of(const policy::ItemRecord::Rows& item) const {
    if constexpr (kHides)
      return SpecMask<kHides>{params_, item.kv_len, item.diagonal, walk_.begin * spec::kBlockN + item_.hidden_keys()};
    else
      return SpecMask<kHides>{params_, item.kv_len, item.diagonal};
  }
  __device__ __forceinline__ void mask_if_partial(int tile) {
    if (walk_.is_partial(tile)) mask(tile);
  }
  __device__ __forceinline__ void mask(int tile);  // attention_sm90_mask.cuh

  using Scores = float[spec::kBlockN / 2];
  using Probabilities = uint32_t[spec::kBlockN * kElementBytes / 32][4];
  using Output = float[kOutputColumns / 2];

  /// attention_sm90_store.cuh
  __device__ __forceinline__ void store(const DoneItem& done, Softmax& softmax, Output& output);
  __device__ __forceinline__ void add_last_sinks(Softmax& softmax, Output& output, const DoneItem& done);
  __device__ __forceinline__ float weight_of(const Softmax& softmax, int r, const DoneItem& done) const;
  __device__ __forceinline__ ExponentScale scale_of(const DoneItem& done) const;

  // HiddenKeys: of the next tile of V, which must be cleaned of them.
  const contract::AttentionParams& params_;
  const Shared shared_;
  const uint32_t warpgroup_, lane_;
  ExponentScale scale_;  // powers of two per unit of score; where keys or rows have a scale, of the item
  QueryRing queries_;
  ItemRing items_;
  Consumer tiles_;
  const Turns turns_;
  policy::PostedItem item_;
  policy::ItemRecord::Walk walk_;  // of the item
  int posted_keys_ = 0;            // of the item's last key tile: keys that are the sequence's
  int last_keys_;                  // of the next tile of V: below block_n, it must be cleaned
  static constexpr int kPlaceHeads = spec::kPackGqa ? 2 : 1;  // rows of one head share theirs
  policy::PlaceHead place_heads_[kPlaceHeads];                // of the item
  Softmax softmax_;
  bool accumulate_ = false;  // whether P V adds to the output
  // The first products overwrite them. But ptxas serialises wgmma on accumulators that were never set (C7515).
  Scores scores_ = {};
  Output output_ = {};
  Probabilities probabilities_ = {};
};

}  // namespace
}  // namespace kernelwright
