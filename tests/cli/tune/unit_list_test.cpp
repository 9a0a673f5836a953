// Lists of units, and how several processes share one.
#include "cli/tune/unit_list.h"

#include <algorithm>

#include "cli/command_fixture.h"
#include "cli/tune/row_folder.h"
#include "kernelwright/generator/tuned/table.h"
#include "support/tuned_rows.h"

namespace kernelwright::cli {
namespace {

using testing::HasSubstr;

class UnitList : public Command {
 protected:
  std::string attention() const {
    return write("tiny.json", R"({"version": 1, "kind": "attention", "name": "tiny",
      "problem": {"head_dim": {"qk": 64, "v": 64}, "heads": {"q": 2, "kv": 2}, "max_q_len": 1},
      "shapes": [{"name": "check", "batch": 1, "q_len": 1, "kv_len": 9, "check": true},
                 {"name": "small", "batch": 1, "q_len": 1, "kv_len": 40}]})");
  }
  std::string gemm() const {
    return write("mlp.json", R"({"version": 1, "kind": "gemm", "name": "mlp", "problem": {"n": 64, "k": 64},
      "shapes": [{"name": "check", "m": 5, "check": true}, {"name": "m8", "m": 8}, {"name": "m40", "m": 40}]})");
  }
  std::string list() const {
    const CommandResult result = run({"tune", attention(), gemm(), "--list-units"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return write("units.json", result.out);
  }
};

TEST_F(UnitList, NamesEachProblemAndRange) {
  const std::vector<ListedUnit> units = read_unit_list(list());
  EXPECT_EQ(units, (std::vector<ListedUnit>{{path("tiny.json"), "tiny", std::nullopt},
                                            {path("mlp.json"), "mlp", RowRange{1, 16}},
                                            {path("mlp.json"), "mlp", RowRange{33, 48}}}));
  EXPECT_EQ(read_unit_list(write("again.json", to_json(units).dump())), units);
}

TEST_F(UnitList, ARelativePathBeginsAtTheList) {
  const std::string file =
      write("units.json", R"({"version": 1, "units": [{"config": "mlp.json", "problem": "mlp"}]})");
  EXPECT_EQ(read_unit_list(file).at(0).config, path("mlp.json"));
}

TEST_F(UnitList, EveryUnitIsInExactlyOneShard) {
  std::vector<ListedUnit> units;
  for (int i = 0; i < 23; ++i) units.push_back({"plan.json", std::to_string(i), std::nullopt});
  for (int n = 1; n <= 30; ++n) {
    std::vector<std::string> taken;
    for (int i = 0; i < n; ++i)
      for (const ListedUnit& unit : shard_of(units, std::to_string(i) + "/" + std::to_string(n)))
        taken.push_back(unit.problem);
    EXPECT_EQ(taken.size(), units.size()) << n;
    std::ranges::sort(taken);
    EXPECT_TRUE(std::ranges::adjacent_find(taken) == taken.end()) << n;
  }
  for (const char* bad : {"4/4", "1", "/2", "a/2", "-1/2", "0/0", "1/2/3", " 0/2"})
    EXPECT_THROW(shard_of(units, bad), ConfigError) << bad;
}

TEST_F(UnitList, AShardWithoutUnitsHasNoResults) {
  const CommandResult result = run({"tune", "--units", list(), "--shard", "5/6", "--device", "emulator", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(JsonValue::parse(result.out).at("/configs").elements().empty());
}

TEST_F(UnitList, RefusesWhatIsNoList) {
  expect_refused({"tune", "--units", write("a", "{}")}, {"a: "});
  expect_refused({"tune", "--units", write("b", R"({"version": 1, "units": []})")}, {"b: /units: is empty"});
  expect_refused(
      {"tune", "--units", write("c", R"({"version": 1, "units": [{"config": "x", "problem": "y", "row": 1}]})")},
      {"c: /units/0/row: is no field of a unit"});
  expect_refused({"tune", "--units", write("d", R"({"version": 1, "units": [{"config": "x", "problem": "y"},
                                                     {"config": "x", "problem": "y"}]})")},
                 {"d: /units/1: is listed twice"});
  expect_refused({"tune", attention(), "--shard", "0/2"}, {"--shard: takes its part of --units"});
  expect_refused({"tune", attention(), "--units", list()}, {"--units: names its configs itself"});
  const std::string other =
      write("other.json", R"({"version": 1, "units": [{"config": "tiny.json", "problem": "none"}]})");
  expect_refused({"tune", "--units", other, "--device", "emulator"}, {"none: the file has no such unit"});
}

TEST_F(UnitList, ShardsFindTheirKernelsCompiledAndResume) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string units = list();
  const auto shard = [&](const std::string& i) {
    return run({"tune", "--units", units, "--shard", i + "/2", "--device", "emulator", "--budget", "1s", "--candidates",
                "2", "--log", path("log" + i), "--output", path("rows" + i), "--resume", "--json"});
  };
  const auto entries = [&] {
    return JsonValue::parse(run({"cache", "ls", "--json"}).out).at("/entries").elements().size();
  };
  const CommandResult compiled = run({"tune", "--units", units, "--shard", "0/2", "--compile-only", "--arch", "sm_90a",
                                      "--candidates", "2", "--json"});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  EXPECT_EQ(JsonValue::parse(compiled.out).at("/configs/1/compiled").as_int(), 2);
  EXPECT_FALSE(std::filesystem::exists(path("log0"))) << "there was no race";
  const std::size_t kernels = entries();
  EXPECT_GT(kernels, 0u);
  const CommandResult first = shard("0");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const JsonValue before = JsonValue::parse(first.out);
  ASSERT_EQ(before.at("/configs").elements().size(), 2u) << "units 0 and 2";
  EXPECT_EQ(entries(), kernels) << "the race compiled nothing";
  const JsonValue after = JsonValue::parse(shard("0").out);
  for (int unit = 0; unit < 2; ++unit) {
    const std::string at = "/configs/" + std::to_string(unit);
    EXPECT_TRUE(after.at(at + "/settled_by_log").as_bool());
    EXPECT_EQ(after.at(at + "/outcome").as_string(), before.at(at + "/decision").as_string());
    EXPECT_EQ(after.at(at + "/best_over_model/median").as_double(),
              before.at(at + "/best_over_model/median").as_double());
  }
}

TEST_F(UnitList, MergeWritesTheBestRowsUnderOneName) {
  TunedRow slow = test::row_for(test::prefill_of()), fast = slow;
  slow.provenance.config = fast.provenance.config = "llama";
  fast.provenance.speedup_low = 1.2;
  write_tuned_file(path("a"), "one", slow);
  write_tuned_file(path("b"), "two", fast);
  const CommandResult result =
      run({"tune", "--merge", path("a"), "--merge", path("b"), "--output", path("all"), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(JsonValue::parse(result.out).at("/written").as_int(), 1);
  EXPECT_EQ(read_row_folder(path("all")), std::vector<AnyTunedRow>{fast});
  EXPECT_TRUE(std::filesystem::exists(path("all/sm_90a/llama.json")));
  expect_refused({"tune", "--merge", path("a")}, {"--merge: needs --output DIR"});
  expect_refused({"tune", "--merge", path("none"), "--output", path("x")}, {"none: is no folder of rows"});
}

TEST_F(UnitList, AWinnerOfAnotherGpuIsRacedAgain) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string config = write("long.json", R"({"version": 1, "kind": "attention", "name": "long",
      "problem": {"head_dim": {"qk": 64, "v": 64}, "heads": {"q": 4, "kv": 2}, "max_q_len": 1},
      "shapes": [{"name": "check", "batch": 1, "q_len": 1, "kv_len": 9, "check": true},
                 {"name": "long", "batch": 1, "q_len": 1, "kv_len": 300}]})");
  // One warp: the emulator takes half of the time that the model's four warps take.
  AttentionProblem problem;
  problem.head_dim = {64, 64};
  problem.heads = {4, 2};
  problem.max_q_len = 1;
  TunedRow first = test::row_for(problem);
  first.schedule = {};
  first.schedule.family = Family::kPortable;
  first.schedule.block_m = 16;
  first.schedule.block_n = 48;
  first.schedule.block_k = 64;
  first.schedule.num_stages = 4;
  first.schedule.token_gen = true;
  first.schedule.num_warps = 1;
  first.schedule.rescale = Rescale::kLazy;
  first.provenance.gpu = "emulated sm_90a";
  first.provenance.gpus = {{"0123456789abcdef", 1755, ""}};
  write_tuned_file(path("rows"), "long", first);
  const CommandResult again = run({"tune", config, "--device", "emulator", "--budget", "1s", "--log", path("again"),
                                   "--confirm", path("rows"), "--output", path("confirmed"), "--json"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const JsonValue object = JsonValue::parse(again.out);
  EXPECT_EQ(object.at("/kept").as_int(), 2) << "the winner and the model's choice alone";
  // Times of a busy machine may hide the gain. Then there is no row.
  const double low = object.at("/best_over_model/low").as_double();
  const bool won = low > 1 && object.at("/best_over_model/median").as_double() >= 1.01;
  EXPECT_EQ(object.at("/decision").as_string() == "row", won);
  ASSERT_EQ(std::filesystem::exists(path("confirmed/sm_90a/long.json")), won);
  if (!won) return;
  const TunedRow row = std::get<TunedRow>(read_row_folder(path("confirmed")).at(0));
  EXPECT_TRUE(row.provenance.confirmed);
  EXPECT_EQ(row.provenance.gpus.size(), 2u);
  EXPECT_EQ(row.provenance.speedup_low, std::min(low, first.provenance.speedup_low));
  EXPECT_EQ(row.schedule, first.schedule);
}

}  // namespace
}  // namespace kernelwright::cli
