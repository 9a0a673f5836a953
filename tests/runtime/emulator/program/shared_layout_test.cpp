// Where shared variables lie, compared with the layout of ptxas 13.0 for the same modules: sizes as `ptxas -v` prints
// them, and addresses as immediates of the cubin for sm_80, where shared memory begins at 0.
#include "kernelwright/runtime/emulator/program/shared_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernelwright/runtime/emulator/emulator.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/ptx_text.h"

namespace kernelwright::emulator::shared_layout_test {
namespace {

using kernelwright::test::module_of;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

std::string dynamic(const std::string& name, int alignment) {
  return ".extern .shared .align " + std::to_string(alignment) + " .b8 " + name + "[];\n";
}

/// An entry that declares variables and takes the address of each of `names`.
std::string entry(const std::string& declarations, const std::vector<std::string>& names) {
  std::string text = ".visible .entry k() {\n.reg .b32 %r<9>;\n" + declarations + "\n";
  for (const std::string& name : names) text += "mov.u32 %r1, " + name + ";\n";
  return text + "ret;\n}\n";
}

/// A layout, and the module whose text its names view.
struct Laid : SharedLayout {
  decltype(parse_ptx("")) module;
};

Laid layout(const std::string& text) {
  auto module = parse_ptx(module_of(text));
  EXPECT_EQ(module->entries.at(0).refusal, "");
  SharedLayout made = lay_out_shared(*module, module->entries.at(0));
  return {std::move(made), std::move(module)};
}

TEST(SharedLayout, HasNoPlaceForWhatOtherEntriesDeclare) {
  const auto module = parse_ptx(module_of(dynamic("data", 1024) + entry("", {"data"}) +
                                          ".entry other() { .shared .align 4 .b8 own[4]; ret; }\n"));
  const SharedLayout here = lay_out_shared(*module, module->entries.at(0));
  EXPECT_EQ(here.static_bytes, 0u);
  EXPECT_EQ(here.offsets.at("data"), 0u);
  EXPECT_EQ(lay_out_shared(*module, module->entries.at(1)).static_bytes, 1024u) << "rounded up for `data`, used or not";
}

TEST(SharedLayout, PutsTheEntrysOwnBeforeTheModulesInTheOrderOfDeclaration) {
  const std::string module = dynamic("dyn", 16) +
                             ".shared .align 4 .b8 m1[36];\n.shared .align 256 .b8 m2[4];\n"
                             ".shared .align 4 .b8 m3[2000];\n";
  const std::string own = ".shared .align 8 .b8 s1[12]; .shared .align 64 .b8 s2[4]; .shared .align 4 .b8 s3[4];";
  const Laid all = layout(module + entry(own, {"s3", "m3", "m2", "s2", "dyn", "s1", "m1"}));
  EXPECT_EQ(all.static_bytes, 2272u);
  EXPECT_THAT(all.offsets, ElementsAre(Pair("dyn", 2272), Pair("m1", 72), Pair("m2", 256), Pair("m3", 260),
                                       Pair("s1", 0), Pair("s2", 64), Pair("s3", 68)));
  EXPECT_EQ(layout(module + entry("", {"dyn", "m2", "m1"})).static_bytes, 272u);
  EXPECT_EQ(layout(module + entry("", {"dyn"})).static_bytes, 0u);
}

TEST(SharedLayout, PutsVariablesThatNothingNamesBehindTheOthers) {
  const std::string own = ".shared .align 8 .b8 s1[12]; .shared .align 64 .b8 s2[4]; .shared .align 4 .b8 s3[4];";
  const std::string module = dynamic("dyn", 16) + ".shared .align 4 .b8 m3[2000];\n";
  const Laid two = layout(module + entry(own, {"dyn", "m3"}));
  EXPECT_EQ(two.offsets.at("m3"), 0u);
  EXPECT_EQ(two.offsets.at("dyn"), 2000u);
  EXPECT_EQ(two.dynamic_begin, 2000u);
  EXPECT_EQ(two.static_bytes, 2064u);
  const Laid mixed = layout(module + entry(own, {"m3", "s3"}));
  EXPECT_EQ(mixed.offsets.at("s3"), 0u);
  EXPECT_EQ(mixed.offsets.at("m3"), 4u);
  EXPECT_EQ(mixed.static_bytes, 2064u);
}

TEST(SharedLayout, RoundsForDynamicVariablesAlone) {
  EXPECT_EQ(layout(entry(".shared .align 4 .b8 s[4];", {"s"})).static_bytes, 4u);
  EXPECT_EQ(layout(entry(".shared .align 128 .b8 s[20];", {"s"})).static_bytes, 20u);
  EXPECT_EQ(layout(dynamic("dyn", 4) + entry(".shared .align 4 .b8 s[4];", {"s"})).static_bytes, 16u);
  EXPECT_EQ(layout(dynamic("dyn", 4) + entry(".shared .b8 a[3]; .shared .b32 b;", {"a", "b", "dyn"})).offsets.at("b"),
            4u);
}

TEST(SharedLayout, AlignsADynamicVariableAsThoseDeclaredUpToIt) {
  const std::string own = ".shared .align 4 .b8 s[4];";
  const Laid rising = layout(dynamic("dyn", 16) + dynamic("big", 1024) + dynamic("little", 4) +
                             entry(own, {"s", "dyn", "big", "little"}));
  EXPECT_THAT(rising.offsets, ElementsAre(Pair("big", 1024), Pair("dyn", 16), Pair("little", 1024), Pair("s", 0)));
  EXPECT_EQ(rising.dynamic_begin, 16u);
  EXPECT_EQ(rising.static_bytes, 1024u);
  const Laid falling = layout(dynamic("big", 1024) + dynamic("little", 4) + entry(own, {"s", "little"}));
  EXPECT_EQ(falling.offsets.at("little"), 1024u);
}

TEST(SharedLayout, CountsWhatIsNamedWhereNothingComes) {
  const std::string module = dynamic("dyn", 16) + ".shared .align 4 .b8 m1[100];\n";
  EXPECT_EQ(layout(module + ".entry k() { .reg .b32 %r<2>; ret; ld.shared.u32 %r1, [m1+4]; ret; }").static_bytes, 112u);
  EXPECT_EQ(layout(module + ".entry k() { bra m1; m1: ret; }").static_bytes, 0u) << "a label of that name";
}

TEST(SharedLayout, RefusesMoreThanFits) {
  EXPECT_THAT(
      [] {
        layout(".shared .b8 x[16777216], y;\n" + entry("", {"x", "y"}));
      },
      testing::ThrowsMessage<PtxError>(
          testing::HasSubstr("the entry 'k' has 16777217 bytes of shared variables; 16777216 is the most")));
}

// A kernel can see the error: another entry's variable moved this entry's dynamic memory from 1024 to 1152. There,
// swizzled copies put their rows elsewhere than the kernel reads them.
TEST(SharedLayout, LeavesDynamicMemoryAlignedBesideAnotherEntrysVariable) {
  Emulator emulator;
  const auto module = emulator.load(module_of(
      dynamic("data", 1024) +
      ".visible .entry other() { .shared .align 4 .b8 own[4]; .reg .b32 %r<2>; st.shared.b32 [own], %r1; ret; }\n"
      ".visible .entry k(.param .u64 out) { .reg .b32 %r<4>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [out];\n"
      "mov.u32 %r1, data; mov.u32 %r2, %total_smem_size;\nst.global.v2.b32 [%rd1], {%r1, %r2}; ret; }\n"));
  const std::uint64_t out = emulator.memory().allocate(8, "out");
  const LaunchReport report =
      emulator.launch(*module, "k", {.dynamic_shared_bytes = 2000}, std::as_bytes(std::span(&out, 1)));
  EXPECT_EQ(report.fault, "");
  EXPECT_EQ(reinterpret_cast<const std::uint32_t*>(out)[0], 1024u);
  EXPECT_EQ(reinterpret_cast<const std::uint32_t*>(out)[1], 2048u) << "in units of 128 bytes";
  EXPECT_THAT(report.hazards, IsEmpty());
}

}  // namespace
}  // namespace kernelwright::emulator::shared_layout_test
