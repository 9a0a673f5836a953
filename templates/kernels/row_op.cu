/// A chain of steps over each row of a matrix: sum or merge of two rows or gated product, norm, quantisation. Some
/// threads share a row: a part of a warp, a warp, or a CTA. They issue all loads of the row at once, and keep it in
/// registers from there on, so that memory is read once. Sums and largest magnitudes go over lanes by shuffles, and
/// over warps through shared memory. Every thread adds the warps' sums in one order.
///
/// Where nothing is summed over a row, some CTAs may share it.
///
/// Weights that no launch ahead writes are loaded before the wait for it.
#include "spec.h"

#include "contract/block_scales.h"
#include "contract/row_op.h"
#include "policy/either.cuh"
#include "policy/epilogue.cuh"
#include "policy/row_words.cuh"
#include "policy/score_mod.cuh"
#include "ptx/launch.cuh"

namespace kernelwright {

namespace spec_defaults {
enum : bool { kRoundUp = false };  // not a variable, which would be in every binary
}  // namespace spec_defaults

// A constant of the Spec's own text hides the one of the same name here.
namespace spec {
using namespace spec_defaults;
}  // namespace spec

using Params = policy::Either<spec::kMerges, contract::RowMergeParams, contract::RowOpParams>::type;
using policy::HeadVector;
using Words = policy::RowWords<spec::kInDType>;
using Element = tile::Storage<spec::kInDType>;

enum : bool {
  kAtoms = is_block_scaled(spec::kOutDType),
  kBlocks = spec::kScales == ScaleKind::kPerBlock,
  kOfRow = spec::kScales == ScaleKind::kPerToken,
  kNorm = spec::kNorm != NormKind::kNone,
  kTwoRows = spec::kAdds || spec::kMerges,
  kTwo = kTwoRows || spec::kGated,                  // operands of eight elements each
  kWhole = spec::kVector == policy::kLaneElements,  // of a sector, in one load
  kWholeX = kWhole && (!spec::kGated || spec::kPairs == 0),
  kSumsRow = kNorm || kOfRow,
  kAllExist = spec::kRowsPerCta == 1 && !kAtoms  // rows of CTAs
};
enum : int {
  kThreads = spec::kThreadsPerRow,         // of a CTA
  kLanes = kThreads < 32 ? kThreads : 32,  // of a warp that share a row
  kWarpsOfRow = kThreads / kLanes,
  kRounds = contract::rounds_of_row(contract::walked_elements(spec::kWidth, scale_vector(spec::kOutDType)),
                                    spec::kVector, kThreads* spec::kCtasPerRow),
  kRunsOfVector = spec::kVector / policy::kLaneElements,
  kRuns = kRounds * kRunsOfVector,  // of eight elements that a thread has
  kBlockLanes = kAtoms ? scale_vector(spec::kOutDType) / spec::kVector : contract::kRowScaleBlock / spec::kVector,
  // 1024 threads of an SM leave a thread 64 registers. Long runs of f32, and runs of more than 32 elements, need twice
  // as many. Threads of eight elements that wait for a row's sum need half: more rows are then under way.
  kFew = kRuns == 1 && kSumsRow && !kAtoms && spec::kInDType != DType::kF32,
  kMany = kRuns > 4 || (kRuns > 2 && spec::kInDType == DType::kF32),
  kThreadsOfSm = spec::kArch == 80 || (spec::kArch >= 90 && spec::kArch < 120) ? 2048 : 1536,
  kResident = kFew    ? kThreadsOfSm
              : kMany ? 512
                      : 1024,
  kMostCtas = 16,  // what every SM has room for
  kFitting = kResident / (kThreads * spec::kRowsPerCta),
  kLeastCtas = kFitting < kMostCtas ? kFitting : kMostCtas
};
static_assert(kThreads % 32 == 0 || 32 % kThreads == 0, "a row has whole warps or a power of two lanes");
static_assert(kWarpsOfRow == 1 || spec::kRowsPerCta == 1, "warps of a row meet in their CTA");
static_assert(!kBlocks || kThreads >= kBlockLanes, "a block of scales lies in one warp");
static_assert(!kAtoms || kThreads >= 4 * kBlockLanes, "four scales lie in one warp");
static_assert(spec::kCtasPerRow == 1 || !kSumsRow, "CTAs that share a row do not meet");

/// The elements from a thread's first one to a run.
__device__ __forceinline__ constexpr int distance_to_run(int run) {
  return run / kRunsOfVector * kThreads * spec::kVector + run % kRunsOfVector * policy::kLaneElements;
}
__device__ __forceinline__ int thread_of_row() {
  return static_cast<int>(spec::kRowsPerCta > 1 ? threadIdx.x % kThreads : threadIdx.x);
}
__device__ __forceinline__ int64_t row_of_thread() {
  const int64_t first = int64_t{blockIdx.x / spec::kCtasPerRow} * spec::kRowsPerCta;
  return spec::kRowsPerCta > 1 ? first + threadIdx.x / kThreads : first;
}
/// The first element of a thread. CTAs that share a row are neighbours, so that the memory of a row is read at once.
__device__ __forceinline__ int first_element() {
  const int part = spec::kCtasPerRow > 1 ? static_cast<int>(blockIdx.x % spec::kCtasPerRow) : 0;
  return (part * kRounds * kThreads + thread_of_row()) * spec::kVector;
}

/// Over all threads of the row. All of them get the same bits.
__device__ __forceinline__ float sum_of_row(float value) {
  value = policy::sum_over_head<kLanes>(value);
  if constexpr (kWarpsOfRow == 1) {
    return value;
  } else {
    __shared__ float sums[kWarpsOfRow];
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    float of_four[4] = {};  // four chains of sums, because each sum waits for the one before
#pragma unroll
    for (int i = 0; i < kWarpsOfRow; ++i) of_four[i % 4] += sums[i];
    return (of_four[0] + of_four[1]) + (of_four[2] + of_four[3]);
  }
}
__device__ __forceinline__ uint32_t largest_of_row(uint32_t value) {
  value = policy::largest_over<kLanes>(value);
  if constexpr (kWarpsOfRow == 1) {
    return value;
  } else {
    __shared__ uint32_t magnitudes[kWarpsOfRow];
    if (threadIdx.x % 32 == 0) magnitudes[threadIdx.x / 32] = value;
    __syncthreads();
    uint32_t all = 0;
#pragma unroll
    for (int i = 0; i < kWarpsOfRow; ++i) all = magnitudes[i] > all ? magnitudes[i] : all;
    return all;
  }
}

__device__ __forceinline__ float gated_product(const Params& params, float gate, float up) {
  return policy::gated_product<spec::kActivation, spec::kClamped>(gate, up, params.limit, params.alpha);
}

/// What the two rows of a merge are multiplied by. A row without keys does not count: it may hold anything.
struct MergeWeights {
  bool sees_x, sees_other;
  float of_x, of_other;
  __device__ __forceinline__ float merged(float x, float other) const {
    return (sees_x ? of_x * x : 0.f) + (sees_other ? of_other * other : 0.f);
  }
};

/// Those of row `row` and the head that has element `at`. The thread of its first elements writes the LSE of both.
template <class P>
__device__ __forceinline__ MergeWeights merge_weights(const P& params, int64_t row, int at, bool exists) {
  if constexpr (!spec::kMerges) {
    return {};
  } else {
    constexpr int kHeadDim = spec::kWidth / spec::kHeads;
    const int64_t place = exists ? row * params.lse_stride + at / kHeadDim * params.lse_head_stride : 0;
    const float none = ptx::minus_infinity();
    const float lse = exists ? ptx::ld_global_f32(params.lse + place) : none;
    const float other = exists ? ptx::ld_global_f32(params.residual_lse + place) : none;
    const float largest = lse > other || lse != lse ? lse : other;  // NaN has to reach the result
    MergeWeights weights{lse != none, other != none, 0, 0};
    if (weights.sees_x) weights.of_x = ptx::ex2_approx_ftz((lse - largest) * policy::kLog2e);
    if (weights.sees_other) weights.of_other = ptx::ex2_approx_ftz((other - largest) * policy::kLog2e);
    const float sum = weights.of_x + weights.of_other, inverse = __frcp_rn(sum);
    weights.of_x *= inverse, weights.of_other *= inverse;
    if (exists && at % kHeadDim == 0)
      params.lse_out[place] = largest == none ? none : largest + ptx::lg2_approx_ftz(sum) * policy::kLn2;
    return weights;
  }
}

/// A thread's part of a row.
class Row {
 public:
  __device__ __forceinline__ explicit Row(const Params& params)
      : params_(params), row_(row_of_thread()), thread_(thread_of_row()), first_element_(first_element()) {}

  __device__ __forceinline__ void load_weights() {
#pragma unroll
    for (int i = 0; i < kRuns; ++i)
      weights_[i].load(static_cast<const Element*>(params_.weight) + element_of(i), has(i));
  }
  __device__ __forceinline__ void load() {
    const auto* const x = static_cast<const Element*>(params_.x) + row_ * params_.x_stride;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      const int at = element_of(i);
      first_[i].load_once<kWholeX>(x + (spec::kGated && spec::kPairs > 0 ? 2 * at : at), has(i));
      if constexpr (spec::kGated)
        second_[i].load_once<kWholeX>(x + (spec::kPairs > 0 ? 2 * at + 8 : spec::kWidth + at), has(i));
    }
    if constexpr (kTwoRows) {
      const auto* const residual = static_cast<const Element*>(params_.residual) + row_ * params_.residual_stride;
#pragma unroll
      for (int i = 0; i < kRuns; ++i) second_[i].load_once<kWhole>(residual + element_of(i), has(i));
    }
    if constexpr (spec::kScales == ScaleKind::kPerTensor)
      given_scale_ = ptx::ld_global_f32(static_cast<const float*>(params_.scale));
  }
  /// Elements that do not exist are 0.
  __device__ __forceinline__ void combine() {
#pragma unroll
    for (int i = 0; i < kRuns; ++i) {
      HeadVector& x = values_[i];
      if constexpr (spec::kGated) {
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          if constexpr (spec::kPairs == 1) {
            const Words& from = e < 4 ? first_[i] : second_[i];
            x[e] = gated_product(params_, from.value(e % 4 * 2), from.value(e % 4 * 2 + 1));
          } else {
            x[e] = gated_product(params_, first_[i].value(e), second_[i].value(e));
          }
        }
      } else {
        first_[i].unpack(x);
      }
      if constexpr (spec::kMerges) {
        HeadVector other;
        second_[i].unpack(other);
        const MergeWeights weights = merge_weights(params_, row_, element_of(i), has(i));
#pragma unroll
        for (int e = 0; e < 8; ++e) x[e] = weights.merged(x[e], other[e]);
      }
      if constexpr (spec::kAdds) {
        HeadVector sum;
        second_[i].unpack(sum);
#pragma unroll
        for (int e = 0; e < 8; ++e) sum[e] += x[e];
        Words rounded;
        rounded.pack(sum);
        rounded.unpack(x);
        if (has(i))
          rounded.store(static_cast<Element*>(params_.residual_out) + row_ * params_.residual_out_stride +
                        element_of(i));
      }
    }
  }
  __device__ __forceinline__ void normalise() {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kRuns; ++i) sum += policy::sum_of_squares(values_[i]);
    const float inverse = ptx::rsqrt_approx(sum_of_row(sum) * (1.f / spec::kWidth) + params_.eps);
#pragma unroll
    for (int i = 0; i < kRuns; ++i)
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        values_[i][e] *= inverse;
        if constexpr (spec::kNormWeight) values_[i][e] *= weight(i, e);
      }
  }
  __device__ __forceinline__ void write() {
    float factor = 1;
    if constexpr (spec::kScales == ScaleKind::kPerTensor) factor = __frcp_rn(given_scale_);
    if constexpr (kOfRow) {
      uint32_t largest = 0;
#pragma unroll
      for (int i = 0; i < kRuns; ++i) largest = policy::largest_of(values_[i], largest);
      const float scale = scale_of(largest_of_row(largest));
      if (thread_ == 0 && row_exists())
        ptx::st_global_u32(static_cast<float*>(params_.scale) + row_, __float_as_uint(scale));
      factor = policy::reciprocal_of_scale(scale);
    }
    char* const to = static_cast<char*>(params_.out) + row_ * params_.out_row_bytes;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      uint32_t largest = 0;
      if constexpr (kBlocks || kAtoms) {
#pragma unroll
        for (int i = 0; i < kRunsOfVector; ++i)
          largest = policy::largest_of(values_[round * kRunsOfVector + i], largest);
      }
      if constexpr (kAtoms)
        write_atoms(round, largest, to);
      else
        write_vector(round, kBlocks ? factor_of_block(round, largest) : factor, to);
    }
  }

 private:
  __device__ __forceinline__ float weight(int run, int e) const {
    const float given = weights_[run].value(e);
    if constexpr (spec::kWeightOffset == 0)
      return given;
    else
      return given + spec::kWeightOffset;
  }

  enum : int { kWordsOfRun = policy::kWordsOfEight<spec::kOutDType>, kWordsOfVector = kRunsOfVector * kWordsOfRun };

  __device__ __forceinline__ int element_of(int run) const { return first_element_ + distance_to_run(run); }
  __device__ __forceinline__ bool row_exists() const { return kAllExist || row_ < params_.rows; }
  __device__ __forceinline__ bool in_row(int run) const {
    return kRounds * kThreads * spec::kVector * spec::kCtasPerRow == spec::kWidth || element_of(run) < spec::kWidth;
  }
  /// Whether the row has the run.
  __device__ __forceinline__ bool has(int run) const { return row_exists() && in_row(run); }

  __device__ __forceinline__ float scale_of(uint32_t largest) const {
    if constexpr (spec::kHasLeast) {
      const uint32_t least = __float_as_uint(params_.least);
      largest = largest < least ? least : largest;
    }
    return policy::scale_of_head<spec::kOutDType, spec::kPowerOfTwo>(largest);
  }
  /// Writes the scale of the block that this thread's vector is a part of.
  __device__ __forceinline__ float factor_of_block(int round, uint32_t largest) const {
    const float scale = scale_of(policy::largest_over<kBlockLanes>(largest));
    const int run = round * kRunsOfVector;
    if (thread_ % kBlockLanes == 0 && has(run)) {
      const int block = element_of(run) / contract::kRowScaleBlock;
      float* const scales = static_cast<float*>(params_.scale);
      ptx::st_global_u32(
          scales + (spec::kScaleColumns ? block * params_.scale_stride + row_ : row_ * params_.scale_stride + block),
          __float_as_uint(scale));
    }
    return policy::reciprocal_of_scale(scale);
  }
  __device__ __forceinline__ void store_vector(int round, const uint32_t (&words)[kWordsOfVector], char* to) const {
    const int run = round * kRunsOfVector;
    if (has(run)) policy::store_words(to + element_of(run) * bits_of(spec::kOutDType) / 8, words);
  }
  __device__ __forceinline__ void write_vector(int round, float factor, char* to) const {
    if constexpr (!kAtoms) {
      uint32_t words[kWordsOfVector];
#pragma unroll
      for (int i = 0; i < kRunsOfVector; ++i)
        policy::pack_eight<spec::kOutDType, spec::kArch>(values_[round * kRunsOfVector + i], factor,
                                                         words + i * kWordsOfRun);
      store_vector(round, words, to);
    }
  }
  /// Rows past the end get scales of 0, up to whole atoms.
  __device__ __forceinline__ void write_atoms(int round, uint32_t largest, char* to) {
    if constexpr (kAtoms) {
      using Format = policy::RoundedBlockFormat<spec::kOutDType, spec::kArch, spec::kRoundUp>;
      largest = policy::largest_over<kBlockLanes>(has(round * kRunsOfVector) ? largest : 0);
      if (params_.tensor_scale != 1.f) {  // division keeps the order of magnitudes
        if (largest < Format::kInfinity)
          largest = __float_as_uint(__fdiv_rn(__uint_as_float(largest), params_.tensor_scale));
#pragma unroll
        for (int i = 0; i < kRunsOfVector; ++i)
#pragma unroll
          for (int e = 0; e < 8; ++e) {
            float& value = values_[round * kRunsOfVector + i][e];
            value = __fdiv_rn(value, params_.tensor_scale);
          }
      }
      const uint32_t scale = Format::scale(largest);
      uint32_t words[kWordsOfVector];
#pragma unroll
      for (int i = 0; i < kRunsOfVector; ++i) {
        uint32_t of_run[kWordsOfRun];
        Format::elements(values_[round * kRunsOfVector + i], scale, of_run);
#pragma unroll
        for (int word = 0; word < kWordsOfRun; ++word) words[i * kWordsOfRun + word] = of_run[word];
      }
      store_vector(round, words, to);
      const uint32_t word = policy::scales_of_four<kBlockLanes>(scale, static_cast<int>(threadIdx.x) % 32);
      constexpr int kVector = scale_vector(spec::kOutDType);
      const int atoms = contract::scale_atoms_of_row(spec::kWidth, kVector);
      const int block = element_of(round * kRunsOfVector) / kVector;
      if (thread_ % (4 * kBlockLanes) == 0 && block < atoms * contract::kScaleAtomScales)
        ptx::st_global_u32(static_cast<char*>(params_.scale) + contract::block_scale_offset(atoms, row_, block), word);
    }
  }

  const Params& params_;
  const int64_t row_;
  const int thread_, first_element_;
  Words first_[kRuns], second_[kTwo ? kRuns : 1], weights_[spec::kNormWeight ? kRuns : 1];
  float given_scale_;
  HeadVector values_[kRuns];
};

}  // namespace kernelwright

extern "C" __global__ void __launch_bounds__(kernelwright::spec::kThreadsPerRow* kernelwright::spec::kRowsPerCta,
                                             kernelwright::kLeastCtas > 0 ? kernelwright::kLeastCtas : 1)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::Params params) {
  using namespace kernelwright;
  Row row(params);
  const bool early = spec::kNormWeight && spec::kArch >= 90 && params.constant_weight;
  if (early) row.load_weights();
  if constexpr (spec::kArch >= 90) ptx::griddepcontrol_wait();
  row.load();
  if (spec::kNormWeight && !early) row.load_weights();
  row.combine();
  if constexpr (kNorm) row.normalise();
  row.write();
  if constexpr (spec::kArch >= 90) ptx::griddepcontrol_launch_dependents();
}
