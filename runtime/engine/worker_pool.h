/// Threads that compile in the background. There are two queues: a job whose kernel has a fallback meanwhile comes
/// last.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "kernelwright/runtime/process/own_thread.h"

namespace kernelwright {

class WorkerPool {
 public:
  /// Starts no thread yet. `threads` 0: one per core.
  explicit WorkerPool(int threads);
  /// stop()
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// `job` must not throw. Urgent jobs overtake all others. Throws Error in a child of fork(), which has no threads,
  /// and InterruptedError after stop().
  void post(std::function<void()> job, bool urgent = false);

  /// Drops the jobs that have not begun, interrupts the running ones (InterruptScope) and waits for them. A job must
  /// not call it. Does nothing in a child of fork().
  void stop();

 private:
  void start_thread();  // with mutex_ held
  void work();
  const std::size_t max_threads_;
  const int process_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> urgent_, queue_;
  std::size_t idle_ = 0;
  std::atomic<bool> stopped_{false};  // written with mutex_ held
  std::vector<OwnThread> threads_;
};

}  // namespace kernelwright
