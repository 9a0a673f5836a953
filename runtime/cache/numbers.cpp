#include "kernelwright/runtime/cache/numbers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <thread>

#include "kernelwright/generator/digest.h"

namespace kernelwright {
namespace {

constexpr std::string_view kHead = "kernelwright numbers 1\n";
constexpr std::string_view kCheck = "check ";
constexpr std::size_t kCheckDigits = 16, kMostBytes = 16 << 10, kMostName = 64;

std::string check_of(std::string_view text) { return sha256(text).hex().substr(0, kCheckDigits); }

/// Returns false if `text` is no such file.
bool parse(std::string_view text, Numbers& numbers) {
  const std::size_t tail = kCheck.size() + kCheckDigits + 1;
  if (!text.starts_with(kHead) || text.size() < kHead.size() + tail || text.back() != '\n') return false;
  const std::string_view body = text.substr(0, text.size() - tail), check = text.substr(body.size());
  if (!check.starts_with(kCheck) || check.substr(kCheck.size(), kCheckDigits) != check_of(body)) return false;
  for (std::size_t at = kHead.size(); at < body.size();) {
    const std::size_t end = body.find('\n', at);
    if (end == std::string_view::npos) return false;
    const std::string_view line = body.substr(at, end - at);
    const std::size_t space = line.find(' ');
    if (space == 0 || space > kMostName) return false;
    std::uint64_t value = 0;
    const char* const last = line.data() + line.size();
    const auto [stop, fault] = std::from_chars(line.data() + space + 1, last, value);
    if (fault != std::errc() || stop != last || !numbers.emplace(line.substr(0, space), value).second) return false;
    at = end + 1;
  }
  return true;
}

/// The lock of a directory, while it is held. It is a flock on a descriptor of our own, so that threads exclude each
/// other too.
class DirectoryLock {
 public:
  DirectoryLock(int directory, int patience_ms) : fd_(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    for (int waited = 0; fd_; ++waited) {
      if (flock(fd_.get(), LOCK_EX | LOCK_NB) == 0) {
        held_ = free_ = true;
        return;
      }
      if (errno != EWOULDBLOCK && errno != EINTR) {  // flock does not work here: go on without, as a lost addition is
                                                     // better than none
        free_ = true;
        return;
      }
      if (waited >= patience_ms) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // Unlocks, instead of leaving it to close(): a child that was forked meanwhile has the same open file, and would go
  // on holding the lock.
  ~DirectoryLock() {
    if (held_) flock(fd_.get(), LOCK_UN);
  }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  bool free() const { return free_; }

 private:
  Fd fd_;
  bool held_ = false, free_ = false;
};

}  // namespace

NumbersFile read_numbers(int directory, const std::string& name, Trust trust) {
  const FileBytes file = read_trusted_file(directory, name, trust, kMostBytes);
  NumbersFile found;
  if (file.status == FileBytes::Status::kAbsent) return found;
  if (file.status != FileBytes::Status::kRead) {
    found.fault = file.reason;
    return found;
  }
  if (!parse({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()}, found.numbers))
    found = {.numbers = {}, .fault = "is damaged"};
  return found;
}

int write_numbers(int directory, const std::string& name, const Numbers& numbers) {
  static std::atomic<std::uint64_t> number{0};
  std::string text(kHead);
  for (const auto& [key, value] : numbers) text += fmt::format("{} {}\n", key, value);
  text += fmt::format("{}{}\n", kCheck, check_of(text));
  // In tmp/: files that a killed process leaves there are removed in time.
  if (mkdirat(directory, "tmp", 0700) != 0 && errno != EEXIST) return errno;
  const std::string temp = fmt::format("tmp/{}.{}.{}", name, getpid(), number++);
  int error = 0;
  {
    const Fd file(openat(directory, temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) return errno;
    error = write_all(file.get(), std::as_bytes(std::span(text)));
  }
  if (error == 0 && renameat(directory, temp.c_str(), directory, name.c_str()) != 0) error = errno;
  if (error != 0) unlinkat(directory, temp.c_str(), 0);
  return error;
}

bool add_numbers(int directory, const std::string& name, Trust trust, const Numbers& added, const Numbers& first,
                 int patience_ms) {
  const DirectoryLock lock(directory, patience_ms);
  if (!lock.free()) return false;
  Numbers numbers = read_numbers(directory, name, trust).numbers;
  if (numbers.empty()) numbers = first;
  for (const auto& [key, value] : added) {
    std::uint64_t& sum = numbers[key];
    if (__builtin_add_overflow(sum, value, &sum)) sum = ~std::uint64_t{0};
  }
  return write_numbers(directory, name, numbers) == 0;
}

}  // namespace kernelwright
