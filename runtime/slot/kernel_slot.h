/// What a handle points to: one problem on one device, and the kernels that serve it over time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/digest.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/binary/kernel_source.h"
#include "kernelwright/runtime/process/fork_guard.h"
#include "kernelwright/runtime/process/latency.h"
#include "kernelwright/runtime/slot/kernel_handle.h"
#include "kernelwright/runtime/slot/readiness.h"

namespace kernelwright::detail {

/// Data that all slots of an engine share.
struct SlotShared {
  std::mutex mutex;                 // guards the marked fields of every slot; held for moments only
  std::condition_variable changed;  // a slot's state, or the kernel that serves it, changed
  const int generation = fork_generation();
  /// Throws Error in a child of fork(). The threads that would end a wait exist in the parent alone, and the mutex may
  /// be locked for ever. `what`: the call, for the message.
  void refuse_after_fork(const char* what) const;
  std::atomic<std::uint64_t> fallback_launches{0}, capture_misses{0};
  std::uint32_t launch_sampling = 0;  // EngineOptions', fixed before any slot is made
  LatencyHistogram launches{kFirstLaunchNs};
};

/// One problem on one device. `Kind` is a struct in the problem's own folder (runtime/attention/kind.h and its like):
/// its types, the name of its handle, how it is planned and how it is launched.
template <class Kind>
struct KernelSlot {
  using Loaded = typename Kind::Loaded;
  /// Checks the data of a launch before it is queued.
  using CheckData = std::function<void(const Loaded&, const typename Kind::Tensors&, Stream)>;

  // Fixed before another thread sees the slot.
  typename Kind::Problem problem;
  typename Kind::Schedule schedule;
  typename Kind::Plan plan;
  std::optional<typename Kind::Plan> fallback_plan;  // OnMiss::kFallback, where it is another kernel
  std::vector<std::string> keys, fallback_keys;      // of the plans' kernels, hex
  // Of the plans' kernels, from prepare() until they are loaded. Only the thread that makes the slot's kernels uses
  // them.
  std::vector<std::shared_ptr<const KernelSource>> kernel_sources, fallback_sources;
  std::string kernel, name;  // "attention_portable"; "attention_portable (key 01ab...)" for messages
  std::size_t twins = 0;     // earlier slots with the same problem and schedule, on other devices
  OnMiss on_miss = OnMiss::kBlock;
  Device* device = nullptr;
  SlotShared* shared = nullptr;
  const CheckData* check_data = nullptr;  // of EngineOptions::check_data; null: launches are not checked

  // Launches read it without the lock; it is written under the lock. Once it is not null, promote() alone changes it.
  std::atomic<const Loaded*> serving{nullptr};
  std::atomic<KernelState> state{KernelState::kPending};

  // Guarded by shared->mutex.
  std::unique_ptr<const Loaded> tuned, fallback;  // never destroyed: captured graphs may hold them
  bool fallback_pending = false;
  std::exception_ptr failure;  // of kFailed
  std::string error;
  bool sealed_miss = false, sealed_miss_reported = false;
  /// Wanted only after seal(). If it is not cached, neither wait_until_ready() nor `failed` counts it.
  bool late = false;
  bool awaited = true;  // wait_until_ready() waits for it; not if a launch asked for it late or a call waits
  std::chrono::steady_clock::time_point begun, failed_at;
  std::map<std::string, CacheSource> sources;           // of each key, when this slot first asked for it
  std::optional<Digest> tuned_digest, fallback_digest;  // of those two kernels, once a caller compares ranks

  /// A kernel to launch, if none served so far: waits or throws as on_miss says.
  const Loaded& await_serving(Stream stream);

  /// Calls `queue()`, which launches `kernel`, and does the extra work of a watched kernel's launch. It times one in
  /// launch_sampling launches, and counts those of a fallback. Launches of other kernels never come here.
  template <class Queue>
  [[gnu::noinline]] void watched_launch(const Loaded& kernel, const Queue& queue) {
    if (sampled(shared->launch_sampling)) {
      const auto start = LatencyHistogram::Clock::now();
      queue();
      shared->launches.add(LatencyHistogram::Clock::now() - start);
    } else {
      queue();
    }
    if (kernel.fallback) shared->fallback_launches.fetch_add(1, std::memory_order_relaxed);
  }
};

}  // namespace kernelwright::detail
