#include "kernelwright/runtime/engine/engine.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "kernelwright/runtime/engine/engine_state.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright {

using detail::AttentionKind;
using detail::GemmKind;
using detail::KvWriteKind;
using detail::MoeCombineKind;
using detail::QuantizeKind;
using detail::RouteKind;
using detail::RowOpKind;

Engine::Engine(EngineOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Engine::~Engine() = default;

AttentionKernel Engine::prepare(const AttentionProblem& problem, const AttentionSchedule& schedule,
                                const PrepareOptions& options) {
  return AttentionKernel(state_->prepare<AttentionKind>(problem, schedule, options));
}
GemmKernel Engine::prepare(const GemmProblem& problem, const GemmSchedule& schedule, const PrepareOptions& options) {
  return GemmKernel(state_->prepare<GemmKind>(problem, schedule, options));
}
QuantizeKernel Engine::prepare(const QuantizeProblem& problem, const PrepareOptions& options) {
  return QuantizeKernel(state_->prepare<QuantizeKind>(problem, {}, options));
}
KvWriteKernel Engine::prepare(const KvWriteProblem& problem, const KvWriteSchedule& schedule,
                              const PrepareOptions& options) {
  return KvWriteKernel(state_->prepare<KvWriteKind>(problem, schedule, options));
}

RowOpKernel Engine::prepare(const RowOpProblem& problem, const RowOpSchedule& schedule, const PrepareOptions& options) {
  return RowOpKernel(state_->prepare<RowOpKind>(problem, schedule, options));
}
RouteKernel Engine::prepare(const RouteProblem& problem, const RouteSchedule& schedule, const PrepareOptions& options) {
  return RouteKernel(state_->prepare<RouteKind>(problem, schedule, options));
}
MoeCombineKernel Engine::prepare(const MoeCombineProblem& problem, const MoeCombineSchedule& schedule,
                                 const PrepareOptions& options) {
  return MoeCombineKernel(state_->prepare<MoeCombineKind>(problem, schedule, options));
}

AttentionKernel Engine::find(const AttentionProblem& problem, int device) const noexcept {
  return AttentionKernel(state_->find<AttentionKind>(problem, device));
}
GemmKernel Engine::find(const GemmProblem& problem, int device) const noexcept {
  return GemmKernel(state_->find<GemmKind>(problem, device));
}
QuantizeKernel Engine::find(const QuantizeProblem& problem, int device) const noexcept {
  return QuantizeKernel(state_->find<QuantizeKind>(problem, device));
}
KvWriteKernel Engine::find(const KvWriteProblem& problem, int device) const noexcept {
  return KvWriteKernel(state_->find<KvWriteKind>(problem, device));
}

RowOpKernel Engine::find(const RowOpProblem& problem, int device) const noexcept {
  return RowOpKernel(state_->find<RowOpKind>(problem, device));
}
RouteKernel Engine::find(const RouteProblem& problem, int device) const noexcept {
  return RouteKernel(state_->find<RouteKind>(problem, device));
}
MoeCombineKernel Engine::find(const MoeCombineProblem& problem, int device) const noexcept {
  return MoeCombineKernel(state_->find<MoeCombineKind>(problem, device));
}

void Engine::attention(const AttentionProblem& problem, const AttentionTensors& tensors, Stream stream, int device) {
  AttentionKernel(state_->for_call<AttentionKind>(problem, stream, device)).launch(tensors, stream);
}
void Engine::gemm(const GemmProblem& problem, const GemmTensors& tensors, Stream stream, int device) {
  GemmKernel(state_->for_call<GemmKind>(problem, stream, device)).launch(tensors, stream);
}
void Engine::quantize(const QuantizeProblem& problem, const QuantizeTensors& tensors, Stream stream, int device) {
  QuantizeKernel(state_->for_call<QuantizeKind>(problem, stream, device)).launch(tensors, stream);
}
void Engine::kv_write(const KvWriteProblem& problem, const KvWriteTensors& tensors, Stream stream, int device) {
  KvWriteKernel(state_->for_call<KvWriteKind>(problem, stream, device)).launch(tensors, stream);
}

void Engine::row_op(const RowOpProblem& problem, const RowOpTensors& tensors, Stream stream, int device) {
  RowOpKernel(state_->for_call<RowOpKind>(problem, stream, device)).launch(tensors, stream);
}
void Engine::route(const RouteProblem& problem, const RouteTensors& tensors, Stream stream, int device) {
  RouteKernel(state_->for_call<RouteKind>(problem, stream, device)).launch(tensors, stream);
}
void Engine::moe_combine(const MoeCombineProblem& problem, const MoeCombineTensors& tensors, Stream stream,
                         int device) {
  MoeCombineKernel(state_->for_call<MoeCombineKind>(problem, stream, device)).launch(tensors, stream);
}

void Engine::seal() {
  state_->sealed = true;
  state_->store->cache().stop_remote();
}
bool Engine::sealed() const { return state_->sealed; }

void Engine::stop() { state_->stop(); }

bool Engine::wait_until_ready(int timeout_ms) const {
  state_->shared.refuse_after_fork("wait_until_ready()");
  bool failed = false;
  const auto settled = [&] {
    bool pending = false;
    failed = false;
    state_->each_slot([&](const auto& slot) {
      pending |= slot.state == KernelState::kPending && slot.awaited;
      failed |= slot.state == KernelState::kFailed && !slot.late;
    });
    return !pending;
  };
  std::unique_lock lock(state_->shared.mutex);
  if (timeout_ms < 0)
    state_->shared.changed.wait(lock, settled);
  else if (!state_->shared.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), settled))
    return false;
  return !failed;
}

std::uint64_t Engine::loaded_bytes() const { return state_->loader.loaded_bytes(); }

EngineCounters Engine::counters() const {
  state_->shared.refuse_after_fork("counters()");
  EngineCounters counters;
  {
    std::lock_guard lock(state_->shared.mutex);
    state_->each_slot([&](const auto& slot) {
      const KernelState state = slot.state;
      if (state == KernelState::kFailed && slot.late) return;  // one of sealed_misses
      ++(state == KernelState::kReady    ? counters.ready
         : state == KernelState::kFailed ? counters.failed
                                         : counters.pending);
    });
  }
  counters.loads = state_->loader.loads();
  counters.loaded_bytes = state_->loader.loaded_bytes();
  counters.fallback_launches = state_->shared.fallback_launches;
  counters.capture_misses = state_->shared.capture_misses;
  counters.sealed_misses = state_->sealed_misses;
  counters.promotions = state_->promotions;
  counters.cache = state_->store->cache().counters();
  counters.remote = state_->store->cache().remote_counters();
  counters.compile_workers = state_->store->worker_counters();
  return counters;
}

int Engine::device_count() const { return state_->backend->device_count(); }
Device& Engine::device(int ordinal) const { return state_->backend->device(ordinal); }
Backend& Engine::backend() const { return *state_->backend; }
KernelStore& Engine::store() const { return *state_->store; }
const TunedTable& Engine::tuned_rows() const { return *state_->rows; }

}  // namespace kernelwright
