/// What Triton's kernels compute, in fp64 from the definitions, with the error that their arithmetic may make.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/emulator/launches/ptx_case.h"

namespace kernelwright::test {

struct Expected {
  std::vector<double> value;
  std::vector<double> allowed;  // the largest difference, from number formats and lengths of sums
};

/// The outputs of a case by their names, from the buffers as they were before the launch. Throws Error if no reference
/// has the name that the case gives.
std::map<std::string, Expected> triton_expected(const PtxCase& test, const std::map<std::string, PtxBuffer>& before);

}  // namespace kernelwright::test
