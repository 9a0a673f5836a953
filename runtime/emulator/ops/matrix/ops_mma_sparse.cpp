/// mma.sp (PTX ISA "mma.sp"): A has zeros in half of its places, in each row and each group of neighbours along k.
///
/// A's registers hold what is not zero, laid out as a dense A of half the depth. The metadata says where each element
/// belongs: four bits for a pair of elements and its group of four places, the lower place in the low two bits. For
/// tf32 the four bits are for one element and its group of two: 0100 is the first place and 1110 the second. A row's
/// groups fill 16, 32 or 64 bits; metadata_place() says in which thread. Integers of 4 bits come in pairs: the four
/// bits are for two pairs and a group of four. So they are multiplied as the lower and the upper halves of bytes.
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/warp_access.h"
#include "kernelwright/runtime/emulator/ops/matrix/mma_operands.h"

namespace kernelwright::emulator {

namespace {

constexpr int kRows = 16, kMostDepth = 64;

/// What the handler needs; it fits into op.imm.
struct Plan {
  MmaType a = MmaType::kF16, b = MmaType::kF16, accumulator = MmaType::kF32;
  std::uint8_t depth = 16;        // k of the whole product
  std::uint8_t row_elements = 8;  // elements of a row in one register
  std::uint8_t selector = 0;      // which threads of a quad hold the metadata
  bool saturate = false, ordered = false;
  int num_a() const { return depth / row_elements; }
  int num_b() const { return depth / row_elements; }
  int num_accumulators() const { return accumulator == MmaType::kF16 ? 2 : 4; }
  int groups() const { return a == MmaType::kTf32 ? depth / 2 : depth / 4; }  // of a row
};
static_assert(sizeof(Plan) <= sizeof(Op::imm));

struct Place {
  int lane, bit;
};
/// Where the four bits for `group` of `row` are, as an H100 reads them. A quad of threads has rows r and r + 8. With
/// elements of 8 bits, a thread has eight groups of one of the rows. Otherwise it has four groups of each.
Place metadata_place(const Plan& plan, int row, int group) {
  const int quad = row % 8 * 4, lower = row / 8;
  if (plan.row_elements == 16) return {quad + 2 * (plan.selector + group / 8) + lower, group % 8 * 4};
  const int threads = plan.groups() / 4;
  return {quad + threads * plan.selector + group / 4, 16 * lower + group % 4 * 4};
}

/// The places along k of a row's elements, in the order in which A's registers hold the elements.
using Places = std::array<std::array<std::uint8_t, kMostDepth / 2>, kRows>;

[[noreturn]] void refuse_metadata(std::uint32_t bits, int row, int group, const char* why) {
  std::string text = "0000";
  for (std::size_t i = 0; i < 4; ++i) text[i] = bits >> (3 - i) & 1 ? '1' : '0';
  throw Fault("the metadata of an mma.sp has " + text + " for group " + std::to_string(group) + " of row " +
              std::to_string(row) + ": " + why);
}

Places read_metadata(const Plan& plan, const std::uint32_t* metadata) {
  Places places;
  for (int row = 0; row < kRows; ++row)
    for (int group = 0; group < plan.groups(); ++group) {
      const Place at = metadata_place(plan, row, group);
      const std::uint32_t bits = metadata[at.lane] >> at.bit & 15, first = bits & 3, second = bits >> 2;
      std::uint8_t* to = places[static_cast<std::size_t>(row)].data();
      if (plan.a == MmaType::kTf32) {
        if (bits != 4 && bits != 14) refuse_metadata(bits, row, group, "tf32 takes 0100 and 1110");
        to[group] = static_cast<std::uint8_t>(2 * group + (bits == 14 ? 1 : 0));
        continue;
      }
      if (first == second) refuse_metadata(bits, row, group, "both elements have one place");
      if (plan.ordered && first > second)
        refuse_metadata(bits, row, group, ".sp::ordered_metadata needs them in order");
      to[2 * group] = static_cast<std::uint8_t>(4 * group + static_cast<int>(first));
      to[2 * group + 1] = static_cast<std::uint8_t>(4 * group + static_cast<int>(second));
    }
  return places;
}

/// sums += A * B, with `a` and `b` unpacked.
void add_products(const Plan& plan, const Places& places, const float* a, const float* b, Accumulators& sums) {
  const int each = plan.row_elements;
  for (int m = 0; m < kRows; ++m)
    for (int i = 0; i < plan.depth / 2; ++i) {
      const float from_a = a[((i / each * 2 + m / 8) * 8 + m % 8) * each + i % each];
      const int k = places[static_cast<std::size_t>(m)][static_cast<std::size_t>(i)];
      for (int n = 0; n < kMmaColumns; ++n)
        sums.value[m * kMmaColumns + n] += from_a * b[(k / each * kMmaColumns + n) * each + k % each];
    }
}

/// kNibbles: u4 and s4. Plan has the shape of bytes, in which kS8 stands for s4 and kU8 for u4.
template <bool kNibbles>
Step mma_sparse(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("mma.sp", lanes);
  std::array<std::byte, sizeof(Plan)> bytes;
  std::memcpy(bytes.data(), &op.imm, sizeof bytes);
  const Plan plan = std::bit_cast<Plan>(bytes);
  warp.cta->cluster->mma_operations += std::uint64_t{2} * kRows * kMmaColumns * plan.depth * (kNibbles ? 2 : 1);
  const int num_accumulators = plan.num_accumulators();
  const std::byte *a_registers[kMostMmaRegisters], *b_registers[kMostMmaRegisters], *c[kMostMmaRegisters];
  std::byte* d[kMostMmaRegisters];
  const Slot* slot = op.list2;
  for (int i = 0; i < plan.num_a(); ++i) a_registers[i] = warp.lanes<std::byte>(*slot++);
  for (int i = 0; i < plan.num_b(); ++i) b_registers[i] = warp.lanes<std::byte>(*slot++);
  for (int i = 0; i < num_accumulators; ++i) c[i] = warp.lanes<std::byte>(*slot++);
  for (int i = 0; i < num_accumulators; ++i) d[i] = warp.lanes<std::byte>(op.list[i]);
  const Places places = read_metadata(plan, warp.lanes<std::uint32_t>(*slot));
  float a[kRows * kMostDepth / 2], b[kMmaColumns * kMostDepth];
  const bool integers = plan.accumulator == MmaType::kS32, halves = plan.accumulator == MmaType::kF16;
  Accumulators sums{};
  if (halves)
    load_f16(c, 2, sums);
  else if (!integers)
    load_f32(c, 2, sums);
  for (int shift = 0; shift < (kNibbles ? 8 : 4); shift += 4) {
    if constexpr (kNibbles) {
      unpack_nibbles(a_registers, plan.num_a(), shift, plan.a == MmaType::kS8, a);
      unpack_nibbles(b_registers, plan.num_b(), shift, plan.b == MmaType::kS8, b);
    } else {
      mma_unpack(plan.a)(a_registers, plan.num_a(), a);
      mma_unpack(plan.b)(b_registers, plan.num_b(), b);
    }
    add_products(plan, places, a, b, sums);
  }
  if (integers)
    add_s32(d, c, 2, plan.saturate, sums);
  else if (halves)
    store_f16(d, 2, sums);
  else
    store_f32(d, 2, sums);
  return Step::kNext;
}

void decode_sparse(Decoder& decoder, Op& op) {
  decoder.expect_operands(6, 6);
  const auto& parts = decoder.instruction().parts;
  const auto type = [&](std::size_t from_end) { return mma_type_of(parts[parts.size() - from_end]); };
  Plan plan;
  plan.accumulator = type(4);
  const bool nibbles = parts[parts.size() - 3].ends_with("4") && plan.accumulator == MmaType::kS32;
  const auto as_bytes = [&](std::size_t from_end) {
    return parts[parts.size() - from_end] == "s4" ? MmaType::kS8 : MmaType::kU8;
  };
  plan.a = nibbles ? as_bytes(3) : type(3);
  plan.b = nibbles ? as_bytes(2) : type(2);
  if (plan.accumulator != type(1)) decoder.refuse("the types of D and C must be equal");
  plan.depth = static_cast<std::uint8_t>(mma_shape(decoder).k / (nibbles ? 2 : 1));
  plan.row_elements = static_cast<std::uint8_t>(128 / mma_element_bits(plan.a));
  plan.saturate = decoder.has("satfinite");
  plan.ordered = decoder.has("sp::ordered_metadata");
  const std::span<Slot> metadata = read_mma_operands(decoder, op, RegisterClass::k32, plan.num_a(), plan.num_b(),
                                                     plan.num_accumulators(), /*more=*/1);
  metadata[0] = decoder.source(4, RegisterClass::k32);
  const int selectors = plan.groups() == 4 ? 4 : plan.groups() == 8 ? 2 : 1;
  plan.selector = static_cast<std::uint8_t>(decoder.immediate(5, 0, selectors - 1));
  std::memcpy(&op.imm, &plan, sizeof plan);
  op.converge = Converge::kWarp;
  op.run = nibbles ? mma_sparse<true> : mma_sparse<false>;
}
void decode_narrow_sparse(Decoder& decoder, Op& op) {
  require_narrow_mma(decoder);
  decode_sparse(decoder, op);
}

#define KERNELWRIGHT_SPARSE "mma.(sp|sp::ordered_metadata).sync.aligned."

constexpr Form kForms[] = {
    {KERNELWRIGHT_SPARSE "(m16n8k16|m16n8k32).row.col.(f32|f16).f16.f16.(f32|f16)", decode_sparse},
    {KERNELWRIGHT_SPARSE "(m16n8k16|m16n8k32).row.col.f32.bf16.bf16.f32", decode_sparse},
    {KERNELWRIGHT_SPARSE "(m16n8k8|m16n8k16).row.col.f32.tf32.tf32.f32", decode_sparse},
    {KERNELWRIGHT_SPARSE "m16n8k64.row.col.f32.(e4m3|e5m2).(e4m3|e5m2).f32", decode_sparse},
    {KERNELWRIGHT_SPARSE "m16n8k64.row.col.f16.(e4m3|e5m2).(e4m3|e5m2).f16", decode_narrow_sparse},
    {"mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.(f32|f16).(e4m3|e5m2|e3m2|e2m3|e2m1)."
     "(e4m3|e5m2|e3m2|e2m3|e2m1).(f32|f16)",
     decode_narrow_sparse},
    {KERNELWRIGHT_SPARSE "(m16n8k64|m16n8k128).row.col.(satfinite)?.s32.(s4|u4).(s4|u4).s32", decode_sparse},
    {KERNELWRIGHT_SPARSE "(m16n8k32|m16n8k64).row.col.(satfinite)?.s32.(s8|u8).(s8|u8).s32", decode_sparse},
};

#undef KERNELWRIGHT_SPARSE

}  // namespace

std::span<const Form> sparse_mma_forms() { return kForms; }

}  // namespace kernelwright::emulator
