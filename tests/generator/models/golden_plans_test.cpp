// Plans of published models, against recorded ones. To record anew after a change on purpose:
//   kernelwright plan tests/golden/models/NAME.config.json --name NAME --tp N --output
//   tests/golden/models/NAME.tpN.json
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/kv_write/plan.h"
#include "kernelwright/generator/models/plan_file.h"
#include "kernelwright/generator/moe_combine/plan.h"
#include "kernelwright/generator/route/plan.h"
#include "kernelwright/generator/row_op/plan.h"
#include "support/golden_models.h"
#include "support/paths.h"

namespace kernelwright::golden_plans_test {
namespace {

constexpr int kRanks[] = {1, 2, 4, 8};

std::string recorded(const std::string& name, int tp) {
  return test::file_text(test::source_dir() / "tests/golden/models" / (name + ".tp" + std::to_string(tp) + ".json"));
}

TEST(GoldenPlans, AreThoseOfThePublishedModels) {
  std::set<std::string> names;
  for (const NamedModel& model : test::golden_models(test::source_dir())) {
    names.insert(model.name);
    for (const int tp : kRanks) {
      const ModelPlan plan = plan_model(model.config_json, {.tp = tp, .name = model.name});
      EXPECT_EQ(write_plan(plan), recorded(model.name, tp)) << model.name << " at tp " << tp;
    }
  }
  EXPECT_EQ(names, (std::set<std::string>{"deepseek-v3", "gemma3-27b", "gpt-oss-120b", "gpt-oss-20b", "llama3-70b",
                                          "llama3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "qwen3-8b"}));
}

/// Published shapes, [n, k] of one rank, worked out by hand.
TEST(GoldenPlans, HaveThePublishedShapes) {
  using Shapes = std::map<std::string, std::pair<int, int>>;
  const auto gemms = [](const std::string& name, int tp) {
    Shapes shapes;
    const std::size_t prefix = (name + "-tp1-").size();
    for (const Config& config : read_plan(recorded(name, tp)))
      if (const auto* gemm = std::get_if<GemmConfig>(&config))
        shapes[gemm->name.substr(prefix)] = {gemm->problem.n, gemm->problem.k};
    return shapes;
  };
  EXPECT_EQ(gemms("llama3-8b", 1), (Shapes{{"qkv", {6144, 4096}},
                                           {"o", {4096, 4096}},
                                           {"gate-up", {28672, 4096}},
                                           {"down", {4096, 14336}},
                                           {"lm-head", {128256, 4096}}}));
  EXPECT_EQ(gemms("llama3-70b", 8), (Shapes{{"qkv", {1280, 8192}},
                                            {"o", {8192, 1024}},
                                            {"gate-up", {7168, 8192}},
                                            {"down", {8192, 3584}},
                                            {"lm-head", {16032, 8192}}}));
  EXPECT_EQ(gemms("deepseek-v3", 8), (Shapes{{"absorbed-q", {512, 128}},
                                             {"absorbed-o", {128, 512}},
                                             {"qkv-a", {2112, 7168}},
                                             {"q-b", {3072, 1536}},
                                             {"kv-b", {4096, 512}},
                                             {"o", {7168, 2048}},
                                             {"gate-up", {4608, 7168}},
                                             {"down", {7168, 2304}},
                                             {"router", {256, 7168}},
                                             {"shared-gate-up", {512, 7168}},
                                             {"shared-down", {7168, 256}},
                                             {"expert-gate-up", {512, 7168}},
                                             {"expert-down", {7168, 256}},
                                             {"lm-head", {16160, 7168}}}));
  EXPECT_EQ(gemms("gpt-oss-20b", 1),
            (Shapes{{"qkv", {5120, 2880}}, {"o", {2880, 4096}}, {"router", {32, 2880}}, {"lm-head", {201088, 2880}}}));
  EXPECT_EQ(gemms("gemma3-27b", 2), (Shapes{{"qkv", {4096, 5376}},
                                            {"o", {5376, 2048}},
                                            {"gate-up", {21504, 5376}},
                                            {"down", {5376, 10752}},
                                            {"lm-head", {131104, 5376}}}));
  EXPECT_EQ(gemms("qwen3-30b-a3b", 8), (Shapes{{"qkv", {768, 2048}},
                                               {"o", {2048, 512}},
                                               {"router", {128, 2048}},
                                               {"expert-gate-up", {192, 2048}},
                                               {"expert-down", {2048, 96}},
                                               {"lm-head", {18992, 2048}}}));
}

/// Each config of a recorded file is read as a person's own config would be, and planned.
TEST(GoldenPlans, HoldProblemsThatThePlannersTake) {
  for (const NamedModel& model : test::golden_models(test::source_dir()))
    for (const int tp : kRanks) {
      const std::vector<Config> configs = read_plan(recorded(model.name, tp));
      EXPECT_GE(configs.size(), 6u) << model.name;
      for (const Config& config : configs) {
        SCOPED_TRACE(name_of(config));
        if (const auto* gemm = std::get_if<GemmConfig>(&config)) {
          EXPECT_NO_THROW(plan_by_model(gemm->problem, gemm->schedule, Arch::kSm90a));
          EXPECT_FALSE(gemm->shapes.empty());
        } else if (const auto* write = std::get_if<KvWriteConfig>(&config)) {
          EXPECT_NO_THROW(plan_kv_write(write->problem, write->schedule, Arch::kSm90a));
          EXPECT_EQ(write->shapes.size(), 3u);
        } else if (const auto* route = std::get_if<RouteConfig>(&config)) {
          EXPECT_NO_THROW(plan_route(route->problem, route->schedule, Arch::kSm90a));
        } else if (const auto* sum = std::get_if<MoeCombineConfig>(&config)) {
          EXPECT_NO_THROW(plan_moe_combine(sum->problem, sum->schedule, Arch::kSm90a));
        } else if (const auto* rows = std::get_if<RowOpConfig>(&config)) {
          EXPECT_NO_THROW(plan_row_op(rows->problem, rows->schedule, Arch::kSm90a));
        } else {
          const auto& attention = std::get<AttentionConfig>(config);
          EXPECT_NO_THROW(plan_by_model(attention.problem, attention.schedule, Arch::kSm90a));
          EXPECT_FALSE(attention.shapes.empty());
        }
      }
    }
}

TEST(ModelsMarkdown, IsShippedAsItIsGenerated) {
  EXPECT_EQ(test::file_text(test::source_dir() / "docs/models.md"),
            models_markdown(test::golden_models(test::source_dir())))
      << "run kernelwright_generate_docs";
}

}  // namespace
}  // namespace kernelwright::golden_plans_test
