/// Threads that compile in the background. Two queues: what a caller waits for behind a fallback goes last.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kernelwright {

class WorkerPool {
 public:
  /// Starts no thread yet. `threads` 0: one per core.
  explicit WorkerPool(int threads);
  /// Drops the jobs that have not begun and waits for those that have.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// `job` must not throw. Urgent jobs overtake all others. Throws Error in a child of fork(), which has no threads.
  void post(std::function<void()> job, bool urgent = false);

 private:
  void work();
  const std::size_t max_threads_;
  const int process_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> urgent_, queue_;
  std::size_t idle_ = 0;
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kernelwright
