// Where registers live. The strongest test runs random programs: 32 lanes walk through a random control flow, each on
// its own, in a register file laid out by assign_slots(). Every value that a lane reads must be the one that it last
// wrote.
#include "kernelwright/runtime/emulator/program/register_slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/ptx_text.h"

namespace kernelwright::emulator::register_slots_test {
namespace {

using kernelwright::test::in_body;

struct Assigned {
  std::unique_ptr<Module> module;
  SlotMap map;
  const Entry& entry() const { return module->entries[0]; }
};

Assigned assign(const std::string& registers, const std::string& statements, Sharing sharing = Sharing::kYes,
                const std::vector<bool>& pinned = {}) {
  Assigned result{parse_ptx(in_body(statements, registers)), {}};
  result.map = assign_slots(result.entry(), pinned, sharing);
  return result;
}

/// For each operand of the one instruction: 'd' written, 'r' read, 'b' both.
std::string roles(const std::string& instruction) {
  const auto module = parse_ptx(in_body(
      instruction + ";", ".reg .pred p, q; .reg .b32 r, s, t, u; .reg .b64 d, e; .reg .b128 h; .reg .f32 f<16>;"));
  const Instruction& parsed = module->entries[0].instructions[0];
  std::string text;
  for (std::size_t i = 0; i < parsed.operands.size(); ++i)
    text += defines(parsed, i) ? (reads(parsed, i) ? 'b' : 'd') : 'r';
  EXPECT_FALSE(defines(parsed, parsed.operands.size()));
  return text;
}

TEST(RegisterSlots, KnowWhichOperandsAnInstructionWrites) {
  EXPECT_EQ(roles("add.s32 r, s, t"), "drr");
  EXPECT_EQ(roles("setp.lt.and.s32 p|q, r, s, !p"), "drrr");
  EXPECT_EQ(roles("shfl.sync.idx.b32 r|p, s, t, 31, -1"), "drrrr");
  EXPECT_EQ(roles("elect.sync _|p, -1"), "dr");
  EXPECT_EQ(roles("mov.b64 {r, s}, d"), "dr");
  EXPECT_EQ(roles("mov.b64 d, {r, s}"), "dr");
  EXPECT_EQ(roles("ld.global.v4.b32 {r, s, t, u}, [d]"), "dr");
  EXPECT_EQ(roles("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {r, s}, [t]"), "dr");
  EXPECT_EQ(roles("st.global.v2.b32 [d], {r, s}"), "rr");
  EXPECT_EQ(roles("stmatrix.sync.aligned.m8n8.x2.shared.b16 [r], {s, t}"), "rr");
  EXPECT_EQ(roles("atom.global.add.u32 r, [d], s"), "drr");
  EXPECT_EQ(roles("red.global.add.u32 [d], r"), "rr");
  EXPECT_EQ(roles("bar.sync r, 128"), "rr");
  EXPECT_EQ(roles("barrier.cta.red.popc.aligned.u32 r, 0, p"), "drr");
  EXPECT_EQ(roles("bar.red.or.pred p, 0, q"), "drr");
  EXPECT_EQ(roles("barrier.cluster.arrive.release.aligned"), "");
  EXPECT_EQ(roles("nanosleep.u32 r"), "r");
  EXPECT_EQ(roles("setmaxnreg.inc.sync.aligned.u32 240"), "r");
  EXPECT_EQ(roles("cp.async.cg.shared.global [r], [d], 16, s"), "rrrr");
  EXPECT_EQ(roles("cp.async.wait_group 0"), "r");
  EXPECT_EQ(
      roles("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [r], [d, {s, t}], [u]"),
      "rrr");
  EXPECT_EQ(roles("mbarrier.init.shared.b64 [r], s"), "rr");
  EXPECT_EQ(roles("mbarrier.inval.shared.b64 [r]"), "r");
  EXPECT_EQ(roles("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [r], s"), "rr");
  EXPECT_EQ(roles("mbarrier.arrive.shared.b64 d, [r]"), "dr");
  EXPECT_EQ(roles("mbarrier.arrive.expect_tx.shared.b64 _, [r], s"), "drr");
  EXPECT_EQ(roles("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r]"), "dr");
  EXPECT_EQ(roles("mbarrier.try_wait.parity.shared::cta.b64 p, [r], s"), "drr");
  EXPECT_EQ(roles("mbarrier.test_wait.shared.b64 p, [r], d"), "drr");
  EXPECT_EQ(roles("mapa.shared::cluster.u32 r, s, t"), "drr");
  EXPECT_EQ(roles("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {f0, f1, f2, f3}, {r, s, t, u}, {r, s}, "
                  "{f4, f5, f6, f7}"),
            "drrr");
  EXPECT_EQ(roles("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f0, f1, f2, f3}, d, e, p, 1, 1, 0, 0"),
            "brrrrrrr");
  EXPECT_EQ(roles("wgmma.wait_group.sync.aligned 0"), "r");
  EXPECT_EQ(roles("tcgen05.ld.sync.aligned.32x32b.x2.b32 {r, s}, [t]"), "dr");
  EXPECT_EQ(roles("tcgen05.ld.red.sync.aligned.32x32b.x2.min.f32 {f0, f1}, f2, [t]"), "ddr");
  EXPECT_EQ(roles("tcgen05.st.sync.aligned.32x32b.x2.b32 [t], {r, s}"), "rr");
  EXPECT_EQ(roles("tcgen05.dealloc.cta_group::1.sync.aligned.b32 r, 64"), "rr");
  EXPECT_EQ(roles("clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, h"), "dr");
  EXPECT_EQ(roles("multimem.ld_reduce.add.f32 f0, [d]"), "dr");
  EXPECT_EQ(roles("multimem.red.add.f32 [d], f0"), "rr");
  EXPECT_EQ(roles("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [d], e"), "rr");
  EXPECT_EQ(
      roles("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [d], [e], 128"),
      "rrr");
}

TEST(RegisterSlots, ShareAPlaceOnceTheValueIsRead) {
  const Assigned a =
      assign(".reg .b32 %r<8>;", "mov.b32 %r1, 1; mov.b32 %r2, %r1; mov.b32 %r3, %r2; mov.b32 %r4, %r3;");
  EXPECT_EQ(a.map.slot[3], a.map.slot[1]) << "read for the last time before 3 is written";
  EXPECT_NE(a.map.slot[2], a.map.slot[1]) << "not by the very instruction that reads it";
  EXPECT_EQ(a.map.bytes, 256u);
  EXPECT_EQ(a.map.slot[0], kNoSlot) << "nobody names it";
  EXPECT_EQ(a.map.pinned_bytes, 0u);
}

TEST(RegisterSlots, ShareNothingOnRequest) {
  const Assigned a =
      assign(".reg .b32 %r<8>;", "mov.b32 %r1, 1; mov.b32 %r2, %r1; mov.b32 %r3, %r2; mov.b32 %r4, %r3;", Sharing::kNo);
  EXPECT_EQ(a.map.bytes, 512u);
  EXPECT_EQ(a.map.slot[0], kNoSlot);
}

TEST(RegisterSlots, GiveEachClassAnAreaOfItsOwn) {
  const Assigned a = assign(".reg .pred p, q; .reg .b16 b; .reg .b32 c; .reg .b64 d; .reg .b128 e;",
                            "op.a p, 1; op.b q, p; op.c b, q; op.d c, b; op.e d, c; op.f e, d; op.g [d], e;");
  EXPECT_THAT(a.map.slot, testing::ElementsAre(960, 964, 896, 768, 512, 0));
  EXPECT_EQ(a.map.bytes, 1024u);
}

TEST(RegisterSlots, KeepAValueRoundALoop) {
  const Assigned a = assign(".reg .b32 %r<8>; .reg .pred %p<4>;",
                            "mov.b32 %r1, 1;\n"
                            "loop: mov.b32 %r2, 5; add.s32 %r3, %r2, %r1; st.b32 [%r3], %r3; @%p1 bra loop;");
  EXPECT_NE(a.map.slot[2], a.map.slot[1]);
  EXPECT_NE(a.map.slot[3], a.map.slot[1]) << "1 is read again in the next round";
}

// The text has every instruction that names 1 after those that use 2: only the control flow shows that 1 is live there.
TEST(RegisterSlots, KeepWhatAGuardedWriteMayLeave) {
  const auto shared = [](const std::string& guard) {
    const Assigned a = assign(".reg .b32 %r<8>; .reg .pred %p<4>;",
                              "bra first;\n"
                              "second: mov.b32 %r2, 2; st.b32 [%r2], 0; bra third;\n"
                              "third: " +
                                  guard +
                                  " mov.b32 %r1, 3; st.b32 [%r1], 0; ret;\n"
                                  "first: mov.b32 %r1, 1; bra second;");
    return a.map.slot[2] == a.map.slot[1];
  };
  EXPECT_TRUE(shared(""));
  EXPECT_FALSE(shared("@%p1"));
}

TEST(RegisterSlots, DoNotKeepWhatNobodyWroteYet) {
  const Assigned a = assign(".reg .b32 %r<8>; .reg .pred %p<4>;",
                            "mov.b32 %r1, 1; st.b32 [%r1], 0; @%p1 mov.b32 %r2, 3; @%p1 st.b32 [%r2], 0;");
  EXPECT_EQ(a.map.slot[2], a.map.slot[1]) << "the guard does not make 2 live from the beginning";
}

TEST(RegisterSlots, PutPinnedRegistersFirstAndAlone) {
  std::vector<bool> pinned(8);
  pinned[2] = pinned[4] = pinned[7] = true;
  const Assigned a =
      assign(".reg .b32 %r<5>; .reg .b64 %d<3>;",
             "op.a %r1, 1; op.b %r2, 1; op.c %r3, 1; op.d %r4, 1; op.e %r1, 1; op.f %d2, 1;", Sharing::kYes, pinned);
  EXPECT_EQ(a.map.pinned_bytes, 512u);
  EXPECT_EQ(a.map.slot[7], 0u);
  EXPECT_EQ(a.map.slot[2], 256u);
  EXPECT_EQ(a.map.slot[4], 384u);
  EXPECT_GE(a.map.slot[1], 512u);
  EXPECT_GE(a.map.slot[3], 512u);
}

constexpr int kLanes = 32;

/// Random statements over a few registers of every class: straight runs, forward and backward branches, guards,
/// vectors, pairs and accumulators.
class RandomProgram {
 public:
  explicit RandomProgram(std::uint64_t seed) : random_(seed) {}

  std::string text() {
    for (auto& count : counts_) count = 2 + below(9);
    const int size = 5 + below(80);
    std::string statements;
    for (int i = 0; i < size; ++i) statements += "L" + std::to_string(i) + ": " + statement(size) + "\n";
    std::string registers;
    for (int c = 0; c < 5; ++c)
      registers += std::string(".reg .") + kTypes[c] + " " + kPrefixes[c] + "<" + std::to_string(counts_[c]) + ">; ";
    return in_body(statements, registers);
  }

 private:
  int below(int bound) { return static_cast<int>(random_() % static_cast<std::uint64_t>(bound)); }
  std::string name(int c) { return kPrefixes[c] + std::to_string(below(counts_[c])); }
  std::string any() { return name(below(5)); }
  std::string list() {
    const int c = below(5);
    std::string text = "{" + name(c);
    for (int i = below(3); i >= 0; --i) text += ", " + name(c);
    return text + "}";
  }
  std::string statement(int size) {
    const std::string guard = below(4) == 0 ? (below(2) ? "@" : "@!") + name(0) + " " : "";
    switch (below(9)) {
      case 0: return (below(3) ? "@" + name(0) + " " : "") + "bra L" + std::to_string(below(size)) + ";";
      case 1: return guard + "st.any [" + name(2) + "], " + any() + ";";
      case 2: return guard + "op.v " + list() + ", " + any() + ";";
      case 3: return guard + "op.p " + any() + "|" + name(0) + ", " + any() + ";";
      case 4: return guard + "wgmma.mma_async " + list() + ", " + any() + ";";
      case 5: return below(8) ? guard + "op.w " + any() + ", " + list() + ";" : guard + "ret;";
      default: return guard + "op.x " + any() + ", " + any() + ", " + any() + ";";
    }
  }
  static constexpr const char* kTypes[] = {"pred", "b16", "b32", "b64", "b128"};
  static constexpr const char* kPrefixes[] = {"p", "h", "r", "d", "q"};
  std::mt19937_64 random_;
  int counts_[5] = {};
};

/// Lanes that run one program, each where it pleases.
class Wanderers {
 public:
  Wanderers(const Entry& entry, const SlotMap& map, std::uint64_t seed)
      : entry_(entry), map_(map), random_(seed), file_(map.bytes) {
    for (auto& byte : file_) byte = static_cast<std::uint8_t>(random_());
    for (auto& lane : lanes_) lane.known.resize(entry.registers.size());
  }

  /// The message of the first lane that reads a wrong value; "" if none does.
  std::string run(int steps) {
    for (int i = 0; i < steps && wrong_.empty(); ++i) step(static_cast<int>(random_() % kLanes));
    return wrong_;
  }
  int checked() const { return checked_; }

 private:
  struct Value {
    bool written = false;
    std::uint64_t low = 0, high = 0;
    bool operator==(const Value&) const = default;
  };
  struct Lane {
    std::size_t at = 0;
    std::vector<Value> known;
  };

  /// The bytes of a register in a lane, and which of their bits count.
  Value load(int reg, int lane) const {
    const auto r = static_cast<std::size_t>(reg);
    const std::uint8_t* base = file_.data() + map_.slot[r];
    Value value{true, 0, 0};
    const std::uint32_t each = slot_bytes_of(entry_.registers[r]) / kLanes;
    if (each == 0) {
      std::uint32_t mask;
      std::memcpy(&mask, base, 4);
      value.low = mask >> lane & 1;
    } else if (each <= 8) {
      std::memcpy(&value.low, base + each * static_cast<std::uint32_t>(lane), each);
    } else {  // two arrays of 64-bit halves
      std::memcpy(&value.low, base + 8 * lane, 8);
      std::memcpy(&value.high, base + 256 + 8 * lane, 8);
    }
    return value;
  }
  void store(int reg, int lane) {
    const auto r = static_cast<std::size_t>(reg);
    std::uint8_t* base = file_.data() + map_.slot[r];
    const std::uint64_t low = random_(), high = random_();
    const std::uint32_t each = slot_bytes_of(entry_.registers[r]) / kLanes;
    if (each == 0) {
      std::uint32_t mask;
      std::memcpy(&mask, base, 4);
      mask = (mask & ~(1u << lane)) | static_cast<std::uint32_t>(low & 1) << lane;
      std::memcpy(base, &mask, 4);
    } else if (each <= 8) {
      std::memcpy(base + each * static_cast<std::uint32_t>(lane), &low, each);
    } else {
      std::memcpy(base + 8 * lane, &low, 8);
      std::memcpy(base + 256 + 8 * lane, &high, 8);
    }
    lanes_[lane].known[r] = load(reg, lane);
  }
  void check(int reg, int lane, const Instruction& instruction) {
    const Value& known = lanes_[lane].known[static_cast<std::size_t>(reg)];
    if (!known.written) return;
    ++checked_;
    if (!(load(reg, lane) == known))
      wrong_ = "lane " + std::to_string(lane) + " reads a value that is not its own in register " +
               std::to_string(reg) + ", line " + std::to_string(instruction.line);
  }

  void step(int l) {
    Lane& lane = lanes_[l];
    const Instruction& instruction = entry_.instructions[lane.at];
    bool runs = true;
    if (instruction.guard >= 0) {
      check(instruction.guard, l, instruction);
      runs = (load(instruction.guard, l).low != 0) != instruction.guard_negated;
      if (!lane.known[static_cast<std::size_t>(instruction.guard)].written) runs = random_() % 2;
    }
    if (!runs) {
      ++lane.at;
      return;
    }
    std::vector<int> written, read;
    for (std::size_t i = 0; i < instruction.operands.size(); ++i) {
      const auto note = [&](int reg) {
        if (reg < 0) return;
        if (defines(instruction, i)) written.push_back(reg);
        if (reads(instruction, i)) read.push_back(reg);
      };
      note(instruction.operands[i].reg);
      note(instruction.operands[i].paired);
      for (const Operand& element : instruction.operands[i].elements) note(element.reg);
    }
    // A handler may write before it reads, where the program does not name one register for both.
    for (const int reg : written)
      if (std::find(read.begin(), read.end(), reg) == read.end()) store(reg, l);
    for (const int reg : read) check(reg, l, instruction);
    for (const int reg : written) store(reg, l);
    for (const int reg : written) check(reg, l, instruction);
    const bool branches = !instruction.targets.empty();
    if (branches) {
      lane.at = static_cast<std::size_t>(instruction.targets[0]);
    } else if (instruction.parts[0] == "ret") {
      lane.at = 0;  // another thread begins
      for (Value& value : lane.known) value.written = false;
    } else {
      ++lane.at;
    }
  }

  const Entry& entry_;
  const SlotMap& map_;
  std::mt19937_64 random_;
  std::vector<std::uint8_t> file_;
  Lane lanes_[kLanes];
  std::string wrong_;
  int checked_ = 0;
};

/// Two registers overlap only in one place of one class; pinned ones with none.
void expect_sound_layout(const Entry& entry, const SlotMap& map, const std::vector<bool>& pinned) {
  ASSERT_EQ(map.slot.size(), entry.registers.size());
  for (std::size_t a = 0; a < map.slot.size(); ++a) {
    if (map.slot[a] == kNoSlot) continue;
    const std::uint32_t bytes = slot_bytes_of(entry.registers[a]);
    EXPECT_EQ(map.slot[a] % std::min(bytes, 64u), 0u);
    EXPECT_LE(map.slot[a] + bytes, map.bytes);
    EXPECT_EQ(pinned[a], map.slot[a] < map.pinned_bytes);
    for (std::size_t b = 0; b < a; ++b) {
      if (map.slot[b] == kNoSlot) continue;
      if (map.slot[a] >= map.slot[b] + slot_bytes_of(entry.registers[b]) || map.slot[b] >= map.slot[a] + bytes)
        continue;
      EXPECT_EQ(map.slot[a], map.slot[b]);
      EXPECT_EQ(entry.registers[a], entry.registers[b]);
      EXPECT_FALSE(pinned[a] || pinned[b]);
    }
  }
}

TEST(RegisterSlots, KeepEveryLanesValuesInRandomPrograms) {
  int checked = 0, shared = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const std::string text = RandomProgram(seed).text();
    const auto module = parse_ptx(text);
    const Entry& entry = module->entries[0];
    std::vector<bool> pinned(entry.registers.size());
    for (std::size_t i = 0; i < pinned.size(); i += 7) pinned[i] = seed % 2;
    const SlotMap map = assign_slots(entry, pinned);
    expect_sound_layout(entry, map, pinned);
    shared += map.bytes < assign_slots(entry, pinned, Sharing::kNo).bytes;
    Wanderers wanderers(entry, map, seed);
    ASSERT_EQ(wanderers.run(3000), "") << "seed " << seed << "\n" << text;
    checked += wanderers.checked();
  }
  EXPECT_GT(shared, 50);
  EXPECT_GT(checked, 200000);
}

TEST(RegisterSlots, MakeAFileOfAFewRegistersOutOfManyNames) {
  std::string statements = "mov.b32 %r0, 0;\n";
  for (int i = 1; i < 5000; ++i) {
    const std::string now = std::to_string(i), before = std::to_string(i - 1);
    statements += "add.s32 %r" + now + ", %r" + before + ", 1;\n";
    if (i % 10 == 0) statements += "@%p1 bra L" + now + "; st.b32 [%r" + now + "], 0; L" + now + ":\n";
  }
  const Assigned a = assign(".reg .pred %p<2>; .reg .b32 %r<5000>;", statements);
  EXPECT_LE(a.map.bytes, 6 * 128 + 64u);
}

}  // namespace
}  // namespace kernelwright::emulator::register_slots_test
