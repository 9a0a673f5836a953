#include "kernelwright/runtime/emulator/ptx/symbols.h"

namespace kernelwright::emulator {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

void SymbolTable::leave() {
  const std::size_t start = starts_.back();
  starts_.pop_back();
  for (; undo_.size() > start; undo_.pop_back()) {
    const Undo& undo = undo_.back();
    if (undo.range && undo.had) {
      ranges_[undo.name] = undo.outer;
    } else if (undo.range) {
      ranges_.erase(undo.name);
    } else if (undo.had) {
      names_[undo.name] = undo.binding;
    } else {
      names_.erase(undo.name);
    }
  }
}

bool SymbolTable::declare(std::string_view name, Binding binding) {
  if (Binding found; find(name, found) && found.depth == depth()) return false;
  binding.depth = depth();
  const auto [at, inserted] = names_.try_emplace(name, binding);
  undo_.push_back({.name = name, .range = false, .had = !inserted, .binding = at->second, .outer = {}});
  at->second = binding;
  return true;
}

bool SymbolTable::declare_range(std::string_view prefix, int first, int count) {
  const Range range{first, count, depth()};
  const auto [at, inserted] = ranges_.try_emplace(prefix, range);
  if (!inserted && at->second.depth == depth()) return false;
  undo_.push_back({.name = prefix, .range = true, .had = !inserted, .binding = {}, .outer = at->second});
  at->second = range;
  digit_ended_prefix_ |= is_digit(prefix.back());
  return true;
}

bool SymbolTable::find_in_range(std::string_view prefix, std::string_view digits, Binding& found) const {
  if (digits.empty() || digits.size() > 7 || (digits.size() > 1 && digits[0] == '0')) return false;
  const auto at = ranges_.find(prefix);
  if (at == ranges_.end()) return false;
  int number = 0;
  for (const char c : digits) number = number * 10 + (c - '0');
  if (number >= at->second.count) return false;
  found = {.kind = Binding::Kind::kRegister, .index = at->second.first + number, .depth = at->second.depth};
  return true;
}

bool SymbolTable::find(std::string_view name, Binding& found) const {
  bool any = false;
  if (const auto at = names_.find(name); at != names_.end()) {
    found = at->second;
    any = true;
  }
  std::size_t split = name.size();
  while (split > 1 && is_digit(name[split - 1])) --split;
  const std::size_t last = digit_ended_prefix_ ? name.size() : split + 1;
  for (; split < last && split < name.size(); ++split) {
    Binding candidate;
    if (!find_in_range(name.substr(0, split), name.substr(split), candidate)) continue;
    if (!any || candidate.depth > found.depth) found = candidate;
    any = true;
  }
  return any;
}

}  // namespace kernelwright::emulator
