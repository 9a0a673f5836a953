// Opcodes with their modifiers in another order: each line records whether ptxas 13.0 accepted it.
#include "kernelwright/runtime/emulator/program/modifier_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/runtime/emulator/emulator.h"
#include "kernelwright/runtime/emulator/program/pattern.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/ptx_kernel.h"

namespace kernelwright::emulator::modifier_order_test {
namespace {

using Words = std::vector<std::string_view>;

/// The decoder's error for one instruction; "" if it accepts the instruction.
std::string complaint(const std::string& instruction) {
  const std::string text =
      ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .b64 p) {\n"
      ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .f32 %f<8>;\n"
      ".reg .f64 %d<8>; .reg .b128 %q<2>;\n";
  Emulator emulator;
  try {
    emulator.load(text + instruction + "\nret;\n}\n")->program("k");
  } catch (const PtxError& error) {
    return error.what();
  }
  return "";
}

TEST(ModifierOrder, IsFreeWherePtxasTakesAny) {
  for (const char* instruction : {
           "ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16 {%r1, %r2, %r3, %r4}, [%r9];",
           "ldmatrix.b16.shared::cta.x1.m8n8.aligned.sync {%r1}, [%r9];",
           "stmatrix.sync.aligned.x2.m8n8.shared.b16 [%r9], {%r1, %r2};",
           "ld.global.acquire.gpu.b32 %r1, [%rd1];",
           "ld.b32.global.gpu.acquire %r1, [%rd1];",
           "ld.v2.global.nc.L1::no_allocate.b32 {%r1, %r2}, [%rd1];",
           "ld.L2::cache_hint.v2.global.b32 {%r1, %r2}, [%rd1], %rd2;",
           "st.global.release.gpu.b32 [%rd1], %r1;",
           "atom.global.add.acq_rel.gpu.u32 %r1, [%rd1], %r2;",
           "red.gpu.global.add.release.u32 [%rd1], %r2;",
           "cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
           "[%r1], [%rd1, {%r3, %r4, %r5}], [%r2];",
           "cp.async.bulk.tensor.shared::cluster.2d.mbarrier::complete_tx::bytes.global.L2::cache_hint.multicast::"
           "cluster "
           "[%r1], [%rd1, {%r3, %r4}], [%r2], %h1, %rd5;",
           "cp.async.bulk.mbarrier::complete_tx::bytes.shared::cluster.global [%r1], [%rd1], 16, [%r2];",
           "cp.reduce.async.bulk.add.global.bulk_group.shared::cta.noftz.f16 [%rd1], [%r2], 16;",
           "mbarrier.try_wait.parity.shared::cta.b64.cluster.acquire %p1, [%r1], %r2;",
           "mbarrier.arrive.expect_tx.shared::cluster.cluster.release.b64 _, [%r1], %r2;",
           "barrier.cluster.arrive.aligned.release;",
           "fence.gpu.acq_rel;",
           "fence.proxy.shared::cta.async;",
           "add.sat.f32.ftz.rn %f1, %f2, %f3;",
           "fma.f32.rn.ftz %f1, %f2, %f3, %f4;",
           "min.f16.abs.xorsign.NaN.ftz %h1, %h2, %h3;",
           "cvt.f32.u32.rn %f1, %r1;",
           "cvt.satfinite.e4m3x2.rn.f32 %h1, %f1, %f2;",
           "mma.m16n8k16.aligned.row.col.sync.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, "
           "{%f1, %f2, %f3, %f4};",
           "setp.u32.and.lt %p1|%p2, %r1, %r2, %p3;",
           "shfl.bfly.b32.sync %r1|%p1, %r2, 1, 31, -1;",
           "vote.ballot.sync.b32 %r1, %p1, -1;",
           "match.sync.any.b32 %r1, %r2, -1;",
           "shf.l.b32.wrap %r1, %r2, %r3, %r4;",
           "prmt.f4e.b32 %r1, %r2, %r3, %r4;",
           "tcgen05.ld.32x32b.x2.b32.sync.aligned {%r1, %r2}, [%r3];",
           "tcgen05.mma.kind::f16.cta_group::1 [%r1], %rd1, %rd2, %r3, %p1;",
           "tcgen05.cp.128x256b.cta_group::1 [%r1], %rd1;",
           "tensormap.replace.box_dim.tile.b32.shared::cta.b1024 [%r1], 0, %r2;",
       })
    EXPECT_EQ(complaint(instruction), "") << instruction;
}

TEST(ModifierOrder, IsFixedWherePtxasTakesOne) {
  for (const char* instruction : {
           "mul.u32.lo %r1, %r2, %r3;",
           "shf.wrap.l.b32 %r1, %r2, %r3, %r4;",
           "div.ftz.full.f32 %f1, %f2, %f3;",
           "cp.bulk.async.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2];",
           "cp.async.bulk.global.shared::cluster.mbarrier::complete_tx::bytes [%r1], [%rd1], 16, [%r2];",
           "cp.async.bulk.2d.tensor.shared::cluster.global.mbarrier::complete_tx::bytes "
           "[%r1], [%rd1, {%r3, %r4}], [%r2];",
           "mbarrier.arrive.shared::cta.expect_tx.b64 _, [%r1], %r2;",
           "mbarrier.try_wait.shared::cta.parity.b64 %p1, [%r1], %r2;",
           "barrier.cluster.aligned.arrive;",
           "cvta.global.to.u64 %rd1, %rd2;",
           "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, "
           "{%f1, %f2, %f3, %f4};",
           "ld.global.global.b32 %r1, [%rd1];",
       })
    EXPECT_THAT(complaint(instruction), testing::HasSubstr("this form is not modelled")) << instruction;
}

// The order of two types is the order of two operands.
TEST(ModifierOrder, KeepsWhichTypeIsWhich) {
  const Pattern pattern("cvt.(rn|rz)?.(f32|u32).(f32|u32)");
  EXPECT_EQ(pattern.arrange(Words{"cvt", "f32", "u32", "rn"}), (Words{"cvt", "rn", "f32", "u32"}));
  EXPECT_EQ(pattern.arrange(Words{"cvt", "u32", "rn", "f32"}), (Words{"cvt", "rn", "u32", "f32"}));
  EXPECT_EQ(group_of("b4x16_p64"), ModifierGroup::kType);
  EXPECT_EQ(group_of("ue8m0x2"), ModifierGroup::kType);
  EXPECT_EQ(group_of("f4e"), ModifierGroup::kFree);
  EXPECT_EQ(group_of("b1024"), ModifierGroup::kFree);
  EXPECT_EQ(group_of("shared::cluster"), ModifierGroup::kSpace);
  EXPECT_EQ(name_length(Words{"cp", "async", "bulk", "tensor", "2d"}), 4u);
  EXPECT_EQ(name_length(Words{"cp", "async", "ca"}), 2u);
  EXPECT_EQ(name_length(Words{"add", "f32"}), 1u);
}

// A hostile opcode: one that cannot fit a row is refused at once.
TEST(ModifierOrder, RefusesManyModifiersAtOnce) {
  std::string opcode = "ld";
  for (int i = 0; i < 20000; ++i) opcode += ".relaxed.gpu.global";
  EXPECT_THAT(complaint(opcode + ".b32 %r1, [%rd1];"), testing::HasSubstr("this form is not modelled"));
}

// Later readers of an opcode's parts see the usual order; here the reader is the slots of the written registers.
TEST(ModifierOrder, GivesTheResultsOfTheUsualOrder) {
  const auto result = test::run_ptx(R"(
      mov.u32 %r10, data; shl.b32 %r11, %r2, 4; add.u32 %r11, %r11, %r10;
      mul.lo.u32 %r12, %r2, 65537;
      st.v4.shared.b32 [%r11], {%r12, %r12, %r12, %r12};
      bar.sync 0;
      ldmatrix.sync.aligned.x4.trans.m8n8.shared.b16 {%r20, %r21, %r22, %r23}, [%r11];
      ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r24, %r25, %r26, %r27}, [%r11];
      xor.b32 %r20, %r20, %r24; xor.b32 %r21, %r21, %r25; xor.b32 %r22, %r22, %r26; xor.b32 %r23, %r23, %r27;
      or.b32 %r20, %r20, %r21; or.b32 %r22, %r22, %r23; or.b32 %r20, %r20, %r22;
      mul.wide.u32 %rd5, %r0, 8; add.u64 %rd5, %rd5, %rd0;
      st.b32.global [%rd5], %r20; st.global.b32 [%rd5+4], %r24;
    )",
                                    {.block = {32}, .dynamic_shared_bytes = 1024}, {.hazards = true});
  EXPECT_EQ(result.report.fault, "");
  EXPECT_THAT(result.report.hazards, testing::IsEmpty());
  for (std::uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(result.out[2 * lane], 0u) << lane;
  EXPECT_NE(result.out[1], result.out[3]);
}

TEST(VectorOfOne, IsItsRegisterWherePtxasTakesIt) {
  for (const char* instruction :
       {"ld.global.b32 { %r1 }, [%rd1];", "ld.param.b64 {%rd1}, [p];", "ld.acquire.gpu.f32 {%f1}, [%rd1];",
        "st.shared.b32 [%r1], {5};", "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r1], {%r2}, [%r3];",
        "mov.b32 {%r1}, %r2;", "mov.b32 %r1, {%r2};"})
    EXPECT_EQ(complaint(instruction), "") << instruction;
  for (const char* instruction :
       {"ld.global.v2.b32 {%r1}, [%rd1];", "shfl.sync.idx.b32 {%r1}, {%r2}, 1, 31, -1;", "add.u32 {%r1}, %r2, %r3;"})
    EXPECT_NE(complaint(instruction), "") << instruction;
}

TEST(VectorOfOne, LoadsAndStores) {
  const std::vector<std::uint32_t> in = {7};
  const auto result =
      test::run_ptx("ld.global.b32 { %r10 }, [%rd1]; add.u32 %r10, %r10, 1; st.global.b32 [%rd0], {%r10};", {},
                    {.hazards = true}, in, 4);
  EXPECT_EQ(result.report.fault, "");
  EXPECT_EQ(result.out[0], 8u);
}

}  // namespace
}  // namespace kernelwright::emulator::modifier_order_test
