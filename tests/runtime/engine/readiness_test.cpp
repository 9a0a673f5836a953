// What an engine reports in unusual situations: misses after seal(), forks, stop().
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/runtime/c/c_api_engine.h"
#include "kernelwright/runtime/process/interrupt.h"
#include "runtime/engine/engine_fixture.h"

namespace kernelwright::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct Readiness : EngineTest {};

AttentionProblem problem_with_window(int left) {
  AttentionProblem problem = prefill_problem();
  problem.mask.kind = MaskKind::kSlidingWindow;
  problem.mask.window = {left, 0};
  problem.heads = {left + 1, 1};  // heads are a part of the plan, and so of the kernel
  return problem;
}

void settle(const AttentionKernel& kernel) {
  try {
    kernel.wait();
  } catch (const Error&) {
  }
}

TEST_F(Readiness, AMissAfterSealLeavesPreparedKernelsReady) {
  Engine engine(options());
  engine.prepare(prefill_problem());
  engine.seal();
  EXPECT_THROW(engine.prepare(prefill_problem(), other_schedule()), NotReadyError);
  settle(engine.prepare(problem_with_window(5), {}, {.background = true}));
  EXPECT_TRUE(engine.wait_until_ready(0));
  const EngineCounters counters = engine.counters();
  EXPECT_EQ(counters.ready, 1u);
  EXPECT_EQ(counters.failed, 0u);
  EXPECT_EQ(counters.sealed_misses, 2u);
}

TEST_F(Readiness, AKernelThatFailedBeforeSealIsStillSaidToHave) {
  store->fail(kOtherSchedule);
  Engine engine(options());
  EXPECT_THROW(engine.prepare(prefill_problem(), other_schedule()), CompileError);
  engine.seal();
  EXPECT_FALSE(engine.wait_until_ready(0));
  EXPECT_EQ(engine.counters().failed, 1u);
}

TEST_F(Readiness, ASealedMissThatIsAllowedLaterIsPreparedLikeAnyOther) {
  Engine engine(options());
  engine.seal();
  EXPECT_THROW(engine.prepare(prefill_problem(), other_schedule()), NotReadyError);
  store->fail(kOtherSchedule);
  EXPECT_THROW(engine.prepare(prefill_problem(), other_schedule(), {.allow_when_sealed = true}), CompileError);
  EXPECT_FALSE(engine.wait_until_ready(0));
}

TEST_F(Readiness, SealedMissesAreRememberedUpToABound) {
  EngineOptions wanted = options();
  Engine engine(wanted);
  engine.prepare(prefill_problem());
  const AttentionSpec cached = plan_attention(prefill_problem(), other_schedule(), kFakeArch).main;
  engine.seal();
  constexpr int kMisses = 1100;
  for (int i = 0; i < kMisses; ++i)
    EXPECT_THAT(message_of<NotReadyError>([&] { engine.prepare(problem_with_window(i)); }),
                HasSubstr("is not in the cache and the engine is sealed"));
  EXPECT_EQ(engine.counters().sealed_misses, static_cast<std::uint64_t>(kMisses));
  EXPECT_THAT(events_of(EventKind::kSealedMiss), SizeIs(1024));
  EXPECT_FALSE(engine.find(problem_with_window(kMisses - 1))) << "beyond the bound nothing is kept";
  EXPECT_TRUE(engine.find(problem_with_window(0)));
  // A cached kernel is still loaded.
  store->compile(cached);
  if (const auto combine = plan_attention(prefill_problem(), other_schedule(), kFakeArch).combine)
    store->compile(*combine);
  EXPECT_EQ(engine.prepare(prefill_problem(), other_schedule()).state(), KernelState::kReady);
  EXPECT_TRUE(engine.wait_until_ready(0));
}

/// The exit status of a child of fork() that runs `body`, or -1 if it did not end within ten seconds.
template <class Body>
int status_in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(Readiness, AForkedChildIsRefusedWhatItCouldOnlyWaitFor) {
  store->hold("");
  kernelwright_engine engine(options());
  const AttentionKernel pending = engine.engine.prepare(prefill_problem(), {}, {.background = true});
  kernelwright_kernel* const handle = engine.handle(pending);
  const auto says_so = [](const std::string& text) { return text.find("child of fork()") != std::string::npos; };
  EXPECT_EQ(status_in_child([&] {
              if (kernelwright_kernel_wait(handle) != KERNELWRIGHT_INTERNAL_ERROR) return 1;
              if (!says_so(kernelwright_last_error())) return 2;
              if (!says_so(message_of<Error>([&] { pending.wait(); }))) return 3;
              if (!says_so(message_of<Error>([&] { engine.engine.wait_until_ready(); }))) return 4;
              if (!says_so(message_of<Error>([&] { pending.launch(some_tensors(), some_stream()); }))) return 5;
              if (!says_so(message_of<Error>([&] { engine.engine.prepare(prefill_problem()); }))) return 6;
              if (!says_so(message_of<Error>([&] { engine.engine.stop(); }))) return 7;
              return 42;
            }),
            42);
  store->release();
  pending.wait();
  EXPECT_EQ(status_in_child([&] { return kernelwright_kernel_wait(handle) == KERNELWRIGHT_OK ? 42 : 1; }), 42)
      << "it was ready before the fork";
}

TEST_F(Readiness, StopDropsWhatIsQueuedAndLeavesWhatIsReady) {
  Engine engine(options());
  const AttentionKernel ready = engine.prepare(prefill_problem());
  store->hold("");
  std::vector<AttentionKernel> pending;
  for (int i = 0; i < 8; ++i) pending.push_back(engine.prepare(problem_with_window(i), {}, {.background = true}));
  std::thread opener([&] {  // a compile that runs is waited for
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    store->release();
  });
  engine.stop();
  opener.join();
  int failed = 0;
  for (const AttentionKernel& kernel : pending) failed += kernel.state() == KernelState::kFailed;
  EXPECT_GE(failed, 6) << "two threads compile";
  EXPECT_THAT(message_of<InterruptedError>([&] { pending.back().wait(); }), HasSubstr("stopped"));
  EXPECT_THAT(events_of(EventKind::kFailure), SizeIs(0));
  EXPECT_THAT(message_of<NotReadyError>([&] { engine.prepare(prefill_problem(), other_schedule()); }),
              HasSubstr("was stopped"));
  EXPECT_EQ(engine.prepare(prefill_problem()), ready);
  ready.launch(some_tensors(), some_stream());
  engine.stop();
}

/// What an InterruptedError of wait() says, on a thread of its own, once the engine stops. `wait` gets the kernels of
/// four jobs; one compiles, and stop() drops the others.
std::string said_at_stop(Engine& engine, FakeStore& store,
                         const std::function<void(std::vector<AttentionKernel>&)>& wait) {
  store.hold("");
  std::vector<AttentionKernel> pending;
  for (int i = 0; i < 4; ++i) pending.push_back(engine.prepare(problem_with_window(i), {}, {.background = true}));
  std::string said;
  std::thread waiter([&] { said = message_of<InterruptedError>([&] { wait(pending); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // so that it waits already
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    store.release();
  });
  engine.stop();
  opener.join();
  waiter.join();
  return said;
}

TEST_F(Readiness, StopWakesWhoWaitsForAKernelThatIsDropped) {
  Engine engine(options());
  EXPECT_THAT(said_at_stop(engine, *store, [](auto& pending) { pending.back().wait(); }), HasSubstr("stopped"));
}

TEST_F(Readiness, StopWakesAPrepareThatWaitsForAKernelThatIsDropped) {
  Engine engine(options());
  EXPECT_THAT(said_at_stop(engine, *store, [&](auto&) { engine.prepare(problem_with_window(3)); }),
              HasSubstr("stopped"));
}

TEST(Interruption, AScopeEndsTheWorkOfItsThreadAlone) {
  std::atomic<bool> stop{true};
  EXPECT_FALSE(interrupted());
  {
    const InterruptScope scope(&stop);
    EXPECT_TRUE(interrupted());
    EXPECT_THROW(refuse_if_interrupted("x"), InterruptedError);
    std::thread([] { EXPECT_FALSE(interrupted()); }).join();
  }
  EXPECT_FALSE(interrupted());
}

// Two engines on one store: the second waits for a compile of the first, and the first interrupts it.
TEST_F(Readiness, WhoJoinedACompileThatWasInterruptedCompilesItself) {
  CubinCache cache(memory_only());
  const CacheKey key = store->key(plan_attention(prefill_problem(), {}, kFakeArch).main);
  std::atomic<bool> stop{false}, inside{false}, joined{false};
  std::thread owner([&] {
    const InterruptScope scope(&stop);
    EXPECT_THROW(cache.get_or_compile(key,
                                      [&]() -> Binary {
                                        inside = true;
                                        while (!stop) std::this_thread::yield();
                                        refuse_if_interrupted("a kernel");
                                        return {};
                                      }),
                 InterruptedError);
  });
  while (!inside) std::this_thread::yield();
  std::thread other([&] {
    joined = true;
    Binary binary;
    binary.entry = "made";
    EXPECT_EQ(cache.get_or_compile(key, [&] { return binary; })->entry, "made");
  });
  while (cache.counters().joined == 0) std::this_thread::yield();
  stop = true;
  owner.join();
  other.join();
  EXPECT_EQ(cache.counters().remembered_failures, 0u);
}

}  // namespace
}  // namespace kernelwright::test
