// CacheDirectory's housekeeping: bounds, removal of old files, the index, listing. None of it is on the way to a hit;
// publish() calls maintain() once its entry is in place.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "kernelwright/runtime/cache/cubin_cache.h"
#include "kernelwright/runtime/cache/directory.h"
#include "kernelwright/runtime/cache/names.h"

namespace kernelwright {
namespace {

constexpr std::int64_t kStaleTempS = 3600;        // a publish takes milliseconds
constexpr std::int64_t kQuarantineS = 7 * 86400;  // long enough to be looked at
constexpr std::size_t kQuarantineFiles = 64;
constexpr std::int64_t kNoAge = -1;
constexpr const char *kLimitName = "limit", *kMaxBytes = "max_bytes", *kStatsName = "stats";

bool is_shard(const std::string& name) {
  return name.size() == 2 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// One process tidies a directory at a time. A process that tidies another directory does not block it.
Digest upkeep_lock_name(int directory) {
  struct stat info {};
  fstat(directory, &info);
  return DigestBuilder()
      .field("kernelwright cache upkeep")
      .field(static_cast<std::uint64_t>(info.st_dev))
      .field(static_cast<std::uint64_t>(info.st_ino))
      .finish();
}

// A file's age counts from its last write, or from the rename that brought it here (a rename keeps the time of the
// write).
enum class AgeOf { kWrite, kRename };

// Removes files of a folder that are older than `age_s`, and the oldest beyond `most`.
void remove_old(int directory, AgeOf age_of, std::int64_t age_s, std::size_t most) {
  std::vector<std::pair<std::int64_t, std::string>> by_age;
  const std::int64_t now = std::time(nullptr);
  for (const std::string& name : names_in(directory)) {
    struct stat info {};
    if (fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    by_age.emplace_back(age_of == AgeOf::kWrite ? info.st_mtime : info.st_ctime, name);
  }
  std::sort(by_age.rbegin(), by_age.rend());
  for (std::size_t i = 0; i < by_age.size(); ++i) {
    if (i < most && now - by_age[i].first <= age_s) continue;
    if (unlinkat(directory, by_age[i].second.c_str(), 0) != 0)
      unlinkat(directory, by_age[i].second.c_str(), AT_REMOVEDIR);
  }
}

// Removes second names whose entry no longer exists.
void remove_lone_aliases(int root, Trust trust) {
  const TrustedDirectory any = open_trusted_subdirectory(root, "any", false, trust);
  if (!any.fd) return;
  for (const std::string& shard_name : names_in(any.fd.get())) {
    const TrustedDirectory shard = open_trusted_subdirectory(any.fd.get(), shard_name, false, trust);
    if (!shard.fd) continue;
    for (const std::string& name : names_in(shard.fd.get())) {
      struct stat info {};
      if (fstatat(shard.fd.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_nlink == 1)
        unlinkat(shard.fd.get(), name.c_str(), 0);
    }
  }
}

}  // namespace

std::string compiler_rank(std::string_view compiler) { return sha256(compiler).hex().substr(0, 16); }

std::string alias_prefix(const Digest& without_compiler) { return without_compiler.hex().substr(2) + "."; }

AliasName::AliasName(const Digest& without_compiler, std::string_view compiler)
    : shard(without_compiler.hex().substr(0, 2)),
      file(alias_prefix(without_compiler) + compiler_rank(compiler) + std::string(kEntrySuffix)) {}

std::optional<Digest> digest_of_name(std::string_view shard, std::string_view file) {
  if (shard.size() != 2 || file.size() != 62 + kEntrySuffix.size() || !file.ends_with(kEntrySuffix))
    return std::nullopt;
  const std::string hex = std::string(shard) + std::string(file.substr(0, 62));
  Digest digest;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t value = std::string_view("0123456789abcdef").find(hex[i]);
    if (value == std::string_view::npos) return std::nullopt;
    digest.bytes[i / 2] = static_cast<std::uint8_t>(digest.bytes[i / 2] << 4 | value);
  }
  return digest;
}

std::vector<CacheDirectory::File> CacheDirectory::files(const Root& root) const {
  std::vector<File> found;
  for (const std::string& shard_name : names_in(root->get())) {
    if (!is_shard(shard_name)) continue;
    const TrustedDirectory shard = open_trusted_subdirectory(root->get(), shard_name, /*create=*/false, trust_);
    if (!shard.fd) continue;
    for (const std::string& name : names_in(shard.fd.get())) {
      const auto digest = digest_of_name(shard_name, name);
      struct stat info {};
      if (!digest || fstatat(shard.fd.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
      found.push_back({*digest, shard_name, name, static_cast<std::uint64_t>(info.st_size), info.st_mtime});
    }
  }
  std::sort(found.begin(), found.end(), [](const File& a, const File& b) { return a.digest < b.digest; });
  return found;
}

std::vector<CacheDirectory::File> CacheDirectory::files() {
  const Root at = root(/*create=*/false);
  return at ? files(at) : std::vector<File>{};
}

DecodeResult CacheDirectory::read(const File& file, Payload payload) {
  const Root at = root(/*create=*/false);
  if (!at) return {std::nullopt, "the directory is gone"};
  const TrustedDirectory shard = open_trusted_subdirectory(at->get(), file.shard, /*create=*/false, trust_);
  if (!shard.fd) return {std::nullopt, shard.reason};
  FileBytes bytes;
  const std::string label = file.digest.hex();
  DecodeResult result = read_checked(at, shard.fd.get(), file.name, label, payload, bytes);
  if (result.entry && result.entry->key.digest() != file.digest) {
    const std::string reason = "foreign: its key's digest is not its name";
    set_aside(at, shard.fd.get(), file.name, bytes.inode, label, reason);
    return {std::nullopt, reason};
  }
  return result;
}

void CacheDirectory::rebuild_index(const Root& root) {
  const IndexItems known = index_.items();
  IndexItems items;
  for (const File& file : files(root)) {
    const auto old = known.find(file.digest);
    if (old != known.end() && old->second.bytes == file.bytes) {
      items[file.digest] = old->second;
    } else if (const DecodeResult result = read(file, Payload::kSkip); result.entry) {
      items[file.digest] = {file.bytes, file.modified_s, field_hashes(result.entry->key)};
    }
  }
  index_.rewrite(root->get(), std::move(items));
}

void CacheDirectory::sweep(const Root& root) {
  const std::int64_t now = std::time(nullptr);
  std::int64_t last = swept_s_;
  if (now - last < kStaleTempS || !swept_s_.compare_exchange_strong(last, now)) return;
  if (const auto tmp = open_trusted_subdirectory(root->get(), "tmp", false, trust_); tmp.fd)
    remove_old(tmp.fd.get(), AgeOf::kWrite, kStaleTempS, SIZE_MAX);
  if (const auto quarantine = open_trusted_subdirectory(root->get(), "quarantine", false, trust_); quarantine.fd)
    remove_old(quarantine.fd.get(), AgeOf::kRename, kQuarantineS, kQuarantineFiles);
  for (const std::string& name : names_in(root->get())) {
    struct stat info {};
    if (name.starts_with("index.") && fstatat(root->get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        now - info.st_mtime > kStaleTempS)
      unlinkat(root->get(), name.c_str(), 0);
  }
}

std::uint64_t CacheDirectory::max_bytes(const Root& root) {
  const NumbersFile file = root ? read_numbers(root->get(), kLimitName, trust_) : NumbersFile{};
  if (!file.fault.empty() && !told_of_limit_.exchange(true))
    hooks_.report({EventKind::kCacheDegraded, "", path_,
                   fmt::format("its file limit {}, so the limit that it kept does not hold; kernelwright cache "
                               "--max-size sets it anew",
                               file.fault)});
  const auto own = file.numbers.find(kMaxBytes);
  if (own == file.numbers.end()) return bounds_.bytes.value_or(kDefaultCacheBytes);
  return std::min(own->second, bounds_.bytes.value_or(own->second));
}

std::uint64_t CacheDirectory::max_bytes() { return max_bytes(root(/*create=*/false)); }

std::string CacheDirectory::set_max_bytes(std::optional<std::uint64_t> bytes) {
  const Root at = root(/*create=*/true);
  if (!at || !writable()) {
    std::lock_guard hold(mutex_);
    return refused_ ? refusal_ : path_ + " cannot be made or written";
  }
  int error = 0;
  if (bytes)
    error = write_numbers(at->get(), kLimitName, {{kMaxBytes, *bytes}});
  else if (unlinkat(at->get(), kLimitName, 0) != 0 && errno != ENOENT)
    error = errno;
  return error == 0 ? "" : fmt::format("{}/{} cannot be written: {}", path_, kLimitName, error_text(error));
}

NumbersFile CacheDirectory::stats() {
  const Root at = root(/*create=*/false);
  return at ? read_numbers(at->get(), kStatsName, trust_) : NumbersFile{};
}

bool CacheDirectory::add_stats(const Numbers& added, int patience_ms) {
  const Root at = root(/*create=*/false);
  if (!at || !writable()) return false;
  const Numbers first{{"since_s", static_cast<std::uint64_t>(std::time(nullptr))}};
  return add_numbers(at->get(), kStatsName, trust_, added, first, patience_ms);
}

void CacheDirectory::maintain(const Root& root) {
  sweep(root);
  const bool readable = index_.refresh(root->get());
  const Limits limits{max_bytes(root), bounds_.entries};
  const bool full = index_.total_bytes() > limits.bytes || index_.size() > limits.entries;
  if (readable && !full && !index_.wants_compaction()) return;
  FileLock lock;
  const LockOutcome outcome = lock.acquire(hooks_.locks(), upkeep_lock_name(root->get()), /*timeout_ms=*/0);
  if (outcome == LockOutcome::kTimedOut) return;  // another process tidies it
  if (!readable || index_.wants_compaction()) rebuild_index(root);
  lock.release();
  if (full || index_.total_bytes() > limits.bytes || index_.size() > limits.entries) {
    // A tenth below the bound, so that a full cache does not evict on every publish.
    evict({limits.bytes - limits.bytes / 10, limits.entries - limits.entries / 10}, kNoAge);
  }
}

std::string CacheDirectory::refusal() const {
  std::lock_guard hold(mutex_);
  if (!refused_) return mode_ == Mode::kReadOnly ? path_ + " is a read-only layer" : "";
  return refusal_;
}

bool CacheDirectory::remove_file(const Root& root, const File& file, std::string* failure) const {
  const std::string path = file.shard + "/" + file.name;
  if (unlinkat(root->get(), path.c_str(), 0) == 0) return true;
  const int error = errno;
  if (error == ENOENT) return true;  // another process was first
  if (failure && failure->empty())
    *failure = fmt::format("{}/{} cannot be removed: {}", path_, path, error_text(error));
  return false;
}

std::size_t CacheDirectory::evict(const Limits& limits, std::int64_t max_age_s, std::string* failure) {
  const Root at = root(/*create=*/false);
  if (!at || !writable()) {
    if (failure) *failure = refusal();
    return 0;
  }
  FileLock lock;
  if (lock.acquire(hooks_.locks(), upkeep_lock_name(at->get()), /*timeout_ms=*/1000) == LockOutcome::kTimedOut) {
    if (failure) *failure = path_ + " is being tidied by another process; once more would do";
    return 0;
  }
  if (!index_.refresh(at->get())) rebuild_index(at);
  const IndexItems uses = index_.items();
  std::vector<std::pair<std::int64_t, File>> by_use;
  std::uint64_t bytes = 0;
  for (File& file : files(at)) {
    const auto use = uses.find(file.digest);
    const std::int64_t used_s = use != uses.end() ? use->second.used_s : file.modified_s;
    bytes += file.bytes;
    by_use.emplace_back(used_s, std::move(file));
  }
  std::stable_sort(by_use.begin(), by_use.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::int64_t now = std::time(nullptr);
  std::size_t removed = 0, left = by_use.size();
  IndexItems items = uses;
  std::set<Digest> present;  // the entries that are left at the end
  for (const auto& [used_s, file] : by_use) {
    const bool old = max_age_s >= 0 && now - used_s > max_age_s;
    if (!old && bytes <= limits.bytes && left <= limits.entries) break;
    if (remove_file(at, file, failure)) {
      ++removed;
      items.erase(file.digest);
    } else {
      present.insert(file.digest);
    }
    bytes -= file.bytes;
    --left;
  }
  for (std::size_t i = by_use.size() - left; i < by_use.size(); ++i) present.insert(by_use[i].second.digest);
  std::erase_if(items, [&](const auto& item) { return !present.contains(item.first); });
  if (removed > 0) remove_lone_aliases(at->get(), trust_);
  index_.rewrite(at->get(), std::move(items));
  evicted_ += removed;
  return removed;
}

std::size_t CacheDirectory::clear(std::string* failure) {
  const Root at = root(/*create=*/false);
  if (!at || !writable()) {
    if (failure) *failure = refusal();
    return 0;
  }
  std::size_t removed = 0;
  for (const File& file : files(at)) removed += remove_file(at, file, failure);
  remove_lone_aliases(at->get(), trust_);
  for (const char* folder : {"tmp", "quarantine", "failed"})
    if (const auto opened = open_trusted_subdirectory(at->get(), folder, false, trust_); opened.fd)
      remove_old(opened.fd.get(), AgeOf::kWrite, kNoAge, 0);
  unlinkat(at->get(), "index", 0);
  index_.rewrite(at->get(), {});
  return removed;
}

IndexItems CacheDirectory::last_uses() {
  const Root at = root(/*create=*/false);
  if (at) index_.refresh(at->get());
  return index_.items();
}

std::string CacheDirectory::why_missed(const CacheKey& key) {
  const Root at = root(/*create=*/false);
  if (!at) return "there is no cache directory";
  if (!index_.refresh(at->get()) && writable()) rebuild_index(at);
  const auto wanted = field_hashes(key);
  // The nearest entry has the most fields in common; among equals, the newest. Another kernel is further away than any
  // other difference.
  std::vector<std::pair<std::pair<int, std::int64_t>, Digest>> nearest;
  for (const auto& [digest, item] : index_.items()) {
    int same = 0;
    for (std::size_t i = 0; i < kNumKeyFields; ++i) same += wanted[i] == item.fields[i];
    if (wanted[0] == item.fields[0]) nearest.push_back({{same, item.used_s}, digest});
  }
  std::sort(nearest.rbegin(), nearest.rend());
  constexpr std::size_t kTries = 4;  // the index may have entries that no longer exist
  for (std::size_t i = 0; i < std::min(nearest.size(), kTries); ++i) {
    const EntryName name(nearest[i].second);
    const DecodeResult result = read({name.digest, name.shard, name.file}, Payload::kSkip);
    if (!result.entry) continue;
    const std::string fields = difference(result.entry->key, key);
    if (fields.empty()) return fmt::format("entry {} has this key", name.hex.substr(0, 12));
    return fmt::format("nearest entry {}: {}", name.hex.substr(0, 12), fields);
  }
  return fmt::format("no entry of kernel '{}'", key.entry_stem);
}

}  // namespace kernelwright
