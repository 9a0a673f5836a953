/// Kernels of our own with the traits of other people's kernels, as cases like those of kernels/hopper_cases.h.
#pragma once

#include <vector>

#include "runtime/emulator/foreign/foreign_params.h"
#include "runtime/emulator/kernels/hopper_cases.h"

namespace kernelwright::test {

std::vector<HopperCase> streamk_cases();
std::vector<HopperCase> grouped_gemm_cases();
std::vector<HopperCase> fmha_cases();

/// All of them. Each launch takes much less than a second on the emulator.
std::vector<HopperCase> foreign_cases();

}  // namespace kernelwright::test
