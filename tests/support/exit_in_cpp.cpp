// Exits while compiles run in the background, for process_exit_test.cpp: MODE DELAY_US.
//   leaked   an Engine on the heap, which is never deleted
//   static   a static Engine, which exit() destroys
//   local    an Engine in main, destroyed before exit() begins
//   sink     leaked, with a sink that uses a static log, which exit() destroys
//   remote   no Engine: threads that use the remote cache $REMOTE with the authority $REMOTE_CA, and one that exit()
//            destroys, for http_test.cpp
// Exit status 7, or 99 if a call failed.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernelwright/runtime/cache/remote/transport.h"
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
std::unique_ptr<RemoteTransport> static_remote;

std::unique_ptr<RemoteTransport> open_remote() {
  auto remote = make_remote_transport(std::getenv("REMOTE"), "remote", {.ca = std::getenv("REMOTE_CA")});
  const RemoteReply reply = remote->put("a", {}, RemoteClock::now() + std::chrono::seconds(10));
  if (reply.outcome != RemoteOutcome::kDone) throw std::runtime_error(reply.detail);
  return remote;
}

/// Uses a server on two threads until exit() has begun.
void use_remote() {
  static RemoteTransport* leaked = open_remote().release();
  static_remote = open_remote();
  for (const char* name : {"b", "c"})
    std::thread([name] {
      static const std::vector<std::byte> value(100'000);
      RemoteReply reply;
      do reply = leaked->put(name, value, RemoteClock::now() + std::chrono::seconds(10));
      while (reply.outcome == RemoteOutcome::kDone);
    }).detach();
}

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
  if (mode == "remote") {
    use_remote();
  } else if (mode == "static") {
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
