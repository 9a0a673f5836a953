#include "kernelwright/runtime/attention_kernel.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernelwright/runtime/kernel_slot.h"

namespace kernelwright {

std::string_view to_string(KernelState state) {
  switch (state) {
    case KernelState::kPending: return "pending";
    case KernelState::kReady: return "ready";
    case KernelState::kFailed: return "failed";
  }
  return "?";
}

namespace detail {

const LoadedAttention& KernelSlot::await_serving(Stream stream) {
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
  if (const LoadedAttention* kernel = serving.load(std::memory_order_relaxed)) return *kernel;
  std::rethrow_exception(failure);
}

}  // namespace detail

detail::KernelSlot& AttentionKernel::slot() const {
  if (!slot_) [[unlikely]]
    throw Error("AttentionKernel: an empty handle was used; take one from Engine::prepare()");
  return *slot_;
}

void AttentionKernel::launch(const AttentionTensors& tensors, Stream stream) const {
  detail::KernelSlot& target = slot();
  const detail::LoadedAttention* kernel = target.serving.load(std::memory_order_acquire);
  if (!kernel) [[unlikely]]
    kernel = &target.await_serving(stream);
  detail::launch_attention(*kernel, tensors, stream);
  if (kernel->fallback) target.shared->fallback_launches.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t AttentionKernel::workspace_bytes(const AttentionExtent& extent) const {
  const detail::KernelSlot& of = slot();
  const int num_sms = of.device->info().num_sms;
  const auto bytes = [&](const AttentionPlan& plan) {
    return plan_launch(plan.main, extent, num_sms, detail::forced_splits(plan)).workspace_bytes;
  };
  const bool empty = extent.batch <= 0 || extent.q_len <= 0 || extent.q_tokens <= 0 || extent.kv_len < 0;
  if (empty) return 0;  // nothing will be launched
  return std::max(bytes(of.plan), of.fallback_plan ? bytes(*of.fallback_plan) : 0);
}

AttentionExtent AttentionKernel::extent(const AttentionTensors& tensors) const {
  return detail::extent_of(slot().problem, tensors);
}

KernelState AttentionKernel::state() const { return slot().state.load(std::memory_order_acquire); }

bool AttentionKernel::serves_fallback() const {
  const detail::LoadedAttention* kernel = slot().serving.load(std::memory_order_acquire);
  return kernel && kernel->fallback;
}

std::string AttentionKernel::error() const {
  detail::KernelSlot& of = slot();
  std::lock_guard lock(of.shared->mutex);
  return of.error;
}

void AttentionKernel::wait() const {
  detail::KernelSlot& of = slot();
  std::unique_lock lock(of.shared->mutex);
  of.shared->changed.wait(lock, [&] { return of.state != KernelState::kPending; });
  if (of.state == KernelState::kFailed) std::rethrow_exception(of.failure);
}

const AttentionProblem& AttentionKernel::problem() const { return slot().problem; }
const AttentionPlan& AttentionKernel::plan() const { return slot().plan; }
const std::string& AttentionKernel::key() const { return slot().key; }
int AttentionKernel::device() const { return slot().device->ordinal(); }

std::shared_ptr<const Binary> AttentionKernel::binary() const {
  detail::KernelSlot& of = slot();
  std::lock_guard lock(of.shared->mutex);
  return of.tuned ? of.tuned->main_binary : nullptr;
}

std::shared_ptr<const Binary> AttentionKernel::combine_binary() const {
  detail::KernelSlot& of = slot();
  std::lock_guard lock(of.shared->mutex);
  return of.tuned ? of.tuned->combine_binary : nullptr;
}

}  // namespace kernelwright
