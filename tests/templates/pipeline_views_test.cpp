// The rings of templates/pipeline/ one by one: where barriers and parts of tiles lie, and the state after each call.
#include <gtest/gtest.h>

#include <string>

#include "fmt/format.h"
#include "templates/kv_pipeline_model.h"

namespace kernelwright {
namespace {

using namespace model;

using Split = Tiles<false, KvOrder::kKeysAhead, 3, 2, 3>;
using Shared = Tiles<true, KvOrder::kKeysAhead, 3>;

TEST(StagedPipeline, HasAllFullBarriersAheadOfAllEmptyOnes) {
  using Ring = pipeline::StagedPipeline<3, 2>;
  EXPECT_EQ(Ring::bytes, 96u);
  const Ring ring = Ring::consumer(160);
  EXPECT_EQ(ring.full<0>(0), 160u);
  EXPECT_EQ(ring.full<1>(2), 160u + 8 * 5);
  EXPECT_EQ(ring.empty<0>(0), 160u + 8 * 6);
  EXPECT_EQ(ring.empty<1>(2), 160u + 8 * 11);
  Model made;
  Recorder::model = &made;
  Ring::init(160, 1, 8);
  Recorder::model = nullptr;
  ASSERT_EQ(made.barriers.size(), 12u);
  for (const auto& [address, arrivals] : made.barriers) EXPECT_EQ(arrivals, address < 208 ? 1u : 8u) << address;
}

TEST(StagedPipeline, TurnsThePhaseWithEachLap) {
  auto state = pipeline::PipelineState<2>::before_consumer();
  std::string walk;
  for (int i = 0; i < 5; ++i) {
    state.step();
    walk += fmt::format(" {}/{}", state.index, state.phase);
  }
  EXPECT_EQ(walk, " 0/0 1/0 0/1 1/1 0/0");
}

TEST(TmaProducerPipeline, KnowsItsSizes) {
  using K = pipeline::TmaProducerPipeline<true, Split>;
  using V = pipeline::TmaProducerPipeline<false, Split>;
  EXPECT_TRUE(K::is_k && !V::is_k);
  EXPECT_EQ(K::elements, 6);
  EXPECT_EQ(K::elements_full, 12);
  EXPECT_EQ(K::tile_bytes, 6u);
  EXPECT_EQ(V::elements, 8);
  EXPECT_EQ(V::elements_full, 24);
  EXPECT_EQ(V::tile_bytes, 8u);
  // A slot of a shared ring holds keys or values.
  EXPECT_EQ((pipeline::TmaProducerPipeline<true, Shared>::slot_bytes), 24u);
  EXPECT_EQ((pipeline::KvRings<Split>::bytes), 2u * 8 * (3 * 2 + 3 * 3));
  EXPECT_EQ((pipeline::KvRings<Shared>::bytes), 2u * 8 * 3);
}

TEST(TmaProducerPipeline, ArmsABarrierOnlyIfAskedByTheElectedThread) {
  model::Thread thread{"producer", true, {}};
  Recorder::thread = &thread;
  pipeline::TmaProducerPipeline<true, Split> k(0, 512);
  k.commit_step();
  const pipeline::TileTarget target = k.get_tile<1>();
  EXPECT_EQ(target.full, 8u * 3);
  EXPECT_EQ(target.smem, 512u + 12 + 6);
  EXPECT_EQ(k.get_smem<1>(), target.smem);
  EXPECT_EQ(k.get_k_smem<0>(), 512u + 12);
  (void)k.get_tile<1>(false);
  (void)k.get_tile<1>(false, 20);
  EXPECT_TRUE(thread.actions.empty());
  (void)k.get_tile<1>(true);
  (void)k.get_tile<1>(true, 20);
  Recorder::thread = nullptr;
  ASSERT_EQ(thread.actions.size(), 2u);
  EXPECT_EQ(thread.actions[0].value, 6u);
  EXPECT_EQ(thread.actions[1].value, 20u);
}

TEST(TmaProducerPipeline, StepsARingThatItRefersToAndNotOneThatItCopies) {
  using Ring = pipeline::KvRings<Shared>::KRing;
  Ring ring = Ring::producer(0);
  pipeline::TmaProducerPipeline<true, Shared> copy(ring, 512);
  pipeline::TmaProducerPipeline<true, Shared, Ring&> k(ring, 512);
  pipeline::TmaProducerPipeline<false, Shared, Ring&> v(ring, 512);
  copy.commit_step();
  EXPECT_EQ(ring.state.index, 0u);
  k.commit_step();
  v.commit_step();
  EXPECT_EQ(ring.state.index, 2u);
  EXPECT_EQ(k.get_smem(), v.get_v_smem());
  k.commit_step();
  EXPECT_EQ(ring.state.index, 0u);
  EXPECT_EQ(ring.state.phase, 0u);
}

TEST(KvConsumerPipeline, GivesDescriptorsAsItsPolicyMakesThem) {
  struct Descriptors {
    uint64_t k(uint32_t address) const { return 1000 + address; }
    uint64_t v(uint32_t address) const { return 5000 + address; }
  };
  model::Thread thread{"consumer", false, {}};
  Recorder::thread = &thread;
  pipeline::KvConsumerPipeline<Tiles<true, KvOrder::kAlternating, 3, 2>, AllLanes<1>, Descriptors> kv(0, 512, 512, {});
  EXPECT_EQ(kv.wait_k<0>(), 1512u);
  EXPECT_EQ(kv.wait_k(), 1524u);  // where V's second sub-stage lies, which is longer
  EXPECT_EQ(kv.wait(), 524u);
  EXPECT_EQ(kv.wait_v<0>(), 5000u + 512 + 24);
  EXPECT_EQ(kv.wait_v(), 5000u + 512 + 24 + 12);
  EXPECT_EQ(kv.wait<0>(), 512u + 24);
  Recorder::thread = nullptr;
}

/// The trace of a consumer's calls: waits and arrivals as barrier/parity, by number of the barrier.
std::string trace_of(const model::Thread& thread) {
  std::string trace;
  for (const Action& action : thread.actions)
    trace += action.kind == Action::kWait ? fmt::format(" w{}/{}", action.address / 8, action.value)
                                          : fmt::format(" r{}", action.address / 8);
  return trace;
}

/// wK0(0), rK0(0), wV0(1); wK1(2), rV0(1), rK1(2), wV1(3); .. as the original writes it, K0 without a step.
template <class Kv>
std::string walk_of_the_original(Kv kv) {
  model::Thread thread{"consumer", false, {}};
  Recorder::thread = &thread;
  kv.template wait_k<0, false>();
  kv.release_k();
  kv.wait_v();
  for (int n = 1; n < 3; ++n) {
    kv.wait_k();
    kv.release_v();
    kv.release_k();
    kv.wait_v();
  }
  kv.release_v();
  Recorder::thread = nullptr;
  return trace_of(thread);
}

TEST(KvConsumerPipeline, TakesK0WithoutAStepFromTheSlotThatItsRingStandsOn) {
  using T = Tiles<true, KvOrder::kAlternating, 3>;
  using Kv = pipeline::KvConsumerPipeline<T, AllLanes<1>>;
  using Ring = pipeline::KvRings<T>::KRing;
  const std::string fresh = " w0/0 r3 w1/0 w2/0 r4 r5 w0/1 w1/1 r3 r4 w2/1 r5";
  EXPECT_EQ(walk_of_the_original(Kv(0, 512, 512, {})), fresh);
  EXPECT_EQ(walk_of_the_original(Kv(Ring::consumer(0), 512, {})), fresh);
  Ring later = Ring::consumer(0);
  for (int i = 0; i < 4; ++i) later.step();
  EXPECT_EQ(walk_of_the_original(Kv(later, 512, {})), " w1/1 r4 w2/1 w0/0 r5 r3 w1/0 w2/0 r4 r5 w0/1 r3");
}

TEST(KvConsumerPipeline, TakesK0LikeEveryOtherTileToo) {
  using T = Tiles<false, KvOrder::kKeysAhead, 2, 2, 1>;
  pipeline::KvConsumerPipeline<T, AllLanes<1>> kv(0, 512, 1024, {});
  model::Thread thread{"consumer", false, {}};
  Recorder::thread = &thread;
  EXPECT_EQ(kv.wait_whole_k(), 512u);
  EXPECT_EQ(kv.wait_whole_k(), 512u + 12);
  EXPECT_EQ((kv.wait_k<0, false>()), 512u + 12);  // again
  kv.release_whole_k();
  EXPECT_EQ(kv.wait_whole_k(), 512u);
  EXPECT_EQ(kv.wait_v(), 1024u);
  kv.release_v();
  Recorder::thread = nullptr;
  EXPECT_EQ(trace_of(thread), " w0/0 w1/0 w2/0 w3/0 w2/0 r6 r7 w0/1 w1/1 w8/0 r10");
}

TEST(KvConsumerPipeline, TakesRingsThatExist) {
  using T = Tiles<false, KvOrder::kAlternating, 2>;
  using Rings = pipeline::KvRings<T>;
  Rings::KRing k_ring = Rings::KRing::consumer(0);
  Rings::VRing v_ring = Rings::VRing::consumer(256);
  k_ring.step();
  pipeline::KvConsumerPipeline<T, AllLanes<1>> kv(k_ring, v_ring, 512, 1024, {});
  model::Thread thread{"consumer", false, {}};
  Recorder::thread = &thread;
  EXPECT_EQ(kv.wait_k(), 512u + 12);
  EXPECT_EQ(kv.wait_v(), 1024u);
  EXPECT_EQ(kv.wait_k(), 512u);
  Recorder::thread = nullptr;
  EXPECT_EQ(trace_of(thread), " w1/0 w32/0 w0/1");
}

TEST(KvProducer, TakesRingsThatExist) {
  using T = Tiles<true, KvOrder::kAlternating, 3, 2>;
  using Ring = pipeline::KvRings<T>::KRing;
  Ring ring = Ring::producer(0);
  for (int i = 0; i < 2; ++i) ring.step();
  pipeline::KvProducer<T> rings(ring, ring, 512, 512);
  auto k = rings.k();
  auto v = rings.v();
  EXPECT_EQ(k.get_k_smem<1>(), 512u + 2 * 24 + 12);
  k.commit_step();
  EXPECT_EQ(v.get_v_smem<1>(), 512u + 12);
  EXPECT_EQ(v.get_v<1>().full, 8u);
  model::Thread thread{"producer", true, {}};
  Recorder::thread = &thread;
  v.acquire_v<1>();
  Recorder::thread = nullptr;
  EXPECT_EQ(trace_of(thread), " w7/0");
}

TEST(ForEachLoad, CallsInTheOrderOfTheRing) {
  std::string calls;
  const auto k = [&](int j) { calls += fmt::format(" K{}", j); };
  const auto v = [&](int j) { calls += fmt::format(" V{}", j); };
  pipeline::for_each_load<KvOrder::kAlternating>(3, k, v);
  EXPECT_EQ(calls, " K0 V0 K1 V1 K2 V2");
  calls.clear();
  pipeline::for_each_load<KvOrder::kKeysAhead>(3, k, v);
  EXPECT_EQ(calls, " K0 K1 V0 K2 V1 V2");
  calls.clear();
  pipeline::for_each_load<KvOrder::kKeysAhead>(1, k, v);
  pipeline::for_each_load<KvOrder::kKeysAhead>(0, k, v);
  EXPECT_EQ(calls, " K0 V0");
}

}  // namespace
}  // namespace kernelwright
