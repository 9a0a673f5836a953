#include "kernelwright/runtime/engine/worker_pool.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/process/interrupt.h"

namespace kernelwright {

WorkerPool::WorkerPool(int threads)
    : max_threads_(threads > 0 ? static_cast<std::size_t>(threads)
                               : std::max<std::size_t>(1, std::thread::hardware_concurrency())),
      process_(getpid()) {}

WorkerPool::~WorkerPool() {
  stop();
  for (OwnThread& thread : threads_) thread.detach();  // in a child of fork(): they exist in the parent alone
}

void WorkerPool::stop() {
  if (getpid() != process_) return;
  std::vector<OwnThread> threads;
  std::deque<std::function<void()>> dropped;  // destroyed without the lock, with all that they hold
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(queue_);
    std::move(urgent_.begin(), urgent_.end(), std::back_inserter(dropped));
    urgent_.clear();
    threads.swap(threads_);
  }
  changed_.notify_all();
  for (OwnThread& thread : threads) thread.join();
}

void WorkerPool::post(std::function<void()> job, bool urgent) {
  if (getpid() != process_)
    throw Error("Engine: this process is a child of fork() and has no compile threads; create an Engine of its own");
  std::lock_guard lock(mutex_);
  if (stopped_) throw InterruptedError("Engine: it was stopped, and compiles nothing any more");
  (urgent ? urgent_ : queue_).push_back(std::move(job));
  if (idle_ < urgent_.size() + queue_.size() && threads_.size() < max_threads_) start_thread();
  changed_.notify_one();
}

void WorkerPool::start_thread() {
  hold_exit_ahead_of_handlers();
  try {
    threads_.emplace_back([this] { work(); });
  } catch (const std::system_error&) {
    if (!threads_.empty()) return;  // the running ones will get to it
    urgent_.clear();
    queue_.clear();
    throw;
  }
}

void WorkerPool::work() {
  const InterruptScope scope(&stopped_);
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    changed_.wait(lock, [&] { return stopped_ || !urgent_.empty() || !queue_.empty(); });
    --idle_;
    if (stopped_) return;
    auto& from = urgent_.empty() ? queue_ : urgent_;
    std::function<void()> job = std::move(from.front());
    from.pop_front();
    lock.unlock();
    {
      const ExitHold hold;
      job();
      job = nullptr;  // destroys what it holds before the lock is taken again
    }
    lock.lock();
  }
}

}  // namespace kernelwright
