// kernelwright trace: its files, its summary, and what it refuses.
#include <fstream>
#include <iterator>

#include "command_fixture.h"
#include "runtime/emulator/trace/trace_checks.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;

class TraceVerb : public Command {
 protected:
  std::string read(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }
};

TEST_F(TraceVerb, WritesATimelineAndAPictureAndSaysWhoWaited) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = write("tiny.json", config());
  const CommandResult result = run({"trace", file, "--out", path("t.json"), "--svg", path("t.svg")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("tensor cores"));
  EXPECT_THAT(result.out, HasSubstr("math"));
  EXPECT_EQ(emulator::test::problems_of_json(read("t.json")), "");
  EXPECT_THAT(read("t.json"), HasSubstr("\"cat\": \"mma\""));
  EXPECT_EQ(emulator::test::problems_of_svg(read("t.svg")), "");
  EXPECT_THAT(read("t.svg"), HasSubstr("tiny, shape"));
}

TEST_F(TraceVerb, GivesTheSummaryAsJson) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult result =
      run({"trace", write("tiny.json", config()), "--arch", "sm_80", "--svg", path("t.svg"), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const JsonValue object = JsonValue::parse(result.out);
  EXPECT_EQ(object.at("/kernels/0/arch").as_string(), "sm_80");
  EXPECT_GT(object.at("/kernels/0/tensor_busy").as_double(), 0.0);
  EXPECT_LT(object.at("/kernels/0/tensor_busy").as_double(), 1.0);
  EXPECT_EQ(object.at("/out").as_string(), "");  // only the picture was asked for
  EXPECT_EQ(object.at("/svg").as_string(), path("t.svg"));
}

TEST_F(TraceVerb, RefusesWhatIsNotThere) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = write("tiny.json", config());
  ASSERT_EQ(run({"trace", file, "--out", path("ok.json")}).exit_code,
            0);  // fills the cache: refusals write nothing more
  expect_refused({"trace", file, "--cta", "100000", "--out", path("t.json")},
                 {"--cta", "not in the grid", "0 would do"});
  expect_refused({"trace", file, "--out", path("none/t.json")}, {"--out", "cannot be written"});
  expect_refused({"trace", file, "--shape", "none"}, {"none"});
}

}  // namespace
}  // namespace kernelwright
