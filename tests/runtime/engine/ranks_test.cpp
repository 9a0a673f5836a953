/// Ranks that serve one model stay alike: digests of what is ready and of what runs, promotion by name, and the
/// protocol of docs/fleet.md under random schedules.
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <random>
#include <thread>

#include "kernelwright/generator/tuned/table.h"
#include "runtime/engine/engine_fixture.h"

namespace kernelwright::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr PrepareOptions kBehindAFallback{.on_miss = OnMiss::kFallback, .background = true};

/// Kernels with Specs of their own: each depth of the heads is one.
AttentionProblem problem_of(int depth) {
  AttentionProblem problem = prefill_problem();
  problem.head_dim = {depth, depth};
  return problem;
}

struct RanksTest : EngineTest {
  RanksTest() : EngineTest(2) {}
};

TEST_F(RanksTest, OnlyTheNamedKernelsAreServedFromThenOn) {
  Engine engine(options());
  const AttentionKernel one = engine.prepare(problem_of(64), other_schedule(), kBehindAFallback);
  const AttentionKernel two = engine.prepare(problem_of(128), other_schedule(), kBehindAFallback);
  ASSERT_TRUE(engine.wait_until_ready());
  const std::vector<Digest> ready = engine.ready_digests();
  ASSERT_THAT(ready, SizeIs(2));
  EXPECT_TRUE(std::is_sorted(ready.begin(), ready.end()));
  const Digest before = engine.plan_digest();
  EXPECT_EQ(engine.promote(std::span<const Digest>()), 0);
  EXPECT_EQ(engine.plan_digest(), before);
  EXPECT_EQ(engine.promote(std::span(ready).first(1)), 1);
  EXPECT_NE(one.serves_fallback(), two.serves_fallback());
  EXPECT_NE(engine.plan_digest(), before);
  EXPECT_EQ(engine.ready_digests(), ready) << "a kernel that serves is ready";
  EXPECT_EQ(engine.promote(ready), 1) << "the other one";
  EXPECT_FALSE(one.serves_fallback() || two.serves_fallback());
  EXPECT_EQ(engine.counters().promotions, 2u);
}

TEST_F(RanksTest, NothingIsPromotedIfOneNamedKernelIsMissing) {
  Engine engine(options());
  store->hold(kOtherSchedule);
  const AttentionKernel kernel = engine.prepare(problem_of(64), other_schedule(), kBehindAFallback);
  kernel.launch(some_tensors(), some_stream());  // the fallback is there
  EXPECT_THAT(engine.ready_digests(), IsEmpty());
  store->release();
  ASSERT_TRUE(engine.wait_until_ready());
  std::vector<Digest> expected = engine.ready_digests();
  ASSERT_THAT(expected, SizeIs(1));
  store->hold("");
  const AttentionKernel late = engine.prepare(problem_of(128), other_schedule(), kBehindAFallback);
  expected.push_back(sha256("another rank's"));
  EXPECT_THAT(message_of<NotReadyError>([&] { engine.promote(expected); }),
              AllOf(HasSubstr("was given 2 kernels, and 1 of them are not ready here, so none is promoted"),
                    HasSubstr(sha256("another rank's").hex()), HasSubstr("attention_portable (key " + late.key())));
  EXPECT_TRUE(kernel.serves_fallback());
  EXPECT_EQ(engine.counters().promotions, 0u);
  store->release();
}

TEST_F(RanksTest, DigestsAreEqualOnRanksThatRunTheSame) {
  const auto rank = [&](bool reversed, int device, const std::string& compiler) {
    FakeStore& compiled = *(store = std::make_shared<FakeStore>());
    compiled.compile_as(compiler);
    auto engine = std::make_unique<Engine>(options());
    const PrepareOptions on{.device = device};
    for (const int depth : reversed ? std::vector{128, 64} : std::vector{64, 128})
      engine->prepare(problem_of(depth), other_schedule(), on);
    return engine;
  };
  const auto a = rank(false, 0, "one"), b = rank(true, 1, "one"), c = rank(false, 0, "two");
  EXPECT_EQ(a->ready_digests(), b->ready_digests());
  EXPECT_EQ(a->plan_digest(), b->plan_digest()) << "neither the order nor the device matters";
  EXPECT_NE(a->plan_digest(), c->plan_digest()) << "other cubins";
  std::vector<Digest> shared;
  std::ranges::set_intersection(a->ready_digests(), c->ready_digests(), std::back_inserter(shared));
  EXPECT_THAT(shared, IsEmpty());
  a->prepare(problem_of(64));
  EXPECT_NE(a->plan_digest(), b->plan_digest()) << "one more problem";
}

TEST_F(RanksTest, ADeviceWithOtherSmsDividesItsWorkInAnotherWay) {
  device(1).mutable_info().num_sms = 78;
  Engine engine(options());
  engine.prepare(prefill_problem());
  const Digest wide = engine.plan_digest();
  Engine other(options());
  other.prepare(prefill_problem(), {}, {.device = 1});
  EXPECT_NE(other.plan_digest(), wide);
}

TEST_F(RanksTest, ProblemsThatShareOneKernelHaveDigestsOfTheirOwn) {
  Engine engine(options());
  AttentionProblem wider = prefill_problem();
  wider.heads = {16, 4};  // the same group: the same Spec
  engine.prepare(prefill_problem());
  const Digest one = engine.plan_digest();
  engine.prepare(wider);
  EXPECT_NE(engine.plan_digest(), one);
  const std::vector<Digest> ready = engine.ready_digests();
  ASSERT_THAT(ready, SizeIs(2));
  EXPECT_NE(ready[0], ready[1]);
}

TEST_F(RanksTest, EachDeviceOfAnEngineHasADigestOfItsOwn) {
  Engine engine(options());
  engine.prepare(prefill_problem(), {}, {.device = 0});
  engine.prepare(prefill_problem(), {}, {.device = 1});
  const std::vector<Digest> ready = engine.ready_digests();
  ASSERT_THAT(ready, SizeIs(2));
  EXPECT_NE(ready[0], ready[1]);
}

TEST_F(RanksTest, AKernelWithoutABinaryYetIsPartOfThePlan) {
  Engine engine(options());
  const Digest empty = engine.plan_digest();
  store->hold("");
  const AttentionKernel kernel = engine.prepare(prefill_problem(), {}, {.background = true});
  const Digest pending = engine.plan_digest();
  EXPECT_NE(pending, empty);
  store->release();
  kernel.wait();
  EXPECT_NE(engine.plan_digest(), pending);
}

TEST_F(RanksTest, TheFallbackComesFirstEvenIfTheKernelIsCached) {
  { Engine(options()).prepare(prefill_problem(), other_schedule()); }
  EngineOptions careful = options();
  careful.fallback_first = true;
  Engine cold(careful), eager(options());
  const AttentionKernel kernel = cold.prepare(prefill_problem(), other_schedule(), kBehindAFallback);
  const AttentionKernel at_once = eager.prepare(prefill_problem(), other_schedule(), kBehindAFallback);
  ASSERT_TRUE(cold.wait_until_ready() && eager.wait_until_ready());
  EXPECT_TRUE(kernel.serves_fallback());
  EXPECT_FALSE(at_once.serves_fallback());
  EXPECT_EQ(cold.ready_digests(), eager.ready_digests());
  EXPECT_EQ(cold.promote(cold.ready_digests()), 1);
  EXPECT_EQ(cold.plan_digest(), eager.plan_digest());
}

// Why ranks need more than promote(): it takes what each of them has at that moment.
TEST_F(RanksTest, RanksThatPromoteWhatEachOfThemHasDiverge) {
  Engine fast(options());
  store = std::make_shared<FakeStore>();
  store->hold(kOtherSchedule);
  Engine slow(options());
  for (Engine* engine : {&fast, &slow})
    engine->prepare(prefill_problem(), other_schedule(), kBehindAFallback).launch(some_tensors(), some_stream());
  ASSERT_TRUE(fast.wait_until_ready());
  EXPECT_EQ(fast.plan_digest(), slow.plan_digest());
  fast.promote(), slow.promote();
  EXPECT_NE(fast.plan_digest(), slow.plan_digest());
  store->release();
}

/// Four ranks run the protocol of docs/fleet.md. At step s each tells the others which kernels it has. At step s + 2 it
/// promotes what all of them had, once all have told. Each step runs launches, so its plan must be equal on all ranks.
class RankRace {
 public:
  static constexpr int kRanks = 4, kMostSteps = 40;
  static constexpr int kDepths[] = {64, 96, 128};

  explicit RankRace(unsigned seed, std::shared_ptr<const TunedTable> rows) : random_(seed) {
    slow_ = {below(kRanks), below(std::size(kDepths))};
    fails_ = below(4) == 0;
    for (int i = 0; i < kRanks; ++i) ranks_.push_back(std::make_unique<Rank>(rows));
    if (fails_) ranks_[slow_.first]->store->fail(part(slow_.second));
    for (const auto& rank : ranks_) {
      for (std::size_t i = 0; i < std::size(kDepths); ++i) rank->store->hold(part(i));
      for (const int depth : kDepths)
        rank->kernels.push_back(rank->engine->prepare(problem_of(depth), other_schedule(), kBehindAFallback));
      for (const AttentionKernel& kernel : rank->kernels) kernel.launch(some_tensors(), some_stream());
    }
  }

  void run() {
    while (std::ranges::any_of(ranks_, [](const auto& rank) { return rank->plans.size() < kMostSteps; })) {
      if (below(3) == 0) finish_a_compile();
      Rank& rank = *ranks_[below(kRanks)];
      if (may_step(rank)) step(rank);
      if (rank.plans.size() == kMostSteps - 5) finish_all();
    }
    for (int s = 0; s < kMostSteps; ++s)
      for (const auto& rank : ranks_)
        ASSERT_EQ(rank->plans[static_cast<std::size_t>(s)], ranks_[0]->plans[static_cast<std::size_t>(s)])
            << "step " << s;
    for (const auto& rank : ranks_)
      for (std::size_t i = 0; i < std::size(kDepths); ++i)
        ASSERT_EQ(rank->kernels[i].serves_fallback(), fails_ && i == slow_.second)
            << "a kernel that one rank cannot compile is promoted on none";
  }

 private:
  struct Rank {
    explicit Rank(std::shared_ptr<const TunedTable> rows) {
      EngineOptions options;
      options.cache = memory_only();
      options.cache.failure_ttl_ms = 1'000'000;
      options.compile_threads = 1 + static_cast<int>(std::size(kDepths));  // one more than may be held
      options.custom_backend = std::make_shared<FakeBackend>(1);
      options.custom_store = store;
      options.custom_rows = std::move(rows);
      options.fallback_first = true;
      engine = std::make_unique<Engine>(options);
    }
    ~Rank() { store->release(); }
    std::shared_ptr<FakeStore> store = std::make_shared<FakeStore>();
    std::unique_ptr<Engine> engine;
    std::vector<AttentionKernel> kernels;
    std::vector<Digest> plans;                // of each step that it has run
    std::vector<std::vector<Digest>> offers;  // what it had at each of them
  };

  std::size_t below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }
  /// Text of the Spec of a wanted kernel alone.
  static std::string part(std::size_t kernel) {
    return std::string(kOtherSchedule) + "&head_dim_qk " + std::to_string(kDepths[kernel]) + "\n";
  }

  /// A step waits for the gather of two steps ago, in which every rank takes part.
  bool may_step(const Rank& rank) const {
    const std::size_t s = rank.plans.size();
    if (s >= kMostSteps) return false;
    return s < 2 || std::ranges::all_of(ranks_, [&](const auto& each) { return each->offers.size() > s - 2; });
  }

  void step(Rank& rank) {
    if (const std::size_t s = rank.plans.size(); s >= 2) {
      std::vector<Digest> agreed = ranks_[0]->offers[s - 2];
      for (const auto& each : ranks_) {
        std::vector<Digest> both;
        std::ranges::set_intersection(agreed, each->offers[s - 2], std::back_inserter(both));
        agreed = std::move(both);
      }
      rank.engine->promote(agreed);
    }
    rank.plans.push_back(rank.engine->plan_digest());
    rank.offers.push_back(rank.engine->ready_digests());
  }

  void finish_a_compile() {
    const std::pair<std::size_t, std::size_t> which{below(kRanks), below(std::size(kDepths))};
    if (which == slow_ && below(8) != 0) return;
    ranks_[which.first]->store->release(part(which.second));
    if (below(2) == 0) std::this_thread::yield();
  }
  void finish_all() {
    for (const auto& rank : ranks_) {
      rank->store->release();
      rank->engine->wait_until_ready();
    }
  }

  std::mt19937 random_;
  std::pair<std::size_t, std::size_t> slow_;  // the rank and the kernel that compiles slowly
  bool fails_ = false;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST(Ranks, NeverDivergeUnderRandomSchedules) {
  const char* const given = std::getenv("KERNELWRIGHT_RANK_SCHEDULES");
  const unsigned schedules = given ? static_cast<unsigned>(std::atoi(given)) : 60;
  const auto rows = std::make_shared<const TunedTable>();
  for (unsigned seed = 0; seed < schedules && !testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RankRace(seed, rows).run();
  }
}

}  // namespace
}  // namespace kernelwright::test
