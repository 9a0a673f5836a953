#include "kernelwright/runtime/engine_state.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "kernelwright/generator/arch.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/validate.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"
#include "kernelwright/runtime/kernel_notes.h"

namespace kernelwright {

using detail::describe;
using detail::KernelSlot;
using detail::LoadedAttention;
using Clock = std::chrono::steady_clock;

namespace {

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
Arch arch_for(const AttentionSchedule& schedule, const DeviceInfo& device) {
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

/// The fallback's plan; nullopt for a problem that only another family computes.
std::optional<AttentionPlan> portable_plan(const AttentionProblem& problem, const DeviceInfo& device,
                                           const TunedTable& rows) {
  AttentionSchedule schedule;
  schedule.family = Family::kPortable;
  const Arch arch = arch_for(schedule, device);
  if (!validate(AttentionConfig{"", problem, schedule, {}}, arch).empty()) return std::nullopt;
  return plan_attention(problem, schedule, arch, rows);
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

std::shared_ptr<KernelStore> open_store(const EngineOptions& options, Backend& backend) {
  if (options.custom_store) return options.custom_store;
  CacheOptions cache = options.cache;
  if (!cache.sink) cache.sink = options.sink;
  if (!wants_ptx(backend)) cache.ptx = false;  // reading the PTX as well doubles a hit's time
  return std::make_shared<KernelStore>(std::move(cache), options.nvrtc_path);
}

}  // namespace

Engine::State::State(EngineOptions given)
    : options(std::move(given)),
      backend(open_backend(options, why_not_cuda)),
      store(open_store(options, *backend)),
      rows(options.custom_rows ? options.custom_rows
                               : std::make_shared<const TunedTable>(TunedTable::from_environment(options.tuned_dir))),
      wants_lines(options.emulator.hazards),
      pool(options.compile_threads) {
  if (!why_not_cuda.empty() && options.sink)
    options.sink({.kind = EventKind::kDevice,
                  .key = "",
                  .name = backend->device(0).info().name,
                  .detail = "kernels run on the emulator: " + why_not_cuda});
  if (options.sink)
    for (const SkippedRow& row : rows->skipped())
      options.sink({.kind = EventKind::kTunedRow, .key = "", .name = row.name, .detail = row.reason});
}

void Engine::State::tell(EventKind kind, const KernelSlot& slot, std::string detail, double milliseconds) const {
  if (options.sink)
    options.sink({.kind = kind,
                  .key = slot.key,
                  .name = kernel_name(slot.plan.main),
                  .detail = std::move(detail),
                  .milliseconds = milliseconds});
}

std::unique_ptr<KernelSlot> Engine::State::new_slot(const AttentionProblem& problem, const AttentionSchedule& schedule,
                                                    const PrepareOptions& prepare) {
  auto slot = std::make_unique<KernelSlot>();
  slot->device = &backend->device(prepare.device);
  slot->problem = problem;
  slot->schedule = schedule;
  slot->plan = plan_attention(problem, schedule, arch_for(schedule, slot->device->info()), *rows);
  slot->on_miss = prepare.on_miss;
  slot->shared = &shared;
  if (prepare.on_miss == OnMiss::kFallback) {
    slot->fallback_plan = portable_plan(problem, slot->device->info(), *rows);
    if (slot->fallback_plan && slot->fallback_plan->main == slot->plan.main &&
        slot->fallback_plan->combine == slot->plan.combine)
      slot->fallback_plan.reset();
  }
  slot->key = store->key(slot->plan.main).digest().hex();
  slot->name = fmt::format("{} (key {})", kernel_name(slot->plan.main), slot->key);
  return slot;
}

KernelSlot* Engine::State::find_locked(const AttentionProblem& problem, const AttentionSchedule* schedule, int device) {
  for (const auto& slot : slots)
    if (slot->device->ordinal() == device && (!schedule || slot->schedule == *schedule) && slot->problem == problem)
      return slot.get();
  return nullptr;
}

KernelSlot& Engine::State::claim(const AttentionProblem& problem, const AttentionSchedule& schedule,
                                 const PrepareOptions& prepare, bool& mine) {
  std::unique_lock lock(shared.mutex);
  KernelSlot* slot = find_locked(problem, &schedule, prepare.device);
  if (!slot) {
    lock.unlock();
    std::unique_ptr<KernelSlot> fresh = new_slot(problem, schedule, prepare);
    lock.lock();
    slot = find_locked(problem, &schedule, prepare.device);  // another thread may have been faster
    if (!slot) {
      slot = slots.emplace_back(std::move(fresh)).get();
      slot->fallback_pending = slot->fallback_plan.has_value();
      const DispatchKey key = DispatchKey::of(problem, prepare.device);
      if (key.valid()) table.insert(key, slot);
      mine = true;
      return *slot;
    }
  }
  const bool may_compile = prepare.allow_when_sealed || !sealed;
  const auto retry_after = std::chrono::milliseconds(options.cache.failure_ttl_ms);
  mine = slot->state == KernelState::kFailed &&
         ((slot->sealed_miss && may_compile) || Clock::now() - slot->failed_at >= retry_after);
  if (mine) {
    slot->state = KernelState::kPending;
    slot->fallback_pending = slot->fallback_plan && !slot->fallback;
    slot->sealed_miss = false;
    slot->error.clear();
  }
  return *slot;
}

std::unique_ptr<LoadedAttention> Engine::State::load_binaries(const KernelSlot& slot, const AttentionPlan& plan,
                                                              std::shared_ptr<const Binary> main,
                                                              std::shared_ptr<const Binary> combine) {
  auto loaded = std::make_unique<LoadedAttention>(describe(slot.problem, plan, slot.device->info()));
  loaded->device = slot.device;
  const auto load = [&](const Spec& spec, const Binary& binary, std::uint32_t max_shared_bytes) {
    return loader.load(*slot.device, binary, max_shared_bytes, [&]() -> KernelLoader::Explained {
      return {notes_of(spec), wants_lines ? store->ptx_with_lines(spec, binary) : ""};
    });
  };
  loaded->main = load(plan.main, *main, shared_bytes(plan.main));
  if (combine) loaded->combine = load(*plan.combine, *combine, 0);
  loaded->main_binary = std::move(main);
  loaded->combine_binary = std::move(combine);
  return loaded;
}

std::unique_ptr<LoadedAttention> Engine::State::load(const KernelSlot& slot, const AttentionPlan& plan,
                                                     bool may_compile) {
  const auto binary = [&](const Spec& spec) { return may_compile ? store->compile(spec) : store->find(spec); };
  std::shared_ptr<const Binary> main = binary(plan.main), combine;
  if (!main) return nullptr;
  if (plan.combine && !(combine = binary(*plan.combine))) return nullptr;
  return load_binaries(slot, plan, std::move(main), std::move(combine));
}

// Events go out before the state that they speak of is published: who has seen the state finds the event in the sink.
void Engine::State::serve_fallback(KernelSlot& slot, std::unique_ptr<LoadedAttention> kernel) {
  kernel->fallback = true;
  tell(EventKind::kFallback, slot, fmt::format("{} serves meanwhile", kernel_name(slot.fallback_plan->main)));
  {
    std::lock_guard lock(shared.mutex);
    slot.fallback_pending = false;
    slot.fallback = std::move(kernel);
    slot.serving.store(slot.fallback.get(), std::memory_order_release);
  }
  shared.changed.notify_all();
}

void Engine::State::finish(KernelSlot& slot, std::unique_ptr<LoadedAttention> kernel) {
  {
    std::lock_guard lock(shared.mutex);
    slot.tuned = std::move(kernel);
    slot.fallback_pending = false;
    slot.state = KernelState::kReady;
    if (!slot.serving.load(std::memory_order_relaxed)) slot.serving.store(slot.tuned.get(), std::memory_order_release);
  }
  shared.changed.notify_all();
}

void Engine::State::fail(KernelSlot& slot, std::exception_ptr failure, bool sealed_miss) noexcept {
  const std::string error = text_of(failure);
  bool report = true;
  if (sealed_miss) {
    std::lock_guard lock(shared.mutex);
    report = !std::exchange(slot.sealed_miss_reported, true);
  }
  if (report) tell(sealed_miss ? EventKind::kSealedMiss : EventKind::kFailure, slot, error);
  {
    std::lock_guard lock(shared.mutex);
    slot.failure = std::move(failure);
    slot.error = error;
    slot.failed_at = Clock::now();
    slot.sealed_miss = sealed_miss;
    slot.fallback_pending = false;  // it was tried before
    slot.state = KernelState::kFailed;
  }
  shared.changed.notify_all();
}

void Engine::State::fail_sealed(KernelSlot& slot) noexcept {
  sealed_misses.fetch_add(1, std::memory_order_relaxed);
  fail(slot,
       std::make_exception_ptr(NotReadyError(fmt::format(
           "{} is not in the cache and the engine is sealed; prepare it before seal(), or set allow_when_sealed",
           slot.name))),
       true);
}

void Engine::State::make_tuned(KernelSlot& slot, bool may_compile) noexcept {
  try {
    if (auto kernel = load(slot, slot.plan, may_compile)) return finish(slot, std::move(kernel));
    if (slot.fallback_plan && !slot.serving && make_fallback(slot, false)) return;
    fail_sealed(slot);
  } catch (...) {
    fail(slot, std::current_exception(), false);
  }
}

bool Engine::State::make_fallback(KernelSlot& slot, bool may_compile) noexcept {
  try {
    if (auto kernel = load(slot, slot.plan, false)) {
      finish(slot, std::move(kernel));
      return true;
    }
    if (auto kernel = load(slot, *slot.fallback_plan, may_compile)) {
      serve_fallback(slot, std::move(kernel));
      return false;
    }
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

void Engine::State::adopt_loaded_fallback(KernelSlot& slot) {
  const AttentionPlan& wanted = *slot.fallback_plan;
  std::unique_ptr<LoadedAttention> kernel;
  {
    std::lock_guard lock(shared.mutex);
    for (const auto& other : slots) {
      const auto twin = [&](const AttentionPlan& plan, const LoadedAttention* loaded) {
        const bool same =
            loaded && other->device == slot.device && plan.main == wanted.main && plan.combine == wanted.combine;
        return same ? loaded : nullptr;
      };
      const LoadedAttention* loaded = twin(other->plan, other->tuned.get());
      if (!loaded && other->fallback_plan) loaded = twin(*other->fallback_plan, other->fallback.get());
      if (!loaded) continue;
      kernel = std::make_unique<LoadedAttention>(describe(slot.problem, wanted, slot.device->info()));
      kernel->device = slot.device;
      kernel->main = loaded->main;
      kernel->combine = loaded->combine;
      kernel->main_binary = loaded->main_binary;
      kernel->combine_binary = loaded->combine_binary;
      break;
    }
  }
  if (kernel) serve_fallback(slot, std::move(kernel));
}

void Engine::State::refuse_in_capture(const AttentionProblem& problem, const AttentionSchedule& schedule,
                                      const PrepareOptions& prepare) {
  shared.capture_misses.fetch_add(1, std::memory_order_relaxed);
  throw NotReadyError(
      fmt::format("{} was not prepared and its stream is capturing, so it can be neither compiled nor loaded; call "
                  "prepare() before "
                  "the capture begins",
                  new_slot(problem, schedule, prepare)->name));
}

void Engine::State::make_in_background(KernelSlot& slot, bool may_compile) {
  if (slot.fallback_pending) adopt_loaded_fallback(slot);
  if (!slot.fallback_pending) return pool.post([this, &slot, may_compile] { make_tuned(slot, may_compile); });
  const auto job = [this, &slot, may_compile] {
    if (!make_fallback(slot, may_compile)) pool.post([this, &slot, may_compile] { make_tuned(slot, may_compile); });
  };
  pool.post(job, /*urgent=*/true);
}

}  // namespace kernelwright
