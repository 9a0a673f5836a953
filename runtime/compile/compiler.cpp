/// NVRTC, opened at run time.
///
/// Measured facts:
/// - NVRTC runs its C++ front end under a lock of the whole process, and the rest in parallel.
/// - After fork(), a child's compile may hang for ever.
/// - A program that failed still reports a cubin, of zero bytes.
/// - A compile with -G or -Ofc changes the results of later compiles of the process. So neither option is ever passed.
#include "kernelwright/runtime/compile/compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <utility>

#include "contract/attention_params.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/compile/compiler_identity.h"
#include "kernelwright/runtime/compile/elf_file.h"
#include "kernelwright/runtime/compile/failed_sources.h"
#include "kernelwright/runtime/compile/nvrtc_functions.h"
#include "kernelwright/runtime/compile/nvrtc_path.h"
#include "kernelwright/runtime/compile/ptxas_log.h"
#include "kernelwright/runtime/process/interrupt.h"
#include "kernelwright/runtime/process/own_thread.h"

namespace kernelwright {
namespace {

constexpr int kLogLinesInError = 12;
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

std::string version_words(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

struct Compiler::Nvrtc {
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
#define KERNELWRIGHT_NVRTC_MEMBER(call) nvrtc::call* call = nullptr;
  KERNELWRIGHT_NVRTC_CALLS(KERNELWRIGHT_NVRTC_MEMBER)
#undef KERNELWRIGHT_NVRTC_MEMBER
  nvrtc::nvrtcSetFlowCallback* set_flow_callback = nullptr;  // null: too old for it

  std::mutex mutex;  // guards opening
  std::atomic<bool> ready = false;
  int version = 0;  // 13000

  /// Opens the library at `path`, once. A failure is not remembered, because the library may be installed later.
  void open(const std::string& path);
};

void Compiler::Nvrtc::open(const std::string& path) {
  refuse_after_fork();
  if (ready.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex);
  if (ready) return;
  if (path.empty())
    throw MissingError(
        fmt::format("no NVRTC: neither libnvrtc.so.13 nor libnvrtc.so.12 is in {}; {}", nvrtc_places(), kWhatWouldDo));
  watch_for_fork();
  const bool was_opened = opened.exchange(true);  // set before the call: a fork may come while it opens
  void* library = nullptr;
  try {
    library = open_library(path);
  } catch (...) {
    if (!was_opened) opened = false;
    throw;
  }
  const char* missing = nullptr;
#define KERNELWRIGHT_NVRTC_FIND(call)                             \
  call = reinterpret_cast<decltype(call)>(dlsym(library, #call)); \
  if (!call && !missing) missing = #call;
  KERNELWRIGHT_NVRTC_CALLS(KERNELWRIGHT_NVRTC_FIND)
#undef KERNELWRIGHT_NVRTC_FIND
#undef KERNELWRIGHT_NVRTC_CALLS
  set_flow_callback = reinterpret_cast<decltype(set_flow_callback)>(dlsym(library, "nvrtcSetFlowCallback"));
  if (missing) throw MissingError(fmt::format("{} is not an NVRTC that we can use: it has no {}", path, missing));
  int major = 0, minor = 0;
  nvrtcVersion(&major, &minor);
  version = major * 1000 + minor * 10;
  if (version < kOldestVersion)
    throw MissingError(fmt::format("{} is NVRTC {}; {} or newer is needed", path, version_words(version),
                                   version_words(kOldestVersion)));
  open_builtins(reinterpret_cast<const void*>(nvrtcVersion), path, major, minor);
  ready.store(true, std::memory_order_release);
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
auto compiling(const SourceUnit& unit, Work&& work) {
  refuse_after_fork();  // before it starts a thread in such a process
  const std::atomic<bool>* const stop = InterruptScope::current();
  const std::string what = fmt::format("{} for {}", unit.kernel, unit.arch);
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

/// One program of NVRTC, destroyed on every way out.
template <class Nvrtc>
class Program {
 public:
  Program(const Nvrtc& nvrtc, const SourceUnit& unit) : nvrtc_(nvrtc), unit_(unit) {
    std::vector<std::string> texts;  // NVRTC wants them zero-terminated
    std::vector<const char*> names, bodies;
    texts.reserve(unit.headers.size());
    for (const TemplateFile& header : unit.headers) {
      names.push_back(header.path.c_str());
      bodies.push_back(texts.emplace_back(header.text).c_str());
    }
    names.push_back("spec.h");
    bodies.push_back(unit.spec_header.c_str());
    const std::string name = unit.kernel + ".cu";
    check(nvrtc_.nvrtcCreateProgram(&program_, unit.source.c_str(), name.c_str(), static_cast<int>(names.size()),
                                    bodies.data(), names.data()),
          "nvrtcCreateProgram");
  }
  ~Program() {
    if (program_) nvrtc_.nvrtcDestroyProgram(&program_);
  }
  Program(const Program&) = delete;

  nvrtc::Result compile(const std::vector<std::string>& options) {
    std::vector<const char*> words;
    for (const std::string& option : options) words.push_back(option.c_str());
    void* const stop = const_cast<std::atomic<bool>*>(InterruptScope::current());
    if (nvrtc_.set_flow_callback) nvrtc_.set_flow_callback(program_, gives_up, stop);
    hold_exit_ahead_of_handlers();
    const nvrtc::Result result = nvrtc_.nvrtcCompileProgram(program_, static_cast<int>(words.size()), words.data());
    if (result != nvrtc::kSuccess) refuse_if_interrupted(unit_.kernel);
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

  const Nvrtc& nvrtc_;
  const SourceUnit& unit_;
  nvrtc::ProgramHandle program_ = nullptr;
};

/// Keeps the text that a person needs to compile a failed source by hand. Best effort: "" if it could not be written.
std::string keep_source(const std::string& dir, const SourceUnit& unit, const std::string& compiler) noexcept {
  try {
    return keep_failed_source(dir, unit.entry, unit.flattened() + fmt::format("\n// rejected by {}\n", compiler));
  } catch (const std::exception&) {
    return {};
  }
}

/// "NVRTC 13.0 build 9e107d9d372bb682", of the identity "nvrtc:9e107d9d372bb6826bd81d3542a419d6+builtins:...".
std::string name_of_compiler(int version, std::string_view identity) {
  constexpr std::string_view kPrefix = "nvrtc:";
  if (identity.starts_with(kPrefix)) identity.remove_prefix(kPrefix.size());
  return fmt::format("NVRTC {} build {}", version_words(version),
                     identity.substr(0, std::min<std::size_t>(identity.find('+'), 16)));
}

/// 12.8 knows neither of these options. It has no cache on disk to turn off. Without a seed, its builds of a kernel
/// with statics may differ from process to process. (13.0 without a seed puts the process id into their names.)
bool is_unknown_to_12_8(const std::string& option) {
  return option == "--no-cache" || option.starts_with("--frandom-seed=");
}

/// What a failed compile reports about a user's own header: "/problem/mask/file: \"my_mask.cuh\" does not compile:
/// my_mask.cuh(3): error: ...\n", with the log's first error. An error outside of the header may still come from it:
/// from a bracket that it leaves open, or a macro. The text is then "... the kernel around \"my_mask.cuh\" does not
/// compile: ...". "" for a unit without such headers.
std::string user_fault(const SourceUnit& unit, std::string_view log) {
  while (!log.empty()) {
    std::string line(log.substr(0, log.find('\n')));
    log.remove_prefix(std::min(log.size(), line.size() + 1));
    if (line.find("error:") == line.npos) continue;
    for (const UserHeader& source : unit.sources) {
      const std::string name = source.file.empty() ? source.include : source.file;
      const std::size_t at = line.find(source.include + "(");
      const std::string type = "\"" + source.type.substr(source.type.rfind(':') + 1) + "\"";
      if (at == line.npos && line.find(source.subject) == line.npos && line.find(type) == line.npos) continue;
      if (at != line.npos) line.replace(at, source.include.size(), name);
      return fmt::format("{}/{}: \"{}\" does not compile as {}: {}\n", source.field,
                         source.file.empty() ? "text" : "file", name, source.type, line);
    }
    if (unit.sources.empty()) return {};
    const UserHeader& first = unit.sources.front();
    return fmt::format("{}/{}: the kernel around \"{}\" does not compile: {}\n", first.field,
                       first.file.empty() ? "text" : "file", first.file.empty() ? first.include : first.file, line);
  }
  return {};
}

constexpr std::string_view kArchOption = "--gpu-architecture=";

std::vector<std::string> options_for(int version, const SourceUnit& unit) {
  std::vector<std::string> options = unit.options;
  if (version < 12090) std::erase_if(options, is_unknown_to_12_8);
  return options;
}

/// The identity of the compiler at `path`; "" if there is none, or if the headers of its files show that it is broken.
std::string identity_if_whole(const std::string& path) {
  if (path.empty() || !library_fault(path).empty()) return "";
  for (const std::string& builtins : builtins_beside(path))
    if (!library_fault(builtins).empty()) return "";
  return compiler_identity(path).value_or("");
}

bool is_elf(std::string_view bytes) {
  return bytes.starts_with(
      "\x7f"
      "ELF");
}

}  // namespace

Compiler::Compiler(std::string nvrtc_path, std::string failed_source_dir)
    : path_(nvrtc_path.empty() ? find_nvrtc().value_or("") : std::move(nvrtc_path)),
      identity_(identity_if_whole(path_)),
      failed_source_dir_(std::move(failed_source_dir)),
      nvrtc_(std::make_unique<Nvrtc>()) {}

Compiler::~Compiler() = default;

const std::string& Compiler::path() const { return path_; }

std::string Compiler::version() {
  nvrtc_->open(path_);
  return version_words(nvrtc_->version);
}

CacheKey Compiler::key(const SourceUnit& unit) const {
  CacheKey key;
  key.entry_stem = unit.kernel;
  key.spec = unit.spec_text;
  key.closure = unit.closure;
  key.options = unit.options;
  key.arch = unit.arch;
  key.abi = contract::kContractVersion;
  key.compiler = identity_;
  return key;
}

std::string Compiler::compile_with_lines(const SourceUnit& unit) {
  return compiling(unit, [&] { return ptx_with_lines(unit); });
}

Binary Compiler::compile(const SourceUnit& unit) {
  return compiling(unit, [&] { return binary_of(unit); });
}

std::string Compiler::ptx_with_lines(const SourceUnit& unit) {
  nvrtc_->open(path_);
  std::vector<std::string> options = options_for(nvrtc_->version, unit);
  // A virtual architecture: the same front end without ptxas, which takes half of the time.
  for (std::string& option : options)
    if (option.starts_with(kArchOption) && option.compare(kArchOption.size(), 3, "sm_") == 0)
      option.replace(kArchOption.size(), 3, "compute_");
  options.push_back("-lineinfo");
  Program program(*nvrtc_, unit);
  if (program.compile(options) != nvrtc::kSuccess)
    throw CompileError(fmt::format("{}{} for {}, with lines: {}", user_fault(unit, program.log()), unit.kernel,
                                   unit.arch, first_lines(program.log(), kLogLinesInError)));
  return program.ptx();
}

Binary Compiler::binary_of(const SourceUnit& unit) {
  nvrtc_->open(path_);
  const std::string compiler = name_of_compiler(nvrtc_->version, identity_);
  const std::vector<std::string> options = options_for(nvrtc_->version, unit);

  const auto begin = std::chrono::steady_clock::now();
  Program program(*nvrtc_, unit);
  const nvrtc::Result result = program.compile(options);
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - begin;
  const std::string log = program.log();
  std::string cubin;
  if (result == nvrtc::kSuccess) cubin = program.cubin();
  if (result != nvrtc::kSuccess || !is_elf(cubin)) {
    const std::string kept = keep_source(failed_source_dir_, unit, compiler);
    throw CompileError(
        fmt::format(
            "{}{} for {}: {} says {}\n{}\nsource: {}", user_fault(unit, log), unit.kernel, unit.arch, compiler,
            result == nvrtc::kSuccess ? "that it compiled, and gives no cubin" : nvrtc_->nvrtcGetErrorString(result),
            first_lines(log, kLogLinesInError), kept.empty() ? "could not be kept" : kept),
        kept, log);
  }

  PtxasReport report = read_ptxas_log(log, unit.entry);
  Binary binary;
  binary.entry = unit.entry;
  binary.arch = unit.arch;
  const auto* bytes = reinterpret_cast<const std::byte*>(cubin.data());
  binary.cubin.assign(bytes, bytes + cubin.size());
  binary.ptx = program.ptx();
  binary.usage = report.usage;
  binary.warnings = std::move(report.warnings);
  binary.compiler = compiler;
  binary.compile_ms = elapsed.count();
  return binary;
}

}  // namespace kernelwright
