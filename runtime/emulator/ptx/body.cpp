// The body of an entry or a function: scopes, registers, labels and instructions. Labels may be used before they are
// declared, so branches are recorded and resolved at the end of the body. A label is visible in its own scope and in
// the scopes inside it.
#include <fmt/core.h>

#include <algorithm>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "kernelwright/runtime/emulator/ptx/reader.h"

namespace kernelwright::emulator {
namespace {

std::vector<std::string_view> split_at_dots(std::string_view opcode) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = opcode.find('.', begin);
    parts.push_back(opcode.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

}  // namespace

void Reader::read_body() {
  open_.clear();
  parents_.clear();
  labels_ = {};  // not clear(), which would keep the buckets of a large entry
  jumps_.clear();
  tables_.clear();
  prototypes_.clear();
  open_scope(lexer_.expect('{', "before an entry's body"));
  int line = 0;
  while (!open_.empty()) {
    const Token& ahead = lexer_.peek();
    line = ahead.line;
    if (ahead.is('{')) {
      open_scope(lexer_.next());
    } else if (ahead.is('}')) {
      lexer_.next();
      close_scope();
    } else if (ahead.is(';')) {
      lexer_.next();
    } else if (ahead.kind == Token::Kind::kDirective) {
      read_body_directive();
    } else if (ahead.kind == Token::Kind::kWord || ahead.is('@')) {
      read_instruction();
    } else {
      refuse_token(ahead, "an instruction, a label, a declaration or '}'");
    }
  }
  end_with_return(line);
  resolve_jumps();
}

void Reader::open_scope(const Token& brace) {
  if (open_.size() == kMaxNesting)
    throw PtxError(brace.line, fmt::format("braces are nested deeper than {}", kMaxNesting));
  parents_.push_back(open_.empty() ? -1 : open_.back());
  open_.push_back(static_cast<int>(parents_.size()) - 1);
  symbols_.enter();
}

void Reader::close_scope() {
  open_.pop_back();
  symbols_.leave();
}

void Reader::read_body_directive() {
  read_leading_alignment();
  const Token directive = lexer_.next();
  if (directive.is(".reg")) {
    read_registers();
  } else if (directive.is(".shared")) {
    read_variables(StateSpace::kShared, /*external=*/false);
  } else if (directive.is(".local")) {
    read_variables(StateSpace::kLocal, false);
  } else if (directive.is(".global")) {
    read_variables(StateSpace::kGlobal, false);
  } else if (directive.is(".const")) {
    read_variables(StateSpace::kConst, false);
  } else if (directive.is(".param")) {  // arguments and result of a call
    read_frame_variable();
  } else if (directive.is(".extern")) {
    const Token space = lexer_.next();
    if (!space.is(".shared")) refuse_token(space, ".shared behind .extern in a body");
    read_variables(StateSpace::kShared, /*external=*/true);
  } else if (directive.is(".loc")) {
    read_location();
  } else if (directive.is(".pragma")) {
    read_pragma();
  } else {
    throw PtxError(directive.line, fmt::format("the directive {} in a body is not modelled", shown(directive)));
  }
}

// .reg .b32 %r<5000>, x; or .reg .v4 .b32 v; which is four registers.
void Reader::read_registers() {
  const bool vectors = lexer_.peek().is(".v2") || lexer_.peek().is(".v4");
  const int lanes = !vectors ? 1 : lexer_.next().is(".v2") ? 2 : 4;
  const Token spelt = lexer_.expect(Token::Kind::kDirective, "a register's type");
  const Type type = type_of(spelt.text);
  if (type.bits == 0) throw PtxError(spelt.line, fmt::format("registers of type {} are not modelled", shown(spelt)));
  const RegisterClass kind = type.bits == 1    ? RegisterClass::kPredicate
                             : type.bits <= 16 ? RegisterClass::k16
                             : type.bits == 32 ? RegisterClass::k32
                             : type.bits == 64 ? RegisterClass::k64
                                               : RegisterClass::k128;
  if (vectors && (type.bits == 1 || lanes * type.bits > 128))
    throw PtxError(spelt.line, fmt::format("vectors of {} registers of type {} are not modelled", lanes, shown(spelt)));
  do {
    const Token name = lexer_.expect(Token::Kind::kWord, "a register's name");
    const int first = static_cast<int>(body_->registers.size());
    auto count = static_cast<std::uint64_t>(lanes);
    const bool range = lexer_.take('<');
    if (range && vectors) throw PtxError(name.line, "ranges of vector registers are not modelled; one name each is");
    if (range) {
      count = lexer_.integer(kMaxRegisters, "a number of registers");
      lexer_.expect('>', "behind a number of registers");
    }
    registers_ += count;
    if (registers_ > kMaxRegisters)
      throw PtxError(name.line, fmt::format("the module has more than {} registers", kMaxRegisters));
    if (!range) {
      Binding binding{vectors ? Binding::Kind::kVector : Binding::Kind::kRegister, first};
      binding.count = lanes;
      declare(name, binding);
    } else if (name.text.find_first_of(".:") != std::string_view::npos) {
      refuse_token(name, "a name");
    } else if (!symbols_.declare_range(name.text, first, static_cast<int>(count))) {
      throw PtxError(name.line, fmt::format("{} is declared twice", shown(name)));
    }
    body_->registers.resize(body_->registers.size() + count, kind);
  } while (lexer_.take(','));
  lexer_.expect(';', "behind .reg");
}

void Reader::read_label(const Token& name) {
  if (lexer_.peek().is(".callprototype")) return read_prototype(name);
  if (lexer_.peek().is(".calltargets")) return read_call_targets(name);
  Label label{static_cast<int>(body_->instructions.size()), -1};
  if (lexer_.peek().is(".branchtargets")) {
    lexer_.next();
    label.table = static_cast<int>(tables_.size());
    BranchTable& table = tables_.emplace_back();
    table.scope = open_.back();
    do table.labels.push_back(lexer_.expect(Token::Kind::kWord, "a label"));
    while (lexer_.take(','));
    lexer_.expect(';', "behind .branchtargets");
  }
  if (!labels_.try_emplace({open_.back(), name.text}, label).second)
    throw PtxError(name.line, fmt::format("the label {} is declared twice", shown(name)));
}

void Reader::read_instruction() {
  Instruction instruction;
  instruction.line = lexer_.peek().line;
  instruction.source = source_;
  if (lexer_.take('@')) {
    instruction.guard_negated = lexer_.take('!');
    const Token word = lexer_.expect(Token::Kind::kWord, "a predicate");
    const Operand guard = read_named(word);
    expect_predicate(guard, word);
    instruction.guard = guard.reg;
  }
  const Token opcode = lexer_.expect(Token::Kind::kWord, "an instruction");
  if (instruction.guard < 0 && lexer_.take(':')) return read_label(opcode);
  instruction.opcode = opcode.text;
  instruction.parts = split_at_dots(opcode.text);
  if (lexer_.peek().kind == Token::Kind::kDirective)
    refuse_token(lexer_.peek(), fmt::format("an operand (what modifies {} touches it)", shown(opcode)));
  names_frame_ = false;
  if (instruction.parts[0] == "call") return read_call(instruction);
  const bool branch = instruction.parts[0] == "bra", indexed = instruction.parts[0] == "brx";
  if (!lexer_.peek().is(';')) {
    do {
      const bool label = branch || (indexed && instruction.operands.size() == 1);
      if (label) {
        const Token name = read_label_operand(instruction);
        jumps_.push_back({body_->instructions.size(), open_.back(), name.text, indexed, name.line});
      } else {
        instruction.operands.push_back(read_operand());
      }
    } while (lexer_.take(','));
  }
  round_decimals(instruction, instruction.operands);
  if ((branch && instruction.operands.size() != 1) || (indexed && instruction.operands.size() != 2))
    throw PtxError(instruction.line, fmt::format("{} with {} operands", shown(opcode), instruction.operands.size()));
  lexer_.expect(';', fmt::format("behind {}", shown(instruction.opcode)));
  emit(std::move(instruction));
}

Token Reader::read_label_operand(Instruction& instruction) {
  const Token name = lexer_.expect(Token::Kind::kWord, "a label");
  Operand& operand = instruction.operands.emplace_back();
  operand.kind = Operand::Kind::kSymbol;
  operand.name = name.text;
  return name;
}

void Reader::emit(Instruction instruction) {
  if (names_frame_ || function_) use_frame(instruction);
  if (function_ && instruction.parts[0] == "ret") store_results(instruction);
  body_->instructions.push_back(std::move(instruction));
}

const Reader::Label* Reader::find_label(int scope, std::string_view name) const {
  for (; scope >= 0; scope = parents_[static_cast<std::size_t>(scope)])
    if (const auto at = labels_.find({scope, name}); at != labels_.end()) return &at->second;
  return nullptr;
}

void Reader::resolve_jumps() {
  std::uint64_t total = 0;
  for (const Jump& jump : jumps_) {
    std::vector<int>& targets = body_->instructions[jump.instruction].targets;
    const Label* label = find_label(jump.scope, jump.name);
    if (!label)
      throw PtxError(jump.line, fmt::format("there is no label {} that can be seen from here", shown(jump.name)));
    if ((label->table >= 0) != jump.indexed)
      throw PtxError(jump.line, fmt::format("{} is {}", shown(jump.name),
                                            jump.indexed ? "a label; brx.idx needs .branchtargets"
                                                         : "a list of .branchtargets; bra needs a label"));
    if (!jump.indexed) {
      targets.push_back(label->instruction);
      continue;
    }
    const BranchTable& table = tables_[static_cast<std::size_t>(label->table)];
    total += table.labels.size();
    if (total > kMaxBranchTargets)
      throw PtxError(jump.line, fmt::format("the entry's brx.idx have more than {} targets", kMaxBranchTargets));
    for (const Token& name : table.labels) {
      const Label* target = find_label(table.scope, name.text);
      if (!target || target->table >= 0)
        throw PtxError(name.line, fmt::format("there is no label {} that can be seen from here", shown(name)));
      targets.push_back(target->instruction);
    }
  }
}

// A final return, so that a running warp need not check at each step whether the entry is over.
void Reader::end_with_return(int line) {
  auto& instructions = body_->instructions;
  bool needed = instructions.empty();
  if (!needed) {
    const Instruction& last = instructions.back();
    const std::string_view root = last.parts[0];
    needed = last.guard >= 0 || (root != "ret" && root != "exit" && root != "trap" && root != "bra" && root != "brx");
  }
  for (const auto& [key, label] : labels_) needed |= label.instruction == static_cast<int>(instructions.size());
  if (!needed) return;
  Instruction last;
  last.opcode = "ret";
  last.parts = {last.opcode};
  last.line = line;
  last.source = source_;
  names_frame_ = false;
  emit(std::move(last));
}

}  // namespace kernelwright::emulator
