/// How the emulator behaves as a device. A light header, because the options of the engine include one of these.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string_view>

#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/device/completion.h"

namespace kernelwright {

namespace emulator {
struct KernelHazard;  // emulator_backend.h
}

struct EmulatorBackendOptions {
  Arch arch = Arch::kSm90a;  // the architecture that the device reports: any row of arch.h
  bool hazards = false;      // check every launch for races, missing fences, misused barriers; about half the speed.
  /// With `hazards`: the checker assumes that the work ahead of a launch with LaunchConfig::pdl reads and writes all of
  /// memory. So it reports any access of memory before griddepcontrol.wait. Without this, only what that work did
  /// counts.
  bool unknown_ahead = false;
  emulator::Completion completion = emulator::Completion::kEager;
  /// The seed of Completion::kRandom and, unless it is 0, of the order in which warps and clusters take turns. Equal
  /// seeds give equal runs.
  std::uint64_t seed = 0;
  int num_sms = 0;                     // SMs that the device reports; 0: those of the class that stands for `arch`
  int threads = 0;                     // of the host, for the clusters of a launch; 0: as many as cores
  std::uint64_t max_instructions = 0;  // warp instructions of a launch until it counts as hanging; 0: no limit
  bool timeline = false;               // keep the traces for EmulatorBackend::take_traces()
  std::uint32_t timeline_cta = 0;      // of this CTA's cluster: its number in the grid, x first
  /// Gets each report at the end of its launch, on the thread that launched. Must not throw or call back in.
  std::function<void(const emulator::KernelHazard&)> on_report;
  /// Gets what the kernels of a launch printed, in the same way. A GPU's driver writes to stdout, too.
  std::function<void(std::string_view)> on_print = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  };
};

}  // namespace kernelwright
