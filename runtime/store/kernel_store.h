/// Spec -> Binary, through the cache and the compiler. Needs no device and no driver. `kernelwright compile` and the
/// engine both use it.
#pragma once

#include <memory>
#include <string>

#include "kernelwright/generator/source/spec.h"
#include "kernelwright/runtime/binary/binary.h"
#include "kernelwright/runtime/binary/cache_key.h"
#include "kernelwright/runtime/binary/kernel_source.h"
#include "kernelwright/runtime/cache/compile_room.h"
#include "kernelwright/runtime/cache/cubin_cache.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/workers/options.h"

namespace kernelwright {

class CompileWorkers;

/// Safe from any number of threads. If several threads ask for a Spec at once, it is compiled once.
class KernelStore {
 public:
  /// Opens the cache (which never fails: see CubinCache), but no compiler. `nvrtc_path` as in Compiler. `workers`
  /// says whether NVRTC runs in processes of its own. Their events go to the cache's sink.
  explicit KernelStore(CacheOptions cache = {}, std::string nvrtc_path = {}, CompileWorkerOptions workers = {});
  virtual ~KernelStore();
  KernelStore(const KernelStore&) = delete;
  KernelStore& operator=(const KernelStore&) = delete;

  /// The source of `spec` and its key. A caller that needs both, or needs them again, makes them once.
  KernelSource source_of(const Spec& spec) const;
  /// The key of `spec` with the compiler of this machine.
  CacheKey key(const Spec& spec) const;

  /// The binary from the cache, else compiled and cached. Without a usable compiler, any cached build of the Spec is
  /// accepted, and then a worker of another host is asked. Throws CompileError, or MissingError if the binary is not
  /// cached, and neither is a compiler here nor has another host built it. `source`, if
  /// given, receives the place where the binary was found. `lock_wait_ms`, if given, grows by the time spent waiting
  /// for another process that compiled it.
  std::shared_ptr<const Binary> compile(const KernelSource& kernel, CacheSource* source = nullptr,
                                        double* lock_wait_ms = nullptr);
  std::shared_ptr<const Binary> compile(const Spec& spec, CacheSource* source = nullptr,
                                        double* lock_wait_ms = nullptr);

  /// The binary from the cache alone; null if it is not there. Never compiles, never opens NVRTC.
  std::shared_ptr<const Binary> find(const KernelSource& kernel, CacheSource* source = nullptr);
  std::shared_ptr<const Binary> find(const Spec& spec, CacheSource* source = nullptr);

  /// PTX that names the lines of the templates and has the very instructions of `binary`, a binary of `kernel`. "" if
  /// there is no compiler, or if it makes other instructions: the caller then uses `binary`'s own PTX. Compiles each
  /// time, and caches nothing.
  std::string ptx_with_lines(const KernelSource& kernel, const Binary& binary);

  /// Where kernels come from that nobody has prepared yet, for people: the compiler, or the first layer of the cache
  /// that has kernels, or a server. Throws MissingError if there is none of these. It opens no compiler, so a process
  /// may fork afterwards.
  std::string origin() const;

  CubinCache& cache();
  Compiler& compiler();
  /// All 0 if NVRTC runs in this process.
  CompileWorkerCounters worker_counters() const;

 protected:
  /// The step from source to binary. Tests replace it.
  virtual Binary build(const SourceUnit& unit);
  virtual std::string build_with_lines(const SourceUnit& unit);

 private:
  /// What a compile takes of this host; null: nothing.
  std::unique_ptr<CompileRoom> room() const;
  CubinCache cache_;
  const CompileWorkers* workers_ = nullptr;  // those of `compiler_`, which makes them
  Compiler compiler_;
};

}  // namespace kernelwright
