/// The rules of prose (CONTRIBUTING.md, "How we write"), of links, and of the names of results. Each rule lists what it
/// finds in a text. tests/prose_test.cpp tries the rules on made-up text and holds the repository to them.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/paths.h"

namespace kernelwright::test::prose {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

inline constexpr int kMaxWords = 30;            // of a sentence
inline constexpr double kMaxMean = 18;          // words of a page's sentences
inline constexpr size_t kMaxColumns = 100;      // of a line of a document
inline constexpr size_t kMaxCellLetters = 240;  // of a table's cell, as a reader sees it
const char* const kSeeds = "docs/seeds.md";

/// Phrases that hide the actor or turn the sentence around, in lower case.
inline const Strings& banned_idioms() {
  static const Strings phrases = {
      "whoever",    "whosoever",   "lets go of",     "let go of", "letting go of", "no hand in",      "no hand for",
      "as few as",  "would do",    "will do",        "be it",     "so has",        "nobody else has", "in vain",
      "shall",      "as ever",     "for want of",    "for it is", "at hand",       "is to be",        "that what",
      "what is to", "has its way", "one for all it", "wherefore", "thereof",       "whereof",         "of its like"};
  return phrases;
}

/// Words for persons. The relative pronoun for persons may follow these alone: a warp or a thread is named instead.
inline const std::set<std::string>& persons() {
  static const std::set<std::string> words = {"people",   "person",    "user",      "users",  "reader",
                                              "readers",  "author",    "authors",   "caller", "callers",
                                              "engineer", "engineers", "maintainer"};
  return words;
}

struct Sentence {
  int line = 0;   // where its paragraph begins, from 1
  int words = 0;  // runs between spaces that have a letter or a digit; inline code is one
  std::string text;
};

/// Prose that belongs together: a paragraph, an item of a list, a cell of a table.
struct Block {
  int line = 0;
  bool cell = false;
  std::string text;
};

inline std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

/// `text` as a reader sees it: what stands in backticks becomes the word "code", a link becomes its words.
inline std::string visible(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '`') {
      const size_t end = text.find('`', at + 1);
      if (end == std::string::npos) break;
      out += "code";
      at = end + 1;
    } else if (text[at] == ']' && at + 1 < text.size() && text[at + 1] == '(') {
      const size_t end = text.find(')', at);
      at = end == std::string::npos ? text.size() : end + 1;
    } else {
      if (text[at] != '[') out += text[at];
      ++at;
    }
  }
  return out;
}

/// The cells of a table's row. A bar in backticks separates nothing.
inline Strings cells_of(const std::string& row) {
  Strings cells(1);
  bool code = false;
  for (const char c : row.substr(1)) {
    if (c == '`') code = !code;
    if (c == '|' && !code)
      cells.emplace_back();
    else
      cells.back() += c;
  }
  if (trimmed(cells.back()).empty()) cells.pop_back();
  return cells;
}

bool is_rule_of_table(const std::string& row) { return row.find_first_not_of("|-: ") == std::string::npos; }

/// The length of a list's mark, as in "- " and "12. "; 0 where there is none.
inline size_t list_mark(const std::string& line) {
  if (line.starts_with("- ") || line.starts_with("* ")) return 2;
  size_t digits = 0;
  while (digits < line.size() && std::isdigit(static_cast<unsigned char>(line[digits]))) ++digits;
  return digits > 0 && line.compare(digits, 2, ". ") == 0 ? digits + 2 : 0;
}

/// A page's prose, without headings, blocks of code and HTML comments.
inline std::vector<Block> blocks_of_page(const std::string& page) {
  std::vector<Block> blocks;
  Block open;
  const auto close = [&] {
    if (!open.text.empty()) blocks.push_back(open);
    open = {};
  };
  std::istringstream lines(page);
  bool code = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::string text = trimmed(line);
    if (text.starts_with("```")) {
      close();
      code = !code;
      continue;
    }
    if (code) continue;
    if (text.starts_with("> ")) text = text.substr(2);
    if (text.empty() || text.starts_with("#") || text.starts_with("<!--")) {
      close();
    } else if (text.starts_with("|")) {
      close();
      if (is_rule_of_table(text)) continue;
      for (const std::string& cell : cells_of(text)) blocks.push_back({number, true, cell});
    } else {
      const size_t mark = list_mark(text);
      if (mark > 0) close();
      if (open.text.empty()) open.line = number;
      open.text += (open.text.empty() ? "" : " ") + text.substr(mark);
    }
  }
  close();
  return blocks;
}

/// The comments of a C++ or CUDA source. Lines that follow each other are one block. A line with a drawing in it (three
/// spaces within, or a bar) ends a block and is none itself.
inline std::vector<Block> blocks_of_comments(const std::string& source) {
  std::vector<Block> blocks;
  Block open;
  const auto close = [&] {
    if (!open.text.empty()) blocks.push_back(open);
    open = {};
  };
  const auto add = [&](int number, std::string text) {
    text = trimmed(text);
    if (text.empty() || text[0] == '|' || text.find("   ") != std::string::npos) return close();
    const size_t mark = list_mark(text);
    if (mark > 0) close();
    if (open.text.empty()) open.line = number;
    open.text += (open.text.empty() ? "" : " ") + text.substr(mark);
  };
  std::istringstream lines(source);
  bool star = false;  // inside of /* */
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::string text = trimmed(line);
    if (star || text.starts_with("/*")) {
      if (!star) text = text.substr(2);
      const size_t end = text.find("*/");
      star = end == std::string::npos;
      text = text.substr(0, end);
      add(number, trimmed(text).starts_with("*") ? trimmed(text).substr(1) : text);
      if (!star) close();
      continue;
    }
    // A comment behind code is a block by itself, unless the line before ended in one that goes on here.
    size_t slashes = 0;
    bool quoted = false;
    for (; slashes + 1 < line.size(); ++slashes) {
      if (line[slashes] == '\\')
        ++slashes;
      else if (line[slashes] == '"')
        quoted = !quoted;
      else if (!quoted && line[slashes] == '/' && line[slashes + 1] == '/')
        break;
    }
    if (slashes + 1 >= line.size()) {
      close();
      continue;
    }
    if (!text.starts_with("//")) close();
    add(number, line.substr(std::min(line.find_first_not_of("/<", slashes), line.size())));
  }
  close();
  return blocks;
}

/// A sentence ends with a word that ends with ".", "!" or "?", whatever quotes and brackets follow, and with its block.
inline std::vector<Sentence> sentences_of(const Block& block) {
  std::vector<Sentence> sentences;
  Sentence open;
  std::istringstream words(visible(block.text));
  for (std::string word; words >> word;) {
    open.line = block.line;
    open.text += (open.text.empty() ? "" : " ") + word;
    open.words += std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isalnum(c); });
    const size_t last = word.find_last_not_of("*_)\"'");
    const bool short_form = word == "e.g." || word == "i.e." || word == "vs." || word == "cf.";
    if (last == std::string::npos || short_form || std::string_view(".!?").find(word[last]) == std::string_view::npos)
      continue;
    sentences.push_back(std::exchange(open, {}));
  }
  if (open.words > 0) sentences.push_back(open);
  return sentences;
}

/// The banned idioms in a block.
inline Strings idioms_in(const Block& block) {
  std::string text = visible(block.text);
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto letter = [&](size_t at) { return at < text.size() && std::isalpha(static_cast<unsigned char>(text[at])); };
  Strings found;
  for (const std::string& phrase : banned_idioms())
    for (size_t at = text.find(phrase); at != std::string::npos; at = text.find(phrase, at + 1))
      if (!(at > 0 && letter(at - 1)) && !letter(at + phrase.size())) found.push_back(phrase);
  std::istringstream words(text);
  for (std::string word, before; words >> word; before = word) {
    while (!word.empty() && !std::isalpha(static_cast<unsigned char>(word.back()))) word.pop_back();
    while (!word.empty() && !std::isalpha(static_cast<unsigned char>(word.front()))) word.erase(0, 1);
    if (word == "who" && !persons().contains(before)) found.push_back("who, not a person");
  }
  return found;
}

std::string place(const std::string& path, int line) { return path + ":" + std::to_string(line) + ": "; }

inline Strings long_sentences(const std::string& path, const std::vector<Block>& blocks) {
  Strings found;
  for (const Block& block : blocks)
    for (const Sentence& sentence : sentences_of(block))
      if (sentence.words > kMaxWords)
        found.push_back(place(path, sentence.line) + std::to_string(sentence.words) + " words: " + sentence.text);
  return found;
}

inline Strings banned_in(const std::string& path, const std::vector<Block>& blocks) {
  Strings found;
  for (const Block& block : blocks)
    for (const std::string& idiom : idioms_in(block)) found.push_back(place(path, block.line) + "\"" + idiom + "\"");
  return found;
}

/// Whether inline code takes most of a line: a command that cannot be broken.
inline bool holds_long_code(const std::string& line) {
  for (size_t at = line.find('`'); at != std::string::npos; at = line.find('`', at + 1)) {
    const size_t end = line.find('`', at + 1);
    if (end == std::string::npos) return false;
    if (end - at > 60) return true;
    at = end;
  }
  return false;
}

/// Lines and cells that do not fit a screen. Code, tables, headings and lines with a link or a picture may be wide.
inline Strings wide_in(const std::string& path, const std::string& page) {
  Strings found;
  std::istringstream lines(page);
  bool code = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string text = trimmed(line);
    if (text.starts_with("```")) code = !code;
    if (code || text.starts_with("```") || text.starts_with("#") || text.starts_with("<!--")) continue;
    // UTF-8: bytes that go on with a letter are none of their own.
    const auto letters = [](const std::string& of) {
      return static_cast<size_t>(std::count_if(of.begin(), of.end(), [](char c) { return (c & 0xC0) != 0x80; }));
    };
    if (text.starts_with("|")) {
      if (path == kSeeds) continue;  // one row for one part of a seed: tests/seeds_test.cpp holds its form
      for (const std::string& cell : cells_of(text))
        if (letters(trimmed(visible(cell))) > kMaxCellLetters)
          found.push_back(place(path, number) + "a cell of " + std::to_string(letters(trimmed(visible(cell)))));
    } else if (letters(line) > kMaxColumns && text.find("](") == std::string::npos &&
               text.find("://") == std::string::npos && !holds_long_code(text)) {
      found.push_back(place(path, number) + std::to_string(letters(line)) + " columns");
    }
  }
  return found;
}

/// Everything that a document must not have.
inline Strings wrong_in(const std::string& path, const std::string& page) {
  const std::vector<Block> blocks = blocks_of_page(page);
  Strings found = long_sentences(path, blocks);
  for (const Strings& more : {banned_in(path, blocks), wide_in(path, page)})
    found.insert(found.end(), more.begin(), more.end());
  int words = 0, count = 0;
  for (const Block& block : blocks)
    for (const Sentence& sentence : sentences_of(block))
      if (!block.cell) words += sentence.words, ++count;
  if (count > 0 && words > kMaxMean * count)
    found.push_back(path + ": a mean of " + std::to_string(words / double(count)) + " words");
  return found;
}

// ---- links ----

/// A heading's anchor, as GitHub and others make it.
inline std::string anchor_of(const std::string& heading) {
  std::string out;
  for (const char c : heading) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) || c == '-' || c == '_' || letter >= 0x80)
      out += static_cast<char>(std::tolower(letter));
    else if (c == ' ')
      out += '-';
  }
  return out;
}

inline std::set<std::string> anchors_of(const std::string& page) {
  std::set<std::string> anchors;
  std::istringstream lines(page);
  bool code = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) code = !code;
    if (code || !line.starts_with("#")) continue;
    const std::string heading = trimmed(line.substr(line.find_first_not_of('#')));
    // Backticks do not reach the anchor, what stands in them does.
    anchors.insert(anchor_of(heading));
  }
  return anchors;
}

/// The targets of a page's links to this repository, with their lines.
inline std::vector<std::pair<int, std::string>> links_of(const std::string& page) {
  std::vector<std::pair<int, std::string>> links;
  std::istringstream lines(page);
  bool code = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (trimmed(line).starts_with("```")) code = !code;
    if (code) continue;
    // What stands in backticks is no link.
    for (size_t at = line.find('`'); at != std::string::npos; at = line.find('`', at)) {
      const size_t end = line.find('`', at + 1);
      line.erase(at, end == std::string::npos ? end : end - at + 1);
    }
    for (size_t at = line.find("]("); at != std::string::npos; at = line.find("](", at + 1)) {
      const std::string target = line.substr(at + 2, line.find(')', at) - at - 2);
      if (!target.empty() && target.find("://") == std::string::npos && target.find(' ') == std::string::npos)
        links.emplace_back(number, target);
    }
  }
  return links;
}

using Pages = std::map<std::string, std::string>;  // path from the root -> text

/// Links that lead nowhere. `exists` answers for paths from the root.
template <class Exists>
inline Strings dead_links(const Pages& pages, Exists&& exists) {
  Strings found;
  for (const auto& [path, text] : pages)
    for (const auto& [line, target] : links_of(text)) {
      const size_t hash = target.find('#');
      const std::string file = target.substr(0, hash);
      const std::string to = file.empty() ? path : (fs::path(path).parent_path() / file).lexically_normal().string();
      if (!exists(to)) {
        found.push_back(place(path, line) + "no file " + to);
      } else if (const auto page = pages.find(to); hash != std::string::npos && page != pages.end() &&
                                                   !anchors_of(page->second).contains(target.substr(hash + 1))) {
        found.push_back(place(path, line) + "no heading " + target);
      }
    }
  return found;
}

/// Files and folders of this repository that a page names in backticks and that do not exist. A name with a capital
/// word, as in planner_NAME.cpp, or with a wildcard stands for others.
template <class Exists>
inline Strings dead_paths(const std::string& path, const std::string& page, Exists&& exists) {
  static const std::regex named(
      "`((bench|cli|cmake|configs|docs|examples|generator|python|runtime|scripts|templates|tests|verify)/"
      "[A-Za-z0-9_./-]*)`");
  static const std::regex stands_for_others("(^|[/_.])[A-Z]{4,}([/_.]|$)");
  Strings found;
  std::istringstream lines(page);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    for (std::sregex_iterator at(line.begin(), line.end(), named), end; at != end; ++at) {
      const std::string name = (*at)[1];
      if (!exists(name) && !std::regex_search(name, stands_for_others))
        found.push_back(place(path, number) + "no file " + name);
    }
  }
  return found;
}

// ---- bench/results ----

/// What is wrong with the name of a result, or "". `path` counts from bench/results.
inline std::string wrong_name(const std::string& path) {
  static const std::regex step("[a-z]+/steps/[a-z0-9-]+\\.(md|csv|txt)");
  static const std::regex result(
      "[a-z]+/20[0-9]{2}-[0-9]{2}-[0-9]{2}-(h100|h200|cascade-lake|xeon|epyc|two-cores)(-[a-z0-9-]+)?\\.(md|csv|txt)");
  if (path == "README.md" || std::regex_match(path, step) || std::regex_match(path, result)) return "";
  return path + ": is not SUBJECT/DATE-MACHINE[-topic].{md,csv,txt}, nor SUBJECT/steps/NAME";
}

// ---- this repository ----

inline std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

inline Strings files_below(const std::string& folder) {
  const fs::path root = test::source_dir();
  Strings paths;
  for (const auto& entry : fs::recursive_directory_iterator(root / folder))
    if (entry.is_regular_file()) paths.push_back(fs::relative(entry.path(), root).generic_string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

/// The pages that are held to every rule: all but the reports that scripts/mutate.sh writes.
inline Pages documents() {
  Pages pages;
  for (const char* page : {"README.md", "CONTRIBUTING.md", "configs/tuned/README.md"})
    pages[page] = text_of(test::source_dir() / page);
  for (const char* folder : {"docs", "bench/results"})
    for (const std::string& path : files_below(folder))
      if (path.ends_with(".md") && path.find("-mutation") == std::string::npos)
        pages[path] = text_of(test::source_dir() / path);
  return pages;
}

}  // namespace kernelwright::test::prose
