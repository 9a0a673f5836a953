// Cases for attention_sm90: small ones, for errors that its tiles, rings, roles and order of items could cause.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/verify/formats/float_formats.h"

namespace kernelwright {
namespace {

AttentionSchedule hopper() {
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  return schedule;
}

// Four query heads of one KV head: the emulator runs these.
AttentionProblem small(DType dtype = DType::kBf16) { return heads(default_problem(dtype), 4, 1); }

class List {
 public:
  CudaCase& add(std::string name, AttentionProblem problem, AttentionShape shape,
                AttentionSchedule schedule = hopper()) {
    cases_.push_back({"sm90_" + std::move(name), std::move(problem), std::move(shape), schedule});
    return cases_.back();
  }
  std::vector<CudaCase> take() { return std::move(cases_); }

 private:
  std::vector<CudaCase> cases_;
};

/// Lengths around every tile: rows and keys that are one short of it, fill it, and begin the next.
void lengths(List& list) {
  for (const int keys : {16, 48, 80, 112, 144, 176}) {
    AttentionSchedule schedule = hopper();
    schedule.block_n = keys;
    list.add(
        fmt::format("c04_tile_of_{}_keys", keys), heads(dims(small(), 64, 64), 2, 1),
        [&] {
          AttentionShape shape = lists({}, {keys - 1, keys, keys + 1, 2 * keys - 1, 2 * keys, 2 * keys + 1, 1, 0});
          shape.q_len = 65;
          return shape;
        }(),
        schedule);
  }
  const std::vector<int> rows = {63, 64, 65, 127, 128, 129, 191, 192, 193};
  list.add("c04_rows", heads(ragged(small()), 2, 1), lists(rows, {80, 79, 81, 64, 1, 160, 161, 159, 241}));
  list.add("c05_empty_rows", causal(small()), shape_of(1, 799, 3));
  for (const int kv : {6, 2, 1})
    for (const bool is_causal : {false, true}) {  // the shared list has these cases with one query fewer than keys
      const AttentionProblem problem = heads(small(), 6, kv);
      list.add(fmt::format("c06_256_255_{}_6_{}", is_causal ? "causal" : "dense", kv),
               is_causal ? causal(problem) : problem, shape_of(1, 256, 255));
    }
  std::vector<int> one_long{700};
  for (int i = 1; i < 24; ++i) one_long.push_back(i * 5 % 64);
  list.add("c09_one_long_of_24", causal(heads(ragged(small()), 2, 1)), lists(one_long, one_long));
}

/// Every multiple of 8: the last slab of 64 columns is part zeros, the last store part of a vector of lanes. On the
/// planner's tiles where models have the size, else on small ones, which compile in half the time.
void head_sizes(List& list) {
  AttentionSchedule small_tiles = hopper();
  small_tiles.block_n = 48;
  const std::set<int> of_models{64, 72, 80, 96, 112, 128, 160, 192, 256};
  for (int d = 16; d <= 256; d += 8) {
    const DType dtype = d % 16 == 0 ? DType::kF16 : DType::kBf16;
    list.add(fmt::format("c12_d{}", d), causal(heads(dims(small(dtype), d, d), 2, 1)), shape_of(1, 70, 150),
             of_models.contains(d) ? hopper() : small_tiles);
  }
  for (const auto& [qk, v] : {std::pair{192, 128}, std::pair{256, 64}, std::pair{96, 80}, std::pair{136, 16}})
    for (const DType dtype : {DType::kBf16, DType::kF16})
      list.add(fmt::format("c13_{}_{}_{}", qk, v, to_string(dtype)), causal(heads(dims(small(dtype), qk, v), 2, 1)),
               shape_of(1, 150, 260));
}

void masks(List& list) {
  for (const auto& [q_len, kv_len] : {std::pair{300, 300}, std::pair{37, 1000}})
    for (const auto& [left, right] :
         {std::pair{0, 0}, std::pair{1, 0}, std::pair{127, 0}, std::pair{128, 0}, std::pair{129, 0}, std::pair{64, 64},
          std::pair{2000, 0}, std::pair{-1, 3}, std::pair{5, -1}})
      list.add(fmt::format("c15_window_{}_{}_{}_{}", q_len, kv_len, left < 0 ? "all" : std::to_string(left),
                           right < 0 ? "all" : std::to_string(right)),
               windowed(heads(small(), 2, 1), left, right), shape_of(1, q_len, kv_len));
  list.add("c15_window_empty_rows", windowed(small(), 16, 0), shape_of(2, 200, 40));
  for (const int chunk : {7, 80})
    for (const auto& [q_len, kv_len] : {std::pair{300, 300}, std::pair{37, 1000}, std::pair{200, 40}})
      list.add(fmt::format("c17_chunk_{}_{}_{}", chunk, q_len, kv_len),
               masked(heads(small(chunk == 7 ? DType::kF16 : DType::kBf16), 2, 1), chunks(chunk)),
               shape_of(1, q_len, kv_len));
  list.add("c17_chunk_8192", masked(heads(small(), 2, 1), chunks(8192)), shape_of(1, 16, 9000));
  AttentionSchedule small_tiles = hopper();
  small_tiles.block_n = 48;
  for (const auto& [name, mask] : joined_masks()) {
    AttentionShape shape = lists({}, {333, 40, 0, 129});
    shape.q_len = 150;
    list.add("c17_" + name + "_paged", masked(heads(paged(small(DType::kF16), 16), 2, 1), mask), shape, small_tiles);
  }
  list.add("c18_sinks_and_no_keys", with_sinks(causal(small())), [] {
    AttentionShape shape = lists({}, {0, 1, 60, 300});
    shape.q_len = 100;
    return shape;
  }());
  list.add("c19_gpt_oss", windowed(with_sinks(heads(dims(small(), 64, 64), 8, 1))), shape_of(1, 700, 700));
  list.add("c19_gpt_oss_paged", windowed(with_sinks(paged(heads(dims(small(), 64, 64), 8, 1), 16))),
           lists({}, {700, 100, 1, 129}));
}

void pages(List& list) {
  for (const int page : {8, 16, 24, 32, 48, 64, 128, 256}) {
    AttentionShape shape = lists({}, {700, 1, 257, 64, 0});
    shape.q_len = 65;
    // Those that the shared list leaves out are f16.
    const DType dtype = page == 8 || page % 24 == 0 ? DType::kF16 : DType::kBf16;
    const AttentionProblem problem = causal(paged(heads(small(dtype), 2, 1), page));
    list.add(fmt::format("c21_page{}", page), problem, shape);
    list.add(fmt::format("c21_page{}_shared", page), problem, shape_of(3, 20, 600)).options.share_pages = true;
  }
}

/// Pages that no box of TMA lies within: rows that two warps gather.
void small_pages(List& list) {
  const std::vector<int> lengths{333, 1, 80, 0, 161};
  const auto add = [&](const std::string& name, const AttentionProblem& problem, const AttentionSchedule& schedule) {
    AttentionShape shape = lists({}, lengths);
    shape.q_len = 70;
    list.add("c21_small_" + name, problem, shape, schedule);
  };
  const auto rings = [](KvRing ring, int kv_stages, int qk_stages = 1) {
    AttentionSchedule schedule = hopper();
    schedule.kv_ring = ring, schedule.num_kv_stages = kv_stages, schedule.num_qk_stages = qk_stages;
    return schedule;
  };
  const AttentionProblem problem = heads(small(), 2, 1);
  for (const int page : {1, 2, 4, 12})
    add(fmt::format("page{}", page), page == 2 ? paged(problem, page) : causal(paged(problem, page)), hopper());
  add("page1_of_72", causal(paged(dims(problem, 72, 72), 1)), hopper());
  add("page4_of_192_128", paged(dims(problem, 192, 128), 4), hopper());
  add("page2_of_256", causal(paged(dims(heads(small(DType::kF16), 2, 1), 256, 256), 2)), hopper());
  add("page20_window", windowed(with_sinks(paged(dims(problem, 64, 64), 20)), 50, 3), hopper());
  add("page1_chunks", masked(paged(problem, 1), chunks(37)), hopper());
  add("page4_two_slots", causal(paged(problem, 4)), rings(KvRing::kShared, 2));
  AttentionSchedule one_slot = rings(KvRing::kSplit, 1);
  one_slot.block_n = 64, one_slot.num_mma_stages = 4;
  add("page4_one_slot", causal(paged(problem, 4)), one_slot);
  add("page5_chunks_of_keys", causal(paged(problem, 5)), rings(KvRing::kSplit, 2, 2));
  AttentionSchedule alone = hopper();
  alone.math_warpgroups = 1, alone.block_n = 16;
  add("page3_tile_of_16", causal(paged(problem, 3)), alone);
  AttentionSchedule packed = hopper();
  packed.pack_gqa = true;
  AttentionProblem mixed = causal(paged(heads(small(), 8, 2), 4));
  mixed.q_layout = QLayout::kRagged;
  mixed.lse = true;
  list.add("c21_small_page4_mixed", mixed, lists({1, 1, 0, 90, 1, 33, 1, 1}, {200, 1, 60, 300, 0, 33, 70, 150}),
           packed);
  list.add("c21_small_page1_shared", causal(paged(problem, 1)), shape_of(3, 20, 300)).options.share_pages = true;
}

/// Values of keys in a tile that no row of a block walks have no effect. docs/attention/portable.md says what a NaN in
/// V does within a walked tile.
void values(List& list) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    AttentionSchedule schedule = hopper();
    schedule.block_n = 64;
    list.add(fmt::format("c36_outside_every_tile_{}", std::isnan(value) ? "nan" : "inf"),
             windowed(heads(dims(small(), 64, 64), 1, 1)), shape_of(1, 70, 400), schedule)
        .change = [value](AttentionCase& call) {
      const std::vector<float> row(64, value);
      for (int j = 0; j < call.visible(0, 0).first / 64 * 64; ++j) {
        encode_row(call.k.dtype, row, call.k_row(0, j, 0));
        encode_row(call.v.dtype, row, call.v_row(0, j, 0));
      }
    };
  }
}

/// Biases of rows that lie apart: the shared list has rows of one head alone.
void biases(List& list) {
  AttentionSchedule packed = hopper();
  packed.pack_gqa = true;
  const AttentionProblem problem = with_alibi(heads(default_problem(), 8, 2));
  list.add("alibi_packed", causal(problem), shape_of(1, 60, 200), packed);
  list.add("alibi_packed_window", windowed(ragged(with_alibi(heads(default_problem(DType::kF16), 8, 2))), 50, 2),
           lists({40, 1, 7, 0}, {90, 200, 3, 5}), packed)
      .change = give_slopes;
}

/// Each pair of warpgroups and overlap, and with it in turn every ring, count of stages, order and rescale.
void schedules(List& list) {
  constexpr Overlap overlaps[] = {Overlap::kNone, Overlap::kIntra, Overlap::kPingPong, Overlap::kBoth};
  constexpr Scheduler orders[] = {Scheduler::kGrid, Scheduler::kPersistent, Scheduler::kLongestFirst,
                                  Scheduler::kQueued};
  int i = 0;
  for (const bool again : {false, true})
    for (int warpgroups = 1; warpgroups <= 3; ++warpgroups)
      for (const Overlap overlap : overlaps) {
        if (warpgroups == 1 && overlap != Overlap::kNone && overlap != Overlap::kIntra) continue;
        const bool shared = (i + (again ? 1 : 0)) % 2 == 0;
        AttentionSchedule schedule = hopper();
        schedule.math_warpgroups = warpgroups;
        schedule.overlap = overlap;
        schedule.block_n = again ? 64 : 48;
        schedule.kv_ring = shared ? KvRing::kShared : KvRing::kSplit;
        schedule.num_kv_stages = shared ? 2 + i % 4 : 1 + i % 3;
        schedule.num_qk_stages = shared ? 1 : 1 + i / 2 % 2;
        if (again) {
          schedule.num_mma_stages = shared ? 2 : 2 + i / 2 % 2 * 2;
          if (shared) schedule.num_qk_stages = 2;
        }
        schedule.q_stages = 1 + i / 3 % 2;
        schedule.scheduler = orders[i % 4];
        schedule.rescale = i / 4 % 2 ? Rescale::kAlways : Rescale::kLazy;
        AttentionProblem problem = heads(small(i % 5 == 0 ? DType::kF16 : DType::kBf16), 2, 1);
        if (i % 3 == 1) problem = causal(problem);
        if (i % 3 == 2) problem = windowed(problem, 70, 9);
        AttentionShape shape = lists({}, {333, 40});
        shape.q_len = 200;
        list.add(fmt::format("schedule{}_{}_warpgroups_{}", i, warpgroups, to_string(overlap)), problem, shape,
                 schedule);
        ++i;
      }
}

/// Three sub-stages, for as many slabs of a key head; values are narrower than keys.
void three_stages(List& list) {
  AttentionSchedule schedule = hopper();
  schedule.kv_ring = KvRing::kShared;
  schedule.block_n = 48;
  schedule.num_mma_stages = 3;
  list.add("schedule_three_sub_stages", causal(ragged(dims(heads(small(), 2, 1), 192, 128))),
           lists({90, 1, 0, 33}, {133, 70, 9, 33}), schedule);
}

/// Tiles of packed heads: sequences of one query beside long ones, so that warpgroups without rows, next to ones with
/// rows, come at the start, in the middle and at the end; and tiles that begin with a window.
void packed(List& list) {
  int i = 0;
  for (const auto& [q, kv] : {std::pair{8, 2}, std::pair{6, 2}, std::pair{16, 1}, std::pair{2, 2}})
    for (const bool is_ragged : {false, true}) {
      AttentionSchedule schedule = hopper();
      schedule.pack_gqa = true;
      schedule.math_warpgroups = q / kv == 3 ? 3 : 2 + i % 2;
      schedule.block_n = 48 + 16 * (i % 2);
      schedule.scheduler = i % 3 == 2 ? Scheduler::kLongestFirst : Scheduler::kPersistent;
      AttentionProblem problem = heads(small(), q, kv);
      problem = i % 4 == 0 ? problem : i % 4 == 3 ? windowed(problem, 40, 0) : causal(problem);
      if (i % 2 == 0) problem = with_sinks(problem);
      if (i % 4 >= 2) problem = paged(problem, 16);
      AttentionShape shape;
      if (is_ragged) {
        problem = problem.kv_layout.kind == KvLayoutKind::kPaged ? [&] {
          problem.q_layout = QLayout::kRagged;
          return problem;
        }()
                                                                 : ragged(problem);
        shape = lists({1, 1, 0, 90, 1, 33, 1, 1}, {200, 1, 60, 300, 0, 33, 70, 150});
      } else {
        shape = lists({}, {130, 1, 257, 0});
        shape.q_len = i % 4 < 2 ? 50 : 3;
      }
      list.add(fmt::format("packed_{}_{}_{}", q, kv, is_ragged ? "ragged" : "padded"), problem, shape, schedule);
      ++i;
    }
  AttentionSchedule schedule = hopper();
  schedule.pack_gqa = true;
  list.add("packed_gpt_oss", windowed(with_sinks(heads(dims(small(), 64, 64), 8, 1))), shape_of(1, 400, 400), schedule);
  schedule.scheduler = Scheduler::kQueued;
  AttentionProblem problem = causal(paged(heads(small(), 8, 2), 16));
  problem.q_layout = QLayout::kRagged;
  list.add("packed_queued", problem, lists({1, 1, 0, 90, 1, 33, 1, 1}, {200, 1, 60, 300, 0, 33, 70, 150}), schedule);
}

/// Clusters: an even and an odd number of query tiles, so that the last CTA has rows or none; lower CTAs that see none
/// of the keys that the last one does; items without keys; and each way that a share of a tile is made of boxes.
void clusters(List& list) {
  int i = 0;
  const auto add = [&](const char* name, const AttentionProblem& problem, const AttentionShape& shape, int block_n,
                       int size = 2, const std::function<void(AttentionSchedule&)>& change = {}) {
    AttentionSchedule schedule = hopper();
    schedule.cluster = ClusterShape{size, 1};
    schedule.math_warpgroups = 1 + i % 3;
    schedule.block_n = block_n;
    schedule.kv_ring = i % 2 ? KvRing::kShared : KvRing::kSplit;
    schedule.num_kv_stages = 1 + i % 2 + i / 2 % 2;
    schedule.q_stages = 1 + i / 3 % 2;
    if (change) change(schedule);
    list.add(fmt::format("cluster{}_{}", i, name), problem, shape, schedule);
    ++i;
  };
  const AttentionProblem two = heads(small(), 2, 1), narrow = heads(dims(small(), 64, 64), 2, 1);
  AttentionShape several = lists({}, {333, 40, 0, 1});
  several.q_len = 200;
  add("dense", two, shape_of(1, 300, 260), 48);
  add("dense_lengths", heads(dims(small(DType::kF16), 80, 72), 2, 1), several, 80);
  add("dense_one_row", two, shape_of(2, 1, 100), 32);
  add("causal", causal(two), several, 48);
  add("causal_sinks", causal(with_sinks(narrow)), shape_of(2, 330, 400), 48);
  add("causal_more_queries", causal(with_sinks(narrow)), shape_of(1, 500, 40), 64);
  add("causal_of_four", causal(narrow), several, 64, 4);
  add("causal_d256", causal(heads(dims(small(), 256, 256), 1, 1)), shape_of(1, 290, 290), 32, 2, [](auto& schedule) {
    schedule.math_warpgroups = 2;
    schedule.num_kv_stages = 2;
  });
  add("window", windowed(two, 40), several, 48);
  add("window_paged", windowed(paged(two, 16), 70, 9), several, 80);
  add("window_empty_rows", windowed(with_sinks(narrow), 16, 3), shape_of(1, 300, 40), 32);
  add("chunks_paged", masked(paged(narrow, 24), chunks(80)), several, 48);
  add("paged_64", causal(paged(narrow, 64)), several, 128);
  add("paged_16_of_four", causal(paged(narrow, 16)), several, 64, 4, [](auto& schedule) {
    schedule.kv_ring = KvRing::kSplit;
    schedule.num_qk_stages = 1, schedule.num_mma_stages = 2;
  });
  add("sub_stages_of_both", causal(two), several, 64, 2, [](auto& schedule) {
    schedule.kv_ring = KvRing::kShared;
    schedule.num_kv_stages = 3, schedule.num_mma_stages = 2;
  });
  add("packed", causal(small()), shape_of(2, 70, 150), 48, 2, [](auto& schedule) { schedule.pack_gqa = true; });
  add("packed_ragged", causal(with_sinks(ragged(small()))),
      lists({1, 90, 0, 33, 1, 1, 60}, {200, 300, 60, 33, 1, 70, 20}), 48, 2, [](auto& schedule) {
        schedule.pack_gqa = true;
        schedule.math_warpgroups = 2;
      });
  add("ragged_longest_first", causal(ragged(narrow)), lists({1, 200, 0, 65, 129}, {50, 240, 9, 65, 300}), 48, 2,
      [](auto& schedule) { schedule.scheduler = Scheduler::kLongestFirst; });
  add("grid", causal(ragged(narrow)), lists({200, 3, 129}, {240, 9, 300}), 48, 2,
      [](auto& schedule) { schedule.scheduler = Scheduler::kGrid; });
  add("chunks_of_keys", causal(two), several, 32, 2, [](auto& schedule) {
    schedule.kv_ring = KvRing::kSplit;
    schedule.num_qk_stages = 2;
  });
  add("alibi", causal(with_alibi(narrow)), shape_of(1, 300, 333), 48);
}

/// Narrower swizzles than 128B, and none. Slabs of K and Q that a product walks step by step, two steps, or half a step
/// at a time; V across slabs; rows that are stored through slabs; boxes of pages, of a cluster's shares and of a warp;
/// rows that threads gather. c12_d16 and c12_d32 use the planner's choice.
void swizzles(List& list) {
  const auto add = [&](Swizzle swizzle, const char* name, const AttentionProblem& problem, const AttentionShape& shape,
                       const std::function<void(AttentionSchedule&)>& change = {}) {
    AttentionSchedule schedule = hopper();
    schedule.swizzle = swizzle;
    schedule.block_n = 48;
    if (change) change(schedule);
    list.add(fmt::format("swizzle_{}_{}", to_string(swizzle), name), problem, shape, schedule);
  };
  AttentionShape several = lists({}, {333, 40, 0, 1});
  several.q_len = 150;
  const auto split_in_three = [](AttentionSchedule& schedule) {
    schedule.kv_ring = KvRing::kSplit, schedule.num_qk_stages = 3, schedule.q_stages = 1;
  };
  const auto cluster_of = [](int size) {
    return [size](AttentionSchedule& schedule) { schedule.cluster = ClusterShape{size, 1}, schedule.block_n = 64; };
  };
  const auto parts = [](AttentionSchedule& schedule) {
    schedule.token_gen = true, schedule.splits = 3, schedule.block_n = {};
  };
  const AttentionProblem two = heads(small(), 2, 1);
  add(Swizzle::k64B, "causal", causal(heads(dims(small(DType::kF16), 96, 96), 2, 1)), several);
  add(Swizzle::k64B, "chunks_of_keys", causal(ragged(dims(two, 192, 128))), lists({130, 1, 66}, {333, 65, 66}),
      split_in_three);
  add(Swizzle::k64B, "cluster_paged", windowed(paged(dims(two, 96, 64), 16), 70, 9), several, cluster_of(2));
  add(Swizzle::k64B, "page3", causal(paged(dims(two, 96, 32), 3)), several);
  add(Swizzle::k64B, "decode", decode(paged(dims(small(), 96, 64), 16), 3), lists({}, {213, 40, 0}), parts);
  add(Swizzle::k32B, "window", windowed(with_sinks(dims(two, 80, 48)), 50, 3), several);
  add(Swizzle::k32B, "cluster", causal(dims(two, 64, 16)), shape_of(1, 500, 260), cluster_of(4));
  add(Swizzle::k32B, "page5", paged(dims(two, 112, 112), 5), several);
  add(Swizzle::k32B, "decode", decode(causal(dims(small(DType::kF16), 80, 48)), 4), lists({}, {213, 40, 0}), parts);
  add(Swizzle::kNone, "ragged", causal(ragged(dims(two, 72, 40))), lists({130, 1, 66}, {333, 65, 66}));
  add(Swizzle::kNone, "page1", paged(dims(heads(small(DType::kF16), 2, 1), 88, 8 * 9), 1), several);
  add(Swizzle::kNone, "decode", decode(ragged(dims(small(), 96, 80)), 1), lists({1, 1, 0}, {213, 40, 9}), parts);
  const auto keys = [](int count) { return [count](AttentionSchedule& schedule) { schedule.block_n = count; }; };
  add(Swizzle::k32B, "slots_of_odd_lines", causal(dims(two, 80, 48)), several, keys(80));
  add(Swizzle::kNone, "slots_of_half_lines", causal(dims(two, 16, 16)), several, keys(16));
  add(Swizzle::k128B, "of_narrow_heads", causal(dims(two, 32, 16)), several);
}

}  // namespace

std::vector<CudaCase> hopper_cases() {
  List list;
  lengths(list);
  head_sizes(list);
  masks(list);
  pages(list);
  small_pages(list);
  values(list);
  biases(list);
  schedules(list);
  three_stages(list);
  packed(list);
  clusters(list);
  swizzles(list);
  std::vector<CudaCase> cases = list.take();
  for (CudaCase& test : hopper_fp8_cases()) cases.push_back(std::move(test));
  for (CudaCase& test : rotary_cases()) cases.push_back(std::move(test));
  return cases;
}

namespace {

TEST(HopperCases, HaveNamesOfTheirOwnAndKernels) {
  std::set<std::string> names;
  for (const CudaCase& test : hopper_cases()) {
    EXPECT_TRUE(names.insert(test.name).second) << test.name;
    ASSERT_TRUE(is_taken(test, Arch::kSm90a)) << test.name;
    EXPECT_EQ(plan_attention(test.problem, test.schedule, Arch::kSm90a).main.family, Family::kHopper) << test.name;
    EXPECT_NO_THROW(shape_only(test.problem, test.shape)) << test.name;
  }
}

/// Every value of every field that the family's schedule has.
TEST(HopperCases, TryEveryWordOfTheSchedule) {
  std::set<int> warpgroups, block_n, q_stages, kv_stages, qk_stages, mma_stages, cluster_sizes;
  std::set<Overlap> overlaps;
  std::set<KvRing> rings;
  std::set<Scheduler> orders;
  std::set<Rescale> rescales;
  std::set<Swizzle> swizzles;
  for (const CudaCase& test : hopper_cases()) {
    const AttentionSpec spec = plan_attention(test.problem, test.schedule, Arch::kSm90a).main;
    warpgroups.insert(spec.math_warpgroups), block_n.insert(spec.block_n), q_stages.insert(spec.q_stages);
    kv_stages.insert(spec.num_kv_stages), qk_stages.insert(spec.num_qk_stages);
    mma_stages.insert(spec.num_mma_stages);
    overlaps.insert(spec.overlap), rings.insert(spec.kv_ring), orders.insert(spec.scheduler);
    swizzles.insert(spec.swizzle);
    rescales.insert(spec.rescale), cluster_sizes.insert(spec.cluster_m);
  }
  EXPECT_EQ(warpgroups, (std::set{1, 2, 3}));
  EXPECT_GE(block_n.size(), 6u);
  EXPECT_EQ(q_stages, (std::set{1, 2, 3}));
  for (const int stages : {1, 2, 3, 4, 5}) EXPECT_TRUE(kv_stages.contains(stages)) << stages;
  EXPECT_TRUE(qk_stages.contains(2));
  EXPECT_EQ(mma_stages, (std::set{1, 2, 3, 4}));
  EXPECT_EQ(overlaps.size(), 4u);
  EXPECT_EQ(rings.size(), 2u);
  EXPECT_EQ(orders.size(), 4u);
  EXPECT_EQ(rescales.size(), 2u);
  EXPECT_EQ(swizzles.size(), 4u);
  EXPECT_EQ(cluster_sizes, (std::set{1, 2, 4}));
}

}  // namespace
}  // namespace kernelwright
