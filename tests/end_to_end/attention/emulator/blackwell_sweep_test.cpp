// attention_sm100 in random forms: any operand, mask, tile, ring, scheduler, group of CTAs and split of keys that the
// family supports, on lengths around its tiles. Each call runs on two emulated machines with all checks on, whose
// copies and products complete in a different order. It must cause no report, give the same bits, and match fp64.
//
//   KERNELWRIGHT_SWEEP        number of calls; default 6
//   KERNELWRIGHT_SWEEP_FIRST  index of the first call; default 0. A failure names its call; with this index the call
//                             runs alone
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>
#include <random>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/generator/attention/planner.h"
#include "support/emulated_attention.h"

namespace kernelwright {
namespace {

class Draw {
 public:
  explicit Draw(std::uint64_t number) : random_(number * 7919 + 17) {}

  int below(int bound) { return static_cast<int>(random_() % static_cast<std::uint64_t>(bound)); }
  bool one_in(int count) { return below(count) == 0; }
  template <class T, std::size_t kCount>
  const T& of(const T (&choices)[kCount]) {
    return choices[below(static_cast<int>(kCount))];
  }

  AttentionProblem problem() {
    const DType dtype = one_in(4) ? DType::kF16 : DType::kBf16;
    const int depth = one_in(2) ? 8 * (2 + below(15)) : of({64, 128});
    AttentionProblem problem = dims(default_problem(dtype), depth, depth);
    if (depth % 16 == 0 && one_in(6)) problem.head_dim.v = 64;
    const int kv_heads = 1 + below(2);
    problem.heads = {kv_heads * of({1, 2, 4, 8}), kv_heads};
    switch (below(4)) {
      case 0: problem = ragged(problem); break;
      case 1: problem = paged(problem, of({1, 8, 16, 48, 64, 128, 256})); break;
      default: break;
    }
    switch (below(5)) {
      case 0: break;
      case 1: problem = windowed(problem, below(200), below(2) * below(60)); break;
      case 2: problem = masked(problem, chunks(1 + below(200))); break;
      default: problem = causal(problem);
    }
    problem.lse = !one_in(4);
    problem.sinks = one_in(4);
    if (one_in(6)) problem.score_mod = {ScoreModKind::kSoftcap, 20.0};
    return problem;
  }

  AttentionSchedule schedule() {
    AttentionSchedule schedule;
    schedule.family = Family::kBlackwell;
    if (one_in(2)) schedule.block_n = of({32, 48, 64, 96, 128});
    if (one_in(2)) schedule.num_q = 1 + below(2);
    if (one_in(2)) schedule.kv_ring = one_in(2) ? KvRing::kShared : KvRing::kSplit;
    if (one_in(2)) schedule.num_kv_stages = 2 + below(3);
    if (one_in(3)) schedule.num_qk_stages = 1 + below(2);
    if (one_in(2)) schedule.rescale = one_in(2) ? Rescale::kLazy : Rescale::kAlways;
    if (one_in(2)) schedule.exp2_emulated = below(5) * 0.125;
    if (one_in(2)) schedule.scheduler = of({Scheduler::kGrid, Scheduler::kLongestFirst, Scheduler::kQueued});
    if (one_in(2)) schedule.pack_gqa = one_in(2);
    if (one_in(4)) schedule.cta_group = 2;
    if (one_in(4)) schedule.splits = 2 + below(3);
    return schedule;
  }

  AttentionShape shape(const AttentionProblem& problem) {
    const auto length = [&](int largest) {
      constexpr int kEdges[] = {0, 1, 31, 64, 127, 128, 129, 255, 256, 257};
      return std::min(largest, one_in(2) ? of(kEdges) : below(largest + 1));
    };
    std::vector<int> q_lens, kv_lens;
    for (int i = 1 + below(3); i > 0; --i) q_lens.push_back(length(300)), kv_lens.push_back(length(600));
    q_lens.front() = std::max(1, q_lens.front()), kv_lens.front() = std::max(1, kv_lens.front());
    if (problem.q_layout == QLayout::kRagged) return lists(q_lens, kv_lens);
    AttentionShape shape = lists({}, kv_lens);
    shape.q_len = q_lens.front();
    return shape;
  }

 private:
  std::mt19937_64 random_;
};

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// The call of a number: the first of its draws that the family takes.
CudaCase drawn(std::uint64_t number) {
  Draw draw(number);
  for (int attempt = 0; attempt < 1000; ++attempt) {
    CudaCase test{fmt::format("sweep{}", number), draw.problem(), {}, draw.schedule()};
    test.shape = draw.shape(test.problem);
    test.options.seed = number;
    if (is_taken(test, Arch::kSm100a)) return test;
  }
  throw std::logic_error("the family takes nothing that is drawn");
}

std::string text_of(const CudaCase& test) {
  const AttentionProblem& p = test.problem;
  const AttentionSchedule& s = test.schedule;
  const auto lengths = [](const std::vector<int>& values) {
    std::string text;
    for (const int value : values) text += fmt::format(" {}", value);
    return text;
  };
  return fmt::format(
      "{} d{}x{} heads {}/{} q {} kv {} {} mask {} mod {} lse {} sinks {} | block_n {} num_q {} ring {} stages {}/{} "
      "scheduler {} pack {} cta_group {} splits {} | q{} {} kv{}",
      to_string(p.dtype.q), p.head_dim.qk, p.head_dim.v, p.heads.q, p.heads.kv, to_string(p.q_layout),
      to_string(p.kv_layout.kind), p.kv_layout.page_size, to_string(p.mask.kind), to_string(p.score_mod.kind), p.lse,
      p.sinks, s.block_n.value_or(0), s.num_q.value_or(0), static_cast<int>(s.kv_ring.value_or(KvRing::kSplit)),
      s.num_kv_stages.value_or(0), s.num_qk_stages.value_or(0),
      static_cast<int>(s.scheduler.value_or(Scheduler::kGrid)), s.pack_gqa.value_or(false), s.cta_group.value_or(0),
      s.splits.value_or(0), lengths(test.shape.q_lens), test.shape.q_len, lengths(test.shape.kv_lens));
}

TEST(BlackwellSweep, IsRightInEveryFormThatIsDrawn) {
  if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  const std::uint64_t first = from_environment("KERNELWRIGHT_SWEEP_FIRST", 0),
                      count = from_environment("KERNELWRIGHT_SWEEP", 6);
  for (std::uint64_t number = first; number < first + count; ++number) {
    const CudaCase test = drawn(number);
    SCOPED_TRACE(test.name + ": " + text_of(test));
    const AttentionCase call = test::inputs_of(test);
    // The same number of SMs, because it may decide how keys are split.
    Engine random = test::make_checking_engine(4, emulator::Completion::kRandom, number + 1, Arch::kSm100a),
           other = test::make_checking_engine(
               4, number % 2 ? emulator::Completion::kLazy : emulator::Completion::kEager, 0, Arch::kSm100a);
    const AttentionOutput output = test::run_checked(random, test, call);
    EXPECT_TRUE(output == test::run_checked(other, test, call)) << "two machines differ";
    const Verdict verdict = test::verdict_of(call, output);
    EXPECT_TRUE(verdict.passed) << verdict.text;
    if (HasFailure()) FAIL() << "KERNELWRIGHT_SWEEP_FIRST=" << number << " KERNELWRIGHT_SWEEP=1 repeats it";
  }
}

}  // namespace
}  // namespace kernelwright
