/// Which orders of an opcode's modifiers mean the same. ptxas 13.0 takes them as a set: asked about 7696 reordered
/// opcodes, it took those that these rules allow and no other, but for createpolicy's two priorities, whose order it
/// heeds and the emulator, as it ignores hints, does not.
///   - The instruction's name stands first, as the ISA spells it: "mbarrier.try_wait.parity", "cp.async.bulk.tensor".
///   - The types keep their order among each other, since it says which operand has which; so do the state spaces
///     (destination, then source) and the layouts of mma (A, then B).
///   - All else may stand anywhere behind the name: ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kernelwright::emulator {

/// How many of an opcode's parts are the instruction's name; at least 1.
std::size_t name_length(std::span<const std::string_view> parts);

/// Modifiers of one group keep their order among each other, but for those that are free.
enum class ModifierGroup : std::uint8_t { kFree, kType, kSpace, kLayout };
ModifierGroup group_of(std::string_view modifier);

}  // namespace kernelwright::emulator
