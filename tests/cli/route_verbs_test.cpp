// The verbs with a config of a choice of experts.
#include "cli/command_fixture.h"
#include "kernelwright/verify/formats/npy.h"

namespace kernelwright::route_verbs_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RouteVerbs : public Command {
 protected:
  std::string config() const {
    return write("route.json", R"({"version": 1, "kind": "route", "name": "route",
      "problem": {"experts": 4, "top_k": 2, "order": "top_k_first", "local_experts": 2},
      "shapes": [{"name": "check", "tokens": 20, "check": true}]})");
  }
};

TEST_F(RouteVerbs, RunComparesWithTheReference) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult result = run({"run", config(), "--device", "emulator", "--hazards"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("near ties"));
  const JsonValue json = JsonValue::parse(run({"run", config(), "--device", "emulator", "--json"}).out);
  EXPECT_THAT(json.dump(), HasSubstr("\"near_ties\""));
}

TEST_F(RouteVerbs, ExplainSaysWhyAndCompileCompiles) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult explained = run({"explain", config(), "--arch", "sm_90a"});
  EXPECT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_THAT(explained.out, HasSubstr("a lane has 1 logits, and 16 warps hide each other's latency"));
  EXPECT_THAT(explained.out, HasSubstr("no spills"));
  EXPECT_EQ(run({"compile", config(), "--arch", "sm_80", "--arch", "sm_90a"}).exit_code, 0);
  EXPECT_THAT(run({"source", config(), "--arch", "sm_90a"}).out, HasSubstr("kTopKFirst = true"));
}

TEST_F(RouteVerbs, RunTakesArraysAndWritesResults) {
  KERNELWRIGHT_NEEDS_COMPILER();
  std::filesystem::create_directory(path("in"));
  write_npy<float>(path("in/logits.npy"), {3, 4}, {0, 1, 2, 3, 3, 2, 1, 0, 5, 0, 0, 5});
  write_npy<std::int32_t>(path("in/local_ids.npy"), {4}, {1, -1, -1, 0});
  const auto command = [&] {
    return run({"run", config(), "--device", "emulator", "--inputs", path("in"), "--outputs", path("results")});
  };
  const CommandResult result = command();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(read_npy<std::int32_t>(path("results/ids.npy")).values, ElementsAre(3, 2, 0, 1, 0, 3));
  EXPECT_THAT(read_npy<std::int32_t>(path("results/starts.npy")).values, ElementsAre(0, 2, 4));
  EXPECT_THAT(read_npy<std::int32_t>(path("results/source_rows.npy")).values, ElementsAre(0, 2, 1, 2));
  EXPECT_THAT(read_npy<std::int32_t>(path("results/positions.npy")).values, ElementsAre(0, -1, 2, -1, 3, 1));
  write_npy<std::int32_t>(path("in/local_ids.npy"), {4}, {1, 1, -1, 0});
  write_npy<float>(path("in/bias.npy"), {4}, {0, 0, 0, 0});
  const CommandResult refused = command();
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("two experts have the local number 1"));
  EXPECT_THAT(refused.err, HasSubstr("the problem has no bias"));
}

TEST_F(RouteVerbs, TuneRefuses) {
  expect_refused({"tune", config(), "--device", "emulator"}, {"route.json", "\"route\" has no rows to tune yet"});
}

}  // namespace
}  // namespace kernelwright::route_verbs_test
