/// Opens libcuda and fills the table of driver.h.
#include <cuda.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cuda/driver.h"
#include "kernelwright/runtime/process/interrupt.h"

namespace kernelwright {
namespace {

constexpr int kOldestDriver = 11080;  // the version of cuLaunchKernelEx that we call

std::atomic<bool> opened = false;
std::atomic<bool> forked = false;

void watch_for_fork() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forked = opened.load(); }); });
}

std::string version_words(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// Finds entry points. It asks the driver's own table, if there is one, because that returns the form that a version of
/// the API had. Otherwise it takes the exported name.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {
    proc_address_ = reinterpret_cast<ProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  }

  void* find(const char* name, const char* exported_name, int version) const {
    void* entry = nullptr;
    if (proc_address_) {
      CUdriverProcAddressQueryResult status{};
      // Null streams mean the legacy default stream, for callers compiled in any way.
      const CUresult result = proc_address_(name, &entry, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
      if (result == CUDA_SUCCESS && entry) return entry;
    }
    entry = dlsym(library_, exported_name);
    return entry ? entry : dlsym(library_, name);
  }

 private:
  using ProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  void* library_;
  ProcAddress proc_address_ = nullptr;
};

void* open_library(const std::string& path) {
  // Never closed: other libraries of the process may share it, and its threads outlive any handle of ours.
  if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const char* reason = dlerror();
  throw MissingError(
      fmt::format("no NVIDIA driver: {} was not found; kernels compile without it, but running them needs a GPU and "
                  "its driver ({})",
                  path, reason ? reason : "unknown reason"));
}

}  // namespace

std::string Driver::version_text() const { return version_words(version); }

std::string Driver::describe(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS || !name) name = "unknown error";
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS || !text) text = "the driver has no text for it";
  return fmt::format("{} ({}): {}", name, static_cast<int>(result), text);
}

void Driver::fail(CUresult result, const char* call, std::string_view what) const {
  throw DeviceError(fmt::format("{} failed: {}, {}", call, describe(result), what), static_cast<int>(result));
}

std::shared_ptr<const Driver> open_driver(const std::string& path) {
  refuse_after_fork();
  auto driver = std::make_shared<Driver>();
  driver->path = path;
  if (driver->path.empty())
    if (const char* chosen = std::getenv("KERNELWRIGHT_LIBCUDA")) driver->path = chosen;
  if (driver->path.empty()) driver->path = "libcuda.so.1";
  watch_for_fork();
  const Symbols symbols(open_library(driver->path));

#define KERNELWRIGHT_TEXT_OF(name) #name
#define KERNELWRIGHT_EXPORTED_NAME(call) KERNELWRIGHT_TEXT_OF(call)  // after cuda.h's renaming: "cuMemAlloc_v2"
#define KERNELWRIGHT_DRIVER_FIND(call, since, required)                                                       \
  driver->call =                                                                                              \
      reinterpret_cast<decltype(driver->call)>(symbols.find(#call, KERNELWRIGHT_EXPORTED_NAME(call), since)); \
  if (required && !driver->call && !first_missing) first_missing = #call;
  const char* first_missing = nullptr;
  KERNELWRIGHT_DRIVER_CALLS(KERNELWRIGHT_DRIVER_FIND)
#undef KERNELWRIGHT_DRIVER_FIND
#undef KERNELWRIGHT_EXPORTED_NAME
#undef KERNELWRIGHT_TEXT_OF

  if (driver->cuDriverGetVersion) driver->cuDriverGetVersion(&driver->version);
  if (first_missing)
    throw MissingError(fmt::format(
        "the NVIDIA driver is too old: {} supports CUDA {} and has no {}; install a driver for CUDA {} or newer",
        driver->path, version_words(driver->version), first_missing, version_words(kOldestDriver)));
  opened = true;
  hold_exit_ahead_of_handlers();
  return driver;
}

std::shared_ptr<const Driver> shared_driver() {
  static std::mutex mutex;
  static auto& driver = *new std::shared_ptr<const Driver>;  // never destroyed: threads launch while the process exits
  refuse_after_fork();                                       // before the lock: the parent may have held it
  const std::lock_guard lock(mutex);
  if (!driver) driver = open_driver("");
  return driver;
}

bool forked_after_open() noexcept { return forked.load(std::memory_order_relaxed); }

void refuse_after_fork() {
  if (forked_after_open()) [[unlikely]]
    throw DeviceError(
        "this process was forked after CUDA was opened, and CUDA does not survive fork(); start the child "
        "with exec, or fork before the first call",
        static_cast<int>(CUDA_ERROR_NOT_INITIALIZED));
}

std::string driver_version() { return shared_driver()->version_text(); }

}  // namespace kernelwright
