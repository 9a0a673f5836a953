/// PTX ISA "Floating Point Instructions" that sm_100 introduced. They are pairs of f32 in one register (add, sub, mul,
/// fma .f32x2), sums of f32 with f16 or bf16, and minima and maxima of three.
#include <algorithm>

#include "kernelwright/runtime/emulator/numbers/float_arithmetic.h"
#include "kernelwright/runtime/emulator/ops/lane_function.h"

namespace kernelwright::emulator {
namespace {

// ---- f32x2 --------------------------------------------------------------------------------------------------------

constexpr LaneMask kNone = 0;

/// A warp's pairs lie one after another, lower half first: 64 floats.
template <float (*kCompute)(float, float, float)>
KERNELWRIGHT_TARGET_CLONES_FLATTEN Step run_pairs(Warp& warp, const Op& op, LaneMask lanes) {
  const float *a = warp.lanes<float>(op.a), *b = warp.lanes<float>(op.b), *c = warp.lanes<float>(op.c);
  float* d = warp.lanes<float>(op.d);
  if (lanes == kAllLanes) {
#pragma GCC ivdep
    for (int i = 0; i < 64; ++i) d[i] = kCompute(a[i], b[i], c[i]);
    return Step::kNext;
  }
  for (; lanes != kNone; lanes &= lanes - 1)
    for (int i = 2 * first_lane(lanes), end = i + 2; i < end; ++i) d[i] = kCompute(a[i], b[i], c[i]);
  return Step::kNext;
}

template <double (*kCompute)(float, float, float, Rounding)>
Step run_pairs_rounded(Warp& warp, const Op& op, LaneMask lanes) {
  const Modifiers modifiers = Modifiers::unpack(op.imm);
  const auto flushed = [&](float value) { return modifiers.flush ? flush(value) : value; };
  const float *a = warp.lanes<float>(op.a), *b = warp.lanes<float>(op.b), *c = warp.lanes<float>(op.c);
  float* d = warp.lanes<float>(op.d);
  for_each_lane(lanes, [&](int lane) {
    for (int i = 2 * lane; i < 2 * lane + 2; ++i)
      d[i] = finish(kCompute(flushed(a[i]), flushed(b[i]), flushed(c[i]), modifiers.rounding), 0.0f, modifiers);
  });
  return Step::kNext;
}

template <float (*kFunction)(float, float)>
float of_two(float a, float b, float) {
  return kFunction(a, b);
}
template <float (*kFunction)(float, float, float)>
float of_three(float a, float b, float c) {
  return kFunction(a, b, c);
}

/// Choices: rounding, .ftz.
template <Handler kNearest, Handler kNearestFlushed, Handler kRounded, std::size_t kSources>
void pairs(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  decoder.expect_operands(1 + kSources, 1 + kSources);
  op.d = result(decoder, 0, RegisterClass::k64);
  op.a = decoder.source(1, RegisterClass::k64);
  op.b = op.c = decoder.source(2, RegisterClass::k64);
  if (kSources > 2) op.c = decoder.source(3, RegisterClass::k64);
  const Modifiers modifiers = modifiers_of(decoder);
  op.imm = modifiers.pack();
  op.run = modifiers.rounding != Rounding::kNearestEven ? kRounded : modifiers.flush ? kNearestFlushed : kNearest;
}
constexpr auto kAdd =
    pairs<run_pairs<of_two<add<false>>>, run_pairs<of_two<add<true>>>, run_pairs_rounded<add_rounded>, 2>;
constexpr auto kSub =
    pairs<run_pairs<of_two<sub<false>>>, run_pairs<of_two<sub<true>>>, run_pairs_rounded<sub_rounded>, 2>;
constexpr auto kMul =
    pairs<run_pairs<of_two<mul<false>>>, run_pairs<of_two<mul<true>>>, run_pairs_rounded<mul_rounded>, 2>;
constexpr auto kFma =
    pairs<run_pairs<of_three<fma<false>>>, run_pairs<of_three<fma<true>>>, run_pairs_rounded<fma_rounded>, 3>;

// ---- f32 with f16 or bf16 -----------------------------------------------------------------------------------------

constexpr std::uint64_t kBf16Operands = 32;  // a bit beside those of Modifiers

/// a (and, for fma, b) is f16 or bf16; the last source is f32.
template <double (*kCompute)(float, float, float, Rounding), bool kFma>
Step run_mixed(Warp& warp, const Op& op, LaneMask lanes) {
  const Modifiers modifiers = Modifiers::unpack(op.imm & (kBf16Operands - 1));
  const auto half = [&](Slot slot, int lane) {
    const std::uint16_t code = warp.lanes<std::uint16_t>(slot)[lane];
    return op.imm & kBf16Operands ? bf16_to_f32(code) : f16_to_f32(code);
  };
  const float* c = warp.lanes<float>(op.c);
  float* d = warp.lanes<float>(op.d);
  for_each_lane(lanes, [&](int lane) {
    const double value = kFma ? kCompute(half(op.a, lane), half(op.b, lane), c[lane], modifiers.rounding)
                              : kCompute(half(op.a, lane), c[lane], 0, modifiers.rounding);
    const float rounded = finish(value, 0.0f, modifiers);
    d[lane] = modifiers.saturate ? saturate_unit(rounded) : rounded;
  });
  return Step::kNext;
}
template <double (*kCompute)(float, float, float, Rounding), bool kFma>
void mixed(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  constexpr std::size_t kSources = kFma ? 3 : 2;
  decoder.expect_operands(1 + kSources, 1 + kSources);
  op.d = result(decoder, 0, RegisterClass::k32);
  op.a = op.b = decoder.source(1, RegisterClass::k16);
  if (kFma) op.b = decoder.source(2, RegisterClass::k16);
  op.c = decoder.source(kSources, RegisterClass::k32);
  op.imm = modifiers_of(decoder).pack() | (decoder.has("bf16") ? kBf16Operands : 0);
  op.run = run_mixed<kCompute, kFma>;
}

// ---- three operands -----------------------------------------------------------------------------------------------

constexpr std::uint64_t kMaximum = 1, kNaN = 2, kFlush = 4, kAbsolute = 8;

/// NaN operands are ignored, unless .NaN makes the result NaN; +0 is above -0.
float extremum(float a, float b, std::uint64_t imm) {
  if (std::isnan(a) || std::isnan(b))
    return (imm & kNaN) || (std::isnan(a) && std::isnan(b)) ? one_nan(NAN) : std::isnan(a) ? b : a;
  const bool a_above = a > b || (a == b && !std::signbit(a));
  return a_above == ((imm & kMaximum) != 0) ? a : b;
}
Step run_three(Warp& warp, const Op& op, LaneMask lanes) {
  const float *a = warp.lanes<float>(op.a), *b = warp.lanes<float>(op.b), *c = warp.lanes<float>(op.c);
  float* d = warp.lanes<float>(op.d);
  const auto prepared = [&](float value) {
    if (op.imm & kFlush) value = flush(value);
    return op.imm & kAbsolute ? std::fabs(value) : value;
  };
  for_each_lane(lanes, [&](int lane) {
    d[lane] = extremum(extremum(prepared(a[lane]), prepared(b[lane]), op.imm), prepared(c[lane]), op.imm);
  });
  return Step::kNext;
}
constexpr Form kForms[] = {
    {"add.(rn|rz|rm|rp)?.(ftz)?.f32x2", kAdd},
    {"sub.(rn|rz|rm|rp)?.(ftz)?.f32x2", kSub},
    {"mul.(rn|rz|rm|rp)?.(ftz)?.f32x2", kMul},
    {"fma.(rn|rz|rm|rp).(ftz)?.f32x2", kFma},
    {"add.(rn|rz|rm|rp)?.(sat)?.f32.(f16|bf16)", mixed<add_rounded, false>},
    {"sub.(rn|rz|rm|rp)?.(sat)?.f32.(f16|bf16)", mixed<sub_rounded, false>},
    {"fma.(rn|rz|rm|rp).(sat)?.f32.(f16|bf16)", mixed<fma_rounded, true>},
    {"min.(ftz)?.(NaN)?.(abs).f32", decode_extremum_of_three},
    {"max.(ftz)?.(NaN)?.(abs).f32", decode_extremum_of_three},
};

}  // namespace

void decode_extremum_of_three(Decoder& decoder, Op& op) {
  decoder.require_blackwell();
  decoder.expect_operands(4, 4);
  op.d = result(decoder, 0, RegisterClass::k32);
  op.a = decoder.source(1, RegisterClass::k32);
  op.b = decoder.source(2, RegisterClass::k32);
  op.c = decoder.source(3, RegisterClass::k32);
  // The rows for two operands spell their modifiers out, so their modifiers are no choices.
  const auto& parts = decoder.instruction().parts;
  const auto says = [&](std::string_view part) { return std::find(parts.begin(), parts.end(), part) != parts.end(); };
  op.imm = (says("max") ? kMaximum : 0) | (says("NaN") ? kNaN : 0) | (says("ftz") ? kFlush : 0) |
           (says("abs") ? kAbsolute : 0);
  op.run = run_three;
}

std::span<const Form> packed_float_forms() { return kForms; }

}  // namespace kernelwright::emulator
