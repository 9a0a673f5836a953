/// Types and operands of mma.sync and mma.sp, for the rows of their decode table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernelwright/runtime/emulator/numbers/mma_block.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {

inline constexpr int kMostMmaRegisters = 8;  // of one operand

enum class MmaType : std::uint8_t { kF16, kBf16, kTf32, kE4m3, kE5m2, kS8, kU8, kE3m2, kE2m3, kE2m1, kF32, kS32, kF64 };

/// The type of a name such as "bf16"; kF64 for a name that is no type.
MmaType mma_type_of(std::string_view name);
/// Bits of an element in a register. Types of 4 and 6 bits lie in bytes.
int mma_element_bits(MmaType type);
void unpack_e3m2(const std::byte* const* registers, int count, float* panel);
void unpack_e2m3(const std::byte* const* registers, int count, float* panel);
void unpack_e2m1(const std::byte* const* registers, int count, float* panel);
/// The lower (`shift` 0) or upper (4) four bits of each byte: u4 or s4.
void unpack_nibbles(const std::byte* const* registers, int count, int shift, bool is_signed, float* panel);
/// By MmaType, for the types of A.
inline constexpr Unpack kMmaUnpack[] = {unpack_f16, unpack_bf16, unpack_tf32, unpack_e4m3, unpack_e5m2,
                                        unpack_s8,  unpack_u8,   unpack_e3m2, unpack_e2m3, unpack_e2m1};
/// Makes floats of registers of this type.
inline Unpack mma_unpack(MmaType type) { return kMmaUnpack[static_cast<std::size_t>(type)]; }

/// The numbers of "m16n8k32".
struct MmaShape {
  int m = 0, k = 0;
};
/// The shape among the parts of an instruction's opcode.
MmaShape mma_shape(const Decoder& decoder);

/// Throws PtxError unless the target has mma.sync of 4- and 6-bit floats, and with scales: sm_120a, 121a, their
/// families.
void require_narrow_mma(const Decoder& decoder);

/// The registers of an operand that must have `count` of them.
std::span<const Slot> mma_registers(Decoder& decoder, std::size_t operand, RegisterClass size, bool destination,
                                    int count);
/// Reads D, A, B and C, which are the first four operands: D into op.list, the others one after the other into
/// op.list2, with room for `more` slots behind them. Returns these last slots.
std::span<Slot> read_mma_operands(Decoder& decoder, Op& op, RegisterClass size, int num_a, int num_b,
                                  int num_accumulators, int more = 0);

}  // namespace kernelwright::emulator
