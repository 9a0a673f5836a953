#include "kernelwright/runtime/emulator/ops/matrix/warpgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/numbers/mma_block.h"
#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "kernelwright/runtime/emulator/numbers/wgmma_block.h"
#include "kernelwright/runtime/emulator/ops/matrix/wgmma_operand.h"
#include "kernelwright/runtime/process/per_thread.h"

namespace kernelwright::emulator {
namespace {

constexpr std::uint32_t kRowBytes = 32;  // bytes of K, for every type
constexpr std::uint32_t kMaxRegisters = kMaxWgmmaColumns / 2;

Unpack unpack_of(WgmmaInput input) {
  switch (input) {
    case WgmmaInput::kF16: return unpack_f16;
    case WgmmaInput::kBf16: return unpack_bf16;
    case WgmmaInput::kTf32: return unpack_tf32;
    case WgmmaInput::kE4m3: return unpack_e4m3;
    case WgmmaInput::kE5m2: return unpack_e5m2;
    case WgmmaInput::kS8: return unpack_s8;
    case WgmmaInput::kU8: return unpack_u8;
  }
  return nullptr;
}

bool is_fp8(WgmmaInput input) { return input == WgmmaInput::kE4m3 || input == WgmmaInput::kE5m2; }

/// One thread's workspace, 260 KB.
struct alignas(64) Workspace {
  std::byte bytes[kMaxWgmmaColumns * kRowBytes];
  float values[kMaxWgmmaColumns * kMaxWgmmaDepth];
  float a[kWgmmaRows * kMaxWgmmaDepth * 4];
  float b[kMaxWgmmaColumns * kMaxWgmmaDepth];
  float a_powers[kWgmmaRows * kMaxWgmmaDepth * 4];
  float b_powers[kMaxWgmmaColumns * kMaxWgmmaDepth];
  float d[4 * kMaxRegisters][32];
};

/// `rows` x 32 bytes in workspace.bytes become floats in workspace.values.
void widen(Workspace& workspace, WgmmaInput input, std::uint32_t rows) {
  const std::byte* registers[kMaxWgmmaColumns * kRowBytes / 128];
  const std::uint32_t count = rows * kRowBytes / 128;
  for (std::uint32_t i = 0; i < count; ++i) registers[i] = workspace.bytes + i * 128;
  unpack_of(input)(registers, static_cast<int>(count), workspace.values);
}

/// A from registers. The 16 bytes of row r + 8 (i % 2), k half i / 2, are in register i: lane 4r + t has bytes 4t to 4t
/// + 3.
void gather_fragments(const Warp* warps, const Op* const* ops, std::byte* out) {
  for (int warp = 0; warp < 4; ++warp)
    for (int i = 0; i < 4; ++i) {
      const auto* bytes = reinterpret_cast<const std::byte*>(warps[warp].lanes<std::uint32_t>(ops[warp]->list2[i]));
      for (int row = 0; row < 8; ++row)
        std::memcpy(out + (warp * 16 + i % 2 * 8 + row) * static_cast<int>(kRowBytes) + i / 2 * 16, bytes + row * 16,
                    16);
    }
}

/// D in f16: register 2g + h holds what registers 4g + 2h and 4g + 2h + 1 would hold in f32.
void load_halves(const std::uint32_t* packed, float* even, float* odd) {
  for (int lane = 0; lane < 32; ++lane) {
    even[lane] = f16_to_f32(static_cast<std::uint16_t>(packed[lane]));
    odd[lane] = f16_to_f32(static_cast<std::uint16_t>(packed[lane] >> 16));
  }
}
void store_halves(std::uint32_t* packed, const float* even, const float* odd) {
  for (int lane = 0; lane < 32; ++lane)
    packed[lane] = f32_to_f16(even[lane]) | static_cast<std::uint32_t>(f32_to_f16(odd[lane])) << 16;
}

/// Sums of 32 products of bytes are integers below 2^24, exact in f32.
void add_integers(std::uint32_t* d, const float* sums, bool accumulate, bool saturate) {
  for (int lane = 0; lane < 32; ++lane) {
    const std::int64_t before = accumulate ? static_cast<std::int32_t>(d[lane]) : 0;
    const std::int64_t sum = before + static_cast<std::int64_t>(sums[lane]);
    constexpr std::int64_t kLow = std::numeric_limits<std::int32_t>::min(),
                           kHigh = std::numeric_limits<std::int32_t>::max();
    d[lane] = static_cast<std::uint32_t>(saturate ? std::clamp(sum, kLow, kHigh) : sum);
  }
}

}  // namespace

Warpgroup& Warpgroup::of(Warp& warp) {
  const std::uint32_t group = warp.index / 4;
  auto& groups = warp.cta->warpgroups;
  if (group >= groups.size()) groups.resize(group + 1);
  if (!groups[group]) {
    if (group * 4 + 4 > warp.cta->warps.size())
      throw Fault(fmt::format("wgmma in warp {} of {}: its warpgroup lacks some of its four warps", warp.index,
                              warp.cta->warps.size()),
                  HazardKind::kDivergence);
    groups[group] = std::make_shared<Warpgroup>(*warp.cta, group * 4);
  }
  return *groups[group];
}

void Warpgroup::issue(Warp& warp, const WgmmaOperands& operands) {
  const std::uint32_t member = warp.index - first_warp_;
  const auto at = static_cast<std::size_t>(members_[member].issued++ - handed_over_);
  if (at == pending_.size()) pending_.push_back({.first = operands});
  Pending& pending = pending_[at];
  const auto agree = [&](const char* what, std::uint64_t first, std::uint64_t now) {
    if (first != now)
      throw Fault(fmt::format("the warps of a warpgroup issue one wgmma with different {}: {:#x}, and {:#x} by warp {}",
                              what, first, now, warp.index),
                  HazardKind::kDivergence);
  };
  const WgmmaShape shape = WgmmaShape::of(operands.op->imm);
  // Warps may spell scale-d differently. They must agree whether D is read.
  constexpr std::uint8_t kSpelling = WgmmaShape::kScalePredicate | WgmmaShape::kScaleValue;
  const auto meaning = [](WgmmaShape s) {
    s.flags &= static_cast<std::uint8_t>(~kSpelling);
    return s.imm();
  };
  agree("shapes", meaning(WgmmaShape::of(pending.first.op->imm)), meaning(shape));
  if (!shape.has(WgmmaShape::kARegisters)) agree("descriptors of A", pending.first.a, operands.a);
  agree("descriptors of B", pending.first.b, operands.b);
  agree("scale-d", pending.first.accumulate, operands.accumulate);
  pending.ops[member] = operands.op;
  if (++pending.issued < 4) return;
  AsyncQueue& async = cta_.cluster->async;
  if (async.performs_at_once())
    perform(pending);
  else
    async.issue(this, [this, pending] { perform(pending); });
  pending_.pop_front();  // the first: whatever all four warps have issued comes before anything that one of them has
                         // not issued
  ++handed_over_;
}

void Warpgroup::commit(const Warp& warp) {
  Member& member = members_[warp.index - first_warp_];
  while (!member.groups.empty() && member.groups.front() <= performed_) member.groups.pop_front();
  member.groups.push_back(member.issued);
}

std::uint64_t Warpgroup::needed(const Warp& warp, std::uint32_t allowed) const {
  const auto& groups = members_[warp.index - first_warp_].groups;
  return groups.size() > allowed ? groups[groups.size() - 1 - allowed] : 0;
}

void Warpgroup::perform(const Pending& pending) {
  Workspace& workspace = per_thread<Workspace>();
  const WgmmaShape shape = WgmmaShape::of(pending.first.op->imm);
  const Warp* warps = &cta_.warps[first_warp_];
  const std::uint32_t columns = shape.columns, registers = columns / 2;

  if (shape.has(WgmmaShape::kARegisters)) {
    gather_fragments(warps, pending.ops, workspace.bytes);
  } else {
    gather_units(cta_,
                 OperandUnits(decode_matrix_descriptor(pending.first.a), shape.has(WgmmaShape::kAMnMajor), kWgmmaRows),
                 workspace.bytes);
  }
  widen(workspace, shape.a, kWgmmaRows);
  make_a_panel(workspace.values, shape.depth, shape.has(WgmmaShape::kAMnMajor), shape.has(WgmmaShape::kNegate),
               workspace.a);
  gather_units(cta_, OperandUnits(decode_matrix_descriptor(pending.first.b), shape.has(WgmmaShape::kBMnMajor), columns),
               workspace.bytes);
  widen(workspace, shape.b, columns);
  make_b_panel(workspace.values, columns, shape.depth, shape.has(WgmmaShape::kBMnMajor), workspace.b);

  const auto slot = [&](std::uint32_t warp, std::uint32_t i) {
    return const_cast<Warp&>(warps[warp]).lanes<std::uint32_t>(pending.ops[warp]->list[i]);
  };
  float* d[4 * kMaxRegisters];
  for (std::uint32_t warp = 0; warp < 4; ++warp)
    for (std::uint32_t i = 0; i < registers; ++i)
      d[warp * registers + i] =
          shape.d == WgmmaOutput::kF32 ? reinterpret_cast<float*>(slot(warp, i)) : workspace.d[warp * registers + i];
  bool accumulate = pending.first.accumulate;
  if (shape.d == WgmmaOutput::kF16 && accumulate)
    for (std::uint32_t i = 0; i < 4 * registers; i += 2)
      load_halves(slot(i / registers, i % registers / 2), d[i], d[i + 1]);
  const bool narrow = is_fp8(shape.a);
  if (narrow) {
    make_powers(workspace.a, std::size_t{kWgmmaRows} * shape.depth * 4, workspace.a_powers);
    make_powers(workspace.b, std::size_t{columns} * shape.depth, workspace.b_powers);
  }
  multiply_fragments({.d = d,
                      .a = workspace.a,
                      .b = workspace.b,
                      .columns = columns,
                      .depth = shape.depth,
                      .accumulate = accumulate && shape.d != WgmmaOutput::kS32,
                      .a_powers = narrow ? workspace.a_powers : nullptr,
                      .b_powers = narrow ? workspace.b_powers : nullptr});
  if (shape.d == WgmmaOutput::kF16)
    for (std::uint32_t i = 0; i < 4 * registers; i += 2)
      store_halves(slot(i / registers, i % registers / 2), d[i], d[i + 1]);
  if (shape.d == WgmmaOutput::kS32)
    for (std::uint32_t i = 0; i < 4 * registers; ++i)
      add_integers(slot(i / registers, i % registers), d[i], accumulate, shape.has(WgmmaShape::kSaturate));
  cta_.cluster->mma_operations += std::uint64_t{2} * kWgmmaRows * columns * shape.depth;
  ++performed_;
}

}  // namespace kernelwright::emulator
