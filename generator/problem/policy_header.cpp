#include "kernelwright/generator/problem/policy_header.h"

#include <algorithm>

#include "kernelwright/generator/message.h"
#include "kernelwright/generator/template_library.h"

namespace kernelwright::detail {
namespace {

/// The text as the preprocessor sees it: lines that a backslash joins are one, and a comment is a space.
std::string without_comments(std::string_view text) {
  std::string joined, code;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with("\\\n"))
      at += 1;
    else if (rest.starts_with("\\\r\n"))
      at += 2;
    else
      joined += text[at];
  }
  char quote = 0;  // the open one: no comment begins within quotes
  for (std::size_t at = 0; at < joined.size(); ++at) {
    const std::string_view rest = std::string_view(joined).substr(at);
    const char c = joined[at];
    if (quote == 0 && rest.starts_with("//")) {
      at += std::min(rest.find('\n'), rest.size()) - 1;
      continue;
    }
    if (quote == 0 && rest.starts_with("/*")) {
      const std::size_t end = rest.find("*/", 2);
      at += end == rest.npos ? rest.size() : end + 1;
      code += ' ';
      continue;
    }
    code += c;
    if (quote != 0 && c == '\\' && rest.size() > 1) code += joined[++at];
    if (c == quote || c == '\n')
      quote = 0;
    else if (quote == 0 && (c == '"' || c == '\''))
      quote = c;
  }
  return code;
}

/// If `line` begins with blanks and then `word`, removes them.
bool take(std::string_view& line, std::string_view word) {
  const std::string_view rest = line.substr(std::min(line.find_first_not_of(" \t\v\f\r"), line.size()));
  if (!rest.starts_with(word)) return false;
  line = rest.substr(word.size());
  return true;
}

/// What `line` includes: a name, or any other text that stands there; "" if it includes nothing.
std::string_view included(std::string_view line) {
  if (!take(line, "#") && !take(line, "%:")) return {};
  if (!take(line, "include_next") && !take(line, "include") && !take(line, "import")) return {};
  take(line, "");
  if (line.empty() || (line[0] != '"' && line[0] != '<')) return line.empty() ? "nothing" : line;
  const std::size_t end = line.find(line[0] == '"' ? '"' : '>', 1);
  return line.substr(1, end == line.npos ? end : end - 1);
}

}  // namespace

std::optional<std::string> header_verdict(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) return "begins with a byte order mark; save it as UTF-8 without one";
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    length = utf8_length(text.substr(at, 4));
    if (length == 0)
      return "has a byte that is not UTF-8 in line " +
             std::to_string(1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n')) +
             "; save it as UTF-8";
  }
  const std::string code = without_comments(text);
  for (std::string_view rest = code; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (const std::string_view name = included(line); !name.empty() && !is_template(name))
      return "includes " + quoted_for_message(name) +
             "; \"policy/place.cuh\" and other files of templates/ would do, for no other is part of the kernel's key";
  }
  return std::nullopt;
}

}  // namespace kernelwright::detail
