// Two roles that hand a slot to and fro by phased barriers (templates/pipeline/phased_barrier.cuh), in every order in
// which they can run; and mistakes in the phases that they name, which the model must find.
#include <gtest/gtest.h>

#include "pipeline/phased_barrier.cuh"
#include "templates/pipeline_model.h"

namespace kernelwright {
namespace {

using namespace model;

constexpr int kPhases = 3;
constexpr uint32_t kSlot = 64, kBytes = 4, kReaders = 2;
constexpr pipeline::PhasedBarrier<1> kFull{0};
constexpr pipeline::PhasedBarrier<kReaders> kEmpty{8};

enum class Mistake { kNone, kFillsAtOnce, kFillsAPhaseLate, kReadsAPhaseEarly, kReadsAPhaseLate };

/// What explore() says of a thread that fills the slot in each phase and of two that read it.
std::string failure_of(Mistake mistake) {
  Model made;
  Recorder::model = &made;
  kFull.init();
  kEmpty.init();
  made.slots = {{kFull.address, kEmpty.address}};
  Thread filler{"filler", true, {}};
  Recorder::thread = &filler;
  for (int phase = 0; phase < kPhases; ++phase) {
    if (mistake == Mistake::kFillsAPhaseLate)
      kEmpty.wait(phase);
    else if (mistake != Mistake::kFillsAtOnce)
      kEmpty.wait_before(phase);
    kFull.expect_bytes(kBytes);
    Recorder::copy(kSlot, kBytes, kFull.address, 1 + 8 * static_cast<uint32_t>(phase));
  }
  made.threads.push_back(filler);
  for (uint32_t reader = 0; reader < kReaders; ++reader) {
    Thread thread{"reader", false, {}};
    Recorder::thread = &thread;
    for (int phase = 0; phase < kPhases; ++phase) {
      const int shift = mistake == Mistake::kReadsAPhaseEarly ? -1 : mistake == Mistake::kReadsAPhaseLate ? 1 : 0;
      kFull.wait(phase + shift);
      Recorder::first_read(kSlot, kBytes, 1 + 8 * static_cast<uint32_t>(phase));
      Recorder::last_read(kSlot, kBytes, 1 + 8 * static_cast<uint32_t>(phase));
      kEmpty.arrive();
    }
    made.threads.push_back(thread);
  }
  Recorder::model = nullptr;
  Recorder::thread = nullptr;
  return explore(made, Search::kAllOrders).failure;
}

TEST(PhasedBarrier, HandsASlotToAndFroInEveryOrder) { EXPECT_EQ(failure_of(Mistake::kNone), ""); }

TEST(PhasedBarrier, OfAnotherPhaseIsFound) {
  EXPECT_NE(failure_of(Mistake::kFillsAtOnce), "");
  EXPECT_NE(failure_of(Mistake::kFillsAPhaseLate), "");
  EXPECT_NE(failure_of(Mistake::kReadsAPhaseEarly), "");
  EXPECT_NE(failure_of(Mistake::kReadsAPhaseLate), "");
}

TEST(PhasedBarrier, WaitsForTheLapOfARingsSlot) {
  Thread thread{"role", false, {}};
  Recorder::thread = &thread;
  auto at = pipeline::PipelineState<1>::consumer();
  for (int lap = 0; lap < 3; ++lap, at.step()) {
    kFull.wait(at);
    kEmpty.wait_before(at);
  }
  Recorder::thread = nullptr;
  std::string parities;
  for (const Action& action : thread.actions) parities += std::to_string(action.value);
  EXPECT_EQ(parities, "011001");
}

TEST(PhasedBarrier, IsReachedInAnotherCtaWhereItIsRemoteAndElseInThisOne) {
  Thread thread{"role", false, {}};
  Recorder::thread = &thread;
  const pipeline::PhasedBarrier<1, true> remote{16};
  remote.arrive_at(1);
  remote.publish_at(1);
  kFull.arrive_at(1);
  kFull.publish_at(1);
  pipeline::ArrivalOfWarp<true>{0, 1}(24);
  pipeline::ArrivalOfWarp<true>{1, 1}(24);  // another lane than the first
  pipeline::SignalledByWarp{0}(32);
  Recorder::thread = nullptr;
  std::vector<uint32_t> reached;
  for (const Action& action : thread.actions) reached.push_back(action.address);
  EXPECT_EQ(reached, (std::vector<uint32_t>{kCtaBytes + 16, kCtaBytes + 16, 0, 0, kCtaBytes + 24, 32}));
}

}  // namespace
}  // namespace kernelwright
