/// Patterns of the decode table: how a row spells the opcodes that it takes.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace kernelwright::emulator {

/// "ld.(global|shared)?.(v2|v4)?.b32": parts separated by dots; a part in parentheses is a choice, which match()
/// returns; `?` makes a choice optional.
class Pattern {
 public:
  explicit Pattern(std::string_view text);
  /// The word that each choice matched ("" for an optional choice that is absent), or nothing if `parts` have another
  /// spelling.
  std::optional<std::vector<std::string_view>> match(std::span<const std::string_view> parts) const;
  /// `parts` in the order that match() accepts, if only the order of their modifiers (modifier_order.h) keeps match()
  /// from accepting them; otherwise nothing.
  std::optional<std::vector<std::string_view>> arrange(std::span<const std::string_view> parts) const;
  /// The words that may be the first part: "ld".
  const std::vector<std::string_view>& roots() const { return parts_.front().alternatives; }

 private:
  struct Part {
    std::vector<std::string_view> alternatives;
    bool choice = false, optional = false;
  };
  bool match_from(std::size_t part, std::span<const std::string_view> parts,
                  std::vector<std::string_view>& choices) const;
  bool arrange_from(std::size_t part, std::size_t named, std::vector<std::string_view>& rest,
                    std::vector<std::string_view>& arranged) const;
  std::vector<Part> parts_;
};

}  // namespace kernelwright::emulator
