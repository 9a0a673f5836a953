// tcgen05 without its mma: allocation, loads and stores in every shape, copies, shift, commit. There is no recording of
// hardware. The expected results come from the ISA's figures, written here as strides of threads and registers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <string>
#include <utility>
#include <vector>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/ptx_kernel.h"

namespace kernelwright::emulator {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kTarget = "sm_100a";
constexpr std::uint32_t kThreads = 128;

std::string all_texts(const LaunchReport& report) {
  std::string all = report.fault;
  for (const HazardReport& hazard : report.hazards) all += "\n" + hazard.text();
  return all;
}

test::PtxRun run(const std::string& body, LaunchShape shape = {.block = {kThreads}, .dynamic_shared_bytes = 32768},
                 Options options = {.hazards = true}, std::span<const std::uint32_t> in = {},
                 std::size_t out_words = 1024) {
  return test::run_ptx(body, shape, options, in, out_words, kTarget);
}

/// "%v0, %v1, …"
std::string registers(std::uint32_t count, std::uint32_t first = 0) {
  std::string text;
  for (std::uint32_t i = 0; i < count; ++i) text += fmt::format("{}%v{}", i ? ", " : "", first + i);
  return text;
}

/// Allocates `columns` by warp 0 and leaves the address in %r90, with %r91 that of this warp's lanes.
std::string allocate(std::uint32_t columns, int group = 1) {
  return fmt::format(
      "mov.u32 %r89, data; setp.ne.u32 %p15, %r1, 0;\n"
      "@!%p15 tcgen05.alloc.cta_group::{}.sync.aligned.shared::cta.b32 [%r89], {};\n"
      "bar.sync 0;\nld.shared.b32 %r90, [%r89]; and.b32 %r88, %r1, 3; shl.b32 %r88, %r88, 21; add.u32 %r91, %r90, "
      "%r88;\n",
      group, columns);
}
std::string deallocate(std::uint32_t columns, int group = 1) {
  return fmt::format(
      "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n"
      "@!%p15 tcgen05.relinquish_alloc_permit.cta_group::{0}.sync.aligned;\n"
      "@!%p15 tcgen05.dealloc.cta_group::{0}.sync.aligned.b32 %r90, {1};\n",
      group, columns);
}

/// The first `columns` of the warp's lanes = hash(lane << 16 | column).
constexpr std::uint32_t kHash = 0x9e3779b1;
std::uint32_t cell(std::uint32_t lane, std::uint32_t column) { return (lane << 16 | column) * kHash; }
std::string fill(std::uint32_t columns) {
  std::string text = "shl.b32 %r80, %r0, 16;\n";
  for (std::uint32_t block = 0; block < columns; block += 32) {
    for (std::uint32_t i = 0; i < 32; ++i)
      text += fmt::format("add.u32 %r81, %r80, {}; mul.lo.u32 %v{}, %r81, {};\n", block + i, i, kHash);
    text += fmt::format("tcgen05.st.sync.aligned.32x32b.x32.b32 [%r91+{}], {{{}}};\n", block, registers(32));
  }
  return text + "tcgen05.wait::st.sync.aligned;\n";
}

/// Dumps the first `columns` to out[word + column * threads + thread], 32 at a time.
std::string dump(std::uint32_t columns, std::uint32_t word) {
  std::string text = "mul.wide.u32 %rd20, %r0, 4; add.u64 %rd20, %rd20, %rd0;\n";
  const std::uint32_t step = std::min(columns, 32u);
  for (std::uint32_t block = 0; block < columns; block += step) {
    text += fmt::format("tcgen05.ld.sync.aligned.32x32b.x{}.b32 {{{}}}, [%r91+{}];\ntcgen05.wait::ld.sync.aligned;\n",
                        step, registers(step), block);
    for (std::uint32_t i = 0; i < step; ++i)
      text += fmt::format("st.global.b32 [%rd20+{}], %v{};\n", (word + (block + i) * kThreads) * 4, i);
  }
  return text;
}

const std::string kRegisters = "{ .reg .b32 %v<256>;\n";

// ---------------------------------------------------------------------------------------------- layouts

/// The rows and columns by which bit i of the lane's number, and bit i of the register's, move a value. Higher bits of
/// the register double the columns of the last entry.
struct Fragment {
  const char* shape;
  std::uint32_t registers_each;  // for .x1
  std::vector<std::array<std::uint32_t, 2>> lane_bits, register_bits;
};
const Fragment kFragments[] = {
    {"32x32b", 1, {{1, 0}, {2, 0}, {4, 0}, {8, 0}, {16, 0}}, {{0, 1}}},
    {"16x64b", 1, {{8, 0}, {0, 1}, {1, 0}, {2, 0}, {4, 0}}, {{0, 2}}},
    {"16x128b", 2, {{0, 1}, {0, 2}, {1, 0}, {2, 0}, {4, 0}}, {{8, 0}, {0, 4}}},
    {"16x256b", 4, {{0, 2}, {0, 4}, {1, 0}, {2, 0}, {4, 0}}, {{0, 1}, {8, 0}, {0, 8}}},
    {"16x32bx2", 1, {{1, 0}, {2, 0}, {4, 0}, {8, 0}, {0, 0}}, {{0, 1}}},
};

std::pair<std::uint32_t, std::uint32_t> place(const Fragment& fragment, std::uint32_t lane, std::uint32_t reg) {
  std::uint32_t row = 0, column = 0;
  for (std::uint32_t bit = 0; bit < 5; ++bit)
    if (lane >> bit & 1) row += fragment.lane_bits[bit][0], column += fragment.lane_bits[bit][1];
  for (std::uint32_t bit = 0; reg >> bit != 0; ++bit) {
    if (!(reg >> bit & 1)) continue;
    const auto last = static_cast<std::uint32_t>(fragment.register_bits.size() - 1);
    const auto& move = fragment.register_bits[std::min(bit, last)];
    row += move[0];
    column += move[1] << (bit > last ? bit - last : 0);
  }
  return {row, column};
}

struct LayoutCase {
  std::size_t fragment;
  std::uint32_t num;
  bool packed;
};

class Tcgen05Layout : public testing::TestWithParam<std::size_t> {};

/// Every cell that a load reads and a store writes, for one shape and count; the block begins at column 0, and for the
/// 16-lane shapes in the upper half of the warp's lanes.
void check_layout(const LayoutCase& test, Completion completion) {
  const Fragment& fragment = kFragments[test.fragment];
  const std::string shape = fragment.shape;
  const bool split = shape == "16x32bx2";
  const std::uint32_t count = fragment.registers_each * test.num, width = test.packed ? 2 : 1;
  const std::uint32_t base = shape == "32x32b" ? 0 : 16;
  const auto last = place(fragment, 31, count - 1);
  const std::uint32_t each = (last.second + 1) * width;
  const std::uint32_t half = split ? each + std::min(512 - 2 * each, 7u) : 0;  // where the second half begins
  const std::uint32_t columns = std::max(32u, std::bit_ceil(half + each));
  const std::string offset = split ? fmt::format(", {}", half) : "";
  std::string body =
      kRegisters + allocate(columns) + fill(columns) + fmt::format("add.u32 %r92, %r91, {};\n", base << 16);
  body += fmt::format("tcgen05.ld.sync.aligned.{}.x{}{}.b32 {{{}}}, [%r92]{};\ntcgen05.wait::ld.sync.aligned;\n", shape,
                      test.num, test.packed ? ".pack::16b" : "", registers(count, 128), offset);
  body += "mul.wide.u32 %rd21, %r0, 4; add.u64 %rd21, %rd21, %rd0;\n";
  for (std::uint32_t i = 0; i < count; ++i)
    body += fmt::format(
        "st.global.b32 [%rd21+{}], %v{};\nshl.b32 %r81, %r0, 8; add.u32 %r81, %r81, {}; mul.lo.u32 "
        "%v{}, %r81, {};\n",
        i * kThreads * 4, 128 + i, i + 77, 128 + i, kHash);
  body += fmt::format("tcgen05.st.sync.aligned.{}.x{}{}.b32 [%r92]{}, {{{}}};\ntcgen05.wait::st.sync.aligned;\n", shape,
                      test.num, test.packed ? ".unpack::16b" : "", offset, registers(count, 128));
  const std::uint32_t second = count * kThreads;
  body += dump(columns, second) + deallocate(columns) + "}";
  const auto result = run(body, {.block = {kThreads}, .dynamic_shared_bytes = 1024},
                          {.hazards = true, .completion = completion}, {}, second + columns * kThreads);
  ASSERT_THAT(all_texts(result.report), IsEmpty());

  std::vector<std::uint32_t> expected(columns * kThreads);
  for (std::uint32_t column = 0; column < columns; ++column)
    for (std::uint32_t lane = 0; lane < kThreads; ++lane) expected[column * kThreads + lane] = cell(lane, column);
  for (std::uint32_t thread = 0; thread < kThreads; ++thread)
    for (std::uint32_t i = 0; i < count; ++i) {
      auto [row, column] = place(fragment, thread % 32, i);
      row += thread / 32 * 32 + base;
      column = column * width + (split && thread % 32 >= 16 ? half : 0);
      const std::uint32_t loaded =
          test.packed ? (cell(row, column) & 0xffff) | cell(row, column + 1) << 16 : cell(row, column);
      ASSERT_EQ(result.out[i * kThreads + thread], loaded) << "register " << i << " of thread " << thread;
      const std::uint32_t stored = ((thread << 8) + i + 77) * kHash;
      expected[column * kThreads + row] = test.packed ? stored & 0xffff : stored;
      if (test.packed) expected[(column + 1) * kThreads + row] = stored >> 16;
    }
  for (std::uint32_t at = 0; at < expected.size(); ++at)
    ASSERT_EQ(result.out[second + at], expected[at]) << "lane " << at % kThreads << ", column " << at / kThreads;
}

TEST_P(Tcgen05Layout, PutsEveryRegisterWhereTheFigureSays) {
  const Fragment& fragment = kFragments[GetParam()];
  for (std::uint32_t num = 1; num * fragment.registers_each <= 128; num *= 2)
    for (const bool packed : {false, true}) {
      SCOPED_TRACE(fmt::format("{}.x{}{}", fragment.shape, num, packed ? ", packed" : ""));
      check_layout({GetParam(), num, packed}, num == 2   ? Completion::kLazy
                                              : num == 4 ? Completion::kRandom
                                                         : Completion::kEager);
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Tcgen05Layout, testing::Range<std::size_t>(0, std::size(kFragments)),
                         [](const auto& info) { return "s" + std::string(kFragments[info.param].shape); });

TEST(Tcgen05Load, ReducesWhatAThreadLoads) {
  struct Reduction {
    const char *form, *name;
    std::uint32_t expected;
  };
  // Reductions of -2, 1, NaN and -0 as floats.
  const Reduction kReductions[] = {{"min.f32", "min", 0xc0000000},      {"max.f32", "max", 0x3f800000},
                                   {"max.abs.f32", "abs", 0x40000000},  {"min.NaN.f32", "nan", 0x7fffffff},
                                   {"min.abs.f32", "zero", 0x00000000}, {"max.u32", "u32", 0xc0000000},
                                   {"max.s32", "s32", 0x7fc00000}};
  for (const Reduction& reduction : kReductions) {
    SCOPED_TRACE(reduction.name);
    const auto result =
        run(kRegisters + allocate(32) +
            "mov.b32 %v0, 0xc0000000; mov.b32 %v1, 0x3f800000; mov.b32 %v2, 0x7fc00000; mov.b32 %v3, 0x80000000;\n"
            "tcgen05.st.sync.aligned.32x32b.x4.b32 [%r91], {%v0, %v1, %v2, %v3};\ntcgen05.wait::st.sync.aligned;\n"
            "tcgen05.ld.red.sync.aligned.32x32b.x4." +
            reduction.form +
            " {%v4, %v5, %v6, %v7}, %v8, [%r91];\ntcgen05.wait::ld.sync.aligned;\n"
            "mul.wide.u32 %rd20, %r0, 4; add.u64 %rd20, %rd20, %rd0; st.global.b32 [%rd20], %v8;\n" +
            deallocate(32) + "}");
    EXPECT_THAT(all_texts(result.report), IsEmpty());
    EXPECT_EQ(result.out[77], reduction.expected);
  }
}

// ---------------------------------------------------------------------------------------------- copies

struct CopyShape {
  const char* shape;
  std::uint32_t rows, units;
  /// The lanes of a row, relative to the address.
  std::vector<std::uint32_t> (*lanes)(std::uint32_t row);
};
using Lanes = std::vector<std::uint32_t>;
const CopyShape kCopies[] = {
    {"128x256b", 128, 2, [](std::uint32_t row) { return Lanes{row}; }},
    {"128x128b", 128, 1, [](std::uint32_t row) { return Lanes{row}; }},
    {"4x256b", 4, 2, [](std::uint32_t row) { return Lanes{row * 32}; }},
    {"64x128b.warpx2::02_13", 64, 1,
     [](std::uint32_t row) {
       return Lanes{row, row + 64};
     }},
    {"64x128b.warpx2::01_23", 64, 1,
     [](std::uint32_t row) {
       return row < 32 ? Lanes{row, row + 32} : Lanes{row + 32, row + 64};
     }},
    {"32x128b.warpx4", 32, 1,
     [](std::uint32_t row) {
       return Lanes{row, row + 32, row + 64, row + 96};
     }},
};

/// Byte b of row r of a source whose byte i is i * 7 + 3, laid out as the descriptor says. Without a swizzle, 16 bytes
/// of 8 rows follow one another, and `leading` leads to the next 16 bytes of a row. With 128B, a row has 128 bytes, and
/// the 16-byte units of row r are exchanged by r % 8.
std::uint8_t source_byte(std::uint32_t row, std::uint32_t byte, bool swizzled) {
  const std::uint32_t place = swizzled ? row * 128 + ((byte / 16) ^ (row % 8)) * 16 + byte % 16
                                       : row / 8 * 256 + byte / 16 * 128 + row % 8 * 16 + byte % 16;
  return static_cast<std::uint8_t>(place * 7 + 3);
}

std::string copy_kernel(const std::string& form, bool swizzled, std::uint32_t base_lane, int group) {
  // Bits 46-48 are the version; 61-63 the swizzle; strides of 8 rows and of 16 bytes, in units of 16 bytes.
  const std::uint64_t descriptor =
      std::uint64_t{1} << 46 | (swizzled ? std::uint64_t{2} << 61 | std::uint64_t{1024 / 16} << 32
                                         : std::uint64_t{256 / 16} << 32 | std::uint64_t{128 / 16} << 16);
  std::string body = kRegisters + allocate(32, group);
  body += R"(
    mov.u32 %r10, data; add.u32 %r11, %r10, 1024; setp.ne.u32 %p1, %r0, 0;
    @!%p1 mbarrier.init.shared::cta.b64 [%r10+8], 1;
    @!%p1 fence.mbarrier_init.release.cluster;
    mov.u32 %r12, %r0;
  BYTES:
    mul.lo.u32 %r13, %r12, 7; add.u32 %r13, %r13, 3; add.u32 %r14, %r11, %r12; cvt.u16.u32 %h1, %r13;
    st.shared.u8 [%r14], %h1;
    add.u32 %r12, %r12, 128; setp.lt.u32 %p2, %r12, 16384;
    @%p2 bra BYTES;
    mov.b32 %v0, 0; mov.b32 %v1, 0; mov.b32 %v2, 0; mov.b32 %v3, 0;
    tcgen05.st.sync.aligned.32x32b.x4.b32 [%r91], {%v0, %v1, %v2, %v3};
    tcgen05.st.sync.aligned.32x32b.x4.b32 [%r91+4], {%v0, %v1, %v2, %v3};
    tcgen05.wait::st.sync.aligned;
    fence.proxy.async.shared::cta;
    tcgen05.fence::before_thread_sync;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    tcgen05.fence::after_thread_sync;
    setp.ne.u32 %p3, %r3, 0;
    or.pred %p4, %p1, %p3;
  )";
  if (group == 1) body += "mov.pred %p4, %p1;\n";
  body += fmt::format(
      "@%p4 bra ISSUED;\n"
      "and.b32 %r15, %r11, 0x3ffff; shr.u32 %r15, %r15, 4; cvt.u64.u32 %rd5, %r15; or.b64 %rd6, %rd5, {:#x};\n"
      "add.u32 %r16, %r90, {};\n"
      "tcgen05.cp.cta_group::{}.{} [%r16], %rd6;\n",
      descriptor, base_lane << 16, group, form);
  body += group == 1 ? "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r10+8];\n"
                     : "mov.b16 %h2, 3;\ntcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::"
                       "cluster.b64 [%r10+8], %h2;\n";
  body +=
      "ISSUED:\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 %p5, [%r10+8], 0;\n@!%p5 bra WAIT;\n"
      "tcgen05.fence::after_thread_sync;\n"
      "mul.lo.u32 %r20, %r3, 4096; cvt.u64.u32 %rd7, %r20; add.u64 %rd0, %rd0, %rd7;\n";
  body += dump(8, 0) + deallocate(32, group) +
          "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n}";
  return body;
}

void check_copy(const CopyShape& shape, const std::string& unpack, bool swizzled, int group, Completion completion) {
  const bool quarter = shape.rows == 4;
  const std::uint32_t base = quarter ? 31 : 0, ctas = group == 2 ? 2 : 1;
  const std::string form = shape.shape + unpack;
  SCOPED_TRACE(fmt::format("{} {} group {}", form, swizzled ? "128B" : "no swizzle", group));
  const auto result = run(copy_kernel(form, swizzled, base, group),
                          {.grid = {ctas}, .block = {kThreads}, .cluster = {ctas}, .dynamic_shared_bytes = 20480},
                          {.hazards = true, .completion = completion}, {}, 2048);
  ASSERT_THAT(all_texts(result.report), IsEmpty());
  std::vector<std::uint8_t> expected(kThreads * 32);  // [lane][byte]
  for (std::uint32_t row = 0; row < shape.rows; ++row)
    for (std::uint32_t byte = 0; byte < shape.units * 16; ++byte) {
      std::uint8_t value = source_byte(row, byte, swizzled);
      const std::uint32_t unit = byte / 16 * 16, i = byte % 16;
      if (unpack.find("b4x16") != std::string::npos) {
        const std::uint8_t two = source_byte(row, unit + i / 2, swizzled);
        value = static_cast<std::uint8_t>((i % 2 ? two >> 4 : two & 15) << 2);
      } else if (unpack.find("b6x16") != std::string::npos) {
        std::uint32_t bits = 0;
        for (std::uint32_t bit = 0; bit < 6; ++bit) {
          const std::uint32_t at = i * 6 + bit;
          bits |= static_cast<std::uint32_t>(source_byte(row, unit + at / 8, swizzled) >> at % 8 & 1) << bit;
        }
        value = static_cast<std::uint8_t>(bits);
      }
      for (const std::uint32_t lane : shape.lanes(row)) expected[(lane + base) * 32 + byte] = value;
    }
  for (std::uint32_t cta = 0; cta < ctas; ++cta)
    for (std::uint32_t lane = 0; lane < kThreads; ++lane)
      for (std::uint32_t column = 0; column < 8; ++column) {
        std::uint32_t word;
        std::memcpy(&word, expected.data() + lane * 32 + column * 4, 4);
        ASSERT_EQ(result.out[cta * 1024 + column * kThreads + lane], word) << "lane " << lane << " column " << column;
      }
}

TEST(Tcgen05Copy, PutsRowsIntoTheLanesOfItsShape) {
  for (const CopyShape& shape : kCopies)
    for (const char* unpack : {"", ".b8x16.b4x16_p64", ".b8x16.b6x16_p32"})
      for (const int group : {1, 2}) {
        check_copy(shape, unpack, /*swizzled=*/false, group, group == 1 ? Completion::kEager : Completion::kLazy);
        if (HasFatalFailure()) return;
      }
}

TEST(Tcgen05Copy, ReadsASwizzledSource) {
  for (const CopyShape& shape : kCopies)
    if (shape.rows != 4) check_copy(shape, "", /*swizzled=*/true, 1, Completion::kRandom);
}

TEST(Tcgen05Shift, MovesEveryLaneButTheLastDown) {
  std::string body = kRegisters + allocate(32) + R"(
      mov.u32 %r10, data; setp.ne.u32 %p1, %r0, 0; cvt.u64.u32 %rd8, %r10; cvta.shared.u64 %rd9, %rd8;
      @!%p1 mbarrier.init.shared::cta.b64 [%r10+8], 1;
      @!%p1 fence.mbarrier_init.release.cluster;
      mul.lo.u32 %v0, %r0, 3;
    )";
  for (int column = 0; column < 16; column += 4)
    body += fmt::format("tcgen05.st.sync.aligned.32x32b.x4.b32 [%r91+{}], {{%v0, %v0, %v0, %v0}};\n", column);
  body += R"(
      tcgen05.wait::st.sync.aligned;
      tcgen05.fence::before_thread_sync;
      bar.sync 0;
      tcgen05.fence::after_thread_sync;
      @%p1 bra WAIT;
      add.u32 %r16, %r90, 0x200000;
      tcgen05.shift.cta_group::1.down [%r16];
      tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%rd9+8];
    WAIT:
      mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r10+8], 0;
      @!%p5 bra WAIT;
      tcgen05.fence::after_thread_sync;
    )" + dump(16, 0) +
          deallocate(32) + "}";
  for (const Completion completion : {Completion::kEager, Completion::kLazy}) {
    const auto result = run(body, {.block = {kThreads}, .dynamic_shared_bytes = 1024},
                            {.hazards = true, .completion = completion}, {}, 2048);
    ASSERT_THAT(all_texts(result.report), IsEmpty());
    for (std::uint32_t lane = 0; lane < kThreads; ++lane) {
      const std::uint32_t moved = lane / 32 == 1 && lane % 32 != 31 ? lane + 1 : lane;
      EXPECT_EQ(result.out[7 * kThreads + lane], moved * 3);
      EXPECT_EQ(result.out[8 * kThreads + lane], lane * 3);
    }
  }
}

// ---------------------------------------------------------------------------------------------- allocation

TEST(Tcgen05Alloc, WaitsForColumnsThatAnotherWarpGivesBack) {
  const auto result = run(R"(
      mov.u32 %r10, data; setp.ne.u32 %p1, %r1, 0; @%p1 bra SECOND;
      tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 512;
      bar.sync 0;
      tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, 512;
      ret;
    SECOND:
      bar.sync 0;
      tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10+4], 256;
      ld.shared.b32 %r11, [%r10+4]; st.global.b32 [%rd0], %r11;
      tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r11, 256;
    )",
                          {.block = {64}, .dynamic_shared_bytes = 1024}, {.hazards = true, .shuffle = true});
  EXPECT_THAT(all_texts(result.report), IsEmpty());
  EXPECT_EQ(result.out[0], 0u);
}

TEST(Tcgen05Alloc, SaysWhatItWaitsForInADeadlock) {
  const auto result = run(R"(
      mov.u32 %r10, data;
      tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 512;
      tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 32;
    )",
                          {.block = {32}, .dynamic_shared_bytes = 1024});
  EXPECT_THAT(result.report.fault,
              HasSubstr("waits for 32 free columns of tensor memory (allocated: columns 0 to 511)"));
}

TEST(Tcgen05Alloc, GivesAPairTheSameColumns) {
  const auto result = run(R"(
      mov.u32 %r10, data; setp.ne.u32 %p1, %r3, 0;
      @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 64;
      tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r10+4], 128;
      ld.shared.b32 %r11, [%r10+4]; mul.wide.u32 %rd5, %r3, 4; add.u64 %rd5, %rd5, %rd0; st.global.b32 [%rd5], %r11;
      barrier.cluster.arrive.release.aligned;
      barrier.cluster.wait.acquire.aligned;
      tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;
      tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r11, 128;
      @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, 64;
      barrier.cluster.arrive.release.aligned;
      barrier.cluster.wait.acquire.aligned;
    )",
                          {.grid = {2}, .block = {32}, .cluster = {2}, .dynamic_shared_bytes = 1024});
  EXPECT_THAT(all_texts(result.report), IsEmpty());
  EXPECT_EQ(result.out[0], 128u);
  EXPECT_EQ(result.out[1], 128u);
}

TEST(Tcgen05Alloc, NamesWhatIsWrong) {
  const auto fault = [](const std::string& body) {
    return run("mov.u32 %r10, data;\n" + body, {.block = {32}, .dynamic_shared_bytes = 1024}).report.fault;
  };
  const std::string alloc = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 64;\n";
  EXPECT_THAT(fault("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r10], 48;"),
              HasSubstr("tcgen05.alloc of 48 columns; it takes a power of two from 32 to 512"));
  EXPECT_THAT(fault(alloc + "tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, 32;"),
              HasSubstr("is no allocation; allocated: columns 0 to 63"));
  EXPECT_THAT(fault("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n" + alloc),
              HasSubstr("tcgen05.alloc after tcgen05.relinquish_alloc_permit"));
  EXPECT_THAT(fault(alloc + "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r20, %r21}, [63];"),
              HasSubstr("uses columns 63 to 64 of tensor memory, of which some are not allocated"));
  EXPECT_THAT(fault(alloc + "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r20, %r21}, [511];"),
              HasSubstr("2 columns from 511; tensor memory has 128 and 512"));
  EXPECT_THAT(fault("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r10], 64;"),
              HasSubstr("it has no peer"));
  EXPECT_THAT(fault(alloc + "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.b64 [%r10];"),
              HasSubstr("tcgen05.commit with cta_group::2 where tensor memory was allocated with cta_group::1"));
}

TEST(Tcgen05, IsRefusedWhereThereIsNoTensorMemory) {
  for (const char* target : {"sm_90a", "sm_100", "sm_120a"}) try {
      test::run_ptx("tcgen05.wait::ld.sync.aligned;", {.block = {32}}, {}, {}, 16, target);
      FAIL() << target;
    } catch (const PtxError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string("needs tensor memory, which sm_100a and sm_103a have, and the "
                                                      "module's target is ") +
                                          target));
    }
}

}  // namespace
}  // namespace kernelwright::emulator
