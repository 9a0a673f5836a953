// Results that must not depend on something: with batch_invariant, a sequence's result on the rest of its batch; any
// result on the number of SMs that a launch may take, and on the launch. Compared bit for bit, on the emulator. Needs
// NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "end_to_end/attention/cases/attention_problems.h"
#include "end_to_end/attention/cases/cut_prompts.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/verify/attention/bound.h"
#include "kernelwright/verify/attention/device.h"
#include "kernelwright/verify/formats/float_formats.h"
#include "support/emulated_attention.h"
#include "support/ptx_store.h"

namespace kernelwright {
namespace {

struct Subject {
  const char* name;
  AttentionProblem problem;
  AttentionSchedule schedule;
  int q_len, kv_len;  // of the tested sequence; two tiles of each
};

std::vector<Subject> subjects() {
  AttentionProblem small = heads(dims(default_problem(), 64, 64), 2, 1);
  small.batch_invariant = small.deterministic = true;
  AttentionProblem pages = causal(paged(small, 16));
  pages.q_layout = QLayout::kRagged;
  AttentionSchedule packed = of_family(Family::kHopper);
  packed.pack_gqa = true;
  AttentionSchedule queued = of_family(Family::kHopper);
  queued.scheduler = Scheduler::kQueued;
  AttentionSchedule parts = of_family(Family::kPortable), one_part = of_family(Family::kHopper);
  one_part.token_gen = true;
  AttentionSchedule hopper_parts = one_part;
  parts.splits = hopper_parts.splits = 3;
  return {{"hopper_prefill", pages, of_family(Family::kHopper), 210, 300},
          {"hopper_prefill_packed", windowed(pages, 100), packed, 70, 300},
          {"hopper_prefill_queued", pages, queued, 210, 300},
          {"portable_prefill", pages, of_family(Family::kPortable), 150, 200},
          {"hopper_decode", decode(heads(paged(small, 16), 4, 1)), one_part, 1, 700},
          {"hopper_decode_in_three_parts", decode(heads(small, 4, 1)), hopper_parts, 1, 700},
          {"portable_decode", decode(heads(small, 4, 1), 2), of_family(Family::kPortable), 2, 700},
          {"portable_decode_in_three_parts", decode(heads(small, 4, 1)), parts, 1, 700}};
}

class OnEmulator : public testing::TestWithParam<Subject> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
    EngineOptions options;
    options.backend = "emulator";
    options.emulator.num_sms = 6;
    options.custom_store = test::ptx_store();
    engine_ = std::make_unique<Engine>(options);
    kernel_ = engine_->prepare(GetParam().problem, GetParam().schedule);
  }
  AttentionOutput run(const AttentionCase& call, int sm_budget = 0) {
    DeviceCase on_device(engine_->device(0), call, kernel_);
    on_device.tensors().sm_budget = sm_budget;
    on_device.poison();
    on_device.launch();
    return on_device.download();
  }
  std::unique_ptr<Engine> engine_;
  AttentionKernel kernel_;
};

/// `batch` sequences of lengths up to that of the subject and beyond it, the subject's own at `place`.
AttentionCase batch_of(const Subject& subject, int batch, int place) {
  AttentionShape shape = shape_of(batch, subject.q_len, subject.kv_len);
  for (int i = 0; i < batch; ++i) {
    const bool follows = i == place;
    if (subject.problem.q_layout == QLayout::kRagged) shape.q_lens.push_back(follows ? subject.q_len : i * 7 % 23);
    // One is longer: the launch's bound on keys is not the sequence's own.
    shape.kv_lens.push_back(follows ? subject.kv_len : i == 0 ? subject.kv_len + 413 : i * 37 % 90);
  }
  return make_inputs(subject.problem, shape);
}

void copy_sequence(const AttentionCase& from, AttentionCase& to, int place) {
  const auto copy = [&](const HostTensor& tensor, const std::byte* source, std::byte* target) {
    std::memcpy(target, source, static_cast<std::size_t>(tensor.head_dim) * bytes_of(tensor.dtype));
  };
  for (int query = 0; query < from.q_lens[0]; ++query)
    for (int head = 0; head < from.problem.heads.q; ++head)
      copy(from.q, from.q_row(0, query, head), to.q_row(place, query, head));
  for (int key = 0; key < from.kv_lens[0]; ++key)
    for (int head = 0; head < from.problem.heads.kv; ++head) {
      copy(from.k, from.k_row(0, key, head), to.k_row(place, key, head));
      copy(from.v, from.v_row(0, key, head), to.v_row(place, key, head));
    }
}

class BatchInvariance : public OnEmulator {};

TEST_P(BatchInvariance, ASequenceHasTheSameBitsAloneAndAmongOthers) {
  const Subject& subject = GetParam();
  const AttentionCase alone = batch_of(subject, 1, 0);
  const AttentionOutput output = run(alone);
  const Verdict verdict = verify(alone, output);
  EXPECT_TRUE(verdict.passed) << verdict.text;
  const std::vector<std::byte> expected = of_sequence(alone, output, 0);
  for (const auto& [batch, place] : {std::pair{3, 1}, std::pair{17, 16}, std::pair{17, 5}}) {
    AttentionCase call = batch_of(subject, batch, place);
    copy_sequence(alone, call, place);
    EXPECT_TRUE(of_sequence(call, run(call), place) == expected) << "place " << place << " of " << batch;
  }
}

TEST_P(BatchInvariance, AndWhateverSmsALaunchMayTake) {
  const AttentionCase call = batch_of(GetParam(), 5, 2);
  const AttentionOutput whole = run(call);
  const Verdict verdict = verify(call, whole);
  EXPECT_TRUE(verdict.passed) << verdict.text;
  for (const int sms : {0, 1, 4, 100}) {  // 0 again: the same launch
    const AttentionOutput output = run(call, sms);
    EXPECT_EQ(output.o, whole.o) << sms;
    EXPECT_EQ(std::memcmp(output.lse.data(), whole.lse.data(), whole.lse.size() * sizeof(float)), 0) << sms;
  }
}

INSTANTIATE_TEST_SUITE_P(, BatchInvariance, testing::ValuesIn(subjects()),
                         [](const auto& info) { return std::string(info.param.name); });

class CutInvariance : public test::OnTheEmulator<CutPrompt> {
 protected:
  std::vector<int> different(const AttentionProblem& problem) {
    return queries_that_differ(problem, 300, [&](const AttentionShape& shape, const AttentionCase& call) {
      return test::run_checked(engine_, {"", problem, shape, GetParam().schedule}, call);
    });
  }
  Engine engine_ = test::make_checking_engine(
      6, emulator::Completion::kEager, 1,
      GetParam().schedule.family.value() == Family::kBlackwell ? Arch::kSm100a : Arch::kSm90a);
};

TEST_P(CutInvariance, AQueryHasTheSameBitsHoweverItsPromptIsCut) {
  EXPECT_THAT(different(GetParam().problem), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(, CutInvariance, testing::ValuesIn(cut_prompts()),
                         [](const auto& info) { return std::string(info.param.name); });

// The test above would see it: without the word, tiles of a window, maxima and parts of keys follow other queries.
class CutInvarianceUnasked : public CutInvariance {};
TEST_P(CutInvarianceUnasked, IsNotThere) {
  AttentionProblem problem = GetParam().problem;
  problem.batch_invariant = false;
  EXPECT_THAT(different(problem), testing::Not(testing::IsEmpty()));
}
INSTANTIATE_TEST_SUITE_P(, CutInvarianceUnasked,
                         testing::Values(cut_prompts()[1], cut_prompts()[4], cut_prompts()[5], cut_prompts()[8]),
                         [](const auto& info) { return std::string(info.param.name); });

/// The test above would see it: without the word, a decode's parts follow the batch.
TEST(BatchInvarianceOfADecode, IsNotThereUnlessAskedFor) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  AttentionProblem problem = decode(heads(dims(default_problem(), 64, 64), 4, 1));
  AttentionExtent extent{.batch = 1, .q_heads = 4, .kv_heads = 1, .q_len = 1, .kv_len = 8192, .q_tokens = 1};
  const AttentionSpec spec = plan_attention(problem, of_family(Family::kPortable), Arch::kSm90a).main;
  const int alone = plan_launch(spec, extent, 132, 0).num_splits;
  extent.batch = extent.q_tokens = 170;
  EXPECT_NE(plan_launch(spec, extent, 132, 0).num_splits, alone);
}

}  // namespace
}  // namespace kernelwright
