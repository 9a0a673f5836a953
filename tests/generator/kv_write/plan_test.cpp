// Which kernel writes a cache, what is refused, and how many CTAs a launch has.
#include "kernelwright/generator/kv_write/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/config_json.h"

namespace kernelwright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

KvWriteProblem llama() {
  KvWriteProblem problem;
  problem.heads = {32, 8};
  problem.kv_layout = {KvLayoutKind::kPaged, 16};
  problem.rope = {.style = RopeStyle::kNeox, .width = 128};
  return problem;
}

std::vector<std::string> refusals(const std::function<void(KvWriteProblem&)>& change) {
  KvWriteProblem problem = llama();
  change(problem);
  std::vector<std::string> texts;
  for (const Violation& violation : validate(KvWriteConfig{"", problem, {}, {}}, Arch::kSm90a))
    texts.push_back(violation.text());
  return texts;
}

TEST(PlanKvWrite, DealsTheHeadsOfATokenToWarps) {
  const KvWriteSpec spec = plan_kv_write(llama(), {}, Arch::kSm90a).spec;
  EXPECT_EQ(kernel_name(spec), "kv_write");
  EXPECT_EQ(spec.heads_per_lane, 2);
  EXPECT_EQ(warps_of_token(spec), 6);  // 48 heads, 4 at a time
  EXPECT_EQ(plan_launch(spec, 8192).grid[0], 12288u);
  EXPECT_EQ(plan_launch(spec, 8192).block, 128u);
}

TEST(PlanKvWrite, GivesALaneOneHeadOfFewTokens) {
  const KvWriteSpec spec = plan_kv_write(llama(), {}, Arch::kSm90a).spec;
  EXPECT_TRUE(has_few(spec, 341));
  EXPECT_FALSE(has_few(spec, 342)) << "12 warps of a token, and more than 4096 of all";
  EXPECT_EQ(plan_launch(spec, 1).grid[0], 3u);
  EXPECT_EQ(plan_launch(spec, 341).grid[0], 1023u);
  EXPECT_EQ(plan_launch(spec, 342).grid[0], 513u);
  KvWriteProblem problem = llama();
  problem.qk_norm.kind = NormKind::kRmsAllHeads;
  EXPECT_FALSE(has_few(plan_kv_write(problem, {}, Arch::kSm90a).spec, 1)) << "a CTA has a token's heads";
}

TEST(PlanKvWrite, KeepsATokenInACtaForANormOverAllHeads) {
  KvWriteProblem problem = llama();
  problem.heads = {48, 8};
  problem.qk_norm.kind = NormKind::kRmsAllHeads;
  const KvWriteSpec spec = plan_kv_write(problem, {}, Arch::kSm80).spec;
  EXPECT_EQ(warps_of_token(spec), spec.num_warps);
  EXPECT_EQ(plan_launch(spec, 100).grid[0], 100u);
  KvWriteSchedule schedule;
  schedule.num_warps = 3;
  EXPECT_THAT(
      [&] { plan_kv_write(problem, schedule, Arch::kSm80); },
      testing::ThrowsMessage<ConfigError>(HasSubstr("3 does not fit a norm over all heads of a token; 8 would do")));
  problem.heads = {1024, 8};
  EXPECT_THAT([&] { plan_kv_write(problem, {}, Arch::kSm80); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("a CTA has 32")));
}

TEST(PlanKvWrite, IsOneKernelWhereAFieldHasNoMeaning) {
  KvWriteProblem other = llama();
  other.qk_norm = {.weight = false, .before_rope = false, .eps = 1e-5};
  EXPECT_EQ(plan_kv_write(other, {}, Arch::kSm90a).spec, plan_kv_write(llama(), {}, Arch::kSm90a).spec);
}

TEST(PlanKvWrite, NamesWhatDoesNotFit) {
  EXPECT_THAT(refusals([](auto&) {}), ElementsAre());
  EXPECT_THAT(refusals([](auto& p) { p.dtype.in = DType::kE4m3; }),
              ElementsAre("/problem/dtype/in: \"e4m3\" does not fit; it takes f16 or bf16"));
  EXPECT_THAT(refusals([](auto& p) { p.head_dim.v = 320; }),
              ElementsAre("/problem/head_dim/v: 320 is not built yet for the portable family; it has up to 256"));
  EXPECT_THAT(
      refusals([](auto& p) { p.head_dim.v = 100; }),
      ElementsAre(
          "/problem/head_dim/v: 100 elements leave heads off their 16-byte boundaries; it takes a multiple of 8"));
  EXPECT_THAT(refusals([](auto& p) { p.rope.width = 136; }),
              ElementsAre("/problem/rope/width: 136 does not fit \"neox\"; it takes a multiple of 16",
                          "/problem/rope/width: 136 elements from 0 on end behind the head, which has 128"));
  EXPECT_THAT(refusals([](auto& p) {
                p.rope.sections = {16, 24, 20};
              }),
              ElementsAre("/problem/rope/sections: have 60 pairs, and 128 elements turn: 64 pairs"));
  EXPECT_THAT(
      refusals([](auto& p) { p.scales.k = ScaleKind::kPerHead; }),
      ElementsAre("/problem/scales/k: \"per_head\" has no meaning for bf16; leave it out, or make them e4m3 or e5m2"));
  EXPECT_THAT(refusals([](auto& p) { p.hadamard = true, p.head_dim.qk = 136; }),
              ElementsAre("/problem/hadamard: true does not fit heads of 136 elements; it takes a multiple of 16"));
  EXPECT_THAT(refusals([](auto& p) { p.scales.ue8m0 = true, p.scales.least = 0.5; }),
              ElementsAre("/problem/scales/ue8m0: true needs power_of_two: a byte has an exponent alone",
                          "/problem/scales/least: is for scales that the kernel makes: per_token"));
  EXPECT_THAT(refusals([](auto& p) { p.v_out = false, p.dtype.kv = DType::kE4m3, p.scales.v = ScaleKind::kPerHead; }),
              ElementsAre("/problem/scales/v: \"per_head\" has no meaning here; leave it out"));
  EXPECT_THAT(refusals([](auto& p) { p.hadamard_signs = true; }),
              ElementsAre("/problem/hadamard_signs: true needs hadamard"));
  EXPECT_THAT(refusals([](auto& p) { p.v_layout = VLayout::kColumns, p.kv_layout.page_size = 24; }),
              ElementsAre("/problem/v_layout: \"columns\" does not fit bf16 values; it takes e4m3 or e5m2",
                          "/problem/v_layout: \"columns\" needs pages of a multiple of 16 keys"));
  EXPECT_THAT(refusals([](auto& p) {
                p.index = CacheIndex::kPositions, p.kv_layout = {KvLayoutKind::kRagged, 0};
              }),
              ElementsAre(HasSubstr("/problem/index: \"positions\" do not say")));
  EXPECT_THAT(refusals([](auto& p) { p.qk_norm.v = true; }),
              ElementsAre(HasSubstr("/problem/qk_norm/v: true needs a norm")));
}

TEST(KvWriteJson, ReadsWhatItWrites) {
  KvWriteConfig config{"name", llama(), {}, {{.name = "t8", .tokens = 8}}};
  config.problem.qk_norm.kind = NormKind::kRms;
  config.problem.dtype.kv = DType::kE4m3;
  config.problem.scales.k = ScaleKind::kPerToken;
  config.schedule.num_warps = 8;
  EXPECT_EQ(std::get<KvWriteConfig>(read_config(write_config(config))), config);
  EXPECT_THAT(
      [] {
        read_config(R"({"version": 1, "kind": "kv_write", "name": "x",
                        "problem": {"head_dim": {"qk": 64, "v": 64}, "heads": {"q": 1, "kv": 1},
                                    "kv_layout": {"kind": "ragged"}, "rope": {"kind": "neox"}}})");
      },
      testing::ThrowsMessage<ConfigError>(HasSubstr("/problem/rope/kind: is not a field here")));
}

}  // namespace
}  // namespace kernelwright
