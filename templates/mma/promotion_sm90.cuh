/// fp8 products of attention on wgmma: how sums of P V leave the tensor cores, which keep too few bits of long ones.
#pragma once

#include "contract/attention_sm90.h"
#include "contract/shared_slab.h"
#include "contract/words.h"
#include "mma/sm90.cuh"
#include "ptx/memory.cuh"
#include "ptx/wgmma.cuh"
#include "tile/element.cuh"

namespace kernelwright::mma {

/// Undoes the order of rows of a transposed V: registers of a lane change places.
template <int kColumns, int kCount>
__device__ __forceinline__ void in_natural_order(float (&output)[kCount]) {
#pragma unroll
  for (int i = 0; i < kColumns / 2; i += 8)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float kept = output[i + 2 * r + 1];
      output[i + 2 * r + 1] = output[i + 4 + 2 * r];
      output[i + 4 + 2 * r] = kept;
    }
}

/// What RunPromotion does beside issue() and promote(), where there are no runs.
struct NoRuns {
  __device__ __forceinline__ static void begin_sums(uint32_t) {}
  template <class Output>
  __device__ __forceinline__ static void begin_product(Output&, uint32_t) {}
  template <int kValues, class Output>
  __device__ __forceinline__ static void end_probabilities(Output&, uint32_t) {}
  template <int kValues, class Output>
  __device__ __forceinline__ static void end_sums(Output&, uint32_t) {}
  /// Multiplies the sums of the threads' rows r.
  template <int kCount>
  __device__ __forceinline__ static void rescale(float (&output)[kCount], int r, float factor) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (i / 2 % 2 == r) output[i] *= factor;
  }
};

/// Hopper's tensor cores keep too few bits of long sums of fp8. So each product with V starts from zero, in registers
/// of its own, and is added to the output by ordinary additions. A wide output has registers for a part of it alone,
/// and its product comes in several groups, one behind the other (contract::group_columns()). kShares: a product takes
/// the registers of scores, which the caller no longer needs (contract::shares_scores()). A base class, for kExists:
/// otherwise it takes no room. kDepth: rows of V, one for each column of the output.
template <bool kExists, bool kShares, DType kType, int kDepth, int kKeys, int kSwizzleBytes>
class Promotion : protected NoRuns {
  enum : int { kColumns = kDepth - contract::kSumRows, kPart = kShares ? kKeys : contract::group_columns(kColumns) };
  enum : int {
    kParts = kColumns / kPart,
    kWidest = kShares ? int{kPart} : contract::group_width(kColumns),
    kSums = contract::kSumRows / 2
  };
  float own_[kShares ? int{kSums} : kWidest / 2] = {};

  /// The registers of a product: the first of the scores, or its own.
  using Part = float[kWidest / 2];
  template <int kCount>
  __device__ __forceinline__ Part& part(float (&scores)[kCount]) {
    static_assert(!kShares || kCount == kWidest / 2, "a product is as wide as scores");
    if constexpr (kShares)
      return reinterpret_cast<Part&>(scores);
    else
      return own_;
  }

 protected:
  __device__ __forceinline__ void pin() { ptx::pin_registers(own_); }
  /// Issues the product of part kIndex, as wide as the last: ptxas gives other widths other registers. Leaves one group
  /// in flight.
  template <int kIndex = 0, int kScores, int kCount, int kSteps>
  __device__ __forceinline__ void issue(float (&scores)[kScores], float (&)[kCount],
                                        const uint32_t (&probabilities)[kSteps][4], uint32_t values,
                                        bool /*accumulate*/) {
    issue_narrow_output<kType, kWidest, kDepth, kKeys, kSwizzleBytes>(
        part(scores), probabilities, values + kIndex * kPart * contract::slab_width(kSwizzleBytes));
    if constexpr (kShares && kIndex + 1 == kParts)
      issue_narrow_output<kType, contract::kSumRows, kDepth, kKeys, kSwizzleBytes>(
          own_, probabilities, values + kColumns * contract::slab_width(kSwizzleBytes));
  }
  /// The product of part kIndex has ended: adds it to the output, and multiplies the parts behind it.
  template <int kIndex = 0, int kScores, int kCount, int kSteps>
  __device__ __forceinline__ void promote(float (&scores)[kScores], float (&output)[kCount],
                                          const uint32_t (&probabilities)[kSteps][4], uint32_t values) {
    Part& part = this->part(scores);
    ptx::pin_registers(part);
    if constexpr (kShares && kIndex + 1 == kParts) {
      ptx::pin_registers(own_);
#pragma unroll
      for (int i = 0; i < kSums; ++i) output[kColumns / 2 + i] += own_[i];
    }
#pragma unroll
    for (int i = 0; i < (kIndex + 1 < kParts ? int{kPart} : int{kWidest}) / 2; ++i)
      output[kIndex * kPart / 2 + i] += part[i];
    if constexpr (kIndex + 1 < kParts) {
      ptx::pin_registers(output);  // else additions wait, and the next product takes other registers
      ptx::pin_registers(part);
      ptx::wgmma_fence();
      issue<kIndex + 1>(scores, output, probabilities, values, false);
      ptx::wgmma_wait_group<0>();
      promote<kIndex + 1>(scores, output, probabilities, values);
    }
  }
};
template <bool kShares, DType kType, int kDepth, int kKeys, int kSwizzleBytes>
class Promotion<false, kShares, kType, kDepth, kKeys, kSwizzleBytes> : protected NoRuns {
 protected:
  __device__ __forceinline__ static void pin() {}
  template <class Scores, class Output, class Probabilities>
  __device__ __forceinline__ static void issue(Scores&, Output&, const Probabilities&, uint32_t, bool) {}
  template <class Scores, class Output, class Probabilities>
  __device__ __forceinline__ static void promote(Scores&, Output&, const Probabilities&, uint32_t) {}
};

/// The same where parts take turns between two tiles of registers. A part is added to the output while the next one
/// multiplies, so the tensor cores do not wait for additions. Both tiles are halves of the registers of scores, or one
/// is all of those and the other is here (contract::parts_lie_in_scores()). The last part is in the second tile: the
/// next product of scores may take the first one at once.
template <DType kType, int kDepth, int kKeys, int kSwizzleBytes>
class AlternatingPromotion : protected NoRuns {
  enum : bool { kInScores = contract::parts_lie_in_scores(kKeys) };
  enum : int {
    kColumns = kDepth - contract::kSumRows,
    kPart = contract::turn_columns(kKeys),
    kParts = kColumns / kPart
  };
  static_assert(kColumns % kPart == 0 && kParts >= 2, "parts to alternate");
  float other_[kInScores ? 1 : kPart / 2] = {};
  float sums_[contract::kSumRows / 2] = {};  // of probabilities

  using Scores = float[kKeys / 2];
  using Part = float[kPart / 2];
  template <int kIndex>
  __device__ __forceinline__ Part& part(Scores& scores) {
    if constexpr ((kParts - kIndex) % 2 == 0)
      return reinterpret_cast<Part&>(scores);
    else if constexpr (kInScores)
      return reinterpret_cast<Part&>(scores[kPart / 2]);
    else
      return other_;
  }
  template <int kIndex, int kSteps>
  __device__ __forceinline__ void issue_part(Scores& scores, const uint32_t (&probabilities)[kSteps][4],
                                             uint32_t values) {
    multiply_narrow<kType, kPart, kDepth, kKeys, kSwizzleBytes>(
        part<kIndex>(scores), probabilities, values + kIndex * kPart * contract::slab_width(kSwizzleBytes), 0);
    if constexpr (kIndex + 1 == kParts)
      multiply_narrow<kType, contract::kSumRows, kDepth, kKeys, kSwizzleBytes>(
          sums_, probabilities, values + kColumns * contract::slab_width(kSwizzleBytes), 0);
    ptx::wgmma_commit_group();
  }
  template <int kIndex, int kCount>
  __device__ __forceinline__ void add(Scores& scores, float (&output)[kCount]) {
    Part& part = this->part<kIndex>(scores);
    ptx::pin_registers<4>(part);
#pragma unroll
    for (int i = 0; i < kPart / 2; ++i) output[kIndex * kPart / 2 + i] += part[i];
    ptx::pin_registers<4>(output);  // else additions wait, and the next product takes other registers
  }

 protected:
  __device__ __forceinline__ void pin() {
    if constexpr (!kInScores) ptx::pin_registers<4>(other_);
    ptx::pin_registers<4>(sums_);
  }
  /// Issues all parts, and adds all but the last to the output. Leaves one group in flight: the last part. The next
  /// product may take the registers of scores, or the first half of them, behind a fence.
  template <int kCount, int kSteps>
  __device__ __forceinline__ void issue(Scores& scores, float (&output)[kCount],
                                        const uint32_t (&probabilities)[kSteps][4], uint32_t values,
                                        bool /*accumulate*/) {
    issue_part<0>(scores, probabilities, values);
    issue_behind<1>(scores, output, probabilities, values);
  }
  /// The last part has ended.
  template <int kCount, int kSteps>
  __device__ __forceinline__ void promote(Scores& scores, float (&output)[kCount], const uint32_t (&)[kSteps][4],
                                          uint32_t) {
    ptx::pin_registers<4>(sums_);
#pragma unroll
    for (int i = 0; i < contract::kSumRows / 2; ++i) output[kColumns / 2 + i] += sums_[i];
    add<kParts - 1>(scores, output);
  }

 private:
  template <int kIndex, int kCount, int kSteps>
  __device__ __forceinline__ void issue_behind(Scores& scores, float (&output)[kCount],
                                               const uint32_t (&probabilities)[kSteps][4], uint32_t values) {
    if constexpr (kIndex < kParts) {
      issue_part<kIndex>(scores, probabilities, values);
      ptx::wgmma_wait_group<1>();
      add<kIndex - 1>(scores, output);
      if constexpr (kIndex + 1 < kParts) ptx::wgmma_fence();
      issue_behind<kIndex + 1>(scores, output, probabilities, values);
    }
  }
};

/// The same interface where nothing is promoted: a product adds to the output itself, within the tensor cores.
template <DType kType, int kSwizzleBytes>
class NoPromotion : protected Promotion<false, false, kType, 0, 0, kSwizzleBytes> {
 protected:
  /// output += P V: all columns of it, and the sums of probabilities. An item begins with zeros (forget()): a predicate
  /// that says so would have to become uniform in every step. Leaves one group in flight.
  template <class Scores, int kCount, int kSteps>
  __device__ __forceinline__ static void issue(Scores&, float (&output)[kCount],
                                               const uint32_t (&probabilities)[kSteps][4], uint32_t values,
                                               bool /*accumulate*/) {
    constexpr int kDepth = kCount * 2, kWide = contract::summed_columns(kDepth - contract::kSumRows);
    multiply_narrow<kType, kWide, kDepth, kSteps * 32, kSwizzleBytes>(reinterpret_cast<float(&)[kWide / 2]>(output),
                                                                      probabilities, values, 1);
    if constexpr (kWide < kDepth)
      multiply_narrow<kType, contract::kSumRows, kDepth, kSteps * 32, kSwizzleBytes>(
          reinterpret_cast<float(&)[contract::kSumRows / 2]>(output[kWide / 2]), probabilities,
          values + kWide * contract::slab_width(kSwizzleBytes), 1);
    ptx::wgmma_commit_group();
  }
};

/// Takes bf16 halves of two sums away from them. What is left is exact. The first half is the nearest bf16. The second
/// has the bits of the first behind its own, which saves the instruction that would clear them. (With halves cut by bit
/// masks, ptxas moves most sums to other registers in every step.)
__device__ __forceinline__ uint32_t take_halves(float& first, float& second) {
  const uint32_t pair = tile::Element<DType::kBf16>::pack(first, second);
  first -= __uint_as_float(pair << 16), second -= __uint_as_float(pair);
  return pair;
}
/// Adds such halves, times `factor`.
__device__ __forceinline__ void add_halves(float& first, float& second, uint32_t pair, float factor) {
  first = fmaf(__uint_as_float(pair << 16), factor, first);
  second = fmaf(__uint_as_float(pair), factor, second);
}

/// Upper halves of a thread's sums, in registers. The sums are those of kColumns columns of two rows. Halves are
/// multiplied by the factors of their rows when they are added. `at` is for SharedHalves.
template <int kColumns>
class OwnHalves {
  uint32_t pairs_[kColumns / 4] = {};

 public:
  using Sums = float[kColumns / 2];
  __device__ __forceinline__ void clear(uint32_t /*at*/) {
#pragma unroll
    for (uint32_t& pair : pairs_) pair = 0;
  }
  /// Of the sums from kFirst to kEnd, a multiple of four.
  template <int kFirst = 0, int kEnd = kColumns / 2>
  __device__ __forceinline__ void add_to(Sums& sums, const float (&factor)[2], uint32_t /*at*/) const {
#pragma unroll
    for (int i = kFirst / 2; i < kEnd / 2; ++i) add_halves(sums[2 * i], sums[2 * i + 1], pairs_[i], factor[i % 2]);
  }
  __device__ __forceinline__ void take(Sums& sums, uint32_t /*at*/) {
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) pairs_[i] = take_halves(sums[2 * i], sums[2 * i + 1]);
  }
};

/// The same in shared memory, [kColumns / 8][kThreads] of 8 bytes: a pair of each row. `at` is the thread's first. No
/// other thread reads them.
template <int kColumns, int kThreads>
class SharedHalves {
  enum : int { kCount = kColumns / 8, kStep = kThreads * 8 };
  static_assert(kColumns % 8 == 0, "pairs of both rows");

 public:
  using Sums = float[kColumns / 2];
  __device__ __forceinline__ static void clear(uint32_t at) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) ptx::st_shared_u64(at + i * kStep, 0);
  }
  template <int kFirst = 0, int kEnd = kColumns / 2>
  __device__ __forceinline__ static void add_to(Sums& sums, const float (&factor)[2], uint32_t at) {
#pragma unroll
    for (int i = kFirst / 4; i < kEnd / 4; ++i) {
      const uint64_t pairs = ptx::ld_shared_u64(at + i * kStep);
#pragma unroll
      for (int r = 0; r < 2; ++r)
        add_halves(sums[4 * i + 2 * r], sums[4 * i + 2 * r + 1], static_cast<uint32_t>(pairs >> 32 * r), factor[r]);
    }
  }
  __device__ __forceinline__ static void take(Sums& sums, uint32_t at) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const uint32_t first = take_halves(sums[4 * i], sums[4 * i + 1]);
      const uint64_t second = take_halves(sums[4 * i + 2], sums[4 * i + 3]);
      ptx::st_shared_u64(at + i * kStep, second << 32 | first);
    }
  }
};

/// Promotion after a run of kTiles products. Within a run, products add to the output itself, in the tensor cores.
/// Behind it the upper half of each sum, a bf16, moves to registers of its own or to shared memory. The rest stays in
/// the output, so that no bit is lost. It is small: the tensor cores keep their bits of what the next run adds to it.
/// `at`: the thread's halves in shared memory.
///
/// A step whose references move notes the factors of the halves. The halves take them when the run ends: ptxas moves
/// registers in every step if some step may touch the halves elsewhere.
template <DType kType, int kSwizzleBytes, int kTiles, class Halves>
class RunPromotion : protected NoPromotion<kType, kSwizzleBytes> {
  Halves halves_;
  float factor_[2] = {1, 1};  // powers of two
  int left_ = kTiles;         // products of the run

 protected:
  using Sums = typename Halves::Sums;
  __device__ __forceinline__ void begin_sums(uint32_t at) { halves_.clear(at); }
  /// Called ahead of a product, when the one before has ended.
  __device__ __forceinline__ void begin_product(Sums& output, uint32_t at) {
    if (left_ == 0) {
      halves_.add_to(output, factor_, at);
      halves_.take(output, at);
      begin_run();
    }
    --left_;
  }
  /// The item's last product has ended. First the sums from kValues on become whole, those of probabilities, and with
  /// end_sums() the others.
  template <int kValues>
  __device__ __forceinline__ void end_probabilities(Sums& output, uint32_t at) const {
    halves_.template add_to<kValues>(output, factor_, at);
  }
  template <int kValues>
  __device__ __forceinline__ void end_sums(Sums& output, uint32_t at) {
    halves_.template add_to<0, kValues>(output, factor_, at);
    halves_.clear(at);
    begin_run();
  }
  __device__ __forceinline__ void rescale(Sums& output, int r, float factor) {
    NoRuns::rescale(output, r, factor);
    factor_[r] *= factor;
  }

 private:
  __device__ __forceinline__ void begin_run() { factor_[0] = factor_[1] = 1, left_ = kTiles; }
};

/// The sums of fp8 so far have been stored. The next begin at zero. Their registers changed places when they were
/// stored (in_natural_order()), and products would take the new places.
template <bool kNarrow, int kCount>
__device__ __forceinline__ void forget(float (&output)[kCount]) {
  if constexpr (kNarrow)
#pragma unroll
    for (float& sum : output) sum = 0;
}

}  // namespace kernelwright::mma
