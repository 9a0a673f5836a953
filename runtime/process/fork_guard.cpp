// One registry of the process' fork-safe mutexes; pthread_atfork handlers walk it.
#include "kernelwright/runtime/process/fork_guard.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace kernelwright {

struct ForkRegistry {
  std::mutex mutex;
  std::vector<ForkSafeMutex*> members;
  std::atomic<int> generation{0};

  static ForkRegistry& get() {
    static ForkRegistry* const registry = [] {  // never destroyed: a fork may come during exit
      auto* made = new ForkRegistry;
      pthread_atfork(before_fork, in_parent, in_child);
      return made;
    }();
    return *registry;
  }
  static void before_fork() {
    get().mutex.lock();
    for (ForkSafeMutex* member : get().members) member->mutex_.lock();
  }
  static void in_parent() {
    for (ForkSafeMutex* member : get().members) member->mutex_.unlock();
    get().mutex.unlock();
  }
  static void in_child() {
    get().generation.fetch_add(1);
    for (ForkSafeMutex* member : get().members) {
      if (member->in_child_) member->in_child_();
      member->mutex_.unlock();
    }
    get().mutex.unlock();
  }
};

int fork_generation() { return ForkRegistry::get().generation.load(); }

ForkSafeMutex::ForkSafeMutex(std::function<void()> in_child) : in_child_(std::move(in_child)) {
  ForkRegistry& registry = ForkRegistry::get();
  std::lock_guard hold(registry.mutex);
  registry.members.push_back(this);
}

ForkSafeMutex::~ForkSafeMutex() {
  ForkRegistry& registry = ForkRegistry::get();
  std::lock_guard hold(registry.mutex);
  std::erase(registry.members, this);
}

}  // namespace kernelwright
