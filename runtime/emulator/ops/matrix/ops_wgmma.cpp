/// wgmma: decoding, and the work of each of the four warps that execute it. warpgroup.cpp multiplies.
#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/checker/hazards.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/numbers/wgmma_block.h"
#include "kernelwright/runtime/emulator/ops/matrix/warpgroup.h"
#include "kernelwright/runtime/emulator/ops/matrix/wgmma_operand.h"
#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {
namespace {

void require_all_lanes(const Warp& warp, LaneMask lanes) {
  if (lanes != kAllLanes)
    throw Fault(fmt::format("wgmma in warp {} by lanes {:#010x} alone; it takes all 32", warp.index, lanes),
                HazardKind::kDivergence);
}

/// A value in which all lanes must agree.
std::uint64_t uniform(const Warp& warp, Slot slot, const char* what) {
  const auto* value = warp.lanes<std::uint64_t>(slot);
  for (int lane = 1; lane < 32; ++lane)
    if (value[lane] != value[0])
      throw Fault(fmt::format("wgmma in warp {} with different {} in its lanes", warp.index, what),
                  HazardKind::kDivergence);
  return value[0];
}

bool reads_d(const Warp& warp, const Op& op, WgmmaShape shape) {
  if (!shape.has(WgmmaShape::kScalePredicate)) return shape.has(WgmmaShape::kScaleValue);
  const LaneMask mask = warp.predicate(op.c);
  if (mask != 0 && mask != kAllLanes)
    throw Fault(fmt::format("wgmma in warp {} with different scale-d in its lanes", warp.index),
                HazardKind::kDivergence);
  return (mask != 0) != shape.has(WgmmaShape::kScaleValue);
}

/// Tells the checker. Each warp accounts for its own rows of A and a quarter of B. A stage is written as a whole, so
/// the checker still finds a warp that has not waited for it.
void check(Warp& warp, const Op& op, WgmmaShape shape, const WgmmaOperands& operands, Hazards& hazards) {
  const AsyncAgent agent = hazards.of_group(warp, AsyncGroup::kWgmma);
  const std::uint32_t part = warp.index % 4;
  const auto read = [&](std::uint64_t descriptor, bool mn_major, std::uint32_t size) {
    const OperandUnits units(decode_matrix_descriptor(descriptor), mn_major, size);
    visit_unit_pieces(units, part, 4, [&](std::uint32_t offset, std::uint32_t bytes) {
      if (offset < kSharedBase || offset + bytes > warp.cta->shared.size())
        return;  // becomes a fault when the
                 // operation is performed
      hazards.access_async(warp, 0, Access::kRead, Proxy::kAsync, agent, *warp.cta, offset, bytes);
    });
  };
  if (shape.has(WgmmaShape::kARegisters))
    hazards.registers_busy(warp, {op.list2, op.list2_size}, /*written=*/false);
  else
    read(operands.a, shape.has(WgmmaShape::kAMnMajor), kWgmmaRows);
  read(operands.b, shape.has(WgmmaShape::kBMnMajor), shape.columns);
  hazards.registers_busy(warp, {op.list, op.list_size}, /*written=*/true);
}

Step run_mma(Warp& warp, const Op& op, LaneMask lanes) {
  require_all_lanes(warp, lanes);
  const WgmmaShape shape = WgmmaShape::of(op.imm);
  WgmmaOperands operands{.op = &op};
  if (!shape.has(WgmmaShape::kARegisters)) operands.a = uniform(warp, op.a, "descriptors of A");
  operands.b = uniform(warp, op.b, "descriptors of B");
  operands.accumulate = reads_d(warp, op, shape);
  if (Hazards* hazards = warp.cta->cluster->hazards) check(warp, op, shape, operands, *hazards);
  Warpgroup::of(warp).issue(warp, operands);
  return Step::kNext;
}

Step run_fence(Warp& warp, const Op&, LaneMask lanes) {
  require_all_lanes(warp, lanes);
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->registers_fence(warp);
  return Step::kNext;
}

Step run_commit_group(Warp& warp, const Op&, LaneMask lanes) {
  require_all_lanes(warp, lanes);
  Warpgroup::of(warp).commit(warp);
  if (Hazards* hazards = warp.cta->cluster->hazards) hazards->commit_group(warp, AsyncGroup::kWgmma);
  return Step::kNext;
}

std::string describe_wait(const Warp& warp, const Wait& wait) {
  const Warpgroup& group = *warp.cta->warpgroups[warp.index / 4];
  std::string text = fmt::format("wgmma {} of its warpgroup to complete ({} have", wait.value, group.performed());
  for (std::uint32_t member = 0; member < 4; ++member)
    if (group.issued(member) < wait.value)
      text += fmt::format("; warp {} has issued {}", warp.index / 4 * 4 + member, group.issued(member));
  return text + ")";
}

Step run_wait_group(Warp& warp, const Op& op, LaneMask lanes) {
  require_all_lanes(warp, lanes);
  const Warpgroup& group = Warpgroup::of(warp);
  const std::uint64_t needed = group.needed(warp, static_cast<std::uint32_t>(op.imm));
  if (group.performed() < needed) {
    warp.wait = {.holds = [](const Warp& w,
                             const Wait& wait) { return w.cta->warpgroups[w.index / 4]->performed() >= wait.value; },
                 .describe = describe_wait,
                 .value = needed};
    return Step::kWait;
  }
  if (Hazards* hazards = warp.cta->cluster->hazards)
    hazards->wait_group(warp, lanes, AsyncGroup::kWgmma, static_cast<std::uint32_t>(op.imm));
  return Step::kNext;
}

WgmmaInput input_of(std::string_view name) {
  static constexpr struct {
    std::string_view name;
    WgmmaInput input;
  } kInputs[] = {{"f16", WgmmaInput::kF16},   {"bf16", WgmmaInput::kBf16}, {"tf32", WgmmaInput::kTf32},
                 {"e4m3", WgmmaInput::kE4m3}, {"e5m2", WgmmaInput::kE5m2}, {"s8", WgmmaInput::kS8},
                 {"u8", WgmmaInput::kU8}};
  for (const auto& row : kInputs)
    if (row.name == name) return row.input;
  return WgmmaInput::kF16;
}

void decode_scale_d(Decoder& decoder, Op& op, WgmmaShape& shape) {
  constexpr std::size_t kOperand = 3;
  if (decoder.operands()[kOperand].kind == Operand::Kind::kImmediate) {
    if (decoder.immediate(kOperand, 0, 1) != 0) shape.flags |= WgmmaShape::kScaleValue;
    return;
  }
  shape.flags |= WgmmaShape::kScalePredicate;
  if (decoder.negated(kOperand)) shape.flags |= WgmmaShape::kScaleValue;
  op.c = decoder.source(kOperand, RegisterClass::kPredicate);
}

/// d, a, b, scale-d; then, except for integers, imm-scale-a and -b; then, for 16-bit types, imm-trans-a (if A is in
/// shared memory) and imm-trans-b. Choices: the shape, D's type, A's and B's types, .satfinite.
void decode_mma(Decoder& decoder, Op& op) {
  WgmmaShape shape;
  const std::string_view text = decoder.choice(0);  // m64n128k16
  const std::size_t k = text.find('k');
  shape.columns = static_cast<std::uint16_t>(std::stoi(std::string(text.substr(4, k - 4))));
  shape.depth = static_cast<std::uint16_t>(std::stoi(std::string(text.substr(k + 1))));
  shape.d = decoder.has("s32") ? WgmmaOutput::kS32 : decoder.choice(1) == "f16" ? WgmmaOutput::kF16 : WgmmaOutput::kF32;
  shape.a = input_of(decoder.choice(2));
  shape.b = input_of(decoder.choice(3));
  const bool integers = shape.d == WgmmaOutput::kS32, halves = shape.depth == 16;
  if (halves && shape.a != shape.b) decoder.refuse("A and B must have one type");
  if (halves && shape.a == WgmmaInput::kBf16 && shape.d != WgmmaOutput::kF32) decoder.refuse("bf16 sums into f32 only");
  if (decoder.has("satfinite")) shape.flags |= WgmmaShape::kSaturate;

  const bool registers = decoder.num_operands() > 1 && decoder.operands()[1].kind == Operand::Kind::kVector;
  const std::size_t expected = integers ? 4 : !halves ? 6 : registers ? 7 : 8;
  decoder.expect_operands(expected, expected);
  const std::span<const Slot> d = decoder.vector(0, RegisterClass::k32, /*destination=*/true);
  const std::uint32_t num_d = shape.d == WgmmaOutput::kF16 ? shape.columns / 4u : shape.columns / 2u;
  if (d.size() != num_d) decoder.refuse(fmt::format("needs {} registers for D, not {}", num_d, d.size()));
  op.list = d.data();
  op.list_size = static_cast<std::uint8_t>(d.size());
  if (registers) {
    const std::span<const Slot> a = decoder.vector(1, RegisterClass::k32, /*destination=*/false);
    if (a.size() != 4) decoder.refuse(fmt::format("needs 4 registers for A, not {}", a.size()));
    op.list2 = a.data();
    op.list2_size = 4;
    shape.flags |= WgmmaShape::kARegisters;
  } else {
    op.a = decoder.source(1, RegisterClass::k64);
  }
  op.b = decoder.source(2, RegisterClass::k64);
  decode_scale_d(decoder, op, shape);
  if (!integers) {
    const auto scale = [&](std::size_t operand) {
      const std::int64_t value = decoder.immediate(operand, -1, 1);
      if (value == 0) decoder.refuse("a scale of A or B is 1 or -1");
      return value;
    };
    if (scale(4) * scale(5) < 0) shape.flags |= WgmmaShape::kNegate;
  }
  if (halves) {
    if (!registers && decoder.immediate(6, 0, 1) != 0) shape.flags |= WgmmaShape::kAMnMajor;
    if (decoder.immediate(expected - 1, 0, 1) != 0) shape.flags |= WgmmaShape::kBMnMajor;
  }
  op.imm = shape.imm();
  op.converge = Converge::kWarp;
  op.run = run_mma;
}

void refuse_sparse(Decoder& decoder, Op&) { decoder.refuse("sparse wgmma is not modelled"); }
void refuse_bits(Decoder& decoder, Op&) { decoder.refuse("wgmma of single bits is not modelled"); }

template <Handler kRun>
void decode_plain(Decoder& decoder, Op& op) {
  decoder.expect_operands(0, 0);
  op.converge = Converge::kWarp;
  op.run = kRun;
}

void decode_wait_group(Decoder& decoder, Op& op) {
  decoder.expect_operands(1, 1);
  op.imm = static_cast<std::uint64_t>(decoder.immediate(0, 0, 0x7fffffff));
  op.converge = Converge::kWarp;
  op.run = run_wait_group;
}

/// "(m64n8k16|m64n16k16|…)"
std::string shapes(int depth, bool integers) {
  std::string text;
  for (int n = 8; n <= 256; n += 8)
    if (!integers || n == 8 || n == 24 || n % 16 == 0)
      text += fmt::format("{}m64n{}k{}", text.empty() ? "(" : "|", n, depth);
  return text + ")";
}

}  // namespace

std::span<const Form> wgmma_forms() {
  // Never destroyed, because the decoder's table, which points to it, is not destroyed either.
  static const std::string& kMma = *new std::string("wgmma.mma_async.sync.aligned.");
  static const std::string& kSparse = *new std::string("wgmma.mma_async.sp.sync.aligned.");
  static const std::string& kHalf = *new std::string(kMma + shapes(16, false) + ".(f16|f32).(f16|bf16).(f16|bf16)");
  static const std::string& kTf32 = *new std::string(kMma + shapes(8, false) + ".(f32).(tf32).(tf32)");
  static const std::string& kFp8 = *new std::string(kMma + shapes(32, false) + ".(f16|f32).(e4m3|e5m2).(e4m3|e5m2)");
  static const std::string& kInt8 = *new std::string(kMma + shapes(32, true) + ".(s32).(s8|u8).(s8|u8).(satfinite)?");
  static const std::string& kInt8Early = *new std::string(kMma + shapes(32, true) + ".satfinite.(s32).(s8|u8).(s8|u8)");
  static const std::string& kBits = *new std::string(kMma + shapes(256, true) + ".s32.b1.b1.and.popc");
  static const std::string& kSparse16 =
      *new std::string(kSparse + shapes(16, false) + ".(f16|f32).(tf32|f16|bf16).(tf32|f16|bf16)");
  static const std::string& kSparse32 =
      *new std::string(kSparse + shapes(32, false) + ".(f16|f32).(f16|bf16).(f16|bf16)");
  static const std::string& kSparse64 =
      *new std::string(kSparse + shapes(64, false) + ".(f16|f32|s32).(e4m3|e5m2|s8|u8).(e4m3|e5m2|s8|u8).(satfinite)?");
  static const Form kForms[] = {
      {kHalf, decode_mma},
      {kTf32, decode_mma},
      {kFp8, decode_mma},
      {kInt8, decode_mma},
      {kInt8Early,
       [](Decoder& decoder, Op& op) {
         decode_mma(decoder, op);
         WgmmaShape shape = WgmmaShape::of(op.imm);
         shape.flags |= WgmmaShape::kSaturate;
         op.imm = shape.imm();
       }},
      {kBits, refuse_bits},
      {kSparse16, refuse_sparse},
      {kSparse32, refuse_sparse},
      {kSparse64, refuse_sparse},
      {"wgmma.fence.sync.aligned", decode_plain<run_fence>},
      {"wgmma.commit_group.sync.aligned", decode_plain<run_commit_group>},
      {"wgmma.wait_group.sync.aligned", decode_wait_group},
  };
  return kForms;
}

}  // namespace kernelwright::emulator
