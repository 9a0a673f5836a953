#include "kernelwright/runtime/engine.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "kernelwright/runtime/engine_state.h"

namespace kernelwright {

using detail::KernelSlot;

Engine::Engine(EngineOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Engine::~Engine() = default;

AttentionKernel Engine::prepare(const AttentionProblem& problem, const AttentionSchedule& schedule,
                                const PrepareOptions& options) {
  bool mine = false;
  KernelSlot& slot = state_->claim(problem, schedule, options, mine);
  const bool may_compile = options.allow_when_sealed || !sealed();
  if (mine && options.background) {
    try {
      state_->make_in_background(slot, may_compile);
    } catch (...) {
      state_->fail(slot, std::current_exception(), false);
      throw;
    }
  } else if (mine) {
    state_->make_tuned(slot, may_compile);
  }
  if (options.background) return AttentionKernel(&slot);

  std::unique_lock lock(state_->shared.mutex);
  state_->shared.changed.wait(lock, [&] { return slot.state != KernelState::kPending; });
  const bool fallback_will_do = slot.sealed_miss && slot.serving.load(std::memory_order_relaxed);
  if (slot.state == KernelState::kFailed && !fallback_will_do) std::rethrow_exception(slot.failure);
  return AttentionKernel(&slot);
}

AttentionKernel Engine::find(const AttentionProblem& problem, int device) const noexcept {
  const DispatchKey key = DispatchKey::of(problem, device);
  if (key.valid()) [[likely]]
    return AttentionKernel(state_->table.find(key));
  std::lock_guard lock(state_->shared.mutex);
  return AttentionKernel(state_->find_locked(problem, nullptr, device));
}

void Engine::attention(const AttentionProblem& problem, const AttentionTensors& tensors, Stream stream, int device) {
  AttentionKernel kernel = find(problem, device);
  const auto needs_work = [](const KernelSlot& slot) { return !slot.serving && slot.state == KernelState::kFailed; };
  if (!kernel || needs_work(kernel.slot())) [[unlikely]] {
    const AttentionSchedule schedule = kernel ? kernel.slot().schedule : AttentionSchedule{};
    const PrepareOptions options{
        .device = device, .on_miss = state_->options.on_miss, .background = state_->options.on_miss != OnMiss::kBlock};
    if (state_->backend->device(device).capture_state(stream) != CaptureState::kNone)
      state_->refuse_in_capture(problem, schedule, options);
    kernel = prepare(problem, schedule, options);
  }
  kernel.launch(tensors, stream);
}

void Engine::seal() { state_->sealed = true; }
bool Engine::sealed() const { return state_->sealed; }

bool Engine::wait_until_ready(int timeout_ms) {
  bool failed = false;
  const auto settled = [&] {
    failed = false;
    for (const auto& slot : state_->slots) {
      if (slot->state == KernelState::kPending) return false;
      failed |= slot->state == KernelState::kFailed;
    }
    return true;
  };
  std::unique_lock lock(state_->shared.mutex);
  if (timeout_ms < 0)
    state_->shared.changed.wait(lock, settled);
  else if (!state_->shared.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), settled))
    return false;
  return !failed;
}

int Engine::promote() {
  int promoted = 0;
  std::lock_guard lock(state_->shared.mutex);
  for (const auto& slot : state_->slots) {
    const detail::LoadedAttention* serving = slot->serving.load(std::memory_order_relaxed);
    if (!slot->tuned || !serving || serving == slot->tuned.get()) continue;
    slot->serving.store(slot->tuned.get(), std::memory_order_release);
    ++promoted;
  }
  state_->promotions += static_cast<std::uint64_t>(promoted);
  return promoted;
}

std::uint64_t Engine::loaded_bytes() const { return state_->loader.loaded_bytes(); }

EngineCounters Engine::counters() const {
  EngineCounters counters;
  {
    std::lock_guard lock(state_->shared.mutex);
    for (const auto& slot : state_->slots) {
      const KernelState state = slot->state;
      ++(state == KernelState::kReady    ? counters.ready
         : state == KernelState::kFailed ? counters.failed
                                         : counters.pending);
    }
  }
  counters.loads = state_->loader.loads();
  counters.loaded_bytes = state_->loader.loaded_bytes();
  counters.fallback_launches = state_->shared.fallback_launches;
  counters.capture_misses = state_->shared.capture_misses;
  counters.sealed_misses = state_->sealed_misses;
  counters.promotions = state_->promotions;
  counters.cache = state_->store->cache().counters();
  return counters;
}

int Engine::device_count() const { return state_->backend->device_count(); }
Device& Engine::device(int ordinal) const { return state_->backend->device(ordinal); }
Backend& Engine::backend() const { return *state_->backend; }
KernelStore& Engine::store() const { return *state_->store; }
const TunedTable& Engine::tuned_rows() const { return *state_->rows; }

}  // namespace kernelwright
