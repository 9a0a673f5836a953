/// Heads of a GEMM's tile on their way to d and to the cache. They were rounded as d would be, and wait in shared
/// memory for the steps of kv_write. So the result has the bits of a GEMM and a kv_write behind it.
///
/// A warp has one head of as many tokens as its lanes hold at once.
#pragma once

#include "contract/gemm_kv_write.h"
#include "kernels/kv_head.cuh"
#include "ptx/memory.cuh"

namespace kernelwright {
namespace {

/// One head, of queries, keys or values.
template <Operand kOperand>
class TileHeads {
  using Steps = HeadSteps<kOperand>;
  using T = typename Steps::T;
  using Read = typename Steps::Read;
  using Written = typename Steps::Written;
  enum : int {
    kRowsAtOnce = 32 / kLanes,
    kTogether = 2  // steps whose loads are issued together
  };
  /// What a lane has of a token.
  struct Token {
    int token;
    bool exists;
    policy::TokenIndex index;
    CachePlace place;
    typename Steps::Turn turn;
  };

 public:
  /// `head`: which of the operand's.
  __device__ __forceinline__ TileHeads(const Params& params, int head, int lane)
      : params_(params), head_(head), lane_(lane), part_(lane % kLanes) {
    if constexpr (Steps::kWeights) {
      const auto* const weights = static_cast<const tile::Storage<spec::kInDType>*>(T::weights(params));
#pragma unroll
      for (int v = 0; v < 2; ++v)
        weights_[v] =
            ptx::ld_global_v4_if(weights + Read::at(part_, v) * kLaneElements, Read::template has<kLanes>(part_, v));
    }
    if constexpr (Steps::kGivenScales)
      factor_ = __frcp_rn(ptx::ld_global_f32(T::scales(params) + (T::kScales == ScaleKind::kPerHead ? head : 0)));
  }

  /// Writes the head of kRows tokens, of which `first_token` is the first. Warp `warp` of kWarps takes its share of
  /// them. place(row, vector) is the shared address of 8 elements.
  template <int kRows, int kWarps, class Place>
  __device__ __forceinline__ void write(const Place& place, int first_token, int warp) const {
    constexpr int kStep = kRowsAtOnce * kWarps;
#pragma unroll 1
    for (int first = warp * kRowsAtOnce; first < kRows && first_token + first < params_.tokens;
         first += kStep * kTogether) {
      Token tokens[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) begin(tokens[i], first_token, row_of(first, i, kStep), kRows);
#pragma unroll
      for (int i = 0; i < kTogether; ++i) follow(tokens[i]);
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int row = row_of(first, i, kStep);
        write_head(tokens[i], place, row < kRows ? row : 0);
      }
    }
  }

 private:
  __device__ __forceinline__ int row_of(int first, int i, int step) const { return first + i * step + lane_ / kLanes; }

  __device__ __forceinline__ void begin(Token& of, int first_token, int row, int rows) const {
    of.exists = row < rows && first_token + row < params_.tokens;
    of.token = of.exists ? first_token + row : params_.tokens - 1;  // lanes stay together, and read what is there
    if constexpr (Steps::kTurns) of.turn.load_positions(params_, of.token);
    if constexpr (!Steps::kIsQ) of.index = policy::load_index<spec::kIndex>(params_, of.token);
  }
  __device__ __forceinline__ void follow(Token& of) const {
    if constexpr (Steps::kTurns) of.turn.load_angles(params_, part_);
    if constexpr (!Steps::kIsQ) {
      of.place = policy::place_of<spec::kIndex, spec::kKvLayout, spec::kPageSize>(params_, of.index);
      of.exists = of.exists && of.place.exists;
    }
  }

  template <class Place>
  __device__ __forceinline__ void write_head(const Token& of, const Place& place, int row) const {
    ptx::Vector16 words[2] = {};
#pragma unroll
    for (int v = 0; v < 2; ++v)
      if (Read::template has<kLanes>(part_, v)) words[v] = ptx::ld_shared_v4(place(row, Read::at(part_, v)));
    if constexpr (Steps::kStays) {
      store(of, words[0].word, words[1].word);
    } else {
      HeadVector x[2];
      unpack(words, x);
      const float by = Steps::take(params_, of.turn, weights_, 1, x, lane_ - part_, part_,
                                   [&](uint32_t largest) { return factor(of, largest); });
      if constexpr (Steps::kColumns) {
        store_columns(of, x, by);
      } else {
        uint32_t packed[2][Steps::kWordsOfVector];
        policy::pack_head_part<T::kTo, spec::kArch>(x[0], by, packed[0]);
        policy::pack_head_part<T::kTo, spec::kArch>(x[1], by, packed[1]);
        store(of, packed[0], packed[1]);
      }
    }
  }
  __device__ __forceinline__ float factor(const Token& of, uint32_t largest) const {
    if constexpr (T::kScales == ScaleKind::kNone) {
      return 1;
    } else if constexpr (Steps::kGivenScales) {
      return factor_;
    } else {
      const float scale = Steps::scale_per_token(params_, largest);
      if (part_ == 0 && of.exists) {
        int64_t at = int64_t{of.token} * spec::kQHeads + head_;
        if constexpr (!Steps::kIsQ) at = policy::cache_element(of.place, T::scale_strides(params_), head_);
        Steps::store_scale(params_, at, scale);
      }
      return policy::reciprocal_of_scale(scale);
    }
  }

  /// The lane's two vectors of a head.
  __device__ __forceinline__ void store(const Token& of, const uint32_t* first, const uint32_t* second) const {
    if (!of.exists) return;
    tile::Storage<T::kTo>* to;
    if constexpr (Steps::kIsQ)
      to = static_cast<tile::Storage<T::kTo>*>(params_.q_out) + of.token * params_.q_out_strides.token +
           head_ * params_.q_out_strides.head;
    else
      to = static_cast<tile::Storage<T::kTo>*>(T::cache(params_)) +
           policy::cache_element(of.place, T::cache_strides(params_), head_);
#pragma unroll
    for (int v = 0; v < 2; ++v)
      if (Written::template has<kLanes>(part_, v))
        policy::store_words<Steps::kWordsOfVector>(to + Written::at(part_, v) * kLaneElements, v == 0 ? first : second);
  }
  __device__ __forceinline__ void store_columns(const Token& of, const HeadVector (&x)[2], float factor) const {
    if (!of.exists) return;
    auto* const head = static_cast<uint8_t*>(params_.v_cache) + of.place.page * params_.v_cache_strides.batch +
                       head_ * params_.v_cache_strides.head +
                       contract::column_of_key(static_cast<int>(of.place.offset));
#pragma unroll
    for (int v = 0; v < 2; ++v)
      if (Written::template has<kLanes>(part_, v))
        policy::store_head_column<T::kTo, spec::kArch>(head + Written::at(part_, v) * kLaneElements * spec::kPageSize,
                                                       spec::kPageSize, x[v], factor);
  }

  const Params& params_;
  const int head_, lane_, part_;  // part_: which lane of those that share a head
  ptx::Vector16 weights_[2];
  float factor_ = 1;
};

/// As TileHeads::write(), of the head that begins at column `column` of the product, if there is one.
template <int kRows, int kWarps, class Place>
__device__ __forceinline__ void write_head(const Params& params, const Place& place, int first_token, int column,
                                           int warp, int lane) {
  static_assert(spec::kHeadDimQk == spec::kHeadDimV, "columns of a tile are whole heads");
  const int head = column / spec::kHeadDimQk;
  if (head < spec::kQHeads)
    TileHeads<Operand::kQ>(params, head, lane).template write<kRows, kWarps>(place, first_token, warp);
  else if (head < spec::kQHeads + spec::kKvHeads)
    TileHeads<Operand::kK>(params, head - spec::kQHeads, lane).template write<kRows, kWarps>(place, first_token, warp);
  else if (head < spec::kQHeads + 2 * spec::kKvHeads)
    TileHeads<Operand::kV>(params, head - spec::kQHeads - spec::kKvHeads, lane)
        .template write<kRows, kWarps>(place, first_token, warp);
}

}  // namespace
}  // namespace kernelwright
