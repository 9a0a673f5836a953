// Text -> JsonValue. The JSON library has the grammar. Our code first looks for faults that the library accepts or
// crashes on: size, depth, encoding. Callbacks of the library build our value, so that no value of its own ever exists.
#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/message.h"

namespace kernelwright {
namespace {

/// "line 3, column 14" of the character at `offset`. Columns count characters.
std::string place(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  const std::size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  const auto is_lead = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const auto column = 1 + std::count_if(before.begin() + line_start, before.end(), is_lead);
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

/// Refuses texts that must not reach the parser.
void scan(std::string_view text) {
  if (text.size() > JsonValue::kMaxBytes)
    throw ConfigError("", "is " + std::to_string(text.size()) + " bytes; a config has at most " +
                              std::to_string(JsonValue::kMaxBytes));
  if (text.starts_with("\xEF\xBB\xBF"))
    throw ConfigError("line 1, column 1", "a byte order mark; save the file as UTF-8 without one");
  if (text.find_first_not_of(" \t\r\n") == text.npos) throw ConfigError("", "the text is empty; a config is an object");
  int depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at, 4));
    if (length == 0) throw ConfigError(place(text, at), "a byte that is not UTF-8; save the file as UTF-8");
    const char c = text[at];
    // The library takes a zero byte for the end, and would ignore the text behind it.
    if (c == '\0') throw ConfigError(place(text, at), "a zero byte; a config is text");
    if (in_string) {
      if (c == '\\' && at + 1 < text.size() && (text[at + 1] == '"' || text[at + 1] == '\\')) ++at;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > JsonValue::kMaxDepth)
        throw ConfigError(place(text, at),
                          "arrays and objects nest more than " + std::to_string(JsonValue::kMaxDepth) + " deep here");
    } else if (c == ']' || c == '}') {
      --depth;
    }
    at += length;
  }
}

/// Builds the value from the library's callbacks.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, std::vector<Violation>& duplicates) : text_(text), duplicates_(duplicates) {}
  JsonValue root;

  bool null() override { return put(JsonValue()); }
  bool boolean(bool value) override { return put(JsonValue(value)); }
  bool number_integer(std::int64_t value) override { return put(JsonValue(value)); }
  bool number_unsigned(std::uint64_t value) override { return put(JsonValue(value)); }
  bool number_float(double value, const std::string&) override { return put(JsonValue(value)); }
  bool string(std::string& value) override { return put(JsonValue(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(false); }
  bool start_array(std::size_t) override { return open(true); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    Frame& frame = stack_.back();
    frame.drop_next = !frame.keys.insert(name).second;
    frame.key = std::move(name);
    if (frame.drop_next && duplicates_.size() < 100)
      duplicates_.push_back({path(), "is given twice; an object has each field once"});
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& fault) override {
    // Position counts the characters read, the end included.
    const std::size_t at = position > 0 ? position - 1 : 0;
    const std::string_view token = token_around(at);
    if (fault.id == 406)  // the one number that does not fit a double
      throw ConfigError(place(text_, at), quoted_for_message(token) + " is too large for a number");
    if (at >= text_.size()) throw ConfigError(place(text_, at), "the JSON ends before it is complete");
    const std::string_view why = fault.what();
    if (const std::string_view string_fault = between(why, "invalid string: ", "; last read"); !string_fault.empty())
      throw ConfigError(place(text_, at), "a text with a fault: " + std::string(string_fault));
    const std::string_view expected = between(why, "; expected ", "; last read");
    throw ConfigError(place(text_, at),
                      quoted_for_message(token) + " does not belong here" + hint(token, at, expected));
  }

 private:
  struct Frame {
    bool is_array;
    JsonValue::Array elements;
    JsonValue::Object members;
    std::unordered_set<std::string> keys;
    std::string key;
    bool drop_next = false;
  };

  std::string path() const {
    std::string at;
    for (const Frame& frame : stack_)
      at = frame.is_array ? pointer_to(at, frame.elements.size()) : pointer_to(at, frame.key);
    return at;
  }

  bool put(JsonValue value) {
    if (stack_.empty()) {
      root = std::move(value);
    } else if (Frame& frame = stack_.back(); frame.is_array) {
      frame.elements.push_back(std::move(value));
    } else if (!frame.drop_next) {
      frame.members.emplace_back(std::move(frame.key), std::move(value));
    }
    return true;
  }

  bool open(bool is_array) {
    stack_.push_back(Frame{.is_array = is_array});
    return true;
  }

  bool close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    return put(frame.is_array ? JsonValue::array(std::move(frame.elements))
                              : JsonValue::object(std::move(frame.members)));
  }

  /// The word or the sign at `at`.
  std::string_view token_around(std::size_t at) const {
    const auto is_word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '+' ||
             c == '-' || c == '_';
    };
    std::size_t begin = std::min(at, text_.size()), end = begin;
    while (end < text_.size() && is_word(text_[end])) ++end;
    while (end > begin && begin > 0 && is_word(text_[begin - 1])) --begin;
    return end > begin ? text_.substr(begin, end - begin) : text_.substr(begin, utf8_length(text_.substr(begin)));
  }

  static std::string_view between(std::string_view text, std::string_view before, std::string_view after) {
    const std::size_t begin = text.find(before);
    if (begin == text.npos) return "";
    text.remove_prefix(begin + before.size());
    return text.substr(0, text.find(after));
  }

  std::string hint(std::string_view token, std::size_t at, std::string_view expected) const {
    if (token == "/") return "; JSON has no comments";
    if (token == "'") return "; text goes in double quotes";
    std::string letters;  // the token's letters, in lower case
    for (const char c : token)
      if (std::isalpha(static_cast<unsigned char>(c))) letters += static_cast<char>(std::tolower(c));
    if (letters.starts_with("nan") || letters.starts_with("inf")) return "; a number is finite";
    const std::string_view before = text_.substr(0, at);
    const std::size_t previous = before.find_last_not_of(" \t\r\n");
    if ((token == "]" || token == "}") && previous != before.npos && before[previous] == ',')
      return "; drop the comma before it";
    if (!expected.empty()) return "; expected " + std::string(expected);
    return letters.empty() ? "" : "; the only words without quotes are true, false and null";
  }

  std::string_view text_;
  std::vector<Violation>& duplicates_;
  std::vector<Frame> stack_;
};

}  // namespace

JsonValue JsonValue::parse(std::string_view text, std::vector<Violation>* duplicates) {
  scan(text);
  std::vector<Violation> own;
  Builder builder(text, duplicates ? *duplicates : own);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (!own.empty()) throw ConfigError(std::move(own));
  return std::move(builder.root);
}

}  // namespace kernelwright
