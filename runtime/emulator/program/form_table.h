/// The decode table: all rows of all families, indexed by the opcode's first part.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernelwright/runtime/emulator/program/decoder.h"
#include "kernelwright/runtime/emulator/program/pattern.h"

namespace kernelwright::emulator {

class FormTable {
 public:
  FormTable();
  struct Match {
    const Form* form = nullptr;
    std::vector<std::string_view> choices;
  };
  Match find(std::span<const std::string_view> parts) const {
    if (const auto rows = rows_.find(parts.front()); rows != rows_.end())
      for (const auto& row : rows->second)
        if (auto choices = row->pattern.match(parts)) return {row->form, std::move(*choices)};
    return {};
  }
  /// `parts` in the spelling of a row, if they differ from the row only in the order of their modifiers; otherwise
  /// empty.
  std::vector<std::string_view> respell(std::span<const std::string_view> parts) const {
    if (const auto rows = rows_.find(parts.front()); rows != rows_.end())
      for (const auto& row : rows->second)
        if (auto arranged = row->pattern.arrange(parts)) return std::move(*arranged);
    return {};
  }
  bool knows(std::string_view root) const { return rows_.count(root) != 0; }

 private:
  struct Row {
    Pattern pattern;
    const Form* form;
  };
  std::unordered_map<std::string_view, std::vector<std::shared_ptr<Row>>> rows_;
};

const FormTable& form_table();

/// Whether the modifier is one of ignored_hints().
bool is_hint(std::string_view part);

}  // namespace kernelwright::emulator
