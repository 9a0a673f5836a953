// The input ring of templates/pipeline/tile_pipeline.cuh, compiled for the host against shadow/. One producer and its
// consumers, written as in gemm_sm90, run in every order that is possible for them and their copies (pipeline_model.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "pipeline/kv_consumer_pipeline.cuh"
#include "pipeline/tile_pipeline.cuh"
#include "templates/pipeline_model.h"

namespace kernelwright {
namespace {

using namespace model;
using testing::HasSubstr;

constexpr uint32_t kBarriers = 0, kA = 1024, kB = 2048, kTurns = 3072, kTileBytes = 4;

/// Slabs of k of each tile of the output that a CTA makes, in order. Slabs of all tiles are counted through.
using Tiles = std::vector<int>;

enum class Sharing {
  kCooperative,  // every consumer reads every tile
  kInTurns,      // consumer i reads tiles i, i + n, .. and passes over the others' slots
  kWithoutTurns  // the same without waiting for turns: wrong
};

/// How a slot is released.
enum class LettingGo {
  kAtTheEnd,    // of the stage's scope
  kEarly,       // amid it
  kMoved,       // by the end of a stage that the slot was moved to
  kTwice,       // early, and once more: wrong
  kLater,       // one step late
  kInPairs,     // of two slots that are held at once the second first
  kLaterTwice,  // as kLater, and at the end too: wrong
  kNever        // kept: wrong
};

/// The answers to a consumer that asks for its next slot right after it released one.
enum class Ask { kNever, kNotYet, kLanded, kLandedUnasked /* wrong */ };

struct Form {
  Sharing sharing = Sharing::kCooperative;
  int consumers = 1;
  LettingGo letting_go = LettingGo::kAtTheEnd;
  bool drains = false;
  Ask ask = Ask::kNever;
};

template <int kStages, int kKGroup = 1, int kCtas = 1>
struct Ring {
  using Payload = pipeline::StandardTilePayload<kTileBytes, kTileBytes, kStages>;
  using Input = pipeline::InputTilePipeline<Payload, kStages, kKGroup, (kCtas > 1)>;
  static Payload payload(uint32_t rank) { return {rank * kCtaBytes + kA, rank * kCtaBytes + kB}; }
  static uint32_t barriers(uint32_t rank) { return rank * kCtaBytes + kBarriers; }
  static uint32_t a_tag(int slab, uint32_t rank) { return 1 + static_cast<uint32_t>(slab) * 16 + rank * 4000; }
  static uint32_t b_tag(int slab) { return 9 + static_cast<uint32_t>(slab) * 16; }

  /// Own rows of A, and a share of B for all CTAs. Slabs past the end of a tile come as zeros, with their full byte
  /// count.
  static void produce(const Tiles& tiles, const Form& form, uint32_t rank) {
    auto input = Input(barriers(rank), payload(rank)).producer();
    int first = 0;
    for (const int slabs : tiles) {
      for (int slab = 0; slab < slabs; slab += kKGroup) {
        const auto stage = input.acquire();
        stage.expect_bytes(Input::group_bytes);
        for (int j = 0; j < kKGroup; ++j) {
          const int number = first + slab + j;
          const auto to = stage.get_tile(j);
          Recorder::copy(to.a(), kTileBytes, stage.full(), a_tag(number, rank));
          constexpr uint32_t kShare = kTileBytes / kCtas;
          for (uint32_t cta = 0; cta < kCtas; ++cta)
            Recorder::copy(ptx::mapa(to.b(), cta) + rank * kShare, kShare, ptx::mapa(stage.full(), cta),
                           b_tag(number) + rank * kShare);
        }
      }
      first += (slabs + kKGroup - 1) / kKGroup * kKGroup;
    }
    if (form.drains) input.drain();
  }

  struct AllLanes {
    void operator()(uint32_t empty) const {
      for (uint32_t lane = 0; lane < 32; ++lane) pipeline::WarpRelease<kCtas>{lane}(empty);
    }
  };

  static void consume(const Tiles& tiles, const Form& form, uint32_t rank, int consumer) {
    auto input = Input(barriers(rank), payload(rank)).consumer();
    const auto read = [&](uint32_t slot, int first, auto how) {
      for (int j = 0; j < kKGroup; ++j) {
        const int tile = static_cast<int>(slot) * kKGroup + j;
        how(payload(rank).a(tile), kTileBytes, a_tag(first + j, rank));
        how(payload(rank).b(tile), kTileBytes, b_tag(first + j));
      }
    };
    const bool deals = form.sharing != Sharing::kCooperative, turns = form.sharing == Sharing::kInTurns;
    const auto turn = [&](int of) { return rank * kCtaBytes + kTurns + 8 * static_cast<uint32_t>(of); };
    int first = 0;
    uint32_t lap = 0, number = 0;  // turns that were taken; groups of all tiles
    for (size_t i = 0; i < tiles.size(); ++i) {
      const int groups = (tiles[i] + kKGroup - 1) / kKGroup;
      if (deals && static_cast<int>(i) % form.consumers != consumer) {
        for (int group = 0; group < groups; ++group, ++number)
          Recorder::pass_over(barriers(rank) + 8 * (number % Input::num_group_stages));
        input.skip(groups);
        first += groups * kKGroup;
        continue;
      }
      if (turns && i > 0) Recorder::wait(turn(consumer), lap++ & 1);
      pipeline::HeldSlot held{};
      bool landed = form.ask == Ask::kLandedUnasked;
      Recorder::answer = form.ask == Ask::kLanded;
      for (int group = 0; group < groups; ++group, ++number, first += kKGroup) {
        const LettingGo how = form.letting_go;
        {
          auto stage = input.acquire(AllLanes(), landed);
          const uint32_t slot = stage.index();
          read(slot, first, Recorder::first_read);
          if (how == LettingGo::kLater || how == LettingGo::kLaterTwice) {
            if (group > 0) {
              read(held.index, first - kKGroup, Recorder::last_read);
              input.release(held, AllLanes());
            }
            if (how == LettingGo::kLater)
              held = stage.release_later();
            else
              held = {slot};
          } else if (how == LettingGo::kInPairs) {
            if (group % 2 == 1) {
              read(slot, first, Recorder::last_read);
              stage.release_early();
              read(held.index, first - kKGroup, Recorder::last_read);
              input.release(held, AllLanes());
            } else if (group + 1 < groups) {
              held = stage.release_later();
            } else {
              read(slot, first, Recorder::last_read);
            }
          } else {
            read(slot, first, Recorder::last_read);
            if (how == LettingGo::kEarly) stage.release_early();
            if (how == LettingGo::kMoved) const auto moved = std::move(stage);
            if (how == LettingGo::kTwice) input.release({slot}, AllLanes());
            if (how == LettingGo::kNever) (void)stage.release_later();
          }
        }
        if ((form.ask == Ask::kNotYet || form.ask == Ask::kLanded) && group + 1 < groups) landed = input.try_acquire();
      }
      if ((form.letting_go == LettingGo::kLater || form.letting_go == LettingGo::kLaterTwice) && groups > 0) {
        read(held.index, first - kKGroup, Recorder::last_read);
        input.release(held, AllLanes());
      }
      if (turns && i + 1 < tiles.size()) Recorder::arrive(turn((consumer + 1) % form.consumers));
    }
  }

  static Model model_of(const Tiles& tiles, const Form& form) {
    Model model;
    model.bytes_may_come_early = kCtas > 1;
    const auto record = [&](const std::string& name, bool producer, const auto& run) {
      model.threads.push_back({name, producer, {}});
      Recorder::thread = &model.threads.back();
      run();
      Recorder::thread = nullptr;
    };
    for (uint32_t rank = 0; rank < kCtas; ++rank) {
      Recorder::model = &model;
      const int sharers = form.sharing == Sharing::kCooperative ? form.consumers : 1;
      Input::init(barriers(rank), 1, static_cast<uint32_t>(sharers * kCtas));
      if (form.sharing == Sharing::kInTurns)
        for (int c = 0; c < form.consumers; ++c)
          Recorder::init(rank * kCtaBytes + kTurns + 8 * static_cast<uint32_t>(c), 1);
      Recorder::model = nullptr;
      for (uint32_t b = 0; b < Input::barrier_bytes / 2; b += 8)
        model.slots.push_back({barriers(rank) + b, barriers(rank) + Input::barrier_bytes / 2 + b});
      record(fmt::format("producer {}", rank), true, [&] { produce(tiles, form, rank); });
      for (int c = 0; c < form.consumers; ++c)
        record(fmt::format("consumer {}.{}", rank, c), false, [&] { consume(tiles, form, rank, c); });
    }
    return model;
  }
};

const std::vector<Tiles>& tile_lists() {
  static const std::vector<Tiles> lists = {{}, {1}, {4}, {3, 2}, {2, 3, 1, 5}, {1, 1, 1, 1, 1}};
  return lists;
}

template <class R>
void expect_right(const std::vector<Form>& forms, const char* name) {
  for (const Tiles& tiles : tile_lists())
    for (const Form& form : forms) {
      const Result result = explore(R::model_of(tiles, form), Search::kReduced);
      EXPECT_EQ(result.failure, "") << name << ", " << tiles.size() << " tiles, " << form.consumers << " consumers"
                                    << ", let go of in way " << static_cast<int>(form.letting_go);
    }
}

std::vector<Form> forms_of(Sharing sharing, int stages) {
  std::vector<Form> forms;
  for (const int consumers : {1, 2})
    for (const LettingGo how : {LettingGo::kAtTheEnd, LettingGo::kLater})
      // One slot cannot be held while the next is waited for.
      if (how == LettingGo::kAtTheEnd || stages > 1) forms.push_back({sharing, consumers, how, consumers == 2});
  return forms;
}

TEST(InputTilePipeline, IsRightInEveryOrder) {
  expect_right<Ring<1>>(forms_of(Sharing::kCooperative, 1), "1 stage");
  expect_right<Ring<2>>(forms_of(Sharing::kCooperative, 2), "2 stages");
  expect_right<Ring<3>>(forms_of(Sharing::kCooperative, 3), "3 stages");
}

TEST(InputTilePipeline, IsRightInEveryOrderWithGroupsOfTiles) {
  expect_right<Ring<2, 2>>(forms_of(Sharing::kCooperative, 1), "1 group of 2");
  expect_right<Ring<4, 2>>(forms_of(Sharing::kCooperative, 2), "2 groups of 2");
}

TEST(InputTilePipeline, IsRightInEveryOrderWhereConsumersTakeTurns) {
  expect_right<Ring<1>>({{Sharing::kInTurns, 2, LettingGo::kAtTheEnd, true}}, "1 stage");
  expect_right<Ring<2>>(forms_of(Sharing::kInTurns, 2), "2 stages");
  expect_right<Ring<3>>(forms_of(Sharing::kInTurns, 3), "3 stages");
}

TEST(InputTilePipeline, IsRightInEveryOrderInAClusterOfTwo) {
  const std::vector<Form> forms = {{Sharing::kCooperative, 1, LettingGo::kAtTheEnd, true},
                                   {Sharing::kCooperative, 1, LettingGo::kLater, true}};
  expect_right<Ring<2, 1, 2>>(forms, "2 stages");
  expect_right<Ring<1, 1, 2>>({forms[0]}, "1 stage");
}

TEST(InputTilePipeline, IsRightInEveryOrderWhereConsumersAskAhead) {
  std::vector<Form> forms;
  for (const Ask ask : {Ask::kNotYet, Ask::kLanded})
    for (const int consumers : {1, 2})
      forms.push_back({Sharing::kCooperative, consumers, LettingGo::kAtTheEnd, true, ask});
  expect_right<Ring<1>>(forms, "1 stage");
  expect_right<Ring<3>>(forms, "3 stages");
  expect_right<Ring<4, 2>>(forms, "2 groups of 2");
}

TEST(InputTilePipeline, NeedsAnAnswerAheadOfASlotThatIsNotWaitedFor) {
  const Result result = explore(Ring<2>::model_of({3}, {.ask = Ask::kLandedUnasked}), Search::kReduced);
  EXPECT_THAT(result.failure, HasSubstr("consumer")) << "nothing was found in " << result.states << " states";
}

/// The next lap of a slot belongs to another consumer. A consumer that does not wait for its turn may take the lap
/// before for its own.
TEST(InputTilePipeline, NeedsTurnsWherePhasesArePassedOver) {
  const Result result = explore(Ring<1>::model_of({1, 1, 1}, {Sharing::kWithoutTurns, 2}), Search::kReduced);
  EXPECT_THAT(result.failure, HasSubstr("consumer")) << "nothing was found in " << result.states << " states";
}

TEST(InputTilePipeline, SkipsLikeSteps) {
  using R = Ring<3>;
  for (int from = 0; from < 6; ++from)
    for (int groups = 0; groups < 9; ++groups) {
      Thread steps{"steps", false, {}}, skips{"skips", false, {}};
      for (Thread* thread : {&steps, &skips}) {
        pipeline::InputConsumer<R::Input> input(R::barriers(0), R::payload(0));
        Thread elsewhere{"elsewhere", false, {}};
        Recorder::thread = &elsewhere;
        const auto step = [&](int count) {
          for (int i = 0; i < count; ++i) (void)input.acquire(R::AllLanes());
        };
        step(from);
        if (thread == &skips)
          input.skip(groups);
        else
          step(groups);
        Recorder::thread = thread;
        (void)input.acquire(R::AllLanes()).release_later();
        Recorder::thread = nullptr;
      }
      ASSERT_EQ(steps.actions.size(), 1u);
      ASSERT_EQ(skips.actions.size(), 1u);
      EXPECT_EQ(steps.actions[0].address, skips.actions[0].address) << from << " and " << groups;
      EXPECT_EQ(steps.actions[0].value, skips.actions[0].value) << from << " and " << groups;
    }
}

// ---- stages ----

std::vector<Form> consumers_that(LettingGo how) {
  return {{Sharing::kCooperative, 1, how, false}, {Sharing::kCooperative, 2, how, true}};
}

TEST(InputConsumerStage, IsLetGoOfEarlyInEveryOrder) {
  expect_right<Ring<1>>(consumers_that(LettingGo::kEarly), "1 stage");
  expect_right<Ring<4, 2>>(consumers_that(LettingGo::kEarly), "2 groups of 2");
}

TEST(InputConsumerStage, IsLetGoOfByTheStageThatItWasMovedTo) {
  expect_right<Ring<2>>(consumers_that(LettingGo::kMoved), "2 stages");
}

TEST(InputConsumerStage, IsLetGoOfOutOfOrderInEveryOrder) {
  expect_right<Ring<2>>(consumers_that(LettingGo::kInPairs), "2 stages");
  expect_right<Ring<3>>(consumers_that(LettingGo::kInPairs), "3 stages");
}

TEST(InputConsumerStage, IsMissedWhereItIsLetGoOfTwiceOrNever) {
  for (const LettingGo wrong : {LettingGo::kTwice, LettingGo::kLaterTwice, LettingGo::kNever}) {
    const Result result = explore(Ring<2>::model_of({5}, {.letting_go = wrong}), Search::kReduced);
    EXPECT_NE(result.failure, "") << "way " << static_cast<int>(wrong) << ", " << result.states << " states";
  }
}

/// Barriers that a thread arrives on, in order.
std::vector<uint32_t> arrivals(const Thread& thread) {
  std::vector<uint32_t> barriers;
  for (const Action& action : thread.actions)
    if (action.kind == Action::kArrive) barriers.push_back(action.address);
  return barriers;
}
/// The barriers for which it waits.
std::vector<uint32_t> waits(const Thread& thread) {
  std::vector<uint32_t> barriers;
  for (const Action& action : thread.actions)
    if (action.kind == Action::kWait) barriers.push_back(action.address);
  return barriers;
}

/// The actions of a role with two slots of a ring of two. It releases the first as `run` does.
template <class Run>
Thread consumes(const Run& run) {
  using R = Ring<2>;
  Thread thread{"consumer", false, {}};
  pipeline::InputConsumer<R::Input> input(R::barriers(0), R::payload(0));
  Recorder::thread = &thread;
  run(input);
  (void)input.acquire(R::AllLanes()).release_later();
  Recorder::thread = nullptr;
  return thread;
}

TEST(InputConsumerStage, SignalsOnceAndStepsOnceWhateverBecomesOfIt) {
  using Lanes = Ring<2>::AllLanes;
  const uint32_t full = kBarriers, empty = kBarriers + 16;
  const auto expect = [&](const char* what, const Thread& thread) {
    EXPECT_THAT(waits(thread), testing::ElementsAre(full, full + 8)) << what;
    EXPECT_THAT(arrivals(thread), testing::ElementsAre(empty)) << what;
  };
  expect("its end", consumes([](auto& input) { const auto stage = input.acquire(Lanes()); }));
  expect("early", consumes([](auto& input) {
           auto stage = input.acquire(Lanes());
           stage.release_early();
           EXPECT_EQ(arrivals(*Recorder::thread).size(), 1u);
         }));
  expect("later", consumes([](auto& input) {
           const pipeline::HeldSlot held = input.acquire(Lanes()).release_later();
           EXPECT_TRUE(arrivals(*Recorder::thread).empty());
           input.release(held, Lanes());
         }));
  expect("moved", consumes([](auto& input) {
           auto stage = input.acquire(Lanes());
           {
             const auto inner = std::move(stage);
             EXPECT_EQ(inner.index(), 0u);
             EXPECT_TRUE(arrivals(*Recorder::thread).empty());
           }
           EXPECT_EQ(arrivals(*Recorder::thread).size(), 1u);
         }));
  expect("early, then moved", consumes([](auto& input) {
           auto stage = input.acquire(Lanes());
           stage.release_early();
           const auto inner = std::move(stage);
         }));
  const auto leaves = [](auto& input) {  // by a return
    const auto stage = input.acquire(Lanes());
    if (stage.index() == 0) return;
    FAIL();
  };
  expect("left", consumes(leaves));
}

TEST(InputProducerStage, LeavesTheSignalToItsCopiesOrGivesItOnce) {
  using R = Ring<2>;
  const uint32_t full = kBarriers, empty = kBarriers + 16;
  Thread thread{"producer", true, {}};
  Recorder::thread = &thread;
  {
    auto input = R::Input(R::barriers(0), R::payload(0)).producer();
    {
      const auto stage = input.acquire();
      EXPECT_EQ(stage.full(), full);
      stage.expect_bytes(24);
    }
    {
      const auto stage = input.acquire([](uint32_t barrier) { ptx::mbarrier_arrive(barrier); });
    }
    const pipeline::ProducerStage<R::Input> third = input.acquire();
    EXPECT_EQ(third.index(), 0u);
    EXPECT_EQ(third.get_tile(0).a(), kA);
  }
  Recorder::thread = nullptr;
  EXPECT_THAT(waits(thread), testing::ElementsAre(empty, empty + 8, empty));
  EXPECT_THAT(arrivals(thread), testing::ElementsAre(full + 8));
  ASSERT_EQ(thread.actions.size(), 5u);
  EXPECT_EQ(thread.actions[1].kind, Action::kArm);
  EXPECT_EQ(thread.actions[1].address, full);
  EXPECT_EQ(thread.actions[1].value, 24u);
}

TEST(TilePipeline, IsTheInputPipelineOfTilesOfAAndB) {
  using Tiles = pipeline::TilePipeline<64, 32, 4, 2>;
  static_assert(std::is_same_v<Tiles, pipeline::InputTilePipeline<pipeline::StandardTilePayload<64, 32, 4>, 4, 2>>);
  static_assert(std::is_same_v<Tiles::Producer, pipeline::TileProducer<Tiles>>);
  static_assert(std::is_same_v<Tiles::Consumer, pipeline::TileConsumer<Tiles>>);
  static_assert(Tiles::group_bytes == 2 * 96 && Tiles::num_group_stages == 2);
  Thread thread{"producer", true, {}};
  Recorder::thread = &thread;
  auto producer = Tiles(0, {1024, 2048}).producer();
  (void)producer.acquire();
  const auto stage = producer.acquire();
  Recorder::thread = nullptr;
  EXPECT_EQ(stage.get_tile(1).a(), 1024u + 3 * 64);
  EXPECT_EQ(stage.get_tile(1).b(), 2048u + 3 * 32);
}

// ---- payloads ----

struct WithoutTiles {
  static constexpr uint32_t bytes_per_tile = 16;
  uint32_t get_tile(int tile) const { return static_cast<uint32_t>(tile); }
};
struct WithoutBytes {
  static constexpr int num_tiles = 2;
  uint32_t get_tile(int tile) const { return static_cast<uint32_t>(tile); }
};
struct WithoutGetTile {
  static constexpr int num_tiles = 2;
  static constexpr uint32_t bytes_per_tile = 16;
  uint32_t get_tile;
};
struct WithAMutableGetTile {
  static constexpr int num_tiles = 2;
  static constexpr uint32_t bytes_per_tile = 16;
  uint32_t get_tile(int tile) { return static_cast<uint32_t>(tile); }
};
struct NotTrivial {
  static constexpr int num_tiles = 2;
  static constexpr uint32_t bytes_per_tile = 16;
  uint32_t get_tile(int tile) const { return static_cast<uint32_t>(tile); }
  NotTrivial(const NotTrivial&) {}
};

template <class T>
std::vector<bool> members() {
  using P = pipeline::TilePayload<T>;
  return {P::is_trivially_copyable(), P::has_num_tiles(), P::has_bytes_per_tile(), P::has_get_tile()};
}

TEST(TilePayload, NamesTheMemberThatAPayloadMisses) {
  using testing::ElementsAre;
  EXPECT_THAT((members<pipeline::StandardTilePayload<4, 4, 2>>()), ElementsAre(true, true, true, true));
  EXPECT_THAT((members<pipeline::ScaledTilePayload<4, 4, 8, 128, 2>>()), ElementsAre(true, true, true, true));
  EXPECT_THAT((members<pipeline::BlockScaledTilePayload<4, 4, 512, 512, 512, 2>>()),
              ElementsAre(true, true, true, true));
  EXPECT_THAT(members<WithoutTiles>(), ElementsAre(true, false, true, true));
  EXPECT_THAT(members<WithoutBytes>(), ElementsAre(true, true, false, true));
  EXPECT_THAT(members<WithoutGetTile>(), ElementsAre(true, true, true, false));
  EXPECT_THAT(members<WithAMutableGetTile>(), ElementsAre(true, true, true, false));
  EXPECT_THAT(members<NotTrivial>(), ElementsAre(false, true, true, true));
}

}  // namespace
}  // namespace kernelwright
