// Results that must not depend on something: with batch_invariant, a sequence's result on the rest of its batch; any
// result on the number of SMs that a launch may take, and on the launch. Compared bit for bit, on the emulator. Needs
// NVRTC and no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "end_to_end/attention/cases/attention_problems.h"
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

AttentionSchedule on(Family family) {
  AttentionSchedule schedule;
  schedule.family = family;
  return schedule;
}

std::vector<Subject> subjects() {
  AttentionProblem small = heads(dims(default_problem(), 64, 64), 2, 1);
  small.batch_invariant = small.deterministic = true;
  AttentionProblem pages = causal(paged(small, 16));
  pages.q_layout = QLayout::kRagged;
  AttentionSchedule packed = on(Family::kHopper);
  packed.pack_gqa = true;
  AttentionSchedule queued = on(Family::kHopper);
  queued.scheduler = Scheduler::kQueued;
  AttentionSchedule parts = on(Family::kPortable), one_part = on(Family::kHopper);
  one_part.token_gen = true;
  AttentionSchedule hopper_parts = one_part;
  parts.splits = hopper_parts.splits = 3;
  return {{"hopper_prefill", pages, on(Family::kHopper), 210, 300},
          {"hopper_prefill_packed", windowed(pages, 100), packed, 70, 300},
          {"hopper_prefill_queued", pages, queued, 210, 300},
          {"portable_prefill", pages, on(Family::kPortable), 150, 200},
          {"hopper_decode", decode(heads(paged(small, 16), 4, 1)), one_part, 1, 700},
          {"hopper_decode_in_three_parts", decode(heads(small, 4, 1)), hopper_parts, 1, 700},
          {"portable_decode", decode(heads(small, 4, 1), 2), on(Family::kPortable), 2, 700},
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

/// o and lse of one sequence, as bytes.
std::vector<std::byte> of_sequence(const AttentionCase& call, const AttentionOutput& output, int sequence) {
  std::vector<std::byte> bytes;
  const std::size_t width = static_cast<std::size_t>(call.problem.head_dim.v) * bytes_of(call.problem.dtype.out);
  for (int query = 0; query < call.q_lens[static_cast<std::size_t>(sequence)]; ++query)
    for (int head = 0; head < call.problem.heads.q; ++head) {
      const std::byte* row = output.o.data() + call.o_index(sequence, query, head) * bytes_of(call.problem.dtype.out);
      bytes.insert(bytes.end(), row, row + width);
      const auto* lse = reinterpret_cast<const std::byte*>(output.lse.data() + call.lse_index(sequence, query, head));
      bytes.insert(bytes.end(), lse, lse + sizeof(float));
    }
  return bytes;
}

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

/// Queries [first, end) of the one sequence of `from` and the keys up to `end` become sequence `place` of `to`.
void copy_piece(const AttentionCase& from, AttentionCase& to, int first, int end, int place) {
  const auto copy = [&](const HostTensor& tensor, const std::byte* source, std::byte* target) {
    std::memcpy(target, source, static_cast<std::size_t>(tensor.head_dim) * bytes_of(tensor.dtype));
  };
  const int ahead = from.kv_lens[0] - from.q_lens[0];
  for (int query = first; query < end; ++query)
    for (int head = 0; head < from.problem.heads.q; ++head)
      copy(from.q, from.q_row(0, query - ahead, head), to.q_row(place, query - first, head));
  for (int key = 0; key < end; ++key)
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

/// A prompt whose queries come in one launch, or in several.
struct Prompt {
  const char* name;
  AttentionProblem problem;
  AttentionSchedule schedule;
};

constexpr int kPromptKeys = 300, kPromptStart = 21;  // with kv_starts, keys begin there

std::vector<Prompt> prompts() {
  AttentionProblem small = paged(heads(dims(default_problem(), 64, 64), 4, 2), 16);
  small.q_layout = QLayout::kRagged;
  small.batch_invariant = true;
  const AttentionProblem plain = causal(small), window = windowed(small, 70);
  AttentionSchedule drafted = on(Family::kHopper);
  drafted.token_gen = true;
  return {{"hopper", with_sinks(plain), on(Family::kHopper)},
          {"hopper_window", window, on(Family::kHopper)},
          {"hopper_window_from_a_start", left_padded(window), on(Family::kHopper)},
          {"hopper_fp8", fp8(plain), on(Family::kHopper)},
          {"hopper_drafted", decode(plain, 4), drafted},
          {"portable", plain, on(Family::kPortable)},
          {"portable_window", with_alibi(window), on(Family::kPortable)},
          {"portable_drafted", decode(window, 4), on(Family::kPortable)},
          {"blackwell_window", window, on(Family::kBlackwell)},
          {"blackwell_chunks", masked(small, chunks(96)), on(Family::kBlackwell)}};
}

using Pieces = std::vector<std::pair<int, int>>;  // queries [first, end), counted as their keys are

class CutInvariance : public test::OnTheEmulator<Prompt> {
 protected:
  /// For each query of the pieces, the bytes of its result. A launch has each piece as a sequence, with the keys up to
  /// its end. Other sequences lie between them.
  std::vector<std::vector<std::byte>> run(const AttentionCase& whole, const Pieces& pieces) {
    AttentionShape shape = shape_of(static_cast<int>(pieces.size()) * 2, 1, 1);
    for (const auto& [first, end] : pieces) {
      shape.q_lens.insert(shape.q_lens.end(), {end - first, 1 + first % 3});
      shape.kv_lens.insert(shape.kv_lens.end(), {end, end / 2 + 1});
      if (whole.problem.kv_starts) shape.kv_starts.insert(shape.kv_starts.end(), {std::min(kPromptStart, end), 0});
    }
    AttentionCase call = make_inputs(whole.problem, shape);
    call.scale = whole.scale, call.sinks = whole.sinks;
    for (int i = 0; const auto& [first, end] : pieces) copy_piece(whole, call, first, end, i++ * 2);
    const AttentionOutput output = test::run_checked(engine_, {"", whole.problem, shape, GetParam().schedule}, call);
    std::vector<std::vector<std::byte>> results;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::vector<std::byte> rows = of_sequence(call, output, static_cast<int>(i) * 2);
      const std::size_t queries = static_cast<std::size_t>(pieces[i].second - pieces[i].first);
      for (std::size_t query = 0; query < queries; ++query)
        results.emplace_back(rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / queries * query),
                             rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / queries * (query + 1)));
    }
    return results;
  }
  /// Queries whose bits differ from those of the whole prompt, in launches of one query a sequence and of chunks.
  std::vector<int> different(const AttentionProblem& problem) {
    const int most = problem.max_q_len > 0 ? problem.max_q_len : kPromptKeys, first = kPromptKeys - most;
    AttentionShape shape = lists({most}, {kPromptKeys});
    if (problem.kv_starts) shape.kv_starts = {kPromptStart};
    AttentionCase whole = make_inputs(problem, shape);
    whole.scale *= 12;  // maxima of tiles lie far apart, so rows rescale at different tiles
    const std::vector<std::vector<std::byte>> expected = run(whole, {{first, kPromptKeys}});
    Pieces decodes, chunked;
    for (int at = first; at<kPromptKeys; at += most> 50 ? 7 : 1) decodes.push_back({at, at + 1});
    for (const int length : {most / 3 + 1, most / 2, most}) {
      const int begin = chunked.empty() ? first : chunked.back().second;
      chunked.push_back({begin, std::min(begin + length, kPromptKeys)});
    }
    std::vector<int> queries;
    for (const Pieces& pieces : {decodes, chunked}) {
      const std::vector<std::vector<std::byte>> found = run(whole, pieces);
      for (std::size_t i = 0; const auto& [begin, end] : pieces)
        for (int query = begin; query < end; ++query)
          if (found[i++] != expected[static_cast<std::size_t>(query - first)]) queries.push_back(query);
    }
    return queries;
  }
  Engine engine_ = test::make_checking_engine(
      6, emulator::Completion::kEager, 1,
      GetParam().schedule.family.value() == Family::kBlackwell ? Arch::kSm100a : Arch::kSm90a);
};

TEST_P(CutInvariance, AQueryHasTheSameBitsHoweverItsPromptIsCut) {
  EXPECT_THAT(different(GetParam().problem), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(, CutInvariance, testing::ValuesIn(prompts()),
                         [](const auto& info) { return std::string(info.param.name); });

// The test above would see it: without the word, tiles of a window, maxima and parts of keys follow other queries.
class CutInvarianceUnasked : public CutInvariance {};
TEST_P(CutInvarianceUnasked, IsNotThere) {
  AttentionProblem problem = GetParam().problem;
  problem.batch_invariant = false;
  EXPECT_THAT(different(problem), testing::Not(testing::IsEmpty()));
}
INSTANTIATE_TEST_SUITE_P(, CutInvarianceUnasked,
                         testing::Values(prompts()[1], prompts()[4], prompts()[5], prompts()[8]),
                         [](const auto& info) { return std::string(info.param.name); });

/// The test above would see it: without the word, a decode's parts follow the batch.
TEST(BatchInvarianceOfADecode, IsNotThereUnlessAskedFor) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  AttentionProblem problem = decode(heads(dims(default_problem(), 64, 64), 4, 1));
  AttentionExtent extent{.batch = 1, .q_heads = 4, .kv_heads = 1, .q_len = 1, .kv_len = 8192, .q_tokens = 1};
  const AttentionSpec spec = plan_attention(problem, on(Family::kPortable), Arch::kSm90a).main;
  const int alone = plan_launch(spec, extent, 132, 0).num_splits;
  extent.batch = extent.q_tokens = 170;
  EXPECT_NE(plan_launch(spec, extent, 132, 0).num_splits, alone);
}

}  // namespace
}  // namespace kernelwright
