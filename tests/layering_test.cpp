// Reads every #include of the library, the command and the templates, and fails on an arrow drawn backwards:
//   host    templates/contract <- generator <- runtime <- verify <- cli, examples, integrations, bench
//             and inside of generator/, runtime/ and runtime/emulator/ folder by folder: layer_folders()
//   device  contract, ptx <- tile <- mma, pipeline <- policy <- kernels; templates include nothing but templates
// The build's include paths already prevent most of these. This test also checks what an include path cannot: which
// files may use which library, and where inline asm may stand. The rules are first tried on made-up files, to show that
// they find faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/paths.h"

namespace kernelwright::layering_test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Strings = std::vector<std::string>;

bool starts(const std::string& text, std::string_view prefix) { return text.rfind(prefix, 0) == 0; }
bool ends(const std::string& text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

/// `text` without comments and without quoted text, except on lines that include: emitted source is not code.
std::string code_only(const std::string& text) {
  std::string out;
  size_t at = 0;
  auto skip_past = [&](std::string_view mark) {
    at = std::min(text.find(mark, at), text.size() - mark.size()) + mark.size();
  };
  while (at < text.size()) {
    const bool line_start =
        out.find_last_not_of(" \t") == std::string::npos || out[out.find_last_not_of(" \t")] == '\n';
    if (text.compare(at, 2, "//") == 0) {
      at = std::min(text.find('\n', at), text.size());
    } else if (text.compare(at, 2, "/*") == 0) {
      at += 2;
      skip_past("*/");
    } else if (text[at] == '#' && line_start) {
      const size_t line_end = std::min(text.find('\n', at), text.size());
      out += text.substr(at, line_end - at);
      at = line_end;
    } else if (text.compare(at, 2, "R\"") == 0) {
      const size_t open = text.find('(', at);
      const std::string close = ")" + text.substr(at + 2, open - at - 2) + "\"";
      at = open;
      skip_past(close);
      out += "\"\"";
    } else if (text[at] == '"') {
      for (++at; at < text.size() && text[at] != '"' && text[at] != '\n'; ++at) at += text[at] == '\\';
      ++at;
      out += "\"\"";
    } else {
      out += text[at++];
    }
  }
  return out;
}

/// The names that `code` includes, in order, with quotes and brackets taken off.
Strings includes_of(const std::string& code) {
  Strings found;
  std::istringstream lines(code);
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
    if (!starts(line, "#")) continue;
    line.erase(0, std::min(line.find_first_not_of("# \t"), line.size()));
    if (!starts(line, "include")) continue;
    const size_t open = line.find_first_of("<\"");
    if (open == std::string::npos) continue;
    found.push_back(line.substr(open + 1, line.find_first_of(">\"", open + 1) - open - 1));
  }
  return found;
}

/// "templates/tile" for templates/tile/x.cuh, "runtime/emulator" for a folder that has its own target, else the first
/// folder.
std::string layer_of(const std::string& path) {
  const size_t slash = path.find('/');
  if (starts(path, "templates/")) return path.substr(0, path.find('/', slash + 1));
  if (starts(path, "runtime/emulator/")) return "runtime/emulator";
  return path.substr(0, slash);
}

/// The layers that each layer may include, itself among them.
const std::map<std::string, std::set<std::string>>& arrows() {
  static const std::map<std::string, std::set<std::string>> table = [] {
    const std::string t = "templates/";
    std::map<std::string, std::set<std::string>> rows = {
        {"generator", {"generator", t + "contract"}},
        {"runtime", {"runtime", "runtime/emulator", "generator", t + "contract"}},
        {"runtime/emulator", {"runtime/emulator"}},           // and some headers: see violation_of()
        {"verify", {"verify", "generator", t + "contract"}},  // a reference that shares no code with the engine
        {"cli", {"cli", "verify", "runtime", "runtime/emulator", "generator", t + "contract"}},
        {"include", {"include", "runtime"}},  // the installed face
        {"examples", {"examples", "include", "runtime", "generator", t + "contract"}},
        {"integrations", {"integrations", "include", "runtime", "runtime/emulator", "generator", t + "contract"}},
        {"bench", {"bench", "verify", "runtime", "runtime/emulator", "generator", t + "contract"}},
        {t + "contract", {t + "contract"}},
        {t + "ptx", {t + "ptx", t + "contract"}},
    };
    rows[t + "tile"] = {t + "tile", t + "ptx", t + "contract"};
    for (const char* upper : {"mma", "pipeline", "policy", "kernels"}) {
      rows[t + upper] = rows[t + "tile"];
      rows[t + upper].insert(t + upper);
    }
    rows[t + "policy"].insert({t + "mma", t + "pipeline"});
    rows[t + "kernels"].insert({t + "mma", t + "pipeline", t + "policy"});
    return rows;
  }();
  return table;
}

/// The headers that are installed: those of include/kernelwright/ and all that they include, directly or not, as
/// cmake/KernelwrightInstall.cmake finds them.
const std::set<std::string>& installed_headers() {
  static const std::set<std::string> found = [] {
    const fs::path root = test::source_dir();
    std::set<std::string> seen;
    Strings unread;
    for (const auto& entry : fs::directory_iterator(root / "include/kernelwright"))
      unread.push_back(fs::relative(entry.path(), root).generic_string());
    while (!unread.empty()) {
      const std::string path = unread.back();
      unread.pop_back();
      if (!seen.insert(path).second) continue;
      std::ifstream in(root / path);
      const std::string text(std::istreambuf_iterator<char>(in), {});
      for (const std::string& name : includes_of(code_only(text)))
        if (starts(name, "kernelwright/")) unread.push_back(name.substr(std::string_view("kernelwright/").size()));
    }
    return seen;
  }();
  return found;
}

/// The files that may use a library. `allowed` gets the includer's path.
struct Library {
  std::string prefix;  // of the included name
  std::string where;   // for people
  bool (*allowed)(const std::string& path);
};

const std::vector<Library>& libraries() {
  static const auto library_header = [](const std::string& path) { return installed_headers().count(path) > 0; };
  static const auto not_a_library_header = [](const std::string& path) { return !library_header(path); };
  static const std::vector<Library> rows = {
      {"nlohmann/", "generator/json/*.cpp",
       [](const std::string& path) { return starts(path, "generator/json/") && ends(path, ".cpp"); }},
      {"nvrtc.h", "no file: runtime/compile/nvrtc_functions.h declares what is called",
       [](const std::string&) { return false; }},
      {"cuda.h", "runtime/*.cpp",
       [](const std::string& path) { return layer_of(path) == "runtime" && ends(path, ".cpp"); }},
      {"cuda_runtime", "no file: the library knows the driver API alone", [](const std::string&) { return false; }},
      {"CLI/", "cli/", [](const std::string& path) { return starts(path, "cli/"); }},
      {"benchmark/", "bench/", [](const std::string& path) { return starts(path, "bench/"); }},
      {"gtest/", "tests/", [](const std::string&) { return false; }},
      {"gmock/", "tests/", [](const std::string&) { return false; }},
      {"fmt/", "no installed header", not_a_library_header},
      {"zstd", "no installed header", not_a_library_header},
      {"sodium.h", "runtime/cache/signature.cpp",
       [](const std::string& path) { return path == "runtime/cache/signature.cpp"; }},
      {"contract/", "no installed header", not_a_library_header},
  };
  return rows;
}

/// The layer that the name in an #include leads to; "" for the standard library and other people's.
std::string target_of(const std::string& layer, const std::string& name) {
  if (starts(name, "kernelwright/verify/")) return "verify";
  if (starts(name, "kernelwright/") && name.find('/') == name.rfind('/')) return "include";  // "kernelwright/engine.h"
  if (starts(name, "kernelwright/")) return layer_of(name.substr(std::string_view("kernelwright/").size()));
  if (starts(name, "contract/")) return "templates/contract";
  if (starts(layer, "templates/") && name.find('/') != std::string::npos) return layer_of("templates/" + name);
  for (const char* folder : {"generator/", "runtime/", "cli/", "templates/", "tests/", "support/", "reference/"})
    if (starts(name, folder)) return std::string(folder, std::string_view(folder).size() - 1);
  return "";
}

/// One folder of a layer and the folders of that layer that it may include, beside itself. docs/architecture.md draws
/// these rows. A layer joins the check once its rows stand in layer_folders().
struct FolderRow {
  std::string folder;           // "generator/problem", or a file without its suffix: "generator/kernels"
  std::set<std::string> below;  // what it may include
};
struct LayerFolders {
  std::string layer;
  std::set<std::string> leaves;  // files of the layer's own folder, without suffix: all folders may include them
  std::vector<FolderRow> rows;
};
const std::vector<LayerFolders>& layer_folders() {
  static const std::vector<LayerFolders> table = {
      {"generator",
       {"generator/error", "generator/message", "generator/digest", "generator/checked", "generator/trusted_files",
        "generator/template_library"},
       {
           {"generator/problem", {}},
           {"generator/json", {"generator/problem"}},
           {"generator/tuned", {"generator/json", "generator/problem"}},
           {"generator/source", {"generator/problem"}},
           {"generator/plan", {"generator/source", "generator/tuned", "generator/problem"}},
           {"generator/attention", {"generator/plan", "generator/source", "generator/tuned", "generator/problem"}},
           {"generator/attention/latent", {"generator/attention", "generator/plan", "generator/problem"}},
           {"generator/gemm",
            {"generator/kv_write", "generator/plan", "generator/source", "generator/tuned", "generator/problem"}},
           {"generator/quantize", {"generator/plan", "generator/source", "generator/problem"}},
           {"generator/kv_write", {"generator/plan", "generator/source", "generator/problem"}},
           {"generator/row_op", {"generator/plan", "generator/source", "generator/problem"}},
           {"generator/route", {"generator/plan", "generator/source", "generator/problem"}},
           {"generator/moe_combine", {"generator/plan", "generator/source", "generator/problem"}},
           {"generator/kernels",
            {"generator/attention", "generator/gemm", "generator/quantize", "generator/kv_write", "generator/row_op",
             "generator/route", "generator/moe_combine", "generator/plan", "generator/source", "generator/tuned",
             "generator/problem"}},
           {"generator/models",
            {"generator/attention", "generator/gemm", "generator/kv_write", "generator/row_op", "generator/route",
             "generator/moe_combine", "generator/json", "generator/tuned", "generator/problem"}},
           {"generator/schema",
            {"generator/kernels", "generator/attention", "generator/gemm", "generator/quantize", "generator/kv_write",
             "generator/row_op", "generator/route", "generator/moe_combine", "generator/json", "generator/problem"}},
       }},
      {"runtime",
       {},
       {
           {"runtime/process", {}},
           {"runtime/binary", {}},
           {"runtime/device", {}},
           {"runtime/tune", {}},
           {"runtime/launch", {"runtime/device"}},
           {"runtime/cuda", {"runtime/device", "runtime/process"}},
           {"runtime/compile", {"runtime/binary", "runtime/process"}},
           {"runtime/cache/remote", {"runtime/process"}},
           {"runtime/cache", {"runtime/cache/remote", "runtime/binary", "runtime/process"}},
           {"runtime/workers", {"runtime/cache", "runtime/compile", "runtime/process"}},
           {"runtime/workers/program", {"runtime/workers", "runtime/compile", "runtime/process"}},
           {"runtime/store",
            {"runtime/workers", "runtime/cache", "runtime/compile", "runtime/binary", "runtime/process"}},
           {"runtime/fleet",
            {"runtime/store", "runtime/workers", "runtime/cache", "runtime/cache/remote", "runtime/process"}},
           {"runtime/slot", {"runtime/binary", "runtime/device", "runtime/process"}},
           {"runtime/attention", {"runtime/slot", "runtime/launch", "runtime/binary", "runtime/device"}},
           {"runtime/gemm", {"runtime/kv_write", "runtime/slot", "runtime/launch", "runtime/binary", "runtime/device"}},
           {"runtime/quantize", {"runtime/slot", "runtime/launch", "runtime/binary", "runtime/device"}},
           {"runtime/kv_write", {"runtime/slot", "runtime/launch", "runtime/binary", "runtime/device"}},
           {"runtime/row_op", {"runtime/slot", "runtime/launch", "runtime/binary", "runtime/device"}},
           {"runtime/route", {"runtime/slot", "runtime/launch", "runtime/binary", "runtime/device"}},
           {"runtime/moe_combine", {"runtime/slot", "runtime/launch", "runtime/binary", "runtime/device"}},
           {"runtime/moe",
            {"runtime/route", "runtime/row_op", "runtime/gemm", "runtime/moe_combine", "runtime/slot", "runtime/launch",
             "runtime/device"}},
           {"runtime/engine",
            {"runtime/attention", "runtime/gemm", "runtime/quantize", "runtime/kv_write", "runtime/row_op",
             "runtime/route", "runtime/moe_combine", "runtime/moe", "runtime/slot", "runtime/store", "runtime/workers",
             "runtime/cache", "runtime/binary", "runtime/device", "runtime/process"}},
           {"runtime/c", {"runtime/engine", "runtime/process"}},
       }},
      {"runtime/emulator",
       {},
       {
           {"runtime/emulator/ptx", {}},
           {"runtime/emulator/program", {"runtime/emulator/ptx"}},
           {"runtime/emulator/numbers", {"runtime/emulator/program"}},
           {"runtime/emulator/machine", {"runtime/emulator/numbers", "runtime/emulator/program"}},
           {"runtime/emulator/checker", {"runtime/emulator/machine", "runtime/emulator/program"}},
           {"runtime/emulator/trace", {"runtime/emulator/machine", "runtime/emulator/program", "runtime/emulator/ptx"}},
           {"runtime/emulator/ops",
            {"runtime/emulator/checker", "runtime/emulator/trace", "runtime/emulator/machine",
             "runtime/emulator/numbers", "runtime/emulator/program"}},
           {"runtime/emulator/ops/copy",
            {"runtime/emulator/ops", "runtime/emulator/checker", "runtime/emulator/trace", "runtime/emulator/machine",
             "runtime/emulator/numbers", "runtime/emulator/program"}},
           {"runtime/emulator/ops/memory",
            {"runtime/emulator/ops", "runtime/emulator/checker", "runtime/emulator/trace", "runtime/emulator/machine",
             "runtime/emulator/numbers", "runtime/emulator/program"}},
           {"runtime/emulator/ops/matrix",
            {"runtime/emulator/ops/copy", "runtime/emulator/ops", "runtime/emulator/checker", "runtime/emulator/trace",
             "runtime/emulator/machine", "runtime/emulator/numbers", "runtime/emulator/program"}},
           {"runtime/emulator/run",
            {"runtime/emulator/checker", "runtime/emulator/trace", "runtime/emulator/machine",
             "runtime/emulator/program"}},
           {"runtime/emulator/emulator",
            {"runtime/emulator/run", "runtime/emulator/checker", "runtime/emulator/machine", "runtime/emulator/program",
             "runtime/emulator/ptx"}},
           {"runtime/emulator/emulator_backend",
            {"runtime/emulator/emulator", "runtime/emulator/machine", "runtime/emulator/program",
             "runtime/emulator/ptx"}},
       }},
  };
  return table;
}

/// The file without its suffix where it lies in the layer's own folder, else its folder; a folder in a folder counts as
/// one of its own.
std::string folder_of(const std::string& layer, const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == layer.size() ? path.substr(0, path.rfind('.')) : path.substr(0, slash);
}

/// What is wrong with a file of a layer with rows including another of that layer, or "".
std::string folder_violation_of(const std::string& path, const std::string& name) {
  if (!starts(name, "kernelwright/")) return "";
  const std::string target = name.substr(std::string_view("kernelwright/").size());
  for (const LayerFolders& layer : layer_folders()) {
    if (layer_of(path) != layer.layer || layer_of(target) != layer.layer) continue;
    const std::string from = folder_of(layer.layer, path), to = folder_of(layer.layer, target);
    if (from == to || layer.leaves.count(to)) return "";
    if (layer.leaves.count(from)) return from + " is a leaf and must not see " + to;
    for (const FolderRow& row : layer.rows)
      if (row.folder == from) return row.below.count(to) ? "" : from + " must not see " + to;
    return "stands in a folder that this test does not know: add its row to layer_folders()";
  }
  return "";
}

/// A way along `edges` from a folder back to itself, "a -> b -> a"; "" where there is none.
std::string cycle_in(const std::map<std::string, std::set<std::string>>& edges) {
  std::set<std::string> done;
  std::vector<std::string> way;
  const auto walk = [&](const auto& self, const std::string& at) -> std::string {
    const auto met = std::find(way.begin(), way.end(), at);
    if (met != way.end()) {
      std::string text;
      for (auto step = met; step != way.end(); ++step) text += *step + " -> ";
      return text + at;
    }
    if (!done.insert(at).second) return "";
    way.push_back(at);
    if (const auto row = edges.find(at); row != edges.end())
      for (const std::string& next : row->second)
        if (std::string found = self(self, next); !found.empty()) return found;
    way.pop_back();
    return "";
  };
  for (const auto& [from, unused] : edges)
    if (std::string found = walk(walk, from); !found.empty()) return found;
  return "";
}

/// What is wrong with `path` including `name`, or "".
std::string violation_of(const std::string& path, const std::string& name) {
  const std::string layer = layer_of(path);
  if (name.find("..") != std::string::npos) return "climbs out of its folder; name the file from its root";
  for (const Library& library : libraries())
    if (starts(name, library.prefix) && !library.allowed(path)) return "belongs in " + library.where;
  const std::string target = target_of(layer, name);
  if (starts(layer, "templates/") && target.empty()) {
    // The generator emits spec.h; the contract is host code too and may ask the host's <cstdint> for its integers.
    if (name == "spec.h" && layer == "templates/kernels") return "";
    if (layer == "templates/contract" && (name == "cstdint" || name == "stdint.h")) return "";
    return "templates include nothing but templates";
  }
  if (target.empty()) return "";
  // The emulator stands in for a device: it knows what a device does for us, the words and architectures in which that
  // is said, how the library says no and how it counts; and
  // it starts threads (process/). Nothing else: no kernel, no Spec, no engine.
  if (layer == "runtime/emulator" &&
      (starts(name, "kernelwright/runtime/device/") || starts(name, "kernelwright/runtime/process/") ||
       name == "kernelwright/generator/problem/arch.h" || name == "kernelwright/generator/checked.h" ||
       name == "kernelwright/generator/problem/enums.h" || name == "kernelwright/generator/error.h"))
    return "";
  // verify/<kind>/device carries a call to a device and back; the reference itself shares no code with the engine.
  if (starts(path, "verify/") && path.find("device") != std::string::npos && target == "runtime") return "";
  const auto row = arrows().find(layer);
  if (row == arrows().end()) return "stands in a folder that this test does not know: add its row to arrows()";
  if (row->second.count(target)) return "";
  return layer + " must not see " + target;
}

/// Every violation in a file, as "path: includes NAME: why". `path` counts from the repository's root.
Strings violations_in(const std::string& path, const std::string& text) {
  const std::string code = code_only(text);
  Strings found;
  for (const std::string& name : includes_of(code)) {
    std::string why = violation_of(path, name);
    if (why.empty()) why = folder_violation_of(path, name);
    if (!why.empty()) found.push_back(path + ": includes " + name + ": " + why);
  }
  if (!starts(path, "templates/ptx/")) {
    for (const std::string_view word : {"asm", "__asm__", "__asm"}) {
      for (size_t at = code.find(word); at != std::string::npos; at = code.find(word, at + 1)) {
        const auto in_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
        const size_t after = at + word.size();
        if ((at > 0 && in_word(code[at - 1])) || (after < code.size() && in_word(code[after]))) continue;
        found.push_back(path + ": inline asm belongs in templates/ptx/");
        at = code.size();
      }
    }
  }
  return found;
}

TEST(Layering, EveryIncludePointsDownwards) {
  const fs::path root = test::source_dir();
  Strings found;
  std::map<std::string, int> files;
  for (const char* folder :
       {"generator", "runtime", "include", "verify", "cli", "templates", "examples", "integrations", "bench"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string path = fs::relative(entry.path(), root).generic_string();
      if (!ends(path, ".h") && !ends(path, ".cpp") && !ends(path, ".cuh") && !ends(path, ".cu") && !ends(path, ".c"))
        continue;
      std::ifstream in(entry.path());
      const std::string text(std::istreambuf_iterator<char>(in), {});
      ++files[folder];
      for (const std::string& violation : violations_in(path, text)) found.push_back(violation);
    }
  }
  EXPECT_THAT(found, IsEmpty());
  for (const char* folder : {"generator", "runtime", "include", "verify", "cli", "templates"})
    EXPECT_GT(files[folder], 0) << folder;
}

TEST(Layering, NoFoldersIncludeEachOther) {
  const fs::path root = test::source_dir();
  for (const LayerFolders& layer : layer_folders()) {
    std::map<std::string, std::set<std::string>> edges;
    for (const auto& entry : fs::recursive_directory_iterator(root / layer.layer)) {
      const std::string path = fs::relative(entry.path(), root).generic_string();
      if ((!ends(path, ".h") && !ends(path, ".cpp")) || layer_of(path) != layer.layer) continue;
      std::ifstream in(entry.path());
      const std::string text(std::istreambuf_iterator<char>(in), {});
      for (const std::string& name : includes_of(code_only(text))) {
        if (!starts(name, "kernelwright/" + layer.layer + "/")) continue;
        const std::string target = name.substr(std::string_view("kernelwright/").size());
        const std::string from = folder_of(layer.layer, path), to = folder_of(layer.layer, target);
        if (layer_of(target) == layer.layer && from != to) edges[from].insert(to);
      }
    }
    EXPECT_GT(edges.size(), 5U) << "the includes of " << layer.layer << " were not found";
    EXPECT_EQ(cycle_in(edges), "") << layer.layer;
  }
}

TEST(Layering, TheTableOfFoldersItselfHasNoCycleAndNamesRealFolders) {
  for (const LayerFolders& layer : layer_folders()) {
    std::map<std::string, std::set<std::string>> edges;
    for (const FolderRow& row : layer.rows) {
      edges[row.folder] = row.below;
      const fs::path place = test::source_dir() / row.folder;
      EXPECT_TRUE(fs::is_directory(place) || fs::exists(place.string() + ".h")) << row.folder;
      for (const std::string& below : row.below)
        EXPECT_TRUE(std::any_of(layer.rows.begin(), layer.rows.end(),
                                [&](const FolderRow& other) { return other.folder == below; }))
            << row.folder << " may include " << below << ", which has no row";
    }
    for (const std::string& leaf : layer.leaves) EXPECT_TRUE(fs::exists(test::source_dir() / (leaf + ".h"))) << leaf;
    EXPECT_EQ(cycle_in(edges), "") << layer.layer;
  }
}

TEST(Layering, ACycleIsFoundAndNamed) {
  EXPECT_EQ(cycle_in({{"a", {"b"}}, {"b", {"c"}}, {"c", {"b"}}}), "b -> c -> b");
  EXPECT_EQ(cycle_in({{"a", {"b", "c"}}, {"b", {"c"}}, {"c", {}}}), "");
}

TEST(Layering, TheInstalledFaceIsElevenHeadersAndLetsFewThrough) {
  Strings face;
  for (const std::string& path : installed_headers())
    if (starts(path, "include/")) face.push_back(path.substr(std::string_view("include/kernelwright/").size()));
  EXPECT_THAT(face, ElementsAre("attention.h", "backend.h", "c.h", "engine.h", "gemm.h", "kv_write.h", "moe.h",
                                "moe_combine.h", "quantize.h", "route.h", "row_op.h"));
  EXPECT_LE(installed_headers().size(), 65U);
  for (const std::string& path : installed_headers())
    EXPECT_FALSE(starts(path, "runtime/emulator/")) << path << " is the emulator's own";
}

struct Case {
  const char* path;
  const char* text;
  const char* why;  // "" where the file is fine
};
class LayeringRule : public testing::TestWithParam<Case> {};

TEST_P(LayeringRule, JudgesAMadeUpFile) {
  SCOPED_TRACE(std::string(GetParam().path) + ":\n" + GetParam().text);
  const Strings found = violations_in(GetParam().path, GetParam().text);
  if (*GetParam().why) {
    EXPECT_THAT(found, ElementsAre(HasSubstr(GetParam().why)));
  } else {
    EXPECT_THAT(found, IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Refuses, LayeringRule,
    testing::Values(
        Case{"generator/a.cpp", "#include \"kernelwright/runtime/engine/engine.h\"", "generator must not see runtime"},
        Case{"generator/a.cpp", "  #  include <kernelwright/runtime/engine/engine.h>",
             "generator must not see runtime"},
        Case{"generator/a.cpp", "#include \"../runtime/engine.h\"", "climbs out of its folder"},
        Case{"generator/a.cpp", "#include \"tests/support/x.h\"", "generator must not see tests"},
        Case{"generator/problem/a.cpp", "#include \"kernelwright/generator/json/document.h\"",
             "generator/problem must not see generator/json"},
        Case{"generator/gemm/a.cpp", "#include \"kernelwright/generator/attention/family.h\"",
             "generator/gemm must not see generator/attention"},
        Case{"generator/plan/a.h", "#include \"kernelwright/generator/kernels.h\"",
             "generator/plan must not see generator/kernels"},
        Case{"generator/error.h", "#include \"kernelwright/generator/problem/enums.h\"",
             "generator/error is a leaf and must not see generator/problem"},
        Case{"generator/fresh/a.h", "#include \"kernelwright/generator/problem/enums.h\"",
             "a folder that this test does not know"},
        Case{"runtime/a.cpp", "#include \"kernelwright/cli/verbs/verbs.h\"", "runtime must not see cli"},
        Case{"runtime/a.cpp", "#include \"reference/attention.h\"", "runtime must not see reference"},
        Case{"examples/a.cpp", "#include \"kernelwright/cli/verbs/verbs.h\"", "examples must not see cli"},
        Case{"integrations/a/a.cpp", "#include \"kernelwright/verify/a.h\"", "integrations must not see verify"},
        Case{"runtime/emulator/a.cpp", "#include \"kernelwright/generator/source/spec.h\"",
             "runtime/emulator must not see generator"},
        Case{"runtime/emulator/a.cpp", "#include \"kernelwright/generator/attention/shared_map.h\"",
             "runtime/emulator must not see generator"},
        Case{"runtime/emulator/a.h", "#include \"kernelwright/runtime/engine/engine.h\"",
             "runtime/emulator must not see runtime"},
        Case{"runtime/emulator/a.cpp", "#include \"kernelwright/runtime/binary/binary.h\"",
             "runtime/emulator must not see runtime"},
        Case{"runtime/emulator/a.cpp", "#include \"contract/attention_portable.h\"",
             "runtime/emulator must not see templates/contract"},
        Case{"runtime/emulator/machine/a.cpp", "#include \"kernelwright/runtime/emulator/checker/hazards.h\"",
             "runtime/emulator/machine must not see runtime/emulator/checker"},
        Case{"runtime/emulator/ops/a.cpp", "#include \"kernelwright/runtime/emulator/ops/copy/bulk_copy.h\"",
             "runtime/emulator/ops must not see runtime/emulator/ops/copy"},
        Case{"runtime/emulator/run/a.h", "#include \"kernelwright/runtime/emulator/emulator.h\"",
             "runtime/emulator/run must not see runtime/emulator/emulator"},
        Case{"runtime/slot/a.cpp", "#include \"kernelwright/runtime/engine/engine.h\"",
             "runtime/slot must not see runtime/engine"},
        Case{"verify/a.cpp", "#include \"kernelwright/runtime/engine/engine.h\"", "verify must not see runtime"},
        Case{"runtime/a.cpp", "#include \"kernelwright/verify/random.h\"", "runtime must not see verify"},
        Case{"generator/problem.cpp", "#include <nlohmann/json.hpp>", "belongs in generator/json/*.cpp"},
        Case{"generator/json/config_json.h", "#include <nlohmann/json_fwd.hpp>", "belongs in generator/json/*.cpp"},
        Case{"runtime/cuda/driver.cpp", "#include <nvrtc.h>", "belongs in no file: runtime/compile/nvrtc_functions.h"},
        Case{"runtime/cuda/driver.h", "#include <cuda.h>", "belongs in runtime/*.cpp"},
        Case{"runtime/emulator/run/launch.cpp", "#include <cuda.h>", "belongs in runtime/*.cpp"},
        Case{"runtime/cuda/driver.cpp", "#include <cuda_runtime_api.h>", "the driver API alone"},
        Case{"runtime/engine/engine.h", "#include <fmt/core.h>", "no installed header"},
        Case{"generator/source/spec.h", "#include \"contract/attention_params.h\"", "no installed header"},
        Case{"include/kernelwright/engine.h", "#include <fmt/core.h>", "no installed header"},
        Case{"include/kernelwright/engine.h", "#include \"kernelwright/cli/options.h\"", "include must not see cli"},
        Case{"runtime/a.cpp", "#include \"kernelwright/engine.h\"", "runtime must not see include"},
        Case{"runtime/engine/engine.cpp", "#include <CLI/CLI.hpp>", "belongs in cli/"},
        Case{"cli/verbs/run.cpp", "#include <gtest/gtest.h>", "belongs in tests/"},
        Case{"templates/kernels/gemm.cu", "#include <cuda_bf16.h>", "templates include nothing but templates"},
        Case{"templates/tile/a.cuh", "#include \"mma/sm80.cuh\"", "templates/tile must not see templates/mma"},
        Case{"templates/ptx/a.cuh", "#include \"tile/a.cuh\"", "templates/ptx must not see templates/tile"},
        Case{"templates/mma/a.cuh", "#include \"pipeline/ring.cuh\"", "templates/mma must not see templates/pipeline"},
        Case{"templates/pipeline/a.cuh", "#include \"policy/masks.cuh\"",
             "templates/pipeline must not see templates/policy"},
        Case{"templates/contract/a.h", "#include \"ptx/mbarrier.cuh\"",
             "templates/contract must not see templates/ptx"},
        Case{"templates/contract/a.h", "#include <vector>", "templates include nothing but templates"},
        Case{"templates/tile/a.cuh", "#include \"spec.h\"", "templates include nothing but templates"},
        Case{"templates/tile/a.cuh", "void f() { asm volatile(\"bar.sync 0;\"); }",
             "inline asm belongs in templates/ptx/"},
        Case{"runtime/clock.cpp", "void f() { __asm__(\"nop\"); }", "inline asm belongs in templates/ptx/"},
        Case{"templates/lib/a.cuh", "#include \"tile/a.cuh\"", "a folder that this test does not know"}));

INSTANTIATE_TEST_SUITE_P(
    Allows, LayeringRule,
    testing::Values(
        Case{"generator/a.cpp", "#include <vector>\n#include <fmt/core.h>\n#include \"contract/a.h\"", ""},
        Case{"generator/json/read.cpp", "#include <nlohmann/json.hpp>", ""},
        Case{"generator/gemm/a.cpp",
             "#include \"kernelwright/generator/gemm/b.h\"\n#include \"kernelwright/generator/plan/choice.h\"\n"
             "#include \"kernelwright/generator/error.h\"",
             ""},
        Case{"runtime/slot/kernel_handle_impl.h", "#include <fmt/core.h>", ""},
        Case{"examples/a.cpp", "#include \"kernelwright/engine.h\"", ""},
        Case{"integrations/a/a.cpp", "#include \"kernelwright/engine.h\"\n#include \"errors.h\"", ""},
        Case{"runtime/compile/compiler.cpp",
             "#include \"kernelwright/runtime/compile/nvrtc_functions.h\"\n"
             "#include \"kernelwright/generator/source/specialize.h\"",
             ""},
        Case{"runtime/cuda/cuda_backend.cpp", "#include <cuda.h>\n#include \"kernelwright/runtime/device/backend.h\"",
             ""},
        Case{"runtime/emulator/run/launch.cpp",
             "#include \"kernelwright/runtime/device/backend.h\"\n#include \"kernelwright/generator/problem/arch.h\"\n"
             "#include \"kernelwright/generator/problem/enums.h\"\n#include \"kernelwright/generator/error.h\"",
             ""},
        Case{"runtime/engine/engine_state.cpp", "#include \"kernelwright/runtime/emulator/emulator_backend.h\"", ""},
        Case{"cli/verbs/run.cpp", "#include <CLI/CLI.hpp>\n#include \"kernelwright/runtime/engine/engine.h\"", ""},
        Case{"templates/kernels/a.cu", "#include \"spec.h\"\n#include \"policy/a.cuh\"\n#include \"mma/sm80.cuh\"", ""},
        Case{"templates/ptx/a.cuh", "void f() { asm volatile(\"bar.sync 0;\"); }", ""},
        Case{"generator/a.cpp", "// #include <cuda.h>\n/*\n#include <cuda.h>\n*/", ""},
        Case{"generator/a.cpp", "auto text = R\"x(\n#include <cuda.h>\nasm(\"\");\n)x\"; int plasma = 1;", ""},
        Case{"generator/a.cpp", "auto text = \"asm volatile(\\\" // \"; // asm", ""}));

}  // namespace
}  // namespace kernelwright::layering_test
