// Exits while compiles run in the background, for process_exit_test.cpp: MODE DELAY_US.
//   leaked   an Engine on the heap, which is never deleted
//   static   a static Engine, which exit() destroys
//   local    an Engine in main, destroyed before exit() begins
//   sink     leaked, with a sink that uses a static log, which exit() destroys
// Exit status 7, or 99 if a call failed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernelwright/runtime/engine/engine.h"

namespace {

using namespace kernelwright;

EngineOptions options() {
  EngineOptions options;
  options.backend = "emulator";
  options.cache.disk = false;
  options.compile_threads = 3;
  return options;
}

void prepare(Engine& engine) {
  for (const int head_dim : {64, 128})
    for (const MaskKind mask : {MaskKind::kCausal, MaskKind::kNone}) {
      AttentionProblem problem;
      problem.head_dim = {head_dim, head_dim};
      problem.heads = {4, 4};
      problem.mask.kind = mask;
      engine.prepare(problem, {}, {.on_miss = OnMiss::kFallback, .background = true});
    }
}

std::optional<Engine> static_engine;

struct Log {
  std::mutex mutex;
  std::vector<std::string> lines;
  ~Log() { lines.assign(1, "the log is closed; who writes to it now reads freed memory"); }
};

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view mode = argc > 2 ? argv[1] : "leaked";
  const auto delay = std::chrono::microseconds(argc > 2 ? std::atol(argv[2]) : 0);
  static Engine* leaked = nullptr;  // reachable to the end, so that a leak checker does not report it
  std::optional<Engine> local;
  if (mode == "static") {
    prepare(static_engine.emplace(options()));
  } else if (mode == "local") {
    prepare(local.emplace(options()));
  } else {
    EngineOptions with_sink = options();
    if (mode == "sink") {
      static Log log;
      with_sink.sink = [](const Event& event) {
        const std::lock_guard lock(log.mutex);
        log.lines.push_back(event.name + event.detail);
      };
    }
    leaked = new Engine(with_sink);
    prepare(*leaked);
  }
  std::this_thread::sleep_for(delay);
  return 7;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 99;
}
