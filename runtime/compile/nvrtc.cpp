#include "kernelwright/runtime/compile/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/compile/elf_file.h"
#include "kernelwright/runtime/compile/nvrtc_functions.h"
#include "kernelwright/runtime/compile/nvrtc_path.h"
#include "kernelwright/runtime/process/interrupt.h"
#include "kernelwright/runtime/process/own_thread.h"

namespace kernelwright {
namespace {

constexpr int kOldestVersion = 12080;
// The stack that the compiler gets, and the least that is accepted where no thread can be started.
constexpr std::size_t kStackBytes = std::size_t{12} << 20, kLeastStackBytes = std::size_t{4} << 20;
static_assert(kStackBytes < OwnThread::kStackBytes);
// NVRTC makes statics of its own, and registers their destructors, in its first compiles for an architecture.
constexpr int kCompilesThatRegister = 64;

std::atomic<bool> opened = false;  // some NVRTC of this process
std::atomic<bool> forked = false;  // after that

void watch_for_fork() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forked = opened.load(); }); });
}

void refuse_after_fork() {
  if (forked)
    throw CompileError(
        "this process was forked from one that had used NVRTC, and a compile in it may hang; start the "
        "child with exec, or compile before the fork");
}

constexpr std::string_view kWhatWouldDo =
    "install the CUDA toolkit or the PyPI wheel nvidia-cuda-nvrtc, or set $KERNELWRIGHT_NVRTC to the library or its "
    "folder";

/// Opens `path` for ever, because the library's threads and exit handlers outlive us. A file whose headers show that it
/// is broken is not opened. The loader looks up a bare name. Throws MissingError.
void* open_library(const std::string& path) {
  if (path.find('/') != std::string::npos)
    if (const std::string fault = library_fault(path); !fault.empty())
      throw MissingError(fmt::format("no NVRTC: {} {}; {}", path, fault, kWhatWouldDo));
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    throw MissingError(
        fmt::format("no NVRTC: {} cannot be opened: {}; {}", path, reason ? reason : "unknown reason", kWhatWouldDo));
  }
  return library;
}

std::string folder_with_slash(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

/// Opens the builtins library that lies beside NVRTC. NVRTC itself opens it by its name alone. The loader finds that
/// name only if a toolkit is in its cache, or if a library of that name is open already. `inside`: any address in
/// NVRTC.
void open_builtins(const void* inside, const std::string& nvrtc_path, int major, int minor) {
  const std::string name = fmt::format("libnvrtc-builtins.so.{}.{}", major, minor);
  Dl_info info{};
  const std::string loaded = dladdr(inside, &info) != 0 && info.dli_fname ? info.dli_fname : "";
  for (const std::string& path : {nvrtc_path, loaded}) {
    std::array<char, PATH_MAX> real{};  // first: the cache's keys are made from it
    for (const std::string& folder :
         {folder_with_slash(realpath(path.c_str(), real.data()) ? real.data() : ""), folder_with_slash(path)})
      if (!folder.empty() && access((folder + name).c_str(), F_OK) == 0) {
        open_library(folder + name);
        return;
      }
  }
  if (!dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))
    throw MissingError(fmt::format("no NVRTC: {} needs {}, which neither lies beside it nor is known to the loader; {}",
                                   loaded.empty() ? nvrtc_path : loaded, name, kWhatWouldDo));
}

}  // namespace

std::string nvrtc_version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

#define KERNELWRIGHT_NVRTC_CALLS(X) \
  X(nvrtcVersion)                   \
  X(nvrtcGetErrorString)            \
  X(nvrtcCreateProgram)             \
  X(nvrtcDestroyProgram)            \
  X(nvrtcCompileProgram)            \
  X(nvrtcGetProgramLogSize)         \
  X(nvrtcGetProgramLog)             \
  X(nvrtcGetCUBINSize)              \
  X(nvrtcGetCUBIN)                  \
  X(nvrtcGetPTXSize)                \
  X(nvrtcGetPTX)
struct Nvrtc::Calls {
#define KERNELWRIGHT_NVRTC_MEMBER(call) nvrtc::call* call = nullptr;
  KERNELWRIGHT_NVRTC_CALLS(KERNELWRIGHT_NVRTC_MEMBER)
#undef KERNELWRIGHT_NVRTC_MEMBER
  nvrtc::nvrtcSetFlowCallback* set_flow_callback = nullptr;  // null: too old for it
};

Nvrtc::Nvrtc(std::string path) : path_(std::move(path)), calls_(std::make_unique<Calls>()) {}
Nvrtc::~Nvrtc() = default;

void Nvrtc::open() {
  refuse_after_fork();
  if (ready_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  if (ready_) return;
  if (path_.empty())
    throw MissingError(
        fmt::format("no NVRTC: neither libnvrtc.so.13 nor libnvrtc.so.12 is in {}; {}", nvrtc_places(), kWhatWouldDo));
  watch_for_fork();
  const bool was_opened = opened.exchange(true);  // set before the call: a fork may come while it opens
  void* library = nullptr;
  try {
    library = open_library(path_);
  } catch (...) {
    if (!was_opened) opened = false;
    throw;
  }
  const char* missing = nullptr;
#define KERNELWRIGHT_NVRTC_FIND(call)                                   \
  calls_->call = reinterpret_cast<nvrtc::call*>(dlsym(library, #call)); \
  if (!calls_->call && !missing) missing = #call;
  KERNELWRIGHT_NVRTC_CALLS(KERNELWRIGHT_NVRTC_FIND)
#undef KERNELWRIGHT_NVRTC_FIND
#undef KERNELWRIGHT_NVRTC_CALLS
  calls_->set_flow_callback = reinterpret_cast<nvrtc::nvrtcSetFlowCallback*>(dlsym(library, "nvrtcSetFlowCallback"));
  if (missing) throw MissingError(fmt::format("{} is not an NVRTC that we can use: it has no {}", path_, missing));
  int major = 0, minor = 0;
  calls_->nvrtcVersion(&major, &minor);
  version_ = major * 1000 + minor * 10;
  if (version_ < kOldestVersion)
    throw MissingError(fmt::format("{} is NVRTC {}; {} or newer is needed", path_, nvrtc_version_text(version_),
                                   nvrtc_version_text(kOldestVersion)));
  open_builtins(reinterpret_cast<const void*>(calls_->nvrtcVersion), path_, major, minor);
  ready_.store(true, std::memory_order_release);
}

namespace {

/// NVRTC calls it, on any thread of its own, to ask whether to give up. `stop` belongs to the InterruptScope.
int gives_up(void* stop, void*) {
  static std::atomic<int> asked{0};
  if (asked.fetch_add(1, std::memory_order_relaxed) < 64 * kCompilesThatRegister) hold_exit_ahead_of_handlers();
  return process_is_ending() || (stop && *static_cast<const std::atomic<bool>*>(stop));
}

/// Runs `work` on a stack that is large enough for NVRTC, while exit() waits for it.
template <class Work>
auto compiling(const CompileRequest& request, Work&& work) {
  refuse_after_fork();  // before it starts a thread in such a process
  const std::atomic<bool>* const stop = InterruptScope::current();
  const std::string what = request.what();
  // Besides its stack, a thread takes a heap and thread-local data of its own. If address space is limited, the loader
  // may find no room for thread-local data, and then ends the process. There, a caller's stack that is large enough is
  // better.
  rlimit space{};
  const bool counted = getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
  try {
    return with_stack(counted ? kLeastStackBytes : kStackBytes, kLeastStackBytes, [&] {
      const InterruptScope scope(stop);
      const ExitHold hold;
      refuse_if_interrupted(what);
      return work();
    });
  } catch (const std::system_error& error) {
    throw MissingError(
        fmt::format("{}: no thread could be started for the compiler ({}); a limit on threads, memory or "
                    "address space is in the way (ulimit -u, -v)",
                    what, error.code().message()));
  }
}

}  // namespace

/// One program of NVRTC, destroyed on every way out.
class NvrtcProgram {
 public:
  NvrtcProgram(const Nvrtc::Calls& nvrtc, const CompileRequest& request) : nvrtc_(nvrtc), request_(request) {
    std::vector<const char*> names, bodies;
    for (const auto& [name, text] : request.headers) {
      names.push_back(name.c_str());
      bodies.push_back(text.c_str());
    }
    const std::string name = request.kernel + ".cu";
    check(nvrtc_.nvrtcCreateProgram(&program_, request.source.c_str(), name.c_str(), static_cast<int>(names.size()),
                                    bodies.data(), names.data()),
          "nvrtcCreateProgram");
  }
  ~NvrtcProgram() {
    if (program_) nvrtc_.nvrtcDestroyProgram(&program_);
  }
  NvrtcProgram(const NvrtcProgram&) = delete;

  nvrtc::Result compile(const std::vector<std::string>& options) {
    std::vector<const char*> words;
    for (const std::string& option : options) words.push_back(option.c_str());
    void* const stop = const_cast<std::atomic<bool>*>(InterruptScope::current());
    if (nvrtc_.set_flow_callback) nvrtc_.set_flow_callback(program_, gives_up, stop);
    hold_exit_ahead_of_handlers();
    const nvrtc::Result result = nvrtc_.nvrtcCompileProgram(program_, static_cast<int>(words.size()), words.data());
    if (result != nvrtc::kSuccess) refuse_if_interrupted(request_.kernel);
    return result;
  }
  std::string log() {
    std::string text = read(nvrtc_.nvrtcGetProgramLogSize, nvrtc_.nvrtcGetProgramLog, "nvrtcGetProgramLog");
    text.resize(std::min(text.find('\0'), text.size()));
    return text;
  }
  std::string ptx() {
    std::string text = read(nvrtc_.nvrtcGetPTXSize, nvrtc_.nvrtcGetPTX, "nvrtcGetPTX");
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }
  std::string cubin() { return read(nvrtc_.nvrtcGetCUBINSize, nvrtc_.nvrtcGetCUBIN, "nvrtcGetCUBIN"); }

 private:
  void check(nvrtc::Result result, const char* call) const {
    if (result != nvrtc::kSuccess)
      throw CompileError(fmt::format("{} failed: {}", call, nvrtc_.nvrtcGetErrorString(result)));
  }
  template <class Size, class Get>
  std::string read(Size size_of, Get get, const char* call) {
    std::size_t size = 0;
    check(size_of(program_, &size), call);
    std::string bytes(size, '\0');
    if (size) check(get(program_, bytes.data()), call);
    return bytes;
  }

  const Nvrtc::Calls& nvrtc_;
  const CompileRequest& request_;
  nvrtc::ProgramHandle program_ = nullptr;
};

namespace {

/// 12.8 knows neither of these options. It has no cache on disk to turn off. Without a seed, its builds of a kernel
/// with statics may differ from process to process. (13.0 without a seed puts the process id into their names.)
bool is_unknown_to_12_8(const std::string& option) {
  return option == "--no-cache" || option.starts_with("--frandom-seed=");
}

std::vector<std::string> options_for(int version, const CompileRequest& request) {
  std::vector<std::string> options = request.options;
  if (version < 12090) std::erase_if(options, is_unknown_to_12_8);
  return options;
}

}  // namespace

int Nvrtc::version() {
  open();
  return version_;
}

CompileAnswer Nvrtc::compile(const CompileRequest& request) {
  return compiling(request, [&] {
    open();
    CompileAnswer answer;
    answer.version = version_;
    const auto begin = std::chrono::steady_clock::now();
    NvrtcProgram program(*calls_, request);
    const nvrtc::Result result = program.compile(options_for(version_, request));
    answer.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    answer.result = calls_->nvrtcGetErrorString(result);
    answer.log = program.log();
    answer.compiled = result == nvrtc::kSuccess;
    if (answer.compiled) {
      if (request.machine_code) answer.cubin = program.cubin();
      answer.ptx = program.ptx();
    }
    return answer;
  });
}

}  // namespace kernelwright
