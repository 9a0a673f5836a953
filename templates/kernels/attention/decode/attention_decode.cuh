/// The decode form of attention: few query rows on mma.sync, written for bandwidth. A kernel is this body and a stream
/// that brings the keys and values: attention_decode_portable.cu, attention_decode_sm90.cu.
///
/// One CTA owns up to block_m rows, the queries x heads of one KV head, and one part of the keys. Its warps share
/// nothing while keys stream. Each warp walks 16 keys (or a multiple) of every tile through a ring of its own. It keeps
/// a softmax and an output of its own, so the loop holds no CTA barrier. The warps' results meet once, at the end, in
/// shared memory. The CTA that finishes last, or attention_combine, merges parts of split keys.
///
/// A Stream is one warp's view of its ring:
///   layout                  contract::DecodeLayout of the CTA
///   Products                policy::KvOperands: the type and the columns of fragments
///   prepare(operands, shared, warp, lane)  static: work without global memory, before the wait for the grids ahead
///   Stream(params, operands, item, tiles, shared, warp, lane)
///   groups_ahead            cp.async groups that prefetch() commits, behind that of Q
///   prefetch()              starts to load the first tiles
///   keys(), values()        KvBuffers to read fragments from
///   stage()                 the slot of the tile that is being read
///   await_keys(tile)        afterwards its keys can be read
///   await_values(tile)      afterwards its values can be read
///   release(tile)           both have been read: starts to load the next tile
///   finish()                waits until nothing is in flight
#pragma once

#include "kernels/attention/decode/attention_decode_rows.cuh"

namespace kernelwright {
namespace decode {

template <class Stream, class Operands>
__device__ __forceinline__ void attend(const contract::AttentionParams& params, const Operands& operands) {
  using Products = typename Stream::Products;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const uint32_t shared = ptx::shared_address(shared_memory);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  Stream::prepare(operands, shared, warp, lane);
  if constexpr (spec::kArch >= 90) ptx::griddepcontrol_wait();

  policy::fill_padding_rows<spec::kQLayout, spec::kOutDType, spec::kHeadDimV, spec::kLse>(
      params, blockIdx.x * spec::kNumWarps + warp, gridDim.x * spec::kNumWarps, lane);
  const WorkItem item(params, blockIdx.x);
  const policy::TileCoord& coord = item.coord;
  if (item.num_rows <= 0) return;
  const Mask mask = item.mask<Mask>(params);
  policy::TileList tiles = policy::tile_list<spec::kBlockN>(mask, item.query(0), item.query(item.num_rows - 1));
  tiles.take_part(coord.split, params.num_splits);

  using StoredQuery = tile::Storage<spec::kQDType>;
  const tile::RowTile<spec::kBlockM, spec::kHeadDimQk, Queries, kNumThreads, sizeof(StoredQuery)> query_tile{shared};
  query_tile.load(thread, item.num_rows, item.rows(static_cast<const StoredQuery*>(params.q), params.q_strides));
  ptx::cp_async_commit_group();
  Stream stream(params, operands, item, tiles, shared, warp, lane);
  stream.prefetch();

  const bool merges = spec::kMerge == Merge::kInKernel && params.num_splits > 1;
  // Opaque: computed anew at the end, so that it holds no register across the loop.
  const auto last_arrival = [&] {
    return policy::LastArrival(params.merge_counters + ptx::opaque(blockIdx.x) / params.num_splits);
  };
  if (merges && thread == 0) last_arrival().open();  // while the first keys are in flight

  float key_scale = 1, value_scale = 1;
  if constexpr (spec::kScales != ScaleKind::kNone && !kKeyScales) {
    const int index = spec::kScales == ScaleKind::kPerHead ? coord.head : 0;
    key_scale = params.k_scale[index];
    value_scale = params.v_scale[index];
  }
  const ScoreMod score_mod{params.scale * key_scale, params.softcap};
  constexpr bool kScaled = spec::kScales != ScaleKind::kNone && !kKeyScales;
  const float exponent_scale = score_mod.exponent_scale<kScaled>(params.exponent_scale);

  const auto row_of = [&](int r) { return r / 2 * 16 + r % 2 * 8 + lane / 4; };
  Softmax softmax;
  if constexpr (!Products::scales_rows) add_sinks(softmax, params, item, warp, lane, row_of, exponent_scale);
  Accumulator output;
  clear(output);

  const PlaceRows place_rows(params, item, lane / 4);
  tile::QueryFragments<Queries, kRowTiles, kQueriesInRegisters> queries(shared, 0, lane);
  ptx::cp_async_wait_group<Stream::groups_ahead>();
  __syncthreads();  // Q has landed
  prepare_queries<Stream>(shared, thread);
  if (score_mod.changes_queries()) {
    query_tile.take_sign(thread, score_mod.scale);
    __syncthreads();
  }
  queries.load_all();

  const auto factors = query_factors<Stream, Softmax::kRows>(shared, row_of);
  // Else the softmax takes exponent_scale itself: with a copy of it, ptxas spills registers of the widest heads.
  constexpr bool kOwnScales = Products::scales_rows || kKeyScales;
  const auto scales = softmax_scales<Products>(factors, exponent_scale);
  if constexpr (Products::scales_rows) add_sinks(softmax, params, item, warp, lane, row_of, scales);
  const auto scales_of_queries = query_scales(params, item, row_of);
  KeyScales key_scales(params, coord.batch, coord.head, item.sequence.kv_start,
                       tiles.begin * spec::kBlockN + warp * kWarpKeys, static_cast<int>(spec::kBlockN), tiles.keys.low,
                       tiles.keys.high, lane);
  const auto& keys = stream.keys();
  const auto& values = stream.values();
  for (int key_tile = tiles.begin; key_tile < tiles.end; ++key_tile) {
    key_scales.step(params);
    stream.await_keys(key_tile);
    const uint32_t query_base = queries.base(), key_base = keys.fragment_base(stream.stage());
    float scores[kRowTiles][2 * kKeySteps][4] = {};
#pragma unroll
    for (int step = 0; step < kDepthSteps; ++step) {
      uint32_t a[kRowTiles][4];
      queries.load(a, query_base, step);
#pragma unroll
      for (int pair = 0; pair < kKeySteps; ++pair) {
        uint32_t first[2], second[2];
        keys.load_from_shared(first, second, key_base, step, pair);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma::multiply_accumulate<Products::computed()>(scores[m][2 * pair], a[m], first);
          mma::multiply_accumulate<Products::computed()>(scores[m][2 * pair + 1], a[m], second);
        }
      }
    }
    const Fragment fragment{scores};
    if constexpr (Products::normalises && !kFoldsFactors) policy::multiply_rows(fragment, factors);
    if constexpr (kQueryScales) policy::multiply_rows(fragment, scales_of_queries);
    policy::multiply_keys(fragment, key_scales);
    policy::modify(fragment, score_mod, [&] {
      return [&, key = key_tile * spec::kBlockN + warp * kWarpKeys + lane % 4 * 2](int r) {
        return place_rows.row(r, key);
      };
    });
    if (OpenRow::exists || tiles.is_partial(key_tile))
      hide_unseen(params, item, mask, fragment, row_of, key_tile * spec::kBlockN + warp * kWarpKeys + lane % 4 * 2);
    policy::to_exponents(fragment, key_scales, exponent_scale);
    uint32_t exponentials[kRowTiles][kKeySteps][4];
    if constexpr (kOwnScales)
      softmax.template update<Products::computed()>(scores, exponentials, output, scales, key_scales);
    else
      softmax.template update<Products::computed()>(scores, exponentials, output, exponent_scale);

    stream.await_values(key_tile);
    const uint32_t value_base = values.fragment_base(stream.stage());
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
#pragma unroll
      for (int pair = 0; pair < spec::kHeadDimV / 16; ++pair) {
        uint32_t first[2], second[2];
        values.load_from_shared(first, second, value_base, step, pair);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          mma::multiply_accumulate<Products::computed()>(output[m][2 * pair], exponentials[m][step], first);
          mma::multiply_accumulate<Products::computed()>(output[m][2 * pair + 1], exponentials[m][step], second);
        }
      }
    }
    stream.release(key_tile);
  }
  stream.finish();
  if constexpr (spec::kArch >= 90) ptx::griddepcontrol_launch_dependents();  // attention_combine may begin

  // The warps' results, each relative to a maximum of its own, are written over the rings.
  add_last_sinks(softmax, output, params, item, warp, lane, row_of, scales);
  softmax.finish();
  __syncthreads();  // no warp streams into its ring any more
  const WarpResults results{reinterpret_cast<float*>(shared_memory + Stream::layout.statistics),
                            reinterpret_cast<float*>(shared_memory + Stream::layout.partials)};
#pragma unroll
  for (int r = 0; r < Softmax::kRows; ++r) {
    const int row = row_of(r);
    if (lane % 4 == 0) {
      if constexpr (kOwnScales)
        results.maximum(warp, row) = softmax.base2_maximum(r, scales);
      else
        results.maximum(warp, row) = softmax.base2_maximum(r, exponent_scale);
#pragma unroll
      for (int i = 0; i < kSums; ++i) results.sum(warp, row, i) = softmax.total(r, i);
    }
    leave_row<Products>(results.output(warp, row), output[r / 2], r % 2 * 2, lane);
  }
  __syncthreads();

  // Each warp finishes rows of its own, pairs of columns at a time.
  const int64_t partial_rows = WorkItem::partial_rows(params);
  for (int row = warp; row < item.num_rows; row += spec::kNumWarps) {
    float largest = ptx::minus_infinity();
#pragma unroll
    for (int w = 0; w < spec::kNumWarps; ++w) largest = fmaxf(largest, results.maximum(w, row));
    float weight[spec::kNumWarps], sums[kSums] = {};
#pragma unroll
    for (int w = 0; w < spec::kNumWarps; ++w) {
      weight[w] = largest == ptx::minus_infinity() ? 0 : ptx::ex2_approx_ftz(results.maximum(w, row) - largest);
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] += weight[w] * results.sum(w, row, i);
    }
    const auto log2_of = [&](float sum) {
      return sum == 0 ? ptx::minus_infinity() : largest + ptx::lg2_approx_ftz(sum);
    };
    const float inverse = sums[0] == 0 ? 0 : value_scale / sums[0];
    const float log2_sum = log2_of(sums[0]);
    const int64_t partial_row = item.partial_row(params, row) + coord.split * partial_rows;
    if (lane == 0) {
      if (params.num_splits > 1) {
        params.partial_lse[partial_row] = log2_sum;
        if constexpr (kSums > 1) params.partial_lse[partial_row + params.num_splits * partial_rows] = log2_of(sums[1]);
      } else if (spec::kLse) {
        params.lse[item.lse_index(params, row)] = (kSums > 1 ? log2_of(sums[kSums - 1]) : log2_sum) * policy::kLn2;
      }
    }
    for (int column = lane * 2; column < spec::kHeadDimV; column += 64) {
      float low = 0, high = 0;
#pragma unroll
      for (int w = 0; w < spec::kNumWarps; ++w) {
        const float2 part = *reinterpret_cast<const float2*>(results.output(w, row) + column);
        low += weight[w] * part.x, high += weight[w] * part.y;
      }
      low *= inverse, high *= inverse;
      if (params.num_splits > 1) {
        *reinterpret_cast<float2*>(params.partial_o + partial_row * spec::kHeadDimV + column) = make_float2(low, high);
      } else {
        tile::store_pair<spec::kOutDType>(params.o, item.offset(params.o_strides, row) + column, low, high);
      }
    }
  }
  if (!merges) return;

  __syncthreads();  // this part is written
  if (!__syncthreads_or(thread == 0 && last_arrival().arrive(params.num_splits))) return;
  merge_rows(params, item, partial_rows, warp, lane);
}

}  // namespace decode
}  // namespace kernelwright
