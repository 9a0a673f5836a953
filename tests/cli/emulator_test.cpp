// The command on the emulator: run, explain and emulate, what they refuse, and how they show a hazard.
#include "command_fixture.h"
#include "support/paths.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kNoDriver = "KERNELWRIGHT_LIBCUDA=/nonexistent/libcuda.so.1";

class OnEmulator : public Command {
 protected:
  /// A file of one entry: a buffer and a number, 32 threads and 64 bytes of dynamic shared memory.
  std::string ptx(const std::string& statements) const {
    return write("k.ptx", R"(.version 8.8
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 data[];
.visible .entry k(.param .u64 out, .param .u32 step)
{
  .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<2>;
  ld.param.u64 %rd0, [out]; ld.param.u32 %r0, [step];
  mov.u32 %r1, %tid.x; mov.u32 %r2, data; mul.wide.u32 %rd1, %r1, 4; add.s64 %rd2, %rd0, %rd1;
)" + statements + "\n  ret;\n}\n");
  }
  static JsonValue json(const CommandResult& result) { return JsonValue::parse(result.out); }
};

TEST_F(OnEmulator, RunComparesWithTheReference) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult result =
      run({"run", write("tiny.json", config()), "--device", "emulator", "--hazards", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_EQ(json(result).at("/verdict").as_string(), "ok");
  EXPECT_EQ(json(result).at("/device").as_string(), "emulated sm_90a");
  EXPECT_EQ(json(result).at("/arch").as_string(), "sm_90a");
  EXPECT_TRUE(json(result).at("/hazards").elements().empty());
  EXPECT_TRUE(json(result).at("/shapes/0/repeats_bit_for_bit").as_bool());
}

TEST_F(OnEmulator, EmulateCheckSaysOfEachEntryWhetherItCanRun) {
  const std::string file = write("two.ptx",
                                 ".version 8.8\n.target sm_90a\n.address_size 64\n"
                                 ".visible .entry good()\n{\nret;\n}\n"
                                 ".visible .entry bad()\n{\n.reg .b32 %r<2>;\nnosuch.b32 %r0, %r1;\nret;\n}\n");
  const CommandResult result = run({"emulate", file, "--check"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out,
            "good: can run\n"
            "bad: line 11: `nosuch.b32`: this instruction is not modelled by the emulator\n");
  EXPECT_EQ(run({"emulate", file, "good", "--check"}).exit_code, 0);
  const JsonValue said = json(run({"emulate", file, "--check", "--json"}));
  EXPECT_EQ(said.at("/entries/0/refusal").as_string(), "");
  EXPECT_THAT(said.at("/entries/1/refusal").as_string(), HasSubstr("nosuch.b32"));
}

TEST_F(OnEmulator, RunHoldsAPolicyToItsReferenceOrSaysThatItDoesNot) {
  KERNELWRIGHT_NEEDS_COMPILER();
  namespace fs = std::filesystem;
  const fs::path examples = test::source_dir() / "examples" / "policies";
  for (const char* file : {"prefix_lm.cuh", "relative_bias.cuh", "prefix-lm.json"})
    fs::copy_file(examples / file, path(file));
  fs::copy_file(KERNELWRIGHT_POLICY_REFERENCE, path("reference.so"));
  const std::vector<std::string> words{"run",   path("prefix-lm.json"), "--device", "emulator", "--arch", "sm_80",
                                       "--json"};
  const CommandResult checked = run(words);
  ASSERT_EQ(checked.exit_code, 0) << checked.err << checked.out;
  EXPECT_EQ(json(checked).at("/verdict").as_string(), "ok");
  EXPECT_GT(json(checked).at("/shapes/0/errors/rows").as_int(), 0);
  EXPECT_EQ(checked.err, "");

  // A header that says another thing is found out.
  write("prefix_lm.cuh",
        "#include \"policy/place.cuh\"\nstruct PrefixLm {\n  static bool visible(const "
        "kernelwright::Place& p) { return p.key < 25 || p.key <= p.diagonal(); }\n};\n");
  EXPECT_EQ(run(words).exit_code, 1);

  std::string text;
  std::getline(std::ifstream(path("prefix-lm.json")), text, '\0');
  for (std::size_t at; (at = text.find(",\n      \"reference\"")) != text.npos;)
    text.erase(at, text.find('}', at) + 1 - at);
  write("prefix-lm.json", text);
  const CommandResult unchecked = run(words);
  EXPECT_EQ(unchecked.exit_code, 0) << unchecked.out;
  EXPECT_EQ(json(unchecked).at("/verdict").as_string(), "not checked");
  EXPECT_EQ(json(unchecked).at("/shapes/0/reason").as_string(),
            "not checked: /problem/mask is a source without a \"reference\"; /problem/score_mod is a source without a "
            "\"reference\"");
  EXPECT_THAT(unchecked.err, HasSubstr("some results were not compared with anything"));
}

TEST_F(OnEmulator, ArchIsWhatItClaimsToBe) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = write("tiny.json", config());
  const CommandResult old = run({"run", file, "--device", "emulator", "--arch", "sm_86", "--json"});
  ASSERT_EQ(old.exit_code, 0) << old.err;
  EXPECT_EQ(json(old).at("/device").as_string(), "emulated sm_86");
  const std::string fixed = write("fixed.json", config("", R"(, "schedule": {"arch": "sm_80"})"));
  const CommandResult both = run({"run", fixed, file, "--device", "emulator", "--json"});
  ASSERT_EQ(both.exit_code, 0) << both.err;
  EXPECT_EQ(json(both).at("/configs/0/device").as_string(), "emulated sm_80");
  EXPECT_EQ(json(both).at("/configs/1/device").as_string(), "emulated sm_90a");
  expect_refused({"run", file, "--device", "emulator", "--arch", "sm_80", "--arch", "sm_90a"},
                 {"--arch", "2 are named"});
}

TEST_F(OnEmulator, RunPassesOverByNameWhatAFolderHasForAnotherArch) {
  KERNELWRIGHT_NEEDS_COMPILER();
  std::filesystem::create_directory(path("configs"));
  write("configs/a.json", config());
  const std::string other = write("configs/b.json", config("", R"(, "schedule": {"arch": "sm_100a"})"));
  const CommandResult result = run({"run", path("configs"), "--device", "emulator", "--arch", "sm_90a"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("skipped " + other + ": its schedule is for sm_100a alone"));
  const CommandResult named = run({"run", other, "--device", "emulator", "--arch", "sm_90a"});
  EXPECT_EQ(named.exit_code, 2) << "named itself, it is refused";
  EXPECT_THAT(named.err, HasSubstr("the schedule is for sm_100a and sm_90a was asked for"));
}

TEST_F(OnEmulator, AutoSaysInOneLineThatItIsUsed) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const CommandResult result = run({"run", write("tiny.json", config())}, {kNoDriver});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("on emulated sm_90a"));
  EXPECT_THAT(result.err, HasSubstr("kernelwright: kernels run on the emulator: no NVIDIA driver: "));
  // One more line where a test beside this one compiles the same kernel.
  const bool waited = result.err.find("another process is compiling it") != std::string::npos;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), waited ? 2 : 1) << result.err;
}

TEST_F(OnEmulator, EveryCompletionAndSeedGivesTheSameVerdict) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = write("tiny.json", config());
  for (const char* completion : {"eager", "lazy", "random"}) {
    const CommandResult result =
        run({"run", file, "--device", "emulator", "--hazards", "--completion", completion, "--seed", "7"});
    EXPECT_EQ(result.exit_code, 0) << completion << result.out << result.err;
  }
  expect_refused({"run", file, "--completion", "never"}, {"never", "eager"});
}

TEST_F(OnEmulator, BenchRefusesIt) {
  expect_refused({"bench", write("tiny.json", config()), "--device", "emulator"},
                 {"--device: emulator: its times say nothing about a GPU"});
  const CommandResult automatic = run({"bench", write("tiny.json", config())}, {kNoDriver});
  EXPECT_EQ(automatic.exit_code, 3);
  EXPECT_THAT(automatic.err, HasSubstr("no NVIDIA driver"));
}

TEST_F(OnEmulator, ExplainPlansForWhatItClaims) {
  const CommandResult result = run({"explain", write("tiny.json", config()), "--device", "emulator", "--json"},
                                   {"KERNELWRIGHT_NVRTC=/nonexistent/libnvrtc.so"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json(result).at("/arch").as_string(), "sm_90a");
}

TEST_F(OnEmulator, DoctorListsIt) {
  const CommandResult result = run({"doctor"});
  EXPECT_THAT(result.out, HasSubstr("emulator runs kernels on the CPU as sm_80 to sm_120a"));
  EXPECT_EQ(json(run({"doctor", "--json"})).at("/emulator/archs/0").as_string(), "sm_80");
}

TEST_F(OnEmulator, EmulateRunsAFileAndCountsWhatChanged) {
  const std::string file = ptx("add.u32 %r3, %r1, %r0; st.global.u32 [%rd2], %r3;");
  const CommandResult result =
      run({"emulate", file, "--bytes", "256", "--params", "buffer,0x01010101", "--grid", "2,1,1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_EQ(json(result).at("/entry").as_string(), "k");
  EXPECT_EQ(json(result).at("/buffers/0/parameter").as_string(), "out");
  EXPECT_EQ(json(result).at("/buffers/0/changed").as_int(), 128);
  EXPECT_EQ(json(result).at("/statistics/thread_instructions").as_int() % 64, 0);
  const CommandResult text = run({"emulate", file, "--bytes", "256"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("out: 31 of 256 bytes changed"));  // thread 0 writes the 0 that was there
}

TEST_F(OnEmulator, EmulateShowsAHazardAndExits1) {
  const std::string file = ptx("st.shared.u32 [%r2], %r1;");
  const std::vector<std::string> words{"emulate", file, "--block", "64", "--shared", "64"};
  EXPECT_EQ(run(words).exit_code, 0) << "nobody asked";
  std::vector<std::string> checked = words;
  checked.push_back("--hazards");
  const CommandResult result = run(checked);
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("hazard"));
  EXPECT_THAT(result.out, HasSubstr("race"));
  EXPECT_THAT(result.out, HasSubstr("st.shared.u32"));
  checked.push_back("--json");
  const CommandResult again = run(checked);
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_EQ(json(again).at("/verdict").as_string(), "failed");
  ASSERT_FALSE(json(again).at("/hazards").elements().empty());
  EXPECT_THAT(json(again).at("/hazards/0/first/instruction").as_string(), HasSubstr("st.shared"));
}

TEST_F(OnEmulator, EmulateShowsAFaultAndExits1) {
  const CommandResult result = run({"emulate", ptx("st.global.u32 [%rd2+4096], %r0;"), "--bytes", "256"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("the buffer of out"));
}

TEST_F(OnEmulator, EmulateRefusesWhatItCannotRun) {
  expect_refused({"emulate", path("none.ptx")}, {"none.ptx", "cannot be read"});
  expect_refused({"emulate", ptx("frobnicate.b32 %r0;")}, {"k.ptx", "line 10: ", "frobnicate"});
  expect_refused({"emulate", write("a.ptx", "int main() {}")}, {"a.ptx", "line 1: "});
  const std::string file = ptx("");
  expect_refused({"emulate", file, "--entry", "other"}, {"--entry", "other", "k"});
  expect_refused({"emulate", file, "--params", "buffer,1,2"}, {"--params", "3 words", "takes 2"});
  expect_refused({"emulate", file, "--params", "buffer,one"}, {"--params", "one is no number"});
  expect_refused({"emulate", file, "--params", "buffer,buffer"}, {"--params", "step has 4 bytes"});
  expect_refused({"emulate", file, "--block", "2048"}, {"/block", "at most 1024"});
  expect_refused({"emulate", file, "--grid", "0"}, {"--grid"});
}

TEST_F(OnEmulator, EmulateEndsAnEndlessLoop) {
  const std::string file = ptx("again: add.u32 %r3, %r3, 1;\n  bra again;");
  const CommandResult counted = run({"emulate", file, "--bytes", "256", "--max-instructions", "5000000"});
  EXPECT_EQ(counted.exit_code, 1) << counted.err;
  EXPECT_THAT(counted.out,
              HasSubstr("warp instructions have run and the limit is 5000000: the launch is taken to hang"));
  const CommandResult timed =
      run({"emulate", file, "--bytes", "256", "--max-instructions", "0", "--timeout", "0.5s", "--json"});
  EXPECT_EQ(timed.exit_code, 1) << timed.err;
  EXPECT_FALSE(json(timed).at("/completed").as_bool());
  EXPECT_THAT(json(timed).at("/fault").as_string(), HasSubstr("the limit is 0.5 s: the launch is taken to hang"));
  EXPECT_THAT(run({"emulate", "--help"}).out, HasSubstr("is taken to hang: 1000000000; 0 for no limit"));
  expect_refused({"emulate", file, "--timeout", "never"}, {"--timeout: \"never\" is no time"});
}

TEST_F(OnEmulator, EmulateRefusesNumbersThatDoNotFit) {
  const std::string file = ptx("");
  expect_refused({"emulate", file, "--params", "buffer,4294967296"}, {"4294967296 is too large for a parameter of 4"});
  expect_refused({"emulate", file, "--params=buffer,-2147483649"}, {"-2147483649 is too large for a parameter of 4"});
  expect_refused({"emulate", file, "--params", "buffer,1.0e300"}, {"1.0e300 is too large for a float of 4 bytes"});
  expect_refused({"emulate", file, "--grid", "1,65536"}, {"--grid: 65536 of Y is outside [1, 65535]"});
  expect_refused({"emulate", file, "--grid", "2147483647,2"}, {"--grid: ", "are more than the 2^31 - 1"});
}

}  // namespace
}  // namespace kernelwright
