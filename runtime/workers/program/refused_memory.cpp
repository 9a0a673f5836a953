// Replaces the C library's allocation functions in kernelwright-cc, and leaves their work to the C library. The loader
// binds NVRTC to them, because the program comes before its libraries. The C++ library allocates through them as well.
// They run in any thread, and also while memory is short, so they allocate nothing.
#include "kernelwright/runtime/workers/program/refused_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <string_view>

namespace kernelwright {
namespace {

std::atomic<std::uint64_t> first_refused{0};

}  // namespace

std::uint64_t refused_bytes() { return first_refused.load(std::memory_order_relaxed); }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a sanitizer replaces them itself
namespace {

/// `memory` as an allocation of `bytes` returned it. If NVRTC crashes of the first refusal, standard error has the
/// cause.
void* noted(void* memory, std::size_t bytes) {
  std::uint64_t none = 0;
  if (memory || !bytes || !first_refused.compare_exchange_strong(none, bytes, std::memory_order_relaxed)) return memory;
  std::array<char, 64> text{};
  char* end = std::to_chars(text.data(), text.data() + 20, bytes).ptr;
  constexpr std::string_view kWords = " bytes of memory were refused\n";
  end = std::copy(kWords.begin(), kWords.end(), end);
  const int before = errno;
  (void)!write(STDERR_FILENO, text.data(), static_cast<std::size_t>(end - text.data()));
  errno = before;
  return memory;
}

void* map(void* where, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
  auto* memory = reinterpret_cast<void*>(syscall(SYS_mmap, where, bytes, protection, flags, fd, offset));
  if (memory == MAP_FAILED && errno == ENOMEM) noted(nullptr, bytes);
  return memory;
}

}  // namespace
#endif

}  // namespace kernelwright

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {

// glibc's own names of its functions.
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);

#define KERNELWRIGHT_SEEN_BY_LIBRARIES __attribute__((visibility("default")))

KERNELWRIGHT_SEEN_BY_LIBRARIES void* malloc(std::size_t bytes) noexcept {
  return kernelwright::noted(__libc_malloc(bytes), bytes);
}
KERNELWRIGHT_SEEN_BY_LIBRARIES void* calloc(std::size_t count, std::size_t bytes) noexcept {
  return kernelwright::noted(__libc_calloc(count, bytes), count ? bytes : 0);
}
KERNELWRIGHT_SEEN_BY_LIBRARIES void* realloc(void* memory, std::size_t bytes) noexcept {
  return kernelwright::noted(__libc_realloc(memory, bytes), bytes);
}
KERNELWRIGHT_SEEN_BY_LIBRARIES void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  return kernelwright::noted(__libc_memalign(alignment, bytes), bytes);
}
KERNELWRIGHT_SEEN_BY_LIBRARIES void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  return kernelwright::noted(__libc_memalign(alignment, bytes), bytes);
}
KERNELWRIGHT_SEEN_BY_LIBRARIES int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  if (alignment % sizeof(void*) != 0 || alignment == 0 || (alignment & (alignment - 1)) != 0) return EINVAL;
  const int before = errno;  // the standard lets this function leave errno alone
  void* const made = kernelwright::noted(__libc_memalign(alignment, bytes), bytes);
  errno = before;
  if (!made && bytes) return ENOMEM;
  *memory = made;
  return 0;
}
KERNELWRIGHT_SEEN_BY_LIBRARIES void* mmap(void* where, std::size_t bytes, int protection, int flags, int fd,
                                          off_t offset) noexcept {
  return kernelwright::map(where, bytes, protection, flags, fd, offset);
}
KERNELWRIGHT_SEEN_BY_LIBRARIES void* mmap64(void* where, std::size_t bytes, int protection, int flags, int fd,
                                            off_t offset) noexcept {
  return kernelwright::map(where, bytes, protection, flags, fd, offset);
}

}  // extern "C"
#endif
