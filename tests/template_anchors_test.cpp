// Anchors of deliberate mistakes (support/template_anchors.h): which statement one names, and what an edit makes of it.
#include "support/template_anchors.h"

#include <gtest/gtest.h>

namespace kernelwright::test::template_anchors_test {
namespace {

constexpr std::string_view kText = R"(
constexpr int kSlots = 2, kLaps = 3;
#define UNUSED if (lane == 0) { release(slot); }
class Ring {
 public:
  explicit Ring(int base) : base_(base), state_{0, 1} { arrive(base_); }
  template <int kPart = 0>
  __device__ void wait(int phase) const {  // wait(phase); in a comment is no statement
    if constexpr (kPart > 0) arrive(base_);
    for (int i = 0; i < 2; ++i) {
      fence();
      poll(base_ + kPart, phase & 1);
    }
    fence();
  }
  int operator()(int lane) const { return lane == 0 ? base_ : 0; }
};
__device__ void release(const Ring& ring) {
  each([&](int slot) {
    if (slot > 0)
      ring.wait(slot);
    else
      fence();
  });
}
)";

/// The text with the edit made in it; "2 places" where the anchor is not one place.
std::string edited(const TemplateEdit& edit) {
  const std::vector<PlacedEdit> places = places_of(edit, {"int other;", kText});
  if (places.size() != 1) return std::to_string(places.size()) + " places";
  EXPECT_EQ(places[0].file, 1u);
  std::string text(kText);
  return text.replace(places[0].begin, places[0].end - places[0].begin, places[0].text);
}
/// The one line that the edit changes, without the blanks around it.
std::string changed_line(const TemplateEdit& edit) {
  const std::vector<std::string> before = TemplateText::split(kText, "\n");
  const std::string text = edited(edit);
  const std::vector<std::string> after = TemplateText::split(text, "\n");
  if (after.size() != before.size()) return text;
  std::string changed;
  for (std::size_t i = 0; i < before.size(); ++i)
    if (before[i] != after[i]) changed += after[i].substr(after[i].find_first_not_of(' '));
  return changed;
}

TEST(TemplateAnchors, NameAStatementByItsFunctionAndWhatItNames) {
  EXPECT_EQ(changed_line(drop("Ring::wait", "poll")), ";");
  EXPECT_EQ(changed_line(drop("wait", "poll phase")), ";");
  EXPECT_EQ(changed_line(replace("Ring::operator()", "base_", "return 1;")),
            "int operator()(int lane) const {  return 1;  }");
}

TEST(TemplateAnchors, KeepTheConditionOfWhatTheyDrop) {
  EXPECT_EQ(changed_line(drop("wait", "arrive")), "if constexpr (kPart > 0) ;");
  EXPECT_EQ(changed_line(drop("release", "wait")), ";");
  EXPECT_EQ(changed_line(change("release", "if slot", "slot > 0", "false")), "if (false)");
}

TEST(TemplateAnchors, TellOneOfSeveralByItsNumber) {
  EXPECT_EQ(edited(drop("wait", "fence")), "2 places");
  EXPECT_EQ(edited(drop("wait", "fence #3")), "0 places");
  EXPECT_NE(edited(drop("wait", "fence #1")), edited(drop("wait", "fence #2")));
}

TEST(TemplateAnchors, ReachConstructorsConstantsAndLambdas) {
  EXPECT_EQ(changed_line(drop("Ring::Ring", "arrive")), "explicit Ring(int base) : base_(base), state_{0, 1} { ; }");
  EXPECT_EQ(changed_line(change("", "kSlots", "kLaps = 3", "kLaps = 4")), "constexpr int kSlots = 2, kLaps = 4;");
  EXPECT_EQ(changed_line(change("release", "fence", "fence()", "sync()")), "sync();");
}

TEST(TemplateAnchors, PutTextBeforeAndBehindAStatement) {
  EXPECT_EQ(changed_line(before("wait", "poll", "a();")), "a(); poll(base_ + kPart, phase & 1);");
  EXPECT_EQ(changed_line(after("wait", "poll", "a();")), "poll(base_ + kPart, phase & 1); a(); ");
}

TEST(TemplateAnchors, ReadNeitherCommentsNorThePreprocessor) {
  EXPECT_EQ(edited(drop("wait", "comment")), "0 places");
  EXPECT_EQ(edited(drop("", "UNUSED")), "0 places");
  EXPECT_EQ(edited(drop("Ring", "release")), "0 places");
}

TEST(TemplateAnchors, MatchAnExpressionByItsWordsAndNotByItsBlanks) {
  EXPECT_EQ(changed_line(change("wait", "poll", "phase&1", "0")), "poll(base_ + kPart, 0);");
  EXPECT_EQ(edited(change("wait", "poll", "base", "0")), "0 places");
}

}  // namespace
}  // namespace kernelwright::test::template_anchors_test
