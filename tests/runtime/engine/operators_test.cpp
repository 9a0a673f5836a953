// The engine's reports for operators: kernels one by one, latencies, text for Prometheus, events by level, sealed and
// ready.
#include <utility>

#include "kernelwright/runtime/c/c_api.h"
#include "kernelwright/runtime/c/c_api_engine.h"
#include "kernelwright/runtime/engine/prometheus.h"
#include "kernelwright/runtime/process/latency.h"
#include "runtime/c/c_api_in_c_test.h"
#include "runtime/cache/testing.h"
#include "runtime/engine/engine_fixture.h"
#include "support/prometheus_checker.h"

namespace kernelwright::test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST(Latency, CountsInBucketsThatDouble) {
  LatencyHistogram histogram(1000);
  for (const auto spent : {0ns, 1000ns, 1001ns, 2000ns, 4001ns, -5ns}) histogram.add(spent);
  histogram.add(100h);
  const LatencySnapshot now = histogram.snapshot();
  EXPECT_DOUBLE_EQ(now.bounds_s[0], 1e-6);
  EXPECT_DOUBLE_EQ(now.bounds_s[3], 8e-6);
  EXPECT_EQ(now.buckets[0], 3u);
  EXPECT_EQ(now.buckets[1], 2u);
  EXPECT_EQ(now.buckets[2], 0u);
  EXPECT_EQ(now.buckets[3], 1u);
  EXPECT_EQ(now.buckets.back(), 1u);
  EXPECT_EQ(now.count, 7u);
  EXPECT_NEAR(now.sum_s, 360000 + 8.002e-6, 1e-4);
}

TEST(Latency, SamplesAboutOneInSoMany) {
  int of_100 = 0;
  for (int i = 0; i < 100'000; ++i) {
    EXPECT_FALSE(sampled(0));
    EXPECT_TRUE(sampled(1));
    of_100 += sampled(100);
  }
  EXPECT_NEAR(of_100, 1000, 200);
}

TEST(Prometheus, EscapesWhatTheFormatAsksFor) {
  PrometheusText text;
  text.gauge("a_gauge", "A back\\slash and a line\nfeed; a \"quote\" stays.");
  text.sample(0.125, {{"name", "a \"quoted\" back\\slash\nand a line feed"}, {"other", ""}});
  text.counter("a_total", "Nothing.");
  text.sample(std::uint64_t{18446744073709551615u});
  const std::string written = text.take();
  EXPECT_EQ(written,
            "# HELP a_gauge A back\\\\slash and a line\\nfeed; a \"quote\" stays.\n"
            "# TYPE a_gauge gauge\n"
            "a_gauge{name=\"a \\\"quoted\\\" back\\\\slash\\nand a line feed\",other=\"\"} 0.125\n"
            "# HELP a_total Nothing.\n"
            "# TYPE a_total counter\n"
            "a_total 18446744073709551615\n");
  const PrometheusChecker checked(written);
  EXPECT_THAT(checked.faults, IsEmpty());
  EXPECT_EQ(checked.value("a_gauge", {{"name", "a \"quoted\" back\\slash\nand a line feed"}, {"other", ""}}), 0.125);
}

TEST(Prometheus, TheCheckerBites) {
  const std::string head = "# HELP a A.\n# TYPE a gauge\n", histogram = "# HELP h H.\n# TYPE h histogram\n";
  EXPECT_THAT(PrometheusChecker(head + "a 1\n").faults, IsEmpty());
  EXPECT_THAT(
      PrometheusChecker(histogram + "h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 1\nh_count 2\n").faults,
      IsEmpty());
  for (const std::string& wrong : {head + "a 1",
                                   head,
                                   head + "a 1\n\n",
                                   head + "a one\n",
                                   head + "b 1\n",
                                   head + "a{x=1} 1\n",
                                   head + "a{x=\"1\",} 1\n",
                                   head + "a{x=\"1\",x=\"1\"} 1\n",
                                   head + "a{x=\"\\t\"} 1\n",
                                   head + "a{x=\"\"\"} 1\n",
                                   head + "a 1\na 2\n",
                                   head + "a 1\n" + head + "a{x=\"1\"} 1\n",
                                   std::string("a 1\n"),
                                   std::string("# TYPE a gauge\na 1\n"),
                                   std::string("# HELP a A\\t.\n# TYPE a gauge\na 1\n"),
                                   std::string("# HELP a A.\n# TYPE a counter\na 1\n"),
                                   std::string("# HELP 1a A.\n# TYPE 1a gauge\n1a 1\n"),
                                   histogram + "h_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n",
                                   histogram + "h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n",
                                   histogram + "h_bucket{le=\"1\"} 3\nh_bucket{le=\"+Inf\"} 2\nh_sum 1\nh_count 2\n",
                                   histogram + "h_bucket{le=\"+Inf\"} 2\nh_count 2\n"})
    EXPECT_THAT(PrometheusChecker(wrong).faults, Not(IsEmpty())) << wrong;
}

struct OperatorsTest : EngineTest {};

TEST_F(OperatorsTest, MetricsAreTextThatAScraperTakes) {
  device().mutable_info().name = "a \"fake\" \\ with\nlines";
  EngineOptions wanted = options();
  wanted.launch_sampling = 1;
  Engine engine(wanted);
  const AttentionKernel kernel = engine.prepare(prefill_problem());
  kernel.launch(some_tensors(), some_stream());
  kernel.launch(some_tensors(), some_stream());
  store->fail(kOtherSchedule);
  EXPECT_THROW(engine.prepare(prefill_problem(), other_schedule()), CompileError);
  const PrometheusChecker told(engine.metrics());
  EXPECT_THAT(told.faults, IsEmpty()) << engine.metrics();
  EXPECT_EQ(told.value("kernelwright_device_info",
                       {{"backend", "fake"}, {"device", "0"}, {"name", "a \"fake\" \\ with\nlines"}}),
            1);
  EXPECT_EQ(told.value("kernelwright_kernels", {{"state", "ready"}}), 1);
  EXPECT_EQ(told.value("kernelwright_kernels", {{"state", "failed"}}), 1);
  EXPECT_EQ(told.value("kernelwright_ready"), 0);
  EXPECT_EQ(told.value("kernelwright_sealed"), 0);
  EXPECT_EQ(told.value("kernelwright_loads_total"), 1);
  EXPECT_EQ(told.value("kernelwright_compiles_total"), 1);
  EXPECT_EQ(told.value("kernelwright_compile_failures_total"), 1);
  EXPECT_EQ(told.value("kernelwright_prepare_seconds_count"), 1);
  EXPECT_EQ(told.value("kernelwright_compile_seconds_count"), 1);
  EXPECT_EQ(told.value("kernelwright_load_seconds_count"), 1);
  EXPECT_EQ(told.value("kernelwright_launch_seconds_count"), 2);
  engine.seal();
  EXPECT_EQ(PrometheusChecker(engine.metrics()).value("kernelwright_sealed"), 1);
}

TEST_F(OperatorsTest, LaunchesAreTimedOnRequestAlone) {
  for (const std::uint32_t every : {0u, 1u, 4u}) {
    EngineOptions wanted = options();
    wanted.launch_sampling = every;
    Engine engine(wanted);
    const AttentionKernel kernel = engine.prepare(prefill_problem());
    GemmProblem product{.n = 256, .k = 256};
    const GemmKernel gemm = engine.prepare(product);
    const QuantizeKernel quantize = engine.prepare(QuantizeProblem{DType::kBf16, DType::kMxfp8});
    GemmTensors of_gemm{.a = 0x10000, .b = 0x100000, .d = 0x200000, .m = 16};
    QuantizeTensors of_quantize{.x = 0x10000, .elements = 0x100000, .scales = 0x200000, .rows = 4, .k = 64};
    for (int i = 0; i < 100; ++i) {
      kernel.launch(some_tensors(), some_stream());
      gemm.launch(of_gemm, some_stream());
      quantize.launch(of_quantize, some_stream());
    }
    EXPECT_THAT(device().launches(), SizeIs(300));
    device().forget_launches();
    const std::uint64_t timed = engine.latencies().launch.count;
    EXPECT_NEAR(static_cast<double>(timed), every ? 300.0 / every : 0, every == 4 ? 45 : 0);
  }
}

TEST_F(OperatorsTest, ARefusedLaunchOfAWatchedKernelIsNotCounted) {
  EngineOptions wanted = options();
  wanted.launch_sampling = 1;
  Engine engine(wanted);
  const AttentionKernel kernel = engine.prepare(prefill_problem());
  AttentionTensors wrong = some_tensors();
  wrong.q = 0x10001;
  EXPECT_THROW(kernel.launch(wrong, some_stream()), ConfigError);
  EXPECT_EQ(engine.latencies().launch.count, 0u);
}

TEST_F(OperatorsTest, KernelsAreListedWithTheirStateAndSource) {
  Engine engine(options());
  EXPECT_THAT(engine.kernels(), IsEmpty());
  store->hold(kOtherSchedule);
  const AttentionKernel kernel =
      engine.prepare(prefill_problem(), other_schedule(), {.on_miss = OnMiss::kFallback, .background = true});
  kernel.launch(some_tensors(), some_stream());  // waits for the fallback alone
  std::vector<KernelRow> rows = engine.kernels();
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0].kind, "attention");
  EXPECT_EQ(rows[0].kernel, "attention_portable");
  EXPECT_EQ(rows[0].family, Family::kPortable);
  EXPECT_EQ(rows[0].key, kernel.key());
  EXPECT_EQ(rows[0].state, KernelState::kPending);
  EXPECT_FALSE(rows[0].serving || rows[0].fallback);
  EXPECT_EQ(rows[0].source, CacheSource::kNone);
  EXPECT_EQ(rows[0].cubin_bytes, 0u);
  EXPECT_TRUE(rows[1].serving && rows[1].fallback);
  EXPECT_EQ(rows[1].prepared, rows[0].prepared);
  EXPECT_NE(rows[1].key, rows[0].key);
  EXPECT_EQ(rows[1].source, CacheSource::kCompiled);
  EXPECT_EQ(rows[1].cubin_bytes, 64u);

  store->release();
  ASSERT_TRUE(engine.wait_until_ready());
  engine.promote();
  rows = engine.kernels();
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_TRUE(rows[0].serving && !rows[1].serving);
  EXPECT_EQ(rows[0].state, KernelState::kReady);
  EXPECT_EQ(rows[0].source, CacheSource::kCompiled);
  EXPECT_EQ(rows[0].entry, kernel.binary()->entry);

  Engine second(options());  // the same store: what the first engine compiled is in memory
  second.prepare(prefill_problem(), other_schedule());
  ASSERT_THAT(second.kernels(), SizeIs(1));
  EXPECT_EQ(second.kernels()[0].source, CacheSource::kMemory);

  store->fail("attention_portable");
  AttentionProblem third = prefill_problem();
  third.heads = {4, 4};
  third.lse = true;
  EXPECT_THROW(second.prepare(third), CompileError);
  ASSERT_THAT(second.kernels(), SizeIs(2));
  EXPECT_EQ(second.kernels()[1].state, KernelState::kFailed);
  EXPECT_THAT(second.kernels()[1].error, HasSubstr("told to fail"));
  EXPECT_EQ(second.kernels()[1].prepared, 1u);
}

TEST_F(OperatorsTest, EveryKernelOfAGemmIsARow) {
  Engine engine(options());
  engine.prepare(prefill_problem());
  const GemmKernel gemm = engine.prepare(GemmProblem{.n = 256, .k = 256});
  engine.prepare(QuantizeProblem{DType::kBf16, DType::kMxfp8});
  const std::vector<KernelRow> rows = engine.kernels();
  ASSERT_THAT(rows, SizeIs(gemm.binaries().size() + 2));
  for (std::size_t i = 1; i + 1 < rows.size(); ++i) {
    EXPECT_EQ(rows[i].kind, "gemm");
    EXPECT_EQ(rows[i].prepared, 1u);
    EXPECT_EQ(rows[i].entry, gemm.binaries()[i - 1]->entry);
    EXPECT_EQ(rows[i].source, CacheSource::kCompiled) << "whichever thread compiled it";
  }
  EXPECT_EQ(rows.back().kernel, "quantize");
  EXPECT_EQ(rows.back().prepared, 2u);
}

TEST_F(OperatorsTest, SourcesNameTheDiskAndReadOnlyLayers) {
  const TempFolder folder;
  const auto source = [&](const CacheOptions& cache) {
    store = std::make_shared<FakeStore>(cache, "/nowhere");
    Engine engine(options());
    engine.prepare(prefill_problem());
    return engine.kernels().at(0).source;
  };
  CacheOptions cache;
  cache.directory = folder / "cache";
  EXPECT_EQ(source(cache), CacheSource::kCompiled);
  EXPECT_EQ(source(cache), CacheSource::kDisk);
  cache.directory = folder / "empty";
  cache.read_only_layers = {folder / "cache"};
  EXPECT_EQ(source(cache), CacheSource::kLayer);
}

TEST_F(OperatorsTest, EventsHaveLevelsAndASinkTakesThemFromOneOn) {
  for (const EventLevel least : {EventLevel::kDebug, EventLevel::kInfo, EventLevel::kWarning, EventLevel::kError}) {
    events.clear();
    store = std::make_shared<FakeStore>();
    EngineOptions wanted = options();
    wanted.sink_level = least;
    Engine engine(wanted);
    store->fail(kOtherSchedule);
    engine.prepare(prefill_problem(), other_schedule(), {.on_miss = OnMiss::kFallback, .background = true});
    EXPECT_FALSE(engine.wait_until_ready());
    EXPECT_THAT(events_of(EventKind::kFailure), SizeIs(1));
    EXPECT_THAT(events_of(EventKind::kFallback), SizeIs(least <= EventLevel::kInfo ? 1 : 0));
    for (const auto& event : events) EXPECT_GE(event.level(), least) << to_string(event.kind);
  }
  EXPECT_EQ(level_of(EventKind::kCacheHit), EventLevel::kDebug);
  EXPECT_EQ(level_of(EventKind::kCompile), EventLevel::kInfo);
  EXPECT_EQ(level_of(EventKind::kCacheDegraded), EventLevel::kWarning);
  EXPECT_EQ(level_of(EventKind::kSealedMiss), EventLevel::kError);
  EXPECT_FALSE(at_least(EventLevel::kError, nullptr));
}

TEST_F(OperatorsTest, ReadyAndSealedAreAskedWithoutWaiting) {
  Engine engine(options());
  EXPECT_TRUE(engine.ready()) << "nothing was asked for";
  EXPECT_FALSE(engine.sealed());
  store->hold("");
  const AttentionKernel kernel = engine.prepare(prefill_problem(), {}, {.background = true});
  EXPECT_FALSE(engine.ready());
  store->release();
  kernel.wait();
  EXPECT_TRUE(engine.ready());
  engine.seal();
  EXPECT_TRUE(engine.sealed());
}

TEST_F(OperatorsTest, AllOfItIsThereInC) {
  EngineOptions wanted = options();
  wanted.launch_sampling = 1;
  kernelwright_engine engine(wanted);
  EXPECT_EQ(c_tells_operators(&engine), 0);
}

TEST(OperatorsInC, AnEventHasItsLevelAndTheOptionItsRange) {
  kernelwright_engine_options options{};
  options.struct_size = sizeof options;
  options.backend = "emulator";
  options.cache_directory = "";  // a warning
  std::vector<int> levels;
  options.user_data = &levels;
  options.event_callback = [](const kernelwright_event* event, void* to) {
    static_cast<std::vector<int>*>(to)->push_back(event->level);
  };
  kernelwright_engine* engine = nullptr;
  for (const int level : {KERNELWRIGHT_LEVEL_WARNING, KERNELWRIGHT_LEVEL_ERROR}) {
    options.event_level = level;
    EXPECT_EQ(kernelwright_engine_create(&options, &engine), KERNELWRIGHT_OK);
    kernelwright_engine_destroy(std::exchange(engine, nullptr));
    EXPECT_THAT(levels, ElementsAre(KERNELWRIGHT_LEVEL_WARNING)) << "told once, at the level warning";
  }
  options.event_level = 4;
  EXPECT_EQ(kernelwright_engine_create(&options, &engine), KERNELWRIGHT_INVALID_ARGUMENT);
  EXPECT_STREQ(kernelwright_last_error(),
               "/engine_options/event_level: 4 is none of debug (0), info (1), warning (2) and error (3)");
}

}  // namespace
}  // namespace kernelwright::test
