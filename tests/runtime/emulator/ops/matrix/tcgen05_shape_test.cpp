// The descriptors of tcgen05.mma, field by field: the emulator reads what a kernel encodes, and refuses what the ISA
// does not allow, with the field's name.
#include "kernelwright/runtime/emulator/ops/matrix/tcgen05_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "contract/tcgen05_descriptor.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "kernelwright/runtime/emulator/ops/matrix/tcgen05_operand.h"

namespace kernelwright::emulator {
namespace {

using contract::InstructionDescriptor;
using contract::MmaElement;
using contract::MmaKind;
using contract::MmaOutput;
using contract::MmaScale;
using contract::MmaSwizzle;
using contract::SharedDescriptor;
using testing::HasSubstr;

Tcgen05Form form_of(MmaKind kind, int cta_group = 1, std::uint8_t flags = 0) {
  Tcgen05Form form;
  form.kind = static_cast<Tcgen05Kind>(kind);
  form.cta_group = static_cast<std::uint8_t>(cta_group);
  form.flags = flags;
  form.scale_block = contract::is_block_scaled(kind) ? 32 : 0;
  return form;
}
std::string refusal(std::uint32_t bits, const Tcgen05Form& form) {
  try {
    decode_instruction_descriptor(bits, form);
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "accepted";
}

// ---- bits ---------------------------------------------------------------------------------------------------------

TEST(InstructionDescriptor, PutsEachFieldWhereTheIsaHasIt) {
  InstructionDescriptor d;
  d.m = 0;
  d.n = 0;
  d.d = MmaOutput::kF16;
  EXPECT_EQ(d.bits(), 0u);
  const auto with = [&](const std::function<void(InstructionDescriptor&)>& change) {
    InstructionDescriptor changed = d;
    change(changed);
    return changed.bits();
  };
  EXPECT_EQ(with([](auto& x) { x.saturate = true; }), 1u << 3);
  EXPECT_EQ(with([](auto& x) { x.d = MmaOutput::kF32; }), 1u << 4);
  EXPECT_EQ(with([](auto& x) { x.d = MmaOutput::kS32; }), 2u << 4);
  EXPECT_EQ(with([](auto& x) { x.a = MmaElement::kBf16; }), 1u << 7);
  EXPECT_EQ(with([](auto& x) { x.b = MmaElement::kTf32; }), 2u << 10);
  EXPECT_EQ(with([](auto& x) { x.negate_a = true; }), 1u << 13);
  EXPECT_EQ(with([](auto& x) { x.negate_b = true; }), 1u << 14);
  EXPECT_EQ(with([](auto& x) { x.a_mn_major = true; }), 1u << 15);
  EXPECT_EQ(with([](auto& x) { x.b_mn_major = true; }), 1u << 16);
  EXPECT_EQ(with([](auto& x) { x.n = 256; }), 32u << 17);
  EXPECT_EQ(with([](auto& x) { x.m = 256; }), 16u << 24);
  const std::pair<MmaElement, std::uint32_t> codes[] = {{MmaElement::kE4m3, 0},
                                                        {MmaElement::kE5m2, 1},
                                                        {MmaElement::kE2m3, 3},
                                                        {MmaElement::kE3m2, 4},
                                                        {MmaElement::kE2m1, 5}};
  for (const auto& [element, code] : codes) {
    d.kind = MmaKind::kF8f6f4;
    EXPECT_EQ(with([e = element](auto& x) { x.a = x.b = e; }), code << 7 | code << 10);
  }
  d.kind = MmaKind::kI8;
  EXPECT_EQ(with([](auto& x) { x.a = MmaElement::kU8, x.b = MmaElement::kS8; }), 1u << 10);

  d.kind = MmaKind::kMxf4nvf4;
  d.a = d.b = MmaElement::kE2m1;
  const std::uint32_t types = 1u << 7 | 1u << 10, ue8m0 = 1u << 23;
  EXPECT_EQ(d.bits(), types | ue8m0);
  EXPECT_EQ(with([](auto& x) { x.scale = MmaScale::kUe4m3; }), types);
  EXPECT_EQ(with([](auto& x) { x.scale_b_id = 3; }), types | ue8m0 | 3u << 4);
  EXPECT_EQ(with([](auto& x) { x.scale_a_id = 3; }), types | ue8m0 | 3u << 29);
  EXPECT_EQ(with([](auto& x) { x.k96 = true; }), types | ue8m0 | 1u << 31);
  EXPECT_EQ(contract::with_scale_ids(d.bits() | 3u << 29 | 3u << 4, 1, 2), d.bits() | 1u << 29 | 2u << 4);
}

struct KindElement {
  MmaKind kind;
  MmaElement element;
  std::uint32_t code;
  MatrixElement read;
};
/// All kinds, with all elements that each has.
constexpr KindElement kKindElements[] = {{MmaKind::kF16, MmaElement::kF16, 0, MatrixElement::kF16},
                                         {MmaKind::kF16, MmaElement::kBf16, 1, MatrixElement::kBf16},
                                         {MmaKind::kTf32, MmaElement::kTf32, 2, MatrixElement::kTf32},
                                         {MmaKind::kF8f6f4, MmaElement::kE4m3, 0, MatrixElement::kE4m3},
                                         {MmaKind::kF8f6f4, MmaElement::kE5m2, 1, MatrixElement::kE5m2},
                                         {MmaKind::kF8f6f4, MmaElement::kE2m3, 3, MatrixElement::kE2m3},
                                         {MmaKind::kF8f6f4, MmaElement::kE3m2, 4, MatrixElement::kE3m2},
                                         {MmaKind::kF8f6f4, MmaElement::kE2m1, 5, MatrixElement::kE2m1},
                                         {MmaKind::kI8, MmaElement::kU8, 0, MatrixElement::kU8},
                                         {MmaKind::kI8, MmaElement::kS8, 1, MatrixElement::kS8},
                                         {MmaKind::kMxf8f6f4, MmaElement::kE4m3, 0, MatrixElement::kE4m3},
                                         {MmaKind::kMxf8f6f4, MmaElement::kE5m2, 1, MatrixElement::kE5m2},
                                         {MmaKind::kMxf8f6f4, MmaElement::kE2m3, 3, MatrixElement::kE2m3},
                                         {MmaKind::kMxf8f6f4, MmaElement::kE3m2, 4, MatrixElement::kE3m2},
                                         {MmaKind::kMxf8f6f4, MmaElement::kE2m1, 5, MatrixElement::kE2m1},
                                         {MmaKind::kMxf4, MmaElement::kE2m1, 1, MatrixElement::kE2m1},
                                         {MmaKind::kMxf4nvf4, MmaElement::kE2m1, 1, MatrixElement::kE2m1}};

InstructionDescriptor descriptor_of(const KindElement& type) {
  InstructionDescriptor d;
  d.kind = type.kind;
  d.a = d.b = type.element;
  if (type.kind == MmaKind::kI8) d.d = MmaOutput::kS32;
  return d;
}

TEST(InstructionDescriptor, HasEveryKindsElementsAndLimits) {
  for (const KindElement& type : kKindElements)
    for (const std::uint32_t m : {128, 256})
      for (std::uint32_t n = 32; n <= 256; n += 32) {
        InstructionDescriptor d = descriptor_of(type);
        d.m = m, d.n = n;
        const bool scaled = contract::is_block_scaled(type.kind);
        const std::uint32_t output = type.kind == MmaKind::kI8 ? 2 : 1;
        EXPECT_EQ(d.bits(),
                  type.code << 7 | type.code << 10 | n / 8 << 17 | m / 16 << 24 | (scaled ? 1u << 23 : output << 4))
            << static_cast<int>(type.kind) << " " << static_cast<int>(type.element);
        const Tcgen05Shape read = decode_instruction_descriptor(d.bits(), form_of(type.kind, /*cta_group=*/2));
        EXPECT_EQ(read.a, type.read);
        EXPECT_EQ(read.b, type.read);
        EXPECT_EQ(read.m, m);
        EXPECT_EQ(read.n, n);
      }
}

TEST(InstructionDescriptor, KeepsItsFieldsApart) {
  // All fields at their largest value: each bit belongs to one field, and no bit is in a reserved place.
  InstructionDescriptor plain;
  plain.kind = MmaKind::kF8f6f4;
  plain.a = plain.b = MmaElement::kE2m1;
  plain.d = MmaOutput::kS32;
  plain.m = 256, plain.n = 256;
  plain.saturate = plain.negate_a = plain.negate_b = plain.a_mn_major = plain.b_mn_major = true;
  plain.scale_a_id = plain.scale_b_id = 3, plain.k96 = true;  // not fields of this kind
  EXPECT_EQ(plain.bits(), 1u << 3 | 2u << 4 | 5u << 7 | 5u << 10 | 0xfu << 13 | 32u << 17 | 16u << 24);
  InstructionDescriptor scaled = plain;
  scaled.kind = MmaKind::kMxf8f6f4;
  scaled.k96 = false;
  EXPECT_EQ(scaled.bits(), 3u << 4 | 5u << 7 | 5u << 10 | 0xfu << 13 | 32u << 17 | 1u << 23 | 16u << 24 | 3u << 29);
  EXPECT_EQ(contract::with_scale_ids(scaled.bits(), 0, 0), scaled.bits() & ~(3u << 4 | 3u << 29));
}

TEST(SharedDescriptor, PutsEachFieldWhereTheIsaHasIt) {
  const std::uint64_t version = std::uint64_t{1} << 46;
  SharedDescriptor d;
  d.swizzle = MmaSwizzle::kNone;
  d.stride_bytes = 0;
  EXPECT_EQ(d.bits(0), version);
  EXPECT_EQ(d.bits(0x3fff0), version | 0x3fff);
  EXPECT_EQ(d.bits(0x01000400), version | 0x40);  // the CTA's rank is no part of it
  d.leading_bytes = 0x3fff0;
  EXPECT_EQ(d.bits(0), version | std::uint64_t{0x3fff} << 16);
  d.leading_bytes = 0;
  d.stride_bytes = 1024;
  EXPECT_EQ(d.bits(0), version | std::uint64_t{64} << 32);
  d.stride_bytes = 0;
  d.base_offset = 5;
  EXPECT_EQ(d.bits(0), version | std::uint64_t{5} << 49);
  d.base_offset = 0;
  d.stride_bytes = 0x3fff0;
  EXPECT_EQ(d.bits(0), version | std::uint64_t{0x3fff} << 32);
  d.leading_bytes = 0x3fff0;
  d.base_offset = 7;
  d.swizzle = MmaSwizzle::k32B;
  EXPECT_EQ(d.bits(0xffffffff), version | 0x3fff | std::uint64_t{0x3fff} << 16 | std::uint64_t{0x3fff} << 32 |
                                    std::uint64_t{7} << 49 | std::uint64_t{6} << 61)
      << "all fields at their largest";
  d = SharedDescriptor{};
  d.stride_bytes = 0;
  const std::pair<MmaSwizzle, std::uint64_t> codes[] = {
      {MmaSwizzle::k128BAtom32B, 1}, {MmaSwizzle::k128B, 2}, {MmaSwizzle::k64B, 4}, {MmaSwizzle::k32B, 6}};
  for (const auto& [swizzle, code] : codes) {
    d.swizzle = swizzle;
    EXPECT_EQ(d.bits(0), version | code << 61);
  }
}

// ---- what the emulator reads --------------------------------------------------------------------------------------

TEST(InstructionDescriptor, IsReadAsItWasWritten) {
  InstructionDescriptor d;
  d.kind = MmaKind::kF8f6f4;
  d.a = MmaElement::kE3m2;
  d.b = MmaElement::kE5m2;
  d.m = 64;
  d.n = 48;
  d.negate_b = true;
  d.b_mn_major = true;
  const Tcgen05Shape expected{.a = MatrixElement::kE3m2,
                              .b = MatrixElement::kE5m2,
                              .m = 64,
                              .n = 48,
                              .k = 32,
                              .negate_b = true,
                              .b_mn_major = true};
  EXPECT_EQ(decode_instruction_descriptor(d.bits(), form_of(d.kind)), expected);

  InstructionDescriptor s;
  s.kind = MmaKind::kMxf4nvf4;
  s.a = s.b = MmaElement::kE2m1;
  s.n = 128;
  s.negate_a = true;
  s.scale = MmaScale::kUe4m3;
  Tcgen05Form form = form_of(s.kind);
  form.scale_block = 16;
  const Tcgen05Shape scaled{.a = MatrixElement::kE2m1,
                            .b = MatrixElement::kE2m1,
                            .m = 128,
                            .n = 128,
                            .k = 64,
                            .negate_a = true,
                            .packed_4bit = true,
                            .scale_ue4m3 = true};
  EXPECT_EQ(decode_instruction_descriptor(s.bits(), form), scaled);
  s.scale = MmaScale::kUe8m0;
  s.scale_a_id = 2;
  const Tcgen05Shape halves{.a = MatrixElement::kE2m1,
                            .b = MatrixElement::kE2m1,
                            .m = 128,
                            .n = 128,
                            .k = 64,
                            .negate_a = true,
                            .packed_4bit = true,
                            .scale_a_id = 2};
  EXPECT_EQ(decode_instruction_descriptor(s.bits(), form_of(s.kind)), halves);
}

TEST(InstructionDescriptor, ImpliesTheDepthByItsKind) {
  const std::tuple<MmaKind, MmaElement, MmaOutput, std::uint32_t> cases[] = {
      {MmaKind::kF16, MmaElement::kBf16, MmaOutput::kF32, 16},
      {MmaKind::kTf32, MmaElement::kTf32, MmaOutput::kF32, 8},
      {MmaKind::kF8f6f4, MmaElement::kE2m1, MmaOutput::kF32, 32},
      {MmaKind::kI8, MmaElement::kS8, MmaOutput::kS32, 32},
      {MmaKind::kMxf8f6f4, MmaElement::kE2m3, MmaOutput::kF32, 32},
      {MmaKind::kMxf4, MmaElement::kE2m1, MmaOutput::kF32, 64}};
  for (const auto& [kind, element, output, k] : cases) {
    InstructionDescriptor d;
    d.kind = kind;
    d.a = d.b = element;
    d.d = output;
    d.n = 16;
    EXPECT_EQ(decode_instruction_descriptor(d.bits(), form_of(kind)).k, k) << static_cast<int>(kind);
  }
}

TEST(InstructionDescriptor, IsRefusedByTheNameOfItsField) {
  InstructionDescriptor d;
  d.n = 16;
  const std::uint32_t good = d.bits();
  const Tcgen05Form f16 = form_of(MmaKind::kF16);
  EXPECT_EQ(refusal(good, f16), "accepted");
  EXPECT_THAT(refusal(good | 1, f16), HasSubstr("the sparsity selector (bits 0-1) is 1 and must be 0"));
  EXPECT_THAT(refusal(good | 1u << 2, f16), HasSubstr("sparsity (bit 2) is 1 and is not modelled"));
  EXPECT_THAT(refusal(good | 1u << 3, f16), HasSubstr("saturate, which is for integers, (bit 3)"));
  EXPECT_THAT(refusal(good | 2u << 4, f16), HasSubstr("the type of D (bits 4-5) is 3 and must be 0 (f16) or 1 (f32)"));
  EXPECT_THAT(refusal(good | 1u << 6, f16), HasSubstr("a reserved field (bit 6)"));
  EXPECT_THAT(refusal(good | 2u << 7, f16), HasSubstr("the type of A (bits 7-9) is 2 and must be 0 (f16) or 1 (bf16)"));
  EXPECT_THAT(refusal(good | 1u << 10, f16), HasSubstr("the type of B (bits 10-12) is 1 and must be that of A"));
  EXPECT_THAT(refusal(good | 1u << 23, f16), HasSubstr("a reserved field (bit 23)"));
  EXPECT_THAT(refusal(good | 1u << 29, f16), HasSubstr("a reserved field (bit 29)"));
  EXPECT_THAT(refusal(good | 1u << 30, f16), HasSubstr("the maximum shift of B (bits 30-31) is 1 and is not modelled"));
  d.a = d.b = MmaElement::kBf16;
  d.d = MmaOutput::kF16;
  EXPECT_THAT(refusal(d.bits(), f16), HasSubstr("the type of D (bits 4-5) is 0 and must be 1 (f32) for bf16"));
  d.a_mn_major = true;
  d.d = MmaOutput::kF32;
  EXPECT_EQ(refusal(d.bits(), f16), "accepted");
  EXPECT_THAT(refusal(d.bits(), form_of(MmaKind::kF16, 1, Tcgen05Form::kATensor)),
              HasSubstr("transpose A (bit 15) is 1 and must be 0 where A is in tensor memory"));

  EXPECT_THAT(refusal(good, form_of(MmaKind::kTf32)), HasSubstr("the type of A (bits 7-9) is 0 and must be 2 (tf32)"));
  EXPECT_THAT(refusal(good | 2u << 7, form_of(MmaKind::kF8f6f4)), HasSubstr("must be 0 (e4m3), 1 (e5m2), 3 (e2m3)"));
  const Tcgen05Form i8 = form_of(MmaKind::kI8);
  EXPECT_THAT(refusal(good, i8), HasSubstr("the type of D (bits 4-5) is 1 and must be 2 (s32)"));
  const std::uint32_t integers = (good & ~(3u << 4)) | 2u << 4;
  EXPECT_EQ(refusal(integers, i8), "accepted");
  EXPECT_THAT(refusal(integers | 1u << 13, i8), HasSubstr("negate A, which is for floats, (bit 13)"));
  EXPECT_THAT(refusal(integers | 1u << 14, i8), HasSubstr("negate B, which is for floats, (bit 14)"));
  EXPECT_THAT(refusal(integers | 2u << 10, i8), HasSubstr("must be 0 (u8) or 1 (s8)"));
}

TEST(InstructionDescriptor, IsRefusedByTheNameOfItsFieldWithScales) {
  InstructionDescriptor d;
  d.kind = MmaKind::kMxf8f6f4;
  d.a = d.b = MmaElement::kE4m3;
  d.n = 16;
  const std::uint32_t good = d.bits();
  const Tcgen05Form mx = form_of(d.kind);
  EXPECT_EQ(refusal(good, mx), "accepted");
  for (const int bit : {0, 1, 3, 6, 24, 25, 26, 31})
    EXPECT_THAT(refusal(good | 1u << bit, mx), HasSubstr("a reserved field")) << bit;
  EXPECT_THAT(refusal(good & ~(1u << 23), mx), HasSubstr("the type of the scales (bit 23) is 0 and must be 1 (ue8m0)"));
  InstructionDescriptor four = d;
  four.kind = MmaKind::kMxf4nvf4;
  four.a = four.b = MmaElement::kE2m1;
  Tcgen05Form nv = form_of(four.kind);
  EXPECT_EQ(refusal(four.bits(), nv), "accepted");
  EXPECT_THAT(refusal(four.bits() | 1u << 15, nv), HasSubstr("transpose A (bit 15)"));
  EXPECT_THAT(refusal(four.bits() | 1u << 16, nv), HasSubstr("transpose B (bit 16)"));
  EXPECT_THAT(refusal(four.bits() & ~(1u << 23), nv), HasSubstr("with blocks of 16"));
  EXPECT_THAT(refusal(four.bits() | 1u << 29, nv),
              HasSubstr("the scale factor id of A (bits 29-30) is 1 and must be 0 or 2"));
  EXPECT_THAT(refusal(four.bits() | 3u << 4, nv),
              HasSubstr("the scale factor id of B (bits 4-5) is 3 and must be 0 or 2"));
  nv.scale_block = 16;
  EXPECT_THAT(refusal(four.bits() | 2u << 4, nv), HasSubstr("is 2 and must be 0 with four scales"));
  EXPECT_THAT(refusal(four.bits() | 1u << 31, nv),
              HasSubstr("the K dimension (bit 31) is 1 and (K = 96) exists from sm_103a on"));
  EXPECT_EQ(refusal(four.bits() | 1u << 31, form_of(four.kind, 1, Tcgen05Form::kSm103)), "accepted");
  EXPECT_THAT(refusal(four.bits() | 1u << 31, form_of(four.kind, 2, Tcgen05Form::kSm103)),
              HasSubstr("takes M = 256 with K = 96"));
  EXPECT_THAT(refusal(four.bits() & ~(7u << 7), nv), HasSubstr("must be 1 (e2m1)"));
}

TEST(InstructionDescriptor, IsRefusedWhereNoShapeIsLikeIt) {
  const auto shape = [](MmaKind kind, int group, std::uint8_t flags, std::uint32_t m, std::uint32_t n) {
    InstructionDescriptor d;
    d.kind = kind;
    if (kind == MmaKind::kI8) {
      d.a = d.b = MmaElement::kU8;
      d.d = MmaOutput::kS32;
    }
    if (kind == MmaKind::kMxf8f6f4) d.a = d.b = MmaElement::kE4m3;
    d.m = m;
    d.n = n;
    return refusal(d.bits(), form_of(kind, group, flags));
  };
  constexpr MmaKind kF16 = MmaKind::kF16, kI8 = MmaKind::kI8, kMx = MmaKind::kMxf8f6f4;
  constexpr std::uint8_t kWs = Tcgen05Form::kWeightStationary;
  EXPECT_EQ(shape(kF16, 1, 0, 64, 8), "accepted");
  EXPECT_EQ(shape(kF16, 1, 0, 128, 256), "accepted");
  EXPECT_EQ(shape(kF16, 1, 0, 128, 8), "accepted");
  EXPECT_THAT(shape(kF16, 1, 0, 128, 0), HasSubstr("takes N = 8 to 256 by 8 with M = 128"));
  EXPECT_EQ(shape(kI8, 1, 0, 128, 8), "accepted");
  EXPECT_THAT(shape(kI8, 1, 0, 128, 40), HasSubstr("takes N = 16 to 256 by 16, 8 or 24 with M = 128"));
  EXPECT_THAT(shape(kF16, 1, 0, 64, 0), HasSubstr("takes N = 8 to 256 by 8 with M = 64"));
  EXPECT_THAT(shape(kF16, 1, 0, 64, 264), HasSubstr("takes N = 8 to 256"));
  EXPECT_THAT(shape(kF16, 1, 0, 256, 64),
              HasSubstr("M = 256 and N = 64; kind::f16 of cta_group::1 takes M = 64 or 128"));
  EXPECT_EQ(shape(kF16, 2, 0, 256, 16), "accepted");
  EXPECT_THAT(shape(kF16, 2, 0, 64, 16), HasSubstr("cta_group::2 takes M = 128 or 256"));
  EXPECT_THAT(shape(kF16, 2, 0, 256, 24), HasSubstr("takes N = 16 to 256 by 16"));
  EXPECT_EQ(shape(kF16, 1, kWs, 32, 64), "accepted");
  EXPECT_THAT(shape(kF16, 1, kWs, 32, 96), HasSubstr(".ws with kind::f16 of cta_group::1 takes M = 32, 64 or 128"));
  EXPECT_EQ(shape(kI8, 1, 0, 64, 24), "accepted");
  EXPECT_THAT(shape(kI8, 1, 0, 64, 40), HasSubstr("by 16, 8 or 24"));
  EXPECT_THAT(shape(kI8, 2, 0, 256, 48), HasSubstr("by 32"));
  EXPECT_EQ(shape(kMx, 1, 0, 128, 8), "accepted");
  EXPECT_THAT(shape(kMx, 1, 0, 256, 8), HasSubstr("takes M = 128"));
  EXPECT_THAT(shape(kMx, 2, 0, 256, 8), HasSubstr("takes N = 16 to 256 by 16"));
  InstructionDescriptor transposed;
  transposed.kind = MmaKind::kF8f6f4;
  transposed.a = transposed.b = MmaElement::kE4m3;
  transposed.m = 64;
  transposed.n = 24;
  transposed.b_mn_major = true;
  EXPECT_THAT(refusal(transposed.bits(), form_of(transposed.kind)), HasSubstr("where an 8-bit B is transposed"));
}

// ---- matrix descriptors -------------------------------------------------------------------------------------------

std::string shared_refusal(std::uint64_t bits, bool sm103 = false) {
  try {
    decode_tensor_descriptor(bits, "B", sm103);
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "accepted";
}

TEST(SharedDescriptor, IsReadAsItWasWritten) {
  SharedDescriptor d;
  d.leading_bytes = 2048;
  d.stride_bytes = 512;
  d.base_offset = 6;
  d.swizzle = MmaSwizzle::k64B;
  const TensorDescriptor expected{
      .start = 0x5430, .leading = 2048, .stride = 512, .base = 768, .swizzle = TensorSwizzle::k64B};
  EXPECT_EQ(decode_tensor_descriptor(d.bits(0x02005430), "A", false), expected);
}

TEST(SharedDescriptor, IsRefusedByTheNameOfItsField) {
  const std::uint64_t good = SharedDescriptor{}.bits(4096), one = 1;
  EXPECT_EQ(shared_refusal(good), "accepted");
  EXPECT_THAT(shared_refusal(good | one << 14), HasSubstr("of B: bits 14-15 are reserved"));
  EXPECT_THAT(shared_refusal(good | one << 31), HasSubstr("bits 30-31 are reserved"));
  EXPECT_THAT(shared_refusal(good & ~(one << 46)),
              HasSubstr("the version, are 0 and must be 1 (a descriptor of wgmma has 0)"));
  EXPECT_THAT(shared_refusal(good | one << 47), HasSubstr("the version, are 3"));
  EXPECT_THAT(shared_refusal(good | one << 57), HasSubstr("bits 53-60 are reserved"));
  for (const std::uint64_t swizzle : {3, 5, 7})
    EXPECT_THAT(shared_refusal((good & ~(std::uint64_t{7} << 61)) | swizzle << 61), HasSubstr("the swizzle,"));
  EXPECT_THAT(shared_refusal(good | one << 52), HasSubstr("which exists from sm_103a on"));
  SharedDescriptor plain;
  plain.swizzle = MmaSwizzle::kNone;
  plain.base_offset = 1;
  EXPECT_THAT(shared_refusal(plain.bits(4096)), HasSubstr("the base offset, must be 0 without a swizzle"));
}

TEST(SharedDescriptor, TakesItsSwizzlesWithTheElementsThatHaveThem) {
  const auto units = [](TensorSwizzle swizzle, MatrixElement element, bool mn_major) -> std::string {
    try {
      TensorUnits({.start = 4096, .leading = 1024, .stride = 1024, .swizzle = swizzle}, element, false, mn_major, 64,
                  16);
    } catch (const Fault& fault) {
      return fault.what();
    }
    return "accepted";
  };
  EXPECT_EQ(units(TensorSwizzle::k128BAtom32B, MatrixElement::kTf32, true), "accepted");
  EXPECT_THAT(units(TensorSwizzle::k128B, MatrixElement::kTf32, true),
              HasSubstr("needs the 128B swizzle of 32-byte atoms"));
  EXPECT_THAT(units(TensorSwizzle::k128BAtom32B, MatrixElement::kF16, true), HasSubstr("only 32-bit elements"));
  EXPECT_EQ(units(TensorSwizzle::k128BAtom32B, MatrixElement::kF16, false), "accepted");
}

TEST(TensorUnits, CoversEveryUnitOnceInItsPieces) {
  for (const TensorSwizzle swizzle :
       {TensorSwizzle::kNone, TensorSwizzle::k32B, TensorSwizzle::k64B, TensorSwizzle::k128B})
    for (const bool mn_major : {false, true}) {
      const TensorUnits units({.start = 2048, .leading = mn_major ? 16384u : 128u, .stride = 1024, .swizzle = swizzle},
                              MatrixElement::kBf16, false, mn_major, 128, 16);
      std::vector<int> touched(1 << 18), expected(1 << 18);
      visit_unit_pieces(units, [&](std::uint32_t offset, std::uint32_t bytes) {
        for (std::uint32_t i = 0; i < bytes; ++i) ++touched[offset + i];
      });
      for (std::uint32_t row = 0; row < units.rows(); ++row)
        for (std::uint32_t column = 0; column < units.columns(); ++column)
          for (std::uint32_t i = 0; i < kUnitBytes; ++i) ++expected[units.address(row, column) + i];
      EXPECT_EQ(touched, expected);
      EXPECT_EQ(std::count(touched.begin(), touched.end(), 1), 128 * 32);
    }
}

}  // namespace
}  // namespace kernelwright::emulator
