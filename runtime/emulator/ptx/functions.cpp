// Functions, their parameters, and calls (PTX ISA "Function definitions", "Parameter State Space", "call"). All values
// pass through the local memory of frames, so that recursion, structs and the addresses of parameters need nothing of
// their own. A register that is passed is stored to its frame before the call, and is loaded behind it.
#include <fmt/core.h>

#include <algorithm>

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

bool is_movable(std::uint64_t bytes) { return bytes <= 16 && bytes != 0 && (bytes & (bytes - 1)) == 0; }

Operand address_of(const Operand& variable) {
  Operand address;
  address.kind = Operand::Kind::kAddress;
  address.offset = variable.offset;
  address.elements.push_back(variable);
  address.elements.back().offset = 0;
  return address;
}

Instruction begin_like(const Instruction& at) {
  Instruction instruction;
  instruction.guard = at.guard;
  instruction.guard_negated = at.guard_negated;
  instruction.line = at.line;
  instruction.source = at.source;
  return instruction;
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
  place(variable, body_->local_bytes, kMaxLocalBytes, name);
  body_->variables.emplace(known, variable);
  if (!in_register) {
    if (name.text != "_") declare(name, {.kind = Binding::Kind::kFrame, .name = known});
    return variable;
  }
  RegisterFormal formal{static_cast<int>(body_->registers.size()), {}, bytes};
  formal.place.kind = Operand::Kind::kSymbol;
  formal.place.name = known;
  constexpr RegisterClass kBySize[] = {RegisterClass::k16, RegisterClass::k16, RegisterClass::k32, RegisterClass::k64,
                                       RegisterClass::k128};
  body_->registers.push_back(kBySize[__builtin_ctzll(bytes)]);
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
  // '@' is in no name of the text.
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

// ------------------------------------------------------------------------------------------------------------- calls

// prototype_0 : .callprototype (.param .b32 _) _ (.param .b64 _, .param .b64 _) ;
void Reader::read_prototype(const Token& name) {
  lexer_.next();
  Signature signature;
  Function sizes;  // the places of these parameters are nowhere
  sizes.name = name.text;
  Body* const body = body_;
  Function* const function = function_;
  auto parameters = register_parameters_, results = register_results_;
  body_ = function_ = &sizes;
  symbols_.enter();
  if (lexer_.peek().is('(')) read_formals(signature.results, /*results=*/true);
  lexer_.expect(Token::Kind::kWord, "_");
  if (lexer_.peek().is('(')) read_formals(signature.parameters, /*results=*/false);
  if (lexer_.peek().is(".noreturn")) lexer_.next();
  symbols_.leave();
  body_ = body;
  function_ = function;
  register_parameters_ = std::move(parameters);
  register_results_ = std::move(results);
  lexer_.expect(';', "behind a prototype");
  if (!prototypes_.try_emplace({open_.back(), name.text}, std::move(signature)).second)
    throw PtxError(name.line, fmt::format("the prototype {} is declared twice", shown(name)));
}

std::vector<Operand> Reader::read_actuals() {
  std::vector<Operand> actuals;
  lexer_.expect('(', "before arguments");
  if (lexer_.take(')')) return actuals;
  do {
    if (actuals.size() == kMaxFormals) refuse_token(lexer_.peek(), "no more arguments");
    actuals.push_back(read_scalar());
  } while (lexer_.take(','));
  lexer_.expect(')', "behind arguments");
  return actuals;
}

/// What the function called takes, as far as the text has declared it. Also reads the prototype behind the arguments.
const Signature* Reader::signature_of_call(const Instruction& call) {
  const Operand& callee = call.operands[0];
  if (callee.kind == Operand::Kind::kSymbol) {
    Binding binding;
    symbols_.find(callee.name, binding);
    if (function_ && function_->name == callee.name) return &function_->signature;
    const Function& function = module_.functions[static_cast<std::size_t>(binding.index)];
    if (!function.refusal.empty())
      throw PtxError(call.line, fmt::format("{} is called, and cannot be read: line {}: {}", shown(callee.name),
                                            function.refusal_line, function.refusal));
    return &function.signature;
  }
  lexer_.expect(',', "before the prototype of a call through a register");
  const Token name = lexer_.expect(Token::Kind::kWord, "a prototype");
  for (int scope = open_.back(); scope >= 0; scope = parents_[static_cast<std::size_t>(scope)])
    if (const auto at = prototypes_.find({scope, name.text}); at != prototypes_.end()) return &at->second;
  throw PtxError(name.line, fmt::format("there is no .callprototype {} before this call", shown(name)));
}

/// The place in the frame through which `actual` is passed.
Operand Reader::pass(const Operand& actual, const Variable& formal, const Instruction& call, bool result) {
  if (actual.kind == Operand::Kind::kSymbol) {
    const auto known = body_->variables.find(actual.name);
    if (known != body_->variables.end() && known->second.space == StateSpace::kLocal) return actual;
  }
  const std::uint64_t bytes = formal.bytes;
  if (!is_movable(bytes) || actual.negated)
    throw PtxError(call.line, fmt::format("a register or number is passed where the function has {} bytes", bytes));
  const Operand place = new_frame_variable(bytes, bytes, {Token::Kind::kWord, "passed", call.line});
  if (!result)
    body_->instructions.push_back(move_to_frame(place, bytes, actual, call));
  else if (actual.kind != Operand::Kind::kRegister && actual.kind != Operand::Kind::kSink)
    throw PtxError(call.line, "the result of a call goes to a register, a .param of the body, or _");
  return place;
}

// call[.uni] [(result),] name [, (arguments)] [, prototype];
void Reader::read_call(Instruction& call) {
  std::vector<Operand> results, arguments;
  if (lexer_.peek().is('(')) {
    results = read_actuals();
    lexer_.expect(',', "before the function called");
  }
  const Token name = lexer_.expect(Token::Kind::kWord, "a function");
  Binding binding;
  if (!symbols_.find(name.text, binding)) throw PtxError(name.line, fmt::format("{} is not declared", shown(name)));
  const bool indirect = binding.kind == Binding::Kind::kRegister;
  if (!indirect && (binding.kind != Binding::Kind::kFunction || binding.index < 0))
    throw PtxError(name.line, fmt::format("{} is called, and is no function", shown(name)));
  Operand& callee = call.operands.emplace_back();
  callee.kind = indirect ? Operand::Kind::kRegister : Operand::Kind::kSymbol;
  callee.name = name.text;
  if (indirect) callee.reg = binding.index;
  if (indirect || lexer_.peek().is(',')) {
    lexer_.expect(',', "before arguments");
    if (lexer_.peek().is('(')) {
      arguments = read_actuals();
    } else if (!indirect) {
      refuse_token(lexer_.peek(), "'(' before arguments");
    }
  }
  const Signature signature = *signature_of_call(call);
  lexer_.expect(';', "behind a call");

  const auto passed = [&](const std::vector<Operand>& actuals, const std::vector<Variable>& formals, bool result) {
    if (actuals.size() != formals.size())
      throw PtxError(call.line, fmt::format("{} has {} {}, and {} are given", shown(name), formals.size(),
                                            result ? "results" : "parameters", actuals.size()));
    Operand list;
    list.kind = Operand::Kind::kVector;
    for (std::size_t i = 0; i < actuals.size(); ++i) {
      list.elements.push_back(pass(actuals[i], formals[i], call, result));
      const std::uint64_t bytes = body_->variables.at(list.elements.back().name).bytes;
      if (bytes != formals[i].bytes)
        throw PtxError(call.line,
                       fmt::format("{} {} of {} has {} bytes, and {} are given", result ? "result" : "parameter", i + 1,
                                   shown(name), formals[i].bytes, bytes));
    }
    return list;
  };
  call.operands.push_back(passed(results, signature.results, true));
  call.operands.push_back(passed(arguments, signature.parameters, false));
  const Operand places = call.operands[1];
  const Instruction at = begin_like(call);
  body_->instructions.push_back(std::move(call));
  for (std::size_t i = 0; i < results.size(); ++i)
    if (results[i].kind == Operand::Kind::kRegister)
      body_->instructions.push_back(move_from_frame(places.elements[i], signature.results[i].bytes, results[i], at));
}

}  // namespace kernelwright::emulator
