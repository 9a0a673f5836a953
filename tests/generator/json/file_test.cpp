// Configs as files: shipped ones are read, and a file that is no config is refused without harm.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/kernels.h"
#include "support/expect_message.h"
#include "support/paths.h"

namespace kernelwright {
namespace {

namespace fs = std::filesystem;

const fs::path kConfigs = test::source_dir() / "configs/problems";

std::vector<fs::path> shipped() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kConfigs)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(ShippedConfigs, ReadBackAsTheyWereWritten) {
  ASSERT_GE(shipped().size(), 17u);
  for (const fs::path& file : shipped()) {
    const Config config = read_config_file(file);
    EXPECT_EQ(read_config(write_config(config)), config) << file;
    EXPECT_EQ(name_of(config), file.stem().string());
  }
}

TEST(ShippedConfigs, AreValidOnEveryArchOfTheirSchedule) {
  for (const fs::path& file : shipped())
    for (const Violation& violation : validate(read_config_file(file))) ADD_FAILURE() << file << violation.text();
}

TEST(ShippedConfigs, HaveAShapeToCheckAndOneToBench) {
  for (const fs::path& file : shipped()) {
    const Config config = read_config_file(file);
    const auto* attention = std::get_if<AttentionConfig>(&config);
    if (!attention) continue;
    const auto is_check = [](const AttentionShape& shape) { return shape.check; };
    const auto checks = std::count_if(attention->shapes.begin(), attention->shapes.end(), is_check);
    EXPECT_GE(checks, 1) << file;
    EXPECT_LT(checks, static_cast<long>(attention->shapes.size())) << file;
  }
}

class TemporaryFolder : public testing::Test {
 protected:
  TemporaryFolder() {
    std::string pattern = fs::temp_directory_path() / "kernelwright_config_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() override { fs::remove_all(folder_); }
  /// The complaint about the file of that name, without the folder.
  std::string complaint(const std::string& name) {
    try {
      read_config_file(folder_ / name);
    } catch (const ConfigError& error) {
      std::string text = error.what();
      if (const auto at = text.find(folder_.string() + "/"); at != text.npos)
        text.erase(at, folder_.string().size() + 1);
      return text;
    }
    return "";
  }
  fs::path folder_;
};
using ConfigFile = TemporaryFolder;

TEST_F(ConfigFile, IsRefusedWhereItIsNone) {
  EXPECT_EQ(complaint("missing.json"), "\"missing.json\": cannot be read: No such file or directory");
  fs::create_directory(folder_ / "folder.json");
  EXPECT_EQ(complaint("folder.json"), "\"folder.json\": is a directory; a config is a JSON file");
  fs::create_symlink("loop.json", folder_ / "loop.json");
  EXPECT_EQ(complaint("loop.json"), "\"loop.json\": cannot be read: Too many levels of symbolic links");
  fs::create_symlink("/dev/zero", folder_ / "zero.json");
  EXPECT_EQ(complaint("zero.json"), "\"zero.json\": is a device; a config is a JSON file");
  EXPECT_THROW_MESSAGE(read_config_file(std::string("a\0b", 3)), ConfigError,
                       "\"a\\u0000b\": is no path: it holds a zero byte");
  std::ofstream(folder_ / "empty.json");
  EXPECT_EQ(complaint("empty.json"), "/: the text is empty; a config is an object");
}

TEST_F(ConfigFile, OfAFifoIsRefusedWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo.json").c_str(), 0600), 0);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(complaint("fifo.json"), "\"fifo.json\": is a FIFO; a config is a JSON file");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(ConfigFile, OfAHundredMegabytesIsRefusedBySize) {
  std::ofstream(folder_ / "big.json") << "{";
  fs::resize_file(folder_ / "big.json", 104857600);  // sparse
  EXPECT_EQ(complaint("big.json"), "\"big.json\": is 104857600 bytes; a config has at most 1048576");
}

TEST_F(ConfigFile, OfOneMegabyteIsReadToItsEnd) {
  std::ofstream(folder_ / "full.json") << "{" << std::string((1 << 20) - 1, ' ');
  EXPECT_EQ(complaint("full.json"), "line 1, column 1048577: the JSON ends before it is complete");
}

TEST_F(ConfigFile, LeavesItsFolderAsItWas) {
  std::ofstream(folder_ / "a.json") << "{";
  complaint("a.json");
  complaint("../b.json");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace kernelwright
