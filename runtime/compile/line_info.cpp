#include "kernelwright/runtime/compile/line_info.h"

#include <algorithm>

namespace kernelwright {

std::string without_lines(std::string_view ptx) {
  std::string kept;
  kept.reserve(ptx.size());
  bool in_section = false;
  while (!ptx.empty()) {
    const std::string_view line = ptx.substr(0, ptx.find('\n'));
    ptx.remove_prefix(std::min(ptx.size(), line.size() + 1));
    std::string_view words = line;
    words.remove_prefix(std::min(words.find_first_not_of(" \t\r"), words.size()));
    while (!words.empty() && (words.back() == ' ' || words.back() == '\t' || words.back() == '\r'))
      words.remove_suffix(1);
    if (in_section) {
      in_section = words != "}";
      continue;
    }
    if (words.starts_with(".section")) {  // its body follows in braces, which do not nest
      in_section = true;
      continue;
    }
    if (words.empty() || words.starts_with(".loc") || words.starts_with(".file")) continue;
    kept.append(words).push_back('\n');
  }
  return kept;
}

}  // namespace kernelwright
