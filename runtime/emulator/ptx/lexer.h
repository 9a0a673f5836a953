/// PTX text as words, directives, numbers, strings and signs, each with its line. One token of lookahead.
///
/// A word includes the dots and double colons that touch it. So an opcode with its modifiers is one token
/// ("mbarrier.init.shared::cta.b64"), and so is "%tid.x". A directive is one ".name": ".reg.b32" is two directives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kernelwright::emulator {

struct Token {
  enum class Kind : std::uint8_t { kEnd, kWord, kDirective, kNumber, kString, kSign };
  Kind kind = Kind::kEnd;
  std::string_view text;  // a directive with its dot, a string without its quotes
  int line = 1;

  bool is(char sign) const { return kind == Kind::kSign && text[0] == sign; }
  bool is(std::string_view directive) const { return kind == Kind::kDirective && text == directive; }
};

/// A number as spelt. An integer fits into 64 bits; its sign is a separate token.
struct Number {
  enum class Kind : std::uint8_t { kInteger, kFloat32, kFloat64 };
  Kind kind = Kind::kInteger;
  bool decimal = false;  // 1.5 or 1e-3: `bits` are those of the double
  std::uint64_t bits = 0;
};

/// How a message shows a token: in quotes, clipped, with bytes outside ASCII escaped; "the end of the text" at the end.
std::string shown(const Token& token);
std::string shown(std::string_view text);

class Lexer {
 public:
  /// Throws PtxError if the text does not begin with a token.
  explicit Lexer(std::string_view text) : text_(text) { scan(); }

  const Token& peek() const { return ahead_; }
  /// These throw PtxError if the text after the token is no token: a stray character, or a string or comment without an
  /// end.
  Token next();
  /// Takes the lookahead if it is `sign`.
  bool take(char sign);

  /// The next token, which must be of this kind. `what` tells the message what was expected.
  Token expect(char sign, std::string_view what);
  Token expect(Token::Kind kind, std::string_view what);

  /// Skips from the lookahead, somewhere after the name of an entry or function, to the end of its body, or past the
  /// ';' if it has no body. The skipped text need not be tokens, so it may contain what this parser does not know. Only
  /// comments, strings and braces are read. Throws PtxError if the text ends first.
  void skip_definition();

  /// An unsigned integer of at most `limit`; messages call it `what`.
  std::uint64_t integer(std::uint64_t limit, std::string_view what);
  /// An integer with an optional minus, in 64 bits.
  std::int64_t signed_integer(std::string_view what);

 private:
  void scan();
  void skip_blanks();

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  Token ahead_;
};

/// The value of a number token. Throws PtxError for another token, a number that does not fit, or a decimal float.
Number number_of(const Token& token);

/// Throws "found X where Y was expected".
[[noreturn]] void refuse_token(const Token& found, std::string_view expected);

}  // namespace kernelwright::emulator
