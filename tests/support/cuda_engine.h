/// The engine on this machine's GPU, for tests that skip by name if there is none.
#pragma once

#include <memory>
#include <string>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/engine/engine.h"

namespace kernelwright::test {

/// One engine for all tests of a process, or the reason why there is none.
struct CudaEngine {
  std::unique_ptr<Engine> engine;
  std::string missing;

  static CudaEngine& get() {
    static CudaEngine one;
    return one;
  }

 private:
  CudaEngine() {
    try {
      EngineOptions options;
      options.backend = "cuda";
      engine = std::make_unique<Engine>(options);
      if (engine->device(0).info().arch) return;
      missing = "no kernel is compiled for " + engine->device(0).info().name;
      engine.reset();
    } catch (const MissingError& error) {
      engine.reset();
      missing = error.what();
    }
  }
};

}  // namespace kernelwright::test
