// attention_sm90 on the emulator, with every check on. Each case must match the fp64 reference, cause no report, and
// write nothing beside its outputs. Two machines must give the same bits although they differ in everything on which a
// kernel must not depend: the number of SMs, when copies land, and in which order warps run. Needs NVRTC and no GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "end_to_end/attention/cases/attention_cases.h"
#include "kernelwright/generator/attention/planner.h"
#include "support/emulated_attention.h"

namespace kernelwright {
namespace {

using test::inputs_of;
using test::make_checking_engine;
using test::run_checked;
using test::verdict_of;

/// Products of whole tiles: the cost of a case here.
double tile_operations(const CudaCase& test) {
  const AttentionPlan plan = plan_attention(test.problem, test.schedule, Arch::kSm90a);
  const AttentionCase call = shape_only(test.problem, test.shape);
  double tiles = 0;
  for (int b = 0; b < call.batch; ++b) {
    const std::size_t at = static_cast<std::size_t>(b);
    for (int first = 0; first < call.q_lens[at]; first += plan.main.block_m) {
      const int last = std::min(first + plan.main.block_m, call.q_lens[at]) - 1;
      const int keys = call.visible(b, last).last - call.visible(b, first).first;
      tiles += (std::max(0, keys) + plan.main.block_n - 1) / plan.main.block_n;
    }
  }
  return tiles * test.problem.heads.q * 2.0 * plan.main.block_m * plan.main.block_n *
         (test.problem.head_dim.qk + test.problem.head_dim.v);
}

std::string number_of(const std::string& name) { return name.substr(0, name.find('_')); }

/// Fewer heads: their number is a run-time parameter, and each KV head is work of its own. What a case is about stays:
/// a group of heads, slopes, values of certain heads. Groups do with small tiles, which compile sooner.
CudaCase with_fewer_heads(CudaCase test, const std::string& number) {
  Heads& heads = test.problem.heads;
  if (number == "c14") {
    test.schedule.block_n = 48;
    if (heads.q / heads.kv >= 5) {
      heads = {heads.q / heads.kv, 1};
      test.shape.batch = 1;
    }
  } else if (number == "alibi" && !test.change && heads == Heads{8, 2}) {
    heads = {4, 1};
  } else if ((!test.change || number == "c20") && heads == Heads{8, 2}) {
    heads = {2, 1};  // as hopper_cases() have it, so that kernels are shared
  }
  return test;
}

/// Whether a case is another dtype of a case that runs: other products and conversions in the same kernel. Cases about
/// head sizes and values still run, and so does one case about scores. hopper_cases() use f16 in places.
bool is_another_dtype(const CudaCase& shared, const std::string& number) {
  const AttentionProblem& problem = shared.problem;
  if (problem.dtype.q != DType::kF16 && problem.dtype.kv == problem.dtype.q) return false;
  for (const char* values : {"c12", "c13", "c18", "c35", "c36", "c39"})
    if (number == values) return false;
  for (const char* scores : {"chunk_100", "softcap_50", "causal_paged_50", "alibi_decode"})
    if (shared.name.find(scores) != std::string::npos) return false;
  return true;
}

constexpr double kLargest = 1e9;  // a second or two

/// The small cases of the list that all families share, and attention_sm90's own, by subject: a number of attention.md.
/// A test runs all cases of one number, so that each kernel is made once.
const std::map<std::string, std::vector<CudaCase>>& cases_by_number() {
  static const std::map<std::string, std::vector<CudaCase>> groups = [] {
    std::map<std::string, std::vector<CudaCase>> made;
    const auto group_of = [](const CudaCase& test) {
      const std::string name = test.name.substr(test.name.find('_') + 1);
      std::string group = number_of(name);
      if (group.starts_with("cluster"))
        return std::string("clusters_of_") + std::to_string(test.schedule.cluster.value().m);
      if (group.starts_with("schedule"))
        return std::string("schedules_of_") + std::to_string(test.schedule.math_warpgroups.value()) + "_warpgroups";
      if (name.starts_with("c21_small")) group += "_small";
      if (test.problem.v_layout == VLayout::kColumns) group += "_columns";
      if (group == "c12") group += fmt::format("_up_to_{}", (test.problem.head_dim.qk + 63) / 64 * 64);
      return group;
    };
    for (const CudaCase& test : shared_cases_on_hopper()) {
      const std::string number = number_of(test.name.substr(test.name.find('_') + 1));
      if (test.problem.max_q_len == 0 && !is_another_dtype(test, number) && tile_operations(test) <= kLargest)
        made[group_of(test)].push_back(with_fewer_heads(test, number));
    }
    // The two families compute masks and biases in the same way.
    for (const CudaCase& shared : all_cuda_cases()) {
      CudaCase test = of_family(shared, Family::kPortable);
      // Left open, the number of parts follows the machine's SMs.
      if (test.problem.max_q_len > 0 && test.schedule.splits.is_auto()) test.schedule.splits = 3;
      const std::string number = number_of(shared.name);
      const bool of_scores = number == "c17" || number == "alibi" || number == "prompt" || number == "starts";
      const bool is_wanted = (of_scores || number == "swizzle") && !is_another_dtype(shared, number);
      if ((is_wanted || number == "keyscales") && tile_operations(test) <= kLargest)
        made["portable_" + number + (test.problem.max_q_len > 0 ? "_decode" : "")].push_back(test);
    }
    for (const CudaCase& test : hopper_cases()) made[group_of(test)].push_back(test);
    return made;
  }();
  return groups;
}

std::vector<std::string> numbers() {
  std::vector<std::string> names;
  for (const auto& [name, cases] : cases_by_number()) names.push_back(name);
  return names;
}

class HopperAttentionOnTheEmulator : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (Compiler().path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }
};

TEST_P(HopperAttentionOnTheEmulator, IsRightHoweverItIsScheduled) {
  // Three SMs: each persistent CTA walks several items.
  Engine few = make_checking_engine(3, emulator::Completion::kRandom, 5),
         many = make_checking_engine(132, emulator::Completion::kLazy, 0);
  for (const CudaCase& test : cases_by_number().at(GetParam())) {
    SCOPED_TRACE(test.name);
    const AttentionCase call = inputs_of(test);
    const AttentionOutput output = run_checked(few, test, call);
    EXPECT_TRUE(output == run_checked(many, test, call)) << "two machines differ";
    const Verdict verdict = verdict_of(call, output);
    EXPECT_TRUE(verdict.passed) << verdict.text;
  }
}

INSTANTIATE_TEST_SUITE_P(, HopperAttentionOnTheEmulator, testing::ValuesIn(numbers()),
                         [](const auto& info) { return info.param; });

/// A list that had lost a number would go unnoticed.
TEST(HopperAttentionCases, HaveEveryNumberThatTheFamilyTakes) {
  for (const char* number : {"c01",
                             "c03",
                             "c04",
                             "c05",
                             "c06",
                             "c07",
                             "c08",
                             "c09",
                             "c12_up_to_64",
                             "c12_up_to_256",
                             "c13",
                             "c15",
                             "c17",
                             "portable_c17",
                             "portable_c17_decode",
                             "alibi",
                             "portable_alibi",
                             "portable_alibi_decode",
                             "prompt",
                             "portable_prompt",
                             "portable_prompt_decode",
                             "c18",
                             "c19",
                             "c20",
                             "c21",
                             "c21_small",
                             "c23",
                             "c35",
                             "c36",
                             "c39",
                             "clusters_of_2",
                             "clusters_of_4",
                             "rotary",
                             "swizzle",
                             "portable_swizzle",
                             "portable_swizzle_decode"})
    EXPECT_TRUE(cases_by_number().contains(number)) << number;
}

}  // namespace
}  // namespace kernelwright
