// Configs of kind "moe": a layer of several kernels, which an engine takes and the command does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/problem/moe_parts.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;

const std::string kRoute = R"("route": {"experts": 256, "top_k": 8, "score": "sigmoid", "bias": true})";

std::string layer(const std::string& problem, const std::string& more = "") {
  return R"({"version": 1, "kind": "moe", "name": "layer", "problem": {)" + problem + "}" + more + "}";
}
MoeProblem read_layer(const std::string& problem) {
  return std::get<MoeConfig>(read_config_or_layer(layer(problem))).problem;
}
std::string refusal(const std::string& text) {
  try {
    read_config_or_layer(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(LayerConfig, IsReadWithTheRouteInIt) {
  const MoeProblem problem =
      read_layer(kRoute + R"(, "hidden": 7168, "intermediate": 2048, "scales": "per_block", "residual": true)");
  EXPECT_EQ(problem.hidden, 7168);
  EXPECT_EQ(problem.intermediate, 2048);
  EXPECT_EQ(problem.route.score, RouteScore::kSigmoid);
  EXPECT_EQ(problem.scales, ScaleKind::kPerBlock);
  EXPECT_TRUE(problem.residual && problem.route.bias && !problem.down_bias);
  EXPECT_EQ(problem.own_experts(), 256);
  const auto kernel =
      read_config_or_layer(R"({"version": 1, "kind": "gemm", "name": "x", "problem": {"n": 512, "k": 256}})");
  EXPECT_TRUE(std::holds_alternative<GemmConfig>(std::get<Config>(kernel)));
}

TEST(LayerConfig, ExpandsToTheProblemsOfItsKernels) {
  MoeProblem problem = read_layer(kRoute + R"(, "hidden": 7168, "intermediate": 2048, "scales": "per_block")");
  problem.route.local_experts = 32;
  const MoeParts parts = moe_parts(problem);
  EXPECT_EQ(parts.route, problem.route);
  EXPECT_EQ(parts.quantize_x->width, 7168);
  EXPECT_EQ(parts.gate_up.n, 4096);
  EXPECT_EQ(parts.gate_up.k, 7168);
  EXPECT_EQ(parts.gate_up.groups, (GemmGroups{GroupKind::kRows, 32, GroupBounds::kStarts, true}));
  EXPECT_EQ(parts.gate_up.dtype.a, DType::kE4m3);
  EXPECT_EQ(parts.quantize_rows->width, 2048);
  EXPECT_EQ(parts.down.n, 7168);
  EXPECT_EQ(parts.down.k, 2048);
  EXPECT_EQ(parts.down.groups, (GemmGroups{GroupKind::kRows, 32, GroupBounds::kStarts, false}));
  EXPECT_EQ(parts.down.epilogue, "acc");
  EXPECT_EQ(parts.combine.width, 7168);
  EXPECT_EQ(parts.combine.top_k, 8);
  EXPECT_FALSE(parts.gate_up.batch_invariant || parts.down.batch_invariant);
  problem.batch_invariant = true;
  EXPECT_TRUE(moe_parts(problem).gate_up.batch_invariant && moe_parts(problem).down.batch_invariant);
  problem.scales = ScaleKind::kNone, problem.down_bias = true;
  EXPECT_FALSE(moe_parts(problem).quantize_x || moe_parts(problem).quantize_rows);
  EXPECT_EQ(moe_parts(problem).down.epilogue, "acc + bias");
  EXPECT_EQ(moe_parts(problem).gate_up.dtype.b, DType::kBf16);
}

TEST(LayerConfig, NamesEveryFieldThatDoesNotFit) {
  EXPECT_EQ(refusal(layer(R"("hidden": 64, "intermediate": 64)")),
            "/problem/route: is missing and has no default (how experts are chosen: a problem of kind route, which "
            "sorts)");
  EXPECT_THAT(refusal(layer(R"("hidden": 64, "intermediate": 64, "route": {"experts": 4, "top_k": 8})")),
              HasSubstr("/problem/route/top_k: 8 is more than the 4 experts"));
  EXPECT_THAT(refusal(layer(kRoute + R"(, "hidden": 20, "intermediate": 64)")),
              HasSubstr("/problem/hidden: 20 is not in"));
  EXPECT_THAT(refusal(layer(kRoute + R"(, "hidden": 64, "intermediate": 64, "gates": "alpha * gate * up")")),
              HasSubstr("/problem/gates: "));
  EXPECT_EQ(refusal(layer(kRoute + R"(, "hidden": 64, "intermediate": 64)", R"(, "shapes": [])")),
            "/shapes: has no meaning for a layer of several kernels; leave it out");
}

TEST(LayerConfig, IsNoConfigOfOneKernel) {
  try {
    read_config(layer(kRoute + R"(, "hidden": 64, "intermediate": 64)"));
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        "/kind: \"moe\" is a layer of several kernels, which an engine prepares; here stands one of attention, "
        "gemm, kv_write, row_op, route, moe_combine");
  }
}

}  // namespace
}  // namespace kernelwright
