// Characters are compared by value, not through <cctype>: the text may hold any byte, and the locale must not matter.
#include "kernelwright/runtime/emulator/ptx/lexer.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <limits>

#include "kernelwright/runtime/emulator/ptx/parser.h"

namespace kernelwright::emulator {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '$' || c == '%';
}
bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// The digit's value in any base up to 16, or 99.
unsigned digit_value(char c) {
  if (is_digit(c)) return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return 99;
}

/// The value of `digits` in `base`. Nothing if a character is no digit of the base or the value exceeds 64 bits.
bool read_digits(std::string_view digits, unsigned base, std::uint64_t& value) {
  if (digits.empty()) return false;
  value = 0;
  for (const char c : digits) {
    const unsigned digit = digit_value(c);
    if (digit >= base || value > (std::numeric_limits<std::uint64_t>::max() - digit) / base) return false;
    value = value * base + digit;
  }
  return true;
}

/// Whether a token that begins with a digit is a decimal number with a point or an exponent.
bool is_decimal(std::string_view text) {
  const bool marked = text.size() > 1 && text[0] == '0' && text[1] != '.' && !is_digit(text[1]);  // 0x, 0f, 0d, 0b
  return text.find('.') != std::string_view::npos ||
         ((!marked || (text[1] | 0x20) == 'e') && text.find_first_of("eE") != std::string_view::npos);
}

}  // namespace

std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kMost)) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out + (text.size() > kMost ? "...'" : "'");
}

std::string shown(const Token& token) {
  return token.kind == Token::Kind::kEnd ? "the end of the text" : shown(token.text);
}

void refuse_token(const Token& found, std::string_view expected) {
  throw PtxError(found.line, fmt::format("found {} where {} was expected", shown(found), expected));
}

Token Lexer::next() {
  const Token token = ahead_;
  scan();
  return token;
}

bool Lexer::take(char sign) {
  if (!ahead_.is(sign)) return false;
  scan();
  return true;
}

Token Lexer::expect(char sign, std::string_view what) {
  if (!ahead_.is(sign)) refuse_token(ahead_, fmt::format("'{}' {}", sign, what));
  return next();
}

Token Lexer::expect(Token::Kind kind, std::string_view what) {
  if (ahead_.kind != kind) refuse_token(ahead_, what);
  return next();
}

std::uint64_t Lexer::integer(std::uint64_t limit, std::string_view what) {
  const Token token = expect(Token::Kind::kNumber, what);
  const Number number = number_of(token);
  if (number.kind != Number::Kind::kInteger) refuse_token(token, what);
  if (number.bits > limit)
    throw PtxError(token.line, fmt::format("{} as {} is too large; {} would do", token.text, what, limit));
  return number.bits;
}

std::int64_t Lexer::signed_integer(std::string_view what) {
  const bool negative = take('-');
  const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const std::uint64_t magnitude = integer(negative ? most + 1 : most, what);
  return static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude);
}

void Lexer::skip_blanks() {
  while (at_ < text_.size()) {
    if (is_blank(text_[at_])) {
      line_ += text_[at_++] == '\n';
    } else if (text_.compare(at_, 2, "//") == 0) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (text_.compare(at_, 2, "/*") == 0) {
      const std::size_t end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) throw PtxError(line_, "the comment that begins here has no end");
      for (; at_ < end + 2; ++at_) line_ += text_[at_] == '\n';
    } else {
      return;
    }
  }
}

void Lexer::skip_definition() {
  at_ = static_cast<std::size_t>(ahead_.text.data() - text_.data());
  line_ = ahead_.line;
  bool pragma = false;  // a .pragma before the body has its own ';'
  for (int open = 0;;) {
    skip_blanks();
    if (at_ == text_.size()) refuse_token({Token::Kind::kEnd, {}, line_}, "the '}' that ends a body");
    const char c = text_[at_];
    if (c == '"') at_ = std::min(text_.find_first_of("\"\n", at_ + 1), text_.size() - 1);
    if (open == 0 && text_.compare(at_, 7, ".pragma") == 0) pragma = true;
    if (text_[at_] != '\n') ++at_;
    open += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c == '}' && open <= 0) break;
    if (c != ';' || open > 0) continue;
    if (!pragma) break;
    pragma = false;
  }
  scan();
}

void Lexer::scan() {
  skip_blanks();
  const std::size_t begin = at_;
  ahead_ = {Token::Kind::kEnd, text_.substr(begin, 0), line_};
  if (begin == text_.size()) return;
  const auto at = [&](std::size_t position) { return position < text_.size() ? text_[position] : '\0'; };
  const char first = text_[begin];
  if (is_name(first)) {
    ahead_.kind = is_digit(first) ? Token::Kind::kNumber : Token::Kind::kWord;
    for (;;) {
      if (is_name(at(at_))) {
        ++at_;
      } else if (at(at_) == '.' && is_name(at(at_ + 1))) {
        ++at_;
      } else if (at(at_) == ':' && at(at_ + 1) == ':' && is_name(at(at_ + 2))) {
        at_ += 2;
      } else if (ahead_.kind == Token::Kind::kNumber && (at(at_) == '-' || at(at_) == '+') && is_digit(at(at_ + 1)) &&
                 (text_[at_ - 1] | 0x20) == 'e' && is_decimal(text_.substr(begin, at_ - begin))) {
        ++at_;
      } else {
        break;
      }
    }
  } else if (first == '.' && is_name(at(begin + 1))) {
    ahead_.kind = Token::Kind::kDirective;
    for (++at_; is_name(at(at_)); ++at_) {
    }
  } else if (first == '"') {
    const std::size_t end = text_.find_first_of("\"\n", begin + 1);
    if (end == std::string_view::npos || text_[end] == '\n') throw PtxError(line_, "a string has no end on its line");
    at_ = end + 1;
    ahead_ = {Token::Kind::kString, text_.substr(begin + 1, end - begin - 1), line_};
    return;
  } else if (std::string_view(",;:{}[]()@!|+-=<>").find(first) != std::string_view::npos) {
    ahead_.kind = Token::Kind::kSign;
    ++at_;
  } else {
    throw PtxError(line_, fmt::format("found {}, which begins nothing in PTX", shown(text_.substr(begin, 1))));
  }
  ahead_.text = text_.substr(begin, at_ - begin);
}

Number number_of(const Token& token) {
  std::string_view text = token.text;
  Number number;
  const char mark = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '\0';
  if (mark == 'f' || mark == 'd') {
    number.kind = mark == 'f' ? Number::Kind::kFloat32 : Number::Kind::kFloat64;
    const std::size_t digits = mark == 'f' ? 8 : 16;
    if (text.size() != digits + 2 || !read_digits(text.substr(2), 16, number.bits))
      throw PtxError(token.line,
                     fmt::format("found {}; 0{} and {} hexadecimal digits would do", shown(token), mark, digits));
    return number;
  }
  if (is_decimal(text)) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      throw PtxError(token.line, fmt::format("found {}, which is no number of 64 bits", shown(token)));
    return {Number::Kind::kFloat64, true, std::bit_cast<std::uint64_t>(value)};
  }
  if (text.back() == 'U') text.remove_suffix(1);
  bool read = false;
  if (mark == 'x') {
    read = read_digits(text.substr(2), 16, number.bits);
  } else if (mark == 'b') {
    read = read_digits(text.substr(2), 2, number.bits);
  } else if (text.size() > 1 && text[0] == '0') {
    read = read_digits(text.substr(1), 8, number.bits);
  } else {
    read = read_digits(text, 10, number.bits);
  }
  if (!read) throw PtxError(token.line, fmt::format("found {}, which is no integer of 64 bits", shown(token)));
  return number;
}

}  // namespace kernelwright::emulator
