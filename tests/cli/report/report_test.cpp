// kernelwright report: the page's numbers are the files' own, and no text of a file can leave its place in the page.
#include <cmath>

#include "cli/command_fixture.h"
#include "cli/report/report_page.h"
#include "kernelwright/runtime/tune/tuning_log.h"
#include "support/paths.h"

namespace kernelwright::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kDevice = "NVIDIA H100 80GB HBM3";

Trial trial_of(const std::string& key, const std::string& schedule, double mean_us, int round, TrialVerdict verdict) {
  Trial trial;
  trial.key = key;
  trial.device = kDevice;
  trial.config = "llama";
  trial.arch = "sm_90a";
  trial.schedule = schedule;
  trial.is_model = key == "model";
  trial.verdict = verdict;
  trial.round = round;
  trial.registers = 168;
  trial.ctas_per_sm = 2;
  trial.predicted_us = mean_us * 0.9;
  trial.clock_mhz = 1755;
  trial.mean_us = mean_us;
  if (round >= 0) trial.times = {{"2k", mean_us / 3, 8}, {"16k", mean_us * 3, 8}};
  trial.date = "2026-11-21T12:00:00Z";
  return trial;
}

UnitOutcome outcome_of(const std::string& decision) {
  UnitOutcome outcome;
  outcome.decision = decision;
  outcome.config = "llama";
  outcome.device = kDevice;
  outcome.arch = "sm_90a";
  outcome.best_over_model = {1.123456789012345, 1.1, 1.2, 40};
  outcome.model_key = "model";
  outcome.best_key = "wide";
  outcome.shapes = {{"2k", 1e12, 1e8, 1011.1, 29.9}, {"16k", 2e12, 1e8, 2022.2, 29.9}};
  outcome.clock_least_mhz = 1700;
  outcome.clock_median_mhz = 1755;
  outcome.clock_most_mhz = 1980;
  outcome.gpu_id = "0123456789abcdef";
  outcome.limits = {"power cap"};
  outcome.seconds = 49.5;
  outcome.compiler = "NVRTC 13.0";
  outcome.driver = "13.0";
  outcome.kernelwright = "0.1.0";
  outcome.date = "2026-11-21T12:01:00Z";
  return outcome;
}

class ReportPage : public Command {
 protected:
  /// A log as tune writes it: three schedules, two rounds, the slower half out, and the outcome.
  std::string log(const std::string& name = "run.tune.jsonl", double scale = 1) const {
    TuningLog log(path(name));
    const std::string model = R"({"block_n":64})", wide = R"({"block_n":96})",
                      deep = R"({"block_n":64,"num_stages":2})";
    for (const char* key : {"model", "wide", "deep"})
      log.add(trial_of(key,
                       key == std::string("wide")   ? wide
                       : key == std::string("deep") ? deep
                                                    : model,
                       0, -1, TrialVerdict::kRight));
    log.add(trial_of("model", model, 100.125 * scale, 0, TrialVerdict::kMeasured));
    log.add(trial_of("wide", wide, 90.0625 * scale, 0, TrialVerdict::kMeasured));
    log.add(trial_of("deep", deep, 120.5 * scale, 0, TrialVerdict::kMeasured));
    log.add(trial_of("model", model, 100.25 * scale, 1, TrialVerdict::kMeasured));
    log.add(trial_of("wide", wide, 89.9375 * scale, 1, TrialVerdict::kMeasured));
    log.add(trial_of("deep", deep, 120.5 * scale, 0, TrialVerdict::kSlower));
    log.add(outcome_of("row"));
    return path(name);
  }
  std::string page(const std::vector<std::string>& words) const {
    std::vector<std::string> all{"report"};
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"--output", path("page.html")});
    const CommandResult result = run(all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::ifstream in(path("page.html"), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// What the page's script reads.
  static JsonValue data_of(const std::string& page) {
    const std::string begin = R"(<script type="application/json" id="data">)";
    const std::size_t from = page.find(begin) + begin.size();
    return JsonValue::parse(page.substr(from, page.find("</script>", from) - from));
  }
};

TEST_F(ReportPage, HasTheNumbersOfTheLog) {
  const std::string file = log();
  const JsonValue data = data_of(page({file}));
  const JsonValue& unit = data.at("/sources/0/units/0");
  EXPECT_EQ(data.at("/sources/0/lines").as_int(), 10);
  EXPECT_EQ(data.at("/sources/0/unreadable").as_int(), 0);
  EXPECT_EQ(unit.at("/races").as_int(), 1) << "the line of a schedule that is out begins no race";
  const auto trials = TuningLog::read(file, kDevice).trials;
  ASSERT_EQ(unit.at("/trials").elements().size(), trials.size());
  for (const JsonValue& shown : unit.at("/trials").elements()) {
    const Trial& trial = trials.at(shown.at("/key").as_string());
    EXPECT_EQ(shown.at("/mean_us").as_double(), trial.mean_us);
    EXPECT_EQ(shown.at("/predicted_us").as_double(), trial.predicted_us);
    EXPECT_EQ(shown.at("/registers").as_int(), trial.registers);
    EXPECT_EQ(shown.at("/ctas_per_sm").as_int(), trial.ctas_per_sm);
    EXPECT_EQ(shown.at("/schedule").dump(-1), trial.schedule);
    ASSERT_EQ(shown.at("/times").elements().size(), trial.times.size());
    for (std::size_t i = 0; i < trial.times.size(); ++i) {
      EXPECT_EQ(shown.at("/times").elements()[i].at("/us").as_double(), trial.times[i].us);
      EXPECT_EQ(shown.at("/times").elements()[i].at("/samples").as_int(), 8);
    }
  }
  EXPECT_EQ(unit.at("/outcome").dump(-1), write_outcome(outcome_of("row")));
  EXPECT_EQ(unit.at("/trials/1/label").as_string(), "block_n 96");
  EXPECT_EQ(unit.at("/trials/1/rounds/0/mean_us").as_double(), 90.0625);
  EXPECT_EQ(unit.at("/trials/1/rounds/1/mean_us").as_double(), 89.9375);
  EXPECT_EQ(unit.at("/trials/2/rounds").elements().size(), 1u);
}

TEST_F(ReportPage, TablesNeedNoScript) {
  const std::string text = page({log()});
  EXPECT_THAT(text, HasSubstr("<td class=\"number\">1.123 (1.100 .. 1.200)"));
  EXPECT_THAT(text, HasSubstr("<td>block_n 96"));
  EXPECT_THAT(text, HasSubstr("1700 / 1755 / 1980"));
  EXPECT_THAT(text, HasSubstr("power cap"));
  EXPECT_THAT(text, HasSubstr("<noscript>"));
}

TEST_F(ReportPage, LoadsNothing) {
  const std::string text = page({log()});
  EXPECT_THAT(text, HasSubstr("default-src 'none'"));
  for (const char* reference : {"src=\"", "@import", "url(", "fetch(", "XMLHttpRequest", "https://"})
    EXPECT_THAT(text, Not(HasSubstr(reference)));
}

TEST_F(ReportPage, KilledAndRepeatedRacesAreTold) {
  const std::string file = log();
  TuningLog(file).add(trial_of("model", R"({"block_n":64})", 101, 0, TrialVerdict::kMeasured));
  TuningLog(file).add(trial_of("model", R"({"block_n":64})", 102, 1, TrialVerdict::kMeasured));  // killed here
  TuningLog(file).add(trial_of("model", R"({"block_n":64})", 103, 0, TrialVerdict::kMeasured));
  const JsonValue data = data_of(page({file}));
  EXPECT_EQ(data.at("/sources/0/units/0/races").as_int(), 3);
  EXPECT_EQ(data.at("/sources/0/units/0/trials/0/rounds/4/race").as_int(), 2);
}

TEST_F(ReportPage, NoTextOfALogLeavesItsPlace) {
  const std::string evil = "</script><script>alert(1)</script><!--\x01\x7f\xff \" ' & \xe2\x80\xa8";
  const std::string file = path("evil.jsonl");
  Trial trial = trial_of("model", R"({"block_n":"</script><img src=x onerror=alert(1)>"})", 5, 0, TrialVerdict::kWrong);
  trial.reason = evil;
  trial.config = evil;
  TuningLog(file).add(trial);
  const std::string text = page({file});
  EXPECT_EQ(data_of(text).at("/sources/0/units/0/trials/0/reason").as_string(),
            JsonValue::parse(JsonValue(evil).dump()).as_string());
  // The template has two script elements, and each end of one is its own.
  std::size_t begins = 0, ends = 0;
  for (std::size_t at = 0; (at = text.find("<script", at)) != text.npos; ++at) ++begins;
  for (std::size_t at = 0; (at = text.find("</script", at)) != text.npos; ++at) ++ends;
  EXPECT_EQ(begins, 2u);
  EXPECT_EQ(ends, 2u);
  EXPECT_THAT(text, Not(HasSubstr("<img")));
  for (const char c : text) ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n') << "a control character";
}

TEST_F(ReportPage, HtmlTextEscapesSignsAndReplacesWhatIsNoText) {
  EXPECT_EQ(html_text("a<b>&\"c\" \xc3\xa9"), "a&lt;b&gt;&amp;&quot;c&quot; \xc3\xa9");
  EXPECT_EQ(html_text(std::string_view("\0\x1b\xff", 3)), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_F(ReportPage, ACsvKeepsEveryCell) {
  const std::string file = (test::source_dir() / "bench/results/attention/2026-11-21-h100-peers.csv").string();
  const JsonValue data = data_of(page({file}));
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  const CsvTable table = read_csv(text.str());
  EXPECT_EQ(table.about.size(), 5u);
  ASSERT_EQ(table.rows.size(), 83u);
  const auto& rows = data.at("/sources/0/rows").elements();
  ASSERT_EQ(rows.size(), table.rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      EXPECT_EQ(rows[r].elements()[c].as_string(), table.rows[r][c]);
  EXPECT_EQ(rows[0].elements()[4].as_string(), "0.1245");
}

TEST_F(ReportPage, CsvCellsMayHoldCommasQuotesAndLines) {
  const CsvTable table = read_csv("# about\nrow,note\r\na,\"x, \"\"y\"\"\nz\"\n\n# end\nb,\n");
  EXPECT_EQ(table.columns, (std::vector<std::string>{"row", "note"}));
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0][1], "x, \"y\"\nz");
  EXPECT_EQ(table.rows[1][1], "");
  EXPECT_EQ(table.about, (std::vector<std::string>{"about", "end"}));
  EXPECT_THROW(read_csv("a,b\n1\n"), ConfigError);
}

TEST_F(ReportPage, ComparesTwoRunsRowByRow) {
  const std::string a = log("a.jsonl"), b = log("b.jsonl", 0.5);
  const JsonValue data = data_of(page({"--compare", a, b}));
  const auto& rows = data.at("/compare/rows").elements();
  ASSERT_EQ(rows.size(), 2u) << "the winner's two shapes";
  EXPECT_EQ(rows[0].at("/what").as_string(), "llama, 2k");
  EXPECT_EQ(rows[0].at("/a_us").as_double(), 89.9375 / 3);
  EXPECT_EQ(rows[0].at("/b_us").as_double(), 89.9375 * 0.5 / 3);
  const std::string peers = (test::source_dir() / "bench/results/attention/2026-11-21-h100-peers.csv").string();
  expect_refused({"report", "--compare", a, peers}, {"--compare: a.jsonl and 2026-11-21-h100-peers.csv share no row"});
}

TEST_F(ReportPage, TakesTheOutputOfBench) {
  const std::string file = write("bench.json", R"({"device": "NVIDIA H100", "l2_flushed": true, "rounds": 30,
    "launches_per_round": 10, "verdict": "ok", "rows": [{"config": "mlp", "shape": "m16", "registers": 90, "median_us": 12.75,
    "p10_us": 12.5, "p90_us": 13.25, "operations": 1e9, "bytes": 1e6, "tflops": 78.4, "bound_us": 1.01,
    "compute_us": 1.01, "memory_us": 0.3}]})");
  const std::string text = page({file});
  EXPECT_EQ(data_of(text).at("/sources/0/bench/rows/0/median_us").as_double(), 12.75);
  EXPECT_THAT(text, HasSubstr("<td class=\"number\">12.75"));
}

TEST_F(ReportPage, ALargeLogIsShownInLessDetailBelowTwoMegabytes) {
  const std::string file = path("large.jsonl");
  TuningLog log(file);
  std::ofstream out(file, std::ios::app);
  for (int key = 0; key < 900; ++key) {
    const std::string name = key == 0 ? "model" : "k" + std::to_string(key);
    for (int round = 0; round < 24; ++round)
      out << write_trial(trial_of(name, R"({"block_n":)" + std::to_string(key) + "}", 50 + key, round,
                                  round == 23 && key > 4 ? TrialVerdict::kSlower : TrialVerdict::kMeasured))
          << "\n";
  }
  out.close();
  const std::string text = page({file});
  EXPECT_LT(text.size(), kMostPageBytes);
  EXPECT_THAT(text, HasSubstr("\"races_in_full\":false"));
}

TEST_F(ReportPage, RefusesWhatItCannotRead) {
  expect_refused({"report"}, {"report needs a file"});
  expect_refused({"report", path("none")}, {"none: is no file; a log of tune, a CSV of compare_peers.py"});
  expect_refused({"report", write("text", "hello\n")}, {"text: is no log of tune, no CSV"});
  expect_refused({"report", write("short.csv", "row,ours_ms,ratio\na,1\n")},
                 {"short.csv: row 1 has 2 cells, and the head names 3"});
  expect_refused({"report", "--compare", log()}, {"--compare"});
}

}  // namespace
}  // namespace kernelwright::cli
