// Loading and launching PTX that other tools wrote: entries beside refused ones, and allocated registers.
#include "kernelwright/runtime/emulator/emulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/ptx_text.h"

namespace kernelwright::emulator {
namespace {

using test::module_of;

TEST(Emulator, RefusesAnEntryWhenItIsLaunchedAndRunsTheOthers) {
  Emulator emulator;
  const auto module = emulator.load(module_of(R"(.func helper() { tex.1d.v4.f32.s32 {%f1}, [t, {%r1}]; ret; }
.visible .entry calls() { call.uni helper; ret; }
.visible .entry unread() { mov.u32 %nothing, 0; ret; }
.visible .entry unmodelled() { .reg .f32 %f<2>; wobble.f32 %f1; ret; }
.visible .entry runs(.param .u64 out) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [out]; st.global.b32 [%rd1], 5; ret; })"));
  const std::uint64_t out = emulator.memory().allocate(4, "out");
  const auto parameters = std::as_bytes(std::span(&out, 1));
  EXPECT_TRUE(emulator.launch(*module, "runs", {}, parameters).completed);
  EXPECT_EQ(*reinterpret_cast<const std::uint32_t*>(out), 5u);
  const auto refused = [&](const char* entry) {
    try {
      emulator.launch(*module, entry, {}, {});
    } catch (const PtxError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused("calls"),
            "line 5: in the entry `calls`: 'helper' is called, and cannot be read: line 4: '%f1' is not declared, and "
            "is no special register");
  EXPECT_EQ(refused("unread"), "line 6: in the entry `unread`: '%nothing' is not declared, and is no special register");
  EXPECT_EQ(refused("unmodelled"), "line 7: `wobble.f32`: this instruction is not modelled by the emulator");
}

// 65536 registers are 256 for each of 256 threads. An instruction names at most 255 of them, and a warp has all of
// them.
TEST(Emulator, GivesThreadsRegistersInEights) {
  Emulator emulator;
  const auto module = emulator.load(module_of(
      ".visible .entry all() { setmaxnreg.inc.sync.aligned.u32 256; ret; }\n"
      ".visible .entry less() { setmaxnreg.dec.sync.aligned.u32 248; setmaxnreg.inc.sync.aligned.u32 256; ret; }\n"
      ".visible .entry more() { setmaxnreg.inc.sync.aligned.u32 240; ret; }\n"));
  const auto fault = [&](const char* entry, std::uint32_t threads, std::uint32_t registers) {
    return emulator.launch(*module, entry, {.block = {threads}, .registers_per_thread = registers}, {}).fault;
  };
  EXPECT_EQ(fault("all", 256, 0), "");
  EXPECT_EQ(fault("all", 256, 255), "") << "what ptxas says of a kernel that uses all";
  EXPECT_EQ(fault("less", 128, 255), "");
  EXPECT_THAT(fault("more", 384, 168), testing::HasSubstr("registers from the CTA's pool, which has 0"));
}

TEST(Emulator, SaysWhereVariablesAreAndWhatAnEntryNeeds) {
  Emulator emulator;
  const auto module = emulator.load(module_of(R"(.global .align 4 .b8 table[12] = {1, 2, 3, 4};
.const .align 8 .u64 limit = 77;
.shared .align 4 .b8 pool[64];
.visible .entry wobbles() { .reg .f32 %f<2>; wobble.f32 %f1; ret; }
.visible .entry unread() { mov.u32 %nothing, 0; ret; }
.visible .entry k(.param .u64 out, .param .u32 n) .maxntid 64, 2, 1
{
  .shared .align 4 .b8 own[100]; .local .align 4 .b8 stack[24]; .reg .b32 %r<2>;
  mov.u32 %r1, own; st.shared.b32 [pool], %r1; st.global.b32 [table+8], 9; ret;
})"));
  const auto table = module->variable("table"), limit = module->variable("limit");
  ASSERT_TRUE(table && limit);
  EXPECT_EQ(table->bytes, 12u);
  EXPECT_EQ(*reinterpret_cast<const std::uint32_t*>(table->address), 0x04030201u);
  EXPECT_EQ(limit->bytes, 8u);
  EXPECT_EQ(*reinterpret_cast<const std::uint64_t*>(limit->address), 77u);
  EXPECT_FALSE(module->variable("pool")) << "shared: each CTA has its own";
  EXPECT_FALSE(module->variable("nothing"));

  const EntryAttributes k = module->attributes("k");
  EXPECT_EQ(k.static_shared_bytes, 164u);
  EXPECT_EQ(k.local_bytes, 24u);
  EXPECT_EQ(k.parameter_bytes, 12u);
  EXPECT_EQ(k.max_threads, 128);
  EXPECT_EQ(module->attributes("wobbles").static_shared_bytes, 0u) << "no instruction is decoded";
  EXPECT_THROW(module->attributes("unread"), PtxError);
  EXPECT_THROW(module->attributes("none"), PtxError);

  const std::uint64_t parameters[2] = {0, 0};
  EXPECT_TRUE(emulator.launch(*module, "k", {}, std::as_bytes(std::span(parameters))).completed);
  EXPECT_EQ(reinterpret_cast<const std::uint32_t*>(table->address)[2], 9u);
}

}  // namespace
}  // namespace kernelwright::emulator
