/// How a slot's kernels are found or compiled, loaded, and published to launches; or how the slot fails.
#include <fmt/format.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/runtime/engine/engine_state.h"
#include "kernelwright/runtime/engine/notes.h"
#include "kernelwright/runtime/process/interrupt.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright {

using detail::AttentionKind;
using detail::describe;
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

}  // namespace

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
  // Several kernels compile side by side. The store compiles each once: this thread takes a kernel that no other thread
  // has begun.
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
    kernels.push_back(loader.load(*slot.device, *binaries[i], shared_bytes(specs[i]), [&] {
      KernelLoader::Explained explained{.notes = notes_of(specs[i]), .lined_ptx = {}};
      if (wants_lines)  // it owns what it uses: the kernel may outlive the slot's sources
        explained.lined_ptx = [store = store, kernel = made[i], binary = binaries[i]] {
          return store->ptx_with_lines(*kernel, *binary);
        };
      return explained;
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
  } catch (...) {  // the thread that waits for the kernel gets the error again
  }
}

// Events go out before the state that they report is published. A thread that has seen the state finds the event in the
// sink.
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
  bool report = !is_interruption(failure);  // no caller waits for a kernel when the process ends
  if (sealed_miss) {
    std::lock_guard lock(shared.mutex);
    report = !std::exchange(slot.sealed_miss_reported, true);
    if (report) ++remembered_misses;
  }
  if (report) tell(sealed_miss ? EventKind::kSealedMiss : EventKind::kFailure, slot, error);
  {
    std::lock_guard lock(shared.mutex);
    slot.failure = std::move(failure);
    slot.kernel_sources.clear();  // a later attempt makes them anew
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
    if (!options.fallback_first)
      if (auto kernel = load(slot, slot.plan, false)) {
        finish(slot, std::move(kernel));
        return true;
      }
    if (auto kernel = load(slot, *slot.fallback_plan, may_compile)) {
      serve_fallback(slot, std::move(kernel));
      return false;
    }
  } catch (const InterruptedError&) {  // the wanted kernel will be interrupted too
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

template const Engine::State::Sources& Engine::State::sources_of(KernelSlot<AttentionKind>&,
                                                                 const AttentionKind::Plan&);
template void Engine::State::fail(KernelSlot<AttentionKind>&, std::exception_ptr, bool) noexcept;
template void Engine::State::refuse_unremembered(KernelSlot<AttentionKind>&);
template void Engine::State::make_tuned(KernelSlot<AttentionKind>&, bool) noexcept;
template void Engine::State::make_in_background(KernelSlot<AttentionKind>&, bool);
template const Engine::State::Sources& Engine::State::sources_of(KernelSlot<GemmKind>&, const GemmKind::Plan&);
template void Engine::State::fail(KernelSlot<GemmKind>&, std::exception_ptr, bool) noexcept;
template void Engine::State::refuse_unremembered(KernelSlot<GemmKind>&);
template void Engine::State::make_tuned(KernelSlot<GemmKind>&, bool) noexcept;
template void Engine::State::make_in_background(KernelSlot<GemmKind>&, bool);
template const Engine::State::Sources& Engine::State::sources_of(KernelSlot<QuantizeKind>&, const QuantizeKind::Plan&);
template void Engine::State::fail(KernelSlot<QuantizeKind>&, std::exception_ptr, bool) noexcept;
template void Engine::State::refuse_unremembered(KernelSlot<QuantizeKind>&);
template void Engine::State::make_tuned(KernelSlot<QuantizeKind>&, bool) noexcept;
template void Engine::State::make_in_background(KernelSlot<QuantizeKind>&, bool);
template const Engine::State::Sources& Engine::State::sources_of(KernelSlot<KvWriteKind>&, const KvWriteKind::Plan&);
template void Engine::State::fail(KernelSlot<KvWriteKind>&, std::exception_ptr, bool) noexcept;
template void Engine::State::refuse_unremembered(KernelSlot<KvWriteKind>&);
template void Engine::State::make_tuned(KernelSlot<KvWriteKind>&, bool) noexcept;
template void Engine::State::make_in_background(KernelSlot<KvWriteKind>&, bool);
template const Engine::State::Sources& Engine::State::sources_of(KernelSlot<RowOpKind>&, const RowOpKind::Plan&);
template void Engine::State::fail(KernelSlot<RowOpKind>&, std::exception_ptr, bool) noexcept;
template void Engine::State::refuse_unremembered(KernelSlot<RowOpKind>&);
template void Engine::State::make_tuned(KernelSlot<RowOpKind>&, bool) noexcept;
template void Engine::State::make_in_background(KernelSlot<RowOpKind>&, bool);
template const Engine::State::Sources& Engine::State::sources_of(KernelSlot<RouteKind>&, const RouteKind::Plan&);
template void Engine::State::fail(KernelSlot<RouteKind>&, std::exception_ptr, bool) noexcept;
template void Engine::State::refuse_unremembered(KernelSlot<RouteKind>&);
template void Engine::State::make_tuned(KernelSlot<RouteKind>&, bool) noexcept;
template void Engine::State::make_in_background(KernelSlot<RouteKind>&, bool);
template const Engine::State::Sources& Engine::State::sources_of(KernelSlot<MoeCombineKind>&,
                                                                 const MoeCombineKind::Plan&);
template void Engine::State::fail(KernelSlot<MoeCombineKind>&, std::exception_ptr, bool) noexcept;
template void Engine::State::refuse_unremembered(KernelSlot<MoeCombineKind>&);
template void Engine::State::make_tuned(KernelSlot<MoeCombineKind>&, bool) noexcept;
template void Engine::State::make_in_background(KernelSlot<MoeCombineKind>&, bool);

}  // namespace kernelwright
