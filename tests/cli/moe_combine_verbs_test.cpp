// The verbs with a config of sums over the rows of tokens' experts.
#include "cli/command_fixture.h"
#include "kernelwright/verify/formats/npy.h"

namespace kernelwright::moe_combine_verbs_test {
namespace {

using testing::Each;
using testing::HasSubstr;

class MoeCombineVerbs : public Command {
 protected:
  std::string config() const {
    return write("sums.json", R"({"version": 1, "kind": "moe_combine", "name": "sums",
      "problem": {"width": 8, "top_k": 2, "dtype": {"out": "f32"}},
      "shapes": [{"name": "check", "tokens": 20, "check": true}]})");
  }
};

TEST_F(MoeCombineVerbs, RunComparesWithTheReference) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult result = run({"run", config(), "--device", "emulator", "--hazards"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rounded apart"));
  const JsonValue json = JsonValue::parse(run({"run", config(), "--device", "emulator", "--json"}).out);
  EXPECT_THAT(json.dump(), HasSubstr("\"rounded_apart\""));
}

TEST_F(MoeCombineVerbs, ExplainSaysWhyAndCompileCompiles) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult explained = run({"explain", config(), "--arch", "sm_90a"});
  EXPECT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_THAT(explained.out, HasSubstr("a row has 1 vectors of 16 bytes"));
  EXPECT_THAT(explained.out, HasSubstr("no spills"));
  EXPECT_EQ(run({"compile", config(), "--arch", "sm_80", "--arch", "sm_90a"}).exit_code, 0);
  EXPECT_THAT(run({"source", config(), "--arch", "sm_90a"}).out, HasSubstr("kWeighted = true"));
}

TEST_F(MoeCombineVerbs, RunTakesArraysAndWritesResults) {
  KERNELWRIGHT_NEEDS_COMPILER();
  std::filesystem::create_directory(path("in"));
  std::vector<float> rows(8, 1.f);
  rows.resize(16, 4.f);
  write_npy<float>(path("in/rows.npy"), {2, 8}, rows);
  write_npy<std::int32_t>(path("in/positions.npy"), {1, 2}, {1, 0});
  write_npy<float>(path("in/weights.npy"), {1, 2}, {0.5, 3});
  const auto command = [&] {
    return run({"run", config(), "--device", "emulator", "--inputs", path("in"), "--outputs", path("results")});
  };
  const CommandResult result = command();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(read_npy<float>(path("results/out.npy")).values, Each(5.f));
  write_npy<float>(path("in/weights.npy"), {2, 2}, {0, 0, 0, 0});
  write_npy<float>(path("in/residual.npy"), {1, 8}, rows);
  const CommandResult refused = command();
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("positions.npy has 1 tokens"));
  EXPECT_THAT(refused.err, HasSubstr("residual is false"));
}

TEST_F(MoeCombineVerbs, TuneRefuses) {
  expect_refused({"tune", config(), "--device", "emulator"}, {"sums.json", "\"moe_combine\" has no rows to tune yet"});
}

}  // namespace
}  // namespace kernelwright::moe_combine_verbs_test
