/// The bodies of KernelHandle and KernelSlot. Each kind includes them in its kernel.cpp and instantiates them there, so
/// that this folder knows no kind.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <string>

#include "kernelwright/runtime/slot/kernel_handle.h"
#include "kernelwright/runtime/slot/kernel_slot.h"
#include "kernelwright/runtime/slot/readiness.h"

namespace kernelwright {

namespace detail {

template <class Kind>
const typename Kind::Loaded& KernelSlot<Kind>::await_serving(Stream stream) {
  shared->refuse_after_fork("launch()");
  std::unique_lock lock(shared->mutex);
  const auto settled = [&] {
    return serving.load(std::memory_order_relaxed) || (state == KernelState::kFailed && !fallback_pending);
  };
  if (!settled()) {
    if (on_miss == OnMiss::kError)
      throw NotReadyError(fmt::format(
          "{} is not ready: it is compiling in the background; call wait() first, or prepare it with OnMiss::kBlock or "
          "kFallback",
          name));
    lock.unlock();
    if (device->capture_state(stream) != CaptureState::kNone) {
      shared->capture_misses.fetch_add(1, std::memory_order_relaxed);
      throw NotReadyError(fmt::format(
          "{} is not ready and its stream is capturing, so it can be neither loaded nor waited for; call wait() before "
          "the capture begins",
          name));
    }
    lock.lock();
    shared->changed.wait(lock, settled);
  }
  if (const auto* kernel = serving.load(std::memory_order_relaxed)) return *kernel;
  std::rethrow_exception(failure);
}

/// The kernel that a launch on `stream` queues.
template <class Kind>
const typename Kind::Loaded& serving_kernel(KernelSlot<Kind>& slot, Stream stream) {
  const typename Kind::Loaded* kernel = slot.serving.load(std::memory_order_acquire);
  if (!kernel) [[unlikely]]
    kernel = &slot.await_serving(stream);
  return *kernel;
}

/// Queues a launch of `kernel`, which serves `slot`.
template <class Kind>
void queue_launch(KernelSlot<Kind>& slot, const typename Kind::Loaded& kernel, const typename Kind::Tensors& tensors,
                  Stream stream) {
  if (slot.check_data) [[unlikely]]
    (*slot.check_data)(kernel, tensors, stream);
  if (kernel.watched) [[unlikely]]
    return slot.watched_launch(kernel, [&] { Kind::launch(kernel, tensors, stream); });
  Kind::launch(kernel, tensors, stream);
}

}  // namespace detail

template <class Kind, class Problem, class Plan>
typename KernelHandle<Kind, Problem, Plan>::Slot& KernelHandle<Kind, Problem, Plan>::slot() const {
  if (!slot_) [[unlikely]]
    throw Error(fmt::format("{}: an empty handle was used; take one from Engine::prepare()", Kind::handle));
  return *slot_;
}

template <class Kind, class Problem, class Plan>
KernelState KernelHandle<Kind, Problem, Plan>::state() const {
  return slot().state.load(std::memory_order_acquire);
}

template <class Kind, class Problem, class Plan>
bool KernelHandle<Kind, Problem, Plan>::serves_fallback() const {
  const auto* kernel = slot().serving.load(std::memory_order_acquire);
  return kernel && kernel->fallback;
}

template <class Kind, class Problem, class Plan>
std::string KernelHandle<Kind, Problem, Plan>::error() const {
  Slot& of = slot();
  std::lock_guard lock(of.shared->mutex);
  return of.error;
}

template <class Kind, class Problem, class Plan>
void KernelHandle<Kind, Problem, Plan>::wait() const {
  Slot& of = slot();
  if (of.state == KernelState::kReady) return;
  of.shared->refuse_after_fork("wait()");
  std::unique_lock lock(of.shared->mutex);
  of.shared->changed.wait(lock, [&] { return of.state != KernelState::kPending; });
  if (of.state == KernelState::kFailed) std::rethrow_exception(of.failure);
}

template <class Kind, class Problem, class Plan>
const Problem& KernelHandle<Kind, Problem, Plan>::problem() const {
  return slot().problem;
}
template <class Kind, class Problem, class Plan>
const Plan& KernelHandle<Kind, Problem, Plan>::plan() const {
  return slot().plan;
}
template <class Kind, class Problem, class Plan>
int KernelHandle<Kind, Problem, Plan>::device() const {
  return slot().device->ordinal();
}

template <class Kind, class Problem, class Plan>
template <class Tensors>
void KernelHandle<Kind, Problem, Plan>::launch_with(const Tensors& tensors, Stream stream) const {
  Slot& target = slot();
  detail::queue_launch(target, detail::serving_kernel(target, stream), tensors, stream);
}

}  // namespace kernelwright
