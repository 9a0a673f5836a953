#include "kernelwright/runtime/emulator/pattern.h"

#include <algorithm>

namespace kernelwright::emulator {

Pattern::Pattern(std::string_view text) {
  while (!text.empty()) {
    Part part;
    if (text.front() == '(') {
      part.choice = true;
      const std::size_t close = text.find(')');
      std::string_view inner = text.substr(1, close - 1);
      for (std::size_t bar = 0; bar != std::string_view::npos;) {
        bar = inner.find('|');
        part.alternatives.push_back(inner.substr(0, bar));
        if (bar != std::string_view::npos) inner.remove_prefix(bar + 1);
      }
      text.remove_prefix(close + 1);
      if (!text.empty() && text.front() == '?') {
        part.optional = true;
        text.remove_prefix(1);
      }
    } else {
      const std::size_t dot = std::min(text.find('.'), text.size());
      part.alternatives.push_back(text.substr(0, dot));
      text.remove_prefix(dot);
    }
    if (!text.empty()) text.remove_prefix(1);  // the dot
    parts_.push_back(std::move(part));
  }
}

bool Pattern::match_from(std::size_t part, std::span<const std::string_view> parts,
                         std::vector<std::string_view>& choices) const {
  if (part == parts_.size()) return parts.empty();
  const Part& want = parts_[part];
  if (!parts.empty()) {
    const auto found = std::find(want.alternatives.begin(), want.alternatives.end(), parts.front());
    if (found != want.alternatives.end()) {
      if (want.choice) choices.push_back(*found);
      if (match_from(part + 1, parts.subspan(1), choices)) return true;
      if (want.choice) choices.pop_back();
    }
  }
  if (!want.optional) return false;
  choices.emplace_back();
  if (match_from(part + 1, parts, choices)) return true;
  choices.pop_back();
  return false;
}

std::optional<std::vector<std::string_view>> Pattern::match(std::span<const std::string_view> parts) const {
  std::vector<std::string_view> choices;
  if (!match_from(0, parts, choices)) return std::nullopt;
  return choices;
}

}  // namespace kernelwright::emulator
