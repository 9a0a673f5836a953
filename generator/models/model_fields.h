/// The fields of a model's config.json, each read with its origin. A field that is missing or does not fit throws
/// ConfigError with its JSON pointer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/models/fact.h"

namespace kernelwright {

/// What transformers takes for a field that a config.json of one model type leaves out. A null is not left out.
struct FieldDefault {
  std::string_view field;
  std::int64_t value;
};

class ModelFields {
 public:
  /// `json` is the object at `path` ("" or "/text_config"). Both must outlive this object.
  ModelFields(const JsonValue& json, std::string path, std::string_view model_type,
              std::span<const FieldDefault> defaults)
      : json_(json), path_(std::move(path)), model_type_(model_type), defaults_(defaults) {}

  /// The value, or nullptr where it is left out or null.
  const JsonValue* find(std::string_view field) const;
  std::string pointer(std::string_view field) const { return path_ + "/" + std::string(field); }

  /// A whole number in [1, kMost], from the file, or from the defaults if the file leaves it out.
  Fact whole(std::string_view field) const;
  /// The same, or nothing where neither has it.
  std::optional<Fact> whole_if_given(std::string_view field) const;
  /// The same; a 0 counts as nothing.
  std::optional<Fact> whole_above_zero(std::string_view field) const;
  bool flag(std::string_view field, bool otherwise) const;
  /// A finite number above 0, or nothing.
  std::optional<double> number_if_given(std::string_view field) const;
  /// A word, or "".
  std::string word(std::string_view field) const;
  std::string_view model_type() const { return model_type_; }

  static constexpr std::int64_t kMost = 1 << 24;  // of a config's own numbers

 private:
  std::optional<Fact> whole_from(std::string_view field, std::int64_t least) const;
  const JsonValue& json_;
  std::string path_;
  std::string_view model_type_;
  std::span<const FieldDefault> defaults_;
};

}  // namespace kernelwright
