/// How a slot is found or claimed, and how a caller waits for it. engine_make.cpp makes its kernels.
#include "kernelwright/runtime/engine/engine_state.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/process/interrupt.h"
#include "kernelwright/runtime/process/own_thread.h"

namespace kernelwright {

using detail::AttentionKind;
using detail::GemmKind;
using detail::KernelSlot;
using detail::KvWriteKind;
using detail::MoeCombineKind;
using detail::QuantizeKind;
using detail::RouteKind;
using detail::RowOpKind;
using detail::specs_of;
using Clock = std::chrono::steady_clock;

namespace {

/// The stack that planning, and reading a cache, need of a caller. With a smaller stack, the work moves to one of our
/// threads. Compilers and the emulator bring stacks of their own.
constexpr std::size_t kStackBytes = std::size_t{512} << 10;
constexpr std::size_t kMostRememberedMisses = 1024;
constexpr const char* kStoppedTooEarly = ": the engine was stopped before it was ready";  // behind a kernel's name

/// The architecture to plan for: the schedule's if the device runs its binaries, else the device's own.
template <class Schedule>
Arch arch_for(const Schedule& schedule, const DeviceInfo& device) {
  const int major = device.compute_major, minor = device.compute_minor;
  if (schedule.arch.is_auto()) {
    if (device.arch) return *device.arch;
    throw MissingError(
        fmt::format("{} (compute capability {}.{}) is no device that kernels are compiled for; those are {}",
                    device.name, major, minor, all_words<Arch>()));
  }
  const ArchInfo& row = arch_info(schedule.arch.value());
  const bool exact = row.name.ends_with('a');  // architecture-specific binaries run nowhere else
  if (row.major == major && (exact ? row.minor == minor : row.minor <= minor)) return row.arch;
  throw ConfigError("/schedule/arch",
                    fmt::format("{} binaries do not run on {} (compute capability {}.{}); write {}", row.name,
                                device.name, major, minor, device.arch ? to_string(*device.arch) : "\"auto\""));
}

template <class Kind>
typename Kind::Plan plan_of(const typename Kind::Problem& problem, const typename Kind::Schedule& schedule,
                            const DeviceInfo& device, const TunedTable& rows) {
  return Kind::plan(problem, schedule, machine_of(device.name, arch_for(schedule, device)), device.num_sms, rows);
}

/// The fallback's plan; nullopt for a problem that has no families, or that the portable family does not compute.
template <class Kind>
std::optional<typename Kind::Plan> portable_plan(const typename Kind::Problem& problem, const DeviceInfo& device,
                                                 const TunedTable& rows) {
  if constexpr (requires { typename Kind::Config; }) {
    typename Kind::Schedule schedule;
    schedule.family = Family::kPortable;
    const Arch arch = arch_for(schedule, device);
    if (!validate(typename Kind::Config{"", problem, schedule, {}}, arch).empty()) return std::nullopt;
    return plan_of<Kind>(problem, schedule, device, rows);
  } else {
    return std::nullopt;
  }
}

}  // namespace

template <class Kind>
std::unique_ptr<KernelSlot<Kind>> Engine::State::new_slot(const typename Kind::Problem& problem,
                                                          const typename Kind::Schedule& schedule,
                                                          const PrepareOptions& prepare) {
  auto slot = std::make_unique<KernelSlot<Kind>>();
  slot->device = &backend->device(prepare.device);
  slot->problem = problem;
  slot->schedule = schedule;
  slot->plan = plan_of<Kind>(problem, schedule, slot->device->info(), *rows);
  slot->on_miss = prepare.on_miss;
  slot->shared = &shared;
  if constexpr (std::is_same_v<Kind, AttentionKind>)
    if (check_attention_data) slot->check_data = &check_attention_data;
  if constexpr (std::is_same_v<Kind, KvWriteKind>)
    if (check_kv_write_data) slot->check_data = &check_kv_write_data;
  if constexpr (std::is_same_v<Kind, GemmKind>)
    if (check_gemm_data && problem.kv_write) slot->check_data = &check_gemm_data;
  const std::vector<Spec> specs = specs_of(slot->plan);
  if (prepare.on_miss == OnMiss::kFallback) {
    slot->fallback_plan = portable_plan<Kind>(problem, slot->device->info(), *rows);
    if (slot->fallback_plan && specs_of(*slot->fallback_plan) == specs) slot->fallback_plan.reset();
  }
  for (const auto& source : sources_of(*slot, slot->plan)) slot->keys.push_back(source->key.digest().hex());
  if (slot->fallback_plan)
    for (const auto& source : sources_of(*slot, *slot->fallback_plan))
      slot->fallback_keys.push_back(source->key.digest().hex());
  slot->kernel = kernel_name(specs[0]);
  slot->name = fmt::format("{} (key {})", slot->kernel, slot->keys[0]);
  return slot;
}

template <class Kind>
KernelSlot<Kind>* Engine::State::find_locked(const typename Kind::Problem& problem,
                                             const typename Kind::Schedule* schedule, int device) {
  for (const auto& slot : slots<Kind>().list)
    if (slot->device->ordinal() == device && (!schedule || slot->schedule == *schedule) && slot->problem == problem)
      return slot.get();
  return nullptr;
}

template <class Kind>
KernelSlot<Kind>& Engine::State::claim(const typename Kind::Problem& problem, const typename Kind::Schedule& schedule,
                                       const PrepareOptions& prepare, bool for_launch, bool& mine) {
  std::unique_lock lock(shared.mutex);
  KernelSlot<Kind>* slot = find_locked<Kind>(problem, &schedule, prepare.device);
  const bool may_compile = prepare.allow_when_sealed || !sealed;
  if (!slot) {
    const bool forgets = !may_compile && remembered_misses >= kMostRememberedMisses;
    lock.unlock();
    std::unique_ptr<KernelSlot<Kind>> fresh = new_slot<Kind>(problem, schedule, prepare);
    fresh->late = !may_compile;
    fresh->awaited = may_compile || (prepare.background && !for_launch);
    if (forgets) refuse_unremembered(*fresh);
    lock.lock();
    slot = find_locked<Kind>(problem, &schedule, prepare.device);  // another thread may have been faster
    if (!slot) {
      for (const auto& other : slots<Kind>().list)
        fresh->twins += other->schedule == schedule && other->problem == problem;
      slot = slots<Kind>().list.emplace_back(std::move(fresh)).get();
      slot->fallback_pending = slot->fallback_plan.has_value();
      slot->begun = Clock::now();
      const DispatchKey key = DispatchKey::of(problem, prepare.device);
      if (key.valid()) slots<Kind>().table.insert(key, slot);
      mine = true;
      return *slot;
    }
  }
  const auto retry_after = std::chrono::milliseconds(options.cache.failure_ttl_ms);
  mine = slot->state == KernelState::kFailed &&
         ((slot->sealed_miss && may_compile) || Clock::now() - slot->failed_at >= retry_after);
  if (mine) {
    slot->state = KernelState::kPending;
    slot->begun = Clock::now();
    slot->fallback_pending = slot->fallback_plan && !slot->fallback;
    slot->sealed_miss = false;
    if (may_compile) slot->late = false, slot->awaited = true;
    slot->error.clear();
  }
  return *slot;
}

template <class Kind>
void Engine::State::refuse_in_capture(const typename Kind::Problem& problem, const typename Kind::Schedule& schedule,
                                      const PrepareOptions& prepare) {
  shared.capture_misses.fetch_add(1, std::memory_order_relaxed);
  throw NotReadyError(
      fmt::format("{} was not prepared and its stream is capturing, so it can be neither compiled nor loaded; call "
                  "prepare() before "
                  "the capture begins",
                  new_slot<Kind>(problem, schedule, prepare)->name));
}

template <class Kind>
KernelSlot<Kind>* Engine::State::prepare(const typename Kind::Problem& problem, const typename Kind::Schedule& schedule,
                                         const PrepareOptions& options_of, bool for_launch) {
  shared.refuse_after_fork("prepare()");
  hold_exit_of_this_thread();
  {
    std::lock_guard lock(shared.mutex);
    if (stopped) {
      KernelSlot<Kind>* const known = find_locked<Kind>(problem, &schedule, options_of.device);
      if (known && known->state == KernelState::kReady) return known;
      throw NotReadyError("Engine: it was stopped, and prepares nothing any more");
    }
    ++calls_of_prepare;
  }
  struct Counted {
    State& state;
    ~Counted() {
      std::lock_guard lock(state.shared.mutex);
      if (--state.calls_of_prepare == 0 && state.stopped) state.shared.changed.notify_all();
    }
  } const counted{*this};
  return with_stack(kStackBytes, kStackBytes, [&] {
    const InterruptScope scope(&stopped);
    return prepare_here<Kind>(problem, schedule, options_of, for_launch);
  });
}

template <class Kind>
KernelSlot<Kind>* Engine::State::prepare_here(const typename Kind::Problem& problem,
                                              const typename Kind::Schedule& schedule, const PrepareOptions& options_of,
                                              bool for_launch) {
  bool mine = false;
  KernelSlot<Kind>& slot = claim<Kind>(problem, schedule, options_of, for_launch, mine);
  const bool may_compile = options_of.allow_when_sealed || !sealed;
  if (mine && options_of.background) {
    try {
      make_in_background(slot, may_compile);
    } catch (...) {
      fail(slot, std::current_exception(), false);
      throw;
    }
  } else if (mine) {
    make_tuned(slot, may_compile);
  }
  if (options_of.background) return &slot;

  std::unique_lock lock(shared.mutex);
  // stop() drops jobs that have not begun, and waits for this call before it fails their kernels.
  shared.changed.wait(lock, [&] { return slot.state != KernelState::kPending || stopped; });
  if (slot.state == KernelState::kPending) throw InterruptedError(slot.name + kStoppedTooEarly);
  const bool fallback_will_do = slot.sealed_miss && slot.serving.load(std::memory_order_relaxed);
  if (slot.state == KernelState::kFailed && !fallback_will_do) std::rethrow_exception(slot.failure);
  return &slot;
}

void Engine::State::stop() {
  shared.refuse_after_fork("stop()");
  {
    std::lock_guard lock(shared.mutex);
    stopped = true;
  }
  shared.changed.notify_all();
  pool.stop();
  std::unique_lock lock(shared.mutex);
  shared.changed.wait(lock, [&] { return calls_of_prepare == 0; });
  each_slot([&](auto& slot) {  // whose jobs were dropped
    if (slot.state != KernelState::kPending) return;
    slot.error = slot.name + kStoppedTooEarly;
    slot.failure = std::make_exception_ptr(InterruptedError(slot.error));
    slot.failed_at = Clock::now();
    slot.fallback_pending = false;
    slot.state = KernelState::kFailed;
  });
  lock.unlock();
  shared.changed.notify_all();
}

template <class Kind>
KernelSlot<Kind>* Engine::State::find(const typename Kind::Problem& problem, int device) noexcept {
  const DispatchKey key = DispatchKey::of(problem, device);
  if (key.valid()) [[likely]]
    return slots<Kind>().table.find(key);
  std::lock_guard lock(shared.mutex);
  return find_locked<Kind>(problem, nullptr, device);
}

template <class Kind>
KernelSlot<Kind>* Engine::State::for_call(const typename Kind::Problem& problem, Stream stream, int device) {
  KernelSlot<Kind>* slot = find<Kind>(problem, device);
  if (slot && (slot->serving || slot->state != KernelState::kFailed)) [[likely]]
    return slot;
  const typename Kind::Schedule schedule = slot ? slot->schedule : typename Kind::Schedule{};
  const PrepareOptions how{
      .device = device, .on_miss = options.on_miss, .background = options.on_miss != OnMiss::kBlock};
  if (backend->device(device).capture_state(stream) != CaptureState::kNone)
    refuse_in_capture<Kind>(problem, schedule, how);
  return prepare<Kind>(problem, schedule, how, /*for_launch=*/true);
}

template KernelSlot<AttentionKind>* Engine::State::prepare(const AttentionProblem&, const AttentionSchedule&,
                                                           const PrepareOptions&, bool);
template KernelSlot<GemmKind>* Engine::State::prepare(const GemmProblem&, const GemmSchedule&, const PrepareOptions&,
                                                      bool);
template KernelSlot<QuantizeKind>* Engine::State::prepare(const QuantizeProblem&, const QuantizeSchedule&,
                                                          const PrepareOptions&, bool);
template KernelSlot<KvWriteKind>* Engine::State::prepare(const KvWriteProblem&, const KvWriteSchedule&,
                                                         const PrepareOptions&, bool);
template KernelSlot<RowOpKind>* Engine::State::prepare(const RowOpProblem&, const RowOpSchedule&, const PrepareOptions&,
                                                       bool);
template KernelSlot<RouteKind>* Engine::State::prepare(const RouteProblem&, const RouteSchedule&, const PrepareOptions&,
                                                       bool);
template KernelSlot<MoeCombineKind>* Engine::State::prepare(const MoeCombineProblem&, const MoeCombineSchedule&,
                                                            const PrepareOptions&, bool);
template KernelSlot<AttentionKind>* Engine::State::find(const AttentionProblem&, int) noexcept;
template KernelSlot<GemmKind>* Engine::State::find(const GemmProblem&, int) noexcept;
template KernelSlot<QuantizeKind>* Engine::State::find(const QuantizeProblem&, int) noexcept;
template KernelSlot<KvWriteKind>* Engine::State::find(const KvWriteProblem&, int) noexcept;
template KernelSlot<RowOpKind>* Engine::State::find(const RowOpProblem&, int) noexcept;
template KernelSlot<RouteKind>* Engine::State::find(const RouteProblem&, int) noexcept;
template KernelSlot<MoeCombineKind>* Engine::State::find(const MoeCombineProblem&, int) noexcept;
template KernelSlot<AttentionKind>* Engine::State::for_call(const AttentionProblem&, Stream, int);
template KernelSlot<GemmKind>* Engine::State::for_call(const GemmProblem&, Stream, int);
template KernelSlot<QuantizeKind>* Engine::State::for_call(const QuantizeProblem&, Stream, int);
template KernelSlot<KvWriteKind>* Engine::State::for_call(const KvWriteProblem&, Stream, int);
template KernelSlot<RowOpKind>* Engine::State::for_call(const RowOpProblem&, Stream, int);
template KernelSlot<RouteKind>* Engine::State::for_call(const RouteProblem&, Stream, int);
template KernelSlot<MoeCombineKind>* Engine::State::for_call(const MoeCombineProblem&, Stream, int);

}  // namespace kernelwright
