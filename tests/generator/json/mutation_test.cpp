// The reader on damaged configs: for any input it gives a Config or a ConfigError, and a Config that it gives is
// complete. tests/fuzz/config_fuzz.cpp checks the same with coverage.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/problem/contradictions.h"
#include "support/paths.h"

namespace kernelwright {
namespace {

std::vector<std::string> shipped_texts() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "configs/problems"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());  // the seed then means the same everywhere
  std::vector<std::string> texts;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t bound) { return random_() % bound; }

  void mutate(std::string& text, const std::string& other) {
    static const std::string kTokens[] = {
        "\"auto\"", "null", "true", "-1", "0",    "1e308",    "9223372036854775808", "{}",
        "[]",       "[[",   "}}",   ",",  "\"\"", "1.5",      "\"kind\": \"and\"",   "\\u0000",
        "\xFF",     "NaN",  ":",    "\"", "4096", "\"paged\""};
    const std::size_t at = below(text.size() + 1), length = below(24);
    switch (below(6)) {
      case 0: text.insert(at, kTokens[below(std::size(kTokens))]); break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, text.substr(below(text.size() + 1), 4 * length)); break;
      case 3: text.insert(at, other.substr(below(other.size() + 1), 4 * length)); break;
      case 4: text.replace(at, std::min(length, text.size() - at), kTokens[below(std::size(kTokens))]); break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
    }
  }

 private:
  std::mt19937_64 random_;
};

TEST(ConfigJson, AnswersDamagedConfigsWithAConfigOrAConfigError) {
  const std::vector<std::string> texts = shipped_texts();
  ASSERT_FALSE(texts.empty());
  Mutator mutator(/*seed=*/20261120);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  int read = 0, refused = 0;
  while (std::chrono::steady_clock::now() < end) {
    std::string text = texts[mutator.below(texts.size())];
    for (std::size_t count = 1 + mutator.below(3); count > 0; --count)
      mutator.mutate(text, texts[mutator.below(texts.size())]);
    try {
      const Config config = read_config(text);
      ++read;
      ASSERT_EQ(read_config(write_config(config)), config) << text;
      ASSERT_TRUE(std::visit([](const auto& kind) { return contradictions(kind).empty(); }, config)) << text;
    } catch (const ConfigError& error) {
      ++refused;
      ASSERT_FALSE(error.violations().empty());
      for (const Violation& violation : error.violations()) ASSERT_LT(violation.text().size(), 2000u) << text;
    }
  }
  EXPECT_GT(read, 10);
  EXPECT_GT(refused, 100);
}

TEST(ConfigJson, AnswersEveryTruncationWithAConfigError) {
  for (const std::string& text : shipped_texts())
    for (std::size_t length = 0; length < text.find_last_of('}'); ++length)
      ASSERT_THROW(read_config(std::string_view(text).substr(0, length)), ConfigError) << text.substr(0, length);
}

}  // namespace
}  // namespace kernelwright
