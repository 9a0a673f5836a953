// Pairs of CTAs that share each product (attention_sm100 with cta_group 2) on the emulator, with every check on. They
// must match the fp64 reference, cause no report, and give the same bits under every schedule. Where single CTAs walk
// the same key tiles, a pair must give their bits. Needs NVRTC.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "end_to_end/attention/cases/attention_cases.h"
#include "support/emulated_attention.h"

namespace kernelwright {
namespace {

using test::inputs_of;
using test::make_checking_engine;
using test::run_checked;
using test::verdict_of;

AttentionSchedule pair() {
  AttentionSchedule schedule;
  schedule.family = Family::kBlackwell;
  schedule.cta_group = 2;
  return schedule;
}
AttentionProblem small(int depth, DType dtype = DType::kBf16) {
  return heads(dims(default_problem(dtype), depth, depth), 2, 1);
}
AttentionShape lengths_of(int q_len, std::vector<int> kv_lens) {
  AttentionShape shape = lists({}, std::move(kv_lens));
  shape.q_len = q_len;
  return shape;
}

/// `alike`: a single CTA walks the same key tiles in the same order.
struct PairCase {
  CudaCase test;
  bool alike;
};

std::vector<PairCase> pair_cases() {
  std::vector<PairCase> cases;
  const auto add = [&](std::string name, AttentionProblem problem, AttentionShape shape, bool alike,
                       AttentionSchedule schedule = pair()) {
    cases.push_back({{std::move(name), std::move(problem), std::move(shape), schedule}, alike});
  };
  // Rows that end in the first CTA, between the two CTAs, in the second, and in the next pair; also no rows, or no
  // keys.
  add("rows", ragged(small(128)), lists({1, 255, 0, 257, 513}, {130, 128, 7, 127, 60}), true);
  add("no_keys", causal(with_sinks(small(72))), lengths_of(300, {0, 3, 129}), true);
  add("causal", causal(small(128)), lengths_of(300, {300, 40}), true);
  add("window", windowed(small(96), 100, 3), lengths_of(300, {500, 200}), false);
  add("chunked", masked(small(80), chunks(80)), shape_of(1, 300, 300), false);
  add("packed", causal(heads(ragged(small(128)), 8, 2)), lists({1, 0, 33, 90}, {200, 7, 33, 300}), true);
  add("packed_paged_window", windowed(with_sinks(heads(paged(small(112), 16), 8, 1))), lengths_of(80, {300, 17}),
      false);
  for (const int page : {8, 48, 64, 256})
    add(fmt::format("page{}", page), causal(paged(small(80), page)), lengths_of(65, {260, 1, 64, 0}), true);
  for (const int depth : {16, 72, 104})
    add(fmt::format("d{}", depth), small(depth, depth % 16 == 0 ? DType::kF16 : DType::kBf16), shape_of(1, 150, 260),
        true);
  add("d128_64", dims(small(128), 128, 64), shape_of(1, 100, 200), true);
  int i = 0;
  for (const KvRing ring : {KvRing::kShared, KvRing::kSplit})
    for (const int keys : {64, 96, 128}) {
      AttentionSchedule schedule = pair();
      schedule.kv_ring = ring;
      schedule.block_n = keys;
      schedule.num_kv_stages = 2 + i % 2;
      schedule.num_qk_stages = ring == KvRing::kSplit ? 1 + i % 2 : 1;
      schedule.num_mma_stages = ring == KvRing::kSplit ? 1 + (i + 1) % 2 : 1;
      if (ring == KvRing::kShared && keys == 128) schedule.num_qk_stages = schedule.num_mma_stages = 2;
      schedule.rescale = i % 2 ? Rescale::kAlways : Rescale::kLazy;
      schedule.scheduler = i % 2 ? Scheduler::kLongestFirst : Scheduler::kGrid;
      add(fmt::format("schedule{}", i), i % 3 == 1 ? causal(small(128)) : small(128), lengths_of(270, {333, 40}), true,
          schedule);
      ++i;
    }
  return cases;
}

class BlackwellPairOnTheEmulator : public test::OnTheEmulator<PairCase> {};

TEST_P(BlackwellPairOnTheEmulator, IsRightAndTheSameHoweverItIsScheduledAndAlone) {
  const CudaCase& test = GetParam().test;
  const AttentionCase call = inputs_of(test);
  Engine random = make_checking_engine(4, emulator::Completion::kRandom, 7, Arch::kSm100a),
         other = make_checking_engine(3, emulator::Completion::kRandom, 8, Arch::kSm100a),
         lazy = make_checking_engine(148, emulator::Completion::kLazy, 0, Arch::kSm100a),
         eager = make_checking_engine(2, emulator::Completion::kEager, 0, Arch::kSm100a);
  const AttentionOutput output = run_checked(random, test, call);
  EXPECT_TRUE(verdict_of(call, output).passed) << verdict_of(call, output).text;
  EXPECT_TRUE(output == run_checked(other, test, call)) << "two seeds differ";
  EXPECT_TRUE(output == run_checked(lazy, test, call)) << "as late as can be";
  EXPECT_TRUE(output == run_checked(eager, test, call)) << "as soon as can be";
  CudaCase alone = test;
  alone.schedule.cta_group = 1;
  if (!alone.schedule.num_kv_stages.is_auto()) alone.schedule.num_kv_stages = 2;  // slots are twice as large
  alone.schedule.num_q = 2;
  const AttentionOutput by_itself = run_checked(eager, alone, call);
  EXPECT_TRUE(verdict_of(call, by_itself).passed) << verdict_of(call, by_itself).text;
  if (GetParam().alike) EXPECT_TRUE(output == by_itself) << "a CTA by itself differs";
}

INSTANTIATE_TEST_SUITE_P(, BlackwellPairOnTheEmulator, testing::ValuesIn(pair_cases()),
                         [](const auto& info) { return info.param.test.name; });

}  // namespace
}  // namespace kernelwright
