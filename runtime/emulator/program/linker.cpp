#include "kernelwright/runtime/emulator/program/linker.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "kernelwright/runtime/emulator/ptx/parser.h"

namespace kernelwright::emulator {
namespace {

constexpr std::uint64_t kFrameAlignment = 16;
constexpr std::uint64_t kMaxStackBytes = std::uint64_t{1} << 24;  // as kMaxLocalBytes of the parser

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

bool is_call(const Instruction& instruction) { return instruction.parts[0] == "call"; }

/// The functions that an entry reaches, in the order in which their calls end: callees first, unless they recurse.
class Reached {
 public:
  Reached(const Module& module, const Entry& entry) : module_(module) {
    for (std::size_t i = 0; i < module.functions.size(); ++i) {
      const int alias = module.functions[i].alias;
      by_name_.emplace(module.functions[i].name, alias < 0 ? i : static_cast<std::size_t>(alias));
    }
    state_.resize(module.functions.size());
    depth_.resize(module.functions.size());
    deepest_ = walk(entry);
  }
  const std::vector<std::size_t>& order() const { return order_; }  // indices into Module::functions
  /// Whether the stack's depth is not known: a function may call itself, or a call goes through an address.
  bool unbounded() const { return unbounded_; }
  std::uint64_t deepest() const { return deepest_; }  // bytes of frames, if bounded
  /// The function for which `name` is an alias, or `name`.
  std::string_view name_of(std::string_view name) const { return module_.functions[by_name_.at(name)].name; }

  static std::uint64_t alignment(const Function& function) {
    std::uint64_t most = kFrameAlignment;
    for (const auto& [name, variable] : function.variables)
      if (variable.space == StateSpace::kLocal) most = std::max(most, variable.alignment);
    return most;
  }

 private:
  enum class State : std::uint8_t { kNew, kOpen, kDone };
  struct Visit {
    std::size_t function;              // index; of the entry: none
    std::vector<std::size_t> callees;  // by name
    bool through_address = false;      // it may also call every function
    std::size_t next = 0;
    std::uint64_t deepest = 0;
  };

  /// Throws unless the function can be run.
  void check(const Function& function, const Instruction& call) const {
    if (!function.refusal.empty())
      throw PtxError(function.refusal_line, fmt::format("in the function `{}`: {}", function.name, function.refusal));
    if (!function.defined)
      throw PtxError(call.line,
                     fmt::format("`{}` is called, and is defined in another module. The emulator links no modules. It "
                                 "brings vprintf, malloc, free and __assertfail",
                                 function.name));
  }

  Visit visit(const Body& body, std::size_t index) {
    Visit made{.function = index, .callees = {}};
    std::vector<std::size_t>& found = made.callees;
    for (const Instruction& instruction : body.instructions) {
      if (!is_call(instruction)) continue;
      if (instruction.operands[0].kind == Operand::Kind::kRegister) {
        made.through_address = unbounded_ = true;
        continue;
      }
      const std::size_t callee = by_name_.at(instruction.operands[0].name);
      const Function& function = module_.functions[callee];
      if (!function.defined && is_built_in(function.name)) continue;
      check(function, instruction);
      check_sizes(function, instruction, body);
      found.push_back(callee);
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return made;
  }

  /// The next function that `top` may call; that many as there are functions if there is none. All bodies that call
  /// through addresses share one walk over the functions.
  std::size_t next_callee(Visit& top) {
    const std::size_t none = module_.functions.size();
    if (top.next < top.callees.size()) return top.callees[top.next++];
    if (!top.through_address) return none;
    for (; next_by_address_ < none; ++next_by_address_) {
      const Function& function = module_.functions[next_by_address_];
      if (function.defined && function.refusal.empty()) return next_by_address_++;
    }
    return none;
  }

  /// The text may have declared the function otherwise before it defined the function.
  static void check_sizes(const Function& function, const Instruction& call, const Body& body) {
    const auto check = [&](const Operand& actual, const std::vector<Variable>& formals) {
      const auto same = [&](const Operand& place, const Variable& formal) {
        return body.variables.at(place.name).bytes == formal.bytes;
      };
      if (!std::ranges::equal(actual.elements, formals, same))
        throw PtxError(call.line,
                       fmt::format("`{}` is defined with other parameters in line {}", function.name, function.line));
    };
    check(call.operands[1], function.signature.results);
    check(call.operands[2], function.signature.parameters);
  }

  std::uint64_t walk(const Entry& entry) {
    std::vector<Visit> open;
    open.push_back(visit(entry, module_.functions.size()));
    for (;;) {
      Visit& top = open.back();
      if (const std::size_t callee = next_callee(top); callee < module_.functions.size()) {
        if (state_[callee] == State::kOpen) {
          unbounded_ = true;
        } else if (state_[callee] == State::kDone) {
          top.deepest = std::max(top.deepest, depth_[callee]);
        } else {
          state_[callee] = State::kOpen;
          open.push_back(visit(module_.functions[callee], callee));
        }
        continue;
      }
      const std::uint64_t below = top.deepest;
      const std::size_t function = top.function;
      open.pop_back();
      if (open.empty()) return below;
      const Function& done = module_.functions[function];
      const std::uint64_t align = alignment(done);
      state_[function] = State::kDone;
      // A frame begins at a multiple of its alignment: up to align - 1 bytes are left out before it.
      depth_[function] = below + std::max(rounded(done.local_bytes, kFrameAlignment), kFrameAlignment) + align;
      order_.push_back(function);
      open.back().deepest = std::max(open.back().deepest, depth_[function]);
    }
  }

  const Module& module_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
  std::vector<State> state_;
  std::vector<std::uint64_t> depth_;  // by function: bytes of its frame and of those below it
  std::vector<std::size_t> order_;
  std::size_t next_by_address_ = 0;
  bool unbounded_ = false;
  std::uint64_t deepest_ = 0;
};

void shift_registers(Operand& operand, int by) {
  if (operand.reg >= 0) operand.reg += by;
  if (operand.paired >= 0) operand.paired += by;
  for (Operand& element : operand.elements) shift_registers(element, by);
}

/// Calls of an alias become calls of the function for which it stands.
void append(std::vector<Instruction>& to, const Body& body, int registers, const Reached& reached) {
  const int shift = static_cast<int>(to.size());
  for (const Instruction& instruction : body.instructions) {
    Instruction& copy = to.emplace_back(instruction);
    if (copy.guard >= 0) copy.guard += registers;
    for (Operand& operand : copy.operands) shift_registers(operand, registers);
    for (int& target : copy.targets) target += shift;
    if (is_call(copy) && copy.operands[0].kind == Operand::Kind::kSymbol)
      copy.operands[0].name = reached.name_of(copy.operands[0].name);
  }
}

}  // namespace

std::unique_ptr<const Entry> link_functions(const Module& module, const Entry& entry) {
  if (std::none_of(entry.instructions.begin(), entry.instructions.end(), is_call)) return nullptr;
  const Reached reached(module, entry);
  if (reached.order().empty()) return nullptr;
  auto linked = std::make_unique<Entry>(entry);
  linked->instructions.clear();
  for (const std::size_t index : reached.order()) {
    const Function& function = module.functions[index];
    LinkedFunction& made = linked->functions.emplace_back();
    made.name = function.name;
    made.address = function_address(index);
    made.first_instruction = static_cast<int>(linked->instructions.size());
    made.first_register = static_cast<int>(linked->registers.size());
    append(linked->instructions, function, made.first_register, reached);
    linked->registers.insert(linked->registers.end(), function.registers.begin(), function.registers.end());
    made.end_instruction = static_cast<int>(linked->instructions.size());
    made.end_register = static_cast<int>(linked->registers.size());
    made.frame_bytes = std::max(rounded(function.local_bytes, kFrameAlignment), kFrameAlignment);
    made.frame_alignment = Reached::alignment(function);
    made.signature = function.signature;
    linked->variables.insert(function.variables.begin(), function.variables.end());
    linked->shared.insert(linked->shared.end(), function.shared.begin(), function.shared.end());
  }
  linked->start = static_cast<int>(linked->instructions.size());
  append(linked->instructions, entry, 0, reached);
  linked->stack_bytes = rounded(entry.local_bytes, kFrameAlignment) +
                        (reached.unbounded() ? std::max(kRecursionStackBytes, reached.deepest()) : reached.deepest());
  if (linked->stack_bytes > kMaxStackBytes)
    throw PtxError(entry.line, fmt::format("the frames of the functions that `{}` calls take {} bytes a thread; {} is "
                                           "the most",
                                           entry.name, linked->stack_bytes, kMaxStackBytes));
  return linked;
}

}  // namespace kernelwright::emulator
