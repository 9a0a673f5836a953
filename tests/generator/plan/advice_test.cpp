// Advice for a problem that the requested architecture does not support: the advised architecture must be able to plan
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/problem/arch.h"

namespace kernelwright {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

AttentionConfig attention(const std::function<void(AttentionConfig&)>& change) {
  AttentionConfig config;
  config.name = "t";
  config.problem.heads = {8, 2};
  change(config);
  return config;
}
GemmConfig gemm(const std::function<void(GemmConfig&)>& change) {
  GemmConfig config;
  config.name = "t";
  config.problem.n = config.problem.k = 512;
  change(config);
  return config;
}

template <class KindConfig>
std::string first(const KindConfig& config, Arch arch) {
  const std::vector<Violation> violations = validate(config, arch);
  return violations.empty() ? "" : violations[0].text();
}

void fp8_queries(AttentionConfig& config) { config.problem.dtype.q = config.problem.dtype.kv = DType::kE4m3; }

TEST(Advice, NamesTheArchitecturesThatTakeTheProblem) {
  const AttentionConfig fp8 = attention(fp8_queries);
  EXPECT_THAT(first(fp8, Arch::kSm80), EndsWith("; sm_90a, sm_100a and sm_103a take this problem"));
  EXPECT_EQ(first(fp8, Arch::kSm90a), "");
  const GemmConfig narrow =
      gemm([](GemmConfig& config) { config.problem.dtype.a = config.problem.dtype.b = DType::kE4m3; });
  EXPECT_THAT(first(narrow, Arch::kSm80), EndsWith("; sm_89, sm_90a, sm_100a, sm_103a and sm_120a take this problem"));
}

TEST(Advice, NamesTheFamilyThatTakesItOnTheSameArchitecture) {
  const AttentionConfig odd = attention([](AttentionConfig& config) {
    config.problem.mask.kind = MaskKind::kCausal;
    config.problem.head_dim = {64, 64};
    config.schedule.family = Family::kBlackwell;
    config.problem.kv_offsets = false;
    config.problem.sinks = true;
    config.problem.dtype = {DType::kF16, DType::kE4m3, DType::kF16};
  });
  for (const Arch arch : {Arch::kSm100a})
    if (const std::string text = first(odd, arch); !text.empty())
      EXPECT_THAT(text, HasSubstr("the portable family takes this problem")) << text;
}

TEST(Advice, SaysNothingWhereNobodyTakesItOrTheScheduleAloneIsRefused) {
  const AttentionConfig nobody = attention([](AttentionConfig& config) {
    fp8_queries(config);
    config.problem.head_dim = {40, 40};
  });
  EXPECT_THAT(first(nobody, Arch::kSm80), Not(HasSubstr("this problem")));
  const AttentionConfig schedule = attention([](AttentionConfig& config) { config.schedule.math_warpgroups = 2; });
  EXPECT_NE(first(schedule, Arch::kSm80), "");
  EXPECT_THAT(first(schedule, Arch::kSm80), Not(HasSubstr("this problem")));
}

TEST(Advice, SaysWhereAnotherScheduleIsNeeded) {
  const AttentionConfig config = attention([](AttentionConfig& with) {
    fp8_queries(with);
    with.schedule.num_warps = 4;
  });
  EXPECT_THAT(first(config, Arch::kSm80),
              HasSubstr("sm_100a and sm_103a take this problem, with a schedule of its own"));
}

// Every problem of a small product on every architecture: the named architecture supports the problem. If none is
// named, none supports it.
TEST(Advice, IsTrue) {
  std::size_t advised = 0;
  for (const DType q : {DType::kF16, DType::kE4m3})
    for (const DType kv : {DType::kF16, DType::kE4m3})
      for (const int head_dim : {40, 64, 128, 192, 256})
        for (const ArchInfo& row : all_archs()) {
          const AttentionConfig config = attention([&](AttentionConfig& with) {
            with.problem.dtype = {q, kv, DType::kF16};
            with.problem.head_dim = {head_dim, head_dim};
          });
          std::string text;
          for (const Violation& violation : validate(config, row.arch)) text += violation.text() + "\n";
          if (text.empty()) continue;
          const std::size_t at = text.rfind("; sm_");
          const bool names = text.find("this problem") != text.npos;
          advised += names;
          for (const ArchInfo& other : all_archs()) {
            bool takes = false;
            if (other.arch != row.arch) try {
                plan_by_model(config.problem, {}, other.arch);
                takes = true;
              } catch (const ConfigError&) {
              }
            const bool named = names && text.find(std::string(other.name), at) != text.npos;
            EXPECT_EQ(named, takes) << row.name << " says of " << other.name << ": " << text;
          }
        }
  EXPECT_GT(advised, 10u);
}

}  // namespace
}  // namespace kernelwright
