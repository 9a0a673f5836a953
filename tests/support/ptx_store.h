/// Kernels for the emulator alone, made once a process; once for all processes where the run of tests has a cache.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright::test {

/// PTX alone, with lines: the emulator runs no machine code, and shipped_kernels_test.cpp makes all of it.
class PtxStore final : public KernelStore {
 public:
  PtxStore() : KernelStore(cache_options()) {}

 private:
  // Half of what these tests do is compile, and many kernels serve several of them. In a folder of their own: keys do
  // not tell them from kernels with machine code.
  static CacheOptions cache_options() {
    CacheOptions options;
    const char* const of_run = std::getenv("KERNELWRIGHT_CACHE_DIR");
    if (of_run)
      options.directory = std::string(of_run) + "/ptx-alone";
    else
      options.disk = false;
    return options;
  }
  Binary build(const SourceUnit& unit) override {
    Binary binary;
    binary.entry = unit.entry;
    binary.arch = unit.arch;
    binary.ptx = compiler().compile_with_lines(unit);
    return binary;
  }
  std::string build_with_lines(const SourceUnit&) override { return ""; }
};

/// One for all tests of a process, which share what it holds.
inline std::shared_ptr<PtxStore> ptx_store() {
  static const auto one = std::make_shared<PtxStore>();
  return one;
}

}  // namespace kernelwright::test
