// Operands, in every form of the PTX ISA's chapter on operands that the modelled instructions use.
#include <fmt/core.h>

#include <algorithm>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "kernelwright/runtime/emulator/ptx/reader.h"

namespace kernelwright::emulator {
namespace {

// PTX ISA, "Special Registers". Those with four components are named with a component.
constexpr std::string_view kOfComponents[] = {"%tid",       "%ntid",       "%ctaid",         "%nctaid",
                                              "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"};
constexpr std::string_view kPlain[] = {"%laneid",
                                       "%warpid",
                                       "%nwarpid",
                                       "%smid",
                                       "%nsmid",
                                       "%gridid",
                                       "%is_explicit_cluster",
                                       "%cluster_ctarank",
                                       "%cluster_nctarank",
                                       "%lanemask_eq",
                                       "%lanemask_le",
                                       "%lanemask_lt",
                                       "%lanemask_ge",
                                       "%lanemask_gt",
                                       "%clock",
                                       "%clock_hi",
                                       "%clock64",
                                       "%globaltimer",
                                       "%globaltimer_lo",
                                       "%globaltimer_hi",
                                       "%reserved_smem_offset_begin",
                                       "%reserved_smem_offset_end",
                                       "%reserved_smem_offset_cap",
                                       "%reserved_smem_offset_0",
                                       "%reserved_smem_offset_1",
                                       "%total_smem_size",
                                       "%aggr_smem_size",
                                       "%dynamic_smem_size",
                                       "%current_graph_exec"};

/// %envreg0 and the like: `prefix`, a number of one or two digits, and perhaps `_64`. The decoder bounds the number.
bool is_numbered(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  if (prefix == "%pm" && name.ends_with("_64")) name.remove_suffix(3);
  return !name.empty() && name.size() <= 2 && name.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_special_register(std::string_view name) {
  if (is_numbered(name, "%envreg") || is_numbered(name, "%pm")) return true;
  if (std::find(std::begin(kPlain), std::end(kPlain), name) != std::end(kPlain)) return true;
  if (name.size() < 2 || name[name.size() - 2] != '.') return false;
  if (std::string_view("xyzw").find(name.back()) == std::string_view::npos) return false;
  name.remove_suffix(2);
  return std::find(std::begin(kOfComponents), std::end(kOfComponents), name) != std::end(kOfComponents);
}

}  // namespace

void Reader::expect_predicate(const Operand& operand, const Token& at) const {
  if (operand.kind != Operand::Kind::kRegister ||
      body_->registers[static_cast<std::size_t>(operand.reg)] != RegisterClass::kPredicate)
    refuse_token(at, "a predicate register");
}

Operand Reader::read_operand() {
  if (lexer_.peek().is('{')) return read_vector();
  if (lexer_.peek().is('[')) return read_address();
  Operand operand = read_scalar();
  const bool pairs = operand.kind == Operand::Kind::kRegister || operand.kind == Operand::Kind::kSink;
  if (pairs && lexer_.take('|')) {
    const Token word = lexer_.expect(Token::Kind::kWord, "a register");
    const Operand second = read_named(word);
    if (second.kind != Operand::Kind::kSink) expect_predicate(second, word);
    operand.paired = second.reg;
  }
  return operand;
}

Operand Reader::read_scalar() {
  const bool negated = lexer_.take('!');
  const bool minus = !negated && lexer_.take('-');
  const Token token = lexer_.next();
  if (token.is('('))
    throw PtxError(token.line, "found '(' in an operand; constant expressions are not read, only their value would do");
  if (token.kind == Token::Kind::kWord) {
    if (minus) refuse_token(token, "a number behind '-'");
    Operand operand = read_named(token);
    if (negated) expect_predicate(operand, token);
    operand.negated = negated;
    return operand;
  }
  if (token.kind != Token::Kind::kNumber || negated)
    refuse_token(token, negated ? "a predicate register" : "an operand");
  const Number number = number_of(token);
  Operand operand;
  operand.kind = Operand::Kind::kImmediate;
  operand.immediate = number.bits;
  operand.floating = number.kind != Number::Kind::kInteger;
  if (minus && operand.floating) {
    operand.immediate ^= std::uint64_t{1} << (number.kind == Number::Kind::kFloat32 ? 31 : 63);
  } else if (minus) {
    if (number.bits > std::uint64_t{1} << 63) refuse_token(token, "a number behind '-' that fits 64 bits");
    operand.immediate = 0 - number.bits;
  }
  return operand;
}

Operand Reader::read_named(const Token& word) {
  Operand operand;
  if (word.text == "_") return operand;
  Binding binding;
  if (symbols_.find(word.text, binding)) {
    if (binding.kind == Binding::Kind::kRegister) {
      operand.kind = Operand::Kind::kRegister;
      operand.reg = binding.index;
      return operand;
    }
    if (binding.kind == Binding::Kind::kFunction && binding.index < 0)
      throw PtxError(word.line, fmt::format("the address of the entry {} is not modelled", shown(word)));
    names_frame_ |= binding.kind == Binding::Kind::kFrame;
    operand.kind = Operand::Kind::kSymbol;
    operand.name = binding.name.empty() ? word.text : binding.name;
    operand.offset = read_offset();
    return operand;
  }
  if (word.text == "WARP_SZ") {
    operand.kind = Operand::Kind::kImmediate;
    operand.immediate = 32;
    return operand;
  }
  if (is_special_register(word.text)) {
    operand.kind = Operand::Kind::kSpecialRegister;
    operand.name = word.text;
    return operand;
  }
  if (std::find(std::begin(kOfComponents), std::end(kOfComponents), word.text) != std::end(kOfComponents))
    throw PtxError(word.line, fmt::format("found {}; one component, such as {}.x, would do", shown(word), word.text));
  const std::size_t dot = word.text.find('.');
  if (dot != std::string_view::npos && symbols_.find(word.text.substr(0, dot), binding))
    throw PtxError(word.line, fmt::format("found {}; components of registers are not modelled", shown(word)));
  throw PtxError(word.line, fmt::format("{} is not declared, and is no special register", shown(word)));
}

Operand Reader::read_vector() {
  lexer_.expect('{', "before a vector");
  Operand operand;
  operand.kind = Operand::Kind::kVector;
  do {
    if (lexer_.peek().is('{') || lexer_.peek().is('[')) refuse_token(lexer_.peek(), "a vector's element");
    operand.elements.push_back(read_scalar());
  } while (lexer_.take(','));
  lexer_.expect('}', "behind a vector");
  return operand;
}

Operand Reader::read_address() {
  const int line = lexer_.expect('[', "before an address").line;
  Operand operand;
  operand.kind = Operand::Kind::kAddress;
  Operand base = read_scalar();
  if (base.kind == Operand::Kind::kSymbol) {
    operand.offset = base.offset;  // the reader of an address expects it there
    base.offset = 0;
  } else if (base.kind == Operand::Kind::kRegister && !base.negated) {
    operand.offset = read_offset();
  } else if (base.kind != Operand::Kind::kImmediate || base.floating) {
    throw PtxError(line, "an address begins with a register, a variable or a number");
  }
  operand.elements.push_back(std::move(base));
  while (lexer_.take(',')) operand.elements.push_back(read_vector());
  lexer_.expect(']', "behind an address");
  return operand;
}

std::int64_t Reader::read_offset() {
  if (lexer_.take('+') || lexer_.peek().is('-')) return lexer_.signed_integer("an offset");
  return 0;
}

}  // namespace kernelwright::emulator
