#include "kernelwright/runtime/emulator/program/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <unordered_map>

#include "kernelwright/runtime/emulator/program/form_table.h"
#include "kernelwright/runtime/emulator/program/linker.h"
#include "kernelwright/runtime/emulator/program/register_slots.h"
#include "kernelwright/runtime/emulator/program/shared_layout.h"
#include "kernelwright/runtime/emulator/program/special_registers.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"

namespace kernelwright::emulator {

namespace {

/// Bytes of one register for the whole warp.
std::uint32_t slot_bytes(RegisterClass size) {
  switch (size) {
    case RegisterClass::kPredicate: return 4;
    case RegisterClass::k16: return 64;
    case RegisterClass::k32: return 128;
    case RegisterClass::k64: return 256;
    case RegisterClass::k128: return 512;
  }
  return 0;
}

std::string_view name_of_class(RegisterClass size) {
  constexpr std::string_view kNames[] = {"a predicate", "a 16-bit", "a 32-bit", "a 64-bit", "a 128-bit"};
  return kNames[static_cast<std::size_t>(size)];
}

}  // namespace

RegisterClass class_of_type(std::string_view type) {
  if (type == "pred") return RegisterClass::kPredicate;
  switch (bytes_of_type(type)) {
    case 1:
    case 2: return RegisterClass::k16;
    case 4: return RegisterClass::k32;
    case 8: return RegisterClass::k64;
    default: return RegisterClass::k128;
  }
}

std::uint32_t bytes_of_type(std::string_view type) {
  // Never destroyed, like the table above.
  static const auto& kBytes = *new std::map<std::string_view, std::uint32_t>{
      {"b8", 1},    {"u8", 1},  {"s8", 1},   {"e4m3", 1},   {"e5m2", 1},   {"b16", 2},     {"u16", 2},
      {"s16", 2},   {"f16", 2}, {"bf16", 2}, {"e4m3x2", 2}, {"e5m2x2", 2}, {"ue8m0x2", 2}, {"b32", 4},
      {"u32", 4},   {"s32", 4}, {"f32", 4},  {"tf32", 4},   {"f16x2", 4},  {"bf16x2", 4},  {"u16x2", 4},
      {"s16x2", 4}, {"b64", 8}, {"u64", 8},  {"s64", 8},    {"f64", 8},    {"f32x2", 8},   {"b128", 16}};
  return kBytes.at(type);
}

/// The state of one decode().
struct Decoder::State {
  const Module& module;
  const Entry& entry;
  std::uint64_t globals;
  const SharedLayout& shared;
  Program& program;
  SlotMap slots = {};
  std::vector<bool> pinned;
  std::map<std::pair<int, std::uint64_t>, Slot> constants = {};
  std::map<std::tuple<Special, RegisterClass, std::uint64_t>, Slot> specials = {};
  int function = -1;  // index of the linked function to which the current instruction belongs; -1: the entry
  std::size_t next_function = 0;
  std::map<std::tuple<int, RegisterClass, std::uint64_t>, Slot> frame_slots = {};
  std::uint32_t next_constant = 0;  // slot of the next constant or special register
  std::unordered_map<std::string_view, FormTable::Match> memo = {};
  std::vector<bool> consumed = {}, negation_seen = {};  // by operand of the current instruction

  Slot place(RegisterClass size) {
    const std::uint32_t bytes = slot_bytes(size), align = std::min<std::uint32_t>(bytes, 64);
    next_constant = (next_constant + align - 1) / align * align;
    const Slot slot = next_constant;
    next_constant += bytes;
    const std::size_t end = next_constant - program.constants_at;
    if (program.constants.size() < end) program.constants.resize(end);
    return slot;
  }
  Slot constant(std::uint64_t value, RegisterClass size) {
    if (size == RegisterClass::k16) value &= 0xffff;
    if (size == RegisterClass::k32) value &= 0xffffffff;
    const auto [found, fresh] = constants.try_emplace({static_cast<int>(size), value}, kNoSlot);
    if (!fresh) return found->second;
    const Slot slot = found->second = place(size);
    std::byte* bytes = program.constants.data() + (slot - program.constants_at);
    if (size == RegisterClass::kPredicate) {
      const LaneMask mask = value ? kAllLanes : 0;
      std::memcpy(bytes, &mask, sizeof mask);
    } else {
      const std::uint32_t each =
          std::min<std::uint32_t>(slot_bytes(size) / 32, 8);  // b128: low halves; high halves are zero
      for (std::uint32_t lane = 0; lane < 32; ++lane) std::memcpy(bytes + lane * each, &value, each);
    }
    return slot;
  }
  Slot special(Special what, RegisterClass size, std::uint64_t value) {
    const auto [found, fresh] = specials.try_emplace({what, size, value}, kNoSlot);
    if (!fresh) return found->second;
    found->second = place(size);
    program.specials.push_back({found->second, what, size, value});
    return found->second;
  }
  /// The address of a byte of the current function's frame. A call fills it in.
  Slot frame_place(std::uint64_t offset, RegisterClass size) {
    const auto [found, fresh] = frame_slots.try_emplace({function, size, offset}, kNoSlot);
    if (!fresh) return found->second;
    found->second = place(size);
    program.functions[static_cast<std::size_t>(function)].frame_slots.push_back({found->second, size, offset});
    return found->second;
  }
  Slot special_register(const Decoder& decoder, std::string_view name, RegisterClass size) {
    const std::optional<SpecialRegister> found = find_special_register(name);
    if (!found) decoder.refuse(fmt::format("{} is not modelled", name));
    const bool fits = found->size                  ? size == *found->size
                      : size == RegisterClass::k16 ? found->fills_16_bits
                                                   : size == RegisterClass::k32 || size == RegisterClass::k64;
    if (!fits) decoder.refuse(fmt::format("{} does not fit into {} register", name, name_of_class(size)));
    program.uses_reserved_shared |= name == "%reserved_smem_offset_1";
    program.reads_grid_workspace |= found->what == Special::kGridWorkspace;
    return special(found->what, size, found->value);
  }
  const Variable* variable(std::string_view name) const {
    if (const auto found = entry.variables.find(name); found != entry.variables.end()) return &found->second;
    if (const auto found = module.variables.find(name); found != module.variables.end()) return &found->second;
    for (const auto& [parameter, variable] : entry.parameters)
      if (parameter == name) return &variable;
    return nullptr;
  }
  Slot symbol(const Decoder& decoder, const Operand& operand, RegisterClass size) {
    const bool wide = size == RegisterClass::k64;
    if (!wide && size != RegisterClass::k32) decoder.refuse("an address does not fit into this operand");
    const Variable* variable = this->variable(operand.name);
    if (!variable) {
      const Function* const function = module.find_function(operand.name);
      if (!function) decoder.refuse(fmt::format("there is no variable `{}`", operand.name));
      if (!wide || operand.offset != 0) decoder.refuse("the address of a function takes 64 bits, and no offset");
      return constant(function_address(static_cast<std::size_t>(function - module.functions.data())), size);
    }
    const std::uint64_t offset = variable->offset + static_cast<std::uint64_t>(operand.offset);
    switch (variable->space) {
      case StateSpace::kShared:
        return special(Special::kSharedSymbol, size, kSharedBase + shared.offsets.at(operand.name) + offset);
      case StateSpace::kParam: return special(Special::kParameter, size, offset);  // cvta.param completes 32 bits
      case StateSpace::kLocal: return function < 0 ? constant(offset, size) : frame_place(offset, size);
      case StateSpace::kGlobal:
      case StateSpace::kConst:
        if (!wide) decoder.refuse("the address of a global variable takes 64 bits");
        return constant(globals + offset, size);
      case StateSpace::kGeneric: break;
    }
    decoder.refuse(fmt::format("`{}` has no address", operand.name));
  }
  std::size_t index_of(const Decoder& decoder, const Operand& operand) const {
    const auto* first = decoder.operands_.data();
    return &operand >= first && &operand < first + decoder.operands_.size() ? static_cast<std::size_t>(&operand - first)
                                                                            : decoder.operands_.size();
  }
  void consume(const Decoder& decoder, const Operand& operand) {
    const std::size_t at = index_of(decoder, operand);
    if (at < consumed.size()) consumed[at] = true;
  }
  void decode_one(Decoder& decoder, const Instruction& instruction, Op& op);
};

namespace {
const Operand& operand_at(const Decoder& decoder, std::size_t operand) {
  if (operand >= decoder.num_operands()) decoder.refuse(fmt::format("lacks its operand {}", operand + 1));
  return decoder.operands()[operand];
}
}  // namespace

const Entry& Decoder::entry() const { return state_.entry; }
bool Decoder::in_function() const { return state_.function >= 0; }

bool Decoder::calls_linked_function() const {
  const Operand& callee = operand_at(*this, 0);
  return callee.kind == Operand::Kind::kSymbol &&
         std::ranges::find(state_.entry.functions, callee.name, &LinkedFunction::name) != state_.entry.functions.end();
}

void Decoder::call(Op& op) {
  const Operand& callee = operand_at(*this, 0);
  const bool indirect = callee.kind == Operand::Kind::kRegister;
  if (indirect) op.a = source(0, RegisterClass::k64);
  for (std::size_t i = indirect ? 1 : 0; i < 3; ++i) take(i);
  Program::Call& call = state_.program.calls.emplace_back();
  const auto& functions = state_.entry.functions;
  const auto found = std::ranges::find(functions, callee.name, &LinkedFunction::name);
  if (!indirect && found == functions.end()) refuse(fmt::format("`{}` is called, and is not linked", callee.name));
  if (!indirect) call.function = static_cast<int>(found - functions.begin());
  const auto places = [&](std::size_t operand) {
    std::vector<Variable> list;
    for (const Operand& element : operands_[operand].elements) list.push_back(*state_.variable(element.name));
    return list;
  };
  call.actual = {places(1), places(2)};
  op.imm = state_.program.calls.size() - 1;
  op.flow = Flow::kCall;
}

std::string_view Decoder::target() const { return state_.module.target; }
void Decoder::communicates() { state_.program.clusters_communicate = true; }
void Decoder::uses_heap() { state_.program.uses_heap = true; }

namespace {
/// The number in a target: 100 for "sm_100a".
int number_of_target(const std::string& target) { return std::atoi(target.c_str() + std::strlen("sm_")); }
}  // namespace

void Decoder::require_blackwell() const {
  const std::string& target = state_.module.target;
  if (number_of_target(target) < 100)
    refuse(fmt::format("needs sm_100 or later, and the module's target is {}", target));
}

void Decoder::require_tensor_memory() const {
  const std::string& target = state_.module.target;
  const int number = number_of_target(target);
  const bool specific = target.ends_with('a') || target.ends_with('f');
  if (number < 100 || number >= 120 || !specific)
    refuse(fmt::format("needs tensor memory, which sm_100a and sm_103a have, and the module's target is {}", target));
}

std::string_view Decoder::choice(std::size_t i) const { return choices_.at(i); }

bool Decoder::has(std::string_view modifier) const {
  return std::find(choices_.begin(), choices_.end(), modifier) != choices_.end();
}

void Decoder::refuse(const std::string& why) const {
  throw PtxError(instruction_->line, fmt::format("`{}`: {}", instruction_->opcode, why));
}

void Decoder::expect_operands(std::size_t low, std::size_t high) const {
  if (operands_.size() < low || operands_.size() > high)
    refuse(low == high ? fmt::format("has {} operands, not {}", low, operands_.size())
                       : fmt::format("has {} to {} operands, not {}", low, high, operands_.size()));
}

Slot Decoder::destination(std::size_t operand, RegisterClass size) {
  return destination(operand_at(*this, operand), size);
}

Slot Decoder::destination(const Operand& operand, RegisterClass size) {
  state_.consume(*this, operand);
  if (operand.kind == Operand::Kind::kSink) return kNoSlot;
  if (operand.kind != Operand::Kind::kRegister) refuse("writes to something that is no register");
  if (register_class(operand) != size) refuse(fmt::format("needs {} destination register", name_of_class(size)));
  return state_.slots.slot[static_cast<std::size_t>(operand.reg)];
}

Slot Decoder::source(std::size_t operand, RegisterClass size) { return source(operand_at(*this, operand), size); }

Slot Decoder::source(const Operand& operand, RegisterClass size) {
  state_.consume(*this, operand);
  switch (operand.kind) {
    case Operand::Kind::kRegister:
      if (register_class(operand) != size) refuse(fmt::format("needs {} source register", name_of_class(size)));
      return state_.slots.slot[static_cast<std::size_t>(operand.reg)];
    case Operand::Kind::kImmediate: return state_.constant(operand.immediate, size);
    case Operand::Kind::kSymbol: return state_.symbol(*this, operand, size);
    case Operand::Kind::kSpecialRegister: return state_.special_register(*this, operand.name, size);
    case Operand::Kind::kSink:
    case Operand::Kind::kVector:
    case Operand::Kind::kAddress: break;
  }
  refuse("has an operand of a kind that it does not take");
}

void Decoder::take(std::size_t operand) { state_.consume(*this, operand_at(*this, operand)); }

Slot Decoder::constant(std::uint64_t value, RegisterClass size) { return state_.constant(value, size); }

Slot Decoder::parameters() { return state_.special(Special::kParameter, RegisterClass::k64, 0); }

bool Decoder::negated(std::size_t operand) const {
  const Operand& at = operand_at(*this, operand);
  state_.negation_seen[operand] = true;
  return at.negated;
}

std::int64_t Decoder::immediate(std::size_t operand, std::int64_t low, std::int64_t high) const {
  const Operand& at = operand_at(*this, operand);
  state_.consume(*this, at);
  const auto value = static_cast<std::int64_t>(at.immediate);
  if (at.kind != Operand::Kind::kImmediate || at.floating || value < low || value > high)
    refuse(fmt::format("needs a constant from {} to {} as operand {}", low, high, operand + 1));
  return value;
}

RegisterClass Decoder::register_class(const Operand& operand) const {
  if (operand.kind != Operand::Kind::kRegister) refuse("needs a register");
  return state_.entry.registers[static_cast<std::size_t>(operand.reg)];
}

void Decoder::address(std::size_t operand, StateSpace space, Op& op) { address(operand_at(*this, operand), space, op); }

void Decoder::address(const Operand& operand, StateSpace space, Op& op) {
  state_.consume(*this, operand);
  if (operand.kind != Operand::Kind::kAddress || operand.elements.empty()) refuse("needs an address in brackets");
  Operand base = operand.elements.front();
  op.offset = 0;
  if (base.kind == Operand::Kind::kRegister) {
    const RegisterClass size = register_class(base);
    if (size != RegisterClass::k32 && size != RegisterClass::k64) refuse("needs an address of 32 or 64 bits");
    op.wide_address = size == RegisterClass::k64;
    op.a = source(base, size);
    if (operand.offset + base.offset != static_cast<std::int32_t>(operand.offset + base.offset))
      refuse("has an address offset beyond 32 bits");
    op.offset = static_cast<std::int32_t>(operand.offset + base.offset);
    return;
  }
  if (base.kind == Operand::Kind::kImmediate) {
    base.immediate += static_cast<std::uint64_t>(operand.offset);
    op.wide_address = space != StateSpace::kShared && space != StateSpace::kLocal;
  } else if (base.kind == Operand::Kind::kSymbol) {
    base.offset += operand.offset;
    const Variable* variable = state_.variable(base.name);
    op.wide_address = !variable || (variable->space != StateSpace::kShared && variable->space != StateSpace::kLocal);
    if (variable && space == StateSpace::kGeneric && !op.wide_address)
      refuse("names a variable that is not in generic space");
  } else {
    refuse("has an address whose base is neither a register nor a symbol");
  }
  op.a = source(base, op.wide_address ? RegisterClass::k64 : RegisterClass::k32);
}

std::span<const Slot> Decoder::vector(std::size_t operand, RegisterClass size, bool destination) {
  const Operand& at = operand_at(*this, operand);
  state_.consume(*this, at);
  if (at.kind == Operand::Kind::kVector) return vector(at.elements, size, destination);
  return vector(std::span(&at, 1), size, destination);
}

std::span<const Slot> Decoder::vector(std::span<const Operand> operands, RegisterClass size, bool is_destination) {
  const std::span<Slot> list = slots(operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i)
    list[i] = is_destination ? destination(operands[i], size) : source(operands[i], size);
  return list;
}

std::span<Slot> Decoder::slots(std::size_t count) {
  state_.program.slot_lists.emplace_back(count, kNoSlot);
  return state_.program.slot_lists.back();
}

void Decoder::State::decode_one(Decoder& decoder, const Instruction& instruction, Op& op) {
  decoder.instruction_ = &instruction;
  std::vector<std::string_view> parts;
  bool cache_hint = false;
  for (const std::string_view part : instruction.parts) {
    cache_hint |= part == "L2::cache_hint";
    if (!is_hint(part)) parts.push_back(part);
  }
  auto [match, fresh] = memo.try_emplace(instruction.opcode);
  if (fresh) match->second = form_table().find(parts);
  if (!match->second.form) {
    decoder.refuse(form_table().knows(parts.front()) ? "this form is not modelled by the emulator"
                                                     : "this instruction is not modelled by the emulator");
  }
  decoder.choices_ = match->second.choices;
  decoder.operands_ = instruction.operands;
  if (cache_hint) {
    const bool masked = std::ranges::find(instruction.parts, "cp_mask") != instruction.parts.end();
    const std::size_t behind = masked ? 2 : 1;  // a mask comes behind the policy
    if (decoder.operands_.size() < behind) decoder.refuse("lacks its cache policy");
    decoder.operands_.erase(decoder.operands_.end() - static_cast<std::ptrdiff_t>(behind));
  }
  consumed.assign(decoder.operands_.size(), false);
  negation_seen.assign(decoder.operands_.size(), false);
  if (instruction.guard >= 0) {
    op.guard = slots.slot[static_cast<std::size_t>(instruction.guard)];
    op.guard_negated = instruction.guard_negated;
  }
  match->second.form->decode(decoder, op);
  for (std::size_t i = 0; i < consumed.size(); ++i) {
    if (!consumed[i]) decoder.refuse(fmt::format("has an operand {} that it does not take", i + 1));
    if (decoder.operands_[i].negated && !negation_seen[i])
      decoder.refuse(fmt::format("does not take a negated operand {}", i + 1));
  }
  if (!op.run && op.flow == Flow::kPlain) decoder.refuse("this form is not modelled by the emulator");
}

namespace {

/// Calls `visit` for every register of an operand.
template <class Visit>
void visit_registers(const Operand& operand, Visit&& visit) {
  if (operand.reg >= 0) visit(static_cast<std::size_t>(operand.reg));
  if (operand.paired >= 0) visit(static_cast<std::size_t>(operand.paired));
  for (const Operand& element : operand.elements) visit_registers(element, visit);
}

bool is_asynchronous_load(const Instruction& instruction) {
  return instruction.parts.size() > 1 && instruction.parts[0] == "tcgen05" && instruction.parts[1] == "ld";
}

/// Whether the instruction's registers are in use after it. Its handler then tells the checker about them.
bool is_asynchronous(const Instruction& instruction) {
  return is_asynchronous_load(instruction) ||
         (instruction.parts.size() > 1 && instruction.parts[0] == "wgmma" && instruction.parts[1] == "mma_async");
}

/// The registers that a wgmma or tcgen05.ld reads or writes while later instructions run. For wgmma these are
/// accumulators and fragments of A; for tcgen05.ld, the loaded registers and those of the reduced value.
std::vector<bool> find_pinned(const Entry& entry) {
  std::vector<bool> pinned(entry.registers.size());
  for (const Instruction& instruction : entry.instructions)
    if (is_asynchronous(instruction))
      for (std::size_t i = 0; i < std::min<std::size_t>(instruction.operands.size(), 2); ++i)
        if (is_asynchronous_load(instruction) ? defines(instruction, i)
                                              : instruction.operands[i].kind == Operand::Kind::kVector)
          visit_registers(instruction.operands[i], [&](std::size_t reg) { pinned[reg] = true; });
  return pinned;
}

}  // namespace

namespace {

/// The registers of a function, whose values a call that enters it once more must keep.
std::vector<std::pair<Slot, RegisterClass>> registers_of(const Entry& entry, const LinkedFunction& function,
                                                         const SlotMap& slots) {
  std::vector<std::pair<Slot, RegisterClass>> found;
  for (int reg = function.first_register; reg < function.end_register; ++reg)
    if (const Slot slot = slots.slot[static_cast<std::size_t>(reg)]; slot != kNoSlot)
      found.emplace_back(slot, entry.registers[static_cast<std::size_t>(reg)]);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace

std::unique_ptr<Program> decode(const Module& module, const Entry& unlinked, std::uint64_t globals) {
  auto program = std::make_unique<Program>();
  program->module = &module;
  program->linked = link_functions(module, unlinked);
  const Entry& entry = program->linked ? *program->linked : unlinked;
  program->entry = &entry;
  program->start = static_cast<std::uint32_t>(entry.start);
  program->stack_bytes = std::max(entry.stack_bytes, entry.local_bytes);
  const SharedLayout shared = lay_out_shared(module, entry);
  program->static_shared_bytes = static_cast<std::uint32_t>(shared.static_bytes);
  program->dynamic_shared_at = static_cast<std::uint32_t>(shared.dynamic_begin);
  Decoder::State state{.module = module,
                       .entry = entry,
                       .globals = globals,
                       .shared = shared,
                       .program = *program,
                       .pinned = find_pinned(entry)};
  state.slots = assign_slots(entry, state.pinned);
  program->pinned_bytes = state.slots.pinned_bytes;
  program->constants_at = state.next_constant = (state.slots.bytes + 63) / 64 * 64;
  program->ops.resize(entry.instructions.size() + 1);
  for (const LinkedFunction& function : entry.functions)
    program->functions.push_back({&function, {}, registers_of(entry, function, state.slots)});
  Decoder decoder(state);
  for (std::size_t i = 0; i < entry.instructions.size(); ++i) {
    const Instruction& instruction = entry.instructions[i];
    Op& op = program->ops[i];
    op.index = static_cast<std::uint32_t>(i);
    while (state.next_function < entry.functions.size() &&
           static_cast<int>(i) == entry.functions[state.next_function].first_instruction)
      state.function = static_cast<int>(state.next_function++);
    if (static_cast<int>(i) == entry.start) state.function = -1;
    state.decode_one(decoder, instruction, op);
    if (!instruction.targets.empty()) {
      program->target_lists.emplace_back(instruction.targets.begin(), instruction.targets.end());
      op.targets = program->target_lists.back().data();
      op.target_count = static_cast<std::uint32_t>(instruction.targets.size());
    }
    if (!is_asynchronous(instruction))
      for (const Operand& operand : instruction.operands)
        visit_registers(operand, [&](std::size_t reg) { op.touches_pinned |= state.pinned[reg]; });
  }
  program->ops.back().flow = Flow::kExit;
  program->ops.back().index = static_cast<std::uint32_t>(entry.instructions.size());
  program->register_bytes = (state.next_constant + 63) / 64 * 64;
  program->constants.resize(program->register_bytes - program->constants_at);
  return program;
}

}  // namespace kernelwright::emulator
