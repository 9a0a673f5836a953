/// Turns text into Ops, by a table with one row per instruction form.
///
/// A row's pattern spells the opcode: parts are separated by dots, `(a|b)` is a choice, a trailing `?` makes a part
/// optional: "ld.(global|shared|shared::cta)?.(v2|v4)?.(b32|u32|f32)". An instruction that no row spells is refused by
/// its opcode and line. Modifiers are never skipped, except the hints that ignored_hints() lists.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/runtime/emulator/program/op.h"
#include "kernelwright/runtime/emulator/program/program.h"
#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

class Decoder;

struct Form {
  std::string_view pattern;
  void (*decode)(Decoder& decoder, Op& op);  // sets op.run and the operands of op
};

/// Modifiers that change speed and nothing else: eviction priorities and prefetch sizes. They may stand at any place.
std::span<const std::string_view> ignored_hints();

/// All rows, from the ops_<family>.cpp files.
std::span<const Form> integer_forms();
std::span<const Form> logic_forms();
std::span<const Form> float_forms();
std::span<const Form> packed_float_forms();
std::span<const Form> half_forms();
std::span<const Form> compare_forms();
std::span<const Form> convert_forms();
std::span<const Form> move_forms();
std::span<const Form> memory_forms();
std::span<const Form> address_forms();
std::span<const Form> cache_forms();
std::span<const Form> video_forms();
std::span<const Form> atomic_forms();
std::span<const Form> warp_forms();
std::span<const Form> control_forms();
std::span<const Form> call_forms();
std::span<const Form> barrier_forms();
std::span<const Form> mbarrier_forms();
std::span<const Form> cluster_forms();
std::span<const Form> store_async_forms();
std::span<const Form> fence_forms();
std::span<const Form> copy_async_forms();
std::span<const Form> bulk_copy_forms();
std::span<const Form> tensor_copy_forms();
std::span<const Form> tensor_map_forms();
std::span<const Form> matrix_move_forms();
std::span<const Form> mma_forms();
std::span<const Form> scaled_mma_forms();
std::span<const Form> sparse_mma_forms();
std::span<const Form> wmma_forms();
std::span<const Form> wgmma_forms();
std::span<const Form> cluster_launch_forms();
std::span<const Form> tcgen05_forms();
std::span<const Form> tcgen05_move_forms();
std::span<const Form> tcgen05_copy_forms();
std::span<const Form> tcgen05_mma_forms();

/// The interface for a row's decode function: one instruction, and the program under construction.
class Decoder {
 public:
  const Instruction& instruction() const { return *instruction_; }
  const Entry& entry() const;
  /// Whether the instruction belongs to a function. If not, the instruction is the entry's own.
  bool in_function() const;
  /// Whether the instruction calls, by its name, a function that link_functions() has linked.
  bool calls_linked_function() const;
  /// Decodes a call of a function that link_functions() has linked, or of one by its address.
  void call(Op& op);
  /// The module's .target: "sm_100a".
  std::string_view target() const;
  /// The operands, without the operand of a .L2::cache_hint, which is removed.
  std::span<const Operand> operands() const { return operands_; }
  std::size_t num_operands() const { return operands_.size(); }
  /// The word that the pattern's i-th choice matched; "" if the choice is optional and absent.
  std::string_view choice(std::size_t i) const;
  /// Whether one of the choices matched `modifier`.
  bool has(std::string_view modifier) const;

  /// A register that the instruction writes; kNoSlot for a sink. Throws PtxError unless it is a register of this class.
  Slot destination(std::size_t operand, RegisterClass size);
  Slot destination(const Operand& operand, RegisterClass size);
  /// A value that the instruction reads: a register of this class, or a constant, symbol address or special register in
  /// its own slot. A predicate must not be negated: see negated().
  Slot source(std::size_t operand, RegisterClass size);
  Slot source(const Operand& operand, RegisterClass size);
  /// A slot with `value` in all lanes.
  Slot constant(std::uint64_t value, RegisterClass size);
  /// A slot with the 64-bit address of the launch's parameters.
  Slot parameters();
  bool negated(std::size_t operand) const;
  /// The operand's immediate. Throws PtxError if the operand is no immediate in [low, high].
  std::int64_t immediate(std::size_t operand, std::int64_t low, std::int64_t high) const;
  /// The class of a register operand. Throws PtxError if the operand is no register.
  RegisterClass register_class(const Operand& operand) const;
  /// Sets op.a, op.wide_address and op.offset from an address operand whose symbols are in `space`.
  void address(std::size_t operand, StateSpace space, Op& op);
  void address(const Operand& operand, StateSpace space, Op& op);
  /// The registers of a vector operand (a lone register is a vector of one), as sources or destinations.
  std::span<const Slot> vector(std::size_t operand, RegisterClass size, bool destination);
  /// The same for several operands, for op.list.
  std::span<const Slot> vector(std::span<const Operand> operands, RegisterClass size, bool destination);
  /// Marks the operand as read: the form's own code interprets it, from operands().
  void take(std::size_t operand);
  /// Memory that lives as long as the program.
  std::span<Slot> slots(std::size_t count);

  /// Throws PtxError unless the module's target has tensor memory: sm_100a, 103a, 110a and their families (f).
  void require_tensor_memory() const;
  /// The same for features of every target from sm_100 on.
  void require_blackwell() const;
  /// Notes that through this instruction clusters may communicate in global memory: see Program::clusters_communicate.
  void communicates();
  /// Notes that the program calls malloc or free: see Program::uses_heap.
  void uses_heap();

  /// Throws PtxError unless the number of operands is in [low, high]. An operand that the decode function does not read
  /// is refused in any case.
  void expect_operands(std::size_t low, std::size_t high) const;
  /// Throws PtxError with the instruction's line: "`add.f16x4`: …".
  [[noreturn]] void refuse(const std::string& why) const;

  struct State;
  explicit Decoder(State& state) : state_(state) {}

 private:
  friend struct State;
  State& state_;
  const Instruction* instruction_ = nullptr;
  std::vector<Operand> operands_;
  std::vector<std::string_view> choices_;
};

/// The size of the register that a value of a type needs: b8, s16, f32x2, pred, … Throws std::out_of_range for other
/// text.
RegisterClass class_of_type(std::string_view type);
/// Bytes in memory: b8 1, b16 2, …, b128 16.
std::uint32_t bytes_of_type(std::string_view type);

}  // namespace kernelwright::emulator
