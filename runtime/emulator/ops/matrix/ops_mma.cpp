/// mma.sync (PTX ISA "Warp-level matrix multiply-accumulate"): D = A * B + C by one warp, with fragments in registers.
///
/// mma_block.h says how fragments lie in registers, and does the arithmetic. This file has the instruction's forms. One
/// handler serves all types except f64: op.imm holds a Plan, which names the functions that unpack and store. op.list
/// holds the registers of D, op.list2 those of A, B and C, one after the other. Integers of 4 bits are multiplied as
/// the lower and the upper halves of bytes, in products of half the depth.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/warp_access.h"
#include "kernelwright/runtime/emulator/numbers/mma_block.h"
#include "kernelwright/runtime/emulator/ops/matrix/mma_operands.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {

namespace {

/// What the handler needs; it fits into op.imm.
struct Plan {
  MmaType a = MmaType::kF16, b = MmaType::kF16, accumulator = MmaType::kF32;
  std::uint8_t halves = 2;        // of 8 rows
  std::uint8_t chunks = 1;        // chunks of k, one register each
  std::uint8_t row_elements = 8;  // elements along k in one chunk
  bool saturate = false;
  int accumulator_registers() const { return accumulator == MmaType::kF16 ? halves : 2 * halves; }
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
  std::byte* d[kMostMmaRegisters];
  const std::byte *a[kMostMmaRegisters], *b[kMostMmaRegisters], *c[kMostMmaRegisters];

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
  mma_unpack(plan.a)(fragments.a, plan.halves * plan.chunks, a);
  mma_unpack(plan.b)(fragments.b, plan.chunks, b);
  Accumulators accumulators;
  switch (plan.accumulator) {
    case MmaType::kF16:
      load_f16(fragments.c, plan.halves, accumulators);
      multiply_accumulate(a, b, plan.halves, plan.chunks, plan.row_elements, accumulators);
      store_f16(fragments.d, plan.halves, accumulators);
      break;
    case MmaType::kS32:  // sums of 32 products of bytes are exact in f32
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

/// u4 and s4. Plan has the shape of bytes, in which kS8 stands for s4 and kU8 for u4.
Step mma_nibbles(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("mma", lanes);
  const Plan plan = plan_of(op);
  const Fragments fragments(warp, op, plan);
  warp.cta->cluster->mma_operations += 2 * plan.operations();
  alignas(64) float a[kMaxMmaRows * kMaxMmaDepth], b[kMmaColumns * kMaxMmaDepth];
  Accumulators accumulators{};
  for (const int shift : {0, 4}) {
    unpack_nibbles(fragments.a, plan.halves * plan.chunks, shift, plan.a == MmaType::kS8, a);
    unpack_nibbles(fragments.b, plan.chunks, shift, plan.b == MmaType::kS8, b);
    multiply_accumulate(a, b, plan.halves, plan.chunks, plan.row_elements, accumulators);
  }
  add_s32(fragments.d, fragments.c, plan.halves, plan.saturate, accumulators);
  return Step::kNext;
}

/// b1: a product counts the bits of `and` or, if Plan::saturate says so, of `xor`.
Step mma_bits(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("mma", lanes);
  const Plan plan = plan_of(op);
  const Fragments fragments(warp, op, plan);
  warp.cta->cluster->mma_operations += 8 * plan.operations();
  Accumulators sums{};
  for (int chunk = 0; chunk < plan.chunks; ++chunk)
    for (int half = 0; half < plan.halves; ++half) {
      std::uint64_t a[16], b[16];  // [8 rows of A, or columns of B][2]
      std::memcpy(a, fragments.a[chunk * plan.halves + half], sizeof a);
      std::memcpy(b, fragments.b[chunk], sizeof b);
      for (int row = 0; row < 8; ++row)
        for (int column = 0; column < kMmaColumns; ++column)
          for (int word = 0; word < 2; ++word) {
            const std::uint64_t x = a[2 * row + word], y = b[2 * column + word];
            sums.value[(half * 8 + row) * kMmaColumns + column] +=
                static_cast<float>(std::popcount(plan.saturate ? x ^ y : x & y));
          }
    }
  add_s32(fragments.d, fragments.c, plan.halves, /*saturate=*/false, sums);
  return Step::kNext;
}

/// A chunk of k is 16 bytes: `per_byte` elements in each.
void decode_subbyte(Decoder& decoder, Op& op, int per_byte, Plan plan, Handler run) {
  decoder.expect_operands(4, 4);
  const MmaShape shape = mma_shape(decoder);
  plan.accumulator = MmaType::kS32;
  plan.row_elements = 16;
  plan.halves = static_cast<std::uint8_t>(shape.m / 8);
  plan.chunks = static_cast<std::uint8_t>(shape.k / (16 * per_byte));
  std::memcpy(&op.imm, &plan, sizeof plan);
  read_mma_operands(decoder, op, RegisterClass::k32, plan.halves * plan.chunks, plan.chunks,
                    plan.accumulator_registers());
  op.converge = Converge::kWarp;
  op.run = run;
}
void decode_nibbles(Decoder& decoder, Op& op) {
  const auto& parts = decoder.instruction().parts;
  const auto type = [&](std::size_t from_end) {
    return parts[parts.size() - from_end] == "s4" ? MmaType::kS8 : MmaType::kU8;
  };
  Plan plan;
  plan.a = type(3);
  plan.b = type(2);
  plan.saturate = decoder.has("satfinite");
  decode_subbyte(decoder, op, 2, plan, mma_nibbles);
}
void decode_bits(Decoder& decoder, Op& op) {
  Plan plan;
  plan.saturate = decoder.has("xor");
  decode_subbyte(decoder, op, 8, plan, mma_bits);
}

/// All forms end in .dtype.atype.btype.ctype; their third part is the shape.
void decode_mma(Decoder& decoder, Op& op) {
  decoder.expect_operands(4, 4);
  const auto& parts = decoder.instruction().parts;
  const auto type = [&](std::size_t from_end) { return mma_type_of(parts[parts.size() - from_end]); };
  const MmaShape shape = mma_shape(decoder);
  Plan plan;
  plan.accumulator = type(4);
  plan.a = type(3);
  plan.b = type(2);
  if (plan.accumulator != type(1)) decoder.refuse("the types of D and C must be equal");
  const bool f64 = plan.a == MmaType::kF64;
  plan.row_elements = static_cast<std::uint8_t>(f64 ? 4 : 128 / mma_element_bits(plan.a));
  plan.halves = static_cast<std::uint8_t>(shape.m / 8);
  plan.chunks = static_cast<std::uint8_t>(shape.k / plan.row_elements);
  plan.saturate = decoder.has("satfinite");
  std::memcpy(&op.imm, &plan, sizeof plan);
  read_mma_operands(decoder, op, f64 ? RegisterClass::k64 : RegisterClass::k32, plan.halves * plan.chunks, plan.chunks,
                    plan.accumulator_registers());
  op.converge = Converge::kWarp;
  op.run = f64 ? mma_f64 : mma;
}
void decode_narrow(Decoder& decoder, Op& op) {
  require_narrow_mma(decoder);
  decode_mma(decoder, op);
}

constexpr Form kForms[] = {
    {"mma.sync.aligned.(m16n8k8|m16n8k16).row.col.(f32|f16).f16.f16.(f32|f16)", decode_mma},
    {"mma.sync.aligned.(m16n8k8|m16n8k16).row.col.f32.bf16.bf16.f32", decode_mma},
    {"mma.sync.aligned.(m16n8k4|m16n8k8).row.col.f32.tf32.tf32.f32", decode_mma},
    {"mma.sync.aligned.(m16n8k16|m16n8k32).row.col.(f32|f16).(e4m3|e5m2).(e4m3|e5m2).(f32|f16)", decode_mma},
    {"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.(f32|f16).(e4m3|e5m2|e3m2|e2m3|e2m1)."
     "(e4m3|e5m2|e3m2|e2m3|e2m1).(f32|f16)",
     decode_narrow},
    {"mma.sync.aligned.(m8n8k16|m16n8k16|m16n8k32).row.col.(satfinite)?.s32.(s8|u8).(s8|u8).s32", decode_mma},
    {"mma.sync.aligned.(m8n8k32|m16n8k32|m16n8k64).row.col.(satfinite)?.s32.(s4|u4).(s4|u4).s32", decode_nibbles},
    {"mma.sync.aligned.(m8n8k128|m16n8k128|m16n8k256).row.col.s32.b1.b1.s32.(and|xor).popc", decode_bits},
    {"mma.sync.aligned.(m8n8k4|m16n8k4|m16n8k8|m16n8k16).row.col.(rn)?.f64.f64.f64.f64", decode_mma},
};

}  // namespace

std::span<const Form> mma_forms() { return kForms; }

}  // namespace kernelwright::emulator
