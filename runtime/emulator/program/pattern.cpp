#include "kernelwright/runtime/emulator/program/pattern.h"

#include <algorithm>

#include "kernelwright/runtime/emulator/program/modifier_order.h"

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

/// `named`: how many of `rest` still belong to the instruction's name, and so must come in order.
bool Pattern::arrange_from(std::size_t part, std::size_t named, std::vector<std::string_view>& rest,
                           std::vector<std::string_view>& arranged) const {
  if (part == parts_.size()) return rest.empty();
  if (rest.size() > parts_.size() - part) return false;
  const Part& want = parts_[part];
  for (std::size_t i = 0; i < (named > 0 ? std::min<std::size_t>(rest.size(), 1) : rest.size()); ++i) {
    const std::string_view candidate = rest[i];
    if (std::find(want.alternatives.begin(), want.alternatives.end(), candidate) == want.alternatives.end()) continue;
    const ModifierGroup group = group_of(candidate);
    const bool overtakes = std::any_of(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(i), [&](auto before) {
      return before == candidate || (group != ModifierGroup::kFree && group_of(before) == group);
    });
    if (overtakes) continue;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
    arranged.push_back(candidate);
    if (arrange_from(part + 1, named > 0 ? named - 1 : 0, rest, arranged)) return true;
    arranged.pop_back();
    rest.insert(rest.begin() + static_cast<std::ptrdiff_t>(i), candidate);
  }
  return want.optional && arrange_from(part + 1, named, rest, arranged);
}

std::optional<std::vector<std::string_view>> Pattern::arrange(std::span<const std::string_view> parts) const {
  std::vector<std::string_view> rest(parts.begin(), parts.end()), arranged;
  const std::size_t named = name_length(parts);
  // A modifier that would make the name longer must be a part of the name.
  if (!arrange_from(0, named, rest, arranged) || name_length(arranged) != named) return std::nullopt;
  return arranged;
}

std::optional<std::vector<std::string_view>> Pattern::match(std::span<const std::string_view> parts) const {
  std::vector<std::string_view> choices;
  if (!match_from(0, parts, choices)) return std::nullopt;
  return choices;
}

}  // namespace kernelwright::emulator
