#include "kernelwright/generator/problem/epilogue.h"

#include <charconv>
#include <cmath>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/message.h"

namespace kernelwright {
namespace {

/// Words and signs of the text, one at a time.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) { step(); }

  std::string_view word() const { return word_; }
  bool take(std::string_view expected) {
    if (word_ != expected) return false;
    step();
    return true;
  }
  void require(std::string_view expected, std::string_view what) {
    if (!take(expected)) stop(what);
  }
  [[noreturn]] void stop(std::string_view expected) const {
    const std::string found = word_.empty() ? "the end" : "\"" + std::string(word_) + "\"";
    const bool clamps = text_.find("clamp") != std::string_view::npos;
    throw ConfigError(
        "/problem/epilogue",
        quoted_for_message(std::string(text_)) + ": " + found + " where " + std::string(expected) +
            " would do; it takes " +
            (clamps ? "(clamp(up, -7, 7) + 1) * min(gate, 7) * sigmoid(1.702 * min(gate, 7)) with any two numbers"
                    : "activation(alpha * acc + bias) + beta * c, or a part of it that has acc, or activation(gate) * "
                      "up"));
  }
  float number(std::string_view what) {
    float value = 0;
    const auto [end, error] = std::from_chars(word_.data(), word_.data() + word_.size(), value);
    if (word_.empty() || error != std::errc{} || end != word_.data() + word_.size() || !std::isfinite(value))
      stop(what);
    step();
    return value;
  }

 private:
  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }
  static bool is_digit(char c) { return (c >= '0' && c <= '9') || c == '.'; }
  void step() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    std::size_t end = at_;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    while (end < text_.size() && end - at_ < kMostDigits && (end == at_ || is_digit(text_[at_])) &&
           is_digit(text_[end]))
      ++end;
    if (end == at_ && at_ < text_.size()) ++end;  // a sign
    word_ = text_.substr(at_, end - at_);
    at_ = end;
  }
  static constexpr std::size_t kMostDigits = 32;
  std::string_view text_, word_;
  std::size_t at_ = 0;
};

void linear(Words& words, Epilogue& epilogue) {
  if (words.take("alpha")) {
    epilogue.alpha = true;
    words.require("*", "\"*\"");
  }
  words.require("acc", epilogue.alpha ? "acc" : "acc, alpha or an activation");
}

/// A gated product. Gates and ups have alpha and bias alike: the first line says whether, and the others have to agree.
class GatedText {
 public:
  explicit GatedText(std::string_view text) : words_(text) { epilogue_.gated = true; }

  Epilogue parse() {
    if (!clamped()) plain();
    if (!words_.word().empty()) words_.stop("the end");
    return epilogue_;
  }

 private:
  void plain() {
    bool inside = false;
    for (const auto& [activation, name] : EnumTable<Activation>::entries)
      if (activation != Activation::kNone && words_.take(name)) {
        epilogue_.activation = activation;
        inside = true;
        break;
      }
    if (inside) {
      words_.require("(", "\"(\"");
      line("gate");
      words_.require(")", "\")\"");
    } else {
      factor("gate");
    }
    words_.require("*", "\"*\"");
    factor("up");
  }
  bool clamped() {
    Words ahead = words_;
    if (!ahead.take("(") || !ahead.take("clamp")) return false;
    words_ = ahead;
    epilogue_.clamped = true;
    words_.require("(", "\"(\"");
    line("up");
    words_.require(",", "\",\"");
    words_.require("-", "\"-\" and the limit");
    epilogue_.limit = words_.number("the limit, a number");
    words_.require(",", "\",\"");
    limit();
    for (const char* sign : {")", "+", "1", ")", "*"}) words_.require(sign, "\"" + std::string(sign) + "\"");
    least();
    words_.require("*", "\"*\"");
    words_.require("sigmoid", "sigmoid");
    words_.require("(", "\"(\"");
    epilogue_.steepness = words_.number("a number that multiplies the gate");
    words_.require("*", "\"*\"");
    least();
    words_.require(")", "\")\"");
    return true;
  }
  void least() {
    words_.require("min", "min");
    words_.require("(", "\"(\"");
    line("gate");
    words_.require(",", "\",\"");
    limit();
    words_.require(")", "\")\"");
  }
  void limit() {
    const Words here = words_;
    if (words_.number("the limit, a number") != epilogue_.limit) here.stop("the same limit");
  }
  void factor(std::string_view name) {
    // alpha and bias of a factor stand in parentheses, so that the product is what is written.
    if (!words_.take("(")) {
      if (has_lines_ && (epilogue_.alpha || epilogue_.bias))
        words_.stop("\"(\", and alpha and bias as the gate has them");
      has_lines_ = true;
      words_.require(name, "\"(\" or " + std::string(name));
      return;
    }
    line(name);
    words_.require(")", "\")\"");
  }
  void line(std::string_view name) {
    const bool alpha = has_lines_ ? epilogue_.alpha : words_.word() == "alpha";
    if (alpha) {
      words_.require("alpha", "alpha, as the other factor has it");
      words_.require("*", "\"*\"");
    }
    words_.require(name, name);
    const bool bias = has_lines_ ? epilogue_.bias : words_.word() == "+";
    if (bias) {
      words_.require("+", "\"+\" and bias, as the other factor has it");
      words_.require("bias", "bias");
    }
    epilogue_.alpha = alpha, epilogue_.bias = bias, has_lines_ = true;
  }

  Words words_;
  Epilogue epilogue_;
  bool has_lines_ = false;
};

/// Whether the text has gates. Then it has no acc.
bool names_gates(std::string_view text) {
  for (Words words(text); !words.word().empty(); words.take(words.word()))
    if (words.word() == "gate" || words.word() == "up") return true;
  return false;
}

}  // namespace

int result_columns(const GemmProblem& problem) {
  return problem.epilogue != "acc" && names_gates(problem.epilogue) ? problem.n / 2 : problem.n;
}

Epilogue parse_epilogue(std::string_view text) {
  if (names_gates(text)) return GatedText(text).parse();
  Words words(text);
  Epilogue epilogue;
  for (const auto& [activation, name] : EnumTable<Activation>::entries)
    if (activation != Activation::kNone && words.take(name)) {
      epilogue.activation = activation;
      words.require("(", "\"(\"");
      break;
    }
  linear(words, epilogue);
  const bool inside = epilogue.activation != Activation::kNone;
  bool plus = words.take("+");
  if (plus && words.take("bias")) {
    epilogue.bias = true;
    plus = false;
  } else if (plus && inside) {
    words.stop("bias");
  }
  if (inside) words.require(")", epilogue.bias ? "\")\"" : "\"+\" or \")\"");
  if (!plus) plus = words.take("+");
  if (plus) {
    epilogue.c = true;
    if (words.take("beta")) {
      epilogue.beta = true;
      words.require("*", "\"*\"");
    }
    words.require("c", epilogue.beta ? "c" : epilogue.bias || inside ? "c or beta" : "bias, c or beta");
  }
  if (!words.word().empty()) words.stop("the end");
  return epilogue;
}

}  // namespace kernelwright
