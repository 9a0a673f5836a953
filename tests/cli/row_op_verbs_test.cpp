// The verbs with a config of steps over rows.
#include "cli/command_fixture.h"
#include "kernelwright/verify/formats/npy.h"

namespace kernelwright::row_op_verbs_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RowOpVerbs : public Command {
 protected:
  std::string config() const {
    return write("rows.json", R"({"version": 1, "kind": "row_op", "name": "rows",
      "problem": {"dtype": {"in": "f16", "out": "e4m3"}, "width": 128, "norm": {"kind": "rms", "weight": false},
                  "scales": {"kind": "per_token"}},
      "shapes": [{"name": "check", "rows": 5, "check": true}]})");
  }
};

TEST_F(RowOpVerbs, RunComparesWithTheReference) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult result = run({"run", config(), "--device", "emulator", "--hazards"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rows checked"));
  const JsonValue json = JsonValue::parse(run({"run", config(), "--device", "emulator", "--json"}).out);
  EXPECT_THAT(json.dump(), HasSubstr("\"rounded_apart\""));
}

TEST_F(RowOpVerbs, ExplainSaysWhyAndCompileCompiles) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult explained = run({"explain", config(), "--arch", "sm_90a"});
  EXPECT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_THAT(explained.out, HasSubstr("lanes of a warp share a row, and meet without a barrier"));
  EXPECT_THAT(explained.out, HasSubstr("no spills"));
  EXPECT_EQ(run({"compile", config(), "--arch", "sm_80", "--arch", "sm_90a"}).exit_code, 0);
  EXPECT_THAT(run({"source", config(), "--arch", "sm_90a"}).out, HasSubstr("kThreadsPerRow = 16"));
}

TEST_F(RowOpVerbs, RunTakesArraysAndWritesResults) {
  KERNELWRIGHT_NEEDS_COMPILER();
  std::vector<float> values(2 * 128, 3.f);
  std::filesystem::create_directory(path("in"));
  write_npy<float>(path("in/x.npy"), {2, 128}, values);
  const CommandResult result =
      run({"run", config(), "--device", "emulator", "--inputs", path("in"), "--outputs", path("results")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(read_npy<float>(path("results/scale.npy")).shape, ElementsAre(2));
  EXPECT_EQ(read_npy<float>(path("results/out.npy")).values[7], 448);
}

TEST_F(RowOpVerbs, TuneRefuses) {
  expect_refused({"tune", config(), "--device", "emulator"}, {"rows.json", "\"row_op\" has no rows to tune yet"});
}

}  // namespace
}  // namespace kernelwright::row_op_verbs_test
