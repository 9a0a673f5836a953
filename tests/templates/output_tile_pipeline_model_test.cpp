// The output ring of templates/pipeline/output_tile_pipeline.cuh, compiled for the host against shadow/: the thread
// that multiplies and the warps that store, as gemm_sm100 writes them, in every order in which they and the products
// can run (pipeline_model.h). Products are copies that complete by an arrival of the thread that issued them: a commit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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
};

template <int kStages, int kCtas = 1>
struct Ring {
  using Output = pipeline::OutputTilePipeline<kStages, kStride, kCtas>;
  static uint32_t at(uint32_t rank, uint32_t address) { return rank * kCtaBytes + address; }
  static uint32_t tag(int tile, uint32_t rank) { return 1 + static_cast<uint32_t>(tile) * 16 + rank * 4000; }

  /// The first CTA's thread: a product writes sums of every CTA of the pair.
  static void multiply(int tiles, const Mistake& mistake) {
    pipeline::OutputProducer<Output> output(at(0, kBarriers), at(0, kTensor));
    for (int tile = 0; tile < tiles; ++tile) {
      const auto stage = mistake.does_not_wait ? typename Output::Stage{static_cast<uint32_t>(tile % kStages),
                                                                        kTensor + tile % kStages * kStride}
                                               : output.acquire();
      const auto products = [&](uint32_t rank) {
        Recorder::copy_by_thread(ptx::mapa(stage.tensor, rank), kStride, tag(tile, rank));
      };
      const auto commit = [&](uint32_t barrier, uint32_t rank) {
        Recorder::arrive_with_copies(ptx::mapa(barrier, rank));
      };
      output.release([&](uint32_t full) {
        for (uint32_t rank = 0; rank < kCtas; ++rank) {
          products(rank);
          commit(full, mistake.tells_one_cta ? 0 : rank);
        }
      });
    }
  }

  static void store(int tiles, uint32_t rank, const Mistake& mistake) {
    pipeline::OutputConsumer<Output> output(at(rank, kBarriers), at(rank, kTensor));
    for (int tile = 0; tile < tiles; ++tile) {
      const auto stage = output.acquire();
      const auto arrive = [](uint32_t empty) { ptx::mbarrier_arrive(ptx::mapa(empty, 0)); };
      Recorder::first_read(stage.tensor, kStride, tag(tile, rank));
      if (mistake.lets_go_early) output.release(arrive);
      Recorder::last_read(stage.tensor, kStride, tag(tile, rank));
      if (!mistake.lets_go_early) output.release(arrive);
    }
  }

  /// With `warps` of the four of each CTA; the others' arrivals are theirs.
  static Model model_of(int tiles, const Mistake& mistake = {}) {
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
        record(fmt::format("warp {}.{}", rank, warp), false, [&] { store(tiles, rank, mistake); });
    return model;
  }
};

template <class R>
std::string failure_of(int tiles, const Mistake& mistake = {}) {
  return explore(R::model_of(tiles, mistake), Search::kReduced).failure;
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
}

}  // namespace
}  // namespace kernelwright
