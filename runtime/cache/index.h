/// The recency list of a cache directory: a file of fixed-size records, only appended to, and never read on the way to
/// a hit. It has each entry's size, time of last use, and a short hash of every key field. So bounds, LRU and "which
/// entry is nearest" need no walk over the entries. It is a hint: if it is lost or damaged, it is rebuilt from the
/// entries.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "kernelwright/runtime/binary/cache_key.h"
#include "kernelwright/runtime/process/fork_guard.h"

namespace kernelwright {

inline constexpr int kNumKeyFields = 7;
/// A 32-bit hash per field of the key, in the order of CacheKey.
std::array<std::uint32_t, kNumKeyFields> field_hashes(const CacheKey& key);

struct IndexItem {
  std::uint64_t bytes = 0;
  std::int64_t used_s = 0;  // Unix time of the last use
  std::array<std::uint32_t, kNumKeyFields> fields{};
};

using IndexItems = std::map<Digest, IndexItem>;

/// One directory's index, read incrementally. Safe from any number of threads; processes share the file.
class RecencyIndex {
 public:
  /// Adds a use of an entry to the file and to this object. Returns 0 or errno's number; ENOENT if there is no file.
  int append(int directory, const Digest& digest, const IndexItem& item);

  /// Reads the records that were appended since the last call. Returns false if the file is absent or damaged: rebuild
  /// it.
  bool refresh(int directory);

  /// Replaces the file by `items`. Records that others append meanwhile may be lost: that costs recency, nothing else.
  bool rewrite(int directory, IndexItems items);

  IndexItems items() const;
  std::uint64_t total_bytes() const;
  std::size_t size() const;
  /// Whether the file holds many more records than there are entries.
  bool wants_compaction() const;

 private:
  void apply(const Digest& digest, const IndexItem& item);
  mutable ForkSafeMutex mutex_;
  IndexItems items_;
  std::uint64_t total_bytes_ = 0;
  Digest mark_;  // of the file that was read
  std::uint64_t read_bytes_ = 0;
};

}  // namespace kernelwright
