// attention_sm100 whose CTAs take further items by cluster launch control ("scheduler": "queued"), on the emulator with
// every check on. It must give the bits of a grid with one CTA per item. This must hold for any number of SMs, any
// order in which copies and products complete, and any order of warps. Needs NVRTC and no GPU.
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

std::vector<CudaCase> cases() {
  const AttentionProblem small = dims(heads(default_problem(), 2, 1), 64, 64);
  AttentionSchedule two;
  two.family = Family::kBlackwell;
  two.scheduler = Scheduler::kQueued;
  two.pack_gqa = false;
  two.num_q = 2;
  two.num_kv_stages = 2;
  AttentionSchedule one = two, packed = two, chunks = one;
  one.num_q = 1;
  one.num_kv_stages = 3;
  packed.pack_gqa = true;
  chunks.kv_ring = KvRing::kSplit;
  chunks.num_qk_stages = 2;
  AttentionShape padded = lists({}, {333, 40, 0});
  padded.q_len = 300;
  AttentionProblem pages = causal(paged(small, 16)), rows = causal(paged(small, 3));
  pages.q_layout = rows.q_layout = QLayout::kRagged;
  const AttentionShape mixed = lists({1, 0, 150, 1, 70, 0, 300}, {90, 60, 400, 0, 70, 0, 433});
  std::vector<CudaCase> list;
  for (const auto& [name, schedule] : {std::pair{"two", two}, {"one", one}}) {
    const auto add = [&](const char* of, const AttentionProblem& problem, const AttentionShape& shape) {
      list.push_back({fmt::format("{}_{}", of, name), problem, shape, schedule});
    };
    add("causal", causal(with_sinks(small)), shape_of(1, 600, 600));
    add("keys_of_other_sequences", small, padded);
    add("rows_that_see_no_key", with_sinks(windowed(small, 70, 9)), padded);
    add("ragged", ragged(causal(small)), lists({90, 0, 1, 300, 130}, {90, 0, 1, 300, 260}));
    add("pages", pages, mixed);
    add("gathered", rows, mixed);
  }
  list.push_back({"no_key_at_all", with_sinks(small), lists({}, {0, 0, 0}), two});
  list.push_back({"one_item", heads(small, 1, 1), shape_of(1, 20, 300), one});
  list.push_back({"packed", pages, mixed, packed});
  list.push_back({"chunks_of_keys", dims(causal(small), 128, 128), shape_of(1, 300, 400), chunks});
  return list;
}

class QueuedBlackwellAttention : public test::OnTheEmulator<CudaCase> {};

TEST_P(QueuedBlackwellAttention, HasTheBitsOfAGridWhicheverCtaTakesAnItem) {
  const CudaCase& test = GetParam();
  CudaCase grid = test;
  grid.schedule.scheduler = Scheduler::kGrid;
  const AttentionCase call = inputs_of(test);
  Engine reference = make_checking_engine(148, emulator::Completion::kEager, 0, Arch::kSm100a);
  const AttentionOutput expected = run_checked(reference, grid, call);
  EXPECT_TRUE(verdict_of(call, expected).passed) << verdict_of(call, expected).text;
  struct Machine {
    int sms;
    emulator::Completion completion;
    std::uint64_t seed;
  };
  for (const Machine& machine : {Machine{1, emulator::Completion::kEager, 0},
                                 {1, emulator::Completion::kLazy, 3},
                                 {2, emulator::Completion::kRandom, 5},
                                 {3, emulator::Completion::kRandom, 6},
                                 {148, emulator::Completion::kLazy, 0}}) {
    SCOPED_TRACE(fmt::format("{} SMs, seed {}", machine.sms, machine.seed));
    Engine engine = make_checking_engine(machine.sms, machine.completion, machine.seed, Arch::kSm100a);
    EXPECT_TRUE(expected == run_checked(engine, test, call)) << "a queue";
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(, QueuedBlackwellAttention, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kernelwright
