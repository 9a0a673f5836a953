// The parser on damaged texts: for any input it gives a complete module, or a PtxError that names a line of the text.
// tests/fuzz/ptx_fuzz.cpp checks the same with coverage.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/ptx/promises.h"
#include "support/paths.h"

namespace kernelwright::emulator {
namespace {

std::string seed_text(const char* name) {
  std::ifstream file(test::source_dir() / "tests/fuzz/corpus/ptx" / name, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_FALSE(text.empty()) << name;
  return text;
}

/// Whether `text` is read, all of its entries too. Fails the test if it is answered wrongly.
bool is_read(const std::string& text) {
  try {
    const auto module = parse_ptx(text);
    EXPECT_EQ(test::broken_promise(*module), "") << text;
    return std::ranges::all_of(module->entries, [](const Entry& entry) { return entry.refusal.empty(); });
  } catch (const PtxError& error) {
    const auto lines = 1 + std::count(text.begin(), text.end(), '\n');
    EXPECT_GE(error.line(), 1) << text;
    EXPECT_LE(error.line(), lines) << text;
    EXPECT_LT(std::string(error.what()).size(), 1000u) << text;
    return false;
  }
}

/// Runs of name characters, single signs, and the blanks between.
std::vector<std::string> tokens_of(const std::string& text) {
  const auto kind = [](char c) {
    if (std::isalnum(static_cast<unsigned char>(c)) || std::string_view("_$%.").find(c) != std::string_view::npos)
      return 0;
    return c == ' ' || c == '\t' ? 1 : 2;
  };
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool joins = i > 0 && kind(text[i]) == kind(text[i - 1]) && kind(text[i]) != 2;
    if (!joins) tokens.emplace_back();
    tokens.back() += text[i];
  }
  return tokens;
}

TEST(PtxMutation, ReadsTheSeedsThemselves) {
  EXPECT_TRUE(is_read(seed_text("forms.ptx")));
  EXPECT_TRUE(is_read(seed_text("combine-lineinfo.ptx")));
}

TEST(PtxMutation, AnswersEveryTruncation) {
  const std::string text = seed_text("forms.ptx");
  const std::size_t body_end = text.rfind("ret;");
  int read = 0;
  for (std::size_t length = 0; length < text.size(); ++length) {
    const bool whole = is_read(text.substr(0, length));
    read += whole;
    if (length > text.find(".entry") && length < body_end) {
      ASSERT_FALSE(whole) << text.substr(0, length);
    }
  }
  EXPECT_GT(read, 10) << "a text may end behind a declaration";
}

TEST(PtxMutation, AnswersDeletedRepeatedAndExchangedTokens) {
  const std::vector<std::string> tokens = tokens_of(seed_text("forms.ptx"));
  std::mt19937_64 random(/*seed=*/20261121);
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  int read = 0, refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::string> damaged = tokens;
    for (std::size_t count = 1 + below(2); count > 0; --count) {
      const std::size_t at = below(damaged.size());
      const auto place = damaged.begin() + static_cast<std::ptrdiff_t>(at);
      switch (below(4)) {
        case 0: damaged.erase(place); break;
        case 1: damaged.insert(place, std::string(*place)); break;
        case 2: *place = tokens[below(tokens.size())]; break;
        default: (*place)[below(place->size())] = static_cast<char>(below(256));
      }
    }
    std::string text;
    for (const std::string& token : damaged) text += token;
    ++(is_read(text) ? read : refused);
  }
  EXPECT_GT(read, 400);
  EXPECT_GT(refused, 400);
}

// One construct, very many times: time must stay in proportion.
TEST(PtxMutation, ReadsLongTextsInLinearTime) {
  const std::string begin =
      ".version 8.8\n.target sm_90a\n.address_size 64\n.entry k() {\n.reg .b32 %r<9>; .reg .pred %p<9>;\n";
  std::string scopes = begin, labels = begin, names = begin, vectors = begin;
  for (int i = 0; i < 20000; ++i) {
    const std::string n = std::to_string(i);
    scopes += "{ .reg .b32 t; mov.b32 t, %r1; w: @%p1 bra w; }\n";
    labels += "L" + n + ": @%p1 bra L" + std::to_string((i * 7919) % 20000) + ";\n";
    names += ".reg .b32 x" + n + "; mov.b32 x" + n + ", %r1;\n";
    vectors += "op {%r1, %r2, %r3, %r4}, [%r1+" + n + "], -" + n + ";\n";
  }
  for (const std::string* text : {&scopes, &labels, &names, &vectors}) EXPECT_TRUE(is_read(*text + "}\n"));
}

}  // namespace
}  // namespace kernelwright::emulator
