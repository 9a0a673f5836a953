#include "kernelwright/generator/models/fact.h"

#include <cstddef>

namespace kernelwright {

Fact::Fact(std::int64_t value) : value_(value), formula_(std::to_string(value)) {}
Fact::Fact(std::int64_t value, std::string field, std::string words)
    : value_(value), field_(std::move(field)), formula_(std::move(words)) {}

std::string Fact::text() const { return form_ == Form::kAtom ? formula_ : formula_ + " = " + std::to_string(value_); }

std::string Fact::inside(Form outer, bool is_right) const {
  const bool splits = form_ == Form::kSum || (form_ == Form::kQuotient && is_right);
  return splits && outer != Form::kSum ? "(" + formula_ + ")" : formula_;
}

Fact Fact::joined(std::int64_t value, Form form, const Fact& a, const char* sign, const Fact& b) {
  Fact result(value, a.field_.empty() ? b.field_ : a.field_, a.inside(form, false) + sign + b.inside(form, true));
  result.form_ = form;
  return result;
}

Fact operator+(const Fact& a, const Fact& b) {
  return Fact::joined(a.value_ + b.value_, Fact::Form::kSum, a, " + ", b);
}
Fact operator*(const Fact& a, const Fact& b) {
  return Fact::joined(a.value_ * b.value_, Fact::Form::kProduct, a, " * ", b);
}
Fact operator/(const Fact& a, const Fact& b) {
  return Fact::joined(b.value_ ? a.value_ / b.value_ : 0, Fact::Form::kQuotient, a, " / ", b);
}

std::string layers_text(const Layers& layers) {
  const auto range = [](int first, int last) {
    return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
  };
  if (layers.empty()) return "";
  if (layers.size() > 2 && layers[1] - layers[0] > 1) {
    const int step = layers[1] - layers[0];
    bool even = true;
    for (std::size_t i = 1; i < layers.size(); ++i) even = even && layers[i] - layers[i - 1] == step;
    if (even) return range(layers.front(), layers.back()) + " by " + std::to_string(step);
  }
  std::string text;
  for (std::size_t first = 0, next; first < layers.size(); first = next) {
    for (next = first + 1; next < layers.size() && layers[next] == layers[next - 1] + 1;) ++next;
    text += (text.empty() ? "" : ", ") + range(layers[first], layers[next - 1]);
  }
  return text;
}

}  // namespace kernelwright
