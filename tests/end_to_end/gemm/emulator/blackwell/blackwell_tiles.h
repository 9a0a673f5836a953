/// Tiles of gemm_sm100 for tests of groups on the emulator, with every check on. Needs NVRTC and no GPU.
#pragma once

#include "support/checked_gemm.h"

namespace kernelwright::test {

namespace blackwell {

/// One of each way in which the kernel walks tiles of groups.
struct BlackwellTile {
  const char* name;
  int block_n, cta_group = 1;
  ClusterShape cluster = {1, 1};
  bool swap_ab = false;
};
inline constexpr BlackwellTile kAlone = {"alone", 64}, kPair = {"pair", 64, 2, {2, 1}},
                               kCluster = {"cluster", 64, 1, {2, 2}}, kSwapped = {"swapped", 32, 1, {1, 1}, true},
                               kSwappedPair = {"swapped_pair", 32, 2, {2, 1}, true},
                               kSwappedCluster = {"swapped_cluster", 32, 2, {4, 2}, true};
inline constexpr BlackwellTile kTiles[] = {kAlone, kPair, kCluster, kSwapped, kSwappedCluster};

inline GemmSchedule schedule_of(const BlackwellTile& tile) {
  GemmSchedule schedule;
  schedule.family = Family::kBlackwell;
  schedule.block_n = tile.block_n, schedule.cta_group = tile.cta_group, schedule.cluster = tile.cluster;
  schedule.swap_ab = tile.swap_ab;
  schedule.stages = 4;
  return schedule;
}

}  // namespace blackwell

class CheckedBlackwellGemm : public CheckedGemm {
 protected:
  explicit CheckedBlackwellGemm(emulator::Completion completion = emulator::Completion::kEager)
      : CheckedGemm(completion, Arch::kSm100a) {}
  void expect_each_right(const GemmProblem& problem, const GemmShape& shape, const blackwell::BlackwellTile& tile,
                         int padding = 0) {
    SCOPED_TRACE(tile.name);
    expect_right(problem, shape, blackwell::schedule_of(tile), {.seed = 5, .padding = padding});
  }
};

}  // namespace kernelwright::test
