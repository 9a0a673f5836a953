/// A JSON document in memory. --json output is built with it, and configs are read from it. Members keep their order.
/// Users of this header need no JSON library's header.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kernelwright/generator/error.h"

namespace kernelwright {

/// One JSON value. Copies are deep.
///
///   JsonValue::object().set("key", spec.key).set("times_ms", JsonValue::array({1.5, 1.6})).dump()
class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Member = std::pair<std::string, JsonValue>;
  using Object = std::vector<Member>;

  JsonValue() = default;  // null
  JsonValue(bool value) : value_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonValue(T value) {
    if constexpr (std::signed_integral<T>)
      value_ = static_cast<std::int64_t>(value);
    else
      set_unsigned(value);
  }
  JsonValue(double value) : value_(value) {}
  JsonValue(std::string value) : value_(std::move(value)) {}
  JsonValue(std::string_view value) : value_(std::string(value)) {}
  JsonValue(const char* value) : value_(std::string(value)) {}

  static JsonValue array(Array elements = {}) { return JsonValue(Variant(std::move(elements))); }
  static JsonValue object(Object members = {}) { return JsonValue(Variant(std::move(members))); }

  /// Adds a member, or replaces the one of that name. The value must be an object.
  JsonValue& set(std::string_view key, JsonValue value);
  /// Adds an element. The value must be an array.
  JsonValue& push(JsonValue value);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  /// Written without fraction and exponent, and within 64 bits.
  bool is_integer() const { return is_int64() || std::holds_alternative<std::uint64_t>(value_); }
  bool is_int64() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  /// "null", "a bool", "a number", "text", "an array" or "an object", for messages.
  std::string_view kind() const;

  /// The value as that type. Throws Error if it is another.
  bool as_bool() const;
  std::int64_t as_int() const;
  double as_double() const;
  const std::string& as_string() const;
  const Array& elements() const;
  const Object& members() const;
  /// The member of that name; nullptr if there is none or the value is no object.
  const JsonValue* find(std::string_view key) const;
  /// The value that a JSON pointer names: at("/shapes/0/name"). Throws Error if there is none.
  const JsonValue& at(std::string_view pointer) const;

  /// Returns the text, escaped to valid UTF-8 for any strings; non-finite numbers become null. A level is indented by
  /// `indent` spaces. An aggregate that fits into `width` columns stays on one line. A negative indent gives one line
  /// without spaces.
  std::string dump(int indent = 2, int width = 110) const;

  /// Reads any text of at most kMaxBytes, nested at most kMaxDepth deep. Throws ConfigError with the line and column of
  /// the first fault. A key that an object has twice is a fault too. With `duplicates`, that fault is added there
  /// instead, under its path, and the first value is kept.
  static JsonValue parse(std::string_view text, std::vector<Violation>* duplicates = nullptr);
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
  static constexpr int kMaxDepth = 64;

  bool operator==(const JsonValue&) const = default;

 private:
  using Variant = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array, Object>;
  explicit JsonValue(Variant value) : value_(std::move(value)) {}
  void set_unsigned(std::uint64_t value);
  void write(std::string& out, int indent, int width, int level) const;
  std::string scalar() const;
  [[noreturn]] void is_not(std::string_view wanted) const;
  Variant value_;
};

}  // namespace kernelwright
