/// mma.sync (PTX ISA "Warp-level matrix multiply-accumulate"): D = A * B + C by one warp, with fragments in registers.
///
/// mma_block.h says how fragments lie in registers, and does the arithmetic. This file has the instruction's forms. One
/// handler serves all types except f64: op.imm holds a Plan, which names the functions that unpack and store. op.list
/// holds the registers of D, op.list2 those of A, B and C, one after the other. int4, b1 and sparse forms have no row.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/warp_access.h"
#include "kernelwright/runtime/emulator/numbers/mma_block.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {

namespace {

constexpr int kMaxRegisters = 8;  // of one operand

enum Type : std::uint8_t { kF16, kBf16, kTf32, kE4m3, kE5m2, kS8, kU8, kF32, kS32, kF64, kNumTypes };

constexpr Unpack kUnpack[] = {unpack_f16,  unpack_bf16, unpack_tf32, unpack_e4m3,
                              unpack_e5m2, unpack_s8,   unpack_u8};  // by Type
constexpr std::pair<std::string_view, Type> kTypeNames[] = {
    {"f16", kF16}, {"bf16", kBf16}, {"tf32", kTf32}, {"e4m3", kE4m3}, {"e5m2", kE5m2},
    {"s8", kS8},   {"u8", kU8},     {"f32", kF32},   {"s32", kS32},   {"f64", kF64}};
/// Bytes along k of one fragment register's row, and bits of an element, by Type.
constexpr int kElementBits[kNumTypes] = {16, 16, 32, 8, 8, 8, 8, 32, 32, 64};

/// What the handler needs; it fits into op.imm.
struct Plan {
  Type a = kF16, b = kF16, accumulator = kF32;
  std::uint8_t halves = 2;        // of 8 rows
  std::uint8_t chunks = 1;        // chunks of k, one register each
  std::uint8_t row_elements = 8;  // elements along k in one chunk
  bool saturate = false;
  int accumulator_registers() const { return accumulator == kF16 ? halves : 2 * halves; }
  std::uint64_t operations() const { return std::uint64_t{2} * 8 * kMmaColumns * halves * chunks * row_elements; }
};
static_assert(sizeof(Plan) < sizeof(Op::imm));

Plan plan_of(const Op& op) {
  std::array<std::byte, sizeof(Plan)> bytes;
  std::memcpy(bytes.data(), &op.imm, sizeof bytes);
  return std::bit_cast<Plan>(bytes);
}

/// Where the registers of D, A, B and C are.
struct Fragments {
  std::byte* d[kMaxRegisters];
  const std::byte *a[kMaxRegisters], *b[kMaxRegisters], *c[kMaxRegisters];

  Fragments(Warp& warp, const Op& op, const Plan& plan) {
    const int num_accumulators = plan.accumulator_registers();
    for (int i = 0; i < num_accumulators; ++i) d[i] = warp.lanes<std::byte>(op.list[i]);
    const Slot* slot = op.list2;
    for (int i = 0; i < plan.halves * plan.chunks; ++i) a[i] = warp.lanes<std::byte>(*slot++);
    for (int i = 0; i < plan.chunks; ++i) b[i] = warp.lanes<std::byte>(*slot++);
    for (int i = 0; i < num_accumulators; ++i) c[i] = warp.lanes<std::byte>(*slot++);
  }
};

Step mma(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("mma", lanes);
  const Plan plan = plan_of(op);
  const Fragments fragments(warp, op, plan);
  warp.cta->cluster->mma_operations += plan.operations();
  alignas(64) float a[kMaxMmaRows * kMaxMmaDepth];
  alignas(64) float b[kMmaColumns * kMaxMmaDepth];
  kUnpack[plan.a](fragments.a, plan.halves * plan.chunks, a);
  kUnpack[plan.b](fragments.b, plan.chunks, b);
  Accumulators accumulators;
  switch (plan.accumulator) {
    case kF16:
      load_f16(fragments.c, plan.halves, accumulators);
      multiply_accumulate(a, b, plan.halves, plan.chunks, plan.row_elements, accumulators);
      store_f16(fragments.d, plan.halves, accumulators);
      break;
    case kS32:  // sums of 32 products of bytes are exact in f32
      std::fill_n(accumulators.value, std::size(accumulators.value), 0.0f);
      multiply_accumulate(a, b, plan.halves, plan.chunks, plan.row_elements, accumulators);
      add_s32(fragments.d, fragments.c, plan.halves, plan.saturate, accumulators);
      break;
    default:
      load_f32(fragments.c, plan.halves, accumulators);
      multiply_accumulate(a, b, plan.halves, plan.chunks, plan.row_elements, accumulators);
      store_f32(fragments.d, plan.halves, accumulators);
  }
  return Step::kNext;
}

/// f64: the same tiling, with rows of four elements; fma in order of k, as the hardware does it.
Step mma_f64(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("mma", lanes);
  constexpr int kChunk = 4;
  const Plan plan = plan_of(op);
  const Fragments fragments(warp, op, plan);
  warp.cta->cluster->mma_operations += plan.operations();
  double results[2 * kMaxMmaRows / 8][32];  // all results first: D may share the registers of A or B
  for (int half = 0; half < plan.halves; ++half)
    for (int odd = 0; odd < 2; ++odd) {
      double* result = results[2 * half + odd];
      std::memcpy(result, fragments.c[2 * half + odd], sizeof results[0]);
      for (int chunk = 0; chunk < plan.chunks; ++chunk) {
        double a[32], b[32];  // [8 rows of A, or columns of B][kChunk]
        std::memcpy(a, fragments.a[chunk * plan.halves + half], sizeof a);
        std::memcpy(b, fragments.b[chunk], sizeof b);
        for (int lane = 0; lane < 32; ++lane)
          for (int k = 0; k < kChunk; ++k)
            result[lane] = std::fma(a[lane / 4 * kChunk + k], b[(lane % 4 * 2 + odd) * kChunk + k], result[lane]);
      }
    }
  for (int i = 0; i < plan.accumulator_registers(); ++i) std::memcpy(fragments.d[i], results[i], sizeof results[i]);
  return Step::kNext;
}

Type type_of(std::string_view name) {
  for (const auto& [text, type] : kTypeNames)
    if (text == name) return type;
  return kNumTypes;
}

/// The three numbers of "m16n8k32".
struct Shape {
  int m = 0, k = 0;
  explicit Shape(std::string_view text)
      : m(text[1] == '8' ? 8 : 16), k(std::stoi(std::string(text.substr(text.find('k') + 1)))) {}
};

std::span<const Slot> registers_of(Decoder& decoder, std::size_t operand, RegisterClass size, bool destination,
                                   int count) {
  const std::span<const Slot> registers = decoder.vector(operand, size, destination);
  if (registers.size() != static_cast<std::size_t>(count))
    decoder.refuse("operand " + std::to_string(operand + 1) + " has " + std::to_string(registers.size()) +
                   " registers, and this form takes " + std::to_string(count));
  for (const Slot slot : registers)
    if (slot == kNoSlot) decoder.refuse("a register of D cannot be _");
  return registers;
}

/// All forms end in .dtype.atype.btype.ctype; their third part is the shape.
void decode_mma(Decoder& decoder, Op& op) {
  decoder.expect_operands(4, 4);
  const auto& parts = decoder.instruction().parts;
  const auto type = [&](std::size_t from_end) { return type_of(parts[parts.size() - from_end]); };
  const auto is_shape = [](std::string_view part) { return part.starts_with("m8n8") || part.starts_with("m16n8"); };
  const Shape shape(*std::ranges::find_if(parts, is_shape));
  Plan plan;
  plan.accumulator = type(4);
  plan.a = type(3);
  plan.b = type(2);
  if (plan.accumulator != type(1)) decoder.refuse("the types of D and C must be equal");
  const bool f64 = plan.a == kF64;
  plan.row_elements = static_cast<std::uint8_t>(f64 ? 4 : 128 / kElementBits[plan.a]);
  plan.halves = static_cast<std::uint8_t>(shape.m / 8);
  plan.chunks = static_cast<std::uint8_t>(shape.k / plan.row_elements);
  plan.saturate = decoder.has("satfinite");
  std::memcpy(&op.imm, &plan, sizeof plan);

  const RegisterClass size = f64 ? RegisterClass::k64 : RegisterClass::k32;
  const int num_accumulators = plan.accumulator_registers();
  const std::span<const Slot> d = registers_of(decoder, 0, size, true, num_accumulators);
  op.list = d.data();
  op.list_size = static_cast<std::uint8_t>(d.size());
  const std::span<const Slot> sources[] = {registers_of(decoder, 1, size, false, plan.halves * plan.chunks),
                                           registers_of(decoder, 2, size, false, plan.chunks),
                                           registers_of(decoder, 3, size, false, num_accumulators)};
  const std::span<Slot> all = decoder.slots(sources[0].size() + sources[1].size() + sources[2].size());
  auto rest = all.begin();
  for (const auto& source : sources) rest = std::ranges::copy(source, rest).out;
  op.list2 = all.data();
  op.list2_size = static_cast<std::uint8_t>(all.size());
  op.converge = Converge::kWarp;
  op.run = f64 ? mma_f64 : mma;
}

constexpr Form kForms[] = {
    {"mma.sync.aligned.(m16n8k8|m16n8k16).row.col.(f32|f16).f16.f16.(f32|f16)", decode_mma},
    {"mma.sync.aligned.(m16n8k8|m16n8k16).row.col.f32.bf16.bf16.f32", decode_mma},
    {"mma.sync.aligned.(m16n8k4|m16n8k8).row.col.f32.tf32.tf32.f32", decode_mma},
    {"mma.sync.aligned.(m16n8k16|m16n8k32).row.col.(f32|f16).(e4m3|e5m2).(e4m3|e5m2).(f32|f16)", decode_mma},
    {"mma.sync.aligned.(m8n8k16|m16n8k16|m16n8k32).row.col.(satfinite)?.s32.(s8|u8).(s8|u8).s32", decode_mma},
    {"mma.sync.aligned.(m8n8k4|m16n8k4|m16n8k8|m16n8k16).row.col.(rn)?.f64.f64.f64.f64", decode_mma},
};

}  // namespace

std::span<const Form> mma_forms() { return kForms; }

}  // namespace kernelwright::emulator
