#include "cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/process/files.h"

namespace kernelwright::cli {

void write_output_file(const std::string& path, std::span<const std::byte> bytes) {
  std::string other = path + ".XXXXXX";
  const Fd file(::mkostemp(other.data(), O_CLOEXEC));
  int error = file ? write_all(file.get(), bytes) : errno;
  // mkostemp() makes files that nobody else can read; a bundle is for servers that run as other users.
  if (error == 0 && (::fchmod(file.get(), 0644) != 0 || ::fsync(file.get()) != 0)) error = errno;
  if (error == 0 && std::rename(other.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  if (file) ::unlink(other.c_str());
  throw ConfigError(path, "cannot be written: " + error_text(error));
}

}  // namespace kernelwright::cli
