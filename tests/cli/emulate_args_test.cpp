// kernelwright emulate --args: the forms of an argument, files back and forth, and what is refused.
#include <cstring>
#include <utility>
#include <vector>

#include "command_fixture.h"
#include "kernelwright/verify/formats/npy.h"

namespace kernelwright {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class EmulateArgs : public Command {
 protected:
  /// y[i] = x[i] * scale + pair.second for i < n.
  std::string scale_ptx() const {
    return write("scale.ptx", R"(.version 8.8
.target sm_90a
.address_size 64
.visible .entry other() { ret; }
.visible .entry scale(.param .u64 x, .param .u64 y, .param .u32 n, .param .f32 factor, .param .align 8 .b8 pair[16])
{
  .reg .b32 %r<4>; .reg .b64 %rd<8>; .reg .f32 %f<8>; .reg .pred %p<2>;
  ld.param.u64 %rd0, [x]; ld.param.u64 %rd1, [y]; ld.param.u32 %r0, [n]; ld.param.f32 %f0, [factor];
  ld.param.f32 %f1, [pair+8];
  mov.u32 %r1, %tid.x; setp.ge.u32 %p0, %r1, %r0;
  @%p0 bra DONE;
  mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd0, %rd2; add.s64 %rd4, %rd1, %rd2;
  ld.global.f32 %f2, [%rd3]; fma.rn.f32 %f3, %f2, %f0, %f1; st.global.f32 [%rd4], %f3;
DONE:
  ret;
}
)");
  }
  /// An entry of three parameters that does nothing.
  std::string idle_ptx() const {
    return write("idle.ptx",
                 ".version 8.8\n.target sm_90a\n.address_size 64\n"
                 ".visible .entry idle(.param .u64 p, .param .u32 n, .param .align 4 .b8 s[8]) { ret; }\n");
  }
  /// Runs idle with `first` for p, and reads what the command wrote to back.npy.
  NpyBytes round_trip(const std::string& first, std::uint64_t seed = 0) const {
    const CommandResult result =
        run({"emulate", idle_ptx(), "--args", "[" + first + R"(, {"u32": 1}, {"hex": "0102030405060708"}])", "--seed",
             std::to_string(seed)});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return read_npy_bytes(path("back.npy"));
  }
  std::string back() const { return R"("out": ")" + path("back.npy") + R"("})"; }
  void refused(const std::string& list, const std::vector<std::string>& parts) const {
    expect_refused({"emulate", idle_ptx(), "--args", list}, parts);
  }
};

TEST_F(EmulateArgs, BuffersComeFromFilesAndGoBackToFiles) {
  std::filesystem::create_directory(path("data"));
  write_npy<float>(path("data/x.npy"), {2, 2}, {1, 2, 3, 4});
  const std::string args = write("data/args.json", R"([
    {"npy": "x.npy"}, {"zeros": [5], "dtype": "f32", "out": "y.npy"}, {"i32": 4}, {"f32": 0.5},
    {"hex": "00000000 00000000 0000803f 00000000"}])");
  const CommandResult result = run({"emulate", scale_ptx(), "scale", "--args", args, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  const NpyArray<float> y = read_npy<float>(path("data/y.npy"));
  EXPECT_THAT(y.shape, ElementsAre(5));
  EXPECT_THAT(y.values, ElementsAre(1.5f, 2, 2.5f, 3, 0)) << "paths begin at the file's folder";
  const JsonValue report = JsonValue::parse(result.out);
  EXPECT_EQ(report.at("/buffers/0/changed").as_int(), 0);
  EXPECT_EQ(report.at("/buffers/1/parameter").as_string(), "y");
  EXPECT_EQ(report.at("/buffers/1/out").as_string(), path("data/y.npy"));
}

TEST_F(EmulateArgs, FilesKeepTheirBytesOrAreRoundedToTheDtype) {
  write_npy<float>(path("x.npy"), {3}, {1, -2, 1.00390625f});
  const std::string file = R"({"npy": ")" + path("x.npy") + R"(", )";
  const NpyBytes same = round_trip(file + back());
  EXPECT_EQ(same.descr, "<f4");
  EXPECT_EQ(same.bytes.size(), 12u);
  const NpyBytes rounded = round_trip(file + R"("dtype": "bf16", )" + back());
  EXPECT_EQ(rounded.descr, "<u2");
  std::vector<std::uint16_t> bits(3);
  ASSERT_EQ(rounded.bytes.size(), 6u);
  std::memcpy(bits.data(), rounded.bytes.data(), 6);
  EXPECT_THAT(bits, ElementsAre(0x3f80, 0xc000, 0x3f80)) << "a tie goes to the even one";
  std::filesystem::copy_file(path("back.npy"), path("bits.npy"));
  const NpyBytes again = round_trip(R"({"npy": ")" + path("bits.npy") + R"(", "dtype": "bf16", )" + back());
  EXPECT_EQ(again.bytes, rounded.bytes) << "bits are taken as they are";
  EXPECT_THAT(again.shape, ElementsAre(3));
}

TEST_F(EmulateArgs, EveryDtypeHasItsSizeAndItsWordOfNumpy) {
  struct Row {
    const char *dtype, *descr;
    std::size_t bytes;
  };
  for (const auto& [dtype, descr, bytes] :
       {Row{"f64", "<f8", 8}, Row{"f32", "<f4", 4}, Row{"f16", "<f2", 2}, Row{"bf16", "<u2", 2}, Row{"e4m3", "|u1", 1},
        Row{"e5m2", "|u1", 1}, Row{"i64", "<i8", 8}, Row{"i32", "<i4", 4}, Row{"i16", "<i2", 2}, Row{"i8", "|i1", 1},
        Row{"u64", "<u8", 8}, Row{"u32", "<u4", 4}, Row{"u16", "<u2", 2}, Row{"u8", "|u1", 1}}) {
    const std::string rest = std::string(R"(, "dtype": ")") + dtype + "\", ";
    const NpyBytes zeros = round_trip(R"({"zeros": [2, 3])" + rest + back());
    EXPECT_EQ(zeros.descr, descr) << dtype;
    EXPECT_EQ(zeros.bytes.size(), 6 * bytes) << dtype;
    EXPECT_THAT(zeros.bytes, Each(std::byte{0})) << dtype;
    const NpyBytes random = round_trip(R"({"random": [64])" + rest + back());
    EXPECT_NE(random.bytes, std::vector<std::byte>(64 * bytes)) << dtype;
  }
}

TEST_F(EmulateArgs, RandomContentsHangOnTheSeedAlone) {
  const std::string plain = R"({"random": [512], "dtype": "f32", )" + back();
  const std::string seeded = R"({"random": [512], "dtype": "f32", "seed": 7, )" + back();
  const NpyBytes first = round_trip(plain), other = round_trip(plain, 1);
  EXPECT_EQ(round_trip(plain).bytes, first.bytes);
  EXPECT_NE(other.bytes, first.bytes);
  EXPECT_EQ(round_trip(seeded).bytes, round_trip(seeded, 1).bytes);
  std::vector<float> values(512);
  std::memcpy(values.data(), first.bytes.data(), first.bytes.size());
  for (const float value : values) {
    EXPECT_GE(value, -1);
    EXPECT_LT(value, 1);
  }
}

TEST_F(EmulateArgs, AStructByValueComesFromAFileToo) {
  write_npy<float>(path("s.npy"), {2}, {1, 2});
  const std::string s = R"({"npy": ")" + path("s.npy") + R"(", "by_value": true})";
  const CommandResult result = run({"emulate", idle_ptx(), "--args", "[null, {\"u32\": 1}, " + s + "]", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(JsonValue::parse(result.out).at("/buffers").elements().empty());
  refused("[null, " + s + R"(, {"hex": "0000000000000000"}])",
          {"--args: /1 (parameter n)", "has 8 bytes and the parameter takes 4"});
}

TEST_F(EmulateArgs, NumbersOfSmallFloatsStayWithinTheirRange) {
  const std::string file = write("half.ptx", R"(.version 8.8
.target sm_90a
.address_size 64
.visible .entry half(.param .u64 out, .param .b16 value)
{
  .reg .b16 %h<2>; .reg .b64 %rd<2>;
  ld.param.u64 %rd0, [out]; ld.param.b16 %h0, [value]; st.global.b16 [%rd0], %h0;
  ret;
}
)");
  const auto words = [&](const std::string& value) {
    const std::string out = R"([{"zeros": [1], "dtype": "u16", "out": ")" + path("y.npy") + "\"}, ";
    return std::vector<std::string>{"emulate", file, "--args", out + value + "]"};
  };
  for (const auto& [value, bits] : {std::pair{R"({"f16": -65504})", 0xfbff}, {R"({"bf16": 1})", 0x3f80}}) {
    EXPECT_EQ(run(words(value)).exit_code, 0) << value;
    const NpyBytes y = read_npy_bytes(path("y.npy"));
    ASSERT_EQ(y.bytes.size(), 2u);
    EXPECT_EQ(std::to_integer<int>(y.bytes[0]) | std::to_integer<int>(y.bytes[1]) << 8, bits) << value;
  }
  expect_refused(words(R"({"f16": 70000})"), {"/1/f16 (parameter value): is 70000, which is too large for f16"});
}

TEST_F(EmulateArgs, PointersStandInStructs) {
  const std::string file = write("struct.ptx", R"(.version 8.8
.target sm_90a
.address_size 64
.visible .entry copy(.param .align 8 .b8 p[24])
{
  .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [p+16]; ld.param.u64 %rd1, [p]; ld.param.u32 %r0, [p+8];
  ld.global.u32 %r1, [%rd0]; add.u32 %r2, %r1, %r0; st.global.u32 [%rd1], %r2;
  ret;
}
)");
  write_npy<std::int32_t>(path("x.npy"), {1}, {40});
  const std::string args = write("struct.json", R"([{"hex": "0000000000000000 02000000 00000000 0000000000000000",
    "pointers": {"16": {"npy": "x.npy"}, "0": {"zeros": [1], "dtype": "i32", "out": "y.npy"}}}])");
  const CommandResult result = run({"emulate", file, "--args", args, "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_THAT(read_npy<std::int32_t>(path("y.npy")).values, ElementsAre(42));
  EXPECT_EQ(JsonValue::parse(result.out).at("/buffers/0/parameter").as_string(), "p+16");

  const std::string start = R"([null, {"u32": 1}, {"hex": "0000000000000000", "pointers": )";
  refused(start + "7}]", {"--args: /2/pointers (parameter s): is a number; offsets with buffers"});
  for (const char* offset : {"1", "-1", "x", "", "18446744073709551615"})
    refused(start + "{\"" + offset + "\": null}}]", {"is no offset of 8 bytes in a parameter of 8 bytes"});
  refused(start + R"({"0": {"i32": 1}}}])", {"/2/pointers/0 (parameter s+0): a number of type i32 has 4 bytes"});
  refused(R"([{"npy": ")" + path("x.npy") + R"(", "pointers": {}}, {"u32": 1}, {"hex": "0000000000000000"}])",
          {"/0/pointers (parameter p): is for structs"});
}

TEST_F(EmulateArgs, WhatIsWrongIsNamedWithWhatIsAccepted) {
  const std::string rest = R"(, {"u32": 1}, {"hex": "0000000000000000"}])";
  refused("[null]", {"--args: has 1 arguments; idle takes 3: p (8 bytes), n (4 bytes)"});
  refused("{}", {"--args: is an object; a list"});
  refused("[", {"--args: ", "line 1"});
  expect_refused({"emulate", idle_ptx(), "--args", path("none.json")}, {"--args: ", "none.json cannot be read"});
  const std::string file = write("args.json", R"([null, {"f31": 1}, null])");
  expect_refused({"emulate", idle_ptx(), "--args", file},
                 {"args.json: /1/f31 (parameter n): is no form of an argument"});
  refused("[7" + rest, {"--args: /0 (parameter p): is a number; null, {\"i32\": 7}"});
  refused("[{}" + rest, {"/0 (parameter p): is an empty object"});
  refused(R"([{"i32": 1})" + rest, {"a number of type i32 has 4 bytes and the parameter takes 8"});
  refused(R"([{"i64": 1.5})" + rest, {"/0/i64 (parameter p): is 1.5; an integer is accepted"});
  refused(R"([{"i64": "1"})" + rest, {"/0/i64 (parameter p): is text; a number is accepted"});
  refused(R"([null, {"i32": 2147483648}, {"hex": "0000000000000000"}])", {"is outside the range of i32", "2147483648"});
  refused(R"([null, {"u32": -1}, {"hex": "0000000000000000"}])", {"is -1, which is outside the range of u32"});
  refused(R"([null, {"f32": 1e300}, {"hex": "0000000000000000"}])", {"which is too large for f32"});
  refused(R"([null, {"u32": 1}, {"hex": "00"}])", {"the text has 1 bytes and the parameter takes 8"});
  refused(R"([null, {"u32": 1}, {"hex": "0x00"}])", {"has the character 'x'"});
  refused(R"([null, {"u32": 1}, {"hex": "000"}])", {"has 3 digits"});
  refused(R"([null, null, {"hex": "0000000000000000"}])", {"a null pointer has 8 bytes and the parameter takes 4"});
}

TEST_F(EmulateArgs, WhatIsWrongWithABufferIsNamed) {
  const std::string rest = R"(, {"u32": 1}, {"hex": "0000000000000000"}])";
  refused(R"([{"zeros": [4]})" + rest, {"/0/dtype (parameter p): is missing; one of f64, f32, f16"});
  refused(R"([{"zeros": [4], "dtype": "float"})" + rest, {"/0/dtype (parameter p): is \"float\"; one of f64"});
  refused(R"([{"zeros": 4, "dtype": "f32"})" + rest, {"/0/zeros (parameter p): is a number; a shape is accepted"});
  refused(R"([{"zeros": [0], "dtype": "f32"})" + rest, {"has the dimension 0; integers from 1 on"});
  refused(R"([{"zeros": [1000000, 1000000], "dtype": "f32"})" + rest, {"takes more than 68719476736 bytes"});
  refused(R"([{"zeros": [4], "dtype": "f32", "seed": 1})" + rest, {"/0/seed (parameter p): is no word of this form"});
  refused(R"([{"random": [4], "dtype": "f32", "seed": -1})" + rest, {"/0/seed (parameter p): is -1"});
  refused(R"([{"npy": "none.npy"})" + rest, {"none.npy: cannot be read"});
  refused(R"([{"npy": 1})" + rest, {"/0/npy (parameter p): is a number; text is accepted"});
  for (const char* descr : {">f4", "<c8", "<M8", "|S4", "<f1", "|f4"}) {
    write_npy_bytes(path("odd.npy"), descr, {1}, std::vector<std::byte>(4));
    refused(R"([{"npy": ")" + path("odd.npy") + "\"}" + rest, {"odd.npy: holds elements of descr '", descr, "'<f4'"});
  }
  write_npy<std::int32_t>(path("i.npy"), {2}, {1, 2});
  const std::string i = R"([{"npy": ")" + path("i.npy") + "\"";
  refused(i + R"(, "dtype": "bf16"})" + rest, {"descr '<i4'; bf16 takes '<u2', or '<f4', which is rounded"});
  refused(i + R"(, "dtype": "f32"})" + rest, {"descr '<i4'; f32 takes '<f4'"});
  refused(i + R"(, "by_value": true, "out": "x.npy"})" + rest, {"/0/out (parameter p): is for buffers"});
  refused("[null, " + i.substr(1) + R"(}, {"hex": "0000000000000000"}])",
          {"/1 (parameter n): a buffer's address has 8 bytes"});
  const std::string idle = idle_ptx();
  expect_refused({"emulate", idle, "--args", "[]", "--params", "buffer"}, {"--args excludes --params"});
  expect_refused({"emulate", idle, "idle", "--entry", "idle"}, {"excludes"});
}

}  // namespace
}  // namespace kernelwright
