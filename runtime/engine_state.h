/// The engine's inside: how a slot is found, made, failed and promoted. engine.cpp is the façade over it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kernelwright/runtime/dispatch_table.h"
#include "kernelwright/runtime/engine.h"
#include "kernelwright/runtime/kernel_loader.h"
#include "kernelwright/runtime/kernel_slot.h"
#include "kernelwright/runtime/worker_pool.h"

namespace kernelwright {

struct Engine::State {
  explicit State(EngineOptions given);

  /// The slot of (problem, schedule, device); `mine` tells the caller to make it, because it is new or is tried again.
  detail::KernelSlot& claim(const AttentionProblem& problem, const AttentionSchedule& schedule,
                            const PrepareOptions& prepare, bool& mine);
  detail::KernelSlot* find_locked(const AttentionProblem& problem, const AttentionSchedule* schedule, int device);

  /// Makes the kernel that was asked for, or fails the slot. Never throws.
  void make_tuned(detail::KernelSlot& slot, bool may_compile) noexcept;
  /// Makes the fallback; unless the kernel that was asked for is cached, which then is made instead (returns true).
  bool make_fallback(detail::KernelSlot& slot, bool may_compile) noexcept;
  void make_in_background(detail::KernelSlot& slot, bool may_compile);
  /// Serves the fallback if it is loaded already.
  void adopt_loaded_fallback(detail::KernelSlot& slot);

  std::unique_ptr<detail::KernelSlot> new_slot(const AttentionProblem& problem, const AttentionSchedule& schedule,
                                               const PrepareOptions& prepare);
  /// Throws NotReadyError that names the kernel. Loads nothing.
  [[noreturn]] void refuse_in_capture(const AttentionProblem& problem, const AttentionSchedule& schedule,
                                      const PrepareOptions& prepare);
  /// Null if it is not cached and may not be compiled.
  std::unique_ptr<detail::LoadedAttention> load(const detail::KernelSlot& slot, const AttentionPlan& plan,
                                                bool may_compile);
  std::unique_ptr<detail::LoadedAttention> load_binaries(const detail::KernelSlot& slot, const AttentionPlan& plan,
                                                         std::shared_ptr<const Binary> main,
                                                         std::shared_ptr<const Binary> combine);
  void serve_fallback(detail::KernelSlot& slot, std::unique_ptr<detail::LoadedAttention> kernel);
  void finish(detail::KernelSlot& slot, std::unique_ptr<detail::LoadedAttention> kernel);
  void fail(detail::KernelSlot& slot, std::exception_ptr failure, bool sealed_miss) noexcept;
  void fail_sealed(detail::KernelSlot& slot) noexcept;
  void tell(EventKind kind, const detail::KernelSlot& slot, std::string detail, double milliseconds = 0) const;

  const EngineOptions options;
  std::string why_not_cuda;  // what made "auto" choose the emulator; ""
  const std::shared_ptr<Backend> backend;
  const std::shared_ptr<KernelStore> store;
  const std::shared_ptr<const TunedTable> rows;
  const bool wants_lines;  // kernels are compiled a second time, for the lines that reports name
  KernelLoader loader;
  DispatchTable table;
  detail::SlotShared shared;
  std::vector<std::unique_ptr<detail::KernelSlot>> slots;  // guarded by shared.mutex; they never move or go
  std::atomic<bool> sealed{false};
  std::atomic<std::uint64_t> sealed_misses{0}, promotions{0};
  WorkerPool pool;  // last: its jobs use all of the above
};

}  // namespace kernelwright
