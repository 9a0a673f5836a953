/// wmma.load, wmma.store and wmma.mma (PTX ISA "Warp-level matrix instructions using wmma"): products of 16x16, 32x8
/// and 8x32, with fragments that a program does not look into.
///
/// A register of a fragment of A or B has 8 rows (of B: columns) of 16 bytes along k, as in mma_block.h. The registers
/// of 8 rows follow each other along k. Fragments of f16 have copies behind, up to the eight registers that they must
/// have. A pair of registers of sums, or one of f16, has 8x8 elements as mma.sync places them; blocks run along a row
/// first.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/warp_access.h"
#include "kernelwright/runtime/emulator/ops/matrix/mma_operands.h"

namespace kernelwright::emulator {

namespace {

constexpr int kMostRegisters = 8;

enum class Matrix : std::uint8_t { kA, kB, kC };
enum class Space : std::uint8_t { kGeneric, kGlobal, kShared };

/// One fragment's move between memory and registers; it fits into op.imm.
struct Move {
  Matrix matrix = Matrix::kA;
  std::uint8_t rows = 16, columns = 16;  // of A: m and k; of B: n and k; of C: m and n
  std::uint8_t bytes = 2;                // of an element
  bool columns_adjacent = true;          // elements of one row lie next to each other in memory
  Space space = Space::kGeneric;
  std::uint8_t used = 4;  // registers that hold elements
};
static_assert(sizeof(Move) < sizeof(Op::imm));

/// A product; it fits into op.imm.
struct Product {
  MmaType a = MmaType::kF16, b = MmaType::kF16, c = MmaType::kF32, d = MmaType::kF32;
  std::uint8_t row_blocks = 2, column_blocks = 2, chunks = 2;
  bool saturate = false;
  int row_elements() const { return 128 / mma_element_bits(a); }
};
static_assert(sizeof(Product) == sizeof(Op::imm));

template <class Plan>
Plan plan_of(const Op& op) {
  std::array<std::byte, sizeof(Plan)> bytes;
  std::memcpy(bytes.data(), &op.imm, sizeof bytes);
  return std::bit_cast<Plan>(bytes);
}

/// Where an element is among the registers: a register, and a byte of its 128.
struct Place {
  int reg, byte;
};
Place place_in_fragment(const Move& move, int row, int column) {
  if (move.matrix != Matrix::kC) {
    const int each = 16 / move.bytes, chunks = move.columns / each;
    return {row / 8 * chunks + column / each, row % 8 * 16 + column % each * move.bytes};
  }
  const int block = row / 8 * (move.columns / 8) + column / 8, lane = row % 8 * 4 + column % 8 / 2, odd = column % 2;
  if (move.bytes == 2) return {block, lane * 4 + odd * 2};
  return {2 * block + odd, lane * 4};
}

std::byte* element_place(Warp& warp, const Move& move, int lane, std::uint64_t address, Access access) {
  Hazards* hazards = warp.cta->cluster->hazards;
  GenericPlace at;
  if (move.space == Space::kShared) {
    at.shared = shared_place(warp, static_cast<std::uint32_t>(address), move.bytes);
    at.host = at.shared.host;
  } else if (move.space == Space::kGlobal) {
    at.host = global_place(warp, address, move.bytes, access);
    at.global = true;
  } else {
    at = generic_place(warp, lane, address, move.bytes, access);
  }
  if (hazards && at.shared.cta) hazards->access(warp, lane, access, at.shared, move.bytes);
  if (hazards && at.global) hazards->access_global(warp, lane, access, address, move.bytes);
  return at.host;
}

/// The address and the stride, which must be the same in all lanes.
template <bool kStores>
Step move_fragment(Warp& warp, const Op& op, LaneMask lanes) {
  constexpr const char* kName = kStores ? "wmma.store" : "wmma.load";
  require_whole_warp(kName, lanes);
  const Move move = plan_of<Move>(op);
  const std::uint64_t base = lane_address(warp, op, 0);
  const std::uint32_t* strides = op.b == kNoSlot ? nullptr : warp.lanes<std::uint32_t>(op.b);
  const std::uint64_t stride = strides ? strides[0] : move.columns_adjacent ? move.columns : move.rows;
  for (int lane = 1; lane < 32; ++lane)
    if (lane_address(warp, op, lane) != base || (strides && strides[lane] != strides[0]))
      throw Fault(std::string(kName) + " with addresses or strides that differ between the lanes of a warp");
  for (int row = 0; row < move.rows; ++row)
    for (int column = 0; column < move.columns; ++column) {
      const Place place = place_in_fragment(move, row, column);
      const auto line = static_cast<std::uint64_t>(move.columns_adjacent ? row : column);
      const auto along = static_cast<std::uint64_t>(move.columns_adjacent ? column : row);
      std::byte* memory = element_place(warp, move, place.byte / 4, base + (line * stride + along) * move.bytes,
                                        kStores ? Access::kWrite : Access::kRead);
      std::byte* reg = warp.lanes<std::byte>(op.list[place.reg]) + place.byte;
      std::memcpy(kStores ? memory : reg, kStores ? reg : memory, move.bytes);
    }
  if constexpr (!kStores)
    for (int i = move.used; i < op.list_size; ++i)
      std::memcpy(warp.lanes<std::byte>(op.list[i]), warp.lanes<std::byte>(op.list[i % move.used]), 128);
  return Step::kNext;
}

/// Registers of one block of sums.
int registers_of_block(MmaType type) { return type == MmaType::kF16 ? 1 : 2; }

void multiply_block(const Product& plan, const float* a, const float* b, const std::byte* const* c,
                    std::byte* const* d) {
  Accumulators sums{};
  if (plan.c == MmaType::kF16)
    load_f16(c, 1, sums);
  else if (plan.c == MmaType::kF32)
    load_f32(c, 1, sums);
  multiply_accumulate(a, b, 1, plan.chunks, plan.row_elements(), sums);
  if (plan.d == MmaType::kS32)
    add_s32(d, c, 1, plan.saturate, sums);
  else if (plan.d == MmaType::kF16)
    store_f16(d, 1, sums);
  else
    store_f32(d, 1, sums);
}

/// Registers of a fragment of A or B with so many blocks of 8 rows.
int registers_of_factor(const Product& plan, int blocks) {
  return plan.a == MmaType::kF16 ? kMostRegisters : blocks * plan.chunks;
}

Step multiply(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("wmma.mma", lanes);
  const auto plan = plan_of<Product>(op);
  const int blocks = plan.row_blocks * plan.column_blocks, of_c = registers_of_block(plan.c),
            of_d = registers_of_block(plan.d);
  warp.cta->cluster->mma_operations += std::uint64_t{2} * 64 * static_cast<std::uint64_t>(blocks * plan.chunks) *
                                       static_cast<std::uint64_t>(plan.row_elements());
  const Slot* a_slots = op.list2;
  const Slot* b_slots = a_slots + registers_of_factor(plan, plan.row_blocks);
  const Slot* c_slots = b_slots + registers_of_factor(plan, plan.column_blocks);
  alignas(64) std::byte results[kMostRegisters][128];  // all results first: D may share the registers of A, B or C
  const auto unpack = [&](MmaType type, const Slot* slots, int block, float* panel) {
    const std::byte* registers[kMostRegisters];
    for (int i = 0; i < plan.chunks; ++i) registers[i] = warp.lanes<std::byte>(slots[block * plan.chunks + i]);
    mma_unpack(type)(registers, plan.chunks, panel);
  };
  for (int row = 0; row < plan.row_blocks; ++row) {
    alignas(64) float a[8 * kMaxMmaDepth], b[8 * kMaxMmaDepth];
    unpack(plan.a, a_slots, row, a);
    for (int column = 0; column < plan.column_blocks; ++column) {
      const int block = row * plan.column_blocks + column;
      unpack(plan.b, b_slots, column, b);
      const std::byte* c[2] = {};
      std::byte* d[2] = {};
      for (int i = 0; i < of_c; ++i) c[i] = warp.lanes<std::byte>(c_slots[block * of_c + i]);
      for (int i = 0; i < of_d; ++i) d[i] = results[block * of_d + i];
      multiply_block(plan, a, b, c, d);
    }
  }
  for (int i = 0; i < blocks * of_d; ++i) std::memcpy(warp.lanes<std::byte>(op.list[i]), results[i], 128);
  return Step::kNext;
}

// ---- decoding

/// The m, n and k of "m16n16k16".
struct Shape {
  int m = 0, n = 0, k = 0;
};
Shape shape_of(const Decoder& decoder) {
  for (const std::string_view part : decoder.instruction().parts) {
    if (part == "m16n16k16") return {16, 16, 16};
    if (part == "m32n8k16") return {32, 8, 16};
    if (part == "m8n32k16") return {8, 32, 16};
    if (part == "m16n16k8") return {16, 16, 8};
  }
  decoder.refuse("has a shape that is not modelled");
}

/// The choices of both patterns: the matrix, its layout, the shape, the state space, the type.
template <bool kStores>
void decode_move(Decoder& decoder, Op& op) {
  decoder.expect_operands(2, 3);
  const Shape shape = shape_of(decoder);
  const std::string_view matrix = decoder.choice(0), space = decoder.choice(3);
  const MmaType type = mma_type_of(decoder.choice(4));
  Move move;
  move.matrix = matrix == "a" ? Matrix::kA : matrix == "b" ? Matrix::kB : Matrix::kC;
  move.rows = static_cast<std::uint8_t>(move.matrix == Matrix::kB ? shape.n : shape.m);
  move.columns = static_cast<std::uint8_t>(move.matrix == Matrix::kC ? shape.n : shape.k);
  move.bytes = static_cast<std::uint8_t>(mma_element_bits(type) / 8);
  // A row of B, as it is kept here, is a column of the matrix.
  move.columns_adjacent = (decoder.choice(1) == "row") != (move.matrix == Matrix::kB);
  move.space = space.empty() ? Space::kGeneric : space == "global" ? Space::kGlobal : Space::kShared;
  const int elements = move.rows * move.columns;
  move.used = static_cast<std::uint8_t>(elements * move.bytes / 128);
  const int count = type == MmaType::kF16 && move.matrix != Matrix::kC ? kMostRegisters : move.used;
  const std::size_t registers = kStores ? 1 : 0;
  const std::span<const Slot> list = mma_registers(decoder, registers, RegisterClass::k32, !kStores, count);
  op.list = list.data();
  op.list_size = static_cast<std::uint8_t>(list.size());
  decoder.address(1 - registers,
                  move.space == Space::kShared   ? StateSpace::kShared
                  : move.space == Space::kGlobal ? StateSpace::kGlobal
                                                 : StateSpace::kGeneric,
                  op);
  if (move.space != Space::kShared && !op.wide_address) decoder.refuse("needs a 64-bit address");
  if (decoder.num_operands() == 3) op.b = decoder.source(2, RegisterClass::k32);
  std::memcpy(&op.imm, &move, sizeof move);
  op.converge = Converge::kWarp;
  op.run = move_fragment<kStores>;
}

/// Products of f16 name the types of D and C alone; the others name all four.
void decode_multiply(Decoder& decoder, Op& op) {
  decoder.expect_operands(4, 4);
  const Shape shape = shape_of(decoder);
  const auto& parts = decoder.instruction().parts;
  const std::size_t last = parts.size() - (parts.back() == "satfinite" ? 2 : 1);
  const bool all_named = parts[last - 2].front() != 'm';
  Product plan;
  plan.c = mma_type_of(parts[last]);
  plan.d = mma_type_of(parts[all_named ? last - 3 : last - 1]);
  if (all_named) {
    plan.a = mma_type_of(parts[last - 2]);
    plan.b = mma_type_of(parts[last - 1]);
    if (plan.c != plan.d) decoder.refuse("the types of D and C must be equal");
  }
  plan.row_blocks = static_cast<std::uint8_t>(shape.m / 8);
  plan.column_blocks = static_cast<std::uint8_t>(shape.n / 8);
  plan.chunks = static_cast<std::uint8_t>(shape.k / plan.row_elements());
  plan.saturate = parts.back() == "satfinite";
  std::memcpy(&op.imm, &plan, sizeof plan);
  const int blocks = plan.row_blocks * plan.column_blocks, num_a = registers_of_factor(plan, plan.row_blocks),
            num_b = registers_of_factor(plan, plan.column_blocks), num_c = blocks * registers_of_block(plan.c);
  const std::span<const Slot> d =
      mma_registers(decoder, 0, RegisterClass::k32, true, blocks * registers_of_block(plan.d));
  op.list = d.data();
  op.list_size = static_cast<std::uint8_t>(d.size());
  const std::span<Slot> sources = decoder.slots(static_cast<std::size_t>(num_a + num_b + num_c));
  auto rest = std::ranges::copy(mma_registers(decoder, 1, RegisterClass::k32, false, num_a), sources.begin()).out;
  rest = std::ranges::copy(mma_registers(decoder, 2, RegisterClass::k32, false, num_b), rest).out;
  std::ranges::copy(mma_registers(decoder, 3, RegisterClass::k32, false, num_c), rest);
  op.list2 = sources.data();
  op.list2_size = static_cast<std::uint8_t>(sources.size());
  op.converge = Converge::kWarp;
  op.run = multiply;
}

#define KERNELWRIGHT_SHAPES "(m16n16k16|m32n8k16|m8n32k16)"

constexpr Form kForms[] = {
    {"wmma.load.(a|b).sync.aligned.(row|col)." KERNELWRIGHT_SHAPES ".(global|shared|shared::cta)?.(f16|bf16|s8|u8)",
     decode_move<false>},
    {"wmma.load.(a|b).sync.aligned.(row|col).(m16n16k8).(global|shared|shared::cta)?.(tf32)", decode_move<false>},
    {"wmma.load.(c).sync.aligned.(row|col)." KERNELWRIGHT_SHAPES ".(global|shared|shared::cta)?.(f16|f32|s32)",
     decode_move<false>},
    {"wmma.load.(c).sync.aligned.(row|col).(m16n16k8).(global|shared|shared::cta)?.(f32)", decode_move<false>},
    {"wmma.store.(d).sync.aligned.(row|col)." KERNELWRIGHT_SHAPES ".(global|shared|shared::cta)?.(f16|f32|s32)",
     decode_move<true>},
    {"wmma.store.(d).sync.aligned.(row|col).(m16n16k8).(global|shared|shared::cta)?.(f32)", decode_move<true>},
    {"wmma.mma.sync.aligned.(row|col).(row|col)." KERNELWRIGHT_SHAPES ".(f16|f32).(f16|f32)", decode_multiply},
    {"wmma.mma.sync.aligned.(row|col).(row|col)." KERNELWRIGHT_SHAPES ".f32.bf16.bf16.f32", decode_multiply},
    {"wmma.mma.sync.aligned.(row|col).(row|col)." KERNELWRIGHT_SHAPES ".s32.s8.s8.s32.(satfinite)?", decode_multiply},
    {"wmma.mma.sync.aligned.(row|col).(row|col)." KERNELWRIGHT_SHAPES ".s32.u8.u8.s32.(satfinite)?", decode_multiply},
    {"wmma.mma.sync.aligned.(row|col).(row|col).m16n16k8.f32.tf32.tf32.f32", decode_multiply},
};

#undef KERNELWRIGHT_SHAPES

}  // namespace

std::span<const Form> wmma_forms() { return kForms; }

}  // namespace kernelwright::emulator
