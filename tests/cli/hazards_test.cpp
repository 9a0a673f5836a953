// What --hazards, --hazard-suppressions and --sarif do with the reports of one launch.
#include <fstream>
#include <iterator>
#include <set>

#include "command_fixture.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;
using testing::Not;

class HazardOptions : public Command {
 protected:
  /// A warp whose lane 0 leaves an arrival at a named barrier (isa), and two warps that write a word (error).
  std::string ptx() const {
    return write("k.ptx", R"(.version 8.8
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
  .shared .align 16 .b8 word[16];
  .reg .b32 %r<4>; .reg .pred %p<2>;
  mov.u32 %r1, %tid.x; mov.u32 %r2, word;
  st.shared.u32 [%r2], %r1;
  setp.ge.u32 %p0, %r1, 32;
  @%p0 bra DONE;
  bar.arrive 3, 64;
DONE:
  ret;
}
)");
  }
  CommandResult check(const std::vector<std::string>& more) const {
    std::vector<std::string> words{"emulate", ptx(), "--block", "64"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  static std::multiset<std::string> rules(const CommandResult& result) {
    std::multiset<std::string> found;
    const JsonValue report = JsonValue::parse(result.out);
    for (const JsonValue& hazard : report.at("/hazards").elements()) found.insert(hazard.at("/rule").as_string());
    return found;
  }
  std::string text_of(const std::string& file) const {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST_F(HazardOptions, ShowTheGradesThatAreAskedFor) {
  using Rules = std::multiset<std::string>;
  const Rules all{"barrier-arrivals-at-exit", "shared-race"};
  EXPECT_EQ(rules(check({"--hazards", "--json"})), all);
  EXPECT_EQ(rules(check({"--hazards=all", "--json"})), all);
  EXPECT_EQ(rules(check({"--hazards=isa", "--json"})), all);
  EXPECT_EQ(rules(check({"--hazards=error", "--json"})), Rules{"shared-race"});
  const CommandResult json = check({"--hazards=error", "--json"});
  EXPECT_EQ(JsonValue::parse(json.out).at("/hazards/0/grade").as_string(), "error");
  EXPECT_THAT(JsonValue::parse(json.out).at("/hazards/0/section").as_string(), HasSubstr("Causality order"));
  EXPECT_THAT(JsonValue::parse(json.out).at("/hazards/0/mend").as_string(), HasSubstr("barrier"));
  EXPECT_EQ(check({"--hazards=many"}).exit_code, 2);
}

TEST_F(HazardOptions, SuppressionsTakeReportsOutAndIdleOnesAreNamed) {
  const std::string file = write("accepted.txt",
                                 "shared-race k * all threads may win\n"
                                 "barrier-arrivals-at-exit * ptx:12 nobody comes to barrier 3\n"
                                 "lane-race other * never happens\n");
  const CommandResult result = check({"--hazards", "--hazard-suppressions", file});
  EXPECT_THAT(result.err, HasSubstr("accepted.txt:3: this suppression matches no report: lane-race other"));
  EXPECT_THAT(result.err, Not(HasSubstr("accepted.txt:1")));
  EXPECT_THAT(result.out, Not(HasSubstr("shared-race")));
  EXPECT_EQ(result.exit_code, 1) << "the barrier's report is at the exit: " << result.out;
  write("accepted.txt", "shared-race k * all threads may win\nbarrier-arrivals-at-exit * * nobody comes\n");
  EXPECT_EQ(check({"--hazards", "--hazard-suppressions", file}).exit_code, 0);
  EXPECT_EQ(check({"--hazard-suppressions", file}).exit_code, 2) << "without --hazards";
  write("accepted.txt", "shared-race k *\n");
  EXPECT_THAT(check({"--hazards", "--hazard-suppressions", file}).err, HasSubstr("accepted.txt:1"));
}

TEST_F(HazardOptions, SarifHasTheRequiredStructure) {
  const std::string accepted = write("accepted.txt", "barrier-arrivals-at-exit * * nobody comes\n");
  const std::string file = path("found.sarif");
  EXPECT_EQ(check({"--hazards", "--hazard-suppressions", accepted, "--sarif", file}).exit_code, 1);
  const JsonValue log = JsonValue::parse(text_of(file));
  EXPECT_EQ(log.at("/version").as_string(), "2.1.0");
  EXPECT_THAT(log.at("/$schema").as_string(), HasSubstr("sarif-2.1.0"));
  ASSERT_EQ(log.at("/runs").elements().size(), 1u);
  const JsonValue& sarif = log.at("/runs/0");
  EXPECT_EQ(sarif.at("/tool/driver/name").as_string(), "kernelwright");
  const auto& rules = sarif.at("/tool/driver/rules").elements();
  const std::set<std::string> levels{"error", "warning", "note"};
  std::set<std::string> ids;
  for (const JsonValue& rule : rules) {
    EXPECT_TRUE(ids.insert(rule.at("/id").as_string()).second);
    EXPECT_FALSE(rule.at("/shortDescription/text").as_string().empty());
    EXPECT_TRUE(levels.contains(rule.at("/defaultConfiguration/level").as_string()));
  }
  ASSERT_EQ(sarif.at("/results").elements().size(), 2u);
  for (const JsonValue& result : sarif.at("/results").elements()) {
    const auto index = static_cast<std::size_t>(result.at("/ruleIndex").as_int());
    ASSERT_LT(index, rules.size());
    EXPECT_EQ(rules[index].at("/id").as_string(), result.at("/ruleId").as_string());
    EXPECT_EQ(rules[index].at("/defaultConfiguration/level").as_string(), result.at("/level").as_string());
    EXPECT_FALSE(result.at("/message/text").as_string().empty());
    EXPECT_GE(result.at("/occurrenceCount").as_int(), 1);
    EXPECT_EQ(result.at("/locations/0/physicalLocation/artifactLocation/uri").as_string(), "k.ptx");
    EXPECT_GE(result.at("/locations/0/physicalLocation/region/startLine").as_int(), 1);
    EXPECT_EQ(result.at("/locations/0/logicalLocations/0/name").as_string(), "k");
  }
  EXPECT_EQ(sarif.at("/results/0/ruleId").as_string(), "shared-race");
  EXPECT_TRUE(sarif.at("/results/0").find("relatedLocations"));
  EXPECT_FALSE(sarif.at("/results/0").find("suppressions"));
  EXPECT_EQ(sarif.at("/results/1/suppressions/0/kind").as_string(), "external");
  EXPECT_EQ(sarif.at("/results/1/suppressions/0/justification").as_string(), "nobody comes");
}

}  // namespace
}  // namespace kernelwright
