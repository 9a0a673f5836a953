// docs/first-kernel.md, typed in as it stands: its files, and the outcome that it promises for each. On the portable
// kernel, which compiles fastest.
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "command_fixture.h"
#include "support/paths.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;

class FirstKernelPage : public Command {
 protected:
  /// The page's blocks of code in their order, by the language behind the fence.
  static std::map<std::string, std::vector<std::string>> blocks() {
    std::ifstream page(test::source_dir() / "docs" / "first-kernel.md");
    std::map<std::string, std::vector<std::string>> found;
    bool open = false;
    std::string language, text;
    for (std::string line; std::getline(page, line);) {
      if (line.rfind("```", 0) != 0) {
        if (open) text += line + "\n";
      } else if (open) {
        found[language].push_back(std::exchange(text, {}));
        open = false;
      } else {
        language = line.substr(3);
        open = true;
      }
    }
    return found;
  }
  /// `text` with its one `from` replaced.
  static std::string edited(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    return text;
  }
  CommandResult run_config(const std::string& name) const {
    return run({"run", path(name), "--device", "emulator", "--arch", "sm_80"});
  }
};

TEST_F(FirstKernelPage, RunsAsItIsTyped) {
  KERNELWRIGHT_NEEDS_COMPILER();
  const std::string compile = "cc -shared -fPIC -o " + path("reference.so") + " " + path("reference.c");
  if (std::system("command -v cc > /dev/null") != 0) GTEST_SKIP() << "no cc on this machine";
  auto page = blocks();
  const auto &json = page["json"], &cpp = page["cpp"], &c = page["c"];
  ASSERT_EQ(json.size(), 4u);
  ASSERT_EQ(cpp.size(), 2u);
  ASSERT_EQ(c.size(), 2u);

  write("first.json", json[0]);
  EXPECT_THAT(run_config("first.json").out, HasSubstr("✓ ok"));
  write("typo.json", edited(json[0], "causal", "casual"));
  EXPECT_THAT(run_config("typo.json").err, HasSubstr("\"casual\" is no mask (did you mean \"causal\"?)"));

  write("landmarks.cuh", cpp[0]);
  write("landmarks.json", json[1]);
  EXPECT_THAT(run_config("landmarks.json").out, HasSubstr("is a source without a \"reference\""));

  write("reference.c", c[0] + "\n" + c[1]);
  ASSERT_EQ(std::system(compile.c_str()), 0);
  const std::string masked = edited(json[1],
                                    R"(      {"kind": "source", "file": "landmarks.cuh", "type": "Landmarks"})"
                                    "\n",
                                    json[2]);
  write("landmarks.json", masked);
  EXPECT_THAT(run_config("landmarks.json").out, HasSubstr("✓ ok"));
  write("wrong.cuh", edited(cpp[0], "kRecent = 8", "kRecent = 7"));
  write("wrong.json", edited(masked, "landmarks.cuh", "wrong.cuh"));
  const CommandResult wrong = run_config("wrong.json");
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.out, HasSubstr("✗ FAILED"));

  write("near.cuh", cpp[1]);
  write("landmarks.json", edited(masked, "    ]}\n  },", "    ]},\n" + json[3] + "  },"));
  const CommandResult both = run_config("landmarks.json");
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_THAT(both.out, HasSubstr("✓ ok"));
}

}  // namespace
}  // namespace kernelwright
