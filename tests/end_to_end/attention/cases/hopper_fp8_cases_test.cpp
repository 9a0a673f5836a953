// Cases for attention_sm90 over fp8 keys and values, under 16-bit queries and under fp8 ones: what the warps that make
// operands could do wrong. Head sizes and swizzles, for the places of bytes; rings, boxes of pages and the order of
// items, for the ring of raw tiles; lengths, windows and starts, for rows that become zeros; scales of each kind, and
// all that takes the place of a score.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/generator/attention/planner.h"

namespace kernelwright {
namespace hopper_fp8_cases_test {
namespace {

class List {
 public:
  explicit List(bool narrow) : narrow_(narrow) {}
  /// Whether queries are fp8 too.
  bool narrow() const { return narrow_; }
  CudaCase& add(const std::string& name, AttentionProblem problem, AttentionShape shape,
                const std::function<void(AttentionSchedule&)>& change = {}) {
    AttentionSchedule schedule;
    schedule.family = Family::kHopper;
    if (change) change(schedule);
    if (narrow_) problem.dtype = {DType::kE4m3, DType::kE4m3, problem.dtype.out};
    cases_.push_back({(narrow_ ? "sm90_fp8_" : "sm90_fp8kv_") + name, std::move(problem), std::move(shape), schedule});
    return cases_.back();
  }
  std::vector<CudaCase> take() { return std::move(cases_); }

 private:
  const bool narrow_;
  std::vector<CudaCase> cases_;
};

/// Two query heads of one KV head, with each type of keys and each kind of scales in turn.
AttentionProblem small(int i, int q_heads = 2, int kv_heads = 1) {
  constexpr ScaleKind kinds[] = {ScaleKind::kPerTensor, ScaleKind::kPerHead, ScaleKind::kNone};
  return fp8(heads(default_problem(i % 4 < 2 ? DType::kBf16 : DType::kF16), q_heads, kv_heads), kinds[i % 3],
             i % 2 == 0 ? DType::kE4m3 : DType::kE5m2);
}

AttentionShape several(std::vector<int> lengths, int q_len) {
  AttentionShape shape = lists({}, std::move(lengths));
  shape.q_len = q_len;
  return shape;
}

void head_sizes(List& list) {
  int i = 0;
  for (const auto& [qk, v] :
       {std::pair{16, 16}, std::pair{32, 32}, std::pair{48, 32}, std::pair{64, 64}, std::pair{80, 80},
        std::pair{96, 96}, std::pair{128, 128}, std::pair{160, 144}, std::pair{192, 128}, std::pair{256, 256}})
    if (!list.narrow() || v != 144)
      list.add(fmt::format("d{}_{}", qk, v), causal(dims(small(i++), qk, v)), several({300, 1, 0, 129}, 150));
  if (list.narrow())
    for (const int qk : {144, 256})
      list.add(fmt::format("d{}_{}", qk, 112), dims(small(i++), qk, 112), several({300, 1, 0, 129}, 150));
  if (list.narrow())  // values in groups of columns
    for (const int v : {160, 192})
      list.add(fmt::format("d{0}_{0}", v), causal(dims(small(i++), v, v)), several({300, 1, 0, 129}, 150));
}

void swizzles(List& list) {
  const AttentionShape shape = several({333, 40, 0, 1}, 150);
  const auto in = [](Swizzle swizzle, int keys) {
    return [=](AttentionSchedule& schedule) { schedule.swizzle = swizzle, schedule.block_n = keys; };
  };
  if (list.narrow()) {
    list.add("swizzle_64B", causal(dims(small(0), 128, 64)), shape, in(Swizzle::k64B, 96));
    list.add("swizzle_32B", causal(dims(small(3), 96, 32)), shape, in(Swizzle::k32B, 64));
    list.add("swizzle_128B_of_two_slabs", dims(small(1), 64, 48), shape, in(Swizzle::k128B, 160));
    return;
  }
  list.add("swizzle_64B", causal(dims(small(0), 96, 64)), shape, in(Swizzle::k64B, 64));
  list.add("swizzle_64B_odd", dims(small(1), 96, 96), shape, in(Swizzle::k64B, 48));
  list.add("swizzle_32B", causal(dims(small(3), 80, 48)), shape, in(Swizzle::k32B, 64));
  list.add("swizzle_32B_odd", dims(small(2), 48, 48), shape, in(Swizzle::k32B, 80));
}

void schedules(List& list) {
  int i = 0;
  for (int warpgroups = 1; warpgroups <= 3; ++warpgroups)
    for (const KvRing ring : {KvRing::kSplit, KvRing::kShared})
      for (const int q_stages : {1, 2}) {
        if (list.narrow() && ring == KvRing::kShared) continue;
        AttentionProblem problem = small(i);
        if (list.narrow() && warpgroups == 3) problem = dims(problem, 80, 64);
        if (i % 3 != 1) problem = i % 3 == 0 ? causal(problem) : windowed(problem, 70, 9);
        list.add(fmt::format("schedule{}", i), problem, several({333, 40}, 200), [&](AttentionSchedule& schedule) {
          schedule.math_warpgroups = warpgroups, schedule.kv_ring = ring, schedule.q_stages = q_stages;
          schedule.block_n = i % 2 == 1 ? 64 : list.narrow() ? 32 : 48;
          schedule.num_kv_stages = ring == KvRing::kShared ? 2 + i % 2 : 1 + i % 2;
          if (i % 4 == 3) schedule.rescale = Rescale::kAlways;
        });
        ++i;
      }
}

void keys(List& list) {
  int i = 0;
  for (const int page : {8, 16, 48, 64, 256})
    list.add(fmt::format("page{}", page), causal(paged(small(i++), page)), several({700, 1, 257, 64, 0}, 65));
  list.add("page16_shared", causal(paged(small(0), 16)), shape_of(3, 20, 600)).options.share_pages = true;
  list.add("ragged", causal(with_sinks(ragged(small(1)))), lists({90, 1, 0, 33}, {133, 70, 9, 33}));
  list.add("window_paged", windowed(with_sinks(paged(small(3), 16)), 70, 9), several({333, 40, 0, 129}, 150));
  list.add("window_empty_rows", windowed(small(2), 16, 0), shape_of(2, 200, 40));
  list.add("chunks_paged", masked(paged(small(5), 24), chunks(37)), several({333, 40, 0, 1}, 150));
  list.add("no_keys", small(0), shape_of(2, 64, 0));
  list.add("starts_paged", causal(left_padded(paged(small(4), 64))), several({333, 200, 0, 100}, 130));
  list.add("starts", left_padded(small(1)), several({333, 200, 0, 100}, 130));
}

void scores(List& list) {
  list.add("softcap", causal(capped(small(1, 4, 2), 20)), shape_of(2, 130, 200));
  list.add("alibi", causal(with_alibi(small(4, 4, 2))), shape_of(2, 130, 200));
  // Heads of several KV heads follow each other in a CTA: each has scales of its own.
  list.add("heads", causal(with_sinks(small(1, 6, 3))), several({200, 65, 0}, 100));
  list.add("negative_scale", causal(small(3, 2, 2)), shape_of(1, 80, 150)).change = [](AttentionCase& call) {
    call.scale = -0.3f;
  };
}

/// Values in columns: slabs of each width, every order of a step, and keys at both ends that no row sees.
void columns(List& list) {
  int i = 0;
  const auto in_columns = [&](int page, int qk = 64, int v = 64) {
    AttentionProblem problem = dims(paged(small(i++), page), qk, v);
    problem.v_layout = VLayout::kColumns;
    return problem;
  };
  const AttentionShape shape = several({130, 1, 0, 67}, 40);
  const auto wide = [](int keys) { return [=](AttentionSchedule& schedule) { schedule.block_n = keys; }; };
  list.add("columns_page16", causal(in_columns(16)), shape);
  list.add("columns_page256", in_columns(256), shape, wide(128));
  list.add("columns_d16", causal(in_columns(32, 16, 16)), shape);
  list.add("columns_d192_128", causal(in_columns(64, 192, 128)), shape);
  list.add("columns_d256_112", in_columns(32, 256, 112), shape);
  list.add("columns_window", windowed(with_sinks(in_columns(16)), 37, 9), shape);
  list.add("columns_starts", causal(left_padded(in_columns(64))), several({130, 100, 0, 67}, 40));
  list.add("columns_softcap", capped(in_columns(128, 128, 128), 20), shape).options = {.padding_tokens = 1};
  AttentionProblem packed = causal(heads(in_columns(16), 8, 2));
  packed.q_layout = QLayout::kRagged;
  list.add("columns_mixed", packed, lists({1, 1, 0, 40, 1}, {130, 1, 60, 67, 0}),
           [](AttentionSchedule& schedule) { schedule.pack_gqa = true; });
  if (list.narrow()) {
    list.add("columns_page48", in_columns(48), shape);
    list.add("columns_page64", causal(in_columns(64, 128, 128)), shape);
    list.add("columns_d192", in_columns(16, 192, 192), shape);
    return;
  }
  // Converted slabs of 32 and 64 bytes, and blocks of 16 elements with a run that is alone.
  const auto in = [](int keys, int warpgroups, KvRing ring, Swizzle swizzle = Swizzle::k128B) {
    return [=](AttentionSchedule& schedule) {
      schedule.block_n = keys, schedule.math_warpgroups = warpgroups;
      schedule.kv_ring = ring, schedule.swizzle = swizzle;
    };
  };
  list.add("columns_of_48_keys", in_columns(48, 48, 48), shape, in(48, 1, KvRing::kSplit));
  list.add("columns_of_80_keys", causal(in_columns(16, 80, 48)), shape, in(80, 1, KvRing::kShared, Swizzle::k32B));
  list.add("columns_of_96_keys", causal(in_columns(64, 96, 96)), shape, in(96, 2, KvRing::kSplit));
}

/// Scales that differ by key: tiles of each head size, pages, and what joins or hides a score between the two factors.
void key_scales(List& list) {
  int i = 0;
  const auto scaled = [&](ScaleKind kind, int q_heads = 2, int kv_heads = 1) {
    AttentionProblem problem = small(++i, q_heads, kv_heads);
    problem.scales = kind;
    return problem;
  };
  constexpr ScaleKind kToken = ScaleKind::kPerToken, kPage = ScaleKind::kPerPage;
  const AttentionShape shape = several({150, 1, 0, 67}, 70);
  list.add("tokens_d64", causal(with_sinks(dims(scaled(kToken), 64, 64))), shape);
  list.add("tokens_d192_128", dims(scaled(kToken, 2, 2), 192, 128), shape).options = {.heads_first = true,
                                                                                      .padding_tokens = 3};
  list.add("tokens_d256", causal(dims(scaled(kToken), 256, 256)), shape);
  // Some of its walks have several tiles: their pages are looked up two tiles ahead.
  list.add("pages_of_16", causal(with_sinks(paged(scaled(kPage, 4, 2), 16))), several({500, 1, 0, 67}, 70))
      .options.heads_first = true;
  list.add("pages_of_48_window", windowed(paged(scaled(kPage), 48), 37, 9), shape);
  list.add("tokens_paged_starts", causal(left_padded(paged(scaled(kToken), 64))), several({150, 100, 0, 67}, 60));
  list.add("tokens_starts", left_padded(scaled(kToken)), several({150, 100, 0, 67}, 60));
  list.add("tokens_capped", capped(scaled(kToken, 4, 2), 20), shape);
  list.add("tokens_alibi", causal(with_alibi(scaled(kToken, 4, 2))), shape).change = [](AttentionCase& call) {
    call.scale = -0.3f;
  };
  list.add("tokens_extreme", causal(with_sinks(scaled(kToken))), shape).change = give_extreme_scales;
  AttentionProblem packed = causal(with_sinks(paged(scaled(kToken, 8, 2), 16)));
  packed.q_layout = QLayout::kRagged;
  list.add("tokens_mixed", packed, lists({1, 1, 0, 40, 1}, {130, 1, 60, 67, 0}),
           [](AttentionSchedule& schedule) { schedule.pack_gqa = true; });
  AttentionProblem columns = causal(paged(scaled(kToken), 16));
  columns.v_layout = VLayout::kColumns;
  list.add("tokens_columns", columns, shape);
}

/// Products with V that stay in the tensor cores: every order of a step, and outputs that one instruction has no room
/// for. Keys are few, and the bound is that of promoted products.
void unpromoted(List& list) {
  if (!list.narrow()) return;
  const auto add = [&](const std::string& name, const AttentionProblem& problem, Overlap overlap, bool packs = false) {
    list.add("unpromoted_" + name, problem,
             packs ? lists({1, 40, 0, 1}, {130, 67, 60, 1}) : several({300, 1, 0, 129}, 100),
             [&](AttentionSchedule& schedule) {
               schedule.pv_promote = 0;
               schedule.overlap = overlap;
               if (packs) schedule.pack_gqa = true;
             });
  };
  add("d64", causal(dims(small(0), 64, 64)), Overlap::kBoth);
  add("d128", causal(with_sinks(dims(small(1), 128, 128))), Overlap::kNone);
  add("d192_128", dims(small(2), 192, 128), Overlap::kPingPong);
  add("d256", windowed(dims(small(3), 256, 256), 70, 9), Overlap::kIntra);
  add("d256_one_product", causal(dims(small(0), 256, 256)), Overlap::kNone);
  add("mixed", causal(ragged(small(1, 8, 2))), Overlap::kIntra, true);
  AttentionProblem columns = causal(paged(small(4), 64));
  columns.v_layout = VLayout::kColumns;
  add("columns", columns, Overlap::kBoth);
}

/// Sums that leave the tensor cores after runs of tiles: every order of a step, runs of all lengths, references that
/// move within a run and between two, and items of fewer tiles than a run.
void runs(List& list) {
  if (!list.narrow()) return;
  const auto add = [&](const std::string& name, const AttentionProblem& problem, Overlap overlap, int tiles,
                       bool packs = false) {
    list.add("runs_" + name, problem, packs ? lists({1, 40, 0, 1}, {330, 267, 60, 1}) : several({500, 1, 0, 129}, 100),
             [&](AttentionSchedule& schedule) {
               schedule.pv_promote = tiles;
               schedule.overlap = overlap;
               schedule.block_n = 64;
               if (packs) schedule.pack_gqa = true;
             });
  };
  add("d64", causal(dims(small(0), 64, 64)), Overlap::kBoth, 2);
  add("d128", causal(with_sinks(dims(small(1), 128, 128))), Overlap::kIntra, 4);
  add("d128_one_product", dims(small(2), 128, 128), Overlap::kNone, 2);
  add("d192_128", windowed(dims(small(3), 192, 128), 200, 9), Overlap::kPingPong, 2);
  add("d80", causal(dims(small(4), 80, 80)), Overlap::kIntra, 16);
  add("mixed", causal(ragged(small(1, 8, 2))), Overlap::kIntra, 2, true);
  AttentionProblem columns = causal(paged(small(4), 64));
  columns.v_layout = VLayout::kColumns;
  add("columns", columns, Overlap::kBoth, 2);
  // Three warpgroups have halves of sums in shared memory.
  const auto add_shared = [&](const std::string& name, AttentionProblem problem, int block_n, int tiles,
                              bool lse = false) {
    problem.lse = lse;
    list.add("runs_shared_" + name, problem, several({500, 1, 0, 129}, 100), [&](AttentionSchedule& schedule) {
      schedule.pv_promote = tiles;
      schedule.overlap = Overlap::kIntra;
      schedule.math_warpgroups = 3;
      schedule.block_n = block_n;
    });
  };
  add_shared("d128", causal(with_sinks(dims(small(0), 128, 128))), 96, 2);
  add_shared("d128_pages", causal(paged(dims(small(1, 8, 2), 128, 128), 64)), 96, 4);
  add_shared("d80", dims(small(2), 80, 80), 96, 2);
  add_shared("lse", dims(small(4), 128, 128), 64, 4, true);
}

/// Parts of P V that take turns between two tiles of registers, and that wait for each other: two to four of them. The
/// first tile of an item, the last product of one, and references that move.
void parts(List& list) {
  if (!list.narrow()) return;
  const auto add = [&](const std::string& name, const AttentionProblem& problem, Overlap overlap, int buffers = 2,
                       bool packs = false) {
    list.add("parts_" + name, problem, packs ? lists({1, 40, 0, 1}, {130, 67, 60, 1}) : several({300, 1, 0, 129}, 100),
             [&](AttentionSchedule& schedule) {
               schedule.pv_promote = 1;
               schedule.pv_buffers = buffers;
               schedule.overlap = overlap;
               schedule.block_n = 64;
               if (packs) schedule.pack_gqa = true;
             });
  };
  AttentionProblem with_lse = causal(with_sinks(dims(small(0), 256, 256)));
  with_lse.lse = true;
  add("d256", with_lse, Overlap::kNone);
  add("d256_alone", causal(dims(small(1), 256, 256)), Overlap::kNone, 1);
  add("d128", windowed(dims(small(3), 128, 128), 70, 9), Overlap::kPingPong);
  add("mixed", causal(ragged(dims(small(1, 8, 2), 192, 192))), Overlap::kNone, 2, true);
  AttentionProblem columns = causal(paged(dims(small(4), 256, 256), 64));
  columns.v_layout = VLayout::kColumns;
  add("columns", columns, Overlap::kPingPong);
}

/// Parts within the registers of scores, whose halves are products of their own, and raw tiles of V that come in
/// halves. Sequences end in either half of a tile.
void halves(List& list) {
  if (!list.narrow()) return;
  int i = 0;
  const auto add = [&](const std::string& name, AttentionProblem problem,
                       Overlap overlap = Overlap::kPingPong) -> CudaCase& {
    problem = dims(problem, 256, 256);
    problem.lse = problem.sinks = false;
    return list.add("halves_" + name, problem, several({300, 1, 0, 129, 190, 256}, 140),
                    [&](AttentionSchedule& schedule) {
                      schedule.block_n = 128;
                      schedule.pv_buffers = 2;
                      schedule.overlap = overlap;
                    });
  };
  add("dense", small(i++));
  add("alone", causal(small(i++)), Overlap::kNone);
  add("pages", causal(paged(small(i++), 16)));
  add("large_pages", paged(small(i++), 256));
  add("window", windowed(small(i++), 70, 9));
  add("softcap", causal(capped(small(i++), 20)));
  add("alibi", with_alibi(small(i++, 2, 2)));
  add("starts", causal(left_padded(paged(small(i++), 64))));
  add("packed", causal(small(i++, 8, 2)));
  add("negative_scale", small(i++)).change = [](AttentionCase& call) { call.scale = -0.3f; };
  add("rising", small(i++)).options.q_magnitude = 20;  // references move in either half
  AttentionProblem columns = causal(paged(small(i++), 128));
  columns.v_layout = VLayout::kColumns;
  add("columns", columns);
}

/// Exponentials by a polynomial: the coarse one of e4m3, and the finer one under an LSE. Rows that see no key ahead of
/// others, and scores far below the largest.
void emulated(List& list) {
  int i = 0;
  for (const double share : {1.0 / 16, 0.25, 0.5}) {
    AttentionProblem problem = causal(with_sinks(small(i++)));
    problem.lse = share != 0.25;
    list.add(fmt::format("emulated{}", i), problem, several({300, 1, 0, 129}, 150),
             [&](AttentionSchedule& schedule) { schedule.exp2_emulated = share; });
  }
  AttentionProblem plain = windowed(small(i), 70, 9);
  plain.lse = false;
  list.add("emulated_wide", plain, several({333, 40, 0}, 200),
           [](AttentionSchedule& schedule) { schedule.exp2_emulated = 0.5; })
      .options.q_magnitude = 20;
}

/// Packed heads of ragged batches: warpgroups without rows only keep step.
void mixed(List& list) {
  const AttentionShape shape = lists({1, 1, 0, 90, 1, 33, 1, 1}, {200, 1, 60, 300, 0, 33, 70, 150});
  const auto packed = [](AttentionSchedule& schedule) { schedule.pack_gqa = true; };
  for (const int page : {16, 64}) {
    AttentionProblem problem = causal(paged(small(page == 16 ? 1 : 3, 8, 2), page));
    problem.q_layout = QLayout::kRagged;
    list.add(fmt::format("mixed_page{}", page), problem, shape, packed);
  }
  list.add("packed_queued", causal(ragged(small(0, 8, 1))), shape, [&](AttentionSchedule& schedule) {
    packed(schedule);
    schedule.scheduler = Scheduler::kQueued;
  });
}

}  // namespace
}  // namespace hopper_fp8_cases_test

std::vector<CudaCase> hopper_fp8_cases() {
  std::vector<CudaCase> cases;
  for (const bool narrow : {false, true}) {
    hopper_fp8_cases_test::List list(narrow);
    hopper_fp8_cases_test::head_sizes(list);
    hopper_fp8_cases_test::swizzles(list);
    hopper_fp8_cases_test::schedules(list);
    hopper_fp8_cases_test::keys(list);
    hopper_fp8_cases_test::scores(list);
    hopper_fp8_cases_test::mixed(list);
    hopper_fp8_cases_test::columns(list);
    hopper_fp8_cases_test::key_scales(list);
    hopper_fp8_cases_test::emulated(list);
    hopper_fp8_cases_test::unpromoted(list);
    hopper_fp8_cases_test::runs(list);
    hopper_fp8_cases_test::parts(list);
    hopper_fp8_cases_test::halves(list);
    for (CudaCase& test : list.take()) cases.push_back(std::move(test));
  }
  return cases;
}

namespace hopper_fp8_cases_test {
namespace {

TEST(HopperFp8Cases, HaveKernelsOfTheFamilyAndEveryKindOfScale) {
  std::set<std::string> names;
  std::set<ScaleKind> scales;
  std::set<DType> types, queries;
  for (const CudaCase& test : hopper_fp8_cases()) {
    EXPECT_TRUE(names.insert(test.name).second) << test.name;
    ASSERT_TRUE(is_taken(test, Arch::kSm90a)) << test.name;
    EXPECT_EQ(plan_attention(test.problem, test.schedule, Arch::kSm90a).main.family, Family::kHopper) << test.name;
    scales.insert(test.problem.scales), types.insert(test.problem.dtype.kv);
    queries.insert(test.problem.dtype.q);
  }
  EXPECT_EQ(scales.size(), 5u);
  EXPECT_EQ(types.size(), 2u);
  EXPECT_EQ(queries.size(), 3u);
}

}  // namespace
}  // namespace hopper_fp8_cases_test
}  // namespace kernelwright
