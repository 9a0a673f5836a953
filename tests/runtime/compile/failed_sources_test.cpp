// Sources that a compiler rejected are kept in one folder, which stays small.
#include "kernelwright/runtime/compile/failed_sources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace kernelwright::failed_sources_test {
namespace {

namespace fs = std::filesystem;

class FailedSources : public testing::Test {
 protected:
  FailedSources() {
    std::string name = fs::temp_directory_path() / "kernelwright-kept-XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~FailedSources() override { fs::remove_all(folder_); }
  std::size_t files() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {})); }
  std::uintmax_t bytes() const {
    std::uintmax_t sum = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) sum += entry.file_size();
    return sum;
  }
  fs::path folder_;
};

TEST_F(FailedSources, AreBoundedInNumberAndTheNewestStay) {
  std::ofstream(folder_ / "notes.txt") << "somebody else's";
  std::set<std::string> last;
  for (std::size_t i = 0; i < 3 * kMostFailedSources; ++i) {
    const std::string path = keep_failed_source(folder_, "kernel", "source " + std::to_string(i));
    ASSERT_NE(path, "");
    if (i >= 2 * kMostFailedSources) last.insert(path);
  }
  EXPECT_EQ(files(), kMostFailedSources + 1);
  EXPECT_TRUE(fs::exists(folder_ / "notes.txt"));
  for (const std::string& path : last) EXPECT_TRUE(fs::exists(path));
}

TEST_F(FailedSources, AreBoundedInBytesAndTheNewestIsKeptWhateverItsSize) {
  const std::string large(kMostFailedBytes / 4, 'x');
  for (int i = 0; i < 8; ++i) EXPECT_NE(keep_failed_source(folder_, "kernel", large), "");
  EXPECT_LE(bytes(), kMostFailedBytes);
  EXPECT_EQ(files(), 4u);
  const std::string path = keep_failed_source(folder_, "huge", std::string(kMostFailedBytes + 1, 'x'));
  EXPECT_EQ(files(), 1u);
  EXPECT_TRUE(fs::exists(path));
}

TEST_F(FailedSources, GoNowhereThatOthersCouldHavePrepared) {
  ::chmod(folder_.c_str(), 0777);
  EXPECT_EQ(keep_failed_source(folder_, "kernel", "text"), "");
  EXPECT_EQ(files(), 0u);
}

TEST_F(FailedSources, GoToOneFolderOfTheUserWhereNoneIsNamed) {
  const char* before = std::getenv("TMPDIR");
  const std::string old = before ? before : "";
  ::setenv("TMPDIR", folder_.c_str(), 1);
  const std::string path = keep_failed_source("", "../ker nel", "text");
  before ? ::setenv("TMPDIR", old.c_str(), 1) : ::unsetenv("TMPDIR");
  EXPECT_EQ(fs::path(path).parent_path(), folder_ / ("kernelwright-failed-" + std::to_string(::geteuid())));
  EXPECT_THAT(fs::path(path).filename().string(), testing::StartsWith("kernelwright-___ker_nel-"));
}

}  // namespace
}  // namespace kernelwright::failed_sources_test
