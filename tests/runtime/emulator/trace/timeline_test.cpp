// The trace of a launch, and the files made from it.
#include "kernelwright/runtime/emulator/trace/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "kernelwright/runtime/emulator/trace/trace.h"
#include "kernelwright/runtime/engine/emulated_machine.h"
#include "runtime/emulator/ptx_kernel.h"
#include "runtime/emulator/trace/trace_checks.h"

namespace kernelwright::emulator {
namespace {

using test::run_ptx;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

/// Warp 0 copies six times 1024 bytes into two slots, warp 1 reads them: full barriers at data, empty ones behind.
constexpr const char* kRing = R"(
  setp.eq.u32 %p0, %r2, 0; setp.eq.u32 %p1, %r0, 0; mov.u32 %r10, data; mov.u32 %r20, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r10], 1; @%p1 mbarrier.init.shared::cta.b64 [%r10+8], 1;
  @%p1 mbarrier.init.shared::cta.b64 [%r10+16], 1; @%p1 mbarrier.init.shared::cta.b64 [%r10+24], 1;
  @%p1 fence.mbarrier_init.release.cluster;
  bar.sync 0;
  setp.ne.u32 %p2, %r1, 0; @%p2 bra CONSUME;
  @!%p0 bra DONE;
PRODUCE:
  and.b32 %r21, %r20, 1; shl.b32 %r22, %r21, 3; add.u32 %r22, %r22, %r10;
  shr.u32 %r23, %r20, 1; and.b32 %r23, %r23, 1; xor.b32 %r23, %r23, 1;
EMPTY:
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r22+16], %r23; @!%p3 bra EMPTY;
  mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%r22], 1024;
  shl.b32 %r24, %r21, 10; add.u32 %r24, %r24, %r10;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r24+1024], [%rd1], 1024, [%r22];
  add.u32 %r20, %r20, 1; setp.lt.u32 %p4, %r20, 6; @%p4 bra PRODUCE;
  bra DONE;
CONSUME:
  and.b32 %r21, %r20, 1; shl.b32 %r22, %r21, 3; add.u32 %r22, %r22, %r10; shr.u32 %r23, %r20, 1; and.b32 %r23, %r23, 1;
FULL:
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r22], %r23; @!%p3 bra FULL;
  shl.b32 %r24, %r21, 10; add.u32 %r24, %r24, %r10; shl.b32 %r25, %r2, 2; add.u32 %r24, %r24, %r25;
  ld.shared.u32 %r30, [%r24+1024]; add.u32 %r31, %r31, %r30;
  bar.warp.sync -1;
  @%p0 mbarrier.arrive.shared::cta.b64 %rd5, [%r22+16];
  add.u32 %r20, %r20, 1; setp.lt.u32 %p4, %r20, 6; @%p4 bra CONSUME;
DONE:
)";

const LaunchNotes kNotes = {
    .roles = {{0, 1, "load"}, {1, 1, "read"}},
    .shared = {{0, 16, "full barriers", 8}, {16, 16, "empty barriers", 8}, {1024, 2048, "X", 1024}}};

std::shared_ptr<const Trace> trace_of(const std::string& body, Options options = {},
                                      LaunchShape shape = {.block = {64}}) {
  options.timeline = true;
  options.costs = emulated_machine(usual_machine(Arch::kSm90a)).costs;
  shape.dynamic_shared_bytes = 4096;
  shape.notes = &kNotes;
  const std::vector<std::uint32_t> in(256, 7);
  const LaunchReport report = run_ptx(body, shape, options, in).report;
  EXPECT_EQ(report.fault, "");
  if (report.trace) {
    EXPECT_EQ(test::problems_of(*report.trace), "");
  }
  return report.trace;
}

std::string json_of(const Trace& trace) {
  std::ostringstream out;
  write_chrome_trace(out, std::span(&trace, 1));
  return out.str();
}

std::vector<std::string> texts_on(const Trace& trace, const std::string& role) {
  std::vector<std::string> texts;
  for (const TraceSlice& slice : trace.slices)
    if (trace.tracks[slice.track].role == role) texts.push_back(slice.text());
  return texts;
}

TEST(Timeline, IsKeptWhenItIsAskedFor) {
  EXPECT_EQ(run_ptx("", {.block = {32}}, {}).report.trace, nullptr);
  EXPECT_NE(run_ptx("", {.block = {32}}, {.timeline = true}).report.trace, nullptr);
}

TEST(Timeline, HasARingsWaitsCopiesAndArrivalsByName) {
  const auto trace = trace_of(kRing);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->kernel, "test");
  EXPECT_THAT(texts_on(*trace, "TMA"),
              testing::UnorderedElementsAre("load X[0] 1 KB", "load X[1] 1 KB", "load X[0] 1 KB", "load X[1] 1 KB",
                                            "load X[0] 1 KB", "load X[1] 1 KB"));
  EXPECT_THAT(texts_on(*trace, "read"), Contains("wait full[0]"));
  EXPECT_THAT(texts_on(*trace, "read"), Contains("arrive empty[1]"));
  EXPECT_THAT(texts_on(*trace, "load"), Contains("wait empty[0]"));
  EXPECT_THAT(texts_on(*trace, "load"), Contains("arrive full[1]"));
  // The copies take longer than all else: the reader's waits for full slots are ended by them.
  std::size_t from_copies = 0, from_reader = 0;
  for (const TraceFlow& flow : trace->flows) {
    const TraceSlice &from = trace->slices[flow.from], &to = trace->slices[flow.to];
    from_copies += from.kind == SliceKind::kCopy && to.name.starts_with("full[");
    from_reader += from.text() == "arrive " + to.name && to.name.starts_with("empty[");
  }
  EXPECT_GE(from_copies, 3u);
  EXPECT_GE(from_reader, 2u);  // slots were empty to begin with; then each lap waits for its first at least
}

TEST(Timeline, DoesNotDependOnTheOrderInWhichWarpsRan) {
  const std::string expected = json_of(*trace_of(kRing));
  for (const Completion completion : {Completion::kEager, Completion::kLazy, Completion::kRandom})
    for (const std::uint64_t seed : {1, 2, 3})
      EXPECT_EQ(json_of(*trace_of(kRing, {.completion = completion, .seed = seed, .shuffle = true})), expected)
          << "completion " << static_cast<int>(completion) << ", seed " << seed;
}

TEST(Timeline, FollowsGroupsOfCopies) {
  const auto trace = trace_of(R"(
    mov.u32 %r10, data; shl.b32 %r11, %r0, 4; add.u32 %r11, %r11, %r10; cvt.u64.u32 %rd3, %r2; shl.b64 %rd3, %rd3, 4;
    add.u64 %rd3, %rd3, %rd1;
    cp.async.cg.shared.global [%r11+1024], [%rd3], 16; cp.async.commit_group;
    cp.async.cg.shared.global [%r11+2048], [%rd3], 16; cp.async.commit_group;
    cp.async.wait_group 1; cp.async.wait_group 0; bar.sync 0;
  )");
  ASSERT_TRUE(trace);
  // Two warps fill each place together.
  EXPECT_THAT(texts_on(*trace, "cp.async"), testing::UnorderedElementsAre("load X[0] 1 KB", "load X[1] 1 KB"));
  EXPECT_THAT(texts_on(*trace, "load"), Contains("wait X[0]"));
  EXPECT_THAT(texts_on(*trace, "load"), Contains("wait X[1]"));
  EXPECT_THAT(texts_on(*trace, "load"), Contains("arrive barrier 0"));
}

TEST(Timeline, IsOfTheClusterThatHasTheCta) {
  const LaunchShape shape = {.grid = {4, 2}, .block = {64}, .cluster = {2}};
  const auto trace = trace_of(kRing, {.timeline_cta = 7}, shape);
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->first_cta[0], 2u);
  EXPECT_EQ(trace->first_cta[1], 1u);
  EXPECT_EQ(trace->units.size(), 2u);
  EXPECT_EQ(trace_of(kRing, {.timeline_cta = 8}, shape), nullptr);  // there is none
}

TEST(Timeline, SaysWhoWaitsForWhat) {
  const std::vector<RoleWaits> waits = waits_by_role(*trace_of(kRing));
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[1].role, "read");
  ASSERT_FALSE(waits[1].places.empty());
  EXPECT_EQ(waits[1].places[0].name, "full");
  EXPECT_GT(waits[1].waiting, 0.5);
  EXPECT_LE(waits[1].waiting, 1.0);
}

TEST(TraceJson, IsWhatPerfettoReads) {
  const auto trace = trace_of(kRing, {}, {.grid = {2}, .block = {64}, .cluster = {2}});
  ASSERT_TRUE(trace);
  const std::vector<Trace> launches = {*trace, *trace};
  std::ostringstream out;
  write_chrome_trace(out, launches);
  EXPECT_EQ(test::problems_of_json(out.str()), "");
  EXPECT_THAT(out.str(), HasSubstr(R"("name": "wait full[0]", "cat": "wait", "ph": "X")"));
  EXPECT_THAT(out.str(), HasSubstr(R"("args": {"bytes": 1024})"));
}

TEST(TraceJson, EscapesNames) {
  Trace trace;
  trace.kernel = "a \"b\\\n";
  trace.units.resize(1);
  EXPECT_EQ(JsonValue::parse(json_of(trace)).at("/traceEvents/0/args/name").as_string(),
            "a \"b\\\n on , CTA 0 of the cluster at (0, 0, 0)");
}

TEST(TraceSvg, NeedsNothingElse) {
  const auto trace = trace_of(kRing);
  ASSERT_TRUE(trace);
  std::ostringstream out;
  write_svg(out, *trace, {.title = "Ring <of> two & more"});
  EXPECT_EQ(test::problems_of_svg(out.str()), "");
  for (const char* word : {">load</text>", ">read</text>", ">TMA</text>", "Ring &lt;of&gt; two &amp; more",
                           "wait full[0]", "class=\"flow\""})
    EXPECT_THAT(out.str(), HasSubstr(word));
}

TEST(TraceSvg, ShowsTheWindow) {
  const auto trace = trace_of(kRing);
  ASSERT_TRUE(trace);
  std::ostringstream out;
  write_svg(out, *trace, {.begin = 10, .end = 60});
  EXPECT_EQ(test::problems_of_svg(out.str()), "");
  EXPECT_THAT(out.str(), Not(HasSubstr("wait empty")));  // comes later
}

}  // namespace
}  // namespace kernelwright::emulator
