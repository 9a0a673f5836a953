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

/// The digest of "aa" and "<62 hex>.kw2"; nothing if they are not an entry's name.
std::optional<Digest> digest_of_name(std::string_view shard, std::string_view file);

}  // namespace kernelwright
