/// The place of an entry in a cache directory, from its digest and back.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernelwright/generator/digest.h"

namespace kernelwright {

/// The format's version is part of the name. So libraries of two versions share a directory, and neither sees the
/// other's entries.
inline constexpr std::string_view kEntrySuffix = ".kw2";

struct EntryName {
  explicit EntryName(const Digest& key)
      : digest(key), hex(key.hex()), shard(hex.substr(0, 2)), file(hex.substr(2).append(kEntrySuffix)) {}
  std::string path() const { return shard + "/" + file; }
  Digest digest;
  std::string hex, shard, file;
};

/// The place of a compiler's builds among those of other compilers: 16 hex digits, which begin the SHA-256 of its id.
/// Where no compiler is, the build with the least of them serves. So the choice depends on no time.
std::string compiler_rank(std::string_view compiler);

/// The second name of an entry, in any/aa/: "<62 hex>.<rank>.kw2". The first digits are of the key's digest without the
/// compiler. So the names of a kernel's builds lie side by side.
struct AliasName {
  AliasName(const Digest& without_compiler, std::string_view compiler);
  std::string shard, file;
};

/// What the file names of all builds of a kernel begin with, in any/aa/.
std::string alias_prefix(const Digest& without_compiler);

/// The digest of "aa" and "<62 hex>.kw2"; nothing if they are not an entry's name.
std::optional<Digest> digest_of_name(std::string_view shard, std::string_view file);

}  // namespace kernelwright
