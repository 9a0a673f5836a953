/// The engine's inside: how a slot is found, made, failed and promoted. engine.cpp is the façade over it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "kernelwright/runtime/attention/kind.h"
#include "kernelwright/runtime/engine/dispatch_table.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/runtime/engine/loader.h"
#include "kernelwright/runtime/engine/worker_pool.h"
#include "kernelwright/runtime/gemm/kind.h"
#include "kernelwright/runtime/kv_write/kind.h"
#include "kernelwright/runtime/moe/launch.h"
#include "kernelwright/runtime/moe_combine/kind.h"
#include "kernelwright/runtime/quantize/kind.h"
#include "kernelwright/runtime/route/kind.h"
#include "kernelwright/runtime/row_op/kind.h"
#include "kernelwright/runtime/slot/kernel_slot.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright {

struct Engine::State {
  explicit State(EngineOptions given);

  /// The slots of one kind of problem; they never move or go.
  template <class Kind>
  struct Slots {
    DispatchTable<detail::KernelSlot<Kind>> table;
    std::vector<std::unique_ptr<detail::KernelSlot<Kind>>> list;  // guarded by shared.mutex
  };
  template <class Kind>
  Slots<Kind>& slots() {
    return std::get<Slots<Kind>>(all_slots);
  }
  /// Calls `visit` with each slot of every kind; under shared.mutex.
  template <class Visit>
  void each_slot(Visit&& visit) {
    const auto each = [&](auto& of_kind) {
      for (const auto& slot : of_kind.list) visit(*slot);
    };
    std::apply([&](auto&... of_kind) { (each(of_kind), ...); }, all_slots);
  }

  // Engine's functions of the same names; `for_launch`: a launch found no kernel.
  template <class Kind>
  detail::KernelSlot<Kind>* prepare(const typename Kind::Problem& problem, const typename Kind::Schedule& schedule,
                                    const PrepareOptions& options, bool for_launch = false);
  template <class Kind>
  detail::KernelSlot<Kind>* find(const typename Kind::Problem& problem, int device) noexcept;
  /// The kernel that a call by problem launches on `stream`: find(), else prepare() with the engine's on_miss.
  template <class Kind>
  detail::KernelSlot<Kind>* for_call(const typename Kind::Problem& problem, Stream stream, int device);

  /// prepare(), on a stack that is large enough.
  template <class Kind>
  detail::KernelSlot<Kind>* prepare_here(const typename Kind::Problem& problem, const typename Kind::Schedule& schedule,
                                         const PrepareOptions& options, bool for_launch);
  /// Engine::stop().
  void stop();

  /// The slot of (problem, schedule, device). `mine` tells the caller to make the slot's kernels, for the first time or
  /// again.
  template <class Kind>
  detail::KernelSlot<Kind>& claim(const typename Kind::Problem& problem, const typename Kind::Schedule& schedule,
                                  const PrepareOptions& prepare, bool for_launch, bool& mine);
  template <class Kind>
  detail::KernelSlot<Kind>* find_locked(const typename Kind::Problem& problem, const typename Kind::Schedule* schedule,
                                        int device);

  /// Makes the wanted kernel, or fails the slot. Never throws.
  template <class Kind>
  void make_tuned(detail::KernelSlot<Kind>& slot, bool may_compile) noexcept;
  /// Makes the fallback. If the wanted kernel is cached, makes that instead, and returns true.
  template <class Kind>
  bool make_fallback(detail::KernelSlot<Kind>& slot, bool may_compile) noexcept;
  template <class Kind>
  void make_in_background(detail::KernelSlot<Kind>& slot, bool may_compile);
  /// Serves the fallback if it is loaded already.
  template <class Kind>
  void adopt_loaded_fallback(detail::KernelSlot<Kind>& slot);

  template <class Kind>
  std::unique_ptr<detail::KernelSlot<Kind>> new_slot(const typename Kind::Problem& problem,
                                                     const typename Kind::Schedule& schedule,
                                                     const PrepareOptions& prepare);
  /// Throws NotReadyError that names the kernel. Loads nothing.
  template <class Kind>
  [[noreturn]] void refuse_in_capture(const typename Kind::Problem& problem, const typename Kind::Schedule& schedule,
                                      const PrepareOptions& prepare);
  /// Null if one of its kernels is not cached and may not be compiled.
  template <class Kind>
  std::unique_ptr<typename Kind::Loaded> load(detail::KernelSlot<Kind>& slot, const typename Kind::Plan& plan,
                                              bool may_compile);
  /// Notes where the slot first found each binary of `plan`; `sources` has the first ones.
  template <class Kind>
  void note_sources(detail::KernelSlot<Kind>& slot, const typename Kind::Plan& plan,
                    const std::vector<CacheSource>& sources);
  using Sources = std::vector<std::shared_ptr<const KernelSource>>;
  /// The kernels of `plan`, one of the slot's two plans. Their sources are made if they are missing.
  template <class Kind>
  const Sources& sources_of(detail::KernelSlot<Kind>& slot, const typename Kind::Plan& plan);
  /// Compiles into the store. The store keeps an error for the thread that needs the kernel.
  void warm(const KernelSource& kernel) noexcept;
  template <class Kind>
  void serve_fallback(detail::KernelSlot<Kind>& slot, std::unique_ptr<typename Kind::Loaded> kernel);
  template <class Kind>
  void finish(detail::KernelSlot<Kind>& slot, std::unique_ptr<typename Kind::Loaded> kernel);
  template <class Kind>
  void fail(detail::KernelSlot<Kind>& slot, std::exception_ptr failure, bool sealed_miss) noexcept;
  template <class Kind>
  void fail_sealed(detail::KernelSlot<Kind>& slot) noexcept;
  /// A sealed engine remembers so many of the kernels that it lacks. A further kernel gets no slot: this throws
  /// NotReadyError unless the kernel or its fallback is cached.
  template <class Kind>
  void refuse_unremembered(detail::KernelSlot<Kind>& fresh);
  template <class Kind>
  void tell(EventKind kind, const detail::KernelSlot<Kind>& slot, std::string detail, double milliseconds = 0) const;

  const EngineOptions options;
  std::string why_not_cuda;  // why "auto" chose the emulator; ""
  const std::shared_ptr<Backend> backend;
  const std::shared_ptr<KernelStore> store;
  const std::shared_ptr<const TunedTable> rows;
  const bool wants_lines;  // reports name lines of the templates: a kernel that has a report is compiled again for them
  KernelLoader loader;
  detail::SlotShared shared;
  std::tuple<Slots<detail::AttentionKind>, Slots<detail::GemmKind>, Slots<detail::QuantizeKind>,
             Slots<detail::KvWriteKind>, Slots<detail::RowOpKind>, Slots<detail::RouteKind>,
             Slots<detail::MoeCombineKind>>
      all_slots;
  // Empty: launches are not checked.
  detail::KernelSlot<detail::AttentionKind>::CheckData check_attention_data;
  detail::KernelSlot<detail::KvWriteKind>::CheckData check_kv_write_data;
  detail::KernelSlot<detail::GemmKind>::CheckData check_gemm_data;  // of those that write a cache
  std::size_t remembered_misses = 0, calls_of_prepare = 0;          // guarded by shared.mutex
  std::atomic<bool> stopped{false};                                 // written with shared.mutex held
  std::atomic<bool> sealed{false};
  std::atomic<std::uint64_t> sealed_misses{0}, promotions{0};
  std::mutex layers_mutex;
  std::vector<std::unique_ptr<const detail::MoeLayer>> layers;  // guarded by layers_mutex; they never move or go
  LatencyHistogram prepares{kFirstStepNs};                      // from claim() to finish()
  WorkerPool pool;                                              // last: its jobs use all of the above
};

}  // namespace kernelwright
