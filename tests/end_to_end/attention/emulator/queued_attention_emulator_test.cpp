// Work items from a queue ("scheduler": "queued") on the emulator, with every check on. They must give the bits of a
// schedule that deals items in advance, whatever the queue's word held before and however many CTAs ask. The word must
// be fit for the next launch. Needs NVRTC and no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "end_to_end/attention/cases/attention_cases.h"
#include "support/emulated_attention.h"

namespace kernelwright::queued_attention_emulator_test {
namespace {

using test::expect_no_reports;
using test::expect_right;
using test::expect_same_bits;
using test::inputs_of;
using test::make_checking_engine;
using test::run_checked;

constexpr std::uint64_t kNobodyAsked = 0x7fb91e4d00000000;  // what policy/item_queue.cuh leaves in the word

AttentionSchedule one_warpgroup(Scheduler scheduler) {
  AttentionSchedule schedule;
  schedule.family = Family::kHopper;
  schedule.math_warpgroups = 1;
  schedule.block_n = 48;
  schedule.pack_gqa = false;
  schedule.scheduler = scheduler;
  return schedule;
}

std::vector<CudaCase> cases() {
  const AttentionProblem small = dims(heads(default_problem(), 2, 1), 64, 64);
  const AttentionSchedule schedule = one_warpgroup(Scheduler::kQueued);
  AttentionSchedule packed = schedule;
  packed.pack_gqa = true;
  AttentionProblem ragged_pages = causal(paged(small, 16));
  ragged_pages.q_layout = QLayout::kRagged;
  AttentionShape padded = lists({}, {333, 40, 0});
  padded.q_len = 200;
  const AttentionShape mixed = lists({1, 0, 150, 1, 70, 0, 1}, {90, 60, 200, 0, 70, 0, 33});
  return {{"causal", causal(small), shape_of(2, 300, 300), schedule},
          {"no_mask", small, padded, schedule},
          {"rows_that_see_no_key", with_sinks(windowed(small, 70, 9)), padded, schedule},
          {"no_key_at_all", small, lists({}, {0, 0, 0}), schedule},
          {"one_item", heads(small, 1, 1), shape_of(1, 20, 100), schedule},
          {"ragged", ragged(causal(small)), lists({90, 0, 1, 200}, {90, 0, 1, 200}), schedule},
          {"ragged_packed", ragged_pages, mixed, packed},
          {"ragged_pages", ragged_pages, mixed, schedule},
          {"fewer_tiles_than_ctas", ragged_pages, lists({3, 0, 0, 300, 0, 0}, {30, 60, 0, 300, 9, 0}), packed}};
}

class QueuedAttention : public testing::TestWithParam<CudaCase> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

/// One launch into poisoned outputs. The queue holds `word` before the launch; afterwards `word` is what the launch
/// left.
AttentionOutput run(Engine& engine, DeviceCase& on_device, std::uint64_t& word) {
  Device& device = engine.device(0);
  on_device.poison();
  on_device.wait();
  device.copy_to_device(on_device.tensors().workspace, &word, sizeof word);
  on_device.launch();
  const AttentionOutput output = on_device.download();
  device.copy_to_host(&word, on_device.tensors().workspace, sizeof word);
  EXPECT_TRUE(on_device.guards_are_intact()) << "memory beside an output was written";
  expect_no_reports(engine);
  return output;
}

TEST_P(QueuedAttention, HasTheBitsOfItemsDealtBeforehandWhateverTheWorkspaceHeld) {
  const CudaCase& test = GetParam();
  CudaCase dealt = test;
  dealt.schedule.scheduler = Scheduler::kLongestFirst;
  const AttentionCase call = inputs_of(test);
  Engine reference = make_checking_engine(3, emulator::Completion::kEager, 0);
  const AttentionOutput expected = run_checked(reference, dealt, call);
  expect_right(call, expected);
  constexpr std::uint64_t kLeftovers[] = {
      0,
      ~std::uint64_t{0},
      kNobodyAsked,
      kNobodyAsked - 1,    // one question away from a count
      0x7fa5c3d2ffb60000,  // a counter of CTAs that merge parts
      0x3f8000003f800000,
  };
  for (const int sms : {1, 3, 132}) {
    Engine engine = make_checking_engine(sms, sms == 3 ? emulator::Completion::kRandom : emulator::Completion::kLazy,
                                         static_cast<std::uint64_t>(sms));
    DeviceCase on_device(engine.device(0), call, engine.prepare(test.problem, test.schedule));
    ASSERT_EQ(on_device.tensors().workspace_bytes, 8u);
    for (std::uint64_t word : kLeftovers) {
      SCOPED_TRACE(fmt::format("{} SMs, the word was {:#x}", sms, word));
      expect_same_bits(expected, run(engine, on_device, word), "the first launch");
      EXPECT_EQ(word, kNobodyAsked);
      if (HasFailure()) return;
    }
  }
}

TEST_P(QueuedAttention, LaunchesFollowOneAnotherOnOneWorkspace) {
  const CudaCase& test = GetParam();
  const AttentionCase call = inputs_of(test);
  Engine engine = make_checking_engine(4, emulator::Completion::kRandom, 7);
  DeviceCase on_device(engine.device(0), call, engine.prepare(test.problem, test.schedule));
  std::uint64_t word = 0xffffffffffffffff;
  const AttentionOutput expected = run(engine, on_device, word);
  for (const int budget : {0, 1, 2, 3, 100}) {
    on_device.tensors().sm_budget = budget;
    expect_same_bits(expected, run(engine, on_device, word), "a later launch");
    EXPECT_EQ(word, kNobodyAsked) << budget;
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(, QueuedAttention, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

/// A batch that has no rows asks nothing, and changes nothing.
TEST(QueuedAttentionOfNothing, LeavesTheWorkspaceAsItWas) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  AttentionProblem problem = causal(paged(dims(heads(default_problem(), 2, 1), 64, 64), 16));
  problem.q_layout = QLayout::kRagged;
  const AttentionCase call = make_inputs(problem, lists({70, 90}, {100, 100}));
  Engine engine = make_checking_engine(3, emulator::Completion::kRandom, 5);
  DeviceCase on_device(engine.device(0), call, engine.prepare(problem, one_warpgroup(Scheduler::kQueued)));
  const std::int32_t no_queries[3] = {};  // what the host knows is a bound
  engine.device(0).copy_to_device(on_device.tensors().q_offsets, no_queries, sizeof no_queries);
  std::uint64_t word = 5;
  run(engine, on_device, word);
  EXPECT_EQ(word, 5u);
}

}  // namespace
}  // namespace kernelwright::queued_attention_emulator_test
