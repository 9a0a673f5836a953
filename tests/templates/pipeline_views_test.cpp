// The rings of templates/pipeline/ one by one: where barriers and parts of tiles lie, and what a call leaves behind.
#include <gtest/gtest.h>

#include <string>

#include "fmt/format.h"
#include "templates/kv_pipeline_model.h"

namespace kernelwright {
namespace {

using namespace model;

using Split = Tiles<false, KvOrder::kKeysAhead, 3, 2>;
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
  EXPECT_EQ(K::elements, 3);
  EXPECT_EQ(K::elements_full, 6);
  EXPECT_EQ(K::tile_bytes, 3u);
  EXPECT_EQ(V::elements, 8);
  EXPECT_EQ(V::elements_full, 8);
  EXPECT_EQ(V::tile_bytes, 8u);
  // A slot of a shared ring holds either.
  EXPECT_EQ((pipeline::TmaProducerPipeline<true, Shared>::slot_bytes), 8u);
  EXPECT_EQ((pipeline::KvRings<Split>::bytes), 2u * 8 * (3 * 2 + 3));
  EXPECT_EQ((pipeline::KvRings<Shared>::bytes), 2u * 8 * 3);
}

TEST(TmaProducerPipeline, ArmsABarrierOnlyIfAskedByTheElectedThread) {
  model::Thread thread{"producer", true, {}};
  Recorder::thread = &thread;
  pipeline::TmaProducerPipeline<true, Split> k(0, 512);
  k.commit_step();
  const pipeline::TileTarget target = k.get_tile<1>();
  EXPECT_EQ(target.full, 8u * 3);
  EXPECT_EQ(target.smem, 512u + 6 + 3);
  EXPECT_EQ(k.get_smem<1>(), target.smem);
  EXPECT_EQ(k.get_k_smem<0>(), 512u + 6);
  (void)k.get_tile<1>(false);
  (void)k.get_tile<1>(false, 20);
  EXPECT_TRUE(thread.actions.empty());
  (void)k.get_tile<1>(true);
  (void)k.get_tile<1>(true, 20);
  Recorder::thread = nullptr;
  ASSERT_EQ(thread.actions.size(), 2u);
  EXPECT_EQ(thread.actions[0].value, 3u);
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
  pipeline::KvConsumerPipeline<Tiles<true, KvOrder::kAlternating, 3, 1, 2>, AllLanes<1>, Descriptors> kv(0, 512, 512,
                                                                                                         {});
  EXPECT_EQ(kv.wait_k<0>(), 1512u);
  EXPECT_EQ(kv.wait_k<1>(), 1515u);
  EXPECT_EQ(kv.wait<1>(), 515u);
  EXPECT_EQ(kv.wait_v<0>(), 5000u + 512 + 8);
  EXPECT_EQ(kv.wait_v<1>(), 5000u + 512 + 8 + 4);
  Recorder::thread = nullptr;
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
