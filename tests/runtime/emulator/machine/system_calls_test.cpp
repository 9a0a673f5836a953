// What every CUDA device brings to a kernel: printf, malloc, free and assert.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/emulator/ptx_text.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::emulator::system_calls_test {
namespace {

using kernelwright::test::module_of;
using ::testing::HasSubstr;

std::string bytes_of_text(const std::string& name, const std::string& text) {
  std::string bytes;
  for (const char c : text + '\0') bytes += (bytes.empty() ? "" : ", ") + std::to_string(static_cast<int>(c));
  return ".global .align 1 .b8 " + name + "[" + std::to_string(text.size() + 1) + "] = {" + bytes + "};\n";
}

constexpr const char* kDeclared = R"(
.extern .func (.param .b64 r) malloc(.param .b64 a);
.extern .func free(.param .b64 a);
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e) .noreturn;
)";

LaunchReport launch(const std::string& globals, const std::string& statements, std::uint32_t threads = 1,
                    std::uint32_t grid = 1, Options options = {.hazards = true}) {
  Emulator machine(options);
  const auto module = machine.load(module_of(kDeclared + globals + R"(.visible .entry k() {
.reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .pred %p<4>; .local .align 8 .b8 list[64];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;
)" + statements + "\nret; }"));
  return machine.launch(*module, "k", {.grid = {grid}, .block = {threads}}, {});
}

/// Prints with `format`; `stores` puts the arguments into `list`.
std::string printed(const std::string& format, const std::string& stores) {
  const LaunchReport report = launch(
      bytes_of_text("format", format) + bytes_of_text("word", "warp"),
      stores +
          "mov.u64 %rd1, list; cvta.local.u64 %rd1, %rd1; mov.u64 %rd2, format; call (%r3), vprintf, (%rd2, %rd1);");
  EXPECT_EQ(report.fault, "");
  return report.printed;
}

TEST(DevicePrint, ShowsEachConversionAsTheHostDoes) {
  EXPECT_EQ(printed("plain %% text\n", ""), "plain % text\n");
  EXPECT_EQ(printed("%d %5u|%-6x|%+i", "st.local.v4.b32 [list], {-7, 42, 255, 3};"), "-7    42|ff    |+3");
  EXPECT_EQ(printed("%lld %c", "st.local.b64 [list], -5000000000; st.local.b32 [list+8], 65;"), "-5000000000 A");
  EXPECT_EQ(printed("%.3f %g", "st.local.b64 [list], 0d3FF8000000000000; st.local.b64 [list+8], 0d4000000000000000;"),
            "1.500 2");
  EXPECT_EQ(printed("[%6s]", "st.local.b64 [list], word;"), "[  warp]");
  EXPECT_EQ(printed("%d %f", "st.local.b32 [list], 1; st.local.b64 [list+8], 0d3FE0000000000000;"), "1 0.500000");
  EXPECT_EQ(printed("%*d|%.*f",
                    "st.local.v2.b32 [list], {4, 9}; st.local.b32 [list+8], 1;"
                    "st.local.b64 [list+16], 0d3FE0000000000000;"),
            "   9|0.5");
  EXPECT_EQ(printed("100%", ""), "100");
  EXPECT_EQ(printed("%s", "st.local.b64 [list], 0;"), "(null)");
  EXPECT_EQ(printed("%hd %hhu %hx", "st.local.b64 [list], 0x1ff00018000; st.local.b32 [list+8], 0x12345;"),
            "-32768 255 2345");
  EXPECT_EQ(printed("[%*d]", "st.local.v2.b32 [list], {-4, 9};"), "[9   ]");
  EXPECT_EQ(printed("%.*f", "st.local.b32 [list], -2; st.local.b64 [list+8], 0d3FE0000000000000;"), "0.500000");
}

// A text needs no zero byte if the format says how long it is.
TEST(DevicePrint, ReadsNoMoreOfATextThanItsPrecision) {
  EXPECT_EQ(printed("[%.2s|%-6.3s|%6.3s]",
                    "mov.u64 %rd3, word; st.local.b64 [list], %rd3; st.local.b64 [list+8], %rd3;"
                    "st.local.b64 [list+16], %rd3;"),
            "[wa|war   |   war]");
  EXPECT_EQ(printed("%.4s", "call (%rd3), malloc, (4); st.b32 [%rd3], 0x64636261; st.local.b64 [list], %rd3;"), "abcd");
  const std::string text(3000, 'x');
  const LaunchReport report = launch(bytes_of_text("format", "%s") + bytes_of_text("word", text),
                                     "mov.u64 %rd2, word; st.local.b64 [list], %rd2; mov.u64 %rd1, list;"
                                     "cvta.local.u64 %rd1, %rd1; mov.u64 %rd2, format;"
                                     "call (%r3), vprintf, (%rd2, %rd1);");
  EXPECT_EQ(report.printed, text);
}

TEST(DevicePrint, OfNoFormatPrintsNothing) {
  const LaunchReport report = launch("", "call (%r3), vprintf, (0, 0); setp.ne.s32 %p1, %r3, -1; @%p1 trap;");
  EXPECT_EQ(report.fault, "");
  EXPECT_EQ(report.printed, "");
}

TEST(DevicePrint, KeepsTheOrderOfCtasAndOfLanes) {
  const LaunchReport report =
      launch(bytes_of_text("format", "%d.%d "),
             "st.local.v2.b32 [list], {%r2, %r1}; mov.u64 %rd1, list;"
             "cvta.local.u64 %rd1, %rd1; mov.u64 %rd2, format; call (%r3), vprintf, (%rd2, %rd1);",
             3, 2);
  EXPECT_EQ(report.fault, "");
  EXPECT_EQ(report.printed, "0.0 0.1 0.2 1.0 1.1 1.2 ");
}

TEST(DevicePrint, StopsAtTheSizeOfAGpusBuffer) {
  const LaunchReport report = launch(bytes_of_text("format", std::string(1000, 'x')),
                                     "mov.b32 %r4, 0; mov.u64 %rd2, format; LOOP: call (%r3), vprintf, (%rd2, 0);"
                                     "add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 100; @%p1 bra LOOP;",
                                     32, 2);
  EXPECT_EQ(report.fault, "");
  EXPECT_EQ(report.printed.size(), std::size_t{1} << 20);
}

TEST(DevicePrint, OfAFormatThatIsNoMemoryIsAFault) {
  EXPECT_THAT(launch("", "call (%r3), vprintf, (4660, 0);").fault, HasSubstr("address 0x1234 is in no allocation"));
}

TEST(DeviceAssert, SaysWhatFailedAndWhere) {
  const LaunchReport report =
      launch(bytes_of_text("what", "n > 0") + bytes_of_text("file", "tail.cu") + bytes_of_text("name", "clear"),
             "mov.u64 %rd1, what; mov.u64 %rd2, file; mov.u64 %rd3, name;"
             "call __assertfail, (%rd1, %rd2, 12, %rd3, 1);");
  EXPECT_THAT(report.fault, HasSubstr("the kernel trapped: tail.cu:12: clear: Assertion `n > 0` failed"));
}

TEST(DeviceHeap, GivesBlocksThatLieApart) {
  const LaunchReport report =
      launch("", R"(call (%rd1), malloc, (24); call (%rd2), malloc, (8); st.b64 [%rd1+16], %rd2; st.b64 [%rd2], %rd1;
ld.b64 %rd3, [%rd1+16]; setp.ne.u64 %p1, %rd3, %rd2; @%p1 trap; call free, (%rd1); call free, (%rd2); call free, (0);)",
             128);
  EXPECT_EQ(report.fault, "");
  EXPECT_TRUE(report.hazards.empty());
}

TEST(DeviceHeap, ReportsWrongAccesses) {
  const auto fault = [](const std::string& statements) {
    return launch("", "call (%rd1), malloc, (20); " + statements).fault;
  };
  EXPECT_EQ(fault("st.b32 [%rd1+16], 1;"), "");
  EXPECT_THAT(fault("st.b32 [%rd1+20], 1;"), HasSubstr("0 bytes past the end of a block of 20 bytes from malloc"));
  EXPECT_THAT(fault("st.b64 [%rd1+16], 1;"), HasSubstr("4 bytes past the end of a block of 20 bytes from malloc"));
  EXPECT_THAT(fault("call free, (%rd1); ld.b32 %r3, [%rd1];"),
              HasSubstr("is in a block of 20 bytes from malloc that has been freed"));
  EXPECT_THAT(fault("call free, (%rd1); call free, (%rd1);"), HasSubstr("a block of 20 bytes"));
  EXPECT_THAT(fault("add.u64 %rd1, %rd1, 4; call free, (%rd1);"),
              HasSubstr("which is 4 bytes behind the begin of its block"));
  EXPECT_THAT(fault("add.u64 %rd1, %rd1, 64; call free, (%rd1);"), HasSubstr("which malloc did not return"));
}

// Small blocks that lie beside each other, and are free, make room for a large one.
TEST(DeviceHeap, MakesOneBlockOfFreedNeighbours) {
  const LaunchReport report = launch("", R"(
mov.b64 %rd4, 0; mov.b32 %r4, 0;
TAKE: call (%rd1), malloc, (100); setp.eq.u64 %p1, %rd1, 0; @%p1 trap;
st.b64 [%rd1], %rd4; mov.b64 %rd4, %rd1; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 30; @%p1 bra TAKE;
GIVE: ld.b64 %rd5, [%rd4]; call free, (%rd4); mov.b64 %rd4, %rd5; setp.ne.u64 %p1, %rd4, 0; @%p1 bra GIVE;
call (%rd2), malloc, (4000); setp.eq.u64 %p1, %rd2, 0; @%p1 trap; st.b32 [%rd2+3996], 1;
call (%rd3), malloc, (100); setp.ne.u64 %p1, %rd3, 0; @%p1 trap;)",
                                     1, 1, {.hazards = true, .heap_bytes = 4096});
  EXPECT_EQ(report.fault, "");
}

// A linear search of freed blocks would take minutes.
TEST(DeviceHeap, FindsFreedMemoryAmongManyBlocksAtOnce) {
  const LaunchReport report = launch("", R"(
mov.b32 %r5, 0; AGAIN: mov.b64 %rd4, 0; mov.b32 %r4, 0;
TAKE: add.u32 %r6, %r4, %r1; and.b32 %r6, %r6, 31; add.u32 %r6, %r6, 8; cvt.u64.u32 %rd2, %r6;
call (%rd1), malloc, (%rd2); setp.eq.u64 %p1, %rd1, 0; @%p1 trap;
st.b64 [%rd1], %rd4; mov.b64 %rd4, %rd1; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 100; @%p1 bra TAKE;
GIVE: ld.b64 %rd5, [%rd4]; call free, (%rd4); mov.b64 %rd4, %rd5; setp.ne.u64 %p1, %rd4, 0; @%p1 bra GIVE;
add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, 30; @%p1 bra AGAIN;)",
                                     64, 1, {.hazards = false, .heap_bytes = 600000});
  EXPECT_EQ(report.fault, "");
}

TEST(DeviceHeap, NamesTheRuleThatMendsAFault) {
  const auto rule = [](const std::string& statements) {
    const LaunchReport report = launch("", statements);
    return report.hazards.empty() ? "" : row_of(report.hazards.back().rule).name;
  };
  EXPECT_EQ(rule("call (%rd1), malloc, (8); call free, (%rd1); call free, (%rd1);"), "device-heap");
  EXPECT_EQ(rule("trap;"), "trap");
}

TEST(DeviceHeap, ReturnsNullWhenItIsUsedUpAndGivesFreedMemoryAgain) {
  const LaunchReport report = launch("", R"(
call (%rd1), malloc, (3000); setp.eq.u64 %p1, %rd1, 0; @%p1 trap;
call (%rd2), malloc, (3000); setp.ne.u64 %p1, %rd2, 0; @%p1 trap;
call free, (%rd1);
call (%rd2), malloc, (2900); setp.ne.u64 %p1, %rd2, %rd1; @%p1 trap; st.b32 [%rd2+2896], 1;)",
                                     1, 1, {.hazards = true, .heap_bytes = 4096});
  EXPECT_EQ(report.fault, "");
}

}  // namespace
}  // namespace kernelwright::emulator::system_calls_test
