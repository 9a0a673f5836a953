#include "kernelwright/generator/problem/epilogue.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <utility>

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
    std::string text = quoted_for_message(std::string(text_)) + ": ";
    if (word_.empty())
      text.append("the end");
    else
      text.append("\"").append(word_).append("\"");
    text.append(" where ").append(expected).append(" would do; it takes ").append(what_it_takes());
    throw ConfigError("/problem/epilogue", std::move(text));
  }
  /// Whether the text has the word.
  bool names(std::string_view word) const {
    for (Words words(text_); !words.word_.empty(); words.step())
      if (words.word_ == word) return true;
    return false;
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
  std::string_view what_it_takes() const {
    if (names("amax") || names("squares"))
      return "x = ...; d = x, or d = quantize(x, ...), and amax = amax(x) or squares = sum(x * x, over=n) behind it";
    if (names("quantize"))
      return "d = quantize(x, e4m3, per=token_group(128), scale=s) behind x = ...;, with round=power_of_two besides or "
             "without; of mxfp8 and mxfp4 token_group(32), with round=up or ocp, of nvfp4 token_group(16), with "
             "layout=rows or atoms";
    if (names("clamp"))
      return "(clamp(up, -7, 7) + 1) * min(gate, 7) * sigmoid(1.702 * min(gate, 7)) with any two numbers";
    return "activation(alpha * acc + bias) + beta * c, or a part of it that has acc, or activation(gate) * up";
  }
  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }
  static bool is_digit(char c) { return (c >= '0' && c <= '9') || c == '.'; }
  void step() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    std::size_t end = at_;
    if (end < text_.size() && is_letter(text_[end])) {
      while (end < text_.size() && (is_letter(text_[end]) || (is_digit(text_[end]) && text_[end] != '.'))) ++end;
    } else {
      while (end < text_.size() && end - at_ < kMostDigits && is_digit(text_[end])) ++end;
    }
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
  if (words.take("rstd")) {
    epilogue.rstd = true;
    words.require("*", "\"*\"");
  }
  words.require("acc", epilogue.rstd ? "acc" : epilogue.alpha ? "acc" : "acc, alpha or an activation");
}

/// A gated product. Gates and ups have alpha and bias alike: the first line says whether, and the others have to agree.
class GatedText {
 public:
  explicit GatedText(Words& words) : words_(words) { epilogue_.gated = true; }

  Epilogue parse() {
    if (!clamped()) plain();
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
      if (has_lines_ && (epilogue_.alpha || epilogue_.rstd || epilogue_.bias))
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
    const bool rstd = has_lines_ ? epilogue_.rstd : words_.word() == "rstd";
    if (rstd) {
      words_.require("rstd", "rstd, as the other factor has it");
      words_.require("*", "\"*\"");
    }
    words_.require(name, name);
    const bool bias = has_lines_ ? epilogue_.bias : words_.word() == "+";
    if (bias) {
      words_.require("+", "\"+\" and bias, as the other factor has it");
      words_.require("bias", "bias");
    }
    epilogue_.alpha = alpha, epilogue_.rstd = rstd, epilogue_.bias = bias, has_lines_ = true;
  }

  Words& words_;
  Epilogue epilogue_;
  bool has_lines_ = false;
};

/// Whether the text has gates. Then it has no acc. In a result that is quantised, up may also be a rounding.
bool names_gates(const Words& words) { return words.names("gate") || (words.names("up") && !words.names("=")); }

/// The epilogue of sums that are no gates.
Epilogue plain_value(Words& words) {
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
  return epilogue;
}

Epilogue value_of(Words& words) { return names_gates(words) ? GatedText(words).parse() : plain_value(words); }

/// A program of outputs, ahead of them maybe the value under a name.
class OutputsText {
 public:
  explicit OutputsText(Words& words) : words_(words) {}

  Epilogue parse() {
    if (words_.word() != "d") {
      name_ = new_name();
      words_.require("=", "\"=\"");
      epilogue_ = value_of(words_);
      words_.require(";", "\";\"");
    }
    output();
    while (words_.take(";"))
      if (!words_.word().empty()) output();
    if (!stores_) words_.stop("d = ...");
    return epilogue_;
  }

 private:
  void require(std::initializer_list<std::string_view> expected) {
    for (const std::string_view word : expected) words_.require(word, "\"" + std::string(word) + "\"");
  }
  void require_name() { words_.require(name_, name_.empty() ? "a name of the value ahead of the outputs" : name_); }
  void output() {
    const Words here = words_;
    if (!stores_ && words_.take("d")) {
      stores_ = true;
      require({"="});
      if (words_.word() == "quantize")
        quantized();
      else if (!name_.empty() && words_.word() == name_)
        words_.take(name_);
      else
        words_.stop(name_.empty() ? "\"quantize\"" : "\"quantize\" or " + std::string(name_));
    } else if (!epilogue_.amax && words_.take("amax")) {
      epilogue_.amax = true;
      require({"=", "amax", "("});
      require_name();
      require({")"});
    } else if (!epilogue_.squares && words_.take("squares")) {
      epilogue_.squares = true;
      require({"=", "sum", "("});
      require_name();
      require({"*"});
      require_name();
      require({",", "over", "=", "n", ")"});
    } else {
      here.stop(stores_ ? "another output, amax or squares," : "\"d\"");
    }
  }
  void quantized() {
    require({"quantize", "("});
    if (!name_.empty())
      require_name();
    else
      epilogue_ = value_of(words_);
    words_.require(",", "\",\" and a format");
    epilogue_.quantizes = true;
    format();
    while (words_.take(",")) option();
    if (!per_) words_.stop("per=token_group(" + columns() + ")");
    if (!scale_) words_.stop("scale=s");
    words_.require(")", "\",\" or \")\"");
  }
  std::string_view new_name() {
    constexpr std::string_view kTaken[] = {"acc",     "gate", "up",      "bias", "c",        "d",
                                           "s",       "min",  "alpha",   "beta", "quantize", "clamp",
                                           "sigmoid", "amax", "squares", "sum",  "rstd",     ""};
    const std::string_view name = words_.word();
    const bool letter = !name.empty() && ((name[0] >= 'a' && name[0] <= 'z') || name[0] == '_');
    bool taken = !letter || std::find(std::begin(kTaken), std::end(kTaken), name) != std::end(kTaken);
    for (const auto& [activation, word] : EnumTable<Activation>::entries) taken = taken || name == word;
    if (taken) words_.stop("d, or a new name of the value,");
    words_.take(name);
    return name;
  }
  void format() {
    for (const DType format : {DType::kE4m3, DType::kE5m2, DType::kMxfp8, DType::kMxfp4, DType::kNvfp4})
      if (words_.take(to_string(format))) {
        epilogue_.to = format;
        return;
      }
    words_.stop("e4m3, e5m2, mxfp8, mxfp4 or nvfp4");
  }
  std::string columns() const { return std::to_string(epilogue_.scaled_columns()); }
  void option() {
    const Words here = words_;
    if (words_.take("per")) {
      if (per_) here.stop("another option");
      for (const std::string& word :
           {std::string("="), std::string("token_group"), std::string("("), columns(), std::string(")")})
        words_.require(word, word);
      per_ = true;
    } else if (words_.take("scale")) {
      if (scale_) here.stop("another option");
      for (const char* word : {"=", "s"}) words_.require(word, std::string(word));
      scale_ = true;
    } else if (epilogue_.makes_blocks() && words_.take("layout")) {
      if (layout_) here.stop("another option");
      layout_ = true;
      words_.require("=", "\"=\"");
      epilogue_.rows_of_scales = words_.take("rows");
      if (!epilogue_.rows_of_scales) words_.require("atoms", "atoms or rows");
    } else {
      rounding();
    }
  }
  void rounding() {
    const Words here = words_;
    if (epilogue_.to == DType::kNvfp4) words_.stop("per, scale or layout");
    words_.require("round", epilogue_.makes_blocks() ? "per, scale, round or layout" : "per, scale or round");
    if (round_) here.stop("another option");
    round_ = true;
    words_.require("=", "=");
    if (!epilogue_.makes_blocks()) {
      words_.require("power_of_two", "power_of_two");
      epilogue_.power_of_two = true;
    } else if (!words_.take("ocp")) {
      words_.require("up", "ocp or up");
      epilogue_.round_up = true;
    }
  }

  Words& words_;
  Epilogue epilogue_;
  std::string_view name_;  // of the value; "": it has none
  bool stores_ = false, per_ = false, scale_ = false, round_ = false, layout_ = false;
};

}  // namespace

int result_columns(const GemmProblem& problem) {
  if (problem.kv_write) return problem.kv_write->heads.q * problem.kv_write->head_dim.qk;
  return problem.epilogue != "acc" && names_gates(Words(problem.epilogue)) ? problem.n / 2 : problem.n;
}

bool quantizes(const GemmProblem& problem) { return Words(problem.epilogue).names("quantize"); }
bool measures(const GemmProblem& problem) {
  const Words words(problem.epilogue);
  return words.names("amax") || words.names("squares");
}

Epilogue parse_epilogue(std::string_view text) {
  Words words(text);
  const Epilogue epilogue = words.names("=") ? OutputsText(words).parse() : value_of(words);
  if (!words.word().empty()) words.stop("the end");
  return epilogue;
}

}  // namespace kernelwright
