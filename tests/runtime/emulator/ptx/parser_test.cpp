// The PTX parser on hand-written texts: each construct gives what runtime/emulator/ptx/module.h says, and what is not
// modelled is refused by name with its line. mutation_test.cpp damages whole texts.
#include "kernelwright/runtime/emulator/ptx/parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/emulator/ptx_text.h"

namespace kernelwright::emulator {
namespace {

using test::in_body;
using test::module_of;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Kind = Operand::Kind;

/// The one entry's instructions, the ret that ends it among them.
struct Parsed {
  std::unique_ptr<Module> module;
  const Entry& entry() const { return module->entries.at(0); }
  const Instruction& at(std::size_t i) const { return entry().instructions.at(i); }
};

const char* const kRegisters =
    ".reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<8>; .reg .f32 %f<8>; .reg .b16 %rs<4>;\n";

/// Also throws the reason for which an entry is refused.
std::unique_ptr<Module> parse_whole(const std::string& text) {
  auto module = parse_ptx(text);
  for (const Entry& entry : module->entries)
    if (!entry.refusal.empty()) throw PtxError(entry.refusal_line, entry.refusal);
  return module;
}

Parsed body(const std::string& statements) { return {parse_whole(in_body(kRegisters + statements))}; }

/// What the parser says about `statements`, with lines counted from the first of them; "" if nothing.
std::string complaint(const std::string& statements) {
  try {
    parse_whole(in_body(kRegisters + statements));
  } catch (const PtxError& error) {
    const std::string what = error.what();
    const std::string line = "line " + std::to_string(error.line());
    EXPECT_EQ(what.rfind(line + ": ", 0), 0u) << what;
    return "line " + std::to_string(error.line() - test::kLinesBeforeBody - 1) + what.substr(line.size());
  }
  return "";
}

std::string module_complaint(const std::string& text) {
  try {
    parse_whole(text);
  } catch (const PtxError& error) {
    return error.what();
  }
  return "";
}

TEST(PtxParser, ReadsThePreamble) {
  const auto module = parse_ptx("// Generated\n.version 8.8\n.target sm_90a, debug\n.address_size 64\n");
  EXPECT_EQ(module->version, "8.8");
  EXPECT_EQ(module->target, "sm_90a");
  EXPECT_THAT(module->entries, IsEmpty());
  EXPECT_THAT(module->shared, IsEmpty());
}

TEST(PtxParser, RefusesATextWithoutItsPreamble) {
  EXPECT_EQ(module_complaint(""), "line 1: found the end of the text where .version was expected");
  EXPECT_EQ(module_complaint(".version 8\n"), "line 1: found '8' where a version such as 8.8 was expected");
  EXPECT_EQ(module_complaint(".version 8.0\n.target compute\n"),
            "line 2: found 'compute' where a target such as sm_90a was expected");
  EXPECT_EQ(module_complaint(".version 8.0\n.target sm_80, texmode_independent\n"),
            "line 2: the target option 'texmode_independent' is not modelled");
  EXPECT_EQ(module_complaint(".version 8.0 .target sm_80 .address_size 32"),
            "line 1: found '32' where an address size of 64 was expected");
}

TEST(PtxParser, LaysOutParametersAsTheCallerPacksThem) {
  const auto module = parse_ptx(module_of(R"(
.visible .entry k(
	.param .u8 a,
	.param .align 64 .b8 big[128],
	.param .u64 .ptr .global .align 16 pointer,
	.param .f32 scale,
	.param .v4 .f32 vector,
	.param .b16 pair[3]
) { ret; })"));
  const Entry& entry = *module->find("k");
  ASSERT_THAT(entry.parameters, SizeIs(6));
  std::vector<std::uint64_t> offsets, bytes;
  for (const auto& [name, variable] : entry.parameters) {
    EXPECT_EQ(variable.space, StateSpace::kParam) << name;
    offsets.push_back(variable.offset);
    bytes.push_back(variable.bytes);
  }
  EXPECT_THAT(offsets, ElementsAre(0, 64, 192, 200, 208, 224));
  EXPECT_THAT(bytes, ElementsAre(1, 128, 8, 4, 16, 6));
  EXPECT_EQ(entry.parameters[1].second.alignment, 64u);
  EXPECT_EQ(entry.parameters[2].second.alignment, 8u) << "the 16 is that of the memory pointed to";
  EXPECT_EQ(entry.parameter_bytes, 230u);
}

TEST(PtxParser, ReadsPerformanceDirectives) {
  const auto module = parse_ptx(module_of(R"(
.entry plain { ret; }
.weak .entry k() .maxntid 128, 2 .minnctapersm 2 .maxnreg 168 .explicitcluster .reqnctapercluster 2, 1
 .maxclusterrank 4 .pragma "nounroll"; { ret; }
.visible .entry b() .reqntid 64,1,1 .blocksareclusters { ret; })"));
  const Entry& k = *module->find("k");
  EXPECT_EQ(k.max_threads, 256);
  EXPECT_EQ(k.max_registers, 168);
  EXPECT_THAT(k.required_cluster, ElementsAre(2, 1, 1));
  EXPECT_TRUE(k.explicit_cluster);
  EXPECT_FALSE(k.blocks_are_clusters);
  EXPECT_EQ(module->find("b")->max_threads, 64);
  EXPECT_TRUE(module->find("b")->blocks_are_clusters);
  const Entry& plain = *module->find("plain");
  EXPECT_EQ(plain.max_threads, 0);
  EXPECT_THAT(plain.required_cluster, ElementsAre(0, 0, 0));
  EXPECT_EQ(module->find("nobody"), nullptr);
}

TEST(PtxParser, LaysOutVariablesAndTheirValues) {
  const auto module = parse_ptx(module_of(R"(
.const .align 4 .b8 table[8] = {0, 0, 128, 63};
.global .align 8 .f64 half = 0d3FE0000000000000;
.global .u32 grid[2][2] = {{1}, {-2, 0xffffffff}}, one = 1;
.global .align 1 .u8 counted[] = {1, 2, 3};
.shared .align 128 .b64 barrier[3];
.shared .u32 flag;
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k() { .local .align 16 .b8 depot[20]; .shared .b8 mine[5]; .local .u16 more; ret; })"));
  const auto& variables = module->variables;
  const auto image = [&](const char* name, std::size_t i) {
    std::uint32_t word = 0;
    std::memcpy(&word, module->global_image.data() + variables.at(name).offset + 4 * i, 4);
    return word;
  };
  EXPECT_EQ(image("table", 0), 0x3F800000u);
  EXPECT_EQ(image("table", 1), 0u);
  EXPECT_EQ(variables.at("table").space, StateSpace::kConst);
  EXPECT_EQ(variables.at("half").offset % 8, 0u);
  EXPECT_EQ(image("half", 1), 0x3FE00000u);
  EXPECT_EQ(image("grid", 0), 1u);
  EXPECT_EQ(image("grid", 1), 0u);
  EXPECT_EQ(image("grid", 2), 0xFFFFFFFEu);
  EXPECT_EQ(image("grid", 3), 0xFFFFFFFFu);
  EXPECT_EQ(image("one", 0), 1u);
  EXPECT_EQ(variables.at("counted").bytes, 3u);
  EXPECT_EQ(module->global_image.size(), variables.at("counted").offset + 3);

  EXPECT_EQ(variables.at("barrier").bytes, 24u);
  EXPECT_EQ(variables.at("barrier").alignment, 128u);
  EXPECT_TRUE(variables.at("dynamic").dynamic);
  EXPECT_THAT(module->shared, ElementsAre("barrier", "flag", "dynamic"));
  const Entry& entry = module->entries[0];
  EXPECT_THAT(entry.shared, ElementsAre("mine"));
  EXPECT_EQ(entry.variables.at("depot").bytes, 20u);
  EXPECT_EQ(entry.variables.at("more").offset, 20u);
  EXPECT_EQ(entry.local_bytes, 22u);
}

// As ptxas: the largest of the given alignments, before or after the state space, and the type's own.
TEST(PtxParser, AlignsVariablesAsMuchAsAnythingAsks) {
  const auto module =
      parse_whole(module_of(R"(.align 16 .shared .align 32 .b8 a[3]; .align 64 .shared .align 32 .b8 b[3];
.shared .align 2 .b32 c[3]; .shared .align 4 .v4 .b32 d; .extern .align 256 .shared .b8 e[]; .visible .align 8 .global .b8 g;
.entry k(.param .u32 x, .param .align 4 .u64 y, .align 32 .param .b8 z[4]) { .align 128 .shared .b8 f[4]; ret; })"));
  const auto alignment = [&](const char* name) { return module->variables.at(name).alignment; };
  EXPECT_EQ(alignment("a"), 32u);
  EXPECT_EQ(alignment("b"), 64u);
  EXPECT_EQ(alignment("c"), 4u);
  EXPECT_EQ(alignment("d"), 16u);
  EXPECT_EQ(alignment("e"), 256u);
  EXPECT_EQ(alignment("g"), 8u);
  const Entry& entry = module->entries[0];
  EXPECT_EQ(entry.variables.at("f").alignment, 128u);
  EXPECT_EQ(entry.parameters[1].second.offset, 8u);
  EXPECT_EQ(entry.parameters[2].second.offset, 32u);
  EXPECT_EQ(module_complaint(module_of(".align 8 .visible .global .b8 g;")),
            "line 4: found '.visible' where a state space behind .align was expected");
}

TEST(PtxParser, RefusesVariablesThatItDoesNotModel) {
  const auto refused = [](const std::string& text) { return module_complaint(module_of(text)); };
  const auto line = [](const std::string& rest) { return "line " + std::to_string(test::kLinesBeforeText + 1) + rest; };
  EXPECT_EQ(refused(".global .u64 p = there;"),
            line(": found 'there' where a variable that the module has declared was expected"));
  EXPECT_EQ(refused(".global .u32 x; .global .u32 p = x;"), line(": the address of a variable does not fit a .u32"));
  EXPECT_EQ(refused(".global .u32 x; .global .u64 p = 0xff(x);"),
            line(": a byte of the address of a variable does not fit a .u64"));
  EXPECT_EQ(refused(".global .u32 x; .global .u8 p = 0x1ff(x);"),
            line(": found '0x1ff' where a mask of one byte before '(' was expected"));
  EXPECT_EQ(refused(".shared .u32 x; .global .u64 p = x;"), line(": 'x' has no address that a module may hold"));
  EXPECT_EQ(refused(".global .u8 x = 256;"), line(": 256 does not fit a .u8"));
  EXPECT_EQ(refused(".global .s8 x = -129;"), line(": -129 does not fit a .s8"));
  EXPECT_EQ(refused(".global .u32 x = 1.5;"), line(": found '1.5' as the value of a .u32"));
  EXPECT_EQ(refused(".global .f32 x = 1.5e;"), line(": found '1.5e', which is no number of 64 bits"));
  EXPECT_EQ(refused(".global .f32 x = 0d3FF8000000000000;"),
            line(": found '0d3FF8000000000000' as the value of a .f32"));
  EXPECT_EQ(refused(".global .b8 x[2] = {1, 2, 3};"), line(": there are more values than the 2 elements"));
  EXPECT_EQ(refused(".shared .b32 x = 1;"), line(": only .global and .const variables have initial values"));
  EXPECT_EQ(refused(".shared .b8 x[];"), line(": 'x' has no size; .extern .shared gives it what the launch asks for"));
  EXPECT_EQ(refused(".extern .global .b8 x[4];"),
            line(": 'x' is defined in another module; only .extern .shared name[] is modelled"));
  EXPECT_EQ(refused(".global .texref t;"), line(": found '.texref' in a declaration, which is not modelled"));
  EXPECT_EQ(refused(".global .attribute(.managed) .u32 x;"),
            line(": found '.attribute' in a declaration, which is not modelled"));
  EXPECT_EQ(refused(".global .align 3 .u32 x;"), line(": found '3' where a power of two as alignment was expected"));
  EXPECT_EQ(refused(".global .v4 .f64 x;"), line(": a vector of 4 x .f64 has more than 128 bits"));
  EXPECT_EQ(refused(".global .u32 x; .shared .u32 x;"), line(": 'x' is declared twice"));
  EXPECT_EQ(refused(".global .b8 x[65536][65536];"), line(": an array this large is no GPU's"));
  EXPECT_EQ(refused(".shared .b8 x[16777217];"),
            line(": 'x' of 16777217 bytes brings its state space to 16777217; 16777216 is the most"));
  EXPECT_EQ(refused(".entry k(.param .b8 x[40000]) { ret; }"),
            line(": 'x' of 40000 bytes brings its state space to 40000; 32764 is the most"));
  EXPECT_EQ(refused(".global .u32 x; .entry k() { .shared .u32 x; ret; }"),
            line(": 'x' names another variable or parameter too; each needs a name of its own"));
}

TEST(PtxParser, RefusesDirectivesByName) {
  const auto refused = [](const std::string& text) {
    const std::string what = module_complaint(module_of(text));
    return what.substr(std::min(what.find(": ") + 2, what.size()));
  };
  EXPECT_EQ(refused(".branchtargets a;"), "the directive '.branchtargets' is not modelled");
  EXPECT_EQ(refused(".func f() { ret;"),
            "found the end of the text where an instruction, a label, a declaration or '}' was expected");
  EXPECT_EQ(refused(".visible .tex .u32 t;"), "found '.tex' behind .visible, which is not modelled");
  EXPECT_EQ(refused(".entry k() .maxnctas 3 { ret; }"),
            "the directive '.maxnctas' before an entry's body is not modelled");
  EXPECT_EQ(refused(".entry k() .maxntid 1024, 2 { ret; }"),
            ".maxntid of 1024 x 2 x 1 threads; a CTA has 1024 at most");
  EXPECT_EQ(refused(".entry k();"), "found ';' where the entry's body in braces was expected");
  EXPECT_EQ(refused(".entry k() { ret; } .entry k() { ret; }"), "'k' is declared twice");
  EXPECT_EQ(refused(".pragma \"surprise 3\";"), "the pragma 'surprise 3' is not modelled");
  EXPECT_EQ(refused("@@DWARF"), "found '@' where a directive of the module was expected");
  EXPECT_EQ(refused("#pragma"), "found '#', which begins nothing in PTX");
  EXPECT_EQ(refused("/* never closed"), "the comment that begins here has no end");
  EXPECT_EQ(refused(".pragma \"nounroll"), "a string has no end on its line");
  EXPECT_EQ(refused(".entry k() { ret;"),
            "found the end of the text where an instruction, a label, a declaration or '}' was expected");
}

TEST(PtxParser, SplitsOpcodesAtTheirDots) {
  const Parsed parsed = body(
      "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;\n"
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], "
      "[%r4];");
  EXPECT_EQ(parsed.at(0).opcode, "mbarrier.try_wait.parity.shared::cta.b64");
  EXPECT_THAT(parsed.at(0).parts, ElementsAre("mbarrier", "try_wait", "parity", "shared::cta", "b64"));
  EXPECT_EQ(parsed.at(0).line, test::kLinesBeforeBody + 2);
  EXPECT_EQ(parsed.at(1).parts.back(), "mbarrier::complete_tx::bytes");
  EXPECT_EQ(complaint("add .s32 %r1, %r2, %r3;"),
            "line 1: found '.s32' where an operand (what modifies 'add' touches it) was expected");
}

TEST(PtxParser, ReadsGuards) {
  const Parsed parsed = body("@%p1 mov.u32 %r1, %r2;\n@!%p2 mov.u32 %r1, %r2;\nmov.u32 %r1, %r2;");
  EXPECT_EQ(parsed.at(0).guard, 1);
  EXPECT_FALSE(parsed.at(0).guard_negated);
  EXPECT_EQ(parsed.at(1).guard, 2);
  EXPECT_TRUE(parsed.at(1).guard_negated);
  EXPECT_EQ(parsed.at(2).guard, -1);
  EXPECT_EQ(complaint("ret;\n@%r1 ret;"), "line 2: found '%r1' where a predicate register was expected");
  EXPECT_EQ(complaint("@%p9 ret;"), "line 1: '%p9' is not declared, and is no special register");
}

TEST(PtxParser, ReadsImmediates) {
  const auto immediate = [](const std::string& spelt) {
    const Parsed parsed = body("mov.b64 %rd1, " + spelt + ";");
    const Operand operand = parsed.at(0).operands.at(1);
    EXPECT_EQ(operand.kind, Kind::kImmediate);
    return std::pair(operand.immediate, operand.floating);
  };
  EXPECT_EQ(immediate("42"), std::pair(std::uint64_t{42}, false));
  EXPECT_EQ(immediate("-1"), std::pair(~std::uint64_t{0}, false));
  EXPECT_EQ(immediate("-9223372036854775808"), std::pair(std::uint64_t{1} << 63, false));
  EXPECT_EQ(immediate("0xDEADbeefU"), std::pair(std::uint64_t{0xDEADBEEF}, false));
  EXPECT_EQ(immediate("0xFFFFFFFFFFFFFFFF"), std::pair(~std::uint64_t{0}, false));
  EXPECT_EQ(immediate("0755"), std::pair(std::uint64_t{0755}, false));
  EXPECT_EQ(immediate("0b101"), std::pair(std::uint64_t{5}, false));
  EXPECT_EQ(immediate("0"), std::pair(std::uint64_t{0}, false));
  EXPECT_EQ(immediate("WARP_SZ"), std::pair(std::uint64_t{32}, false));
  EXPECT_EQ(immediate("0f3F800000"), std::pair(std::uint64_t{0x3F800000}, true));
  EXPECT_EQ(immediate("-0f3F800000"), std::pair(std::uint64_t{0xBF800000}, true));
  EXPECT_EQ(immediate("0dBff0000000000000"), std::pair(std::uint64_t{0xBFF0000000000000}, true));
}

TEST(PtxParser, RefusesNumbersThatAreNone) {
  const auto refused = [](const std::string& spelt) { return complaint("mov.b64 %rd1, " + spelt + ";"); };
  EXPECT_EQ(refused("18446744073709551616"), "line 1: found '18446744073709551616', which is no integer of 64 bits");
  EXPECT_EQ(refused("-9223372036854775809"),
            "line 1: found '9223372036854775809' where a number behind '-' that fits 64 bits was expected");
  EXPECT_EQ(refused("08"), "line 1: found '08', which is no integer of 64 bits");
  EXPECT_EQ(refused("0x"), "line 1: found '0x', which is no integer of 64 bits");
  EXPECT_EQ(refused("12abc"), "line 1: found '12abc', which is no integer of 64 bits");
  EXPECT_EQ(refused("0f3F80"), "line 1: found '0f3F80'; 0f and 8 hexadecimal digits would do");
  EXPECT_EQ(refused("-%r1"), "line 1: found '%r1' where a number behind '-' was expected");
  EXPECT_EQ(refused("(1+2)"),
            "line 1: found '(' in an operand; constant expressions are not read, only their value would do");
}

TEST(PtxParser, ReadsAddresses) {
  const Parsed parsed = body(
      ".shared .b8 tile[64];\n"
      "ld.shared.b32 %r1, [%r2];\n"
      "ld.shared.b32 %r1, [%r2+16];\n"
      "ld.shared.b32 %r1, [%r2+-4];\n"
      "ld.shared.b32 %r1, [%r2 - 8];\n"
      "ld.shared.b32 %r1, [tile+12];\n"
      "ld.shared.b32 %r1, [4096];\n"
      "mov.u64 %rd1, tile+12;\n"
      "cp.async.bulk.tensor.3d.im2col [%r1], [%rd1, {%r2, -1, %r4}, {%rs1}], [%r5+8];");
  const auto address = [&](std::size_t i) { return parsed.at(i).operands.at(1); };
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(address(i).kind, Kind::kAddress) << i;
  EXPECT_EQ(address(0).elements.at(0).kind, Kind::kRegister);
  EXPECT_EQ(address(0).offset, 0);
  EXPECT_EQ(address(1).offset, 16);
  EXPECT_EQ(address(2).offset, -4);
  EXPECT_EQ(address(3).offset, -8);
  EXPECT_EQ(address(4).elements.at(0).kind, Kind::kSymbol);
  EXPECT_EQ(address(4).elements.at(0).name, "tile");
  EXPECT_EQ(address(4).offset, 12) << "of the address, and not of its symbol";
  EXPECT_EQ(address(4).elements.at(0).offset, 0);
  EXPECT_EQ(address(5).elements.at(0).immediate, 4096u);
  EXPECT_EQ(address(6).kind, Kind::kSymbol);
  EXPECT_EQ(address(6).offset, 12);
  const Operand tensor = address(7);
  ASSERT_THAT(tensor.elements, SizeIs(3));
  EXPECT_EQ(tensor.elements[1].kind, Kind::kVector);
  ASSERT_THAT(tensor.elements[1].elements, SizeIs(3));
  EXPECT_EQ(tensor.elements[1].elements[1].immediate, ~std::uint64_t{0});
  EXPECT_THAT(tensor.elements[2].elements, SizeIs(1));
  EXPECT_EQ(parsed.at(7).operands.at(2).offset, 8);

  EXPECT_EQ(complaint("ld.b32 %r1, [%rd1+%rd2];"), "line 1: found '%rd2' where an offset was expected");
  EXPECT_EQ(complaint("ld.b32 %r1, [nowhere];"), "line 1: 'nowhere' is not declared, and is no special register");
  EXPECT_EQ(complaint("ld.b32 %r1, [];"), "line 1: found ']' where an operand was expected");
  EXPECT_EQ(complaint("ld.b32 %r1, [%rd1, %r2];"), "line 1: found '%r2' where '{' before a vector was expected");
}

TEST(PtxParser, ReadsVectorsPairsSinksAndSpecialRegisters) {
  const Parsed parsed = body(
      "mov.b64 {%r1, _}, %rd1;\n"
      "shfl.sync.idx.b32 %r1|%p1, %r2, 0, 31, -1;\n"
      "elect.sync _|%p2, -1;\n"
      "setp.lt.and.s32 %p1 | %p2, %r1, %r2, !%p3;\n"
      "mov.u32 %r1, %tid.x;\n"
      "mbarrier.arrive.shared.b64 _, [%r1];\n"
      "mov.b64 %rd1, %clock64;");
  EXPECT_EQ(parsed.at(0).operands.at(0).kind, Kind::kVector);
  EXPECT_EQ(parsed.at(0).operands.at(0).elements.at(1).kind, Kind::kSink);
  const Operand pair = parsed.at(1).operands.at(0);
  EXPECT_EQ(pair.kind, Kind::kRegister);
  EXPECT_EQ(parsed.entry().registers.at(static_cast<std::size_t>(pair.reg)), RegisterClass::k32);
  EXPECT_EQ(pair.paired, 1);
  EXPECT_EQ(parsed.at(2).operands.at(0).kind, Kind::kSink);
  EXPECT_EQ(parsed.at(2).operands.at(0).paired, 2);
  EXPECT_EQ(parsed.at(3).operands.at(0).paired, 2);
  EXPECT_TRUE(parsed.at(3).operands.at(3).negated);
  EXPECT_EQ(parsed.at(4).operands.at(1).kind, Kind::kSpecialRegister);
  EXPECT_EQ(parsed.at(4).operands.at(1).name, "%tid.x");
  EXPECT_EQ(parsed.at(5).operands.at(0).kind, Kind::kSink);
  EXPECT_EQ(parsed.at(5).operands.at(0).paired, -1);
  EXPECT_EQ(parsed.at(6).operands.at(1).name, "%clock64");

  EXPECT_EQ(complaint("mov.u32 %r1, %r2.x;"), "line 1: found '%r2.x'; only vector registers have components, .x to .w");
  EXPECT_EQ(complaint(".reg .v2 .b32 v; mov.u32 %r1, v.z;"),
            "line 1: found 'v.z'; only vector registers have components, .x to .w");
  EXPECT_EQ(complaint("mov.b64 %rd1, {%r1, %tid};"), "line 1: found '%tid' where a vector's element was expected");
  EXPECT_EQ(complaint("mov.u32 %r1, %nonsense;"), "line 1: '%nonsense' is not declared, and is no special register");
  EXPECT_EQ(complaint("mov.pred %p1, !%r1;"), "line 1: found '%r1' where a predicate register was expected");
  EXPECT_EQ(complaint("mov.b64 {%r1, {%r2}}, %rd1;"), "line 1: found '{' where a vector's element was expected");
  EXPECT_EQ(complaint("mov.b64 {}, %rd1;"), "line 1: found '}' where an operand was expected");
  EXPECT_EQ(complaint("mov.u32 %r1 %r2;"), "line 1: found '%r2' where ';' behind 'mov.u32' was expected");
  EXPECT_EQ(complaint("mov.u32 %r1,;"), "line 1: found ';' where an operand was expected");
}

TEST(PtxParser, DeclaresRegistersInRangesAndLists) {
  const auto module = parse_whole(
      in_body(".reg .pred p; .reg .b16 a, b<2>; .reg .f32 %f<3>; .reg .s64 w; .reg .b128 q; .reg .u8 c;\n"
              "mov.b32 %f2, %f0; mov.b16 b1, a; mov.b64 w, w; mov.b128 q, q; mov.b16 c, c; mov.pred p, p;"));
  const Entry& entry = module->entries[0];
  using R = RegisterClass;
  EXPECT_THAT(entry.registers,
              ElementsAre(R::kPredicate, R::k16, R::k16, R::k16, R::k32, R::k32, R::k32, R::k64, R::k128, R::k16));
  EXPECT_EQ(entry.instructions[0].operands[0].reg, 6);
  EXPECT_EQ(entry.instructions[0].operands[1].reg, 4);
  EXPECT_EQ(entry.instructions[1].operands[0].reg, 3);
  EXPECT_EQ(complaint("mov.u32 %r1, %r16;"), "line 1: '%r16' is not declared, and is no special register");
  EXPECT_EQ(complaint("mov.u32 %r1, %r01;"), "line 1: '%r01' is not declared, and is no special register");
  EXPECT_EQ(complaint(".reg .b32 %r<4>;"), "line 1: '%r' is declared twice");
  EXPECT_EQ(complaint(".reg .b32 %r3;"), "line 1: '%r3' is declared twice");
  EXPECT_EQ(complaint(".reg .v4 .f64 x;"), "line 1: vectors of 4 registers of type '.f64' are not modelled");
  EXPECT_EQ(complaint(".reg .v2 .f32 x<3>;"), "line 1: ranges of vector registers are not modelled; one name each is");
  EXPECT_EQ(complaint(".reg .b32 x<999999>;"), "line 1: the module has more than 1000000 registers");
  EXPECT_EQ(complaint(".reg .b32 x<1000001>;"),
            "line 1: 1000001 as a number of registers is too large; 1000000 would do");
}

TEST(PtxParser, ScopesRegistersByBraces) {
  const Parsed parsed = body(
      "mov.u32 %r1, 1;\n"
      "{ .reg .b32 %r1, t; mov.u32 %r1, 2; mov.u32 t, %r2; { .reg .b32 %r<3>; mov.u32 %r1, 3; } mov.u32 %r1, 4; }\n"
      "{ .reg .b32 t; mov.u32 t, 5; .reg .pred %r12<2>; mov.pred %r121, -1; mov.u32 %r12, 0; }\n"
      "mov.u32 %r1, 6;");
  std::vector<int> defined;
  for (const Instruction& instruction : parsed.entry().instructions)
    if (!instruction.operands.empty()) defined.push_back(instruction.operands[0].reg);
  const int r1 = defined[0], inner = defined[1];
  EXPECT_NE(inner, r1);
  EXPECT_EQ(defined[4], inner) << "an innermost range hides it only in its own braces";
  EXPECT_NE(defined[3], inner);
  EXPECT_NE(defined[5], defined[2]) << "two scopes, two registers t";
  EXPECT_EQ(parsed.entry().registers.at(static_cast<std::size_t>(defined[6])), RegisterClass::kPredicate);
  EXPECT_EQ(defined[7], r1 + 11);
  EXPECT_EQ(defined[8], r1);
  EXPECT_EQ(complaint("{ .reg .b32 t; }\nmov.u32 t, 1;"), "line 2: 't' is not declared, and is no special register");
  EXPECT_EQ(complaint(std::string(63, '{') + std::string(63, '}')), "");
  EXPECT_EQ(complaint(std::string(64, '{') + std::string(64, '}')), "line 1: braces are nested deeper than 64");
  EXPECT_EQ(complaint(std::string(100000, '{')), "line 1: braces are nested deeper than 64");
}

TEST(PtxParser, ResolvesBranchesInTheirScopes) {
  const Parsed parsed = body(
      "bra.uni done;\n"                                              // 0
      "{ wait: @%p1 bra wait; bra done; }\n"                         // 1, 2
      "{ wait: nanosleep.u32 20; @!%p1 bra wait; { bra wait; } }\n"  // 3, 4, 5
      "done: ret;");                                                 // 6
  EXPECT_THAT(parsed.at(0).targets, ElementsAre(6));
  EXPECT_EQ(parsed.at(0).operands.at(0).name, "done");
  EXPECT_THAT(parsed.at(1).targets, ElementsAre(1));
  EXPECT_THAT(parsed.at(2).targets, ElementsAre(6));
  EXPECT_THAT(parsed.at(4).targets, ElementsAre(3));
  EXPECT_THAT(parsed.at(5).targets, ElementsAre(3));
  EXPECT_EQ(complaint("{ inside: ret; }\nbra inside;"),
            "line 2: there is no label 'inside' that can be seen from here");
  EXPECT_EQ(complaint("a: ret;\na: ret;"), "line 2: the label 'a' is declared twice");
  EXPECT_EQ(complaint("bra a, b;"), "line 1: 'bra' with 2 operands");
}

TEST(PtxParser, ResolvesBranchTables) {
  const Parsed parsed = body(
      "$L_brx_0: .branchtargets\n one, two,\n one;\n"
      "brx.idx %r1, $L_brx_0;\n"
      "one: mov.u32 %r1, 1;\n"
      "two: ret;");
  EXPECT_THAT(parsed.at(0).targets, ElementsAre(1, 2, 1));
  EXPECT_EQ(parsed.at(0).operands.at(0).kind, Kind::kRegister);
  EXPECT_EQ(complaint("one: ret;\nbrx.idx %r1, one;"), "line 2: 'one' is a label; brx.idx needs .branchtargets");
  EXPECT_EQ(complaint("t: .branchtargets t;\nbra t;"), "line 2: 't' is a list of .branchtargets; bra needs a label");
  EXPECT_EQ(complaint("t: .branchtargets gone;\nbrx.idx %r1, t;"),
            "line 1: there is no label 'gone' that can be seen from here");
  EXPECT_EQ(complaint("brx.idx %r1;"), "line 1: 'brx.idx' with 1 operands");
}

TEST(PtxParser, EndsAnEntryThatWouldFallOffItsEnd) {
  const auto last = [](const std::string& statements) {
    const Parsed parsed = body(statements);
    return std::string(parsed.entry().instructions.back().opcode) + " " +
           std::to_string(parsed.entry().instructions.size());
  };
  EXPECT_EQ(last(""), "ret 1");
  EXPECT_EQ(last("ret;"), "ret 1");
  EXPECT_EQ(last("mov.u32 %r1, 1;"), "ret 2");
  EXPECT_EQ(last("@%p1 ret;"), "ret 2");
  EXPECT_EQ(last("bra end; ret; end:"), "ret 3");
  EXPECT_EQ(last("a: bra.uni a;"), "bra.uni 1");
  EXPECT_EQ(last("trap;"), "trap 1");
}

TEST(PtxParser, TellsWhereAnInstructionComesFrom) {
  const auto module = parse_ptx(in_body("mov.u32 %r1, 1;\n"
                                        ".loc 1 80 5\n"
                                        "mov.u32 %r1, 2;\n"
                                        ".loc 2 7 3, function_name $L__info_string0+4, inlined_at 1 81 9\n"
                                        "mov.u32 %r1, 3;\n",
                                        ".reg .b32 %r<2>;") +
                                R"(
	.file	1 "kernel.cu", 1700000000, 1234
	.file	2 "memory.cuh"
	.section	.debug_str
	{
$L__info_string0:
.b8 95,90,78,0
.b32 $L__info_string0, .debug_str+4
.b64 $L__info_string0-$L__info_string0, -1
	}
)");
  const auto& instructions = module->entries.at(0).instructions;
  EXPECT_EQ(instructions[0].source, SourceLine{});
  EXPECT_EQ(instructions[1].source, (SourceLine{1, 80}));
  EXPECT_EQ(instructions[2].source, (SourceLine{2, 7}));
  EXPECT_THAT(module->files, ElementsAre("", "kernel.cu", "memory.cuh"));
  EXPECT_EQ(complaint("ret;\n.loc 3 1 1\nret;"), "line 2: this .loc is in file 3, which no .file names");
}

// A call keeps its callee, its results and its arguments. Registers and numbers that it passes go through the frame.
TEST(PtxParser, KeepsCallsWithTheirPlacesInTheFrame) {
  const auto parsed = parse_ptx(module_of(R"(
.extern .func (.param .b32 func_retval0) vprintf ( .param .b64 vprintf_param_0, .param .b64 vprintf_param_1 );
.func (.reg .b32 %o) plain(.reg .b32 %i) { mov.b32 %o, %i; ret; }
.visible .entry k() {
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  { .param .b64 param0; st.param.b64 [param0+0], %rd1; .param .b32 retval0;
  call.uni (retval0), vprintf, (param0, 7); ld.param.b32 %r1, [retval0]; }
  { .param .b64 param0; st.param.b64 [param0], 1; }
  call (%r1), plain, (%r0);
})"));
  const auto& instructions = parsed->entries[0].instructions;
  std::vector<std::string> opcodes;
  for (const Instruction& instruction : instructions) opcodes.emplace_back(instruction.opcode);
  EXPECT_THAT(opcodes, ElementsAre("st.local.b64", "st.local.b64", "call.uni", "ld.local.b32", "st.local.b64",
                                   "st.local.b32", "call", "ld.local.b32", "ret"));
  const Instruction& call = instructions[2];
  EXPECT_EQ(call.operands.at(0).name, "vprintf");
  ASSERT_THAT(call.operands.at(1).elements, SizeIs(1));
  ASSERT_THAT(call.operands.at(2).elements, SizeIs(2));
  EXPECT_EQ(call.operands[2].elements[0].name, instructions[0].operands[0].elements[0].name);
  EXPECT_NE(instructions[4].operands[0].elements[0].name, instructions[0].operands[0].elements[0].name);
  ASSERT_THAT(parsed->functions, SizeIs(2));
  EXPECT_FALSE(parsed->functions[0].defined);
  EXPECT_EQ(parsed->functions[1].name, "plain");
  ASSERT_THAT(parsed->functions[1].instructions, SizeIs(4));
  EXPECT_EQ(parsed->functions[1].instructions[2].opcode, "st.local.b32");
  EXPECT_EQ(complaint("call nothing, ();"), "line 1: 'nothing' is not declared");
}

TEST(PtxParser, ShowsBytesOutsideAsciiEscapedAndClipped) {
  EXPECT_EQ(complaint("mov.u32 %r1, \xC3\xA9;"), "line 1: found '\\xc3', which begins nothing in PTX");
  const std::string what = complaint("mov.u32 %r1, " + std::string(5000, 'x') + ";");
  EXPECT_LT(what.size(), 200u);
}

// The contents of one entry, and functions that no entry calls, do not affect the other entries.
TEST(PtxParser, KeepsTheReasonOfARefusedEntryAndReadsOn) {
  const auto module = parse_ptx(module_of(R"(.visible .func (.reg .u32 %o) later(.param .b32 a);
.func (.reg .u32 %o) later(.param .b32 a) { .shared .b32 x; { surprising.u32 %o, {1}; } }
.entry first(.param .texref t) .pragma "nounroll"; { { .reg .b32 %r<2>; } ret; }
.entry second() { .reg .b32 %r<2>; mov.u32 %r1, {1, {2}}; /* } */ .pragma "}"; ~x*`; }
.entry third(.param .b64 t) { .reg .b32 %r<2>; .reg .b64 %rd<2>; mov.b32 %r1, 0; ld.param.b64 %rd1, [t]; ret; }
.entry fourth() { .reg .b32 %r<2>; ret; } .entry fifth() { call later, (); })"));
  const auto& entries = module->entries;
  ASSERT_THAT(entries, SizeIs(5));
  EXPECT_EQ(entries[0].name, "first");
  EXPECT_EQ(entries[0].refusal, "found '.texref' in a declaration, which is not modelled");
  EXPECT_EQ(entries[0].refusal_line, test::kLinesBeforeText + 3);
  EXPECT_THAT(entries[0].parameters, IsEmpty());
  EXPECT_EQ(entries[1].refusal, "found '{' where a vector's element was expected");
  EXPECT_EQ(entries[1].line, test::kLinesBeforeText + 4);
  EXPECT_THAT(entries[1].registers, IsEmpty());
  for (const std::size_t i : {2, 3}) EXPECT_EQ(entries[i].refusal, "");
  EXPECT_THAT(entries[2].instructions, SizeIs(3));
  EXPECT_THAT(entries[4].refusal, testing::HasSubstr("'later' has 1 result, and 0 are given"));
  ASSERT_THAT(module->functions, SizeIs(1));
  EXPECT_EQ(module->functions[0].refusal, "") << "its instructions are looked at when an entry calls it";
}

}  // namespace
}  // namespace kernelwright::emulator
