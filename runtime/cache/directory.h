/// A directory of entries as a layer of the cache:
///   aa/<62 hex>.kw2      an entry; together the hex digits are its key's digest
///   any/aa/<62 hex>.<16 hex>.kw2  a hard link to an entry by the digest without the compiler, and by the compiler
///   index                which entries exist and when they were used (index.h)
///   stats, limit         what its users did over runs, and its bound (numbers.h)
///   tmp/                 files being written
///   quarantine/          files that failed their checks, for people to look at
///   failed/              sources that the compiler rejected (failed_sources.h); tune/ has tuning logs
/// An entry appears whole, by rename, or not at all. Every read checks what it reads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernelwright/runtime/cache/entry.h"
#include "kernelwright/runtime/cache/file_lock.h"
#include "kernelwright/runtime/cache/index.h"
#include "kernelwright/runtime/cache/layer.h"
#include "kernelwright/runtime/cache/numbers.h"
#include "kernelwright/runtime/process/events.h"
#include "kernelwright/runtime/process/files.h"
#include "kernelwright/runtime/process/fork_guard.h"

namespace kernelwright {

class CacheDirectory : public CacheLayer {
 public:
  enum class Mode { kReadWrite, kReadOnly };
  struct Limits {
    std::uint64_t bytes, entries;
  };
  struct Bounds {
    std::optional<std::uint64_t> bytes;  // absent: the directory's own, else kDefaultCacheBytes
    std::uint64_t entries;
  };
  struct Hooks {
    std::function<void(const Event&)> report;  // must be set
    std::function<void(const char*)> step;     // before each step of publish(); may be empty
    std::function<const LockDirectory&()> locks;
  };
  struct File {  // an entry, known by its place alone
    Digest digest;
    std::string shard, name;
    std::uint64_t bytes = 0;
    std::int64_t modified_s = 0;
  };

  /// find() returns what `payload` says: the whole Binary, or one without PTX.
  CacheDirectory(std::string path, Mode mode, Bounds bounds, Payload payload, Hooks hooks);

  std::string status() const override;
  std::optional<Binary> find(const CacheKey& key) override;
  /// Whether a file of that name exists; cheap, and no check of its bytes.
  bool contains(const CacheKey& key);
  /// Writes the entry, then keeps the bounds. Returns false if the entry could not be written. The first failure of a
  /// kind is reported.
  bool publish(const CacheKey& key, const Binary& binary);
  bool writable() const { return mode_ == Mode::kReadWrite && !refused_; }
  const std::string& path() const { return path_; }

  std::string why_missed(const CacheKey& key);
  std::vector<File> files();
  /// Reads and checks one file of files(); damaged ones are set aside.
  DecodeResult read(const File& file, Payload payload);
  IndexItems last_uses();
  /// Returns how many entries it removed. `failure` gets the first obstacle: the directory is not trusted, a file
  /// cannot be removed, or another process tidies the directory. The rest is removed all the same.
  std::size_t evict(const Limits& limits, std::int64_t max_age_s, std::string* failure = nullptr);
  std::size_t clear(std::string* failure = nullptr);
  std::uint64_t evicted() const { return evicted_; }

  /// The bound that holds now; reads the directory's own bound.
  std::uint64_t max_bytes();
  /// Returns "", or why the bound could not be kept.
  std::string set_max_bytes(std::optional<std::uint64_t> bytes);
  /// What was added over runs, and what is wrong with the file.
  NumbersFile stats();
  /// Returns false if it could not be done now. Makes no directory.
  bool add_stats(const Numbers& added, int patience_ms);

 private:
  using Root = std::shared_ptr<const Fd>;
  /// The first sound build of a kernel in the order of the compilers' names, for a key without a compiler.
  std::optional<Binary> find_any_build(const Root& root, const CacheKey& key);
  /// Reads the entry `name` of `shard`, which must be of that key, and notes its use.
  std::optional<Binary> find_file(const Root& root, int shard, const std::string& name, const std::string& label,
                                  const CacheKey& key);
  Root root(bool create);
  void forget_root(const Root& stale);
  void degrade(const std::string& cause, const std::string& detail);
  /// Removes one entry. Returns false if the entry still exists, and sets `failure` unless it is set already.
  bool remove_file(const Root& root, const File& file, std::string* failure) const;
  /// "/x is writable by others (mode 0777); chmod go-w it"; "" while the directory may be used.
  std::string refusal() const;
  void step(const char* name) const;
  void set_aside(const Root& root, int shard, const std::string& name, std::uint64_t inode, const std::string& label,
                 const std::string& reason);
  int write_entry(const Root& root, const CacheKey& key, std::span<const std::byte> bytes);
  void touch(const Root& root, const FileBytes& file, const CacheKey& key);
  std::uint64_t max_bytes(const Root& root);
  void maintain(const Root& root);
  void rebuild_index(const Root& root);
  void sweep(const Root& root);
  DecodeResult read_checked(const Root& root, int shard, const std::string& name, const std::string& label,
                            Payload payload, FileBytes& file);
  std::vector<File> files(const Root& root) const;

  const std::string path_;
  const Mode mode_;
  const Trust trust_;
  const Bounds bounds_;
  const Payload payload_;
  const Hooks hooks_;
  std::atomic<bool> refused_{false}, told_of_limit_{false};
  std::atomic<std::uint64_t> evicted_{0};
  std::atomic<std::int64_t> swept_s_{0};
  RecencyIndex index_;
  mutable ForkSafeMutex mutex_;  // guards the members below
  Root root_;
  std::string refusal_;
  std::set<std::string> degraded_;  // causes that were reported
};

}  // namespace kernelwright
