/// prepare(), its policies, sealing, promotion, captures and devices, on a backend and a compiler that the test
/// controls.
#include "kernelwright/runtime/engine/engine.h"

#include <thread>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/gemm/planner.h"
#include "runtime/cache/testing.h"
#include "runtime/engine/engine_fixture.h"

namespace kernelwright::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(EngineTest, PrepareCompilesLoadsAndServes) {
  Engine engine(options());
  const AttentionKernel kernel = engine.prepare(prefill_problem());
  EXPECT_EQ(kernel.state(), KernelState::kReady);
  EXPECT_FALSE(kernel.serves_fallback());
  ASSERT_TRUE(kernel.binary());
  EXPECT_EQ(kernel.key().size(), 64u);
  EXPECT_EQ(kernel.error(), "");
  kernel.launch(some_tensors(), some_stream());
  ASSERT_THAT(device().launches(), SizeIs(1));
  EXPECT_EQ(device().launches()[0].kernel->entry, kernel.binary()->entry);
  EXPECT_EQ(device().launches()[0].stream, some_stream());
}

TEST_F(EngineTest, OptsIntoTheKernelsSharedMemoryAtLoad) {
  Engine engine(options());
  const AttentionKernel kernel = engine.prepare(prefill_problem());
  kernel.launch(some_tensors(), some_stream());
  const FakeLaunch launch = device().launches().at(0);
  EXPECT_GT(launch.config.shared_bytes, 0u);
  EXPECT_GE(launch.kernel->max_shared_bytes, launch.config.shared_bytes);
}

TEST_F(EngineTest, PreparingAgainGivesTheSameHandleAndCompilesNothing) {
  Engine engine(options());
  const AttentionKernel first = engine.prepare(prefill_problem());
  const int builds = store->builds();
  EXPECT_EQ(engine.prepare(prefill_problem()), first);
  EXPECT_EQ(store->builds(), builds);
  EXPECT_NE(engine.prepare(prefill_problem(), other_schedule()), first);
}

TEST_F(EngineTest, ProblemsWithOneSpecShareOneLoadedKernel) {
  Engine engine(options());
  AttentionProblem wider = prefill_problem();
  wider.heads = {16, 4};  // the same group: the same Spec
  const AttentionKernel one = engine.prepare(prefill_problem()), other = engine.prepare(wider);
  EXPECT_NE(one, other);
  EXPECT_EQ(one.key(), other.key());
  EXPECT_EQ(store->most_builds_of_one(), 1);
  EXPECT_EQ(engine.counters().loads, static_cast<std::uint64_t>(store->builds()));
}

TEST_F(EngineTest, ThreadsThatPrepareOneProblemCompileItOnce) {
  Engine engine(options());
  std::vector<std::thread> threads;
  std::vector<AttentionKernel> kernels(16);
  for (int i = 0; i < 16; ++i)
    threads.emplace_back([&, i] {
      kernels[static_cast<std::size_t>(i)] = engine.prepare(prefill_problem(), {}, {.background = i % 4 == 0});
      kernels[static_cast<std::size_t>(i)].launch(some_tensors(), some_stream());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store->most_builds_of_one(), 1);
  for (const AttentionKernel& kernel : kernels) EXPECT_EQ(kernel, kernels[0]);
  EXPECT_THAT(device().launches(), SizeIs(16));
}

TEST_F(EngineTest, ABlockedLaunchWaitsForTheBackground) {
  Engine engine(options());
  store->hold("");
  const AttentionKernel kernel = engine.prepare(prefill_problem(), {}, {.background = true});
  EXPECT_EQ(kernel.state(), KernelState::kPending);
  std::atomic<bool> launched{false};
  std::thread launcher([&] {
    kernel.launch(some_tensors(), some_stream());
    launched = true;
  });
  store->wait_for_builds(1);
  EXPECT_FALSE(launched);
  EXPECT_FALSE(engine.wait_until_ready(/*timeout_ms=*/1));
  store->release();
  launcher.join();
  EXPECT_TRUE(engine.wait_until_ready());
  EXPECT_EQ(kernel.state(), KernelState::kReady);
}

TEST_F(EngineTest, TheErrorPolicyThrowsAndNamesTheKeyWhileItCompiles) {
  Engine engine(options());
  store->hold("");
  const AttentionKernel kernel = engine.prepare(prefill_problem(), {}, {.on_miss = OnMiss::kError, .background = true});
  EXPECT_THAT(
      message_of<NotReadyError>([&] { kernel.launch(some_tensors(), some_stream()); }),
      AllOf(HasSubstr("attention_portable (key " + kernel.key() + ") is not ready"), HasSubstr("call wait() first")));
  store->release();
  kernel.wait();
  kernel.launch(some_tensors(), some_stream());
  EXPECT_THAT(device().launches(), SizeIs(1));
}

TEST_F(EngineTest, TheFallbackServesUntilPromotion) {
  Engine engine(options());
  store->hold(kOtherSchedule);
  const AttentionKernel kernel =
      engine.prepare(prefill_problem(), other_schedule(), {.on_miss = OnMiss::kFallback, .background = true});
  kernel.launch(some_tensors(), some_stream());  // waits for the fallback alone
  EXPECT_TRUE(kernel.serves_fallback());
  EXPECT_EQ(kernel.state(), KernelState::kPending);
  EXPECT_FALSE(kernel.binary());
  EXPECT_EQ(engine.promote(), 0);  // nothing to promote yet
  store->release();
  ASSERT_TRUE(engine.wait_until_ready());
  kernel.launch(some_tensors(), some_stream());
  EXPECT_TRUE(kernel.serves_fallback()) << "ready, and yet only promote() may change what runs";
  EXPECT_EQ(engine.promote(), 1);
  EXPECT_EQ(engine.promote(), 0);
  kernel.launch(some_tensors(), some_stream());
  EXPECT_FALSE(kernel.serves_fallback());
  const auto launches = device().launches();
  ASSERT_THAT(launches, SizeIs(3));
  EXPECT_EQ(launches[0].kernel, launches[1].kernel);
  EXPECT_NE(launches[1].kernel, launches[2].kernel);
  EXPECT_EQ(launches[2].kernel->entry, kernel.binary()->entry);
  EXPECT_EQ(engine.counters().fallback_launches, 2u);
  EXPECT_EQ(engine.counters().promotions, 1u);
  EXPECT_THAT(events_of(EventKind::kFallback), SizeIs(1));
}

TEST_F(EngineTest, LaunchesGoOnWhileKernelsArriveAndArePromoted) {
  Engine engine(options());
  const AttentionKernel kernel =
      engine.prepare(prefill_problem(), other_schedule(), {.on_miss = OnMiss::kFallback, .background = true});
  std::atomic<bool> stop{false};
  std::atomic<int> launches{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 200 || !stop; ++n) {
        kernel.launch(some_tensors(), some_stream());
        engine.attention(prefill_problem(), some_tensors(), some_stream());
        (void)kernel.serves_fallback();
        (void)kernel.binary();
        (void)engine.counters();
        launches += 2;
        if (n % 50 == 49) device().forget_launches();
      }
    });
  while (kernel.state() == KernelState::kPending) engine.promote();
  engine.promote();
  while (launches < 600) std::this_thread::yield();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(kernel.serves_fallback());
}

TEST_F(EngineTest, AFailedKernelIsServedByItsFallbackForGood) {
  Engine engine(options());
  store->fail(kOtherSchedule);
  const AttentionKernel kernel =
      engine.prepare(prefill_problem(), other_schedule(), {.on_miss = OnMiss::kFallback, .background = true});
  EXPECT_FALSE(engine.wait_until_ready());
  EXPECT_EQ(kernel.state(), KernelState::kFailed);
  EXPECT_THAT(kernel.error(), HasSubstr("told to fail"));
  EXPECT_EQ(engine.promote(), 0);
  kernel.launch(some_tensors(), some_stream());
  EXPECT_TRUE(kernel.serves_fallback());
}

TEST_F(EngineTest, ALaunchSurvivesAFailedFallback) {
  Engine engine(options());
  store->hold(kOtherSchedule);
  store->fail("rescale lazy");
  const AttentionKernel kernel =
      engine.prepare(prefill_problem(), other_schedule(), {.on_miss = OnMiss::kFallback, .background = true});
  store->wait_for_builds(2);
  store->release();
  kernel.launch(some_tensors(), some_stream());
  EXPECT_FALSE(kernel.serves_fallback());
  EXPECT_EQ(kernel.state(), KernelState::kReady);
  EXPECT_THAT(events_of(EventKind::kFailure), SizeIs(1));
}

TEST_F(EngineTest, ABackgroundFailureReachesTheHandleTheSinkAndTheLaunch) {
  Engine engine(options());
  store->fail("");
  const AttentionKernel kernel = engine.prepare(prefill_problem(), {}, {.background = true});
  EXPECT_FALSE(engine.wait_until_ready());
  EXPECT_EQ(kernel.state(), KernelState::kFailed);
  EXPECT_THAT(kernel.error(), HasSubstr("told to fail"));
  EXPECT_THAT(message_of<CompileError>([&] { kernel.wait(); }), HasSubstr("told to fail"));
  EXPECT_THAT(message_of<CompileError>([&] { kernel.launch(some_tensors(), some_stream()); }),
              HasSubstr("told to fail"));
  const auto failures = events_of(EventKind::kFailure);
  ASSERT_THAT(failures, SizeIs(1));
  EXPECT_EQ(failures[0].key, kernel.key());
  EXPECT_THAT(failures[0].detail, HasSubstr("told to fail"));
  EXPECT_EQ(engine.counters().failed, 1u);
  EXPECT_THAT(device().launches(), SizeIs(0));
}

TEST_F(EngineTest, AFailedKernelIsTriedAgainAfterItsTime) {
  Engine engine(options());  // failure_ttl_ms is 0
  store->fail("");
  EXPECT_THROW(engine.prepare(prefill_problem()), CompileError);
  store->heal();
  EXPECT_EQ(engine.prepare(prefill_problem()).state(), KernelState::kReady);
}

TEST_F(EngineTest, AFailedKernelIsNotTriedAgainBeforeItsTime) {
  EngineOptions patient = options();
  patient.cache.failure_ttl_ms = 1'000'000;
  Engine engine(patient);
  store->fail("");
  EXPECT_THROW(engine.prepare(prefill_problem()), CompileError);
  const int builds = store->builds();
  store->heal();
  EXPECT_THROW(engine.prepare(prefill_problem()), CompileError);
  EXPECT_EQ(store->builds(), builds);
  EXPECT_THAT(events_of(EventKind::kFailure), SizeIs(1));
}

TEST_F(EngineTest, AFailedLoadIsAnErrorOfTheKernel) {
  Engine engine(options());
  device().refuse_loads = true;
  EXPECT_THAT(message_of<DeviceError>([&] { engine.prepare(prefill_problem()); }), HasSubstr("cuLibraryLoadData: 200"));
  device().refuse_loads = false;
  EXPECT_EQ(engine.prepare(prefill_problem()).state(), KernelState::kReady);
}

TEST_F(EngineTest, AMissInsideACaptureThrowsBeforeAnythingLoads) {
  Engine engine(options());
  store->hold("");
  const AttentionKernel kernel = engine.prepare(prefill_problem(), {}, {.background = true});
  store->wait_for_builds(1);
  device().capturing = CaptureState::kActive;
  EXPECT_THAT(
      message_of<NotReadyError>([&] { kernel.launch(some_tensors(), some_stream()); }),
      AllOf(HasSubstr(kernel.key()), HasSubstr("capturing"), HasSubstr("call wait() before the capture begins")));
  EXPECT_THAT(message_of<NotReadyError>([&] {
                AttentionProblem other = prefill_problem();
                other.mask.kind = MaskKind::kNone;
                engine.attention(other, some_tensors(), some_stream());
              }),
              AllOf(HasSubstr("attention_portable (key "), HasSubstr("was not prepared and its stream is capturing")));
  EXPECT_EQ(engine.counters().capture_misses, 2u);
  EXPECT_EQ(device().loads, 0);
  device().capturing = CaptureState::kNone;
  store->release();
  kernel.launch(some_tensors(), some_stream());
}

TEST_F(EngineTest, AReadyKernelIsLaunchedInsideACapture) {
  Engine engine(options());
  const AttentionKernel kernel = engine.prepare(prefill_problem());
  device().capturing = CaptureState::kActive;
  kernel.launch(some_tensors(), some_stream());
  engine.attention(prefill_problem(), some_tensors(), some_stream());
  EXPECT_THAT(device().launches(), SizeIs(2));
  EXPECT_EQ(device().loads_in_capture, 0);
}

TEST_F(EngineTest, AFallbackThatIsLoadedAlreadyServesInsideACapture) {
  Engine engine(options());
  engine.prepare(prefill_problem());
  store->hold(kOtherSchedule);
  const AttentionKernel kernel =
      engine.prepare(prefill_problem(), other_schedule(), {.on_miss = OnMiss::kFallback, .background = true});
  device().capturing = CaptureState::kActive;
  kernel.launch(some_tensors(), some_stream());
  EXPECT_TRUE(kernel.serves_fallback());
  device().capturing = CaptureState::kNone;
  store->release();
  EXPECT_TRUE(engine.wait_until_ready());
}

TEST_F(EngineTest, SealedNothingCompilesAndEachMissIsReportedOnce) {
  Engine engine(options());
  const AttentionKernel before = engine.prepare(prefill_problem());
  const int builds = store->builds();
  engine.seal();
  EXPECT_TRUE(engine.sealed());
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(message_of<NotReadyError>([&] { engine.prepare(prefill_problem(), other_schedule()); }),
                AllOf(HasSubstr("is not in the cache and the engine is sealed"), HasSubstr("allow_when_sealed")));
  EXPECT_EQ(store->builds(), builds);
  EXPECT_THAT(events_of(EventKind::kSealedMiss), SizeIs(1));
  EXPECT_THAT(events_of(EventKind::kFailure), SizeIs(0));
  EXPECT_EQ(engine.prepare(prefill_problem()), before);
  before.launch(some_tensors(), some_stream());
}

TEST_F(EngineTest, SealedItStillLoadsWhatIsCached) {
  store->compile(plan_attention(prefill_problem(), other_schedule(), kFakeArch).main);
  if (const auto combine = plan_attention(prefill_problem(), other_schedule(), kFakeArch).combine)
    store->compile(*combine);
  Engine engine(options());
  engine.seal();
  EXPECT_EQ(engine.prepare(prefill_problem(), other_schedule()).state(), KernelState::kReady);
}

TEST_F(EngineTest, SealedItCompilesWhatIsAllowed) {
  Engine engine(options());
  engine.seal();
  EXPECT_THROW(engine.prepare(prefill_problem()), NotReadyError);
  EXPECT_EQ(engine.prepare(prefill_problem(), {}, {.allow_when_sealed = true}).state(), KernelState::kReady);
}

TEST_F(EngineTest, SealedTheFallbackServesAMissIfItIsCached) {
  Engine engine(options());
  engine.prepare(prefill_problem());
  engine.seal();
  for (const bool background : {false, true}) {
    AttentionSchedule schedule = other_schedule();
    if (background) schedule.num_stages = 1;  // another schedule: the failed slot of the first would be found
    const AttentionKernel kernel =
        engine.prepare(prefill_problem(), schedule, {.on_miss = OnMiss::kFallback, .background = background});
    EXPECT_TRUE(engine.wait_until_ready()) << "waits for the miss, and does not count it";
    EXPECT_EQ(kernel.state(), KernelState::kFailed);
    EXPECT_TRUE(kernel.serves_fallback());
    kernel.launch(some_tensors(), some_stream());
  }
  EXPECT_THAT(events_of(EventKind::kSealedMiss), SizeIs(2));
}

TEST_F(EngineTest, WithoutACompilerCachedKernelsAreServed) {
  {
    Engine engine(options());
    engine.prepare(prefill_problem());
  }
  store->lose_the_compiler();
  Engine engine(options());
  EXPECT_EQ(engine.prepare(prefill_problem()).state(), KernelState::kReady);
  EXPECT_THAT(message_of<MissingError>([&] { engine.prepare(prefill_problem(), other_schedule()); }),
              HasSubstr("NVRTC"));
}

TEST_F(EngineTest, AttentionPreparesOnFirstUseAndThenFinds) {
  Engine engine(options());
  EXPECT_FALSE(engine.find(prefill_problem()));
  engine.attention(prefill_problem(), some_tensors(), some_stream());
  engine.attention(prefill_problem(), some_tensors(), some_stream());
  EXPECT_THAT(device().launches(), SizeIs(2));
  EXPECT_TRUE(engine.find(prefill_problem()));
  EXPECT_EQ(store->most_builds_of_one(), 1);
}

TEST_F(EngineTest, AttentionUsesTheKernelThatWasPreparedFirst) {
  Engine engine(options());
  const AttentionKernel tuned = engine.prepare(prefill_problem(), other_schedule());
  engine.prepare(prefill_problem());
  EXPECT_EQ(engine.find(prefill_problem()), tuned);
  engine.attention(prefill_problem(), some_tensors(), some_stream());
  EXPECT_EQ(device().launches().at(0).kernel->entry, tuned.binary()->entry);
}

TEST_F(EngineTest, AttentionTriesAFailedKernelAgain) {
  Engine engine(options());
  store->fail("");
  EXPECT_THROW(engine.attention(prefill_problem(), some_tensors(), some_stream()), CompileError);
  store->heal();
  engine.attention(prefill_problem(), some_tensors(), some_stream());
  EXPECT_THAT(device().launches(), SizeIs(1));
}

TEST_F(EngineTest, AttentionWithTheErrorPolicyThrowsWhileTheBackgroundCompiles) {
  EngineOptions strict = options();
  strict.on_miss = OnMiss::kError;
  Engine engine(strict);
  store->hold("");
  EXPECT_THROW(engine.attention(prefill_problem(), some_tensors(), some_stream()), NotReadyError);
  store->release();
  ASSERT_TRUE(engine.wait_until_ready());
  engine.attention(prefill_problem(), some_tensors(), some_stream());
}

struct TwoDevices : EngineTest {
  TwoDevices() : EngineTest(2) {}
};

TEST_F(TwoDevices, EachHasItsOwnHandleAndItsOwnLoad) {
  Engine engine(options());
  const AttentionKernel first = engine.prepare(prefill_problem(), {}, {.device = 0});
  const AttentionKernel second = engine.prepare(prefill_problem(), {}, {.device = 1});
  EXPECT_EQ(first.device(), 0);
  EXPECT_EQ(second.device(), 1);
  EXPECT_EQ(store->most_builds_of_one(), 1);
  EXPECT_EQ(device(0).loads, device(1).loads);
  EXPECT_EQ(engine.loaded_bytes(), 1000u * engine.counters().loads);
  second.launch(some_tensors(), some_stream());
  EXPECT_THAT(device(0).launches(), SizeIs(0));
  ASSERT_THAT(device(1).launches(), SizeIs(1));
  EXPECT_EQ(device(1).launches()[0].kernel->device, 1);
  EXPECT_EQ(engine.find(prefill_problem(), 1), second);
}

TEST_F(TwoDevices, AThirdOneIsMissing) {
  Engine engine(options());
  EXPECT_THAT(message_of<MissingError>([&] { engine.prepare(prefill_problem(), {}, {.device = 2}); }),
              HasSubstr("device 2"));
}

TEST_F(EngineTest, RefusesAnArchitectureThatTheDeviceDoesNotRun) {
  Engine engine(options());
  AttentionSchedule schedule;
  schedule.arch = Arch::kSm80;
  EXPECT_EQ(message_of<ConfigError>([&] { engine.prepare(prefill_problem(), schedule); }),
            "/schedule/arch: sm_80 binaries do not run on fake 0 (compute capability 12.0); write sm_120a");
}

TEST_F(EngineTest, RunsAnOlderMinorOfTheSameArchitecture) {
  device().mutable_info().compute_major = 8;
  device().mutable_info().compute_minor = 6;
  device().mutable_info().arch = Arch::kSm86;
  Engine engine(options());
  AttentionSchedule schedule;
  schedule.arch = Arch::kSm80;
  EXPECT_EQ(engine.prepare(prefill_problem(), schedule).plan().main.arch, Arch::kSm80);
  schedule.arch = Arch::kSm89;
  EXPECT_THROW(engine.prepare(prefill_problem(), schedule), ConfigError);
}

TEST_F(EngineTest, SaysWhichDevicesItKnows) {
  device().mutable_info().arch.reset();
  device().mutable_info().compute_major = 7;
  Engine engine(options());
  EXPECT_THAT(message_of<MissingError>([&] { engine.prepare(prefill_problem()); }),
              AllOf(HasSubstr("compute capability 7.0"), HasSubstr("sm_80")));
}

TEST_F(EngineTest, AnInvalidProblemIsAnErrorAndLeavesNoSlot) {
  Engine engine(options());
  AttentionProblem problem = prefill_problem();
  problem.head_dim.qk = 72000;
  EXPECT_THROW(engine.prepare(problem), ConfigError);
  EXPECT_THROW(engine.prepare(problem, {}, {.background = true}), ConfigError);
  EXPECT_FALSE(engine.find(problem));
  EXPECT_EQ(engine.counters().pending, 0u);
}

TEST(EngineBackend, AnUnknownOneIsRefusedByName) {
  EngineOptions options;
  options.backend = "metal";
  EXPECT_EQ(message_of<ConfigError>([&] { Engine engine(options); }),
            "/backend: \"metal\" is not a backend; cuda, emulator and auto are");
}

TEST(EngineBackend, OnlyOneThatRunsPtxReadsItFromTheCache) {
  const TempFolder folder;
  const AttentionPlan plan = plan_attention(prefill_problem(), {}, kFakeArch);
  for (const bool cuda : {true, false}) {
    EngineOptions options;
    options.cache.directory = folder.path();
    options.custom_backend = std::make_shared<FakeBackend>(1, cuda ? ImageKind::kCubin : ImageKind::kPtx);
    Engine engine(options);
    CubinCache({.directory = folder.path()}).put(engine.store().key(plan.main), test_binary());
    const auto found = engine.store().find(plan.main);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->cubin, test_binary().cubin);
    EXPECT_EQ(found->ptx, cuda ? "" : test_binary().ptx);
  }
}

TEST(EmptyHandle, ThrowsInsteadOfCrashing) {
  EXPECT_THROW(AttentionKernel().launch(some_tensors(), nullptr), Error);
  EXPECT_THROW(AttentionKernel().state(), Error);
  EXPECT_FALSE(AttentionKernel());
}

TEST_F(EngineTest, ClosingDropsQueuedCompilesAndWaitsForRunningOnes) {
  auto engine = std::make_unique<Engine>(options());
  store->hold("");
  for (const int heads : {1, 2, 3, 4, 5, 6}) {
    AttentionProblem problem = prefill_problem();
    problem.heads = {heads, 1};  // six groups: six Specs
    engine->prepare(problem, {}, {.background = true});
  }
  store->wait_for_builds(2);  // as many as there are threads
  std::thread closer([&] { engine.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  store->release();
  closer.join();
  EXPECT_LT(store->builds(), 6);
}

}  // namespace
}  // namespace kernelwright::test
