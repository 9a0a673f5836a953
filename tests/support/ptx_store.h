/// Kernels for the emulator, made once per process; once for all processes if the test run has a cache.
#pragma once

#include <memory>
#include <string>

#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/store/kernel_store.h"
#include "support/run_cache.h"

namespace kernelwright::test {

/// PTX only, with line information. The emulator runs no machine code, and shipped_kernels_test.cpp makes all machine
/// code.
class PtxStore final : public KernelStore {
 public:
  PtxStore() : KernelStore(cache_of_run("ptx-alone")) {}

 private:
  Binary build(const SourceUnit& unit) override {
    Binary binary;
    binary.entry = unit.entry;
    binary.arch = unit.arch;
    binary.ptx = compiler().compile_with_lines(unit);
    return binary;
  }
  std::string build_with_lines(const SourceUnit&) override { return ""; }
};

/// One store for all tests of a process, which share its contents.
inline std::shared_ptr<PtxStore> ptx_store() {
  static const auto one = std::make_shared<PtxStore>();
  return one;
}

}  // namespace kernelwright::test
