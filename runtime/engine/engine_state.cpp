#include "kernelwright/runtime/engine/engine_state.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/attention/data.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"
#include "kernelwright/runtime/engine/notes.h"
#include "kernelwright/runtime/process/interrupt.h"
#include "kernelwright/runtime/process/own_thread.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright {

using detail::AttentionKind;
using detail::describe;
using detail::GemmKind;
using detail::KernelSlot;
using detail::QuantizeKind;
using detail::specs_of;
using Clock = std::chrono::steady_clock;

namespace {

/// What planning and reading a cache need of a caller's stack; a smaller one is left for a thread of ours. Compilers
/// and the emulator see to their own.
constexpr std::size_t kStackBytes = std::size_t{512} << 10;
constexpr std::size_t kMostRememberedMisses = 1024;

bool is_interruption(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const InterruptedError&) {
    return true;
  } catch (...) {
    return false;
  }
}

NotReadyError not_cached(const std::string& name) {
  return NotReadyError(fmt::format(
      "{} is not in the cache and the engine is sealed; prepare it before seal(), or set allow_when_sealed", name));
}

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

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
  return Kind::plan(problem, schedule, arch_for(schedule, device), device.num_sms, rows);
}

/// The fallback's plan; nullopt for a problem that the portable family does not compute, or that has no families.
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

/// `why_not_cuda` is set if "auto" had to pass the GPU by.
std::shared_ptr<Backend> open_backend(const EngineOptions& options, std::string& why_not_cuda) {
  if (options.custom_backend) return options.custom_backend;
  if (options.backend == "cuda") return make_cuda_backend();
  if (options.backend == "emulator") return make_emulator_backend(options.emulator);
  if (options.backend == "auto") {
    try {
      return make_cuda_backend();
    } catch (const MissingError& error) {
      why_not_cuda = error.what();
      return make_emulator_backend(options.emulator);
    }
  }
  throw ConfigError("/backend", fmt::format("\"{}\" is not a backend; cuda, emulator and auto are", options.backend));
}

bool wants_ptx(Backend& backend) {
  for (int i = 0; i < backend.device_count(); ++i)
    if (backend.device(i).info().wants == ImageKind::kPtx) return true;
  return false;
}

EngineOptions with_sink_level(EngineOptions options) {
  options.sink = at_least(options.sink_level, std::move(options.sink));
  return options;
}

std::shared_ptr<KernelStore> open_store(const EngineOptions& options, Backend& backend) {
  if (options.custom_store) return options.custom_store;
  CacheOptions cache = options.cache;
  if (!cache.sink) cache.sink = options.sink;
  if (!wants_ptx(backend)) cache.ptx = false;  // reading the PTX as well doubles a hit's time
  return std::make_shared<KernelStore>(std::move(cache), options.nvrtc_path);
}

}  // namespace

Engine::State::State(EngineOptions given)
    : options(with_sink_level(std::move(given))),
      backend(open_backend(options, why_not_cuda)),
      store(open_store(options, *backend)),
      rows(options.custom_rows
               ? options.custom_rows
               : std::make_shared<const TunedTable>(TunedTable::from_environment(options.tuned_dir, require_usable))),
      wants_lines(options.emulator.hazards),
      pool(options.compile_threads) {
  hold_exit_of_this_thread();
  shared.launch_sampling = options.launch_sampling;
  if (!why_not_cuda.empty() && options.sink)
    options.sink({.kind = EventKind::kDevice,
                  .key = "",
                  .name = backend->device(0).info().name,
                  .detail = "kernels run on the emulator: " + why_not_cuda});
  auto* const emulated = dynamic_cast<EmulatorBackend*>(backend.get());
  if (options.check_data || (emulated && options.emulator.hazards))
    check_attention_data = [this, emulated](const detail::LoadedAttention& kernel, const AttentionTensors& tensors,
                                            Stream stream) {
      for (const std::string& what : detail::find_bad_data(kernel, tensors, stream)) {
        const std::string name(kernel_name(kernel.spec));
        if (emulated) emulated->add_report({name, {.kind = emulator::HazardKind::kData, .what = what}});
        if (options.sink) options.sink({.kind = EventKind::kBadData, .key = "", .name = name, .detail = what});
      }
    };
  if (options.sink)
    for (const SkippedRow& row : rows->skipped())
      options.sink({.kind = EventKind::kTunedRow, .key = "", .name = row.name, .detail = row.reason});
}

template <class Kind>
void Engine::State::tell(EventKind kind, const KernelSlot<Kind>& slot, std::string detail, double milliseconds) const {
  if (options.sink)
    options.sink({.kind = kind,
                  .key = slot.keys[0],
                  .name = slot.kernel,
                  .detail = std::move(detail),
                  .milliseconds = milliseconds});
}

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
const Engine::State::Sources& Engine::State::sources_of(KernelSlot<Kind>& slot, const typename Kind::Plan& plan) {
  Sources& sources = &plan == &slot.plan ? slot.kernel_sources : slot.fallback_sources;
  if (sources.empty())
    for (const Spec& spec : specs_of(plan))
      sources.push_back(std::make_shared<const KernelSource>(store->source_of(spec)));
  return sources;
}

template <class Kind>
std::unique_ptr<typename Kind::Loaded> Engine::State::load(KernelSlot<Kind>& slot, const typename Kind::Plan& plan,
                                                           bool may_compile) {
  const std::vector<Spec> specs = specs_of(plan);
  const Sources made = sources_of(slot, plan);
  std::vector<CacheSource> sources(specs.size(), CacheSource::kNone);
  // Several kernels compile side by side. The store compiles each once: this thread takes what no other has begun.
  if (may_compile)
    for (std::size_t i = 1; i < specs.size(); ++i)
      if (!store->find(*made[i], &sources[i])) {
        sources[i] = CacheSource::kCompiled;
        pool.post([this, kernel = made[i]] { warm(*kernel); }, /*urgent=*/true);
      }
  std::vector<std::shared_ptr<const Binary>> binaries;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    CacheSource source = CacheSource::kNone;
    binaries.push_back(may_compile ? store->compile(*made[i], &source) : store->find(*made[i], &source));
    if (sources[i] == CacheSource::kNone) sources[i] = source;
    if (!binaries.back()) break;
  }
  note_sources(slot, plan, sources);
  if (!binaries.back()) return nullptr;
  auto loaded = std::make_unique<typename Kind::Loaded>(describe(slot.problem, plan, slot.device->info()));
  loaded->device = slot.device;
  loaded->watched = options.launch_sampling > 0;
  std::vector<const LoadedKernel*> kernels;
  for (std::size_t i = 0; i < specs.size(); ++i)
    kernels.push_back(loader.load(*slot.device, *binaries[i], shared_bytes(specs[i]), [&]() -> KernelLoader::Explained {
      return {notes_of(specs[i]), wants_lines ? store->ptx_with_lines(*made[i], *binaries[i]) : ""};
    }));
  attach(*loaded, std::move(kernels), std::move(binaries));
  return loaded;
}

template <class Kind>
void Engine::State::note_sources(KernelSlot<Kind>& slot, const typename Kind::Plan& plan,
                                 const std::vector<CacheSource>& sources) {
  const std::vector<std::string>& keys = &plan == &slot.plan ? slot.keys : slot.fallback_keys;
  std::lock_guard lock(shared.mutex);
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (sources[i] != CacheSource::kNone) slot.sources.try_emplace(keys[i], sources[i]);
}

void Engine::State::warm(const KernelSource& kernel) noexcept {
  try {
    store->compile(kernel);
  } catch (...) {  // whoever waits for the kernel meets it again
  }
}

// Events go out before the state that they speak of is published: who has seen the state finds the event in the sink.
template <class Kind>
void Engine::State::serve_fallback(KernelSlot<Kind>& slot, std::unique_ptr<typename Kind::Loaded> kernel) {
  kernel->fallback = kernel->watched = true;
  tell(EventKind::kFallback, slot, fmt::format("{} serves meanwhile", kernel_name(specs_of(*slot.fallback_plan)[0])));
  {
    std::lock_guard lock(shared.mutex);
    slot.fallback_pending = false;
    slot.fallback = std::move(kernel);
    slot.serving.store(slot.fallback.get(), std::memory_order_release);
  }
  shared.changed.notify_all();
}

template <class Kind>
void Engine::State::finish(KernelSlot<Kind>& slot, std::unique_ptr<typename Kind::Loaded> kernel) {
  {
    std::lock_guard lock(shared.mutex);
    slot.tuned = std::move(kernel);
    slot.fallback_pending = false;
    slot.kernel_sources.clear();
    slot.fallback_sources.clear();
    slot.state = KernelState::kReady;
    prepares.add(Clock::now() - slot.begun);
    if (!slot.serving.load(std::memory_order_relaxed)) slot.serving.store(slot.tuned.get(), std::memory_order_release);
  }
  shared.changed.notify_all();
}

template <class Kind>
void Engine::State::fail(KernelSlot<Kind>& slot, std::exception_ptr failure, bool sealed_miss) noexcept {
  const std::string error = text_of(failure);
  bool report = !is_interruption(failure);  // nobody waits for what ends with the process
  if (sealed_miss) {
    std::lock_guard lock(shared.mutex);
    report = !std::exchange(slot.sealed_miss_reported, true);
    if (report) ++remembered_misses;
  }
  if (report) tell(sealed_miss ? EventKind::kSealedMiss : EventKind::kFailure, slot, error);
  {
    std::lock_guard lock(shared.mutex);
    slot.failure = std::move(failure);
    slot.kernel_sources.clear();  // a later try makes them anew
    slot.fallback_sources.clear();
    slot.error = error;
    slot.failed_at = Clock::now();
    slot.sealed_miss = sealed_miss;
    slot.fallback_pending = false;  // it was tried before
    slot.state = KernelState::kFailed;
  }
  shared.changed.notify_all();
}

template <class Kind>
void Engine::State::fail_sealed(KernelSlot<Kind>& slot) noexcept {
  sealed_misses.fetch_add(1, std::memory_order_relaxed);
  fail(slot, std::make_exception_ptr(not_cached(slot.name)), true);
}

template <class Kind>
void Engine::State::refuse_unremembered(KernelSlot<Kind>& fresh) {
  const auto is_cached = [&](const typename Kind::Plan& plan) {
    for (const auto& source : sources_of(fresh, plan))
      if (!store->find(*source)) return false;
    return true;
  };
  if (is_cached(fresh.plan) || (fresh.fallback_plan && is_cached(*fresh.fallback_plan))) return;
  sealed_misses.fetch_add(1, std::memory_order_relaxed);
  throw not_cached(fresh.name);
}

template <class Kind>
void Engine::State::make_tuned(KernelSlot<Kind>& slot, bool may_compile) noexcept {
  try {
    refuse_if_interrupted(slot.name);
    if (auto kernel = load(slot, slot.plan, may_compile)) return finish(slot, std::move(kernel));
    if (slot.fallback_plan && !slot.serving && make_fallback(slot, false)) return;
    fail_sealed(slot);
  } catch (...) {
    fail(slot, std::current_exception(), false);
  }
}

template <class Kind>
bool Engine::State::make_fallback(KernelSlot<Kind>& slot, bool may_compile) noexcept {
  try {
    refuse_if_interrupted(slot.name);
    if (auto kernel = load(slot, slot.plan, false)) {
      finish(slot, std::move(kernel));
      return true;
    }
    if (auto kernel = load(slot, *slot.fallback_plan, may_compile)) {
      serve_fallback(slot, std::move(kernel));
      return false;
    }
  } catch (const InterruptedError&) {  // so will be the kernel that was asked for
  } catch (const std::exception& error) {
    tell(EventKind::kFailure, slot, fmt::format("the fallback: {}", error.what()));
  } catch (...) {
    tell(EventKind::kFailure, slot, "the fallback: an exception that is no std::exception");
  }
  {
    std::lock_guard lock(shared.mutex);
    slot.fallback_pending = false;
  }
  shared.changed.notify_all();
  return false;
}

template <class Kind>
void Engine::State::adopt_loaded_fallback(KernelSlot<Kind>& slot) {
  const std::vector<Spec> wanted = specs_of(*slot.fallback_plan);
  std::unique_ptr<typename Kind::Loaded> kernel;
  {
    std::lock_guard lock(shared.mutex);
    for (const auto& other : slots<Kind>().list) {
      const auto twin = [&](const typename Kind::Plan& plan, const typename Kind::Loaded* loaded) {
        return loaded && other->device == slot.device && specs_of(plan) == wanted ? loaded : nullptr;
      };
      const typename Kind::Loaded* loaded = twin(other->plan, other->tuned.get());
      if (!loaded && other->fallback_plan) loaded = twin(*other->fallback_plan, other->fallback.get());
      if (!loaded) continue;
      kernel =
          std::make_unique<typename Kind::Loaded>(describe(slot.problem, *slot.fallback_plan, slot.device->info()));
      kernel->device = slot.device;
      attach(*kernel, *loaded);
      break;
    }
  }
  if (kernel) serve_fallback(slot, std::move(kernel));
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
void Engine::State::make_in_background(KernelSlot<Kind>& slot, bool may_compile) {
  if (slot.fallback_pending) adopt_loaded_fallback(slot);
  if (!slot.fallback_pending) return pool.post([this, &slot, may_compile] { make_tuned(slot, may_compile); });
  const auto job = [this, &slot, may_compile] {
    if (make_fallback(slot, may_compile)) return;
    try {
      pool.post([this, &slot, may_compile] { make_tuned(slot, may_compile); });
    } catch (...) {  // the engine was stopped meanwhile
      fail(slot, std::current_exception(), false);
    }
  };
  pool.post(job, /*urgent=*/true);
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
  shared.changed.wait(lock, [&] { return slot.state != KernelState::kPending; });
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
  pool.stop();
  std::unique_lock lock(shared.mutex);
  shared.changed.wait(lock, [&] { return calls_of_prepare == 0; });
  const std::string error = "the engine was stopped before it was ready";
  each_slot([&](auto& slot) {  // whose jobs were dropped
    if (slot.state != KernelState::kPending) return;
    slot.error = slot.name + ": " + error;
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
template KernelSlot<AttentionKind>* Engine::State::find(const AttentionProblem&, int) noexcept;
template KernelSlot<GemmKind>* Engine::State::find(const GemmProblem&, int) noexcept;
template KernelSlot<QuantizeKind>* Engine::State::find(const QuantizeProblem&, int) noexcept;
template KernelSlot<AttentionKind>* Engine::State::for_call(const AttentionProblem&, Stream, int);
template KernelSlot<GemmKind>* Engine::State::for_call(const GemmProblem&, Stream, int);
template KernelSlot<QuantizeKind>* Engine::State::for_call(const QuantizeProblem&, Stream, int);

}  // namespace kernelwright
