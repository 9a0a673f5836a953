// atom and red: 32 lanes on one word, in every space; each operation compared with its definition.
#include <gtest/gtest.h>

#include <bit>
#include <functional>

#include "kernelwright/runtime/emulator/numbers/number_formats.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::test {
namespace {

using Apply = std::function<std::uint64_t(std::uint64_t, std::uint64_t)>;

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

/// One lane at a time; the value that it read comes back in %o0 and %o1. `type` has 32 or 64 bits.
PtxResult run_on(const std::string& space, const std::string& operation, const std::string& type, std::uint64_t start,
                 const std::vector<Words>& operand) {
  const bool wide = type.find("64") != std::string::npos, shared = space.starts_with("shared");
  const std::string reg = wide ? "%rd" : "%r", address = shared ? "[%shared]" : space.empty() ? "[%rd5]" : "[%memory]";
  std::string text = "mov.b64 %rd1, {%i0, %i1}; mov.b32 %r1, %i0; mov.u64 %rd5, %memory;\n";
  if (shared)
    text +=
        "ld.global.b64 %rd3, [%memory]; setp.eq.u32 %p0, %lane, 0; @%p0 st.shared.b64 [%shared], %rd3; bar.sync 0;\n";
  text += "atom." + (space.empty() ? "" : space + ".") + operation + "." + type + " " + reg + "2, " + address + ", " +
          reg + "1;\n";
  text += wide ? "mov.b64 {%o0, %o1}, %rd2;\n" : "mov.b32 %o0, %r2; mov.b32 %o1, 0;\n";
  if (shared)
    text +=
        "bar.sync 0; ld.shared.b64 %rd3, [%shared]; setp.eq.u32 %p0, %lane, 0; @%p0 st.global.b64 [%memory], %rd3;\n";
  std::vector<std::byte> memory(16);
  std::memcpy(memory.data(), &start, sizeof start);
  return run_clean({.statements = text, .inputs = operand, .num_outputs = 2, .memory = memory});
}

TEST(EmulatorAtomic, IntegerOperationsActLaneAfterLane) {
  const auto s32 = [](std::uint64_t x) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(x)); };
  const auto s64 = [](std::uint64_t x) { return static_cast<std::int64_t>(x); };
  const struct {
    const char *operation, *type;
    Apply apply;
  } cases[] = {
      {"add", "u32", [](auto x, auto y) { return x + y; }},
      {"add", "s32", [](auto x, auto y) { return x + y; }},
      {"add", "u64", [](auto x, auto y) { return x + y; }},
      {"min", "u32", [](auto x, auto y) { return x < y ? x : y; }},
      {"min", "s32", [&](auto x, auto y) { return s32(x) < s32(y) ? x : y; }},
      {"min", "u64", [](auto x, auto y) { return x < y ? x : y; }},
      {"min", "s64", [&](auto x, auto y) { return s64(x) < s64(y) ? x : y; }},
      {"max", "u32", [](auto x, auto y) { return x > y ? x : y; }},
      {"max", "s32", [&](auto x, auto y) { return s32(x) > s32(y) ? x : y; }},
      {"max", "u64", [](auto x, auto y) { return x > y ? x : y; }},
      {"max", "s64", [&](auto x, auto y) { return s64(x) > s64(y) ? x : y; }},
      {"and", "b32", [](auto x, auto y) { return x & y; }},
      {"or", "b32", [](auto x, auto y) { return x | y; }},
      {"xor", "b32", [](auto x, auto y) { return x ^ y; }},
      {"and", "b64", [](auto x, auto y) { return x & y; }},
      {"or", "b64", [](auto x, auto y) { return x | y; }},
      {"xor", "b64", [](auto x, auto y) { return x ^ y; }},
      {"exch", "b32", [](auto, auto y) { return y; }},
      {"exch", "b64", [](auto, auto y) { return y; }},
      {"inc", "u32", [](auto x, auto y) { return x >= y ? 0 : x + 1; }},
      {"dec", "u32", [](auto x, auto y) { return x == 0 || x > y ? y : x - 1; }},
  };
  const std::vector<Words> operand = {scrambled(32, 5), scrambled(32, 6)};
  for (const auto& test : cases)
    for (const char* space : {"global", "shared", "shared::cluster", ""}) {
      const bool wide = std::string_view(test.type).substr(1) == "64";
      const std::uint64_t mask = wide ? ~0ull : 0xffffffffull, start = 0x8123456789abcdefull & mask;
      const PtxResult result = run_on(space, test.operation, test.type, start, operand);
      std::uint64_t value = start;
      for (int lane = 0; lane < 32; ++lane) {
        const std::uint64_t read = result.outputs[0][lane] | static_cast<std::uint64_t>(result.outputs[1][lane]) << 32;
        ASSERT_EQ(read, value) << test.operation << "." << test.type << " " << space << " lane " << lane;
        const std::uint64_t b = (operand[0][lane] | static_cast<std::uint64_t>(operand[1][lane]) << 32) & mask;
        value = test.apply(value, b) & mask;
      }
      EXPECT_EQ(result.at<std::uint64_t>(0) & mask, value) << test.operation << "." << test.type << " " << space;
    }
}

TEST(EmulatorAtomic, FloatsAddAndKeepSubnormalsInSharedMemoryAlone) {
  Words values(32);
  for (int lane = 0; lane < 32; ++lane) values[lane] = bits(static_cast<float>(lane) * 0.5f);
  const Words zero(32, 0), tiny(32, 1);
  for (const char* space : {"global", "shared"}) {
    EXPECT_EQ(run_on(space, "add", "f32", bits(4), {values, zero}).at<float>(0), 4 + 248.0f) << space;
    EXPECT_EQ(run_on(space, "add", "f32", bits(1), {Words(32, 0x7f900000), zero}).at<std::uint32_t>(0), 0x7fffffffu);
  }
  EXPECT_EQ(run_on("shared", "add", "f32", 0, {tiny, zero}).at<std::uint32_t>(0), 32u);
  EXPECT_EQ(run_on("global", "add", "f32", 0, {tiny, zero}).at<std::uint32_t>(0), 0u);
  const std::uint64_t half = std::bit_cast<std::uint64_t>(0.5);
  EXPECT_EQ(run_on("global", "add", "f64", half,
                   {Words(32, static_cast<std::uint32_t>(half)), Words(32, static_cast<std::uint32_t>(half >> 32))})
                .at<double>(0),
            16.5);
}

TEST(EmulatorAtomic, HalvesAddAsPairsAndAlone) {
  const Words zero(32, 0);
  const auto f16x2 = run_on("shared", "add.noftz", "f16x2", 0x3c003c00u, {Words(32, 0x40003800u), zero});
  EXPECT_EQ(f16x2.at<std::uint32_t>(0), 0x54104c40u);  // 1 + 32 * 2 = 65, 1 + 32 * 0.5 = 17
  const auto bf16x2 = run_on("global", "add.noftz", "bf16x2", 0, {Words(32, 0x3f804000u), zero});
  EXPECT_EQ(bf16x2.at<std::uint32_t>(0), 0x42004280u);  // 32, 64
  const PtxResult alone = run_clean({.statements = R"(
cvt.u16.u32 %h0, %i0;
atom.global.add.noftz.f16 %h1, [%memory+2], %h0;
red.global.add.noftz.f16 [%memory+2], %h0;
cvt.u32.u16 %o0, %h1;)",
                                     .inputs = {Words(32, 0x3c00)},
                                     .num_outputs = 1});
  for (int lane = 0; lane < 32; ++lane)
    EXPECT_EQ(emulator::f16_to_f32(static_cast<std::uint16_t>(alone.outputs[0][lane])), static_cast<float>(lane));
  EXPECT_EQ(alone.at<std::uint32_t>(0), 0x54000000u);  // 64
}

TEST(EmulatorAtomic, CompareAndSwapExchangesWhereEqual) {
  // Each lane raises the word from its own number to the next: all succeed, as lanes take their turns in order.
  const PtxResult result = run_clean({.statements = R"(
add.u32 %r1, %lane, 1;
atom.global.cas.b32 %o0, [%memory], %lane, %r1;
cvt.u64.u32 %rd1, %lane; cvt.u64.u32 %rd2, %r1;
atom.global.cas.b64 %rd3, [%memory+8], %rd1, %rd2;
cvt.u16.u32 %h1, %lane; cvt.u16.u32 %h2, %r1;
atom.global.cas.b16 %h3, [%memory+16], %h1, %h2; cvt.u32.u16 %o1, %h3;
mov.b128 %q1, {%rd1, %rd1}; mov.b128 %q2, {%rd2, %rd2};
atom.global.cas.b128 %q3, [%memory+32], %q1, %q2; mov.b128 {%rd4, %rd5}, %q3; cvt.u32.u64 %o2, %rd5;
atom.global.exch.b128 %q3, [%memory+48], %q2;
atom.global.cas.b32 %o3, [%memory+4], 7, %r1;)",
                                      .num_outputs = 4});
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(result.outputs[0][lane], lane);
    EXPECT_EQ(result.outputs[1][lane], lane);
    EXPECT_EQ(result.outputs[2][lane], lane);
    EXPECT_EQ(result.outputs[3][lane], 0u);
  }
  EXPECT_EQ(result.at<std::uint32_t>(0), 32u);
  EXPECT_EQ(result.at<std::uint32_t>(4), 0u);
  EXPECT_EQ(result.at<std::uint64_t>(8), 32u);
  EXPECT_EQ(result.at<std::uint16_t>(16), 32u);
  EXPECT_EQ(result.at<std::uint64_t>(32), 32u);
  EXPECT_EQ(result.at<std::uint64_t>(40), 32u);
  EXPECT_EQ(result.at<std::uint64_t>(56), 32u);
}

TEST(EmulatorAtomic, ModifiersComeInAnyOrder) {
  const PtxResult result = run_clean({.statements = R"(
atom.add.acq_rel.gpu.global.u32 %r1, [%memory], 1;
atom.global.acquire.sys.add.u32 %r1, [%memory], 1;
atom.relaxed.cta.global.add.u32 _, [%memory], 1;
red.release.gpu.global.add.u32 [%memory], 1;
red.add.u32 [%memory], 1;
red.relaxed.gpu.global.add.L2::cache_hint.u32 [%memory], 1, %rd1;)"});
  EXPECT_EQ(result.at<std::uint32_t>(0), 6 * 32u);
}

TEST(EmulatorAtomic, VectorsActElementByElement) {
  const PtxResult result = run_clean({.statements = R"(
mov.b32 %f1, %i0;
red.global.add.v4.f32 [%memory], {%f1, %f1, %f1, 0f40000000};
atom.global.v2.f32.add {%f2, _}, [%memory+16], {%f1, 0f3f000000};
mov.b32 %o0, %f2;
red.global.add.noftz.v2.bf16x2 [%memory+32], {%i1, %i1};
mov.b16 %h0, 0x4000; mov.b16 %h1, 0xc000;
red.global.max.noftz.v8.f16 [%memory+48], {%h0, %h1, %h0, %h1, %h0, %h1, %h0, %h1};
red.global.min.noftz.v2.f16x2 [%memory+64], {%i2, %i2};)",
                                      .inputs = {Words(32, bits(1)), Words(32, 0x3f803f80), Words(32, 0x80003c00)},
                                      .num_outputs = 1});
  EXPECT_EQ(result.at<float>(0), 32.0f);
  EXPECT_EQ(result.at<float>(12), 64.0f);
  EXPECT_EQ(result.at<float>(16), 32.0f);
  EXPECT_EQ(result.at<float>(20), 16.0f);
  EXPECT_EQ(std::bit_cast<float>(result.outputs[0][31]), 31.0f);
  EXPECT_EQ(result.at<std::uint32_t>(36), 0x42004200u);
  EXPECT_EQ(result.at<std::uint32_t>(48), 0x00004000u);
  EXPECT_EQ(result.at<std::uint32_t>(64), 0x80000000u);  // min(+0, 1) and min(+0, -0)
}

TEST(EmulatorAtomic, WhatPtxDoesNotHaveIsRefused) {
  for (const char* form :
       {"atom.global.add.s64 %rd1, [%memory], %rd2;", "atom.global.min.f32 %f1, [%memory], %f2;",
        "red.global.exch.b32 [%memory], %r1;", "red.acquire.gpu.global.add.u32 [%memory], %r1;",
        "atom.global.min.noftz.f16 %h1, [%memory], %h2;", "atom.global.add.f16 %h1, [%memory], %h2;",
        "atom.shared.add.v2.f32 {%f1, %f2}, [%shared], {%f1, %f2};", "red.global.add.v8.f32 [%memory], {%f1, %f2};",
        "atom.relaxed.acquire.global.add.u32 %r1, [%memory], %r2;", "atom.global.add.u32 %rd1, [%memory], %rd2;"})
    EXPECT_THROW(run_ptx({.statements = form}), emulator::PtxError) << form;
}

TEST(EmulatorAtomic, FaultsAndRacesAreFound) {
  for (const char* form : {"atom.global.add.u32 %r1, [%memory+4096], 1;", "atom.global.add.u32 %r1, [%memory+2], 1;",
                           "atom.shared.add.u32 %r1, [%shared+4096], 1;"})
    EXPECT_NE(run_ptx({.statements = form}).report.fault, "") << form;
  PtxRun race = {.statements =
                     "mov.u32 %r1, %tid.x; setp.lt.u32 %p0, %r1, 32;\n"
                     "@%p0 st.shared.b32 [%shared], 0;\n@!%p0 red.shared.add.u32 [%shared], 1;",
                 .threads = 64};
  const PtxResult result = run_ptx(race);
  ASSERT_FALSE(result.report.hazards.empty());
}

}  // namespace
}  // namespace kernelwright::test
