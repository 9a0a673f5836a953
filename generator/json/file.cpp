// Reads a config from a file. The file is judged before it is opened, and the read is bounded.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/message.h"

namespace kernelwright {
namespace {

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "is a directory";
  if (S_ISFIFO(mode)) return "is a FIFO";
  if (S_ISSOCK(mode)) return "is a socket";
  return "is a device";
}

[[noreturn]] void fail(const std::string& path, const std::string& message) {
  throw ConfigError(quoted_for_message(path), message);
}

/// The reason why the last system call failed.
std::string reason() { return std::strerror(errno); }

static_assert(FileNature{}.most_bytes == JsonValue::kMaxBytes);

void check(const std::string& path, const struct stat& status, const FileNature& nature) {
  if (!S_ISREG(status.st_mode)) fail(path, kind_of(status.st_mode) + "; " + nature.name + " is " + nature.is);
  if (static_cast<std::uintmax_t>(status.st_size) > nature.most_bytes)
    fail(path, "is " + std::to_string(status.st_size) + " bytes; " + nature.name + " has at most " +
                   std::to_string(nature.most_bytes));
}

std::string contents(const std::string& path, const FileNature& nature) {
  if (path.find('\0') != path.npos) fail(path, "is no path: it holds a zero byte");
  // The file is checked before it is opened: opening a device can already have an effect, and a FIFO would wait for a
  // writer.
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) fail(path, "cannot be read: " + reason());
  check(path, status, nature);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) fail(path, "cannot be read: " + reason());
  const File file(descriptor);
  if (::fstat(file.get(), &status) != 0) fail(path, "cannot be read: " + reason());
  check(path, status, nature);  // the path may name another file by now
  std::string text(static_cast<std::size_t>(status.st_size) + 1, '\0');
  std::size_t size = 0;
  for (;;) {
    const ssize_t count = ::read(file.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path, "cannot be read: " + reason());
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
    if (size > nature.most_bytes)
      fail(path, std::string("grows while it is read; ") + nature.name + " has at most " +
                     std::to_string(nature.most_bytes) + " bytes");
    if (size == text.size()) text.resize(std::min(2 * size, nature.most_bytes + 1));
  }
  text.resize(size);
  return text;
}

}  // namespace

std::string read_small_file(const std::string& path, const FileNature& nature) { return contents(path, nature); }
Config read_config_file(const std::string& path) {
  return read_config(read_small_file(path), std::filesystem::path(path).parent_path().string());
}

}  // namespace kernelwright
