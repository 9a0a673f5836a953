#include "kernelwright/runtime/compile/ptxas_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace kernelwright {
namespace {

std::string_view trimmed(std::string_view line) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!line.empty() && is_space(line.front())) line.remove_prefix(1);
  while (!line.empty() && is_space(line.back())) line.remove_suffix(1);
  return line;
}

template <class Function>
void for_each_line(std::string_view text, const Function& function) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    function(trimmed(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

/// The number that stands right before `words`: 40 for "Used 40 registers, ..." and " registers".
std::optional<int> number_before(std::string_view line, std::string_view words) {
  const std::size_t end = line.find(words);
  if (end == std::string_view::npos) return std::nullopt;
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int value = 0;
  const auto [rest, error] = std::from_chars(line.data() + begin, line.data() + end, value);
  if (begin == end || error != std::errc() || rest != line.data() + end) return std::nullopt;
  return value;
}

void read_number(std::string_view line, std::string_view words, int& value) {
  if (const auto number = number_before(line, words)) value = *number;
}

/// The function that a header line announces:
///   ptxas info    : Compiling entry function 'k' for 'sm_90a'
///   ptxas info    : Function properties for k
std::optional<std::string_view> announced(std::string_view line) {
  for (const std::string_view words : {"Compiling entry function '", "Function properties for "}) {
    const std::size_t at = line.find(words);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = line.substr(at + words.size());
    return rest.substr(0, words.back() == '\'' ? rest.find('\'') : rest.size());
  }
  return std::nullopt;
}

bool is_warning(std::string_view line) {
  if (!line.starts_with("ptxas")) return false;
  // Serialised wgmma (C7510 and its neighbours) has come as an info line and as a warning, by version.
  return line.starts_with("ptxas warning") || line.find("Potential Performance Loss") != std::string_view::npos ||
         line.find("(C75") != std::string_view::npos;
}

}  // namespace

PtxasReport read_ptxas_log(std::string_view log, std::string_view entry) {
  PtxasReport report;
  bool ours = false;
  for_each_line(log, [&](std::string_view line) {
    if (is_warning(line)) {
      if (std::find(report.warnings.begin(), report.warnings.end(), line) == report.warnings.end())
        report.warnings.emplace_back(line);
      return;
    }
    if (const auto name = announced(line)) {
      ours = *name == entry;
      return;
    }
    if (!ours) return;
    ResourceUsage& usage = report.usage;
    if (line.find("bytes stack frame") != std::string_view::npos) {
      read_number(line, " bytes stack frame", usage.stack);
      read_number(line, " bytes spill stores", usage.spill_stores);
      read_number(line, " bytes spill loads", usage.spill_loads);
    } else if (line.find("Used ") != std::string_view::npos && line.find(" registers") != std::string_view::npos) {
      report.found = true;
      read_number(line, " registers", usage.registers);
      read_number(line, " barriers", usage.barriers);
      read_number(line, " bytes smem", usage.static_shared);
    }
  });
  return report;
}

std::string first_lines(std::string_view text, int count) {
  std::string lines;
  int seen = 0;
  for_each_line(text, [&](std::string_view line) {
    if (line.empty() || ++seen > count) return;
    lines.append(lines.empty() ? "" : "\n").append(line);
  });
  if (seen > count) lines += fmt::format("\n... ({} more)", seen - count);
  return lines;
}

}  // namespace kernelwright
