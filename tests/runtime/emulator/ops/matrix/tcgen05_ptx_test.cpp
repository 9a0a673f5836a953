// tcgen05.mma as PTX: a kernel fills shared and tensor memory, multiplies, waits and reads everything back.
// tcgen05_mma_test.cpp tests the product; this file tests the rest: operands, order, completion, hazards.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernelwright/runtime/emulator/emulator.h"
#include "kernelwright/runtime/emulator/machine/fault.h"
#include "runtime/emulator/ops/matrix/tcgen05_model.h"

namespace kernelwright::emulator {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint32_t kSharedBytes = 95 * 1024;  // of the model's 96 KB, the first is the system's
constexpr std::uint32_t kCells = 128 * 512;

/// The steps of a kernel besides multiplying.
struct Steps {
  std::string multiply;  // by one thread; %rd2 and %rd3 are A's and B's descriptors, %r5 to %r9 below
  std::string commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];\n";
  std::string after_commit;  // by the same thread
  std::string wait = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%bar], 0; @!%p1 bra WAIT;\n";
  std::string fence_after = "tcgen05.fence::after_thread_sync;\n";
  std::string proxy_fence = "fence.proxy.async.shared::cta;\n";
  std::string fence_before = "tcgen05.fence::before_thread_sync;\n";
  std::string target = "sm_100a";
  std::string group = "1";
};

/// Thread t has lane t of tensor memory. `in`: shared memory's bytes, then the cells of each lane; `out`: cells.
/// %r5: D, %r6: A, %r7 and %r8: scales, %r9: the instruction descriptor; %p0: whether D is added to.
std::string kernel(const Steps& steps) {
  const std::string pair = steps.group == "2" ? "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n" : "";
  return ".version 8.8\n.target " + steps.target + R"(
.address_size 64
.extern .shared .align 1024 .b8 data[];
.visible .entry test(.param .align 8 .b8 args[48])
{
.reg .pred %p<8>; .reg .b32 %r<40>, %bar; .reg .b64 %rd<20>;
.shared .align 8 .b8 barrier[8]; .shared .align 4 .b8 place[4];
ld.param.u64 %rd0, [args]; ld.param.u64 %rd1, [args+8]; ld.param.u64 %rd2, [args+16]; ld.param.u64 %rd3, [args+24];
ld.param.u32 %r9, [args+32]; ld.param.u32 %r10, [args+36];
mov.u32 %bar, barrier; mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r10, 0;
mov.u32 %r11, %cluster_ctarank; mul.wide.u32 %rd4, %r11, )" +
         std::to_string(kSharedBytes + kCells * 4) + "; add.u64 %rd1, %rd1, %rd4;\nmul.wide.u32 %rd4, %r11, " +
         std::to_string(kCells * 4) + R"(; add.u64 %rd0, %rd0, %rd4;
setp.ne.u32 %p2, %r0, 0;
@%p2 bra INITIALISED;
mbarrier.init.shared::cta.b64 [%bar], 1; fence.mbarrier_init.release.cluster;
INITIALISED:
setp.ge.u32 %p3, %r0, 32;
@%p3 bra ALLOCATED;
mov.u32 %r1, place; tcgen05.alloc.cta_group::)" +
         steps.group + R"(.sync.aligned.shared::cta.b32 [%r1], 512;
tcgen05.relinquish_alloc_permit.cta_group::)" +
         steps.group + R"(.sync.aligned;
ALLOCATED:
mov.u32 %r1, data; shl.b32 %r2, %r0, 4; add.u32 %r1, %r1, %r2; cvt.u64.u32 %rd4, %r2; add.u64 %rd4, %rd4, %rd1;
mov.u32 %r3, 0;
FILL:
ld.global.v4.b32 {%r12, %r13, %r14, %r15}, [%rd4]; st.shared.v4.b32 [%r1], {%r12, %r13, %r14, %r15};
add.u32 %r1, %r1, 2048; add.u64 %rd4, %rd4, 2048; add.u32 %r3, %r3, 2048;
setp.lt.u32 %p1, %r3, )" +
         std::to_string(kSharedBytes / 2048 * 2048) + R"(; @%p1 bra FILL;
)" + steps.proxy_fence +
         R"(
bar.sync 0;
and.b32 %r4, %r0, 96; shl.b32 %r4, %r4, 16;
mul.wide.u32 %rd5, %r0, 2048; add.u64 %rd4, %rd1, %rd5; add.u64 %rd4, %rd4, )" +
         std::to_string(kSharedBytes) + R"(; add.u64 %rd6, %rd0, %rd5;
mov.u32 %r3, 0;
PUT:
ld.global.v4.b32 {%r12, %r13, %r14, %r15}, [%rd4]; ld.global.v4.b32 {%r16, %r17, %r18, %r19}, [%rd4+16];
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r4], {%r12, %r13, %r14, %r15, %r16, %r17, %r18, %r19};
add.u64 %rd4, %rd4, 32; add.u32 %r4, %r4, 8; add.u32 %r3, %r3, 8;
setp.lt.u32 %p1, %r3, 512; @%p1 bra PUT;
tcgen05.wait::st.sync.aligned;
)" + steps.fence_before +
         pair + R"(
bar.sync 0;
setp.ne.u32 %p1, %r11, 0;
or.pred %p2, %p2, %p1;
@%p2 bra ISSUED;
)" + steps.fence_after +
         fmt::format("mov.u32 %r5, {}; mov.u32 %r6, {}; mov.u32 %r7, {}; mov.u32 %r8, {};\n", MmaRun::kD, MmaRun::kA,
                     MmaRun::kScaleA, MmaRun::kScaleB) +
         steps.multiply + steps.commit + steps.after_commit + "ISSUED:\n" + steps.wait + steps.fence_after + R"(
and.b32 %r4, %r0, 96; shl.b32 %r4, %r4, 16; mov.u32 %r3, 0;
GET:
tcgen05.ld.sync.aligned.32x32b.x8.b32 {%r12, %r13, %r14, %r15, %r16, %r17, %r18, %r19}, [%r4];
tcgen05.wait::ld.sync.aligned;
st.global.v4.b32 [%rd6], {%r12, %r13, %r14, %r15}; st.global.v4.b32 [%rd6+16], {%r16, %r17, %r18, %r19};
add.u64 %rd6, %rd6, 32; add.u32 %r4, %r4, 8; add.u32 %r3, %r3, 8;
setp.lt.u32 %p1, %r3, 512; @%p1 bra GET;
tcgen05.fence::before_thread_sync;
)" + pair +
         R"(
bar.sync 0;
@%p3 bra DONE;
tcgen05.fence::after_thread_sync;
mov.u32 %r1, 0; tcgen05.dealloc.cta_group::)" +
         steps.group + R"(.sync.aligned.b32 %r1, 512;
DONE:
)" + pair +
         R"(
ret;
}
)";
}

struct Ran {
  LaunchReport report;
  std::vector<std::uint32_t> cells;  // of all CTAs
};

/// Runs the kernel on the case's memory, as the model laid it out.
Ran run(MmaRun& made, const Steps& steps, Options options = {.hazards = true, .threads = 1}) {
  Emulator emulator(options);
  const auto module = emulator.load(kernel(steps));
  const std::size_t ctas = made.cluster->ctas.size(), each = kSharedBytes + kCells * 4;
  const std::uint64_t in = emulator.memory().allocate(ctas * each, "in"),
                      out = emulator.memory().allocate(ctas * kCells * 4, "out");
  for (std::size_t i = 0; i < ctas; ++i) {
    auto* to = reinterpret_cast<std::byte*>(in) + i * each;
    // The kernel's dynamic shared memory begins 1 KB further on: static variables and the alignment take one.
    std::memcpy(to, made.cluster->ctas[i]->shared.data() + 2048, kSharedBytes - 1024);
    std::memcpy(to + kSharedBytes, tensor_memory(*made.cluster->ctas[i]).row(0, 0), kCells * 4);
  }
  const auto descriptor = [&](bool a) {
    const TensorDescriptor& d = a ? made.mma.a_shared : made.mma.b_shared;
    SharedDescriptor bits;
    bits.swizzle = a ? made.c.a_swizzle : made.c.b_swizzle;
    bits.leading_bytes = d.leading;
    bits.stride_bytes = d.stride;
    return bits.bits(d.start);
  };
  struct {
    std::uint64_t out, in, a, b;
    std::uint32_t idesc, accumulate;
    std::uint64_t unused;
  } arguments{out, in, descriptor(true), descriptor(false), made.instruction_descriptor, made.c.accumulate, 0};
  Ran ran;
  ran.report = emulator.launch(*module, "test",
                               {.grid = {static_cast<std::uint32_t>(ctas)},
                                .block = {128},
                                .cluster = {static_cast<std::uint32_t>(ctas)},
                                .dynamic_shared_bytes = kSharedBytes},
                               std::as_bytes(std::span(&arguments, 1)));
  ran.cells.resize(ctas * kCells);
  std::memcpy(ran.cells.data(), reinterpret_cast<const void*>(out), ran.cells.size() * 4);
  return ran;
}

/// The cells that the model computes for after the product.
std::vector<std::uint32_t> expected(MmaRun& made) {
  std::vector<std::uint32_t> cells;
  made.perform();
  for (const auto& cta : made.cluster->ctas) {
    const std::uint32_t* all = tensor_memory(*cta).row(0, 0);
    cells.insert(cells.end(), all, all + kCells);
  }
  return cells;
}

std::string opcode(const MmaCase& c, const std::string& kind) {
  return fmt::format("tcgen05.mma{}.cta_group::{}.kind::{}", c.weight_stationary ? ".ws" : "", c.cta_group, kind);
}

TEST(Tcgen05Ptx, GivesTheProductUnderEveryCompletionPolicy) {
  struct Form {
    MmaCase c;
    std::string kind, operands;
  };
  const MmaElement kE2m1 = MmaElement::kE2m1;
  const std::vector<Form> forms = {
      {{}, "f16", "[%r5], %rd2, %rd3, %r9, %p0"},
      {{.a_tensor = true}, "f16", "[%r5], [%r6], %rd3, %r9, %p0"},
      {{.accumulate = false}, "f16", "[%r5], %rd2, %rd3, %r9, %p0"},
      {{.scale_d = 3}, "f16", "[%r5], %rd2, %rd3, %r9, %p0, 3"},
      {{.kind = MmaKind::kTf32, .a = MmaElement::kTf32, .b = MmaElement::kTf32}, "tf32", "[%r5], %rd2, %rd3, %r9, %p0"},
      {{.kind = MmaKind::kI8, .a = MmaElement::kU8, .b = MmaElement::kS8, .d = MmaOutput::kS32},
       "i8",
       "[%r5], %rd2, %rd3, %r9, %p0"},
      {{.weight_stationary = true}, "f16", "[%r5], %rd2, %rd3, %r9, %p0"},
      {{.disabled = {7, 0, 0xf0f0f0f0, 1}}, "f16", "[%r5], %rd2, %rd3, %r9, {7, 0, 0xf0f0f0f0, 1}, %p0"},
      {{.m = 64, .n = 32, .first_lane = 16}, "f16", "[%r5+1048576], %rd2, %rd3, %r9, %p0"},
      {{.kind = MmaKind::kMxf8f6f4, .a = MmaElement::kE4m3, .b = MmaElement::kE3m2, .scale_block = 32},
       "mxf8f6f4.block_scale.scale_vec::1X",
       "[%r5], %rd2, %rd3, %r9, [%r7], [%r8], %p0"},
      {{.kind = MmaKind::kMxf4, .a = kE2m1, .b = kE2m1, .a_tensor = true, .scale_block = 32},
       "mxf4.block_scale",
       "[%r5], [%r6], %rd3, %r9, [%r7], [%r8], %p0"},
      {{.kind = MmaKind::kMxf4nvf4, .a = kE2m1, .b = kE2m1, .scale_block = 16, .scale = MmaScale::kUe4m3},
       "mxf4nvf4.block_scale.block16",
       "[%r5], %rd2, %rd3, %r9, [%r7], [%r8], %p0"}};
  for (const Form& form : forms)
    for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom}) {
      MmaRun made(form.c);
      const Ran ran = run(made, {.multiply = opcode(form.c, form.kind) + " " + form.operands + ";\n"},
                          {.hazards = true, .completion = completion, .seed = 5, .threads = 1});
      EXPECT_THAT(ran.report.fault, IsEmpty()) << form.kind;
      for (const auto& hazard : ran.report.hazards) ADD_FAILURE() << form.kind << hazard.text();
      EXPECT_EQ(ran.cells == expected(made), true) << form.kind << " " << form.operands;
      EXPECT_EQ(ran.report.statistics.mma_operations, 2ull * form.c.m * form.c.n * made.k);
    }
}

TEST(Tcgen05Ptx, MultipliesInAPairOfCtas) {
  Steps steps;
  steps.group = "2";
  steps.commit =
      "mov.b16 %h0, 3; tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
      "[%bar], "
      "%h0;\n";
  for (const std::uint32_t m : {128u, 256u})
    for (const Completion completion : {Completion::kEager, Completion::kLazy}) {
      MmaRun made({.m = m, .n = 64, .cta_group = 2});
      steps.multiply = ".reg .b16 %h0;\n" + opcode(made.c, "f16") + " [%r5], %rd2, %rd3, %r9, %p0;\n";
      const Ran ran = run(made, steps, {.hazards = true, .completion = completion, .threads = 1});
      EXPECT_THAT(ran.report.fault, IsEmpty()) << m;
      for (const auto& hazard : ran.report.hazards) ADD_FAILURE() << m << hazard.text();
      EXPECT_EQ(ran.cells == expected(made), true) << m;
    }
}

TEST(Tcgen05Ptx, KeepsTheOrderOfOneThreadsProducts) {
  // The second overwrites D; were they to change places, D would have both.
  MmaRun made({.accumulate = false});
  const std::string product = opcode(made.c, "f16") + " [%r5], %rd2, %rd3, %r9, ";
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Ran ran = run(made, {.multiply = "setp.eq.u32 %p4, %r9, %r9;\n" + product + "%p4;\n" + product + "!%p4;\n"},
                        {.hazards = true, .completion = Completion::kRandom, .seed = seed, .threads = 1});
    EXPECT_THAT(ran.report.fault, IsEmpty());
    EXPECT_THAT(ran.report.hazards, IsEmpty());
    MmaRun fresh({.accumulate = false});
    EXPECT_EQ(ran.cells == expected(fresh), true);
  }
}

// ---- hazards ------------------------------------------------------------------------------------------------------

const std::string kProduct = "tcgen05.mma.cta_group::1.kind::f16 [%r5], %rd2, %rd3, %r9, %p0;\n";

std::vector<HazardKind> kinds(const Ran& ran) {
  std::vector<HazardKind> all;
  for (const HazardReport& hazard : ran.report.hazards) all.push_back(hazard.kind);
  return all;
}

TEST(Tcgen05Hazards, ReportsALostProxyFence) {
  MmaRun made({});
  EXPECT_THAT(kinds(run(made, {.multiply = kProduct, .proxy_fence = ""})), testing::Contains(HazardKind::kProxyFence));
}

TEST(Tcgen05Hazards, ReportsAnOperandThatIsOverwrittenBeforeTheCommitArrives) {
  MmaRun made({});
  Steps steps{.multiply = kProduct};
  steps.after_commit = "st.shared.b32 [data+47104], %r9;\n";  // B
  EXPECT_THAT(kinds(run(made, steps)), testing::Contains(HazardKind::kRace));
  steps.after_commit =
      "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%bar], 0; @!%p1 bra W;\nst.shared.b32 [data+47104], %r9;\n";
  EXPECT_THAT(kinds(run(made, steps)), IsEmpty());
}

TEST(Tcgen05Hazards, ReportsAResultThatIsReadTooEarly) {
  MmaRun made({});
  EXPECT_THAT(kinds(run(made, {.multiply = kProduct, .wait = "bar.sync 1;\n"})), testing::Contains(HazardKind::kRace));
  EXPECT_THAT(kinds(run(made, {.multiply = kProduct, .fence_after = ""})), testing::Contains(HazardKind::kTensorFence));
}

TEST(Tcgen05Hazards, ReportsOperandsInTensorMemoryThatNothingHasWrittenOrFenced) {
  MmaRun made({.a_tensor = true});
  const std::string product = "tcgen05.mma.cta_group::1.kind::f16 [%r5], [%r6], %rd3, %r9, %p0;\n";
  EXPECT_THAT(kinds(run(made, {.multiply = product})), IsEmpty());
  EXPECT_THAT(kinds(run(made, {.multiply = product, .fence_before = ""})), testing::Contains(HazardKind::kTensorFence));
}

// ---- what is refused ----------------------------------------------------------------------------------------------

std::string fault(const std::string& multiply, const MmaCase& c = {}) {
  MmaRun made(c);
  try {
    return run(made, {.multiply = multiply}, {.threads = 1}).report.fault;
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Tcgen05Ptx, ChecksThatACollectorHoldsWhatIsUsed) {
  const auto product = [](const char* collector, const char* a = "%rd2") {
    return fmt::format("tcgen05.mma.cta_group::1.kind::f16{} [%r5], {}, %rd3, %r9, %p0;\n", collector, a);
  };
  const char *kFill = ".collector::a::fill", *kUse = ".collector::a::use", *kLast = ".collector::a::lastuse";
  EXPECT_THAT(fault(product(kFill) + product(kUse) + product(kLast)), IsEmpty());
  EXPECT_THAT(fault(product(kUse)), HasSubstr(".collector::a::use: the buffer is not filled"));
  EXPECT_THAT(fault(product(kFill) + product(kLast) + product(kUse)), HasSubstr("is not filled"));
  EXPECT_THAT(fault(product(kFill) + product("") + product(kUse)), HasSubstr("is not filled"));
  EXPECT_THAT(fault("add.u64 %rd7, %rd2, 2;\n" + product(kFill) + product(kUse, "%rd7")),
              HasSubstr("the buffer holds another operand"));
  const auto weights = [](const char* collector) {
    return fmt::format("tcgen05.mma.ws.cta_group::1.kind::f16{} [%r5], %rd2, %rd3, %r9, %p0;\n", collector);
  };
  EXPECT_THAT(fault(weights(".collector::b2::fill") + weights("") + weights(".collector::b2::use")), IsEmpty());
  EXPECT_THAT(fault(weights(".collector::b2::fill") + weights(".collector::b1::use")),
              HasSubstr(".collector::b1::use: the buffer is not filled"));
}

TEST(Tcgen05Ptx, RefusesWhatIsNotModelledByName) {
  const std::string common = " [%r5], %rd2, %rd3, %r9, %p0;\n";
  EXPECT_THAT(fault("tcgen05.mma.sp.cta_group::1.kind::f16 [%r5], %rd2, %rd3, [%r6], %r9, %p0;\n"),
              HasSubstr("sparse tcgen05.mma is not modelled"));
  EXPECT_THAT(fault("tcgen05.mma.cta_group::1.kind::f16.ashift [%r5], [%r6], %rd3, %r9, %p0;\n"),
              HasSubstr("with .ashift is not modelled"));
  EXPECT_THAT(fault("tcgen05.mma.cta_group::1.kind::i8 [%r5], %rd2, %rd3, %r9, %p0, 3;\n"),
              HasSubstr("takes no scale-input-d"));
  EXPECT_THAT(fault("tcgen05.mma.cta_group::1.kind::f16 [%r5], %rd2, %rd3, %r9, %p0, 16;\n"),
              HasSubstr("needs a constant from 0 to 15"));
  EXPECT_THAT(fault("tcgen05.mma.cta_group::1.kind::f16 [%r5], %rd2, %rd3, %r9, {%r1, %r2}, %p0;\n"),
              HasSubstr("needs 4 registers of disable-output-lane, not 2"));
  EXPECT_THAT(
      fault("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block16 [%r5], %rd2, %rd3, %r9, [%r7], [%r8], %p0;\n"),
      HasSubstr("takes .scale_vec::2X or .block32"));
  EXPECT_THAT(fault("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale [%r5], %rd2, %rd3, %r9, [%r7], [%r8], %p0;\n"),
              HasSubstr("needs .scale_vec::2X, .scale_vec::4X, .block16 or .block32"));
  EXPECT_THAT(fault("tcgen05.mma.ws.cta_group::2.kind::f16" + common), HasSubstr("this form is not modelled"));
  EXPECT_THAT(
      fault("mov.u64 %rd9, 0x8000000000; tcgen05.mma.ws.cta_group::1.kind::f16 [%r5], %rd2, %rd3, %r9, %p0, %rd9;\n"),
      HasSubstr("the zero-column mask descriptor 0x0000008000000000"));
  EXPECT_THAT(fault("mov.u64 %rd9, 0; tcgen05.mma.ws.cta_group::1.kind::f16 [%r5], %rd2, %rd3, %r9, %p0, %rd9;\n"),
              IsEmpty());
  MmaRun made({});
  const auto on = [&](const std::string& target, const std::string& multiply) -> std::string {
    try {
      return run(made, {.multiply = multiply, .target = target}, {.threads = 1}).report.fault;
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(on("sm_103a", "tcgen05.mma.cta_group::1.kind::i8" + common),
              HasSubstr("kind::i8 does not exist on sm_103"));
  EXPECT_THAT(on("sm_100", "tcgen05.mma.cta_group::1.kind::f16" + common), HasSubstr("needs tensor memory"));
}

}  // namespace
}  // namespace kernelwright::emulator
