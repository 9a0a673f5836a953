/// Attention prefill on mma.sync, for every architecture since sm_80: the fallback that is right on every input.
///
/// One CTA owns block_m query rows of one head or, with packed GQA, of one KV head's group. It walks its key tiles from
/// the last to the first, so that the tiles with a mask come first. kRowTiles m16 row tiles per warp share every
/// fragment of K and V. That halves shared-memory reads, which bound this kernel when a warp has 16 rows alone.
///
/// The loop has two forms, by the place where tiles wait:
///   one slot each    K and V: one stage of cp.async, or num_stages tiles of registers ahead of the slots. With
///                    one stage, V is loaded while Q K^T runs, and the next K while P V runs. Each further stage
///                    lets them run a tile further ahead. Two barriers a tile.
///   a ring           2 stages of cp.async and more: slots that hold K and V of a tile, filled num_stages - 1
///                    tiles ahead. One barrier a tile.
/// Warps own query rows. Where warp_n is less than block_n, num_warps_n = block_n / warp_n warps own the same rows.
/// Each of them takes warp_n keys of every tile, with a softmax and an output of its own. Their results meet in shared
/// memory once all keys are walked.
#include "kernels/attention/portable/attention_portable_rows.cuh"

extern "C" __global__ void __launch_bounds__(kernelwright::kNumThreads, kernelwright::spec::kMinCtas)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::KernelParams params) {
  using namespace kernelwright;
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  const uint32_t shared = ptx::shared_address(shared_memory);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  if constexpr (spec::kArch >= 90) ptx::griddepcontrol_wait();

  policy::fill_padding_rows<spec::kQLayout, spec::kOutDType, spec::kHeadDimV, spec::kLse>(
      params, blockIdx.x * spec::kNumWarps + warp, gridDim.x * spec::kNumWarps, lane);
  const WorkItem item(params, blockIdx.x);
  if (item.num_rows <= 0) return;  // the whole CTA
  const Mask mask = item.template mask<Mask>(params);
  const policy::TileList tiles = tiles_of(mask, item);

  // Queries to shared memory; they stay for all key tiles.
  const tile::RowTile<spec::kBlockM, kPlainDepth, Queries, kNumThreads> query_tile{shared};
  query_tile.load(thread, item.num_rows, item.rows(static_cast<const uint16_t*>(params.q), params.q_strides));
  load_rotary_queries(params, item, shared, thread);

  const int kv_head = item.row_map.kv_head();
  const int32_t* const pages = tile::page_line<KvRows>(params, item.coord.batch);
  const ItemKeys key_rows(params, pages, item, kv_head);
  const KvRows value_rows = tile::kv_rows<KvRows>(params, params.v, params.v_strides, pages, item.coord.batch,
                                                  item.sequence.kv_start, kv_head);
  const int column = column_of(thread / 32);
  Keys keys(shared + kLayout.keys, thread, column);
  Values values(shared + kLayout.values, thread, column);
  const tile::RowBound<Mask::hides_low> bound{tiles.keys.low, tiles.keys.high};
  const auto load_keys = [&](int key_tile, int stage) { key_rows.load(keys, key_tile * spec::kBlockN, bound, stage); };
  const auto load_values = [&](int key_tile, int stage) {
    values.load_from_dram(value_rows, key_tile * spec::kBlockN, bound, stage);
  };

  float key_scale = 1;
  if constexpr (kScaled) key_scale = params.k_scale[spec::kScales == ScaleKind::kPerHead ? kv_head : 0];
  const ScoreMod score_mod{params.scale * key_scale, params.softcap};
  const float exponent_scale = score_mod.exponent_scale<kScaled>(params.exponent_scale);
  const float softmax_scale = kKeyScales ? 1 : exponent_scale;  // scores of keys that have scales become exponents

  // The warp's rows: row tile m holds rows warp_row + 16 m + lane / 4 and 8 more.
  const int warp_row = row_group(warp) * kRowTiles * 16;

  Softmax softmax;
  if constexpr (spec::kSinks && !kKeyScales)
    for_each_sink(params, item, column, warp_row + lane / 4,
                  [&](int r, float logit) { softmax.add_sink(r, logit, exponent_scale, lane % 4 == 0); });

  Accumulator output;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) output[m][n][e] = 0;

  tile::QueryFragments<Queries, kRowTiles, kQueriesInRegisters> queries(shared, warp_row, lane);

  const PlaceRows place_rows(params, item, warp_row + lane / 4);
  KeyScales key_scales = key_scales_of(params, item, tiles, column, lane);

  /// Scores of tile `key_tile`, whose keys are in `stage`, to exponentials.
  const auto score = [&](Exponentials& exponentials, int key_tile, int stage) {
    Scores scores;
    key_scales.step(params);
    multiply_keys(scores, queries, keys, stage);
    const Fragment fragment{scores};
    policy::multiply_keys(fragment, key_scales);
    policy::modify(fragment, score_mod, [&] {
      return [&, key = key_tile * spec::kBlockN + column * spec::kWarpN + lane % 4 * 2](int r) {
        return place_rows.row(r, key);
      };
    });
    if (OpenRow::exists || tiles.is_partial(key_tile)) {
      // Opaque: what only the few tiles with a mask need is worked out anew there, rather than held in registers.
      const WorkItem again(params, ptx::opaque(blockIdx.x));
      const Mask limits = again.template mask<Mask>(params);
      const int thread_again = static_cast<int>(ptx::opaque(threadIdx.x));
      const int row = row_group(thread_again / 32) * kRowTiles * 16 + thread_again % 32 / 4;
      const int origin = key_tile * spec::kBlockN + first_key_of(thread_again);
      if constexpr (OpenRow::exists)
        policy::open_keys(fragment, origin,
                          [&](int r) { return open_row(params, again, limits, row + Fragment::row(r)); });
      else
        policy::hide_keys<Mask::hides>(fragment, origin,
                                       [&](int r) { return limits.visible(again.query(row + Fragment::row(r))); });
    }
    policy::to_exponents(fragment, key_scales, exponent_scale);
    softmax.template update<spec::kQDType>(scores, exponentials, output, softmax_scale, key_scales);
  };

  // Once V has landed: all threads wait for each other, and in a tile that some rows see in part nothing of it is left
  // that is not finite.
  bool replaced = false;
  const auto await_values = [&](int key_tile, int stage) {
    if (!kRowsDiffer || !tiles.is_partial(key_tile)) return __syncthreads();
    if (!__syncthreads_or(values.holds_non_finite(stage))) return;
    values.clear_non_finite(stage);
    replaced = true;
    __syncthreads();
  };

  const int last = tiles.end - 1;
  /// Once, when Q and the first keys have landed.
  const auto begin = [&] {
    __syncthreads();
    if (score_mod.changes_queries()) {
      query_tile.take_sign(thread, score_mod.scale);
      __syncthreads();
    }
    queries.load_all();
  };
  if constexpr (Keys::num_slots == 1) {
    // Tile i is in stage i mod kStages. A load into a stage begins as soon as the tile kStages before has been read.
    constexpr int kStages = spec::kNumStages;
    if (tiles.end > tiles.begin) key_rows.load_rarely_whole(keys, last * spec::kBlockN, bound, 0);
#pragma unroll
    for (int ahead = 0; ahead < kStages - 1; ++ahead) {
      if (last - ahead >= tiles.begin) load_values(last - ahead, ahead);
      if (last - ahead - 1 >= tiles.begin) load_keys(last - ahead - 1, ahead + 1);
    }
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    begin();
    int stage = 0;
    for (int key_tile = last; key_tile >= tiles.begin; --key_tile) {
      ptx::cp_async_wait_group<0>();
      keys.copy_to_shared(stage);
      __syncthreads();  // K has landed; no warp reads the V of the tile before
      const int next_values = key_tile - (kStages - 1);
      if (kStages == 1 || next_values >= tiles.begin) load_values(next_values, stage == 0 ? kStages - 1 : stage - 1);
      ptx::cp_async_commit_group();
      Exponentials exponentials;
      score(exponentials, key_tile, 0);
      ptx::cp_async_wait_group<0>();
      values.copy_to_shared(stage);
      await_values(key_tile, 0);  // and no warp reads this tile's K
      if (key_tile > tiles.begin + (kStages - 1)) load_keys(key_tile - kStages, stage);
      ptx::cp_async_commit_group();
      multiply_values(output, exponentials, values, 0);
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
  } else {
    const auto load_tile = [&](int key_tile, int stage) {
      if (key_tile >= tiles.begin) {
        load_keys(key_tile, stage);
        load_values(key_tile, stage);
      }
      ptx::cp_async_commit_group();  // empty groups keep the count of groups equal to that of tiles
    };
#pragma unroll
    for (int ahead = 0; ahead < spec::kNumStages - 1; ++ahead) load_tile(last - ahead, ahead);
    ptx::cp_async_wait_group<spec::kNumStages - 2>();
    begin();
    int stage = 0;
    for (int key_tile = last; key_tile >= tiles.begin; --key_tile) {
      ptx::cp_async_wait_group<spec::kNumStages - 2>();
      await_values(key_tile, stage);  // K too, and no warp reads the slot that is loaded next
      load_tile(key_tile - (spec::kNumStages - 1), stage == 0 ? spec::kNumStages - 1 : stage - 1);
      Exponentials exponentials;
      score(exponentials, key_tile, stage);
      multiply_values(output, exponentials, values, stage);
      stage = stage == spec::kNumStages - 1 ? 0 : stage + 1;
    }
  }
  ptx::cp_async_wait_group<0>();  // without key tiles, Q's copies may still be under way
  if constexpr (spec::kArch >= 90) ptx::griddepcontrol_launch_dependents();  // only stores are left

  // The epilogue computes these values anew, because the loop had no registers to carry them.
  const WorkItem done(params, ptx::opaque(blockIdx.x));
  const int end_lane = static_cast<int>(ptx::opaque(threadIdx.x)) % 32;
  const int end_warp = static_cast<int>(ptx::opaque(threadIdx.x)) / 32;
  const int end_row = row_group(end_warp) * kRowTiles * 16;
  float value_scale = 1;
  if constexpr (kScaled)
    value_scale = params.v_scale[spec::kScales == ScaleKind::kPerHead ? done.row_map.kv_head() : 0];
  const auto add_last_sink = [&](int r, float logit) {
    softmax.add_last_sink(r, logit, softmax_scale, end_lane % 4 == 0, output);
  };
  if constexpr (spec::kSinks && kKeyScales)
    for_each_sink(params, done, column_of(end_warp), end_row + end_lane / 4, add_last_sink);
  softmax.finish();
  if constexpr (kNumWarpsN > 1) {
    // Every copy has landed. Behind the first barrier of merge(), no warp reads a tile any more.
    const Columns columns{reinterpret_cast<float*>(shared_memory + kLayout.statistics),
                          reinterpret_cast<float4*>(shared_memory + kLayout.partials)};
    columns.merge(softmax, output, column_of(end_warp), end_row, end_lane, softmax_scale);
    if (column_of(end_warp) != 0) return;  // the first column's warps have the whole result
  }
  if (kRowsDiffer && replaced) add_non_finite_values(output, params, done, end_row + end_lane / 4, end_lane);
#pragma unroll
  for (int r = 0; r < Softmax::kRows; ++r) {
    const float factor = softmax.inverse(r) * value_scale;
#pragma unroll
    for (int n = 0; n < kOutputTiles; ++n)
      output[r / 2][n][r % 2 * 2] *= factor, output[r / 2][n][r % 2 * 2 + 1] *= factor;
    if constexpr (spec::kLse) {
      const int row = end_row + r / 2 * 16 + r % 2 * 8 + end_lane / 4;
      if (end_lane % 4 == 0 && row < done.num_rows)
        params.lse[done.lse_index(params, row)] = softmax.log2_sum(r, softmax_scale) * policy::kLn2;
    }
  }
  // A warp stages its output over the rows of Q that it alone reads. If the two tiles differ in shape, other warps'
  // rows lie there, and all warps have to wait.
  if (spec::kHeadDimQk != spec::kHeadDimV && kNumWarpsN == 1) __syncthreads();
  tile::store_rows<spec::kOutDType, Output, kRowTiles>(
      output, shared, end_row, end_lane, done.num_rows,
      done.rows(static_cast<tile::Storage<spec::kOutDType>*>(params.o), params.o_strides));
}
