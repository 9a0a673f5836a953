// docs/emulator/check-your-kernel.md, typed in as it stands: its commands, their output, and its files.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "command_fixture.h"
#include "kernelwright/verify/formats/npy.h"
#include "support/paths.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string text_in(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The lines of a text, but for the one with the time that the launch took.
std::vector<std::string> lines_without_times(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    if (line.find(" warp instructions in ") == line.npos) lines.push_back(line);
  return lines;
}

class CheckYourKernelPage : public Command {
 protected:
  struct Step {
    std::vector<std::string> words;
    std::string output;  // the rest of the page's block
  };

  CheckYourKernelPage() {
    for (const char* file : {"tail.ptx", "args.json", "accepted.txt"}) write(file, text_in(examples() / file));
    std::string mended = text_in(examples() / "tail.ptx");
    const std::string label = "$L__BB0_3:\n";  // where the loop that clears rows ends
    const std::size_t at = mended.find("\n" + label);
    EXPECT_NE(at, mended.npos);
    write("mended.ptx", mended.insert(at + 1 + label.size(), "\tbar.sync 0;\n"));
  }
  static std::filesystem::path examples() { return test::source_dir() / "examples" / "emulator"; }
  static std::string page() { return text_in(test::source_dir() / "docs" / "emulator" / "check-your-kernel.md"); }

  /// The runs of the command behind `prompt` ("\n" or "\n$ "), with the rest of their block as output. A line may be
  /// folded with a backslash.
  static std::vector<Step> steps(const std::string& prompt) {
    std::vector<Step> found;
    const std::string text = page(), name = prompt + "kernelwright ";
    for (std::size_t at = 0; (at = text.find(name, at)) != text.npos;) {
      const std::size_t begin = at + name.size(), block_end = text.find("\n```", begin);
      std::size_t end = text.find('\n', begin);
      while (text[end - 1] == '\\') end = text.find('\n', end + 1);
      std::string command = text.substr(begin, end - begin);
      std::replace(command.begin(), command.end(), '\\', ' ');
      std::istringstream words(command);
      found.push_back({{std::istream_iterator<std::string>(words), {}}, text.substr(end, block_end - end)});
      at = block_end;
    }
    return found;
  }
  CommandResult run_here(const std::vector<std::string>& words) const {
    return run_in_shell("cd '" + path("") + R"(' && exec "$0" "$@")", words);
  }
  /// How many elements of d.npy differ from the product of a.npy and the first 50 rows of b.npy.
  int wrong_elements() const {
    const NpyArray<float> a = read_npy<float>(path("a.npy")), b = read_npy<float>(path("b.npy")),
                          d = read_npy<float>(path("d.npy"));
    int wrong = 0;
    for (std::size_t m = 0; m < 16; ++m)
      for (std::size_t n = 0; n < 8; ++n) {
        double sum = 0;
        for (std::size_t k = 0; k < 50; ++k) sum += double{a.values[m * 64 + k]} * b.values[k * 8 + n];
        wrong += std::abs(sum - d.values[m * 8 + n]) > 1e-4;
      }
    return wrong;
  }
};

TEST_F(CheckYourKernelPage, ShowsTheFilesAsTheyAre) {
  for (const char* file : {"args.json", "accepted.txt"})
    EXPECT_THAT(page(), HasSubstr("\n" + text_in(examples() / file) + "```")) << file;
  const std::string start = "```cuda\n";
  const std::size_t at = page().find(start) + start.size();
  EXPECT_THAT(text_in(examples() / "tail.cu"), HasSubstr(page().substr(at, page().find("```", at) - at)));
}

TEST_F(CheckYourKernelPage, ShowsTrueOutput) {
  const std::vector<Step> all = steps("\n$ ");
  ASSERT_EQ(all.size(), 2u);
  for (const Step& step : all) {
    const CommandResult result = run_here(step.words);
    EXPECT_EQ(lines_without_times("\n" + result.out), lines_without_times(step.output)) << result.err;
    EXPECT_EQ(result.exit_code, &step == &all.front() ? 0 : 1);
  }
}

TEST_F(CheckYourKernelPage, CommandsWithoutOutputFindNothingMore) {
  const std::vector<Step> all = steps("\n");
  ASSERT_EQ(all.size(), 3u);  // mended; suppressed; suppressed, with SARIF
  for (const Step& step : all) {
    const CommandResult result = run_here(step.words);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("matches no report")));
  }
  const JsonValue sarif = JsonValue::parse(text_in(path("found.sarif")));
  EXPECT_EQ(sarif.at("/runs/0/results").elements().size(), 3u);
  for (const JsonValue& result : sarif.at("/runs/0/results").elements()) EXPECT_TRUE(result.find("suppressions"));
}

TEST_F(CheckYourKernelPage, TheBarrierMendsIt) {
  const std::vector<std::string> words = steps("\n").at(0).words;
  ASSERT_EQ(words.at(1), "mended.ptx");
  EXPECT_EQ(run_here(words).exit_code, 0);
  EXPECT_EQ(wrong_elements(), 0);
}

TEST_F(CheckYourKernelPage, TheResultHangsOnTheOrderOfWarps) {
  std::vector<std::string> words = steps("\n$ ").at(0).words;
  EXPECT_EQ(run_here(words).exit_code, 0);
  EXPECT_EQ(wrong_elements(), 96) << "the page says so";
  words.insert(words.end(), {"--seed", "1"});
  EXPECT_EQ(run_here(words).exit_code, 0);
  EXPECT_EQ(wrong_elements(), 0);
}

}  // namespace
}  // namespace kernelwright
