// The input ring of templates/pipeline/tile_pipeline.cuh, compiled for the host against shadow/: one producer and its
// consumers as gemm_sm90 writes them, in every order in which they and their copies can run (pipeline_model.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
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
  kWithoutTurns  // the same, and nobody waits for a turn: wrong
};

/// Of a consumer that asks for its next slot as soon as it has let go of one: what it is told.
enum class Ask { kNever, kNotYet, kLanded, kLandedUnasked /* wrong */ };

struct Form {
  Sharing sharing = Sharing::kCooperative;
  int consumers = 1;
  bool lagged = false;  // a slot is let go of one step late
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

  /// Own rows of A, and a share of B for all CTAs. Slabs past the last of a tile come as zeros do: with their bytes.
  static void produce(const Tiles& tiles, const Form& form, uint32_t rank) {
    pipeline::InputProducer<Input> input(barriers(rank), payload(rank));
    int first = 0;
    for (const int slabs : tiles) {
      for (int slab = 0; slab < slabs; slab += kKGroup) {
        const auto stage = input.acquire();
        input.expect_bytes(stage, Input::group_bytes);
        for (int j = 0; j < kKGroup; ++j) {
          const int number = first + slab + j;
          Recorder::copy(stage.payload.a(stage.tile(j)), kTileBytes, stage.full, a_tag(number, rank));
          constexpr uint32_t kShare = kTileBytes / kCtas;
          for (uint32_t cta = 0; cta < kCtas; ++cta)
            Recorder::copy(ptx::mapa(stage.payload.b(stage.tile(j)), cta) + rank * kShare, kShare,
                           ptx::mapa(stage.full, cta), b_tag(number) + rank * kShare);
        }
        input.step();
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
    pipeline::InputConsumer<Input> input(barriers(rank), payload(rank));
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
      uint32_t held = 0;
      bool landed = form.ask == Ask::kLandedUnasked;
      Recorder::answer = form.ask == Ask::kLanded;
      for (int group = 0; group < groups; ++group, ++number, first += kKGroup) {
        const auto stage = input.acquire(landed);
        read(stage.index, first, Recorder::first_read);
        if (form.lagged && group > 0) {
          read(held, first - kKGroup, Recorder::last_read);
          input.release(held, AllLanes());
        } else if (!form.lagged) {
          read(stage.index, first, Recorder::last_read);
          input.release(stage.index, AllLanes());
        }
        held = stage.index;
        input.step();
        if ((form.ask == Ask::kNotYet || form.ask == Ask::kLanded) && group + 1 < groups) landed = input.try_acquire();
      }
      if (form.lagged && groups > 0) {
        read(held, first - kKGroup, Recorder::last_read);
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
                                    << (form.lagged ? ", lagged" : "");
    }
}

std::vector<Form> forms_of(Sharing sharing, int stages) {
  std::vector<Form> forms;
  for (const int consumers : {1, 2})
    for (const bool lagged : {false, true})
      // One slot cannot be held while the next is waited for.
      if (!lagged || stages > 1) forms.push_back({sharing, consumers, lagged, consumers == 2});
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
  expect_right<Ring<1>>({{Sharing::kInTurns, 2, false, true}}, "1 stage");
  expect_right<Ring<2>>(forms_of(Sharing::kInTurns, 2), "2 stages");
  expect_right<Ring<3>>(forms_of(Sharing::kInTurns, 3), "3 stages");
}

TEST(InputTilePipeline, IsRightInEveryOrderInAClusterOfTwo) {
  const std::vector<Form> forms = {{Sharing::kCooperative, 1, false, true}, {Sharing::kCooperative, 1, true, true}};
  expect_right<Ring<2, 1, 2>>(forms, "2 stages");
  expect_right<Ring<1, 1, 2>>({forms[0]}, "1 stage");
}

TEST(InputTilePipeline, IsRightInEveryOrderWhereConsumersAskAhead) {
  std::vector<Form> forms;
  for (const Ask ask : {Ask::kNotYet, Ask::kLanded})
    for (const int consumers : {1, 2}) forms.push_back({Sharing::kCooperative, consumers, false, true, ask});
  expect_right<Ring<1>>(forms, "1 stage");
  expect_right<Ring<3>>(forms, "3 stages");
  expect_right<Ring<4, 2>>(forms, "2 groups of 2");
}

TEST(InputTilePipeline, NeedsAnAnswerAheadOfASlotThatIsNotWaitedFor) {
  const Result result =
      explore(Ring<2>::model_of({3}, {Sharing::kCooperative, 1, false, false, Ask::kLandedUnasked}), Search::kReduced);
  EXPECT_THAT(result.failure, HasSubstr("consumer")) << "nothing was found in " << result.states << " states";
}

/// A slot's next lap is another consumer's: who does not wait for it may take the lap before for its own.
TEST(InputTilePipeline, NeedsTurnsWherePhasesArePassedOver) {
  const Result result =
      explore(Ring<1>::model_of({1, 1, 1}, {Sharing::kWithoutTurns, 2, false, false}), Search::kReduced);
  EXPECT_THAT(result.failure, HasSubstr("consumer")) << "nothing was found in " << result.states << " states";
}

TEST(InputTilePipeline, SkipsLikeSteps) {
  using R = Ring<3>;
  for (int from = 0; from < 6; ++from)
    for (int groups = 0; groups < 9; ++groups) {
      Thread steps{"steps", false, {}}, skips{"skips", false, {}};
      for (Thread* thread : {&steps, &skips}) {
        pipeline::InputConsumer<R::Input> input(R::barriers(0), R::payload(0));
        for (int i = 0; i < from; ++i) input.step();
        if (thread == &skips) {
          input.skip(groups);
        } else {
          for (int i = 0; i < groups; ++i) input.step();
        }
        Recorder::thread = thread;
        input.acquire();
        Recorder::thread = nullptr;
      }
      ASSERT_EQ(steps.actions.size(), 1u);
      ASSERT_EQ(skips.actions.size(), 1u);
      EXPECT_EQ(steps.actions[0].address, skips.actions[0].address) << from << " and " << groups;
      EXPECT_EQ(steps.actions[0].value, skips.actions[0].value) << from << " and " << groups;
    }
}

}  // namespace
}  // namespace kernelwright
