#include "cli/explain/resources.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>
#include <system_error>

#include "cli/exit_code.h"
#include "cli/terminal.h"
#include "kernelwright/generator/error.h"

namespace kernelwright::cli {
namespace {

constexpr int kCudaOutOfMemory = 2;                 // CUDA_ERROR_OUT_OF_MEMORY
constexpr rlim_t kCompilerBytes = rlim_t{4} << 30;  // address space: far more than NVRTC has ever needed

/// The soft limit; nullopt if there is none.
std::optional<rlim_t> limit_of(__rlimit_resource_t resource) {
  struct rlimit limit {};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

std::string memory_text() {
  if (const auto limit = limit_of(RLIMIT_AS))
    return fmt::format("address space ran out: this process may have {} (ulimit -v); a higher limit would do",
                       size_text(static_cast<double>(*limit)));
  return "memory ran out; a smaller shape, fewer bytes or a larger machine would do";
}

std::optional<std::string> by_number(int error) {
  switch (error) {
    case EMFILE:
      return fmt::format("file descriptors ran out: this process may hold {} (ulimit -n); a higher limit would do",
                         limit_of(RLIMIT_NOFILE).value_or(0));
    case ENFILE: return "file descriptors ran out: the system's table is full (fs.file-max); fewer open files would do";
    case ENOMEM: return memory_text();
    case EAGAIN:  // a thread could not be made: its stack takes address space
      if (limit_of(RLIMIT_AS)) return memory_text();
      return fmt::format("threads ran out: this user may have {} (ulimit -u); a higher limit would do",
                         limit_of(RLIMIT_NPROC).value_or(0));
    default: return std::nullopt;
  }
}

constexpr rlim_t kLeastBytes = rlim_t{256} << 20;  // address space: 190 MB were enough, 160 MB were not

char g_last_words[256];  // prepared in advance, because a signal handler may only write it

}  // namespace

void name_limit_on_abort() {
  if (!limit_of(RLIMIT_AS)) return;
  const auto end =
      fmt::format_to_n(g_last_words, sizeof g_last_words - 1, "kernelwright: aborted; {}\n", memory_text());
  *end.out = '\0';
  struct sigaction action {};
  action.sa_handler = [](int) {
    (void)!::write(STDERR_FILENO, g_last_words, std::strlen(g_last_words));
    ::_exit(kMissing);
  };
  ::sigaction(SIGABRT, &action, nullptr);
}

void require_address_space() {
  if (const auto limit = limit_of(RLIMIT_AS); limit && *limit < kLeastBytes) throw MissingError(memory_text());
}

std::optional<std::string> exhausted_resource(const std::string& text) {
  for (const int error : {EMFILE, ENFILE, ENOMEM})
    if (text.find(std::strerror(error)) != text.npos) return by_number(error);
  // The words of the dynamic loader and of NVRTC for the same problem.
  for (const char* words : {"failed to map segment from shared object", "NVRTC_ERROR_OUT_OF_MEMORY",
                            "Memory allocation failure", "std::bad_alloc"})
    if (text.find(words) != text.npos) return memory_text();
  return std::nullopt;
}

std::optional<std::string> exhausted_resource(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return memory_text();
  if (const auto* system = dynamic_cast<const std::system_error*>(&error))
    if (auto text = by_number(system->code().value())) return text;
  if (const auto* device = dynamic_cast<const DeviceError*>(&error); device && device->code() == kCudaOutOfMemory)
    return "memory of the device ran out; a smaller shape would do";
  // After a failed allocation NVRTC reports something unrelated: that its builtins are missing, or that PTX is wrong.
  // The library's sources compile if there is enough memory.
  const auto limit = limit_of(RLIMIT_AS);
  if (dynamic_cast<const CompileError*>(&error) && limit && *limit < kCompilerBytes) return memory_text();
  return exhausted_resource(std::string(error.what()));
}

}  // namespace kernelwright::cli
