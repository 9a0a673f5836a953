// Operands, in every form of the PTX ISA's chapter on operands that the modelled instructions use.
#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "kernelwright/runtime/emulator/ptx/reader.h"

namespace kernelwright::emulator {
namespace {

// PTX ISA, "Special Registers". Those with four components, and the names of these.
constexpr std::string_view kOfComponents[][5] = {
    {"%tid", "%tid.x", "%tid.y", "%tid.z", "%tid.w"},
    {"%ntid", "%ntid.x", "%ntid.y", "%ntid.z", "%ntid.w"},
    {"%ctaid", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%ctaid.w"},
    {"%nctaid", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%nctaid.w"},
    {"%clusterid", "%clusterid.x", "%clusterid.y", "%clusterid.z", "%clusterid.w"},
    {"%nclusterid", "%nclusterid.x", "%nclusterid.y", "%nclusterid.z", "%nclusterid.w"},
    {"%cluster_ctaid", "%cluster_ctaid.x", "%cluster_ctaid.y", "%cluster_ctaid.z", "%cluster_ctaid.w"},
    {"%cluster_nctaid", "%cluster_nctaid.x", "%cluster_nctaid.y", "%cluster_nctaid.z", "%cluster_nctaid.w"}};
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
  for (const auto& names : kOfComponents)
    if (std::find(std::begin(names) + 1, std::end(names), name) != std::end(names)) return true;
  return false;
}

/// %tid: a vector of its components. A sink for a name that has none.
Operand components_of(std::string_view name) {
  Operand operand;
  for (const auto& names : kOfComponents) {
    if (names[0] != name) continue;
    operand.kind = Operand::Kind::kVector;
    operand.name = names[0];
    for (int i = 1; i < 5; ++i) {
      Operand& component = operand.elements.emplace_back();
      component.kind = Operand::Kind::kSpecialRegister;
      component.name = names[i];
    }
  }
  return operand;
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
  operand.decimal = number.decimal;
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
    if (binding.kind == Binding::Kind::kVector) {
      operand.kind = Operand::Kind::kVector;
      operand.name = word.text;
      for (int i = 0; i < binding.count; ++i) {
        Operand& element = operand.elements.emplace_back();
        element.kind = Operand::Kind::kRegister;
        element.reg = binding.index + i;
      }
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
  if (Operand vector = components_of(word.text); vector.kind == Operand::Kind::kVector) return vector;
  return read_component(word);
}

// v.x, or v.r, of a vector register.
Operand Reader::read_component(const Token& word) const {
  Binding binding;
  const std::size_t dot = word.text.rfind('.');
  if (dot == std::string_view::npos || !symbols_.find(word.text.substr(0, dot), binding))
    throw PtxError(word.line, fmt::format("{} is not declared, and is no special register", shown(word)));
  const std::string_view component = word.text.substr(dot + 1);
  if (binding.kind == Binding::Kind::kVector && component.size() == 1)
    for (const std::string_view names : {"xyzw", "rgba"})
      if (const std::size_t at = names.find(component); at < static_cast<std::size_t>(binding.count)) {
        Operand operand;
        operand.kind = Operand::Kind::kRegister;
        operand.reg = binding.index + static_cast<int>(at);
        return operand;
      }
  throw PtxError(word.line, fmt::format("found {}; only vector registers have components, .x to .w", shown(word)));
}

// A decimal number is read as a double, and takes the type that the instruction names last.
void Reader::round_decimals(const Instruction& instruction, std::span<Operand> operands) {
  for (Operand& operand : operands) {
    round_decimals(instruction, operand.elements);
    if (!operand.decimal) continue;
    std::string_view type = instruction.parts[0] == "createpolicy" ? "f32" : "";
    for (const std::string_view part : instruction.parts)
      if (part == "f32" || part == "f64") type = part;
    if (type.empty()) throw PtxError(instruction.line, "a decimal number needs an instruction of .f32 or .f64");
    if (type == "f32")
      operand.immediate = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(operand.immediate)));
    operand.decimal = false;
  }
}

Operand Reader::read_vector() {
  lexer_.expect('{', "before a vector");
  Operand operand;
  operand.kind = Operand::Kind::kVector;
  do {
    if (lexer_.peek().is('{') || lexer_.peek().is('[')) refuse_token(lexer_.peek(), "a vector's element");
    const Token first = lexer_.peek();
    operand.elements.push_back(read_scalar());
    if (operand.elements.back().kind == Operand::Kind::kVector) refuse_token(first, "a vector's element");
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
