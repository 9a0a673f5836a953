/// Builds kernels for hosts without a compiler: what `kernelwright worker` runs. runtime/cache/build_queue.h
/// has the requests.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernelwright/generator/problem/enums.h"
#include "kernelwright/runtime/cache/options.h"
#include "kernelwright/runtime/workers/options.h"

namespace kernelwright {

/// What became of one request.
struct BuildReport {
  enum class Outcome {
    kBuilt,    // compiled, or found in this host's cache; signed and sent
    kPresent,  // the server has the entry already
    kRefused,  // the request does not name the kernel that its Spec makes. Nothing was compiled or signed
    kFailed,   // the kernel does not compile; the hosts that wait are told why
    kLost,     // this worker was stopped, or the server did not take the entry; another worker may take the request
  };
  Outcome outcome = Outcome::kBuilt;
  std::string name;          // of the entry on the server
  std::string kernel, arch;  // as the request and its queue call them
  std::string detail;        // for people; "" if it was built
  double milliseconds = 0;   // since the request was taken
};
std::string_view to_string(BuildReport::Outcome outcome);

struct BuildServerOptions {
  CacheOptions cache;            // with the server of its remote cache, and the key that signs
  std::string nvrtc_path;        // as in Compiler
  CompileWorkerOptions workers;  // limits of a compile. It runs in a process of its own, whatever `where` says
  std::vector<Arch> archs;       // for which requests are taken; none: for all
  int jobs = 1;                  // requests at once
  bool once = false;             // ends after one request
  int idle_exit_ms = 0;          // ends after so long without a request; 0: never
  int lease_ms = 15'000;         // after the death of this process, another worker takes its request that much later
  int poll_ms = 100;             // between two looks at the queue
  std::function<void(const BuildReport&)> report;  // called by one thread at a time
};

class BuildServer {
 public:
  /// Throws ConfigError if no server is named, if it cannot queue, or if nothing could be signed. Throws MissingError
  /// without NVRTC or without the program that runs it.
  explicit BuildServer(BuildServerOptions options);
  ~BuildServer();

  /// Serves requests until `stop` is true; what has been taken is then built. If `abandon` turns true, that is given
  /// back to other workers instead. Throws MissingError if the compiler cannot be used any more; its requests are given
  /// back.
  void run(const std::atomic<bool>& stop, const std::atomic<bool>& abandon);

  /// The server's address, without credentials, and "NVRTC 13.0".
  const std::string& server() const;
  const std::string& compiler() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kernelwright
