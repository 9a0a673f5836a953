#include "kernelwright/runtime/worker_pool.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "kernelwright/generator/error.h"

namespace kernelwright {

WorkerPool::WorkerPool(int threads)
    : max_threads_(threads > 0 ? static_cast<std::size_t>(threads)
                               : std::max<std::size_t>(1, std::thread::hardware_concurrency())),
      process_(getpid()) {}

WorkerPool::~WorkerPool() {
  if (getpid() != process_) {
    // The threads exist in the parent alone, and std::thread's destructor would end the program.
    for (std::thread& thread : threads_) thread.detach();
    return;
  }
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    urgent_.clear();
    queue_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::post(std::function<void()> job, bool urgent) {
  if (getpid() != process_)
    throw Error("Engine: this process is a child of fork() and has no compile threads; create an Engine of its own");
  std::lock_guard lock(mutex_);
  (urgent ? urgent_ : queue_).push_back(std::move(job));
  if (idle_ < urgent_.size() + queue_.size() && threads_.size() < max_threads_)
    threads_.emplace_back([this] { work(); });
  changed_.notify_one();
}

void WorkerPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [&] { return closing_ || !urgent_.empty() || !queue_.empty(); });
    --idle_;
    if (closing_) return;
    auto& from = urgent_.empty() ? queue_ : urgent_;
    std::function<void()> job = std::move(from.front());
    from.pop_front();
    lock.unlock();
    job();
    job = nullptr;  // what it holds goes before the lock comes back
    lock.lock();
  }
}

}  // namespace kernelwright
