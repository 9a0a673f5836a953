#include "kernelwright/runtime/emulator/program/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>
#include <unordered_map>

#include "kernelwright/runtime/emulator/program/pattern.h"
#include "kernelwright/runtime/emulator/program/register_slots.h"
#include "kernelwright/runtime/emulator/program/shared_layout.h"
#include "kernelwright/runtime/emulator/program/special_registers.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"

namespace kernelwright::emulator {

namespace {

constexpr std::string_view kIgnoredHints[] = {
    "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate",
    "L2::evict_normal", "L2::evict_first",     "L2::evict_last",  "L2::64B",        "L2::128B",
    "L2::256B",         "L2::cache_hint",
};

bool is_hint(std::string_view part) {
  return std::find(std::begin(kIgnoredHints), std::end(kIgnoredHints), part) != std::end(kIgnoredHints);
}

/// The whole decode table, indexed by the opcode's first part.
class Table {
 public:
  Table() {
    using Forms = std::span<const Form> (*)();
    static constexpr Forms kFamilies[] = {
        integer_forms,     logic_forms,          float_forms,        packed_float_forms, half_forms,
        compare_forms,     convert_forms,        move_forms,         memory_forms,       atomic_forms,
        warp_forms,        control_forms,        barrier_forms,      mbarrier_forms,     cluster_forms,
        store_async_forms, cluster_launch_forms, fence_forms,        copy_async_forms,   bulk_copy_forms,
        tensor_copy_forms, tensor_map_forms,     matrix_move_forms,  mma_forms,          wgmma_forms,
        tcgen05_forms,     tcgen05_move_forms,   tcgen05_copy_forms, tcgen05_mma_forms,  scaled_mma_forms,
        sparse_mma_forms};
    for (const Forms family : kFamilies)
      for (const Form& form : family()) {
        const auto row = std::make_shared<Row>(Row{Pattern(form.pattern), &form});
        for (const std::string_view root : row->pattern.roots()) rows_[root].push_back(row);
      }
  }
  struct Match {
    const Form* form = nullptr;
    std::vector<std::string_view> choices;
  };
  Match find(std::span<const std::string_view> parts) const {
    if (const auto rows = rows_.find(parts.front()); rows != rows_.end())
      for (const auto& row : rows->second)
        if (auto choices = row->pattern.match(parts)) return {row->form, std::move(*choices)};
    return {};
  }
  /// `parts` in the spelling of a row, if they differ from the row only in the order of their modifiers; otherwise
  /// empty.
  std::vector<std::string_view> respell(std::span<const std::string_view> parts) const {
    if (const auto rows = rows_.find(parts.front()); rows != rows_.end())
      for (const auto& row : rows->second)
        if (auto arranged = row->pattern.arrange(parts)) return std::move(*arranged);
    return {};
  }
  bool knows(std::string_view root) const { return rows_.count(root) != 0; }

 private:
  struct Row {
    Pattern pattern;
    const Form* form;
  };
  std::unordered_map<std::string_view, std::vector<std::shared_ptr<Row>>> rows_;
};

const Table& table() {
  static const Table& made = *new Table;  // never destroyed: threads may decode while the process exits
  return made;
}

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

std::span<const std::string_view> ignored_hints() { return kIgnoredHints; }

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
  SlotMap slots;
  std::vector<bool> pinned;
  std::map<std::pair<int, std::uint64_t>, Slot> constants;
  std::map<std::tuple<Special, RegisterClass, std::uint64_t>, Slot> specials;
  std::uint32_t next_constant = 0;  // slot of the next constant or special register
  std::unordered_map<std::string_view, Table::Match> memo;
  std::vector<bool> consumed, negation_seen;  // by operand of the current instruction

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
  Slot special_register(const Decoder& decoder, std::string_view name, RegisterClass size) {
    const std::optional<SpecialRegister> found = find_special_register(name);
    if (!found) decoder.refuse(fmt::format("{} is not modelled", name));
    const bool fits = found->size                  ? size == *found->size
                      : size == RegisterClass::k16 ? found->fills_16_bits
                                                   : size == RegisterClass::k32 || size == RegisterClass::k64;
    if (!fits) decoder.refuse(fmt::format("{} does not fit into {} register", name, name_of_class(size)));
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
    if (!variable) decoder.refuse(fmt::format("there is no variable `{}`", operand.name));
    const std::uint64_t offset = variable->offset + static_cast<std::uint64_t>(operand.offset);
    switch (variable->space) {
      case StateSpace::kShared:
        return special(Special::kSharedSymbol, size, kSharedBase + shared.offsets.at(operand.name) + offset);
      case StateSpace::kParam:
        if (!wide) decoder.refuse("the address of a parameter takes 64 bits");
        return special(Special::kParameter, size, offset);
      case StateSpace::kLocal: return constant(offset, size);
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

const Entry& Decoder::entry() const { return state_.entry; }
std::string_view Decoder::target() const { return state_.module.target; }
void Decoder::communicates() { state_.program.clusters_communicate = true; }

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

namespace {
const Operand& operand_at(const Decoder& decoder, std::size_t operand) {
  if (operand >= decoder.num_operands()) decoder.refuse(fmt::format("lacks its operand {}", operand + 1));
  return decoder.operands()[operand];
}
}  // namespace

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
  if (fresh) match->second = table().find(parts);
  if (!match->second.form) {
    decoder.refuse(table().knows(parts.front()) ? "this form is not modelled by the emulator"
                                                : "this instruction is not modelled by the emulator");
  }
  decoder.choices_ = match->second.choices;
  decoder.operands_ = instruction.operands;
  if (cache_hint) {
    if (decoder.operands_.empty()) decoder.refuse("lacks its cache policy");
    decoder.operands_.pop_back();
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

/// The parts of an opcode in an order that a row of the table has, hints last. Empty if they have this order already,
/// or no row has them.
std::vector<std::string_view> respelt(const std::vector<std::string_view>& parts) {
  std::vector<std::string_view> plain, hints;
  for (const std::string_view part : parts) (is_hint(part) ? hints : plain).push_back(part);
  if (plain.empty() || table().find(plain).form) return {};
  std::vector<std::string_view> spelt = table().respell(plain);
  if (!spelt.empty()) spelt.insert(spelt.end(), hints.begin(), hints.end());
  return spelt;
}

/// Whether `{%r1}` means the same as `%r1` for this operand. In all other instructions, ptxas does not accept one for
/// the other.
bool takes_vector_of_one(const Instruction& instruction, std::size_t operand) {
  const std::string_view root = instruction.parts[0];
  if (root == "ld" || root == "st" || root == "mov") return true;
  const auto& parts = instruction.parts;
  return root == "tcgen05" && operand == 1 && parts.size() > 2 && parts[1] == "ld" && parts[2] == "red";
}

}  // namespace

void respell(Module& module) {
  std::unordered_map<std::string_view, std::vector<std::string_view>> known;
  for (Entry& entry : module.entries)
    for (Instruction& instruction : entry.instructions) {
      const auto [found, fresh] = known.try_emplace(instruction.opcode);
      if (fresh) found->second = respelt(instruction.parts);
      if (!found->second.empty()) instruction.parts = found->second;
      for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
        Operand& operand = instruction.operands[i];
        if (operand.kind == Operand::Kind::kVector && operand.elements.size() == 1 &&
            takes_vector_of_one(instruction, i))
          operand = Operand(operand.elements.front());
      }
    }
}

std::unique_ptr<Program> decode(const Module& module, const Entry& entry, std::uint64_t globals) {
  auto program = std::make_unique<Program>();
  program->module = &module;
  program->entry = &entry;
  const SharedLayout shared = lay_out_shared(module, entry);
  program->static_shared_bytes = static_cast<std::uint32_t>(shared.static_bytes);
  program->dynamic_shared_at = static_cast<std::uint32_t>(shared.dynamic_begin);
  Decoder::State state{module, entry, globals, shared, *program, {}, find_pinned(entry), {}, {}, 0, {}, {}, {}};
  state.slots = assign_slots(entry, state.pinned);
  program->pinned_bytes = state.slots.pinned_bytes;
  program->constants_at = state.next_constant = (state.slots.bytes + 63) / 64 * 64;
  program->ops.resize(entry.instructions.size() + 1);
  Decoder decoder(state);
  for (std::size_t i = 0; i < entry.instructions.size(); ++i) {
    const Instruction& instruction = entry.instructions[i];
    Op& op = program->ops[i];
    op.index = static_cast<std::uint32_t>(i);
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
