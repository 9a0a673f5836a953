// Functions, their parameters, and calls (PTX ISA "Function definitions", "Parameter State Space", "call"). All values
// pass through the local memory of frames, so that recursion, structs and the addresses of parameters need nothing of
// their own. A register that is passed is stored to its frame before the call, and is loaded behind it.
#include <fmt/core.h>

#include <algorithm>

#include "kernelwright/runtime/emulator/ptx/frame_values.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "kernelwright/runtime/emulator/ptx/reader.h"

namespace kernelwright::emulator {
namespace {

/// "ld.local.b32", and its parts.
void spell_move(Instruction& instruction, bool loads, std::uint64_t bytes) {
  static constexpr std::string_view kTypes[] = {"b8", "b16", "b32", "b64", "b128"};
  static constexpr std::string_view kLoads[] = {"ld.local.b8", "ld.local.b16", "ld.local.b32", "ld.local.b64",
                                                "ld.local.b128"};
  static constexpr std::string_view kStores[] = {"st.local.b8", "st.local.b16", "st.local.b32", "st.local.b64",
                                                 "st.local.b128"};
  const auto i = static_cast<std::size_t>(__builtin_ctzll(bytes));
  instruction.opcode = (loads ? kLoads : kStores)[i];
  instruction.parts = {loads ? "ld" : "st", "local", kTypes[i]};
}

Operand address_of(const Operand& variable) {
  Operand address;
  address.kind = Operand::Kind::kAddress;
  address.offset = variable.offset;
  address.elements.push_back(variable);
  address.elements.back().offset = 0;
  return address;
}

}  // namespace

Instruction Reader::move_to_frame(const Operand& variable, std::uint64_t bytes, const Operand& value,
                                  const Instruction& at) {
  Instruction store = begin_like(at);
  spell_move(store, false, bytes);
  store.operands = {address_of(variable), value};
  return store;
}

Instruction Reader::move_from_frame(const Operand& variable, std::uint64_t bytes, const Operand& to,
                                    const Instruction& at) {
  Instruction load = begin_like(at);
  spell_move(load, true, bytes);
  load.operands = {to, address_of(variable)};
  return load;
}

// ------------------------------------------------------------------------------------------------------- functions

// An error in one function affects only the entries that call it.
void Reader::read_function() {
  const Lexer at_results = lexer_;
  if (lexer_.peek().is('(')) skip_parentheses();
  const Token name = lexer_.expect(Token::Kind::kWord, "a function's name");
  const Lexer behind_name = lexer_;
  const auto index = static_cast<std::size_t>(declare_function(name));
  Function made;
  made.name = name.text;
  const int depth = symbols_.depth();
  body_ = function_ = &made;
  register_parameters_.clear();
  register_results_.clear();
  lexer_ = at_results;
  try {
    symbols_.enter();
    read_function_definition(made);
  } catch (const PtxError& error) {
    lexer_ = behind_name;
    try {
      lexer_.skip_definition();
    } catch (const PtxError&) {
      throw error;  // the start of the next function is unknown
    }
    made = {};
    made.defined = true;
    made.refusal = error.message();
    made.refusal_line = error.line();
  }
  while (symbols_.depth() > depth) symbols_.leave();
  made.name = name.text;
  made.line = name.line;
  source_ = {};
  body_ = function_ = nullptr;
  Function& known = module_.functions[index];
  if (known.defined && made.defined)
    throw PtxError(name.line, fmt::format("the function {} is defined twice", shown(name)));
  if (!known.defined) known = std::move(made);
}

// .alias name, function;
void Reader::read_alias() {
  std::size_t places[2];
  Token names[2];
  for (int i = 0; i < 2; ++i) {
    if (i == 1) lexer_.expect(',', "behind an alias");
    names[i] = lexer_.expect(Token::Kind::kWord, "a function's name");
    Binding binding;
    if (!symbols_.find(names[i].text, binding) || binding.kind != Binding::Kind::kFunction || binding.index < 0)
      throw PtxError(names[i].line, fmt::format("{} is no function that the text has declared", shown(names[i])));
    places[i] = static_cast<std::size_t>(binding.index);
  }
  lexer_.expect(';', "behind .alias");
  Function& alias = module_.functions[places[0]];
  const Function& function = module_.functions[places[1]];
  const auto refuse = [&](int i, std::string_view why) {
    throw PtxError(names[i].line, fmt::format("{} {}", shown(names[i]), why));
  };
  if (!function.defined || function.alias >= 0) refuse(1, "is no function that the text has defined");
  if (alias.defined || alias.alias >= 0) refuse(0, "is an alias, and is defined");
  if (alias.is_initial_value)
    refuse(0, "becomes an alias behind a variable that has its address; this is not modelled");
  alias.alias = static_cast<int>(places[1]);
}

int Reader::declare_function(const Token& name) {
  Binding known;
  if (symbols_.find(name.text, known) && known.kind == Binding::Kind::kFunction && known.index >= 0) return known.index;
  const auto index = static_cast<int>(module_.functions.size());
  declare(name, {Binding::Kind::kFunction, index});
  module_.functions.emplace_back().name = name.text;
  return index;
}

void Reader::skip_parentheses() {
  lexer_.expect('(', "before a function's results");
  while (!lexer_.take(')'))
    if (lexer_.next().kind == Token::Kind::kEnd) refuse_token(lexer_.peek(), "')' behind a function's results");
}

void Reader::read_function_definition(Function& function) {
  if (lexer_.peek().is('(')) read_formals(function.signature.results, /*results=*/true);
  lexer_.expect(Token::Kind::kWord, "a function's name");
  if (lexer_.peek().is('(')) read_formals(function.signature.parameters, /*results=*/false);
  while (!lexer_.peek().is('{') && !lexer_.peek().is(';')) {
    const Token directive = lexer_.next();
    if (directive.is(".pragma")) {
      read_pragma();
    } else if (directive.is(".abi_preserve") || directive.is(".abi_preserve_control")) {
      lexer_.integer(1024, "a number of registers");  // says how to compile, not what happens
    } else if (!directive.is(".noreturn")) {
      refuse_token(directive, "the function's body in braces, or ';'");
    }
  }
  if (lexer_.take(';')) return;
  function.defined = true;
  Instruction beginning;
  beginning.line = lexer_.peek().line;
  for (const RegisterFormal& formal : register_parameters_) {
    Operand to;
    to.kind = Operand::Kind::kRegister;
    to.reg = formal.reg;
    body_->instructions.push_back(move_from_frame(formal.place, formal.bytes, to, beginning));
  }
  read_body();
}

// (.param .b32 x, .param .align 8 .b8 y[16], .reg .u32 z)
void Reader::read_formals(std::vector<Variable>& formals, bool results) {
  lexer_.expect('(', "before a function's parameters");
  if (lexer_.take(')')) return;
  do {
    if (formals.size() == kMaxFormals) refuse_token(lexer_.peek(), "no more parameters");
    formals.push_back(read_formal(results));
  } while (lexer_.take(','));
  lexer_.expect(')', "behind a function's parameters");
}

Variable Reader::read_formal(bool result) {
  read_leading_alignment();
  const Token space = lexer_.expect(Token::Kind::kDirective, ".param or .reg");
  if (!space.is(".param") && !space.is(".reg")) refuse_token(space, ".param or .reg");
  const Declaration declaration = read_declaration(/*parameter=*/true);
  const Token name = lexer_.expect(Token::Kind::kWord, "a parameter's name");
  bool open = false;
  std::uint64_t bytes = declaration.element_bytes() * static_cast<std::uint64_t>(declaration.vector);
  for (const std::uint64_t count : read_dimensions(open)) bytes *= count;
  if (open)
    throw PtxError(name.line, fmt::format("the parameter {} has no size; functions with a variable number of arguments "
                                          "are not modelled",
                                          shown(name)));
  const bool in_register = space.is(".reg");
  if (in_register && !is_movable(bytes))
    throw PtxError(name.line, fmt::format("the register {} has {} bytes", shown(name), bytes));
  const std::string_view known = unique_name(name.text);
  Variable variable{StateSpace::kLocal, 0, bytes, declaration.alignment};
  if (bytes == declaration.element_bytes()) variable.type = declaration.type.name;
  place(variable, body_->local_bytes, kMaxLocalBytes, name);
  body_->variables.emplace(known, variable);
  if (!in_register) {
    if (name.text != "_") declare(name, {.kind = Binding::Kind::kFrame, .name = known});
    return variable;
  }
  RegisterFormal formal{static_cast<int>(body_->registers.size()), {}, bytes};
  formal.place.kind = Operand::Kind::kSymbol;
  formal.place.name = known;
  body_->registers.push_back(class_of_bytes(bytes));
  ++registers_;
  if (name.text != "_") declare(name, {Binding::Kind::kRegister, formal.reg});
  (result ? register_results_ : register_parameters_).push_back(formal);
  return variable;
}

void Reader::store_results(const Instruction& at) {
  for (const RegisterFormal& formal : register_results_) {
    Operand value;
    value.kind = Operand::Kind::kRegister;
    value.reg = formal.reg;
    body_->instructions.push_back(move_to_frame(formal.place, formal.bytes, value, at));
  }
}

// ----------------------------------------------------------------------------------------------- variables of a frame

std::string_view Reader::unique_name(std::string_view text) {
  return module_.made_names.emplace_back(
      fmt::format("{}@{}.{}", text, body_->name, static_cast<int>(module_.made_names.size())));
}

Operand Reader::new_frame_variable(std::uint64_t bytes, std::uint64_t alignment, const Token& name) {
  Operand operand;
  operand.kind = Operand::Kind::kSymbol;
  operand.name = unique_name(name.text);
  Variable variable{StateSpace::kLocal, 0, bytes, alignment};
  place(variable, body_->local_bytes, kMaxLocalBytes, name);
  body_->variables.emplace(operand.name, variable);
  return operand;
}

// .param .align 8 .b8 param0[16];
void Reader::read_frame_variable() {
  const Declaration declaration = read_declaration(/*parameter=*/true);
  const Token name = lexer_.expect(Token::Kind::kWord, "a name");
  bool open = false;
  std::uint64_t bytes = declaration.element_bytes() * static_cast<std::uint64_t>(declaration.vector);
  for (const std::uint64_t count : read_dimensions(open)) bytes *= count;
  if (open) throw PtxError(name.line, fmt::format("{} has no size", shown(name)));
  lexer_.expect(';', "behind a variable");
  const Operand made = new_frame_variable(bytes, declaration.alignment, name);
  declare(name, {.kind = Binding::Kind::kFrame, .name = made.name});
}

/// Respells `instruction`, which has a variable of a frame as its operand: ld.param becomes ld.local.
void Reader::use_frame(Instruction& instruction) {
  const auto param = std::find_if(instruction.parts.begin(), instruction.parts.end(),
                                  [](std::string_view part) { return part == "param" || part == "param::func"; });
  if (param == instruction.parts.end()) return;
  *param = "local";
  std::string spelt;
  for (const std::string_view part : instruction.parts) spelt += fmt::format("{}{}", spelt.empty() ? "" : ".", part);
  instruction.opcode = module_.made_names.emplace_back(std::move(spelt));
}

}  // namespace kernelwright::emulator
