// kernelwright plan, and the verbs that take a plan.
#include "cli/command_fixture.h"

namespace kernelwright::plan_test {
namespace {

using testing::HasSubstr;

class PlanVerb : public Command {
 protected:
  /// A small model, whose kernels compile and run in no time.
  std::string model() const {
    return write("config.json", R"({"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 384, "vocab_size": 128})");
  }
  std::string plan() const {
    const CommandResult result = run(
        {"plan", model(), "--name", "tiny", "--output", path("plan.json"), "--max-tokens", "64", "--max-seqs", "8"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return path("plan.json");
  }
};

TEST_F(PlanVerb, PrintsThePlanAndTakesAFolder) {
  const CommandResult of_file = run({"plan", model()});
  EXPECT_EQ(of_file.exit_code, 0) << of_file.err;
  EXPECT_EQ(JsonValue::parse(of_file.out).at("/kind").as_string(), "plan");
  EXPECT_EQ(run({"plan", path("")}).out, of_file.out);
}

TEST_F(PlanVerb, WritesAFileAndPrintsWhatIsInIt) {
  const CommandResult result = run({"plan", model(), "--name", "tiny", "--output", path("plan.json")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("tiny-tp1-gate-up   gemm"));
  EXPECT_THAT(result.out, HasSubstr("missing norms"));
  EXPECT_THAT(result.out, HasSubstr("problems in " + path("plan.json")));
  EXPECT_EQ(JsonValue::parse(std::string(std::istreambuf_iterator<char>(std::ifstream(path("plan.json")).rdbuf()), {}))
                .at("/name")
                .as_string(),
            "tiny-tp1");
  expect_refused({"plan", model(), "--output", path("none/plan.json")}, {"none/plan.json", "cannot be written"});
}

TEST_F(PlanVerb, ExplainsEachNumber) {
  const CommandResult text = run({"plan", model(), "--tp", "2", "--explain"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("heads.q: num_attention_heads 4 / tp 2 = 2\n"));
  EXPECT_THAT(text.out, HasSubstr("k: intermediate_size 384 / tp 2 = 192\n"));
  const JsonValue json = JsonValue::parse(run({"plan", model(), "--json"}).out);
  EXPECT_EQ(json.at("/problems/0/from/0").as_string(), "heads.q: num_attention_heads 4 / tp 1 = 4");
}

TEST_F(PlanVerb, RefusesWithTheFileAndTheField) {
  model();
  expect_refused(
      {"plan", path("config.json"), "--tp", "3"},
      {path("config.json") + ": /num_attention_heads: num_attention_heads 4 does not divide among tp 3; tp 2"});
  expect_refused({"plan", path("config.json"), "--name", "a b"}, {"kernelwright: --name: \"a b\" is not a name"});
  expect_refused({"plan", path("none.json")}, {"none.json", "cannot be read"});
  write("hf_quant_config.json", "{}");
  expect_refused({"plan", path("config.json")}, {"hf_quant_config.json: /quantization: is missing or no object"});
  write("hf_quant_config.json", R"({"quantization": {"exclude_modules": []}})");
  expect_refused({"plan", path("config.json")}, {"hf_quant_config.json: /quantization/quant_algo: is missing"});
}

TEST_F(PlanVerb, ReadsTheQuantisationThatModelOptWroteBesideTheModel) {
  model();
  write("hf_quant_config.json", R"({"producer": {"name": "modelopt", "version": "0.29.0"},
      "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": null, "exclude_modules": ["lm_head"]}})");
  const CommandResult text = run({"plan", path("config.json"), "--explain"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("dtype: e4m3, scales per_tensor; quant_method modelopt"));
}

TEST_F(PlanVerb, OtherVerbsTakeAPlan) {
  const std::string file = plan();
  EXPECT_EQ(run({"source", file, "--problem", "tiny-tp1-o", "--arch", "sm_90a"}).exit_code, 0);
  EXPECT_EQ(run({"cache", "why", file, "--problem", "tiny-tp1-o", "--arch", "sm_90a"}).exit_code,
            run({"cache", "why", write("one.json", gemm_config()), "--arch", "sm_90a"}).exit_code);
  expect_refused({"source", file}, {"is a plan of 8 problems; --problem NAME would do"});
  expect_refused({"compile", file, "--problem", "tiny"},
                 {"--problem: tiny is no problem here; there are tiny-tp1-dec"});
  EXPECT_EQ(run({"explain", file, "--json"}).exit_code, 2) << "one object is printed";
}

TEST_F(PlanVerb, CompilesRunsAndExplainsTheProblemsNamed) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = plan();
  const auto both = [&](std::vector<std::string> words) {
    for (const char* word : {"--problem", "tiny-tp1-lm-head", "--problem", "tiny-tp1-o"}) words.push_back(word);
    const CommandResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const char* name : {"tiny-tp1-lm-head", "tiny-tp1-o"}) EXPECT_THAT(result.out, HasSubstr(name)) << words[0];
    EXPECT_THAT(result.out, testing::Not(HasSubstr("tiny-tp1-decode"))) << words[0];
  };
  both({"compile", file, "--arch", "sm_90a"});
  both({"run", file, "--device", "emulator"});
  both({"explain", file, "--arch", "sm_90a"});
}

TEST_F(PlanVerb, TuneSharesATotalBudgetAndSaysWhatItGained) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = plan();
  const CommandResult tuned = run({"tune", file, "--device", "emulator", "--arch", "sm_90a", "--total-budget", "1s",
                                   "--candidates", "2", "--problem", "tiny-tp1-lm-head", "--problem", "tiny-tp1-o",
                                   "--problem", "tiny-tp1-kv-write", "--shape", "check"});
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_THAT(tuned.out, testing::ContainsRegex("tiny-tp1-kv-write.*\"kv_write\" has no rows to tune yet"));
  EXPECT_THAT(tuned.out, testing::ContainsRegex("[012] of 2 groups of shapes gained; [0-9.]+ times as fast"));
  expect_refused({"tune", file, "--device", "emulator", "--total-budget", "soon"},
                 {"--total-budget: \"soon\" is no time"});
  expect_refused({"tune", file, "--budget", "1s", "--total-budget", "1s"}, {"--total-budget", "--budget"});
}

}  // namespace
}  // namespace kernelwright::plan_test
