/// A whole number of a model with the formula that made it. Arithmetic on facts writes the formula, so that an
/// explanation cannot differ from the number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kernelwright {

class Fact {
 public:
  /// A number that stands by itself, as the 2 of "2 * intermediate_size".
  Fact(std::int64_t value = 0);  // NOLINT: numbers join formulas
  /// A number that `words` describe: "hidden_size 4096". `field` is the JSON pointer for messages.
  Fact(std::int64_t value, std::string field, std::string words);

  std::int64_t value() const { return value_; }
  /// "num_attention_heads 32 / tp 2 * head_dim 128"
  const std::string& formula() const { return formula_; }
  /// The JSON pointer of the first field in the formula; "" if it has none.
  const std::string& field() const { return field_; }
  /// "num_attention_heads 32 / tp 2 = 16"; without the result where the formula is one field.
  std::string text() const;

  friend Fact operator+(const Fact& a, const Fact& b);
  friend Fact operator*(const Fact& a, const Fact& b);
  /// Rounded down; the caller has asked whether `b` divides `a`.
  friend Fact operator/(const Fact& a, const Fact& b);

 private:
  enum class Form { kAtom, kProduct, kQuotient, kSum };
  static Fact joined(std::int64_t value, Form form, const Fact& a, const char* sign, const Fact& b);
  std::string inside(Form outer, bool is_right) const;
  std::int64_t value_ = 0;
  std::string field_, formula_;
  Form form_ = Form::kAtom;
};

/// Some of a model's layers, ascending; empty for a part that the model has once.
using Layers = std::vector<int>;

/// "0-31", "0-34 by 2", "0-4, 6-10"; "" for no layer.
std::string layers_text(const Layers& layers);

}  // namespace kernelwright
