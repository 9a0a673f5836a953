// kernelwright cache stats and cache --max-size, called as a person would.
#include "cli/cache_stats.h"
#include "command_fixture.h"
#include "kernelwright/generator/error.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;

TEST(CacheSize, ReadsUnitsOfThousandsAndOf1024) {
  const auto size = [](const char* text) { return cli::parse_size("--max-size", text); };
  EXPECT_EQ(size("0"), 0u);
  EXPECT_EQ(size("12345"), 12345u);
  EXPECT_EQ(size("512MB"), 512'000'000u);
  EXPECT_EQ(size("1.5G"), 1'500'000'000u);
  EXPECT_EQ(size("2GiB"), std::uint64_t{2} << 30);
  EXPECT_EQ(size("3Ki"), 3072u);
  EXPECT_EQ(size("7B"), 7u);
  for (const char* wrong :
       {"", "G", "-1", "1e3", "nan", "inf", "1 G", "1GG", "1iB", "1i", "0x10", "1P", "9999999T", "1,5G", "+1"})
    EXPECT_THROW(size(wrong), ConfigError) << wrong;
}

class CacheCommand : public Command {
 protected:
  JsonValue stats() const { return JsonValue::parse(run({"cache", "stats", "--json"}).out); }
};

TEST_F(CacheCommand, StatsAddUpOverRuns) {
  EXPECT_THAT(run({"cache", "stats"}).out, HasSubstr("nothing has been asked of it yet"));
  EXPECT_FALSE(std::filesystem::exists(path("cache")));
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string file = write("a.json", config());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run({"compile", file, "--arch", "sm_80"}).exit_code, 0);
  const JsonValue told = stats();
  EXPECT_EQ(told.at("/runs").as_int(), 3);
  EXPECT_EQ(told.at("/compiles").as_int(), 1);
  EXPECT_EQ(told.at("/misses").as_int(), 1);
  EXPECT_EQ(told.at("/hits").as_int(), 2);
  EXPECT_EQ(told.at("/kernels").as_int(), 1);
  EXPECT_GT(told.at("/saved_s").as_double(), 0.01);
  EXPECT_NEAR(told.at("/saved_s").as_double(), 2 * told.at("/compile_s").as_double(),
              told.at("/compile_s").as_double());
  EXPECT_EQ(told.at("/bytes_read").as_int(), 2 * told.at("/bytes_written").as_int());
  const std::string text = run({"cache", "stats"}).out;
  for (const char* part : {"1 kernel, ", " of 2.15 GB", "3 runs since 2", "hits     2, 67 % of all",
                           "misses   1: 1 compiled in", "saved    "})
    EXPECT_THAT(text, HasSubstr(part));

  // The limit stays in the directory, and the next command goes by it.
  const JsonValue limited = JsonValue::parse(run({"cache", "--max-size", "1KB", "--json"}).out);
  EXPECT_EQ(limited.at("/max_bytes").as_int(), 1000);
  EXPECT_EQ(limited.at("/removed").as_int(), 1);
  EXPECT_EQ(run({"compile", file, "--arch", "sm_80"}).exit_code, 0);
  EXPECT_EQ(stats().at("/kernels").as_int(), 0) << "what was compiled is over the limit";
  EXPECT_EQ(stats().at("/max_bytes").as_int(), 1000);
  EXPECT_EQ(stats().at("/evicted").as_int(), 2);
  EXPECT_THAT(run({"cache", "--max-size", "none"}).out, HasSubstr("keeps at most 2.15 GB, the default"));
  EXPECT_EQ(run({"compile", file, "--arch", "sm_80"}).exit_code, 0);
  EXPECT_EQ(stats().at("/kernels").as_int(), 1);
}

TEST_F(CacheCommand, RefusesALimitThatIsNoneOrCannotBeKept) {
  expect_refused({"cache"}, {"cache", "names no VERB", "--max-size"});
  expect_refused({"cache", "--max-size", "much"}, {"--max-size", "much is no size"});
  expect_refused({"cache", "ls", "--max-size", "1G"}, {"--max-size", "stands alone"});
  write("cache", "a file");
  expect_refused({"cache", "--max-size", "1G"}, {"--max-size", "is not kept", "is not a directory"});
}

}  // namespace
}  // namespace kernelwright
