#include "kernelwright/runtime/kernel_store.h"

#include <utility>

#include "kernelwright/generator/specialize.h"

namespace kernelwright {

KernelStore::KernelStore(CacheOptions cache, std::string nvrtc_path)
    : cache_(std::move(cache)), compiler_(std::move(nvrtc_path)) {}

KernelStore::~KernelStore() = default;

CacheKey KernelStore::key(const Spec& spec) const { return compiler_.key(specialize(spec)); }

std::shared_ptr<const Binary> KernelStore::compile(const Spec& spec) {
  const SourceUnit unit = specialize(spec);
  const CacheKey key = compiler_.key(unit);
  // A key without a compiler finds any cached build of the Spec.
  if (key.compiler.empty())
    if (std::shared_ptr<const Binary> cached = cache_.find(key)) return cached;
  return cache_.get_or_compile(key, [&] { return build(unit); });
}

std::shared_ptr<const Binary> KernelStore::find(const Spec& spec) { return cache_.find(key(spec)); }

CubinCache& KernelStore::cache() { return cache_; }

Compiler& KernelStore::compiler() { return compiler_; }

Binary KernelStore::build(const SourceUnit& unit) { return compiler_.compile(unit); }

}  // namespace kernelwright
