/// Which orders of an opcode's modifiers mean the same. ptxas 13.0 treats modifiers as a set: of 7696 reordered opcodes
/// that were tried, it accepted exactly those that these rules allow. One exception is createpolicy, where ptxas
/// respects the order of the two priorities; the emulator ignores hints, and so their order.
///   - The instruction's name stands first, as the ISA spells it: "mbarrier.try_wait.parity", "cp.async.bulk.tensor".
///   - The types keep their order, because it says which operand has which type. So do the state spaces
///     (destination, then source) and the layouts of mma (A, then B).
///   - All other modifiers may stand anywhere behind the name: ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kernelwright::emulator {

/// How many of an opcode's parts form the instruction's name; at least 1.
std::size_t name_length(std::span<const std::string_view> parts);

/// Modifiers of one group keep their order, except those of kFree.
enum class ModifierGroup : std::uint8_t { kFree, kType, kSpace, kLayout };
ModifierGroup group_of(std::string_view modifier);

}  // namespace kernelwright::emulator
