// What a person sees of a race while it runs.
#include "cli/tune/race_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kernelwright::cli {
namespace {

using ::testing::HasSubstr;

class View : public ::testing::Test {
 protected:
  View() {
    add(0, 100);
    for (std::size_t entrant = 1; entrant <= 10; ++entrant) add(entrant, 80 + static_cast<double>(entrant));
    for (const Standing& standing : standings) in.push_back(&standing);
  }
  void add(std::size_t entrant, double us) { standings.push_back({entrant, {{us, us}}, -1}); }
  static std::string label(const Standing& standing) {
    if (standing.entrant == 0) return "the model's choice";
    return standing.entrant == 3 ? std::string(60, 'x') : "block_n " + std::to_string(16 * standing.entrant);
  }
  static std::string text_of(std::FILE* file) {
    std::rewind(file);
    std::string text(4096, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file));
    return text;
  }
  std::vector<Standing> standings;
  std::vector<const Standing*> in;
  std::FILE* const file = std::tmpfile();
};

TEST_F(View, TableHasTheFastestEightAndTheModel) {
  const std::string table = RaceView::table_of("mlp, 1 to 16 rows", 1, 4, in, 0.255, label, Style(file));
  EXPECT_EQ(table, R"(mlp, 1 to 16 rows  round 2, pass 5, 11 in, 26 % of the budget
      schedule                                          mean  vs model
   1  block_n 16                                     81.0 us     1.235
   2  block_n 32                                     82.0 us     1.220
   3  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...   83.0 us     1.205
   4  block_n 64                                     84.0 us     1.190
   5  block_n 80                                     85.0 us     1.176
   6  block_n 96                                     86.0 us     1.163
   7  block_n 112                                    87.0 us     1.149
   8  block_n 128                                    88.0 us     1.136
  11  the model's choice                            100.0 us     1.000
)");
}

TEST_F(View, WhereNoTerminalIsEachRoundIsAPlainLine) {
  {
    RaceView view(file, "mlp");
    view.pass(0, 0, in, 0.1, label);
    view.round(0, in, label);
    view.round(1, {in[0]}, label);
  }
  EXPECT_EQ(text_of(file),
            "mlp: round 1, 11 schedules; fastest: block_n 16, 81.0 us, 1.235 x the model's choice\n"
            "mlp: round 2, 1 schedule; fastest: the model's choice, 100.0 us\n");
}

TEST_F(View, EntrantsWithoutATimeAreNotRanked) {
  standings[1].samples[0].clear();
  EXPECT_THAT(RaceView::line_of("mlp", 0, in, label), HasSubstr("fastest: block_n 32, 82.0 us"));
}

}  // namespace
}  // namespace kernelwright::cli
