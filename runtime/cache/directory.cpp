// Finding and publishing. Bounds, sweeping, listing and the index are in upkeep.cpp.
#include "kernelwright/runtime/cache/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cache/names.h"

namespace kernelwright {
namespace {

constexpr std::int64_t kTouchEveryS = 3600;

std::atomic<std::uint64_t> temp_number{0};

}  // namespace

CacheDirectory::CacheDirectory(std::string path, Mode mode, Bounds bounds, Payload payload, Hooks hooks)
    : path_(std::move(path)),
      mode_(mode),
      trust_(mode == Mode::kReadOnly ? Trust::kOwnOrRoot : Trust::kOwnOnly),
      bounds_(bounds),
      payload_(payload),
      hooks_(std::move(hooks)) {
  root(/*create=*/false);  // a directory that cannot be used is reported from the start
}

std::string CacheDirectory::status() const {
  std::lock_guard hold(mutex_);
  const char* kind = mode_ == Mode::kReadOnly ? "read-only directory" : "directory";
  if (refused_) return fmt::format("{} {}: off: {}", kind, path_, refusal_);
  std::string text = fmt::format("{} {}: {}", kind, path_, root_ ? "on" : "not made yet");
  for (const std::string& cause : degraded_) text += fmt::format("; not written: {}", cause);
  return text;
}

void CacheDirectory::step(const char* name) const {
  if (hooks_.step) hooks_.step(name);
}

CacheDirectory::Root CacheDirectory::root(bool create) {
  std::string reason;
  {
    std::lock_guard hold(mutex_);
    if (root_ || refused_) return root_;
    TrustedDirectory opened = open_trusted_directory(path_, create && mode_ == Mode::kReadWrite, trust_);
    if (opened.fd) return root_ = std::make_shared<const Fd>(std::move(opened.fd));
    if (opened.absent && !create) return nullptr;
    reason = opened.reason;
    if (!opened.absent) {
      refused_ = true;  // for good: if its owner changes under us, a directory is not trusted later either
      refusal_ = reason;
    }
  }
  degrade(reason, reason);
  return nullptr;
}

void CacheDirectory::forget_root(const Root& stale) {
  std::lock_guard hold(mutex_);
  if (root_ == stale) root_.reset();
}

void CacheDirectory::degrade(const std::string& cause, const std::string& detail) {
  {
    std::lock_guard hold(mutex_);
    if (!degraded_.insert(cause).second) return;
  }
  hooks_.report({EventKind::kCacheDegraded, "", path_, detail + "; kernels stay in memory"});
}

void CacheDirectory::set_aside(const Root& root, int shard, const std::string& name, std::uint64_t inode,
                               const std::string& label, const std::string& reason) {
  if (mode_ == Mode::kReadWrite) {
    const TrustedDirectory quarantine = open_trusted_subdirectory(root->get(), "quarantine", /*create=*/true, trust_);
    struct stat now {};
    // Another process may have set it aside and published a good one since: the good one stays.
    const bool same =
        fstatat(shard, name.c_str(), &now, AT_SYMLINK_NOFOLLOW) == 0 && (inode == 0 || now.st_ino == inode);
    if (same && quarantine.fd)
      renameat(shard, name.c_str(), quarantine.fd.get(),
               fmt::format("{}.{}.{}", label, std::time(nullptr), temp_number++).c_str());
  }
  hooks_.report({EventKind::kCacheQuarantine, label, path_, reason});
}

DecodeResult CacheDirectory::read_checked(const Root& root, int shard, const std::string& name,
                                          const std::string& label, Payload payload, FileBytes& file) {
  using Status = FileBytes::Status;
  ReadPlan plan;
  if (payload != Payload::kUnpack)
    plan = {kEntryPrefixBytes, [](std::span<const std::byte> start, std::size_t file_bytes) {
              return entry_bytes_needed(start, file_bytes, Payload::kCubinOnly);
            }};
  file = read_trusted_file(shard, name, trust_, kMaxEntryBytes, plan);
  if (file.status == Status::kAbsent || file.status == Status::kUnreadable) return {std::nullopt, file.reason};
  DecodeResult result{std::nullopt, file.reason};
  if (file.status == Status::kRead) result = decode_entry(std::move(file.bytes), file.file_bytes, payload);
  if (!result.entry) set_aside(root, shard, name, file.inode, label, result.reason);
  return result;
}

std::optional<Binary> CacheDirectory::find(const CacheKey& key) {
  const Root at = root(/*create=*/false);
  if (!at) return std::nullopt;
  if (key.compiler.empty()) return find_any_build(at, key);
  const EntryName name(key.digest());
  const TrustedDirectory shard = open_trusted_subdirectory(at->get(), name.shard, /*create=*/false, trust_);
  if (!shard.fd) return std::nullopt;
  return find_file(at, shard.fd.get(), name.file, name.hex, key);
}

std::optional<Binary> CacheDirectory::find_any_build(const Root& root, const CacheKey& key) {
  const Digest digest = key.digest_without_compiler();
  const std::string hex = digest.hex(), prefix = alias_prefix(digest);
  const TrustedDirectory any = open_trusted_subdirectory(root->get(), "any", /*create=*/false, trust_);
  if (!any.fd) return std::nullopt;
  const TrustedDirectory shard = open_trusted_subdirectory(any.fd.get(), hex.substr(0, 2), /*create=*/false, trust_);
  if (!shard.fd) return std::nullopt;
  std::vector<std::string> names = names_in(shard.fd.get());
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(prefix); });
  std::sort(names.begin(), names.end());
  for (const std::string& name : names)
    if (auto binary = find_file(root, shard.fd.get(), name, "any-" + hex, key)) return binary;
  return std::nullopt;
}

std::optional<Binary> CacheDirectory::find_file(const Root& root, int shard, const std::string& name,
                                                const std::string& label, const CacheKey& key) {
  FileBytes file;
  DecodeResult result = read_checked(root, shard, name, label, payload_, file);
  if (!result.entry) return std::nullopt;
  DecodedEntry& entry = *result.entry;
  const bool ours =
      key.compiler.empty() ? entry.key.digest_without_compiler() == key.digest_without_compiler() : entry.key == key;
  if (!ours) {
    set_aside(root, shard, name, file.inode, label, "foreign: it holds another key: " + difference(entry.key, key));
    return std::nullopt;
  }
  if (mode_ == Mode::kReadWrite && std::time(nullptr) - file.modified_s > kTouchEveryS) touch(root, file, entry.key);
  return std::move(entry.binary);
}

bool CacheDirectory::contains(const CacheKey& key) {
  const Root at = root(/*create=*/false);
  return at && faccessat(at->get(), EntryName(key.digest()).path().c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

// The file's own time only decides when to append to the index next; the index decides what is evicted.
void CacheDirectory::touch(const Root& root, const FileBytes& file, const CacheKey& key) {
  if (futimens(file.fd.get(), nullptr) != 0) return;
  index_.append(root->get(), key.digest(), {file.file_bytes, std::time(nullptr), field_hashes(key)});
}

bool CacheDirectory::publish(const CacheKey& key, const Binary& binary) {
  if (!writable()) return false;
  std::vector<std::byte> bytes;
  try {
    bytes = encode_entry(key, binary);
  } catch (const Error& error) {
    degrade("an entry is too large", error.what());
    return false;
  }
  int error = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Root at = root(/*create=*/true);
    if (!at) return false;
    error = write_entry(at, key, bytes);
    if (error == 0) {
      maintain(at);
      step("done");
      return true;
    }
    if (error != ENOENT) break;
    forget_root(at);  // another program removed the directory: make it again, once
  }
  degrade(error_text(error), fmt::format("{} cannot be written: {}", path_, error_text(error)));
  return false;
}

int CacheDirectory::write_entry(const Root& root, const CacheKey& key, std::span<const std::byte> bytes) {
  const EntryName name(key.digest());
  const AliasName alias(key.digest_without_compiler(), key.compiler);
  auto subdirectory = [&](int parent, const char* child, int& error) {
    errno = 0;
    TrustedDirectory opened = open_trusted_subdirectory(parent, child, /*create=*/true, trust_);
    error = opened.fd ? 0 : errno ? errno : EACCES;
    return std::move(opened.fd);
  };
  int error = 0;
  const Fd tmp = subdirectory(root->get(), "tmp", error);
  if (!tmp) return error;
  const std::string temp = fmt::format("{}.{}.{}", name.hex.substr(0, 16), getpid(), temp_number++);
  struct Temp {  // removed on every way out
    const Fd& directory;
    std::vector<std::string> names;
    ~Temp() {
      for (const std::string& each : names) unlinkat(directory.get(), each.c_str(), 0);
    }
  } temps{tmp, {}};

  step("create");
  const Fd file(openat(tmp.get(), temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return errno;
  temps.names.push_back(temp);
  step("write");
  if (hooks_.step) {  // in two parts, so that a test can die between them
    if ((error = write_all(file.get(), bytes.first(bytes.size() / 2)))) return error;
    step("write the rest");
    bytes = bytes.subspan(bytes.size() / 2);
  }
  if ((error = write_all(file.get(), bytes))) return error;
  step("sync");
  if (fdatasync(file.get()) != 0 && errno != EINVAL && errno != ENOSYS) return errno;

  struct stat info {};
  fstat(file.get(), &info);
  step("index");  // before the entry appears: an extra record is harmless, but an entry without a record is not bounded
  const IndexItem item{static_cast<std::uint64_t>(info.st_size), std::time(nullptr), field_hashes(key)};
  index_.append(root->get(), name.digest, item);  // no index yet: maintain() makes it

  // The second name comes first. If the process dies between the two, the next publish of this key completes the entry.
  step("alias");
  if (const Fd any = subdirectory(root->get(), "any", error)) {
    if (const Fd shard = subdirectory(any.get(), alias.shard.c_str(), error)) {
      const std::string link = temp + ".any";
      if (linkat(tmp.get(), temp.c_str(), tmp.get(), link.c_str(), 0) == 0) {
        temps.names.push_back(link);
        step("rename alias");
        renameat(tmp.get(), link.c_str(), shard.get(), alias.file.c_str());
      }
    }
  }
  step("rename");
  const Fd shard = subdirectory(root->get(), name.shard.c_str(), error);
  if (!shard) return error;
  if (renameat(tmp.get(), temp.c_str(), shard.get(), name.file.c_str()) != 0) return errno;
  step("keep the bounds");
  return 0;
}

}  // namespace kernelwright
