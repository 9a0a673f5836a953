// The output ring of templates/pipeline/output_tile_pipeline.cuh, compiled for the host against shadow/. The
// multiplying thread and the storing warps, written as in gemm_sm100, run in every order that is possible for them and
// for the products (pipeline_model.h). Products are copies that complete by an arrival of the issuing thread: a commit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "pipeline/output_tile_pipeline.cuh"
#include "ptx/cluster.cuh"
#include "templates/pipeline_model.h"

namespace kernelwright {
namespace {

using namespace model;
using testing::HasSubstr;

constexpr uint32_t kBarriers = 0, kTensor = 1024, kStride = 4;

struct Mistake {
  bool does_not_wait = false;  // for the stage to be empty
  bool lets_go_early = false;  // before the last load
  bool tells_one_cta = false;  // of a pair, of the products of both
  bool lets_go_twice = false;
  bool never_lets_go = false;
};
/// How a storing warp releases an accumulator: at its stage's end, in the middle of it, or with the result of
/// release_later().
enum class LettingGo { kAtTheEnd, kEarly, kLater };

template <int kStages, int kCtas = 1>
struct Ring {
  using Output = pipeline::OutputTilePipeline<kStages, kStride, kCtas>;
  static uint32_t at(uint32_t rank, uint32_t address) { return rank * kCtaBytes + address; }
  static uint32_t tag(int tile, uint32_t rank) { return 1 + static_cast<uint32_t>(tile) * 16 + rank * 4000; }

  /// The first CTA's thread: a product writes sums of every CTA of the pair.
  static void multiply(int tiles, const Mistake& mistake) {
    pipeline::OutputProducer<Output> output(at(0, kBarriers), at(0, kTensor));
    for (int tile = 0; tile < tiles; ++tile) {
      const uint32_t tensor = kTensor + tile % kStages * kStride;
      const auto commit = [&](uint32_t full) {
        for (uint32_t rank = 0; rank < kCtas; ++rank) {
          Recorder::copy_by_thread(ptx::mapa(tensor, rank), kStride, tag(tile, rank));
          Recorder::arrive_with_copies(ptx::mapa(full, mistake.tells_one_cta ? 0 : rank));
        }
      };
      if (mistake.does_not_wait) {
        output.release({static_cast<uint32_t>(tile % kStages), tensor}, commit);
      } else {
        const auto stage = output.acquire(commit);
        EXPECT_EQ(stage.tensor(), tensor);
      }
    }
  }

  static void store(int tiles, uint32_t rank, const Mistake& mistake, LettingGo how) {
    auto output = Output(at(rank, kBarriers), at(rank, kTensor)).consumer();
    for (int tile = 0; tile < tiles; ++tile) {
      const auto arrive = [](uint32_t empty) { ptx::mbarrier_arrive(ptx::mapa(empty, 0)); };
      auto stage = output.acquire(arrive);
      const pipeline::OutputStage held{stage.index(), stage.tensor()};
      Recorder::first_read(held.tensor, kStride, tag(tile, rank));
      if (mistake.lets_go_early) stage.release_early();
      Recorder::last_read(held.tensor, kStride, tag(tile, rank));
      if (mistake.lets_go_early) continue;
      if (how == LettingGo::kEarly) stage.release_early();
      if (how == LettingGo::kLater) output.release(stage.release_later(), arrive);
      if (mistake.lets_go_twice) output.release(held, arrive);
      if (mistake.never_lets_go) (void)stage.release_later();
    }
  }

  /// With `warps` of the four of each CTA; the others' arrivals are theirs.
  static Model model_of(int tiles, const Mistake& mistake = {}, LettingGo how = LettingGo::kAtTheEnd) {
    Model model;
    const auto record = [&](const std::string& name, bool producer, const auto& run) {
      model.threads.push_back({name, producer, {}});
      Recorder::thread = &model.threads.back();
      run();
      Recorder::thread = nullptr;
    };
    for (uint32_t rank = 0; rank < kCtas; ++rank) {
      Recorder::model = &model;
      Output::init(at(rank, kBarriers));
      Recorder::model = nullptr;
    }
    for (uint32_t slot = 0; slot < kStages; ++slot)
      model.slots.push_back({kBarriers + 8 * slot, kBarriers + 8 * (kStages + slot)});
    record("products", true, [&] { multiply(tiles, mistake); });
    for (uint32_t rank = 0; rank < kCtas; ++rank)
      for (uint32_t warp = 0; warp < Output::kWarps; ++warp)
        record(fmt::format("warp {}.{}", rank, warp), false, [&] { store(tiles, rank, mistake, how); });
    return model;
  }
};

template <class R>
std::string failure_of(int tiles, const Mistake& mistake = {}, LettingGo how = LettingGo::kAtTheEnd) {
  return explore(R::model_of(tiles, mistake, how), Search::kReduced).failure;
}

TEST(OutputTilePipeline, IsRightInEveryOrder) {
  for (const int tiles : {0, 1, 2, 3, 5}) {
    EXPECT_EQ(failure_of<Ring<1>>(tiles), "") << tiles << " tiles, 1 stage";
    EXPECT_EQ(failure_of<Ring<2>>(tiles), "") << tiles << " tiles, 2 stages";
  }
  EXPECT_EQ(failure_of<Ring<4>>(6), "");
}

TEST(OutputTilePipeline, IsRightInEveryOrderForAPair) {
  for (const int tiles : {1, 2, 3}) {
    EXPECT_EQ((failure_of<Ring<1, 2>>(tiles)), "") << tiles << " tiles, 1 stage";
    EXPECT_EQ((failure_of<Ring<2, 2>>(tiles)), "") << tiles << " tiles, 2 stages";
  }
}

TEST(OutputTilePipeline, MistakesAreFound) {
  EXPECT_THAT(failure_of<Ring<1>>(2, {.does_not_wait = true}), HasSubstr("over a copy in flight"));
  EXPECT_THAT(failure_of<Ring<1>>(2, {.lets_go_early = true}), HasSubstr("read"));
  EXPECT_THAT((failure_of<Ring<2, 2>>(2, {.tells_one_cta = true})), HasSubstr("of bytes in flight"));
  EXPECT_NE(failure_of<Ring<2>>(3, {.lets_go_twice = true}), "");
  EXPECT_NE(failure_of<Ring<2>>(3, {.never_lets_go = true}), "");
}

TEST(OutputTilePipeline, IsRightInEveryOrderWhereAccumulatorsAreLetGoOfEarlyOrLater) {
  for (const LettingGo how : {LettingGo::kEarly, LettingGo::kLater}) {
    EXPECT_EQ(failure_of<Ring<1>>(3, {}, how), "");
    EXPECT_EQ((failure_of<Ring<2, 2>>(3, {}, how)), "");
  }
}

using Output = Ring<2>::Output;

/// Barriers that `run` waits for (false) or arrives on (true), in order.
template <class Run>
std::vector<std::pair<bool, uint32_t>> signals_of(const Run& run) {
  Thread thread{"role", false, {}};
  Recorder::thread = &thread;
  run();
  Recorder::thread = nullptr;
  std::vector<std::pair<bool, uint32_t>> signals;
  for (const Action& action : thread.actions)
    if (action.kind != Action::kCopy) signals.emplace_back(action.kind == Action::kArrive, action.address);
  return signals;
}

constexpr uint32_t kFull = kBarriers, kEmpty = kBarriers + 16;
const auto kArrives = [](uint32_t barrier) { ptx::mbarrier_arrive(barrier); };
using Signals = std::vector<std::pair<bool, uint32_t>>;

TEST(OutputProducerStage, CommitsOnceAtItsEndAndStepsOn) {
  const Signals signals = signals_of([] {
    auto output = Output(kBarriers, kTensor).producer();
    {
      pipeline::OutputProducerStage<Output, std::remove_const_t<decltype(kArrives)>> stage = output.acquire(kArrives);
      EXPECT_EQ(stage.tensor(), kTensor);
    }
    {
      auto stage = output.acquire(kArrives);
      EXPECT_EQ(stage.index(), 1u);
      EXPECT_EQ(stage.tensor(), kTensor + kStride);
      const auto moved = std::move(stage);
    }
    output.release(output.acquire(kArrives).release_later(), kArrives);
  });
  EXPECT_EQ(
      signals,
      (Signals{
          {false, kEmpty}, {true, kFull}, {false, kEmpty + 8}, {true, kFull + 8}, {false, kEmpty}, {true, kFull}}));
}

TEST(OutputConsumerStage, ArrivesOnceWhateverBecomesOfIt) {
  const Signals signals = signals_of([] {
    pipeline::OutputConsumer<Output> output(kBarriers, kTensor);
    { const auto stage = output.acquire(kArrives); }
    {
      auto stage = output.acquire(kArrives);
      stage.release_early();
    }
    const pipeline::OutputStage held = output.acquire(kArrives).release_later();
    EXPECT_EQ(held.tensor, kTensor);
    output.release(held, kArrives);
    const auto moved = [&] { return output.acquire(kArrives); }();
    EXPECT_EQ(moved.index(), 1u);
  });
  EXPECT_EQ(signals, (Signals{{false, kFull},
                              {true, kEmpty},
                              {false, kFull + 8},
                              {true, kEmpty + 8},
                              {false, kFull},
                              {true, kEmpty},
                              {false, kFull + 8},
                              {true, kEmpty + 8}}));
}

TEST(OutputConsumerStage, NeitherSignalsNorStepsWhereItIsKept) {
  const Signals signals = signals_of([] {
    pipeline::OutputConsumer<Output> output(kBarriers, kTensor);
    EXPECT_EQ(output.acquire(kArrives).keep().index, 0u);
    EXPECT_EQ(output.acquire(kArrives).keep().index, 0u);
  });
  EXPECT_EQ(signals, (Signals{{false, kFull}, {false, kFull}}));
}

}  // namespace
}  // namespace kernelwright
