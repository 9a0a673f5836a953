/// The field lists: every config struct names its fields once, in a visit_fields(). The JSON reader and writer, the
/// JSON Schema, the generated docs, the Spec's canonical text and the cache key all walk it.
///
///   template <class Visitor> void visit_fields(Heads& heads, Visitor&& field) {
///     field("q", heads.q, range{1, 1024}, "query heads");
///   }
///
/// A rule says which values a field may have; `doc` is one line for people.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace kernelwright {

/// Whole numbers from `low` to `high` in steps of `step` (counted from low).
struct range {
  std::int64_t low, high, step = 1;
};
/// Finite numbers from `low` to `high`.
struct real_range {
  double low, high;
};
/// Text of at most `max_length` bytes without control characters. A required field must be present in the JSON.
struct text {
  int max_length = 128;
};
/// As text, with line breaks.
struct lines {
  int max_length = 65536;
};
/// No rule beyond the type: an enum's words, a bool, a nested struct.
struct any {};
/// As R, and the field must be present.
template <class R>
struct required {
  R rule;
};
template <class R>
required(R) -> required<R>;

/// A value that a config may leave to the planner by writing "auto" (the default).
template <class T>
class Auto {
 public:
  Auto() = default;
  Auto(T value) : value_(std::move(value)) {}
  bool is_auto() const { return !value_; }
  const T& value() const { return *value_; }
  T value_or(T fallback) const { return value_.value_or(std::move(fallback)); }
  bool operator==(const Auto&) const = default;

 private:
  std::optional<T> value_;
};

}  // namespace kernelwright
