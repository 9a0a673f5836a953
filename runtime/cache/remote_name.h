/// The names of a key on the server of a remote cache.
#pragma once

#include <fmt/format.h>

#include <string>

#include "kernelwright/runtime/binary/cache_key.h"
#include "kernelwright/runtime/cache/entry.h"

namespace kernelwright {

/// A build is found by its key, and by its key without the compiler: the first build that any compiler sent.
struct RemoteName {
  RemoteName(const CacheKey& key, bool any_compiler)
      : any(any_compiler),
        digest(any_compiler ? key.digest_without_compiler() : key.digest()),
        text(fmt::format("kw{}/{}/{}{}", kEntryFormatVersion, key.arch, any_compiler ? "any-" : "", digest.hex())),
        lease(text + ":lease") {}
  bool any;
  Digest digest;
  std::string text, lease;
};

}  // namespace kernelwright
