#include "kernelwright/runtime/store/kernel_store.h"

#include <fmt/format.h>

#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/compile/line_info.h"
#include "kernelwright/runtime/process/interrupt.h"
#include "kernelwright/runtime/workers/compile_workers.h"

namespace kernelwright {

namespace {

/// The folder failed/ in the cache directory; "" if nothing is kept on disk.
std::string failed_sources_beside(const CubinCache& cache) {
  return cache.directory().empty() ? "" : cache.directory() + "/failed";
}

/// Slots for compiles lie beside the cache's locks.
CompileWorkerOptions with_locks_of(const CacheOptions& cache, CompileWorkerOptions workers) {
  if (!workers.lock_directory) workers.lock_directory = cache.lock_directory;
  return workers;
}

/// What a compile says where no other host could be asked.
constexpr const char* kOnOtherHosts =
    "kernels are compiled on other hosts alone (\"hosts\" of compile_in or $KERNELWRIGHT_COMPILE_IN), and none was "
    "asked for this one: no remote cache of Redis or Valkey is in use, or the kernel has a source of your own; "
    "\"auto\" compiles here";

/// A build on another host may take as long as one on this host.
CacheOptions with_wait_of(const CompileWorkerOptions& workers, CacheOptions cache) {
  if (cache.remote.build_wait_ms > 0) cache.remote.build_wait_ms = workers.time_limit_ms;
  return cache;
}

}  // namespace

KernelStore::KernelStore(CacheOptions cache, std::string nvrtc_path, CompileWorkerOptions workers)
    : cache_(with_wait_of(workers, cache)),
      compiler_(compile_in(workers) == CompileIn::kHosts
                    ? Compiler::none(kOnOtherHosts)
                    : Compiler(std::move(nvrtc_path), failed_sources_beside(cache_), [&](const std::string& path) {
                        auto made = make_source_compiler(path, with_locks_of(cache, std::move(workers)), cache.sink);
                        workers_ = dynamic_cast<const CompileWorkers*>(made.get());
                        return made;
                      })) {}

KernelStore::~KernelStore() = default;

std::string KernelStore::origin() const {
  const std::string why_not = compiler_.why_not();
  if (why_not.empty()) return "NVRTC " + compiler_.path();
  if (std::string layer = cache_.first_with_kernels(); !layer.empty()) return layer;
  throw MissingError(
      fmt::format("no kernel can be compiled or found: {}; no bundle and no cache directory has kernels, and no remote "
                  "cache is in use",
                  why_not));
}

KernelSource KernelStore::source_of(const Spec& spec) const {
  SourceUnit unit = specialize(spec);
  CacheKey key = compiler_.key(unit);
  return {std::move(unit), std::move(key)};
}

CacheKey KernelStore::key(const Spec& spec) const { return source_of(spec).key; }

std::shared_ptr<const Binary> KernelStore::compile(const Spec& spec, CacheSource* source, double* lock_wait_ms) {
  return compile(source_of(spec), source, lock_wait_ms);
}

std::shared_ptr<const Binary> KernelStore::compile(const KernelSource& kernel, CacheSource* source,
                                                   double* lock_wait_ms) {
  hold_exit_of_this_thread();
  const CacheKey& key = kernel.key;
  // A key without a compiler finds any cached build of the Spec.
  if (key.compiler.empty())
    if (std::shared_ptr<const Binary> cached = cache_.find(key, source)) return cached;
  const std::unique_ptr<CompileRoom> held = room();
  try {
    return cache_.get_or_compile(
        key, [&] { return build(kernel.unit); }, source, lock_wait_ms, held.get());
  } catch (const MissingError&) {  // the compiler's file looked whole, but cannot be used
    CacheKey any = key;
    any.compiler.clear();
    if (std::shared_ptr<const Binary> cached = cache_.find(any, source)) return cached;
    throw;
  }
}

std::shared_ptr<const Binary> KernelStore::find(const KernelSource& kernel, CacheSource* source) {
  return cache_.find(kernel.key, source);
}

std::shared_ptr<const Binary> KernelStore::find(const Spec& spec, CacheSource* source) {
  return find(source_of(spec), source);
}

std::string KernelStore::ptx_with_lines(const KernelSource& kernel, const Binary& binary) {
  const std::unique_ptr<CompileRoom> held = room();
  if (held) held->take();
  try {
    std::string lined = build_with_lines(kernel.unit);
    return without_lines(lined) == without_lines(binary.ptx) ? lined : "";
  } catch (const Error&) {  // the binary came from the cache, and cannot be compiled again here
    return {};
  }
}

std::unique_ptr<CompileRoom> KernelStore::room() const { return workers_ ? workers_->room() : nullptr; }

CubinCache& KernelStore::cache() { return cache_; }

Compiler& KernelStore::compiler() { return compiler_; }

CompileWorkerCounters KernelStore::worker_counters() const {
  return workers_ ? workers_->counters() : CompileWorkerCounters{};
}

Binary KernelStore::build(const SourceUnit& unit) { return compiler_.compile(unit); }

std::string KernelStore::build_with_lines(const SourceUnit& unit) { return compiler_.compile_with_lines(unit); }

}  // namespace kernelwright
