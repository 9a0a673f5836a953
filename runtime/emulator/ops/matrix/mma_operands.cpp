#include "kernelwright/runtime/emulator/ops/matrix/mma_operands.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "kernelwright/runtime/emulator/numbers/number_formats.h"

namespace kernelwright::emulator {
namespace {

/// Elements of `kBits` bits from bit `kShift` of each byte on. The other bits are ignored.
template <const auto& kValues, int kShift>
void unpack_bytes(const std::byte* const* registers, int count, float* panel) {
  for (int i = 0; i < count; ++i)
    for (int at = 0; at < 128; ++at)
      *panel++ = kValues[std::to_integer<std::size_t>(registers[i][at]) >> kShift & (kValues.size() - 1)];
}

struct Row {
  std::string_view name;
  MmaType type;
  int bits;
};
constexpr Row kRows[] = {{"f16", MmaType::kF16, 16},  {"bf16", MmaType::kBf16, 16}, {"tf32", MmaType::kTf32, 32},
                         {"e4m3", MmaType::kE4m3, 8}, {"e5m2", MmaType::kE5m2, 8},  {"s8", MmaType::kS8, 8},
                         {"u8", MmaType::kU8, 8},     {"e3m2", MmaType::kE3m2, 8},  {"e2m3", MmaType::kE2m3, 8},
                         {"e2m1", MmaType::kE2m1, 8}, {"f32", MmaType::kF32, 32},   {"s32", MmaType::kS32, 32},
                         {"f64", MmaType::kF64, 64}};

}  // namespace

void unpack_e3m2(const std::byte* const* registers, int count, float* panel) {
  unpack_bytes<kE3m2Values, 0>(registers, count, panel);
}
void unpack_e2m3(const std::byte* const* registers, int count, float* panel) {
  unpack_bytes<kE2m3Values, 0>(registers, count, panel);
}
void unpack_e2m1(const std::byte* const* registers, int count, float* panel) {
  unpack_bytes<kE2m1Values, 2>(registers, count, panel);
}

void unpack_nibbles(const std::byte* const* registers, int count, int shift, bool is_signed, float* panel) {
  for (int i = 0; i < count; ++i)
    for (int at = 0; at < 128; ++at) {
      const int bits = std::to_integer<int>(registers[i][at]) >> shift & 15;
      *panel++ = static_cast<float>(is_signed && bits >= 8 ? bits - 16 : bits);
    }
}

MmaType mma_type_of(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.type;
  return MmaType::kF64;
}
int mma_element_bits(MmaType type) { return kRows[static_cast<std::size_t>(type)].bits; }

MmaShape mma_shape(const Decoder& decoder) {
  const auto is_shape = [](std::string_view part) { return part.starts_with("m8n8") || part.starts_with("m16n8"); };
  const std::string_view text = *std::ranges::find_if(decoder.instruction().parts, is_shape);
  return {text[1] == '8' ? 8 : 16, std::stoi(std::string(text.substr(text.find('k') + 1)))};
}

void require_narrow_mma(const Decoder& decoder) {
  const std::string_view target = decoder.target();
  const bool family = target.starts_with("sm_120") || target.starts_with("sm_121");
  if (!family || !(target.ends_with('a') || target.ends_with('f')))
    decoder.refuse("needs sm_120a or sm_121a, and the module's target is " + std::string(target));
}

std::span<const Slot> mma_registers(Decoder& decoder, std::size_t operand, RegisterClass size, bool destination,
                                    int count) {
  const std::span<const Slot> registers = decoder.vector(operand, size, destination);
  if (registers.size() != static_cast<std::size_t>(count))
    decoder.refuse("operand " + std::to_string(operand + 1) + " has " + std::to_string(registers.size()) +
                   " registers, and this form takes " + std::to_string(count));
  for (const Slot slot : registers)
    if (slot == kNoSlot) decoder.refuse("a register of D cannot be _");
  return registers;
}

std::span<Slot> read_mma_operands(Decoder& decoder, Op& op, RegisterClass size, int num_a, int num_b,
                                  int num_accumulators, int more) {
  const std::span<const Slot> d = mma_registers(decoder, 0, size, true, num_accumulators);
  op.list = d.data();
  op.list_size = static_cast<std::uint8_t>(d.size());
  const std::span<const Slot> sources[] = {mma_registers(decoder, 1, size, false, num_a),
                                           mma_registers(decoder, 2, size, false, num_b),
                                           mma_registers(decoder, 3, size, false, num_accumulators)};
  const std::span<Slot> all = decoder.slots(static_cast<std::size_t>(num_a + num_b + num_accumulators + more));
  auto rest = all.begin();
  for (const auto& source : sources) rest = std::ranges::copy(source, rest).out;
  op.list2 = all.data();
  op.list2_size = static_cast<std::uint8_t>(all.size());
  return all.last(static_cast<std::size_t>(more));
}

}  // namespace kernelwright::emulator
