#include "kernelwright/generator/problem/epilogue.h"

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
    throw ConfigError("/problem/epilogue", quoted_for_message(std::string(text_)) + ": " + found + " where " +
                                               std::string(expected) +
                                               " would do; it takes activation(alpha * acc + bias) + beta * c, or a "
                                               "part of it that has acc");
  }

 private:
  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || c == '_'; }
  void step() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    std::size_t end = at_;
    while (end < text_.size() && is_letter(text_[end])) ++end;
    if (end == at_ && at_ < text_.size()) ++end;  // a sign
    word_ = text_.substr(at_, end - at_);
    at_ = end;
  }
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

}  // namespace

Epilogue parse_epilogue(std::string_view text) {
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
