#include "runtime/emulator/mutation/equivalents.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <fstream>

#include "kernelwright/generator/error.h"

namespace kernelwright::test {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

/// At " | ": the operator || of a source line stays whole.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::size_t begin = 0;
  for (std::size_t bar = line.find(" | "); bar != line.npos; bar = line.find(" | ", begin)) {
    fields.push_back(trimmed(line.substr(begin, bar - begin)));
    begin = bar + 3;
  }
  fields.push_back(trimmed(line.substr(begin)));
  return fields;
}

bool is_source(const std::string& pattern, const MutantKey& key) {
  const std::size_t caller = pattern.rfind(" < ");
  if (pattern == key.source) return true;  // " < " may be an operator
  return caller != pattern.npos && pattern.substr(0, caller) == key.source &&
         std::find(key.callers.begin(), key.callers.end(), pattern.substr(caller + 3)) != key.callers.end();
}

}  // namespace

std::vector<Equivalent> read_equivalents(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw Error("cannot read " + path);
  std::vector<Equivalent> equivalents;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (trimmed(line).empty() || line[0] == '#') continue;
    if (line[0] == ' ') {
      if (equivalents.empty()) throw Error(fmt::format("{}:{}: a reason before the first entry", path, number));
      std::string& reason = equivalents.back().reason;
      reason += (reason.empty() ? "" : " ") + trimmed(line);
      continue;
    }
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() != 4)
      throw Error(fmt::format("{}:{}: {} fields where an entry has 4: kernel | source | instruction | change", path,
                              number, fields.size()));
    equivalents.push_back({{fields[0], fields[1], fields[2], fields[3]}, "", number});
  }
  for (const Equivalent& entry : equivalents)
    if (entry.reason.empty()) throw Error(fmt::format("{}:{}: an entry without a reason", path, entry.line));
  return equivalents;
}

bool matches(const std::string& pattern, const std::string& kernel) {
  return ::fnmatch(pattern.c_str(), kernel.c_str(), 0) == 0;
}

Equivalent* find_equivalent(std::vector<Equivalent>& equivalents, const MutantKey& key) {
  for (Equivalent& entry : equivalents)
    if (is_source(entry.pattern.source, key) && entry.pattern.instruction == key.instruction &&
        entry.pattern.change == key.change && matches(entry.pattern.kernel, key.kernel))
      return &entry;
  return nullptr;
}

}  // namespace kernelwright::test
