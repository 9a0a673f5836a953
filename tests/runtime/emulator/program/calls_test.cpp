// Functions of a module: how they are called, what they keep, and how a wrong call is refused or reported. The values
// that functions return are in conformance/ptx/call, where a GPU records them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/runtime/emulator/checker/suppressions.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/ptx_text.h"
#include "runtime/emulator/run_ptx.h"

namespace kernelwright::emulator::calls_test {
namespace {

using kernelwright::test::module_of;
using ::testing::HasSubstr;

/// Runs the entry `k(out)` of a module on one warp, with eager completion, and returns the report. `words` of output.
struct Outcome {
  LaunchReport report;
  std::vector<std::uint32_t> out;
};

Outcome run(const std::string& text, std::uint32_t threads = 32, Options options = {.hazards = true, .threads = 1}) {
  Emulator machine(options);
  const auto module = machine.load(module_of(text));
  const std::uint64_t out = machine.memory().allocate(threads * 4, "out");
  Outcome made;
  made.report = machine.launch(*module, "k", {.block = {threads}}, std::as_bytes(std::span(&out, 1)));
  made.out.resize(threads);
  std::memcpy(made.out.data(), reinterpret_cast<const void*>(out), threads * 4);
  return made;
}

std::string refusal(const std::string& text) {
  try {
    run(text);
  } catch (const PtxError& error) {
    return error.what();
  }
  return "";
}

/// An entry k whose statements leave a value for each thread in %r9.
std::string entry(const std::string& statements, const std::string& functions = "") {
  return functions + R"(.visible .entry k(.param .u64 out) {
.reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .pred %p<4>;
mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [out]; mad.wide.u32 %rd1, %r1, 4, %rd1;
)" + statements +
         "\nst.global.b32 [%rd1], %r9; ret; }";
}

constexpr const char* kTwice = ".func (.reg .u32 %o) twice(.reg .u32 %i) { add.u32 %o, %i, %i; ret; }\n";

TEST(Calls, KeepTheRegistersOfTheCaller) {
  // The function has as many registers as the caller, and writes them all.
  std::string clobber = ".func (.reg .u32 %o) clobber(.reg .u32 %i) {\n.reg .b32 %r<16>;\n";
  for (int i = 0; i < 16; ++i) clobber += "add.u32 %r" + std::to_string(i) + ", %i, " + std::to_string(i) + ";\n";
  clobber += "mov.u32 %o, 0;\n";
  for (int i = 0; i < 16; ++i) clobber += "add.u32 %o, %o, %r" + std::to_string(i) + ";\n";
  const Outcome done =
      run(entry("mul.lo.u32 %r2, %r1, 7; call (%r3), clobber, (%r1); add.u32 %r9, %r2, %r3;", clobber + "ret; }\n"));
  EXPECT_EQ(done.report.fault, "");
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(done.out[i], 7 * i + 16 * i + 120);
}

TEST(Calls, OfOneFunctionFromManyPlacesReturnToEach) {
  const Outcome done = run(entry(R"(
call (%r2), twice, (%r1); call (%r3), twice, (%r2);
setp.lt.u32 %p1, %r1, 9; @%p1 call (%r3), twice, (5);
mov.u32 %r9, %r3;)",
                                 kTwice));
  EXPECT_EQ(done.report.fault, "");
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(done.out[i], i < 9 ? 10 : 4 * i);
}

// Two functions that call each other, with registers and a local variable of which each activation has its own.
TEST(Calls, RecurseThroughAnotherFunction) {
  const std::string functions = R"(
.func (.reg .u32 %o) odd(.reg .u32 %i);
.func (.reg .u32 %o) even(.reg .u32 %i) {
  .reg .pred %p; .reg .b32 %rest, %mine; .local .align 4 .b8 kept[4];
  st.local.b32 [kept], %i; mov.u32 %mine, %i;
  setp.eq.u32 %p, %i, 0; mov.u32 %o, 1; @%p ret;
  sub.u32 %rest, %i, 1; call (%o), odd, (%rest);
  ld.local.b32 %rest, [kept]; sub.u32 %rest, %rest, %mine; mad.lo.u32 %o, %rest, 1000, %o; ret; }
.func (.reg .u32 %o) odd(.reg .u32 %i) {
  .reg .pred %p, %q; .reg .b32 %rest;
  setp.eq.u32 %p, %i, 0; mov.u32 %o, 0; @%p ret;
  setp.gt.u32 %q, %i, 3; sub.u32 %rest, %i, 1; call (%o), even, (%rest); @%q add.u32 %o, %o, 2; ret; }
)";
  const Outcome done = run(entry("call (%r9), even, (%r1);", functions));
  EXPECT_EQ(done.report.fault, "");
  // Each odd call with more than 3 adds 2: of an even n, one for each odd number from 5 to n - 1.
  for (std::uint32_t n = 0; n < 32; ++n) {
    std::uint32_t added = 0;
    for (std::uint32_t i = n; i-- > 0;)
      if ((n - i) % 2 == 1 && i > 3) added += 2;
    EXPECT_EQ(done.out[n], (n % 2 == 0 ? 1 : 0) + added) << n;
  }
}

TEST(Calls, InFunctionsMayWaitForTheWholeWarp) {
  const std::string meets = R"(.func (.reg .b32 %o) meets(.reg .b32 %i) {
    bar.sync 0; shfl.sync.idx.b32 %o, %i, 0, 31, -1; ret; })";
  // Odd lanes call from another place than even lanes.
  const Outcome done = run(entry(R"(and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; add.u32 %r3, %r1, 40;
@%p1 bra EVEN; call (%r9), meets, (%r3); bra LAST; EVEN: call (%r9), meets, (%r3); LAST:)",
                                 meets));
  EXPECT_EQ(done.report.fault, "");
  for (const std::uint32_t value : done.out) EXPECT_EQ(value, 40u);
}

TEST(Calls, ReportAStackThatOverflows) {
  const Outcome done = run(entry("call (%r9), forever, (%r1);",
                                 ".func (.reg .b32 %o) forever(.reg .b32 %i) { call (%o), forever, (%i); ret; }"));
  EXPECT_THAT(done.report.fault, HasSubstr("the stack of lane 0 overflows in a call of forever"));
  EXPECT_THAT(done.report.fault, HasSubstr("2049 calls deep, and a thread has 32784 bytes"));
}

// 2000 registers of 32 lanes take 256 kB in each activation.
TEST(Calls, ReportRecursionThatKeepsTooManyRegisters) {
  std::string body = ".func (.reg .b32 %o) wide(.reg .b32 %i) { .reg .b32 %r<2000>;\n";
  for (int i = 0; i < 2000; ++i) body += "add.u32 %r" + std::to_string(i) + ", %i, " + std::to_string(i) + ";\n";
  body += "call (%o), wide, (%i);\n";
  for (int i = 0; i < 2000; ++i) body += "add.u32 %o, %o, %r" + std::to_string(i) + ";\n";
  const Outcome done = run(entry("call (%r9), wide, (%r1);", body + "ret; }\n"));
  EXPECT_THAT(done.report.fault, HasSubstr("the stacks of a warp overflow in a call of wide"));
}

// ptxas gives the bits of a double to .b32 and .b64, and the value of a double to .f32.
TEST(Calls, PassNumbersAsTheFunctionTakesThem) {
  const auto passed = [](const std::string& type, const std::string& number) {
    const bool wide = type.ends_with("64");
    const std::string function = ".func (.reg .b32 %o) low(.reg " + type + " %i) { .reg .b64 %w; " +
                                 (wide ? "mov.b64 %w, %i; cvt.u32.u64 %o, %w;" : "mov.b32 %o, %i;") + " ret; }\n";
    const Outcome done = run(entry("call (%r9), low, (" + number + ");", function));
    EXPECT_EQ(done.report.fault, "");
    return done.out[0];
  };
  EXPECT_EQ(passed(".f32", "2.5"), 0x40200000u);
  EXPECT_EQ(passed(".f32", "-2.5"), 0xc0200000u);
  EXPECT_EQ(passed(".f32", "0f40200001"), 0x40200001u);
  EXPECT_EQ(passed(".f32", "0d3ff123456789abcd"), 0x3f891a2bu);
  EXPECT_EQ(passed(".f32", "1e40"), 0x7f800000u);
  EXPECT_EQ(passed(".f64", "0d3ff123456789abcd"), 0x6789abcdu);
  EXPECT_EQ(passed(".f64", "0f40200001"), 0x40200001u);
  EXPECT_EQ(passed(".f64", "1e40"), 0xf1c35ca5u);
  EXPECT_EQ(passed(".b32", "0d3ff123456789abcd"), 0x6789abcdu);
  EXPECT_EQ(passed(".b32", "2.5"), 0u);
  EXPECT_EQ(passed(".b64", "0f40200001"), 0x40200001u);
  EXPECT_EQ(passed(".u32", "0x1ffffffff"), 0xffffffffu);
  EXPECT_EQ(passed(".s64", "-2"), 0xfffffffeu);
}

TEST(Calls, RefuseWhatPtxasRefusesToPass) {
  const auto refused = [](const std::string& type, const std::string& actual) {
    return refusal(entry(".local .align 8 .b8 mine[16]; call taker, (" + actual + ");",
                         ".global .align 8 .b32 g[4];\n.func taker(.reg " + type + " %i) { ret; }\n"));
  };
  EXPECT_THAT(refused(".f32", "1"), HasSubstr("an integer number is passed where the function has .f32"));
  EXPECT_THAT(refused(".u32", "0f40200001"),
              HasSubstr("a floating-point number is passed where the function has .u32"));
  EXPECT_THAT(refused(".b32", "%rd1"), HasSubstr("a register of another size is passed where the function has .b32"));
  EXPECT_THAT(refused(".b64", "%r1"), HasSubstr("a register of another size"));
  for (const char* actual : {"g", "g+4", "mine", "mine+8", "%clock64", "_", "taker"})
    EXPECT_THAT(refused(".b64", actual), HasSubstr("a call takes registers, numbers, and whole .param variables"))
        << actual;
  EXPECT_EQ(refused(".b64", "%rd1"), "");
}

TEST(Calls, OfAnAliasGoToItsFunction) {
  const std::string functions = std::string(kTwice) + R"(.func (.reg .u32 %o) same(.reg .u32 %i);
.alias same, twice;
.global .u64 table[1] = {same};
)";
  const Outcome done = run(entry(R"(p: .calltargets twice, same;
mov.u64 %rd2, same; mov.u64 %rd3, twice; setp.ne.u64 %p1, %rd2, %rd3; @%p1 trap;
mov.u64 %rd3, table; ld.global.u64 %rd3, [%rd3]; setp.ne.u64 %p1, %rd2, %rd3; @%p1 trap;
call (%r2), same, (%r1); call (%r9), %rd2, (%r2), p;)",
                                 functions));
  EXPECT_EQ(done.report.fault, "");
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(done.out[i], 4 * i);
  EXPECT_THAT(refusal(std::string(".alias same, twice;\n") + entry("", kTwice)), HasSubstr("is no function that"));
  EXPECT_THAT(refusal(entry("", std::string(kTwice) + ".alias twice, twice;\n")), HasSubstr("is an alias, and is"));
  EXPECT_THAT(refusal(entry("call (%r9), %rd1, (%r1), p;", functions + ".func other(); .alias other, same;\n")),
              HasSubstr("is no function that the text has defined"));
}

// Each function calls through an address: a list of callees for each would take gigabytes.
TEST(Calls, ThroughAddressesOfManyFunctionsAreLinkedOnce) {
  std::string functions;
  for (int i = 0; i < 4000; ++i)
    functions += ".func f" + std::to_string(i) +
                 "(.reg .b64 %a) { p: .callprototype _ (.param .b64 _); call %a, (%a), p; ret; }\n";
  const Outcome done =
      run(entry("mov.b32 %r9, 7; mov.u64 %rd2, f9; setp.eq.u32 %p1, %r1, 99; @%p1 call f0, (%rd2);", functions));
  EXPECT_EQ(done.report.fault, "");
  EXPECT_EQ(done.out[5], 7u);
}

// The report shows the whole statement.
TEST(Calls, OverManyLinesAreShownWhole) {
  const Outcome done = run(entry("call (%r9),\n  forever,\n  (\n  %r1\n  );",
                                 ".func (.reg .b32 %o) forever(.reg .b32 %i) { call (%o),\n forever,\n (%i); ret; }"));
  EXPECT_THAT(done.report.fault, HasSubstr("`.func (.reg .b32 %o) forever(.reg .b32 %i) { call (%o),"));
  ASSERT_FALSE(done.report.hazards.empty());
  EXPECT_EQ(row_of(done.report.hazards.back().rule).name, "stack-overflow");
}

TEST(Calls, ThroughAnAddressThatIsNoFunctionAreReported) {
  const auto calls = [](const std::string& address) {
    return run(entry(address + R"( p: .callprototype (.param .b32 _) _ (.param .b32 _);
call (%r9), %rd2, (%r1), p;)",
                     kTwice))
        .report.fault;
  };
  EXPECT_EQ(calls("mov.u64 %rd2, twice;"), "");
  EXPECT_THAT(calls("mov.u64 %rd2, 4096;"), HasSubstr("a call of address 0x1000, where no function is"));
  const std::string other = run(entry(R"(mov.u64 %rd2, twice; p: .callprototype (.param .b32 _) _ (.param .b64 _);
call (%r9), %rd2, (%rd1), p;)",
                                      kTwice))
                                .report.fault;
  EXPECT_THAT(other, HasSubstr("a call through an address goes to twice, which has other parameters"));
}

// A virtual function: its address is an initial value of the module.
TEST(Calls, ThroughATableOfTheModule) {
  const Outcome done =
      run(entry(R"(p: .callprototype (.param .b32 _) _ (.param .b32 _);
and.b32 %r2, %r1, 1; mul.wide.u32 %rd2, %r2, 8; mov.u64 %rd3, table; add.u64 %rd3, %rd3, %rd2;
ld.global.u64 %rd4, [%rd3+8]; call (%r9), %rd4, (%r1), p;)",
                std::string(kTwice) + ".func (.reg .u32 %o) same(.reg .u32 %i) { mov.u32 %o, %i; ret; }\n"
                                      ".global .align 8 .u64 table[3] = {0, twice, same};\n"));
  EXPECT_EQ(done.report.fault, "");
  for (std::uint32_t i = 0; i < 32; ++i) EXPECT_EQ(done.out[i], i % 2 == 0 ? 2 * i : i);
}

TEST(Calls, AreRefusedByNameUnlessTheyCanRun) {
  EXPECT_THAT(refusal(entry("call (%r9), cosine, (%r1);", ".extern .func (.param .b32 o) cosine(.param .b32 i);\n")),
              HasSubstr("`cosine` is called, and is defined in another module"));
  EXPECT_THAT(refusal(entry("call twice, (%r1);", kTwice)), HasSubstr("'twice' has 1 result, and 0 are given"));
  EXPECT_THAT(refusal(entry("call (%r9), twice, (%r1, %r1);", kTwice)),
              HasSubstr("'twice' has 1 parameter, and 2 are given"));
  EXPECT_THAT(refusal(entry(".param .b64 x; call (%r9), twice, (x);", kTwice)),
              HasSubstr("parameter 1 of 'twice' has 4 bytes, and 8 are given"));
  EXPECT_THAT(refusal(entry("call k, (%r1);")), HasSubstr("'k' is called, and is no function"));
  EXPECT_THAT(refusal(entry("call (%r9), %rd1, (%r1), nowhere;")),
              HasSubstr("there is no .callprototype or .calltargets 'nowhere'"));
  EXPECT_THAT(refusal(entry("call bad, ();", ".func bad() { tex.1d.v4.f32.s32 {%f1}, [t, {%r1}]; ret; }\n")),
              HasSubstr("'bad' is called, and cannot be read: line 4: '%f1' is not declared"));
  EXPECT_THAT(refusal(entry("call odd, ();", ".func odd() { wobble.f32 1; ret; }\n")),
              HasSubstr("`wobble.f32`: this instruction is not modelled"));
  EXPECT_THAT(refusal(entry("call many, (%r1);", ".func many(.param .b32 a, .param .b8 rest[]) { ret; }\n")),
              HasSubstr("functions with a variable number of arguments are not modelled"));
  EXPECT_THAT(refusal(".func two() { ret; } .func two() { ret; }\n" + entry("")),
              HasSubstr("the function 'two' is defined twice"));
  EXPECT_THAT(refusal(entry("call (%r9), vprintf, (%r1);", ".extern .func (.param .b32 o) vprintf(.param .b32 i);\n")),
              HasSubstr("vprintf is declared with other parameters than CUDA's"));
}

TEST(Calls, OfADeclarationThatTheDefinitionContradictsAreRefused) {
  EXPECT_THAT(refusal(".func later(.param .b32 x);\n" + entry("call later, (%r1);") +
                      "\n.func later(.param .b64 x) { ret; }\n"),
              HasSubstr("`later` is defined with other parameters in line"));
}

TEST(Calls, OfFunctionsThatNoEntryReachesCostNothing) {
  const Outcome done = run(".func unread() { surprising.u32 %o, {1}; }\n" + entry("mov.u32 %r9, 3;"));
  EXPECT_EQ(done.report.fault, "");
  EXPECT_EQ(done.out[5], 3u);
}

// Two warps store to one place, in a function that both call.
TEST(Calls, AreNamedInReports) {
  const Outcome done = run(entry("mov.u32 %r9, 0; call clash, (%r1);",
                                 ".shared .align 4 .b8 cell[4];\n"
                                 ".func clash(.reg .b32 %i) { st.shared.b32 [cell], %i; ret; }\n"),
                           64);
  EXPECT_EQ(done.report.fault, "");
  ASSERT_FALSE(done.report.hazards.empty());
  HazardReport report = done.report.hazards.back();
  EXPECT_EQ(report.rule, HazardRule::kSharedRace);
  EXPECT_EQ(report.first.function, "clash");
  EXPECT_EQ(report.second.function, "clash");
  EXPECT_THAT(report.text(), HasSubstr(" of clash"));
  EXPECT_TRUE(Suppressions("shared-race k func:cla* both are the same\n", "accepted.txt").match("k", report));
  EXPECT_FALSE(Suppressions("shared-race k func:crash both are the same\n", "accepted.txt").match("k", report));
}

// Recursion stays within the registers of one warp: what another warp does in the same function is its own.
TEST(Calls, OfSeveralWarpsDoNotTouchEachOther) {
  const std::string sum = R"(.func (.reg .u32 %o) sum(.reg .u32 %i) {
  .reg .pred %p; .reg .b32 %rest; setp.eq.u32 %p, %i, 0; mov.u32 %o, 0; @%p ret;
  sub.u32 %rest, %i, 1; call (%o), sum, (%rest); add.u32 %o, %o, %i; ret; })";
  for (const std::uint64_t seed : {1, 2, 3}) {
    const Outcome done =
        run(entry("call (%r9), sum, (%r1);", sum), 128, {.hazards = true, .seed = seed, .shuffle = true, .threads = 1});
    EXPECT_EQ(done.report.fault, "");
    for (std::uint32_t i = 0; i < 128; ++i) EXPECT_EQ(done.out[i], i * (i + 1) / 2);
  }
}

}  // namespace
}  // namespace kernelwright::emulator::calls_test
