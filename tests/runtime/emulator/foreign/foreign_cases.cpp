// The list of all cases.
#include "runtime/emulator/foreign/foreign_cases.h"

namespace kernelwright::test {

std::vector<HopperCase> foreign_cases() {
  std::vector<HopperCase> all;
  for (auto* list : {streamk_cases, grouped_gemm_cases, fmha_cases})
    for (HopperCase& test : list()) all.push_back(std::move(test));
  return all;
}

}  // namespace kernelwright::test
