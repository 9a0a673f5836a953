#include "kernelwright/generator/json/document.h"

#include "kernelwright/generator/message.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace kernelwright {

void JsonValue::set_unsigned(std::uint64_t value) {
  // Each number has one form, so that equal numbers compare equal.
  if (value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    value_ = static_cast<std::int64_t>(value);
  else
    value_ = value;
}

void JsonValue::is_not(std::string_view wanted) const {
  throw Error("JSON value is " + std::string(kind()) + ", not " + std::string(wanted));
}

JsonValue& JsonValue::set(std::string_view key, JsonValue value) {
  auto* members = std::get_if<Object>(&value_);
  if (!members) is_not("an object");
  for (auto& [name, old] : *members) {
    if (name != key) continue;
    old = std::move(value);
    return *this;
  }
  members->emplace_back(std::string(key), std::move(value));
  return *this;
}

JsonValue& JsonValue::push(JsonValue value) {
  auto* elements = std::get_if<Array>(&value_);
  if (!elements) is_not("an array");
  elements->push_back(std::move(value));
  return *this;
}

std::string_view JsonValue::kind() const {
  static constexpr std::string_view kNames[] = {"null",     "a bool", "a number", "a number",
                                                "a number", "text",   "an array", "an object"};
  return kNames[value_.index()];
}

bool JsonValue::as_bool() const {
  if (!is_bool()) is_not("a bool");
  return std::get<bool>(value_);
}

std::int64_t JsonValue::as_int() const {
  if (!is_int64()) is_not("a whole number of 63 bits");
  return std::get<std::int64_t>(value_);
}

double JsonValue::as_double() const {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*value);
  is_not("a number");
}

const std::string& JsonValue::as_string() const {
  if (!is_string()) is_not("text");
  return std::get<std::string>(value_);
}

const JsonValue::Array& JsonValue::elements() const {
  if (!is_array()) is_not("an array");
  return std::get<Array>(value_);
}

const JsonValue::Object& JsonValue::members() const {
  if (!is_object()) is_not("an object");
  return std::get<Object>(value_);
}

const JsonValue* JsonValue::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : std::get<Object>(value_))
    if (name == key) return &value;
  return nullptr;
}

const JsonValue& JsonValue::at(std::string_view pointer) const {
  const JsonValue* here = this;
  for (std::size_t begin = 0; begin < pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', begin + 1), pointer.size());
    const std::string_view token = pointer.substr(begin + 1, end - begin - 1);
    const JsonValue* next = nullptr;
    if (here->is_array()) {
      std::size_t index = 0;
      const auto [stop, fault] = std::from_chars(token.data(), token.data() + token.size(), index);
      if (fault == std::errc() && stop == token.data() + token.size() && index < here->elements().size())
        next = &here->elements()[index];
    } else {
      std::string key;
      for (std::size_t i = 0; i < token.size(); ++i) {
        const bool escape = token[i] == '~' && i + 1 < token.size();
        key += escape ? (token[++i] == '1' ? '/' : '~') : token[i];
      }
      next = here->find(key);
    }
    if (pointer[begin] != '/' || !next) throw Error("JSON has nothing at " + std::string(pointer.substr(0, end)));
    here = next;
    begin = end;
  }
  return *here;
}

std::string JsonValue::scalar() const {
  if (is_null()) return "null";
  if (is_bool()) return as_bool() ? "true" : "false";
  if (is_string()) return json_quoted(as_string());
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return std::to_string(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return std::to_string(*value);
  const double number = std::get<double>(value_);
  if (!std::isfinite(number)) return "null";
  char digits[40];
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
  if (text.find_first_of(".e") == text.npos) text += ".0";  // so that it is read back as a real number
  return text;
}

// One walk writes all forms. It first writes an aggregate on one line (level < 0 means "on one line"). If that is too
// wide, it writes the aggregate again over several lines. Nesting is shallow, so the second writing costs little.
void JsonValue::write(std::string& out, int indent, int width, int level) const {
  if (!is_array() && !is_object()) {
    out += scalar();
    return;
  }
  const std::size_t count = is_array() ? elements().size() : members().size();
  const bool one_line = level < 0 || count == 0;
  const std::size_t begin = out.size();
  if (!one_line && level > 0) {
    const std::size_t line = out.rfind('\n') + 1;  // npos + 1 is 0
    write(out, indent, width, -1);
    if (out.size() - line <= static_cast<std::size_t>(width)) return;
    out.resize(begin);
  }
  const auto new_line = [&](int at) { out.append("\n").append(static_cast<std::size_t>(at) * indent, ' '); };
  out += is_array() ? '[' : '{';
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += one_line && indent >= 0 ? ", " : ",";
    if (!one_line) new_line(level + 1);
    if (is_object()) out.append(json_quoted(members()[i].first)).append(indent >= 0 ? ": " : ":");
    (is_array() ? elements()[i] : members()[i].second).write(out, indent, width, one_line ? -1 : level + 1);
  }
  if (!one_line) new_line(level);
  out += is_array() ? ']' : '}';
}

std::string JsonValue::dump(int indent, int width) const {
  std::string out;
  write(out, indent, width, indent < 0 ? -1 : 0);
  return out;
}

}  // namespace kernelwright
