/// mma.sync with block scaling (PTX ISA "Block Scaling for mma.sync"): kind::mxf8f6f4, mxf4 and mxf4nvf4.
///
/// Each row of A and each column of B has a scale for every 16 or 32 elements along k. Threads hold these scales in one
/// register: the bytes from byte-id on, in order of k. For A, a quad holds the scales of its rows of the accumulator.
/// Of its threads 2 * thread-id and 2 * thread-id + 1, the first has the upper row and the second the lower row. For B,
/// thread `thread-id` of a quad has the scales of the quad's column.
///
/// A block's products are summed in f32 in order of k. The sum is scaled and added in double, and rounded once.
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/machine/warp_access.h"
#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "kernelwright/runtime/emulator/ops/matrix/mma_operands.h"

namespace kernelwright::emulator {

namespace {

constexpr int kRows = 16, kDepth = 64, kNumA = 4, kNumB = 2, kNumAccumulators = 4;

/// What the handler needs; it fits into op.imm.
struct Plan {
  MmaType a = MmaType::kE2m1, b = MmaType::kE2m1;
  std::uint8_t depth = 32;   // k; with 64, two elements lie in a byte
  std::uint8_t scales = 1;   // of a row or column
  bool scales_e4m3 = false;  // otherwise ue8m0
};
static_assert(sizeof(Plan) <= sizeof(Op::imm));

/// Behind A, B and C in op.list2.
enum Extra { kScaleA, kByteA, kThreadA, kScaleB, kByteB, kThreadB, kNumExtras };

/// The elements of `count` registers as rows: [row][k]. Registers of A go down 8 rows first.
void read_panel(const Plan& plan, MmaType type, const std::byte* const* registers, int count, int halves,
                float* panel) {
  if (plan.depth == 64) {
    for (int i = 0; i < count; ++i)
      for (int at = 0; at < 256; ++at) {
        const auto byte = std::to_integer<std::size_t>(registers[i][at / 2]);
        const int row = i % halves * 8 + at / 32, k = i / halves * 32 + at % 32;
        panel[row * kDepth + k] = kE2m1Values[byte >> at % 2 * 4 & 15];
      }
    return;
  }
  float flat[kNumA * 128];
  mma_unpack(type)(registers, count, flat);
  for (int i = 0; i < count; ++i)
    for (int at = 0; at < 128; ++at)
      panel[(i % halves * 8 + at / 16) * kDepth + i / halves * 16 + at % 16] = flat[i * 128 + at];
}

/// A selector, which is the same in all threads. Throws Fault for another value than a multiple of `step` below 4, or
/// below `limit`.
std::uint32_t selector(const Warp& warp, Slot slot, std::uint32_t limit, std::uint32_t step, const char* name) {
  const auto* values = warp.lanes<std::uint16_t>(slot);
  for (int lane = 0; lane < 32; ++lane)
    if (values[lane] != values[0])
      throw Fault(std::string("the threads of an mma.sync with scales give different values of ") + name);
  if (values[0] >= limit || values[0] % step != 0)
    throw Fault(std::string("an mma.sync with scales has the ") + name + " " + std::to_string(values[0]) +
                "; it takes values below " + std::to_string(limit) +
                (step > 1 ? ", multiples of " + std::to_string(step) : ""));
  return values[0];
}

double scale_of(const Plan& plan, std::uint32_t word, std::uint32_t byte) {
  const auto code = static_cast<std::uint8_t>(word >> 8 * byte);
  return plan.scales_e4m3 ? double{kE4m3Values[code & 0x7f]} : double{ue8m0_to_f32(code)};
}

Step mma_scaled(Warp& warp, const Op& op, LaneMask lanes) {
  require_whole_warp("mma", lanes);
  std::array<std::byte, sizeof(Plan)> bytes;
  std::memcpy(bytes.data(), &op.imm, sizeof bytes);
  const Plan plan = std::bit_cast<Plan>(bytes);
  warp.cta->cluster->mma_operations += std::uint64_t{2} * kRows * kMmaColumns * plan.depth;
  const Slot* extra = op.list2 + kNumA + kNumB + kNumAccumulators;
  const std::uint32_t step = plan.scales, byte_a = selector(warp, extra[kByteA], 4, step, "byte-id of A"),
                      byte_b = selector(warp, extra[kByteB], 4, step, "byte-id of B"),
                      thread_a = selector(warp, extra[kThreadA], 2, 1, "thread-id of A"),
                      thread_b = selector(warp, extra[kThreadB], 4, 1, "thread-id of B");
  const auto* scales_a = warp.lanes<std::uint32_t>(extra[kScaleA]);
  const auto* scales_b = warp.lanes<std::uint32_t>(extra[kScaleB]);
  const std::byte* registers[kNumA + kNumB + kNumAccumulators];
  for (int i = 0; i < kNumA + kNumB + kNumAccumulators; ++i) registers[i] = warp.lanes<std::byte>(op.list2[i]);
  float a[kRows * kDepth], b[kMmaColumns * kDepth];
  read_panel(plan, plan.a, registers, kNumA, 2, a);
  read_panel(plan, plan.b, registers + kNumA, kNumB, 1, b);
  Accumulators sums;
  load_f32(registers + kNumA + kNumB, 2, sums);
  const int block = plan.depth / plan.scales;
  for (std::uint32_t m = 0; m < kRows; ++m)
    for (std::uint32_t n = 0; n < kMmaColumns; ++n)
      for (std::uint32_t i = 0; i < plan.scales; ++i) {
        float sum = 0;
        for (int k = static_cast<int>(i) * block; k < static_cast<int>(i + 1) * block; ++k)
          sum += a[static_cast<int>(m) * kDepth + k] * b[static_cast<int>(n) * kDepth + k];
        const double scale = scale_of(plan, scales_a[m % 8 * 4 + thread_a * 2 + m / 8], byte_a + i) *
                             scale_of(plan, scales_b[n * 4 + thread_b], byte_b + i);
        float& to = sums.value[m * kMmaColumns + n];
        to = static_cast<float>(double{to} + double{sum} * scale);
      }
  std::byte* d[kNumAccumulators];
  for (int i = 0; i < kNumAccumulators; ++i) d[i] = warp.lanes<std::byte>(op.list[i]);
  store_f32(d, 2, sums);
  return Step::kNext;
}

/// A pair {byte-id, thread-id}.
void read_selectors(Decoder& decoder, std::size_t operand, int step, int threads, Slot* to) {
  if (operand >= decoder.num_operands()) decoder.refuse("lacks its selectors");
  const Operand& pair = decoder.operands()[operand];
  if (pair.kind != Operand::Kind::kVector || pair.elements.size() != 2)
    decoder.refuse("needs {byte-id, thread-id} as operand " + std::to_string(operand + 1));
  const int limits[] = {4, threads}, steps[] = {step, 1};
  for (std::size_t i = 0; i < 2; ++i) {
    const Operand& element = pair.elements[i];
    const auto value = static_cast<std::int64_t>(element.immediate);
    if (element.kind == Operand::Kind::kImmediate && (value < 0 || value >= limits[i] || value % steps[i] != 0))
      decoder.refuse("takes no " + std::string(i == 0 ? "byte-id" : "thread-id") + " of " + std::to_string(value) +
                     " in operand " + std::to_string(operand + 1));
    to[i] = decoder.source(element, RegisterClass::k16);
  }
  decoder.take(operand);
}

void decode_scaled(Decoder& decoder, Op& op) {
  require_narrow_mma(decoder);
  decoder.expect_operands(8, 8);
  const auto& parts = decoder.instruction().parts;
  Plan plan;
  plan.a = mma_type_of(parts[parts.size() - 4]);
  plan.b = mma_type_of(parts[parts.size() - 3]);
  plan.depth = decoder.has("m16n8k32") ? 32 : 64;
  plan.scales_e4m3 = decoder.has("ue4m3");
  plan.scales = plan.scales_e4m3 ? 4 : plan.depth == 64 ? 2 : 1;
  std::memcpy(&op.imm, &plan, sizeof plan);
  const std::span<Slot> extra =
      read_mma_operands(decoder, op, RegisterClass::k32, kNumA, kNumB, kNumAccumulators, kNumExtras);
  extra[kScaleA] = decoder.source(4, RegisterClass::k32);
  read_selectors(decoder, 5, plan.scales, 2, &extra[kByteA]);
  extra[kScaleB] = decoder.source(6, RegisterClass::k32);
  read_selectors(decoder, 7, plan.scales, 4, &extra[kByteB]);
  op.converge = Converge::kWarp;
  op.run = mma_scaled;
}

constexpr Form kForms[] = {
    {"mma.sync.aligned.(m16n8k32).row.col.kind::mxf8f6f4.block_scale.(scale_vec::1X)?.f32."
     "(e4m3|e5m2|e3m2|e2m3|e2m1).(e4m3|e5m2|e3m2|e2m3|e2m1).f32.(ue8m0)",
     decode_scaled},
    {"mma.sync.aligned.(m16n8k64).row.col.kind::mxf4.block_scale.(scale_vec::2X)?.f32.e2m1.e2m1.f32.(ue8m0)",
     decode_scaled},
    {"mma.sync.aligned.(m16n8k64).row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.(ue8m0)",
     decode_scaled},
    {"mma.sync.aligned.(m16n8k64).row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.(ue4m3)",
     decode_scaled},
};

}  // namespace

std::span<const Form> scaled_mma_forms() { return kForms; }

}  // namespace kernelwright::emulator
