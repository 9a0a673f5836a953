/// Kernels for the emulator alone, made once a process.
#pragma once

#include <memory>
#include <string>

#include "kernelwright/generator/specialize.h"
#include "kernelwright/runtime/kernel_store.h"

namespace kernelwright::test {

/// PTX alone, with lines: the emulator runs no machine code, and shipped_kernels_test.cpp makes all of it.
class PtxStore final : public KernelStore {
 public:
  PtxStore() : KernelStore(memory_only()) {}

 private:
  static CacheOptions memory_only() {
    CacheOptions options;
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
