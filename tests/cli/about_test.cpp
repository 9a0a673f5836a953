// The command's texts about itself: version, help, the manual page and the shells' completions. The last two are made
// from the option table, so their content is tested here.
#include "cli/command_fixture.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;
using testing::Not;

class About : public Command {
 protected:
  static std::vector<std::string> verbs() {
    return {"run",     "compile", "bench", "tune",   "explain", "source", "ptx",        "sass",   "plan",
            "emulate", "trace",   "cache", "doctor", "version", "help",   "completion", "manual", "worker"};
  }
  /// What bash offers to complete `line`, whose last word is incomplete: one offer per line, sorted.
  std::string completed(const std::vector<std::string>& line) const {
    std::string words;
    for (const std::string& word : line) words += " '" + word + "'";
    const CommandResult result =
        run_in_shell("\"$0\" completion bash > " + path("completion") + " && cd " + path("") + " && bash -c '. " +
                         path("completion") + R"( && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) && _kernelwright && )" +
                         R"(printf "%s\n" "${COMPREPLY[@]}"' kernelwright)" + words + " | sort",
                     {});
    EXPECT_EQ(result.err, "");
    return result.out;
  }
  bool has(const char* program) const { return run_in_shell("command -v " + std::string(program), {}).out != ""; }
};

TEST_F(About, TheVersionIsAFlagAndAVerb) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--version"}, {"version"}, {"run", "--version"}, {"cache", "--version"}}) {
    const CommandResult result = run(words);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, testing::MatchesRegex("kernelwright [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  }
  EXPECT_THAT(JsonValue::parse(run({"version", "--json"}).out).at("/version").as_string(), HasSubstr("."));
}

TEST_F(About, HelpIsAVerbAndHasItsFlagEverywhere) {
  const CommandResult all = run({"help"});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_EQ(all.out, run({"-h"}).out);
  for (const std::string& verb : verbs()) {
    EXPECT_THAT(all.out, HasSubstr("  " + verb + " "));
    const CommandResult of_verb = run({"help", verb});
    EXPECT_EQ(of_verb.exit_code, 0) << of_verb.err;
    EXPECT_THAT(of_verb.out, HasSubstr("Usage: kernelwright " + verb));
    EXPECT_EQ(run({verb, "-h"}).out, of_verb.out);
  }
  EXPECT_EQ(run({"cache", "ls", "-h"}).exit_code, 0);
  expect_refused({"help", "fly"}, {"fly is no verb; the verbs are"});
}

TEST_F(About, TheManualPageHasEveryVerbAndGroffTakesItSilently) {
  const CommandResult manual = run({"manual"});
  EXPECT_EQ(manual.exit_code, 0) << manual.err;
  for (const std::string& verb : verbs()) EXPECT_THAT(manual.out, HasSubstr(".SS " + verb + "\n"));
  for (const char* part : {".TH KERNELWRIGHT 1", "\\fB\\-\\-device\\fR \\fIcuda|emulator|auto\\fR", ".SH EXIT STATUS"})
    EXPECT_THAT(manual.out, HasSubstr(part));
  if (!has("groff")) GTEST_SKIP() << "no groff on this machine";
  const CommandResult set = run_in_shell("\"$0\" manual | groff -man -Tascii -ww -z", {});
  EXPECT_EQ(set.out + set.err, "") << "a warning of groff";
  if (!has("man")) GTEST_SKIP() << "no man on this machine";
  EXPECT_EQ(run_in_shell("\"$0\" manual | LC_ALL=C man --warnings -l - 2>&1 > /dev/null", {}).out, "");
}

TEST_F(About, BashCompletesVerbsOptionsAndValues) {
  if (!has("bash")) GTEST_SKIP() << "no bash on this machine";
  write("config.json", "");
  std::filesystem::create_directory(path("folder"));
  EXPECT_EQ(completed({"kernelwright", "co"}), "compile\ncompletion\n");
  EXPECT_EQ(completed({"kernelwright", "--v"}), "--version\n");
  EXPECT_EQ(completed({"kernelwright", "run", "--dev"}), "--device\n");
  EXPECT_EQ(completed({"kernelwright", "run", "--device", ""}), "auto\ncuda\nemulator\n");
  EXPECT_EQ(completed({"kernelwright", "run", "--device", "=", "e"}), "emulator\n");
  EXPECT_EQ(completed({"kernelwright", "compile", "--arch", "sm_9"}), "sm_90a\n");
  EXPECT_EQ(completed({"kernelwright", "compile", "con"}), "config.json\n");
  EXPECT_EQ(completed({"kernelwright", "run", "--inputs", "fo"}), "folder\n") << "a folder is wanted";
  EXPECT_EQ(completed({"kernelwright", "cache", "p"}), "prune\n");
  EXPECT_EQ(completed({"kernelwright", "cache", "why", "con"}), "config.json\n");
  EXPECT_EQ(completed({"kernelwright", "help", "doc"}), "doctor\n");
  EXPECT_EQ(completed({"kernelwright", "run", "--seed", ""}), "\n") << "nothing is known of a number";
}

TEST_F(About, CompletionsOfZshAndFishAreTheirSyntax) {
  const CommandResult zsh = run({"completion", "zsh"}), fish = run({"completion", "fish"});
  EXPECT_THAT(zsh.out, testing::StartsWith("#compdef kernelwright\n"));
  EXPECT_THAT(zsh.out,
              HasSubstr("'--device=[cuda, emulator, or auto\\: cuda where a GPU is]:WORD:(cuda emulator auto)'"));
  EXPECT_THAT(fish.out, HasSubstr("'__fish_seen_subcommand_from run' -l device -x -a 'cuda emulator auto' -d "));
  expect_refused({"completion", "tcsh"}, {"tcsh"});
  std::string absent;
  for (const auto& [shell, text] : {std::pair<const char*, std::string>{"zsh", zsh.out}, {"fish", fish.out}}) {
    if (!has(shell)) {
      absent += std::string(absent.empty() ? "" : " and no ") + shell;
      continue;
    }
    const CommandResult checked = run_in_shell(shell + std::string(" -n ") + write(shell, text), {});
    EXPECT_EQ(checked.exit_code, 0) << checked.err;
  }
  if (!absent.empty()) GTEST_SKIP() << "no " << absent << " on this machine to check its syntax";
}

TEST_F(About, TheBuildLeavesThemForTheInstallation) {
  const std::filesystem::path folder = test::binary_dir() / "command_docs";
  for (const auto& [file, words] : {std::pair<const char*, std::vector<std::string>>{"kernelwright.1", {"manual"}},
                                    {"kernelwright.bash", {"completion", "bash"}},
                                    {"_kernelwright", {"completion", "zsh"}},
                                    {"kernelwright.fish", {"completion", "fish"}}}) {
    std::ifstream in(folder / file, std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), run(words).out) << file;
  }
}

}  // namespace
}  // namespace kernelwright
