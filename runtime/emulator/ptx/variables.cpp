// Types, declarations, sizes and initial values.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "kernelwright/runtime/emulator/ptx/reader.h"

namespace kernelwright::emulator {
namespace {

/// Most elements of one array. Two such numbers and an element's bytes can be multiplied without overflow.
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 29;
constexpr std::size_t kMaxDimensions = 8;

}  // namespace

Type type_of(std::string_view directive) {
  static constexpr Type kTypes[] = {{"b8", 8},   {"u8", 8},     {"s8", 8},    {"b16", 16},       {"u16", 16},
                                    {"s16", 16}, {"f16", 16},   {"b32", 32},  {"u32", 32},       {"s32", 32},
                                    {"b64", 64}, {"u64", 64},   {"s64", 64},  {"f32", 32, true}, {"f64", 64, true},
                                    {"pred", 1}, {"f16x2", 32}, {"b128", 128}};
  const auto at = std::find_if(std::begin(kTypes), std::end(kTypes),
                               [&](const Type& type) { return directive.substr(1) == type.name; });
  return at == std::end(kTypes) ? Type{} : *at;
}

std::uint64_t Reader::read_alignment() {
  const Token number = lexer_.peek();
  const std::uint64_t alignment = lexer_.integer(kMaxAlignment, "an alignment");
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) refuse_token(number, "a power of two as alignment");
  return alignment;
}

// .align may also stand before the state space: .align 16 .shared .b8 x[4]
void Reader::read_leading_alignment() {
  leading_alignment_ = 0;
  if (!lexer_.peek().is(".align")) return;
  lexer_.next();
  leading_alignment_ = read_alignment();
  const Token& space = lexer_.peek();
  if (!space.is(".shared") && !space.is(".global") && !space.is(".const") && !space.is(".local") && !space.is(".param"))
    refuse_token(space, "a state space behind .align");
}

Reader::Declaration Reader::read_declaration(bool parameter) {
  Declaration declaration;
  declaration.alignment = std::exchange(leading_alignment_, 0);
  bool pointer = false;
  const Token first = lexer_.peek();
  while (lexer_.peek().kind == Token::Kind::kDirective) {
    const Token token = lexer_.next();
    if (token.is(".align")) {
      const std::uint64_t alignment = read_alignment();
      // After .ptr, it is the alignment of the memory to which the parameter points.
      if (!pointer) declaration.alignment = std::max(declaration.alignment, alignment);
    } else if (token.is(".v2") || token.is(".v4")) {
      declaration.vector = token.is(".v2") ? 2 : 4;
    } else if (parameter && token.is(".ptr")) {
      pointer = true;
    } else if (pointer && (token.is(".global") || token.is(".const") || token.is(".shared") || token.is(".local"))) {
      continue;
    } else if (const Type type = type_of(token.text); type.bits >= 8 && declaration.type.bits == 0) {
      declaration.type = type;
    } else {
      throw PtxError(token.line, fmt::format("found {} in a declaration, which is not modelled", shown(token)));
    }
  }
  if (declaration.type.bits == 0) throw PtxError(first.line, "this declaration has no type, such as .b32");
  if (declaration.type.bits * declaration.vector > 128)
    throw PtxError(first.line, fmt::format("a vector of {} x .{} has more than 128 bits", declaration.vector,
                                           declaration.type.name));
  // ptxas takes the largest of the given alignments and the type's own.
  declaration.alignment =
      std::max(declaration.alignment, declaration.element_bytes() * static_cast<std::uint64_t>(declaration.vector));
  return declaration;
}

std::vector<std::uint64_t> Reader::read_dimensions(bool& open) {
  std::vector<std::uint64_t> dimensions;
  std::uint64_t product = 1;
  while (lexer_.peek().is('[')) {
    const int line = lexer_.next().line;
    if (dimensions.size() == kMaxDimensions) throw PtxError(line, "an array has 8 dimensions at most");
    if (dimensions.empty() && lexer_.take(']')) {
      open = true;
      dimensions.push_back(1);
      continue;
    }
    dimensions.push_back(lexer_.integer(kMaxElements, "an array's size"));
    if (dimensions.back() == 0) throw PtxError(line, "an array of size 0");
    product *= dimensions.back();
    if (product > kMaxElements) throw PtxError(line, "an array this large is no GPU's");
    lexer_.expect(']', "behind an array's size");
  }
  return dimensions;
}

void Reader::declare(const Token& name, Binding binding) {
  if (name.text == "_" || name.text.find_first_of(".:") != std::string_view::npos) refuse_token(name, "a name");
  if (!symbols_.declare(name.text, binding))
    throw PtxError(name.line, fmt::format("{} is declared twice", shown(name)));
}

void Reader::place(Variable& variable, std::uint64_t& end, std::uint64_t limit, const Token& name) {
  variable.offset = (end + variable.alignment - 1) / variable.alignment * variable.alignment;
  if (variable.offset > limit || variable.bytes > limit - variable.offset)
    throw PtxError(name.line, fmt::format("{} of {} bytes brings its state space to {}; {} is the most", shown(name),
                                          variable.bytes, variable.offset + variable.bytes, limit));
  end = variable.offset + variable.bytes;
}

void Reader::read_variables(StateSpace space, bool external) {
  const Declaration declaration = read_declaration(/*parameter=*/false);
  do read_variable(space, external, declaration);
  while (lexer_.take(','));
  lexer_.expect(';', "behind a variable");
}

void Reader::read_variable(StateSpace space, bool external, const Declaration& declaration) {
  const Token name = lexer_.expect(Token::Kind::kWord, "a variable's name");
  bool open = false;
  std::vector<std::uint64_t> dimensions = read_dimensions(open);
  if (declaration.vector > 1) dimensions.push_back(static_cast<std::uint64_t>(declaration.vector));
  std::uint64_t inner = declaration.element_bytes();  // bytes per step in the first dimension
  for (std::size_t i = open ? 1 : 0; i < dimensions.size(); ++i) inner *= dimensions[i];

  Variable variable{space, 0, inner, declaration.alignment};
  const bool holds_values = space == StateSpace::kGlobal || space == StateSpace::kConst;
  std::vector<std::byte> bytes;
  if (lexer_.peek().is('=')) {
    const int line = lexer_.next().line;
    if (!holds_values || external) throw PtxError(line, "only .global and .const variables have initial values");
    if (open) dimensions[0] = kMaxGlobalBytes;
    addresses_.clear();
    read_initialiser(declaration, dimensions, 0, bytes);
    if (open) {
      variable.bytes = (bytes.size() + inner - 1) / inner * inner;
      open = false;
    }
  }
  if (external && !(space == StateSpace::kShared && open))
    throw PtxError(name.line, fmt::format("{} is defined in another module; only .extern .shared name[] is modelled",
                                          shown(name)));
  if (open && !external)
    throw PtxError(name.line,
                   fmt::format("{} has no size; .extern .shared gives it what the launch asks for", shown(name)));

  if (space == StateSpace::kShared) {
    variable.dynamic = external;
    if (external) variable.bytes = 0;
    std::uint64_t alone = 0;  // each entry decides where it lies
    place(variable, alone, kMaxSharedBytes, name);
  } else if (space == StateSpace::kLocal) {
    place(variable, body_->local_bytes, kMaxLocalBytes, name);
  } else {
    place(variable, global_bytes_, kMaxGlobalBytes, name);
    if (!bytes.empty()) {
      module_.global_image.resize(variable.offset + bytes.size());
      std::copy(bytes.begin(), bytes.end(),
                module_.global_image.begin() + static_cast<std::ptrdiff_t>(variable.offset));
      for (InitialAddress& address : addresses_) {
        address.at += variable.offset;
        module_.addresses.push_back(address);
      }
    }
  }
  // Operands name variables without a scope, so a name must have one meaning in a whole entry, and in the functions
  // that it calls.
  Binding outer;
  const bool shadows = body_ && symbols_.find(name.text, outer) && outer.kind == Binding::Kind::kVariable;
  Binding binding{function_ && space == StateSpace::kLocal ? Binding::Kind::kFrame : Binding::Kind::kVariable};
  if (function_) binding.name = unique_name(name.text);
  declare(name, binding);
  const std::string_view known = function_ ? binding.name : name.text;
  auto& variables = body_ ? body_->variables : module_.variables;
  if (space == StateSpace::kShared) (body_ ? body_->shared : module_.shared).push_back(known);
  if ((shadows && !function_) || !variables.emplace(known, variable).second)
    throw PtxError(name.line, fmt::format("{} names another variable or parameter too; each needs a name of its own",
                                          shown(name)));
}

// If there are fewer values than elements, the rest is zero. `level` counts braces, and so is limited by the
// dimensions.
void Reader::read_initialiser(const Declaration& declaration, const std::vector<std::uint64_t>& dimensions,
                              std::size_t level, std::vector<std::byte>& bytes) {
  if (level == dimensions.size()) return read_element(declaration.type, bytes);
  std::uint64_t inner = declaration.element_bytes();
  for (std::size_t i = level + 1; i < dimensions.size(); ++i) inner *= dimensions[i];
  lexer_.expect('{', "before the values of an array");
  const std::size_t begin = bytes.size();
  if (lexer_.take('}')) return;
  do {
    if (lexer_.peek().is('}')) refuse_token(lexer_.peek(), "a value");
    const std::size_t count = (bytes.size() - begin + inner - 1) / inner;
    if (count == dimensions[level])
      throw PtxError(lexer_.peek().line, fmt::format("there are more values than the {} elements", dimensions[level]));
    if (begin + count * inner > kMaxGlobalBytes) throw PtxError(lexer_.peek().line, "these values are too many");
    bytes.resize(begin + count * inner);
    read_initialiser(declaration, dimensions, level + 1, bytes);
  } while (lexer_.take(','));
  lexer_.expect('}', "behind the values of an array");
}

void Reader::read_element(const Type& type, std::vector<std::byte>& bytes) {
  const bool negative = lexer_.take('-');
  const Token token = lexer_.next();
  if (!negative && (token.kind == Token::Kind::kWord || lexer_.peek().is('(')))
    return read_variable_address(type, token, bytes);
  if (token.kind != Token::Kind::kNumber) refuse_token(token, "an initial value");
  const Number number = number_of(token);
  std::uint64_t bits = number.bits;
  if (number.kind != Number::Kind::kInteger) {
    const int width = number.decimal ? type.bits : number.kind == Number::Kind::kFloat32 ? 32 : 64;
    if (number.decimal && negative) bits ^= std::uint64_t{1} << 63;
    if (number.decimal && width == 32)
      bits = std::bit_cast<std::uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
    if (!type.floating || type.bits != width || (negative && !number.decimal))
      throw PtxError(token.line, fmt::format("found {} as the value of a .{}", shown(token), type.name));
  } else {
    const std::uint64_t most =
        type.bits >= 64 ? std::numeric_limits<std::uint64_t>::max() : (std::uint64_t{1} << type.bits) - 1;
    if (bits > most || (negative && bits > (most >> 1) + 1))
      throw PtxError(token.line, fmt::format("{}{} does not fit a .{}", negative ? "-" : "", token.text, type.name));
    if (type.floating && bits != 0)
      throw PtxError(token.line, fmt::format("found the integer {} as the value of a .{}", shown(token), type.name));
    if (negative) bits = 0 - bits;
  }
  const std::uint64_t upper = negative ? bits >> 63 : 0;  // what the upper half of a .b128 is filled with
  for (int i = 0; i < type.bits / 8; ++i) bytes.push_back(static_cast<std::byte>(i < 8 ? bits >> (8 * i) : 0 - upper));
}

// x, x+4, generic(x)+4, or one byte of those: 0xff00(x).
void Reader::read_variable_address(const Type& type, const Token& first, std::vector<std::byte>& bytes) {
  InitialAddress value{.at = bytes.size(), .bytes = type.bits / 8};
  Token name = first;
  const bool masked = first.kind == Token::Kind::kNumber;
  if (masked) {
    const std::uint64_t mask = number_of(first).bits;
    while (value.shift < 64 && mask != std::uint64_t{0xff} << value.shift) value.shift += 8;
    if (value.shift == 64) refuse_token(first, "a mask of one byte before '('");
    lexer_.expect('(', "behind a mask");
    name = lexer_.next();
  }
  const bool generic = name.kind == Token::Kind::kWord && name.text == "generic" && lexer_.take('(');
  if (generic) name = lexer_.next();
  Binding binding;
  value.function = name.kind == Token::Kind::kWord && symbols_.find(name.text, binding) &&
                   binding.kind == Binding::Kind::kFunction && binding.index >= 0;
  if (value.function) {
    const auto index = static_cast<std::size_t>(binding.index);
    Function& function = module_.functions[index];
    function.is_initial_value = true;
    value.address = function_address(function.alias < 0 ? index : static_cast<std::size_t>(function.alias));
    if (generic) lexer_.expect(')', "behind a function");
    if (masked) lexer_.expect(')', "behind a function");
    return add_initial_address(type, first, value, masked, bytes);
  }
  const auto found = module_.variables.find(name.text);
  if (name.kind != Token::Kind::kWord || found == module_.variables.end())
    refuse_token(name, "a variable that the module has declared");
  const Variable& variable = found->second;
  if (variable.space != StateSpace::kGlobal && variable.space != StateSpace::kConst)
    throw PtxError(name.line, fmt::format("{} has no address that a module may hold", shown(name)));
  std::int64_t offset = generic ? 0 : read_offset();
  if (generic) {
    lexer_.expect(')', "behind a variable");
    offset = read_offset();
  }
  if (masked) lexer_.expect(')', "behind a variable");
  value.address = variable.offset + static_cast<std::uint64_t>(offset);
  add_initial_address(type, first, value, masked, bytes);
}

void Reader::add_initial_address(const Type& type, const Token& first, const InitialAddress& value, bool masked,
                                 std::vector<std::byte>& bytes) {
  if (type.bits != (masked ? 8 : 64))
    throw PtxError(first.line, fmt::format("{} of a variable does not fit a .{}",
                                           masked ? "a byte of the address" : "the address", type.name));
  addresses_.push_back(value);
  bytes.resize(bytes.size() + static_cast<std::size_t>(value.bytes));
}

}  // namespace kernelwright::emulator
