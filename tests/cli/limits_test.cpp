// The command at its limits: a word that is no number, a machine with too few resources, and output that is not read.
#include <sys/stat.h>

#include "cli/command_fixture.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // their shadow needs terabytes of address space
#else
constexpr bool kSanitized = false;
#endif

class Limits : public Command {
 protected:
  static std::vector<std::string> verbs() { return {"run", "bench", "tune", "emulate", "trace", "cache"}; }
  /// Options of `verb` that take numbers, by its help.
  std::vector<std::string> numbers(const std::string& verb) const {
    std::vector<std::string> names;
    std::istringstream help(run({verb, "--help"}).out);
    for (std::string line; std::getline(help, line);) {
      std::istringstream words(line);
      std::string name, type;
      words >> name >> type;
      EXPECT_FALSE(type.starts_with("UINT") || type.starts_with("INT") || type.starts_with("FLOAT"))
          << verb << " " << name << ": CLI11 would read -1 as 2^64 - 1";
      if (type.starts_with("NUMBER")) names.push_back(name);
    }
    return names;
  }
};

TEST_F(Limits, EveryNumberOnTheCommandLineIsNeitherNegativeNorNanNorTooLarge) {
  std::size_t tried = 0;
  const std::string file = write("a.json", config());
  for (const std::string& verb : verbs())
    for (const std::string& name : numbers(verb)) {
      for (const char* number : {"-1", "nan", "99999999999999999999999", "1e999", ""})
        expect_refused({verb, verb == "cache" ? "prune" : file, name + "=" + number}, {name});
      ++tried;
    }
  EXPECT_GE(tried, 17u);
  expect_refused({"cache", "prune", "--max-bytes", "0x10"}, {"--max-bytes: 0x10 is no whole number"});
  expect_refused({"tune", file, "--output", path("rows"), "--budget", "nan"}, {"--budget: \"nan\" is no time"});
}

TEST_F(Limits, LittleAddressSpaceIsExit3AndNamesIt) {
  KERNELWRIGHT_NEEDS_COMPILER();
  if (kSanitized) GTEST_SKIP() << "a sanitizer's shadow takes the address space";
  const std::string file = write("a.json", config());
  for (const char* kilobytes : {"64000", "140000", "155000"}) {
    const CommandResult result = run_in_shell("ulimit -v " + std::string(kilobytes) + "; exec \"$0\" \"$@\"",
                                              {"run", file, "--device", "emulator", "--json"});
    EXPECT_EQ(result.exit_code, 3) << kilobytes << result.err;
    EXPECT_THAT(result.err, HasSubstr("address space ran out: this process may have ")) << kilobytes;
    EXPECT_EQ(run_in_shell("ulimit -v " + std::string(kilobytes) + "; exec \"$0\" \"$@\"",
                           {"compile", file, "--arch", "sm_80"})
                  .exit_code,
              3);
  }
  const std::string ptx = write("copy.ptx",
                                ".version 8.0\n.target sm_90\n.address_size 64\n"
                                ".visible .entry copy(.param .u64 to) { ret; }\n");
  const CommandResult buffers =
      run_in_shell("ulimit -v 500000; exec \"$0\" \"$@\"", {"emulate", ptx, "--bytes", "60000000000"});
  EXPECT_EQ(buffers.exit_code, 3) << buffers.err;
  EXPECT_THAT(buffers.err, HasSubstr("address space ran out"));
}

TEST_F(Limits, FewDescriptorsAreExit3AndNamed) {
  KERNELWRIGHT_NEEDS_COMPILER();
  if (kSanitized) GTEST_SKIP() << "a sanitizer opens files of its own";
  const std::string file = write("a.json", config());
  ::mkdir(path("cache").c_str(), 0700);  // it takes the one descriptor that is left: 3, unless a parent left that open
  const CommandResult result =
      run_in_shell("exec 3>&-; ulimit -n 4; exec \"$0\" \"$@\"", {"run", file, "--device", "emulator"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("file descriptors ran out: this process may hold 4 (ulimit -n)"));
}

TEST_F(Limits, OutputThatCannotBeWrittenIsExit4) {
  const std::string file = write("a.json", config());
  for (const std::vector<std::string>& words : {std::vector<std::string>{"explain", file},
                                                {"source", file},
                                                {"cache", "ls"},
                                                {"--help"},
                                                {"version"},
                                                {"cache", "ls", "--json"},
                                                {"explain", path("none.json"), "--json"}}) {
    const CommandResult full = run_in_shell("exec \"$0\" \"$@\" > /dev/full", words);
    EXPECT_EQ(full.exit_code, 4) << words[0] << full.err;
    EXPECT_THAT(full.err, HasSubstr("standard output could not be written"));
    EXPECT_THAT(full.err, HasSubstr("No space left on device"));
    EXPECT_EQ(run_in_shell("exec \"$0\" \"$@\" >&-", words).exit_code, 4) << words[0];
  }
  // Whoever ignores SIGPIPE, as Python does, gets the code; a shell's pipeline sees the signal.
  const std::string piped = R"({ "$0" "$@"; echo $? > )" + path("code") + "; } | true; cat " + path("code");
  EXPECT_THAT(run_in_shell("trap '' PIPE; " + piped, {"source", file}).out, testing::AnyOf("4\n", "0\n"));
}

}  // namespace
}  // namespace kernelwright
