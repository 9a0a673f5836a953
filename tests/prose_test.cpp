// Holds prose to the house rule of CONTRIBUTING.md: short sentences, a named actor, no idiom that a tired reader has to
// read twice. Documents keep every rule. Comments of product code keep a ceiling for each folder, which may only fall.
// Links of documents lead to files and headings that exist, and bench/results/ has one naming scheme. Each rule is
// tried on made-up text first, so that it is known to bite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "support/paths.h"
#include "support/prose.h"

namespace kernelwright::prose_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace test::prose;
using testing::IsEmpty;

TEST(Prose, OfDocumentsIsPlain) {
  const Pages pages = documents();
  EXPECT_GT(pages.size(), 10u);
  Strings found;
  for (const auto& [path, text] : pages)
    for (const std::string& what : wrong_in(path, text)) found.push_back(what);
  EXPECT_THAT(found, IsEmpty());
}

TEST(Prose, LinksOfDocumentsLeadSomewhere) {
  Pages pages = documents();
  for (const std::string& path : files_below("bench/results"))
    if (path.ends_with(".md")) pages[path] = text_of(test::source_dir() / path);
  EXPECT_THAT(dead_links(pages, [](const std::string& path) { return fs::exists(test::source_dir() / path); }),
              IsEmpty());
}

TEST(Prose, NamesFilesThatExist) {
  Strings found;
  for (const auto& [path, text] : documents())
    for (const std::string& what :
         dead_paths(path, text, [](const std::string& name) { return fs::exists(test::source_dir() / name); }))
      found.push_back(what);
  EXPECT_THAT(found, IsEmpty());
}

TEST(Results, HaveOneSchemeOfNamesAndAreCited) {
  Pages pages = documents();
  const std::string folder = "bench/results/";
  const Strings files = files_below(folder);
  for (const std::string& path : files)
    if (path.ends_with(".md")) pages[path] = text_of(test::source_dir() / path);
  Strings found;
  for (const std::string& path : files) {
    const std::string name = path.substr(folder.size());
    if (const std::string wrong = wrong_name(name); !wrong.empty()) found.push_back(wrong);
    const bool cited = std::any_of(pages.begin(), pages.end(), [&](const auto& page) {
      return page.first != path && page.second.find(fs::path(path).filename().string()) != std::string::npos;
    });
    if (!cited && name != "README.md") found.push_back(name + ": no page cites it");
  }
  EXPECT_THAT(found, IsEmpty());
}

/// What is left to mend in comments. A ceiling may only fall: lower it with the comments that you mend.
struct Ceiling {
  const char* folder;
  size_t long_sentences, idioms;
};
constexpr Ceiling kCeilings[] = {
    {"generator", 0, 0}, {"runtime", 0, 0}, {"verify", 0, 0},        {"cli", 0, 0},
    {"templates", 0, 0}, {"bench", 0, 0},   {"tests/support", 0, 0}, {"integrations", 0, 0},
};
class ProseOfComments : public testing::TestWithParam<Ceiling> {};

TEST_P(ProseOfComments, IsNoWorseThanItsCeiling) {
  Strings sentences, idioms;
  size_t files = 0;
  for (const std::string& path : files_below(GetParam().folder)) {
    const std::string ending = fs::path(path).extension().string();
    if (ending != ".h" && ending != ".c" && ending != ".cpp" && ending != ".cuh" && ending != ".cu") continue;
    ++files;
    const std::vector<Block> blocks = blocks_of_comments(text_of(test::source_dir() / path));
    for (std::string& what : long_sentences(path, blocks)) sentences.push_back(std::move(what));
    for (std::string& what : banned_in(path, blocks)) idioms.push_back(std::move(what));
  }
  EXPECT_GT(files, 0u);
  const auto list = [](const Strings& all) {
    std::string text;
    for (const std::string& one : all) text += "\n  " + one;
    return text;
  };
  EXPECT_LE(sentences.size(), GetParam().long_sentences)
      << "sentences above " << kMaxWords << " words:" << list(sentences);
  EXPECT_LE(idioms.size(), GetParam().idioms) << "banned idioms:" << list(idioms);
}

INSTANTIATE_TEST_SUITE_P(EachFolder, ProseOfComments, testing::ValuesIn(kCeilings), [](const auto& info) {
  std::string name = info.param.folder;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

// ---- made-up text ----

std::string words(int count) {
  std::string text = "Word";
  for (int i = 1; i < count; ++i) text += " word";
  return text + ".";
}

TEST(ProseRule, FindsNothingInPlainText) {
  EXPECT_THAT(
      wrong_in("p.md", "# A page\n\nThe loading warp fills a slot. A math warp reads it (twice).\n\n- " + words(18) +
                           "\n\n```\nwhoever runs a line of code that is as long as it likes, as code in a block may "
                           "be, is let go of, and no rule shall bite it at all\n```\n| a | `whoever` |\n|---|---|\n"),
      IsEmpty());
}

TEST(ProseRule, FindsALongSentenceWhereverItStands) {
  const std::string why = "31 words: Word";
  const std::string fine = "\nShort. Short. Short. Short.";
  const auto wrapped = [](std::string text) {
    for (size_t at = 80; at < text.size(); at += 80) text[text.rfind(' ', at)] = '\n';
    return text;
  };
  EXPECT_THAT(wrong_in("p.md", "\n" + wrapped(words(31)) + fine), ElementsAre(HasSubstr("p.md:2: " + why)));
  EXPECT_THAT(wrong_in("p.md", "- One.\n- " + wrapped(words(31)) + fine), ElementsAre(HasSubstr("p.md:2: " + why)));
  EXPECT_THAT(wrong_in("p.md", "| a | " + words(31) + " |"), ElementsAre(HasSubstr("p.md:1: " + why)));
  EXPECT_THAT(wrong_in("p.md", wrapped(words(30)) + fine), IsEmpty());
  // Inline code is one word, and so is a link's text for each word that is read.
  EXPECT_THAT(wrong_in("p.md", "Is `a b c d` [one two](there/and/back.md)."), IsEmpty());
}

TEST(ProseRule, FindsAMeanThatIsTooHigh) {
  EXPECT_THAT(wrong_in("p.md", words(18) + "\n\n" + words(19)), ElementsAre(HasSubstr("a mean of 18.5")));
  EXPECT_THAT(wrong_in("p.md", words(18) + "\n\n" + words(18) + "\n| " + words(29) + " |"), IsEmpty());
}

TEST(ProseRule, FindsIdiomsAsWholeWords) {
  EXPECT_THAT(wrong_in("p.md", "Whoever has it\nlets go of it."),
              ElementsAre(HasSubstr("\"whoever\""), HasSubstr("\"lets go of\"")));
  EXPECT_THAT(wrong_in("p.md", "A marshalled value. People who read."), IsEmpty());
  EXPECT_THAT(wrong_in("p.md", "It is for who waits. And \"who\" reads?"),
              ElementsAre(HasSubstr("who, not a person"), HasSubstr("who, not a person")));
}

TEST(ProseRule, FindsWideLinesAndCells) {
  const std::string wide(101, 'x');
  EXPECT_THAT(wrong_in("p.md", wide), ElementsAre(HasSubstr("p.md:1: 101 columns")));
  EXPECT_THAT(wrong_in("p.md", "[a](" + wide + ")"), IsEmpty());
  EXPECT_THAT(wrong_in("p.md", "```\n" + wide + "\n```"), IsEmpty());
  EXPECT_THAT(wrong_in("p.md", "The command is `" + wide + "`."), IsEmpty());
  EXPECT_THAT(wrong_in("p.md", "The command is `x`, and " + wide), ElementsAre(HasSubstr("125 columns")));
  EXPECT_THAT(wrong_in("p.md", "| " + wide + wide + " | b |"), IsEmpty());
  EXPECT_THAT(wrong_in("p.md", "| a | " + wide + wide + wide + " |"), ElementsAre(HasSubstr("a cell of 303")));
}

TEST(ProseRule, ReadsCommentsAndNothingElseOfASource) {
  const auto found = [](const std::string& source) { return banned_in("a.cpp", blocks_of_comments(source)); };
  EXPECT_THAT(found("/// A slot, for\n/// whoever waits.\nint whoever;\n"), ElementsAre("a.cpp:1: \"whoever\""));
  EXPECT_THAT(found("int a;  // let\nint b;  // go of\n"), IsEmpty());
  EXPECT_THAT(found("int a;  // let go of\n"), ElementsAre("a.cpp:1: \"let go of\""));
  EXPECT_THAT(found("/* Whoever\n * reads. */ int a;\n"), ElementsAre("a.cpp:1: \"whoever\""));
  EXPECT_THAT(found("auto url = \"http://whoever\";\n"), IsEmpty());
  EXPECT_THAT(long_sentences("a.cpp", blocks_of_comments("// " + words(20) + "\n// " + words(20) + "\n")), IsEmpty());
  EXPECT_THAT(long_sentences("a.cpp", blocks_of_comments("// " + words(30) + "\n// Word " + words(30) + "\n")),
              ElementsAre(HasSubstr("31 words")));
}

TEST(ProseRule, FindsDeadLinks) {
  const Pages pages = {{"docs/a.md", "# A `b` c\n[1](#a-b-c) [2](b.md#there) [3](../x.md) [4](b.md#here)\n"},
                       {"docs/b.md", "## Here\n[5](https://far.away/x) [6](none.md)\n"}};
  const auto exists = [&](const std::string& path) { return pages.contains(path) || path == "x.md"; };
  EXPECT_THAT(dead_links(pages, exists),
              ElementsAre("docs/a.md:2: no heading b.md#there", "docs/b.md:2: no file docs/none.md"));
}

TEST(ProseRule, FindsNamesOfFilesThatAreGone) {
  const auto found = [](const std::string& page) {
    return dead_paths("docs/a.md", page, [](const std::string& name) { return name == "cli/main.cpp"; });
  };
  EXPECT_THAT(found("`cli/main.cpp`, main.cpp, `other/x.cpp`, `cli/NAME.cpp`, `cli/*.cpp`"), IsEmpty());
  EXPECT_THAT(found("one\n`cli/man.cpp`"), ElementsAre("docs/a.md:2: no file cli/man.cpp"));
}

TEST(ResultsRule, KnowsNames) {
  EXPECT_EQ(wrong_name("attention/2026-11-21-h100-peers.csv"), "");
  EXPECT_EQ(wrong_name("launch/2026-11-21-cascade-lake.md"), "");
  EXPECT_EQ(wrong_name("gemm/steps/gemm-tiles.txt"), "");
  for (const char* bad : {"attention/h100-peers.csv", "attention/2026-11-21-peers.csv", "2026-11-21-h100.md",
                          "attention/2026-11-21-h100-peers.png", "gemm/steps/deeper/a.txt", "jit/2026-11-21-h100_x.md"})
    EXPECT_THAT(wrong_name(bad), HasSubstr("is not SUBJECT/DATE-MACHINE")) << bad;
}

}  // namespace
}  // namespace kernelwright::prose_test
