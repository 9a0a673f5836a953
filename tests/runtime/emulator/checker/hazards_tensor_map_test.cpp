// Kernels that edit tensor maps and use them: each of their fences is needed. Lines that begin with '!' are deleted one
// at a time. The host encodes the map with a null address, and the kernel puts the tensor's address in.
#include <map>
#include <vector>

#include "kernelwright/runtime/emulator/machine/tensor_map.h"
#include "runtime/emulator/checker/hazard_cases.h"

namespace kernelwright::emulator {
namespace {

using testing::IsEmpty;

constexpr std::uint32_t kWords = 128, kFirst = 8;  // of the tensor, and the first one of the box

struct MapRun {
  std::string texts;  // of all reports
  std::set<HazardKind> kinds;
  std::vector<std::uint32_t> out;
};

/// Launches the bodies one after another. `in` is the map, 128 bytes of zeros, and the tensor: 1000, 1001, ….
/// `host_again`: the host writes the map anew ahead of the last launch, with the tensor's address.
MapRun run_bodies(const std::vector<std::string>& bodies, const LaunchShape& shape, Options options,
                  bool host_again = false) {
  options.hazards = true;
  Emulator emulator(options);
  const std::uint64_t out = emulator.memory().allocate(1024, "out");
  const std::uint64_t in = emulator.memory().allocate(256 + kWords * 4, "in");
  std::memset(reinterpret_cast<void*>(out), 0, 1024);
  std::memset(reinterpret_cast<void*>(in), 0, 256);
  TensorMapDescription map;
  map.element = TensorElement::kU32;
  map.rank = 1;
  map.dims[0] = 64;
  map.box[0] = 8;
  const TensorMap encoded = encode_tensor_map(map);
  std::memcpy(reinterpret_cast<void*>(in), encoded.bytes, sizeof encoded);
  for (std::uint32_t i = 0; i < kWords; ++i) reinterpret_cast<std::uint32_t*>(in + 256)[i] = 1000 + i;
  MapRun run;
  for (const std::string& body : bodies) {
    if (host_again && &body == &bodies.back()) {
      map.address = in + 256;
      const TensorMap again = encode_tensor_map(map);
      std::memcpy(reinterpret_cast<void*>(in), again.bytes, sizeof again);
      emulator.memory().host_wrote(in, sizeof again);
    }
    const auto module = emulator.load(test::ptx_kernel(body));
    const std::uint64_t arguments[] = {out, in};
    const LaunchReport report = emulator.launch(*module, "test", shape, std::as_bytes(std::span(arguments)));
    run.texts += test::texts(report);
    for (const HazardReport& hazard : report.hazards) run.kinds.insert(hazard.kind);
  }
  run.out.assign(reinterpret_cast<const std::uint32_t*>(out), reinterpret_cast<const std::uint32_t*>(out) + 4);
  return run;
}

/// %r10: the mbarrier; %r11: the box; %r13: where a map is edited in shared memory; %rd3: the tensor; %rd4: zeros.
constexpr const char* kBegin = R"(
      mov.u32 %r10, data; add.u32 %r11, %r10, 128; add.u32 %r13, %r10, 256; mov.u32 %r12, %ctaid.x; mov.u32 %r20, 8;
      add.u64 %rd4, %rd1, 128; add.u64 %rd3, %rd1, 256; setp.ne.u32 %p1, %r0, 0; setp.ne.u32 %p2, %r0, 32;
      setp.ne.u32 %p4, %r12, 0; mul.wide.u32 %rd5, %r12, 4; add.u64 %rd6, %rd0, %rd5;
    )";
constexpr const char* kInit = "mbarrier.init.shared::cta.b64 [%r10], 1; fence.proxy.async.shared::cta;\n";
constexpr const char* kEdit = "tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd3;\n";
constexpr const char* kRelease = "\n! fence.proxy.tensormap::generic.release.gpu;\n";
constexpr const char* kAcquire = "\n! fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;\n";

/// A thread loads the box through `map` and adds the first word to the CTA's word of `out`.
std::string use(const std::string& map = "%rd1", const std::string& phase = "0") {
  const std::string again = "AGAIN" + phase;
  return "mbarrier.arrive.expect_tx.shared::cta.b64 %rd9, [%r10], 32;\n"
         "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r11], [" +
         map + ", {%r20}], [%r10];\n" + again + ":\nmbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], " + phase +
         ";\n@!%p3 bra " + again +
         ";\nld.shared.u32 %r14, [%r11]; ld.global.u32 %r15, [%rd6]; add.u32 %r14, %r14, %r15; "
         "st.global.u32 [%rd6], %r14;\n";
}

/// The same copy alone.
const std::string kLoadOnly = use().substr(0, use().find("AGAIN"));

struct MapCase {
  const char* name;
  std::vector<std::string> bodies;
  std::vector<HazardKind> without;  // what is reported without each '!' line
  std::uint32_t ctas = 1;
  std::uint32_t sum = 1000 + kFirst;  // in out[0], and in out[1] of the second CTA
  std::uint32_t cluster = 1;
};

const std::string kBeginText = kBegin, kInitText = kInit, kEditText = kEdit;
constexpr HazardKind kFence = HazardKind::kProxyFence;

/// CTA 0 edits; CTA 1 uses. `store` and `load`: how they pass the flag.
std::string across_ctas(const std::string& store, const std::string& load) {
  return kBeginText + "@%p1 bra END;\n" + kInitText + "@%p4 bra READER;\n" + kEditText + kRelease +
         "mov.u32 %r21, 7; " + store + " [%rd0+256], %r21;\nbra END;\nREADER:\n" + load +
         " %r21, [%rd0+256]; setp.ne.u32 %p5, %r21, 7;\n@%p5 bra READER;" + kAcquire + use() + "END:\n";
}

const MapCase kCases[] = {
    {"one_thread_in_global_memory",
     {kBeginText + "@%p1 bra END;\n" + kInitText + kEditText + kRelease + kAcquire + use() + "END:\n"},
     {kFence, kFence}},
    // The warp copies the map to shared memory and back. Without the copy back, the copy meets zeros: a fault.
    {"in_shared_memory_with_cp_fenceproxy",
     {kBeginText + "@%p1 bra FILLED;\n" + kInitText + R"(
      FILLED:
        shl.b32 %r16, %r2, 2; cvt.u64.u32 %rd7, %r16; add.u64 %rd8, %rd1, %rd7; add.u32 %r17, %r13, %r16;
        ld.global.u32 %r18, [%rd8]; st.shared.u32 [%r17], %r18;
      ! bar.warp.sync 0xffffffff;
        @!%p1 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r13], %rd3;
      ! bar.warp.sync 0xffffffff;
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd4], [%r13], 128;
      ! fence.proxy.tensormap::generic.acquire.gpu [%rd4], 128;
        @%p1 bra END;
     )" +
      use("%rd4") + "END:\n"},
     {HazardKind::kLaneRace, HazardKind::kLaneRace, kFence}},
    {"a_warp_edits_for_another",
     {kBeginText + "@%p1 bra MET;\n" + kInitText + kEditText + kRelease + "MET:\n! bar.sync 0;\n@%p2 bra END;" +
      kAcquire + use() + "END:\n"},
     {kFence, HazardKind::kRace, kFence}},
    {"one_thread_acquires_for_the_cta",
     {kBeginText + "@%p1 bra MET;\n" + kInitText + kEditText + kRelease + kAcquire +
      "MET:\n! bar.sync 0;\n@%p2 bra END;\n" + use() + "END:\n"},
     {kFence, kFence, HazardKind::kRace}},
    // What was acquired before the second edit says nothing about the second.
    {"edited_twice",
     {kBeginText + "@%p1 bra END;\n" + kInitText + kEditText + kRelease + kAcquire + use() +
      "add.u64 %rd3, %rd3, 256;\n" + kEditText + kRelease + kAcquire + use("%rd1", "1") + "END:\n"},
     {kFence, kFence, kFence, kFence},
     1,
     2 * (1000 + kFirst) + 64},
    // Only a wait says that the first copy no longer reads the map. It is the copy's own, or follows from the wait of
    // another warp.
    {"edited_behind_a_load",
     {kBeginText + "@%p1 bra END;\n" + kInitText + kEditText + kRelease + kAcquire + kLoadOnly + R"(
      ! WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0; @!%p3 bra WAIT;
     )" +
      kEditText + "END:\n"},
     {kFence, kFence, HazardKind::kRace},
     1,
     0},
    {"edited_behind_a_load_by_another_warp",
     {kBeginText + "@%p1 bra MET;\n" + kInitText + kEditText + kRelease + kAcquire + kLoadOnly + R"(
        WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], 0; @!%p3 bra WAIT;
      MET:
      ! bar.sync 0;
        @%p2 bra END;
     )" +
      kEditText + "END:\n"},
     {kFence, kFence, HazardKind::kRace},
     1,
     0},
    {"edited_behind_a_store",
     {kBeginText + "@%p1 bra END;\n" + kInitText + kEditText + kRelease + kAcquire + R"(
        mov.u32 %r22, 0; st.shared.v4.u32 [%r11], {%r22, %r22, %r22, %r22};
        st.shared.v4.u32 [%r11+16], {%r22, %r22, %r22, %r22}; fence.proxy.async.shared::cta;
        cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r20}], [%r11];
        cp.async.bulk.commit_group;
      ! cp.async.bulk.wait_group.read 0;
     )" +
      kEditText + "cp.async.bulk.wait_group 0;\nEND:\n"},
     {kFence, kFence, HazardKind::kRace},
     1,
     0},
    // All lanes write words of the map, and lane 0 edits it.
    {"edited_behind_words_of_all_lanes",
     {kBeginText + "@%p1 bra FILLED;\n" + kInitText + R"(
      FILLED:
        shl.b32 %r16, %r2, 2; cvt.u64.u32 %rd7, %r16; add.u64 %rd8, %rd1, %rd7;
        ld.global.u32 %r18, [%rd8]; st.global.u32 [%rd8], %r18;
      ! bar.warp.sync 0xffffffff;
        @%p1 bra END;
     )" +
      kEditText + kRelease + kAcquire + use() + "END:\n"},
     {HazardKind::kLaneRace, kFence, kFence}},
    // The map's place was no map before: 128 bytes that ordinary stores fill.
    {"stored_word_by_word",
     {kBeginText + "@%p1 bra FILLED;\n" + kInitText + kEditText + R"(
      FILLED:
        bar.warp.sync 0xffffffff;
        shl.b32 %r16, %r2, 2; cvt.u64.u32 %rd7, %r16; add.u64 %rd8, %rd1, %rd7;
        ld.global.u32 %r18, [%rd8]; st.global.u32 [%rd8+128], %r18;
        bar.warp.sync 0xffffffff;
        @%p1 bra END;
      ! fence.proxy.tensormap::generic.release.gpu;
      ! fence.proxy.tensormap::generic.acquire.gpu [%rd4], 128;
     )" +
      use("%rd4") + "END:\n"},
     {kFence, kFence}},
    {"across_ctas", {across_ctas("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32")}, {kFence, kFence}, 2},
    {"across_a_cluster",
     {kBeginText + "@%p1 bra EDITED;\n" + kInitText + "@%p4 bra EDITED;\n" + kEditText + R"(
      ! fence.proxy.tensormap::generic.release.cluster;
      EDITED:
        barrier.cluster.arrive.release;
        barrier.cluster.wait.acquire;
        @%p1 bra END; @!%p4 bra END;
      ! fence.proxy.tensormap::generic.acquire.cluster [%rd1], 128;
     )" +
      use() + "END:\n"},
     {kFence, kFence},
     2,
     1000 + kFirst,
     2},
    // The two fences order the map by themselves, around a relaxed flag. Without one, nothing orders it.
    {"across_ctas_by_a_relaxed_flag",
     {across_ctas("st.relaxed.gpu.global.u32", "ld.relaxed.gpu.global.u32")},
     {HazardKind::kRace, kFence},
     2},
    // The end of a launch orders the generic proxy alone. By the ISA's letter it is no proxy fence, so the release is
    // asked for as well as the acquire.
    {"across_launches",
     {kBeginText + "@%p1 bra END;\n" + kEditText + kRelease + "END:\n",
      kBeginText + "@%p1 bra END;\n" + kInitText + kAcquire + use() + "END:\n"},
     {kFence, kFence}},
};

/// The bodies without their '!' line number `line`, counted over all bodies; -1: with all lines.
std::vector<std::string> without(const std::vector<std::string>& bodies, int line) {
  std::vector<std::string> made;
  int at = 0;
  for (const std::string& body : bodies) {
    std::istringstream lines(body);
    std::string out;
    for (std::string text; std::getline(lines, text);) {
      const std::size_t mark = text.find_first_not_of(' ');
      const bool marked = mark != std::string::npos && text[mark] == '!';
      if (marked) text[mark] = ' ';
      if (!marked || at++ != line) out += text + "\n";
    }
    made.push_back(out);
  }
  return made;
}

class TensorMapHazard : public testing::TestWithParam<MapCase> {};

LaunchShape shape_of(const MapCase& test) {
  const bool two_warps = test.bodies[0].find("bra MET;") != std::string::npos;
  return {
      .grid = {test.ctas}, .block = {two_warps ? 64u : 32u}, .cluster = {test.cluster}, .dynamic_shared_bytes = 1024};
}

TEST_P(TensorMapHazard, IsRightAndSilentAsWritten) {
  const MapCase& test = GetParam();
  for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom})
    for (const std::uint64_t seed : {1, 2, 3}) {
      const MapRun run = run_bodies(without(test.bodies, -1), shape_of(test),
                                    {.completion = completion, .seed = seed, .shuffle = seed > 1});
      ASSERT_THAT(run.texts, IsEmpty());
      ASSERT_EQ(run.out[test.ctas - 1], test.sum);
    }
}

TEST_P(TensorMapHazard, NeedsEachOfItsFences) {
  const MapCase& test = GetParam();
  for (std::size_t line = 0; line < test.without.size(); ++line)
    for (const Completion completion : {Completion::kEager, Completion::kLazy}) {
      const MapRun run =
          run_bodies(without(test.bodies, static_cast<int>(line)), shape_of(test), {.completion = completion});
      EXPECT_TRUE(run.kinds.contains(test.without[line])) << "line " << line << ": " << run.texts;
    }
}

INSTANTIATE_TEST_SUITE_P(TensorMaps, TensorMapHazard, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(TensorMapHazards, AreReportedOfAKernelWithoutAnyFence) {
  // Ordinary stores make the map. The kernel has no instruction of the tensormap proxy.
  const std::string body = kBeginText + "@%p1 bra END;\n" + kInitText + R"(
        ld.global.u64 %rd10, [%rd1]; st.global.u64 [%rd1], %rd10; bra USE;
      USE:
     )" + use() + "END:\n";
  const MapRun run = run_bodies({body}, {.block = {32}, .dynamic_shared_bytes = 1024}, {});
  EXPECT_TRUE(run.kinds.contains(HazardKind::kProxyFence)) << run.texts;
}

TEST(TensorMapHazards, AreNoneOnceTheHostHasWrittenTheMapAnew) {
  const std::string edit = kBeginText + "@%p1 bra END;\n" + kEditText + "END:\n",
                    plain = kBeginText + "@%p1 bra END;\n" + kInitText + use() + "END:\n";
  const LaunchShape shape = {.block = {32}, .dynamic_shared_bytes = 1024};
  EXPECT_TRUE(run_bodies({edit, plain}, shape, {}).kinds.contains(HazardKind::kProxyFence));
  const MapRun again = run_bodies({edit, plain}, shape, {}, true);
  EXPECT_THAT(again.texts, IsEmpty());
  EXPECT_EQ(again.out[0], 1000 + kFirst);
}

TEST(TensorMapHazards, AskForAScopeThatReachesTheOtherCta) {
  const std::string body = across_ctas("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32");
  for (const char* narrow : {"release.gpu;\n", "acquire.gpu [%rd1]"}) {
    std::string changed = without({body}, -1)[0];
    const std::size_t at = changed.find(std::string("tensormap::generic.") + narrow);
    ASSERT_NE(at, std::string::npos);
    changed.replace(changed.find("gpu", at), 3, "cluster");
    const MapRun run = run_bodies({changed}, {.grid = {2}, .block = {32}, .dynamic_shared_bytes = 1024}, {});
    EXPECT_TRUE(run.kinds.contains(HazardKind::kProxyFence)) << narrow << run.texts;
  }
}

TEST(TensorMapHazards, NameTheEditAndTheFenceThatIsMissing) {
  const MapRun run = run_bodies(without(kCases[0].bodies, 1), shape_of(kCases[0]), {});
  EXPECT_THAT(run.texts, testing::HasSubstr("no fence.proxy.tensormap::generic.acquire of the map"));
  EXPECT_THAT(run.texts, testing::HasSubstr("tensormap.replace.tile.global_address"));
  EXPECT_THAT(run.texts, testing::HasSubstr("cp.async.bulk.tensor.1d"));
}

}  // namespace
}  // namespace kernelwright::emulator
