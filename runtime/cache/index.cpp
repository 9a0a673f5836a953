// A record has 88 bytes: digest 32, field hashes 7 x 4, zero 4, bytes 8, seconds 8, check 8. The check is the first
// bytes of a SHA-256 over a salt and the rest. The first record is a mark: a random digest and ~0 bytes. Every rewrite
// makes a new mark, because an inode number may come back. One append is one write. A torn write shifts all records
// behind it. Their checks then fail, and the index is rebuilt.
#include "kernelwright/runtime/cache/index.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "kernelwright/runtime/cache/entry.h"
#include "kernelwright/runtime/process/files.h"

namespace kernelwright {
namespace {

constexpr std::size_t kRecordBytes = 88;
constexpr std::size_t kCheckAt = 80;
constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{256} << 20;
constexpr const char* kIndexName = "index";
constexpr std::uint64_t kMarkBytes = ~std::uint64_t{0};
using Record = std::array<unsigned char, kRecordBytes>;

template <class Int>
void store(unsigned char* at, Int value) {
  for (std::size_t i = 0; i < sizeof(Int); ++i)
    at[i] = static_cast<unsigned char>(static_cast<std::uint64_t>(value) >> (8 * i));
}
template <class Int>
Int load(const unsigned char* at) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < sizeof(Int); ++i) bits |= static_cast<std::uint64_t>(at[i]) << (8 * i);
  return static_cast<Int>(bits);
}

std::uint64_t check_of(const unsigned char* record) {
  DigestBuilder hash;
  hash.field("kernelwright index 1").field({reinterpret_cast<const char*>(record), kCheckAt});
  return load<std::uint64_t>(hash.finish().bytes.data());
}

Record to_record(const Digest& digest, const IndexItem& item) {
  Record record{};
  std::memcpy(record.data(), digest.bytes.data(), 32);
  for (std::size_t i = 0; i < kNumKeyFields; ++i) store(record.data() + 32 + 4 * i, item.fields[i]);
  store(record.data() + 64, item.bytes);
  store(record.data() + 72, item.used_s);
  store(record.data() + kCheckAt, check_of(record.data()));
  return record;
}

bool from_record(const unsigned char* record, Digest& digest, IndexItem& item) {
  if (load<std::uint64_t>(record + kCheckAt) != check_of(record)) return false;
  std::memcpy(digest.bytes.data(), record, 32);
  for (std::size_t i = 0; i < kNumKeyFields; ++i) item.fields[i] = load<std::uint32_t>(record + 32 + 4 * i);
  item.bytes = load<std::uint64_t>(record + 64);
  item.used_s = load<std::int64_t>(record + 72);
  return true;
}

}  // namespace

std::array<std::uint32_t, kNumKeyFields> field_hashes(const CacheKey& key) {
  auto hash = [](auto... values) {
    DigestBuilder builder;
    (builder.field(values), ...);
    return load<std::uint32_t>(builder.finish().bytes.data());
  };
  DigestBuilder options;
  for (const std::string& option : key.options) options.field(option);
  const std::string closure(key.closure.bytes.begin(), key.closure.bytes.end());
  return {hash(std::string_view(key.entry_stem)), hash(std::string_view(key.spec)),
          hash(std::string_view(closure)),        load<std::uint32_t>(options.finish().bytes.data()),
          hash(std::string_view(key.arch)),       hash(static_cast<std::uint64_t>(key.abi)),
          hash(std::string_view(key.compiler))};
}

void RecencyIndex::apply(const Digest& digest, const IndexItem& item) {
  IndexItem& known = items_[digest];
  total_bytes_ += item.bytes - known.bytes;
  const std::int64_t used_s = std::max(known.used_s, item.used_s);
  known = item;
  known.used_s = used_s;
}

int RecencyIndex::append(int directory, const Digest& digest, const IndexItem& item) {
  const Fd file(openat(directory, kIndexName, O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return errno;
  const Record record = to_record(digest, item);
  return write_all(file.get(), std::as_bytes(std::span(record)));
}

bool RecencyIndex::refresh(int directory) {
  std::lock_guard hold(mutex_);
  const Fd file(openat(directory, kIndexName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > kMaxIndexBytes) return false;
  Record first;
  Digest mark;
  IndexItem mark_item;
  if (pread(file.get(), first.data(), first.size(), 0) != static_cast<ssize_t>(first.size()) ||
      !from_record(first.data(), mark, mark_item) || mark_item.bytes != kMarkBytes)
    return false;
  if (mark != mark_ || size < read_bytes_) {  // another process rewrote it
    items_.clear();
    total_bytes_ = 0;
    read_bytes_ = kRecordBytes;
    mark_ = mark;
  }
  std::vector<unsigned char> fresh(size - read_bytes_);
  std::size_t got = 0;
  while (got < fresh.size()) {
    const ssize_t part =
        pread(file.get(), fresh.data() + got, fresh.size() - got, static_cast<off_t>(read_bytes_ + got));
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) return false;
    got += static_cast<std::size_t>(part);
  }
  for (std::size_t at = 0; at < fresh.size(); at += kRecordBytes) {
    Digest digest;
    IndexItem item;
    const bool whole = fresh.size() - at >= kRecordBytes && from_record(fresh.data() + at, digest, item);
    if (!whole || item.bytes > kMaxEntryBytes) {
      mark_ = {};  // read from the start next time
      return false;
    }
    apply(digest, item);
    read_bytes_ += kRecordBytes;
  }
  return true;
}

bool RecencyIndex::rewrite(int directory, IndexItems items) {
  std::string bytes;
  auto add = [&](const Digest& digest, const IndexItem& item) {
    const Record record = to_record(digest, item);
    bytes.append(reinterpret_cast<const char*>(record.data()), record.size());
  };
  Digest mark;
  if (getrandom(mark.bytes.data(), mark.bytes.size(), 0) != static_cast<ssize_t>(mark.bytes.size())) return false;
  add(mark, {.bytes = kMarkBytes});
  for (const auto& [digest, item] : items) add(digest, item);
  const std::string temp = fmt::format("index.{}.{}.tmp", getpid(), static_cast<void*>(&bytes));
  const Fd file(openat(directory, temp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return false;
  if (write_all(file.get(), std::as_bytes(std::span(bytes))) != 0 ||
      renameat(directory, temp.c_str(), directory, kIndexName) != 0) {
    unlinkat(directory, temp.c_str(), 0);
    return false;
  }
  return refresh(directory);
}

IndexItems RecencyIndex::items() const {
  std::lock_guard hold(mutex_);
  return items_;
}

std::uint64_t RecencyIndex::total_bytes() const {
  std::lock_guard hold(mutex_);
  return total_bytes_;
}

std::size_t RecencyIndex::size() const {
  std::lock_guard hold(mutex_);
  return items_.size();
}

bool RecencyIndex::wants_compaction() const {
  std::lock_guard hold(mutex_);
  return read_bytes_ / kRecordBytes > 4 * items_.size() + 1024;
}

}  // namespace kernelwright
