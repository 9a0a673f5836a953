// Calls: their prototypes, what they pass, and the moves to and from the frame around them. See functions.cpp.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "kernelwright/runtime/emulator/ptx/frame_values.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "kernelwright/runtime/emulator/ptx/reader.h"

namespace kernelwright::emulator {

// targets : .calltargets f, g;
void Reader::read_call_targets(const Token& name) {
  lexer_.next();
  Signature signature;
  bool first = true;
  do {
    const Token function = lexer_.expect(Token::Kind::kWord, "a function's name");
    Binding binding;
    if (!symbols_.find(function.text, binding) || binding.kind != Binding::Kind::kFunction || binding.index < 0)
      throw PtxError(function.line, fmt::format("{} is no function that the text has declared", shown(function)));
    if (std::exchange(first, false)) signature = module_.functions[static_cast<std::size_t>(binding.index)].signature;
  } while (lexer_.take(','));
  lexer_.expect(';', "behind .calltargets");
  add_prototype(name, std::move(signature));
}

void Reader::add_prototype(const Token& name, Signature signature) {
  if (!prototypes_.try_emplace({open_.back(), name.text}, std::move(signature)).second)
    throw PtxError(name.line, fmt::format("the prototype {} is declared twice", shown(name)));
}

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
  add_prototype(name, std::move(signature));
}

std::vector<Operand> Reader::read_actuals() {
  std::vector<Operand> actuals;
  lexer_.expect('(', "before arguments");
  if (lexer_.take(')')) return actuals;
  do {
    if (actuals.size() == kMaxFormals) refuse_token(lexer_.peek(), "no more arguments");
    const Token first = lexer_.peek();
    Operand& actual = actuals.emplace_back(read_scalar());
    actual.decimal |= first.text.starts_with("0d") || first.text.starts_with("0D");
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
  throw PtxError(name.line, fmt::format("there is no .callprototype or .calltargets {} before this call", shown(name)));
}

/// A number as `formal` takes it. ptxas keeps the low bits of a number for .b32 and .b64; only .f32 takes a double's
/// value.
void Reader::round_actual(Operand& number, const Variable& formal, const Instruction& call) {
  const bool to_float = formal.type.starts_with('f');
  if (number.floating ? !to_float && (!formal.type.starts_with('b') || formal.bytes < 4) : to_float)
    throw PtxError(call.line, fmt::format("{} number is passed where the function has .{}",
                                          number.floating ? "a floating-point" : "an integer", formal.type));
  if (number.decimal && formal.type == "f32")
    number.immediate = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(number.immediate)));
  number.decimal = false;
  if (formal.bytes < 8) number.immediate &= (std::uint64_t{1} << (8 * formal.bytes)) - 1;
}

/// The place in the frame through which `actual` is passed.
Operand Reader::pass(Operand actual, const Variable& formal, const Instruction& call, bool result) {
  using enum Operand::Kind;
  if (actual.kind == kSymbol && actual.offset == 0) {
    const auto known = body_->variables.find(actual.name);
    if (known != body_->variables.end() && is_frame_name(actual.name)) return actual;
  }
  const bool takes = actual.kind == kRegister || actual.kind == (result ? kSink : kImmediate);
  if (!takes || actual.negated)
    throw PtxError(call.line, result ? "the result of a call goes to a register, a .param of the body, or _"
                                     : "a call takes registers, numbers, and whole .param variables of the body");
  const std::uint64_t bytes = formal.bytes;
  if (!is_movable(bytes) || formal.type.empty())
    throw PtxError(call.line, fmt::format("a register or number is passed where the function has {} bytes", bytes));
  if (actual.kind == kRegister && body_->registers[static_cast<std::size_t>(actual.reg)] != class_of_bytes(bytes))
    throw PtxError(call.line,
                   fmt::format("a register of another size is passed where the function has .{}", formal.type));
  if (actual.kind == kImmediate) round_actual(actual, formal, call);
  const Operand place = new_frame_variable(bytes, bytes, {Token::Kind::kWord, "passed", call.line});
  if (!result) body_->instructions.push_back(move_to_frame(place, bytes, actual, call));
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
      throw PtxError(call.line,
                     fmt::format("{} has {} {}{}, and {} are given", shown(name), formals.size(),
                                 result ? "result" : "parameter", formals.size() == 1 ? "" : "s", actuals.size()));
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
