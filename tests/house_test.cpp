// Holds the sizes of the house. A folder holds at most 20 .cpp and .cu files. Two places in product code share at most
// 20 lines. Product files have at most 400 lines and functions at most 80, but for those that the tables of ceilings
// name: those may shrink and may not grow. The rules are first tried on made-up files, to show that they find faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "support/paths.h"

namespace kernelwright::house_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Strings = std::vector<std::string>;

constexpr int kMostFilesInAFolder = 20;
constexpr int kMostSharedLines = 20;
constexpr int kMostFileLines = 400;
constexpr int kMostFunctionLines = 80;
// A ceiling must come down once its file or function is this much shorter.
constexpr int kCeilingSlack = 20;

/// Present lengths, rounded up to tens. A row may only fall. A row goes when its file or function is short enough.
const std::map<std::string, int>& file_ceilings() {
  static const std::map<std::string, int> rows = {
      {"bench/jit_bench.cpp", 490},
      {"runtime/c/c_api.h", 660},
      {"runtime/cuda/cuda_backend.cpp", 560},
      {"runtime/emulator/emulator_backend.cpp", 520},
      {"runtime/emulator/run/cluster_run.cpp", 450},
      {"runtime/emulator/ops/ops_float.cpp", 420},
      {"runtime/emulator/ops/ops_integer.cpp", 510},
      {"runtime/emulator/program/decoder.cpp", 500},
      {"templates/kernels/attention/sm100/attention_sm100_softmax.cuh", 540},
      {"templates/kernels/attention/sm90/attention_sm90_math.cuh", 490},
      {"templates/ptx/wgmma.cuh", 490},
  };
  return rows;
}
const std::map<std::string, int>& function_ceilings() {
  static const std::map<std::string, int> rows = {
      {"runtime/emulator/run/cluster_run.cpp: ClusterRun::run_warp", 170},
      {"runtime/emulator/program/register_liveness.cpp: live_ranges", 100},
      {"templates/kernels/attention/decode/attention_decode.cuh: attend", 200},
      {"templates/kernels/attention/portable/attention_portable.cu: KERNELWRIGHT_ENTRY", 210},
  };
  return rows;
}

bool starts(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }
bool ends(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}
bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
std::string trimmed(const std::string& line) {
  const size_t first = line.find_first_not_of(" \t\r\n");
  return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(" \t\r\n") - first + 1);
}

/// `text` without comments, line for line. Without `quotes`, quoted text and preprocessor lines go too.
std::string code_of(const std::string& text, bool quotes) {
  std::string out;
  size_t at = 0;
  const auto skip_to = [&](size_t end, bool keep) {
    for (end = std::min(end, text.size()); at < end; ++at)
      if (keep || text[at] == '\n') out += text[at];
  };
  bool line_start = true;
  while (at < text.size()) {
    const bool first = line_start && text[at] != ' ' && text[at] != '\t';
    if (first) line_start = false;
    if (text.compare(at, 2, "//") == 0) {
      skip_to(text.find('\n', at), false);
    } else if (text.compare(at, 2, "/*") == 0) {
      skip_to(std::min(text.find("*/", at + 2), text.size() - 2) + 2, false);
    } else if (text[at] == '#' && first && !quotes) {
      size_t end = text.find('\n', at);
      while (end != std::string::npos && text[end - 1] == '\\') end = text.find('\n', end + 1);
      skip_to(end, false);
    } else if (text.compare(at, 2, "R\"") == 0 && (at == 0 || !in_word(text[at - 1]))) {
      const size_t open = text.find('(', at);
      const std::string close = ")" + text.substr(at + 2, open - at - 2) + "\"";
      skip_to(text.find(close, open) + close.size(), quotes);
    } else if (text[at] == '"' || (text[at] == '\'' && (at == 0 || !in_word(text[at - 1])))) {
      size_t end = at + 1;
      while (end < text.size() && text[end] != text[at] && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
      skip_to(end + 1, quotes);
    } else {
      if (text[at] == '\n') line_start = true;
      out += text[at++];
    }
  }
  return out;
}

struct File {
  std::string path;  // from the repository's root
  std::string text;
};

// ---- Folders ----

Strings crowded_folders(const Strings& paths) {
  std::map<std::string, int> files;
  for (const std::string& path : paths)
    if (ends(path, ".cpp") || ends(path, ".cu")) ++files[path.substr(0, path.rfind('/'))];
  Strings found;
  for (const auto& [folder, count] : files)
    if (count > kMostFilesInAFolder) found.push_back(folder + ": " + std::to_string(count) + " .cpp and .cu files");
  return found;
}

// ---- Shared lines ----

struct Line {
  size_t file;
  int number;       // from 1
  size_t id;        // equal for equal text
  bool file_start;  // no window may cross it
};

/// The lines that count: no includes, no blank lines, no lines of braces alone.
std::vector<Line> lines_that_count(const std::vector<File>& files) {
  std::vector<Line> lines;
  std::unordered_map<std::string, size_t> ids;
  for (size_t file = 0; file < files.size(); ++file) {
    std::istringstream in(code_of(files[file].text, true));
    bool file_start = true;
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      line = trimmed(line);
      if (line.find_first_not_of("{}();, ") == std::string::npos || starts(line, "#include")) continue;
      lines.push_back({file, number, ids.emplace(line, ids.size()).first->second, file_start});
      file_start = false;
    }
  }
  return lines;
}

/// Each pair of places that share more than kMostSharedLines lines, once, with the length of the whole copy.
Strings copies_in(const std::vector<File>& files) {
  const std::vector<Line> lines = lines_that_count(files);
  constexpr size_t kWindow = kMostSharedLines + 1;
  const auto window_fits = [&](size_t at) {
    return at + kWindow <= lines.size() && lines[at].file == lines[at + kWindow - 1].file;
  };
  const auto equal_lines = [&](size_t a, size_t b) {
    size_t count = 0;
    while (b + count < lines.size() && lines[a + count].id == lines[b + count].id &&
           lines[a + count].file == lines[a].file && lines[b + count].file == lines[b].file)
      ++count;
    return count;
  };
  std::unordered_map<size_t, std::vector<size_t>> windows;  // by hash
  for (size_t at = 0; at < lines.size(); ++at) {
    if (!window_fits(at)) continue;
    size_t hash = 0;
    for (size_t i = 0; i < kWindow; ++i) hash = hash * 1000003 + lines[at + i].id;
    windows[hash].push_back(at);
  }
  std::map<std::pair<size_t, size_t>, size_t> found;  // places -> lines
  for (const auto& [hash, places] : windows) {
    for (size_t i = 0; i < places.size(); ++i) {
      for (size_t j = i + 1; j < places.size(); ++j) {
        const size_t a = places[i], b = places[j];
        if (b - a < kWindow) continue;  // one run of equal lines
        const bool goes_on = !lines[a].file_start && !lines[b].file_start && lines[a - 1].id == lines[b - 1].id;
        if (const size_t count = equal_lines(a, b); count >= kWindow && !goes_on) found[{a, b}] = count;
      }
    }
  }
  Strings report;
  for (const auto& [places, count] : found) {
    const auto place = [&](size_t at) {
      return files[lines[at].file].path + ":" + std::to_string(lines[at].number) + "-" +
             std::to_string(lines[at + count - 1].number);
    };
    report.push_back(place(places.first) + " and " + place(places.second) + " share " + std::to_string(count) +
                     " lines");
  }
  return report;
}

// ---- Long functions ----

/// The name of the function whose head is `head`; "" if `head` opens a class, a namespace or a value.
std::string function_name(const std::string& head) {
  if (starts(head, "namespace") || starts(head, "enum ")) return "";
  int angles = 0;
  for (size_t at = 0; at < head.size(); ++at) {
    const bool in_operator = at >= 1 && head.substr(0, at).find("operator") != std::string::npos;
    if (head[at] == '<' && !in_operator) ++angles;
    if (head[at] == '>' && !in_operator && angles > 0) --angles;
    if (angles > 0) continue;
    if (head[at] == '=' && !in_operator) return "";
    if (head[at] != '(') continue;
    size_t first = at;
    while (first > 0 && (in_word(head[first - 1]) || head[first - 1] == ':' || head[first - 1] == '~')) --first;
    std::string name = head.substr(first, at - first);
    if (in_operator) name = trimmed(head.substr(head.find("operator"), at - head.find("operator")));
    if (name == "operator") return "operator()";
    static const Strings modifiers = {"__launch_bounds__", "alignas", "__attribute__", "__align__", "decltype"};
    if (std::find(modifiers.begin(), modifiers.end(), name) == modifiers.end()) return name;
    int depth = 0;
    do depth += head[at] == '(' ? 1 : head[at] == ')' ? -1 : 0;
    while (depth > 0 && ++at < head.size());
  }
  return "";
}

struct Function {
  std::string name;
  int lines;
};

/// The functions of a file, lambdas counted as a part of theirs. Throws std::runtime_error where the braces do not
/// match, for then nothing could be said.
std::vector<Function> functions_in(const std::string& text) {
  const std::string code = code_of(text, false);
  std::vector<Function> found;
  std::string head, name;
  int depth = 0, body_depth = 0, opaque_depth = 0, line = 1, head_line = 1, parentheses = 0;
  for (size_t at = 0; at < code.size(); ++at) {
    const char c = code[at];
    if (c == '\n') ++line;
    if (c == '(') ++parentheses;
    if (c == ')') --parentheses;
    if (c == '{') {
      ++depth;
      if (body_depth || opaque_depth) continue;
      name = function_name(trimmed(head));
      const bool scope = starts(trimmed(head), "namespace") || trimmed(head).find("class ") != std::string::npos ||
                         trimmed(head).find("struct ") != std::string::npos ||
                         trimmed(head).find("union ") != std::string::npos || starts(trimmed(head), "extern");
      if (!name.empty() && parentheses == 0) {
        body_depth = depth;
      } else if (!scope) {
        opaque_depth = depth;
      } else {
        head.clear();
      }
    } else if (c == '}') {
      if (--depth < 0) throw std::runtime_error("braces do not match at line " + std::to_string(line));
      if (opaque_depth == depth + 1) {
        opaque_depth = 0;
        head += " ";
      } else if (body_depth == depth + 1) {
        const size_t next = code.find_first_not_of(" \t\n", at + 1);
        body_depth = 0;
        // A member's initialiser, before the body of a constructor.
        if (next != std::string::npos && (code[next] == ',' || code[next] == '{')) continue;
        found.push_back({name, line - head_line + 1});
        head.clear();
      } else if (!body_depth && !opaque_depth) {
        head.clear();
      }
    } else if (!body_depth && !opaque_depth) {
      if (c == ';' && parentheses == 0) {
        head.clear();
        continue;
      }
      if (trimmed(head).empty()) head_line = line;
      head += c == '\n' ? ' ' : c;
      for (const char* access : {"public:", "private:", "protected:"})
        if (trimmed(head) == access) head.clear();
    }
  }
  if (depth != 0) throw std::runtime_error("braces do not match at the end");
  return found;
}

/// What breaks a ceiling: a length above its row's or, without a row, above `most`; and rows that should fall or go.
Strings above_ceilings(const std::map<std::string, int>& lengths, const std::map<std::string, int>& ceilings,
                       int most) {
  Strings found;
  for (const auto& [name, length] : lengths) {
    const auto row = ceilings.find(name);
    if (row == ceilings.end() && length > most)
      found.push_back(name + ": " + std::to_string(length) + " lines; " + std::to_string(most) + " are allowed");
    if (row != ceilings.end() && length > row->second)
      found.push_back(name + ": " + std::to_string(length) + " lines; its ceiling is " + std::to_string(row->second));
  }
  for (const auto& [name, ceiling] : ceilings) {
    const auto present = lengths.find(name);
    if (present == lengths.end() || present->second <= most)
      found.push_back(name + ": is short enough or gone; take its row out of the ceilings");
    else if (present->second + kCeilingSlack <= ceiling)
      found.push_back(name + ": " + std::to_string(present->second) + " lines; lower its ceiling of " +
                      std::to_string(ceiling));
  }
  return found;
}

std::map<std::string, int> file_lengths(const std::vector<File>& files) {
  std::map<std::string, int> lengths;
  for (const File& file : files)
    lengths[file.path] = static_cast<int>(std::count(file.text.begin(), file.text.end(), '\n'));
  return lengths;
}
/// Of functions with one name in a file, the longest.
std::map<std::string, int> function_lengths(const std::vector<File>& files) {
  std::map<std::string, int> lengths;
  for (const File& file : files)
    for (const Function& function : functions_in(file.text)) {
      int& length = lengths[file.path + ": " + function.name];
      length = std::max(length, function.lines);
    }
  return lengths;
}

// ---- The repository ----

std::vector<File> files_of(std::initializer_list<const char*> folders) {
  std::vector<File> files;
  const fs::path root = test::source_dir();
  for (const std::string folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string path = fs::relative(entry.path(), root).generic_string();
      const bool code = ends(path, ".h") || ends(path, ".cpp") || ends(path, ".cuh") || ends(path, ".cu");
      if (!code || (folder == "bench" && entry.path().parent_path() != root / folder)) continue;
      std::ifstream in(entry.path());
      files.push_back({path, std::string(std::istreambuf_iterator<char>(in), {})});
    }
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.path < b.path; });
  return files;
}

std::vector<File> product_files() {
  return files_of({"generator", "runtime", "verify", "cli", "templates", "integrations", "bench", "python"});
}

// gtest takes a second TEST_P of one name without a word, and runs both for each case of both lists.
TEST(House, NoTestOfAListIsWrittenTwice) {
  std::map<std::string, std::string> places;  // "TEST_P(Suite, Name)"
  for (const File& file : files_of({"tests"}))
    for (std::size_t at = file.text.find("\nTEST_P("); at != std::string::npos;
         at = file.text.find("\nTEST_P(", at + 1)) {
      const std::string test = file.text.substr(at + 1, file.text.find(')', at) - at);
      const auto [place, is_first] = places.try_emplace(test, file.path);
      EXPECT_TRUE(is_first) << test << " is in " << place->second << " and in " << file.path;
    }
  EXPECT_GT(places.size(), 100u) << "tests have shrunk, or were not found";
}

TEST(House, NoFolderHoldsMoreThanTwentySources) {
  const fs::path root = test::source_dir();
  Strings paths;
  for (const char* folder :
       {"generator", "runtime", "verify", "cli", "templates", "integrations", "bench", "python", "tests"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      paths.push_back(fs::relative(entry.path(), root).generic_string());
  EXPECT_GT(paths.size(), 1000U);
  EXPECT_THAT(crowded_folders(paths), IsEmpty());
}

TEST(House, NoTwoPlacesShareMoreThanTwentyLines) {
  const std::vector<File> files = product_files();
  EXPECT_GT(files.size(), 400U);
  EXPECT_THAT(copies_in(files), IsEmpty());
}

TEST(House, FilesStayBelowTheirCeilings) {
  EXPECT_THAT(above_ceilings(file_lengths(product_files()), file_ceilings(), kMostFileLines), IsEmpty());
}

TEST(House, FunctionsStayBelowTheirCeilings) {
  const std::map<std::string, int> lengths = function_lengths(product_files());
  EXPECT_GT(lengths.size(), 2000U) << "the functions were not found";
  EXPECT_THAT(above_ceilings(lengths, function_ceilings(), kMostFunctionLines), IsEmpty());
}

// ---- The rules on made-up files ----

Strings numbered(const std::string& folder, const std::string& suffix, int count) {
  Strings paths;
  for (int i = 0; i < count; ++i) paths.push_back(folder + "/x" + std::to_string(i) + suffix);
  return paths;
}

/// `count` lines that differ, each after `indent`.
std::string statements(int count, const std::string& indent = "  ", int first = 0) {
  std::string text;
  for (int i = first; i < first + count; ++i) text += indent + "step(" + std::to_string(i) + ");\n";
  return text;
}

TEST(HouseRule, CountsTheSourcesOfAFolderAndNotOfThoseBelowIt) {
  Strings paths = numbered("a", ".cpp", 20);
  for (const char* fine : {"a/x.h", "a/below/x.cpp", "a/x.ptx", "a/x.cuh"}) paths.push_back(fine);
  EXPECT_THAT(crowded_folders(paths), IsEmpty());
  paths.push_back("a/x.cu");
  EXPECT_THAT(crowded_folders(paths), ElementsAre("a: 21 .cpp and .cu files"));
}

TEST(HouseRule, FindsACopyAndNamesBothPlaces) {
  const std::vector<File> files = {{"a.cpp", "first();\n" + statements(21) + "last();\n"},
                                   {"b.cpp", "\n\n" + statements(21) + "other();\n"}};
  EXPECT_THAT(copies_in(files), ElementsAre("a.cpp:2-22 and b.cpp:3-23 share 21 lines"));
}

TEST(HouseRule, FindsACopyInOneFileAndReportsItsWholeLength) {
  EXPECT_THAT(copies_in({{"a.cpp", statements(30) + "between();\n" + statements(30)}}),
              ElementsAre("a.cpp:1-30 and a.cpp:32-61 share 30 lines"));
}

TEST(HouseRule, ACopyIsFoundWhateverItsSpaceAndComments) {
  std::string spaced;
  for (int i = 0; i < 21; ++i)
    spaced += "\t{\n    step(" + std::to_string(i) + ");  // step\n\n  /* two\n lines */ }\n";
  EXPECT_THAT(copies_in({{"a.cpp", statements(21)}, {"b.cpp", "#include <map>\n" + spaced}}),
              ElementsAre(HasSubstr("share 21 lines")));
}

TEST(HouseRule, TwentyLinesMayBeAlike) {
  EXPECT_THAT(copies_in({{"a.cpp", statements(20) + "a();\n"}, {"b.cpp", statements(20) + "b();\n"}}), IsEmpty());
}

TEST(HouseRule, IncludesAndTheEndOfAFileAreNoCopy) {
  std::string includes;
  for (int i = 0; i < 30; ++i) includes += "#include \"x" + std::to_string(i) + ".h\"\n";
  EXPECT_THAT(copies_in({{"a.cpp", includes}, {"b.cpp", includes}}), IsEmpty());
  // The copy would have to cross from a.cpp into b.cpp.
  EXPECT_THAT(copies_in({{"a.cpp", statements(15)},
                         {"b.cpp", statements(15, "", 15)},
                         {"c.cpp", statements(15)},
                         {"d.cpp", statements(15, "", 15)}}),
              IsEmpty());
}

TEST(HouseRule, OneRunOfEqualLinesIsNoCopyOfItself) {
  std::string equal;
  for (int i = 0; i < 40; ++i) equal += "0,\n";
  EXPECT_THAT(copies_in({{"a.cpp", "table{\n" + equal + "};\n"}}), IsEmpty());
}

Strings names_and_lines(const std::string& text) {
  Strings found;
  for (const Function& function : functions_in(text))
    found.push_back(function.name + " " + std::to_string(function.lines));
  return found;
}

TEST(HouseRule, MeasuresAFunctionFromItsHeadToItsLastBrace) {
  EXPECT_THAT(names_and_lines("namespace a {\n\nint f(\n    int x) {\n  return x;\n}\n}\n"), ElementsAre("f 4"));
  EXPECT_THAT(names_and_lines("template <class T>\nT g(T x) noexcept {\n  return [&] {\n    return x;\n  }();\n}\n"),
              ElementsAre("g 6"));
}

TEST(HouseRule, FindsMembersConstructorsAndOperators) {
  EXPECT_THAT(names_and_lines("struct S : Base {\n public:\n  explicit S(int x) : a_{x}, b_(x) {\n    go();\n  }\n"
                              "  bool operator<(const S& other) const { return a_ < other.a_; }\n"
                              "  void operator()() {}\n};\nS::~S() {\n}\n"),
              ElementsAre("S 3", "operator< 1", "operator() 1", "S::~S 2"));
  EXPECT_THAT(names_and_lines("extern \"C\" __global__ void __launch_bounds__(f(1), 2)\nentry(int x) {\n}\n"),
              ElementsAre("entry 3"));
}

TEST(HouseRule, ValuesDeclarationsAndQuotedTextAreNoFunctions) {
  EXPECT_THAT(names_and_lines("const Table table = {\n  {\"{\", f(1)},\n};\nint f(int);\nenum class E { kA, kB };\n"
                              "int a[] = {1, 2};\nconst char open = '{';\n#define OPEN {\n// {\n"
                              "const auto text = R\"(int f() {)\";\nint g() { return 1'000; }\n"),
              ElementsAre("g 1"));
}

TEST(HouseRule, BracesThatDoNotMatchAreReported) {
  EXPECT_THROW(functions_in("int f() {\n"), std::runtime_error);
  EXPECT_THROW(functions_in("int f() {}}\n"), std::runtime_error);
}

TEST(HouseRule, ACeilingHoldsAndOnlyFalls) {
  const std::map<std::string, int> ceilings = {{"long", 120}};
  EXPECT_THAT(above_ceilings({{"long", 120}, {"short", 80}}, ceilings, 80), IsEmpty());
  EXPECT_THAT(above_ceilings({{"long", 121}}, ceilings, 80), ElementsAre("long: 121 lines; its ceiling is 120"));
  EXPECT_THAT(above_ceilings({{"long", 120}, {"new", 81}}, ceilings, 80), ElementsAre("new: 81 lines; 80 are allowed"));
  EXPECT_THAT(above_ceilings({{"long", 100}}, ceilings, 80), ElementsAre("long: 100 lines; lower its ceiling of 120"));
  EXPECT_THAT(above_ceilings({{"long", 80}}, ceilings, 80), ElementsAre(HasSubstr("take its row out")));
  EXPECT_THAT(above_ceilings({}, ceilings, 80), ElementsAre(HasSubstr("take its row out")));
}

}  // namespace
}  // namespace kernelwright::house_test
