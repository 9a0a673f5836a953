/// One worker process: how it is started, asked, and ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "kernelwright/generator/trusted_files.h"
#include "kernelwright/runtime/workers/messages.h"

namespace kernelwright {

/// A process that runs NVRTC for us. Its end of the socket is its only descriptor beside /dev/null and a file for its
/// last words. It has no signal blocked, ours is not its process group, and it ends when our end of the socket closes.
/// Threads must not share a child.
class WorkerChild {
 public:
  struct Start {
    std::string program, nvrtc_path;
    std::uint64_t memory_bytes = 0;  // 0: no limit
  };
  /// posix_spawn, and never a bare fork: a server has threads, and their locks would stay held. Throws MissingError if
  /// the program cannot be started.
  explicit WorkerChild(const Start& start);
  /// Kills the process if it runs, and takes its status, so that no zombie stays.
  ~WorkerChild();
  WorkerChild(const WorkerChild&) = delete;
  WorkerChild& operator=(const WorkerChild&) = delete;

  struct Reply {
    MessageKind kind{};
    std::string fields;
  };
  /// Sends one request and waits for its answer. Throws CompilerFaultError ("the compile worker was killed by
  /// SIGSEGV ...") if the process ends, answers garbage, or does not answer within `limit`; the process is then dead.
  /// Throws InterruptedError if `stop` returns true.
  Reply ask(MessageKind kind, std::string_view fields, std::chrono::milliseconds limit,
            const std::function<bool()>& stop);

  /// Whether it still waits for a request. False: it has ended, and can only be destroyed.
  bool is_idle() const;
  pid_t pid() const { return pid_; }
  /// In a child of fork(): the process is the parent's. Closes our copies of its descriptors, and neither kills nor
  /// waits.
  void forget();

  int compiles = 0;                            // answered so far
  std::chrono::steady_clock::time_point idle;  // since when

 private:
  /// Waits for its end, kills it after `patience`, and takes its status. Returns how it ended by itself, or "".
  std::string end(std::chrono::milliseconds patience);
  std::string last_words() const;
  pid_t pid_ = -1;
  Fd socket_, handle_, words_;  // handle_: a pidfd, if the kernel has them
  std::uint64_t memory_bytes_ = 0;
};

}  // namespace kernelwright
