#include "kernelwright/generator/message.h"

#include <utility>

namespace kernelwright {
namespace {

constexpr std::size_t kQuotedBytes = 48;  // of a caller's text in a message
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// `text` escaped, without quotes.
std::string escaped(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\\') {
      out.append({'\\', c});
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out.append("\\u00").append({kHex[(c >> 4) & 7], kHex[c & 15]});
    } else if (const std::size_t length = utf8_length(text.substr(at))) {
      out.append(text.substr(at, length));
      at += length;
      continue;
    } else {
      out += kReplacement;
    }
    ++at;
  }
  return out;
}

/// At most kQuotedBytes of `text`, cut between characters, and whether anything was cut.
std::pair<std::string_view, bool> cut(std::string_view text) {
  if (text.size() <= kQuotedBytes) return {text, false};
  std::size_t end = kQuotedBytes;
  while (end > 0 && is_continuation(text[end])) --end;
  return {text.substr(0, end), true};
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t at = 1; at < length; ++at)
    if (!is_continuation(text[at])) return 0;
  // Refuses overlong forms, surrogates and code points above U+10FFFF.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

std::string json_quoted(std::string_view text) { return "\"" + escaped(text) + "\""; }

std::string quoted_for_message(std::string_view text) {
  const auto [head, was_cut] = cut(text);
  return "\"" + escaped(head) + (was_cut ? "…\"" : "\"");
}

std::string pointer_to(std::string_view pointer, std::string_view key) {
  const auto [head, was_cut] = cut(key);
  std::string out = std::string(pointer) + "/";
  for (const char c : escaped(head)) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out + (was_cut ? "…" : "");
}

std::string pointer_to(std::string_view pointer, std::size_t index) {
  return std::string(pointer) + "/" + std::to_string(index);
}

std::string join(const std::vector<std::string_view>& words) {
  std::string joined;
  for (const std::string_view word : words) joined.append(joined.empty() ? "" : ", ").append(word);
  return joined;
}

}  // namespace kernelwright
