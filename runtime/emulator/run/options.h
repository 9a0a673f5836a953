/// How the machine runs launches.
#pragma once

#include <cstdint>

#include "kernelwright/runtime/device/completion.h"
#include "kernelwright/runtime/emulator/machine/machine_costs.h"

namespace kernelwright::emulator {

struct Options {
  bool hazards = false;
  Completion completion = Completion::kEager;
  std::uint64_t seed = 0;  // seeds schedules and Completion::kRandom; equal seeds give equal runs
  bool shuffle = false;    // warps and clusters take turns in an order drawn from the seed
  int threads = 0;         // 0: as many threads as cores
  int num_sms = 132;       // together with max_ctas_per_sm: how many CTAs are resident at once; a backend sets its own
  int max_ctas_per_sm = 1;
  std::uint64_t max_instructions = 0;  // a launch that executes more warp instructions is taken to hang; 0: no limit
  double timeout_s = 0;                // the same limit in seconds; checked every few million instructions
  std::uint64_t heap_bytes = std::uint64_t{8} << 20;  // for malloc of kernels; a GPU's default
  bool timeline = false;                              // keep LaunchReport::trace
  std::uint32_t timeline_cta = 0;  // record the cluster of this CTA, by its number in the grid, x first
  MachineCosts costs;              // what the timeline counts with
};

}  // namespace kernelwright::emulator
