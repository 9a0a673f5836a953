/// The cases of each kernel, for hopper_cases().
#pragma once

#include <vector>

#include "runtime/emulator/kernels/hopper_cases.h"

namespace kernelwright::test {

std::vector<HopperCase> gemm_cases();
std::vector<HopperCase> attention_cases();
std::vector<HopperCase> copy_cases();
std::vector<HopperCase> kv_pipeline_cases();

}  // namespace kernelwright::test
