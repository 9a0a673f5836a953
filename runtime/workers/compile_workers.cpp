#include "kernelwright/runtime/workers/compile_workers.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/compile/nvrtc.h"
#include "kernelwright/runtime/process/fork_guard.h"
#include "kernelwright/runtime/process/interrupt.h"
#include "kernelwright/runtime/process/own_thread.h"
#include "kernelwright/runtime/workers/host_slots.h"

namespace kernelwright {
namespace {

using Clock = std::chrono::steady_clock;
using Child = std::shared_ptr<WorkerChild>;

constexpr std::size_t kReaperStackBytes = std::size_t{256} << 10;

/// NVRTC does not even load with 16 MiB, and says that its file is missing.
constexpr std::uint64_t kLeastMemoryBytes = std::uint64_t{64} << 20;

CompileWorkerOptions checked(CompileWorkerOptions options) {
  if (options.time_limit_ms < 1)
    throw ConfigError("/compile_time_limit_ms",
                      fmt::format("{} is not a time; write 1 or more milliseconds", options.time_limit_ms));
  if (options.memory_bytes != 0 && options.memory_bytes < kLeastMemoryBytes)
    throw ConfigError("/compile_memory_bytes",
                      fmt::format("{} is less than NVRTC takes without any kernel; write {} ({} MiB) or more",
                                  options.memory_bytes, kLeastMemoryBytes, kLeastMemoryBytes >> 20));
  return options;
}

/// The first line of a log that is not blank.
std::string_view first_line(std::string_view log) {
  const std::size_t from = std::min(log.find_first_not_of("\n "), log.size());
  return log.substr(from, log.find('\n', from) - from);
}

constexpr std::string_view kOutOfMemory = "NVRTC_ERROR_OUT_OF_MEMORY";

/// What a compile without enough memory reports. `limit`: of the worker, in bytes; 0: it has none.
std::string memory_fault(const WorkerAnswer& worker, std::uint64_t limit) {
  std::string text = limit ? fmt::format("the compile worker met its memory limit of {} MiB", limit >> 20)
                           : std::string("the compile worker got no more memory from the system");
  if (worker.refused_bytes) text += fmt::format(": {} bytes were refused", worker.refused_bytes);
  text += "; NVRTC says " + worker.answer.result;
  if (const std::string_view line = first_line(worker.answer.log); !line.empty()) text += fmt::format(": {}", line);
  return text;
}

}  // namespace

struct CompileWorkers::Impl {
  Impl(std::string path, CompileWorkerOptions given, EventSink told)
      : nvrtc_path(std::move(path)),
        options(checked(std::move(given))),
        where(compile_in(options)),
        sink(std::move(told)),
        limit(options.time_limit_ms),
        slots(options.most_per_host, options.lock_directory),
        here(nvrtc_path) {}
  ~Impl() { stop(); }

  const std::string nvrtc_path;
  const CompileWorkerOptions options;
  const CompileIn where;
  const EventSink sink;
  const std::chrono::milliseconds limit;
  HostSlots slots;
  Nvrtc here;  // where no worker can be started; opens nothing until then

  // In a forked child all processes are the parent's, and the reaper does not exist.
  ForkSafeMutex mutex{[this] {
    for (const std::weak_ptr<WorkerChild>& each : all)
      if (const Child child = each.lock()) child->forget();
    idle.clear();
    all.clear();
    reaper_runs = false;
    reaper.detach();
    wake = Fd();
  }};
  std::vector<Child> idle;                     // guarded by mutex, the longest idle first
  std::list<std::weak_ptr<WorkerChild>> all;   // guarded by mutex; idle and busy ones
  bool reaper_runs = false, stopping = false;  // guarded by mutex
  Fd wake;                                     // an eventfd that ends the reaper's sleep
  OwnThread reaper;
  std::atomic<bool> told_of_fallback{false};
  std::atomic<int> version{0};
  std::atomic<std::uint64_t> started{0}, compiles{0}, failures{0}, recycled{0}, in_process{0};

  Child take();
  void give_back(Child child, std::uint64_t resident_bytes, bool sound);
  void start_reaper();  // with the mutex held
  void reap();
  void stop();
  WorkerChild::Reply ask(Child& child, const std::string& what, MessageKind kind, const std::string& fields);
  void tell(const std::string& name, std::string detail) const {
    if (sink) sink({.kind = EventKind::kCompileWorker, .key = "", .name = name, .detail = std::move(detail)});
  }
  /// take(); null, after one event, if none can be started and the compile may run here.
  Child take_or_fall_back(const std::string& what);
};

Child CompileWorkers::Impl::take() {
  for (;;) {
    Child child;
    {
      std::lock_guard hold(mutex);
      if (idle.empty()) break;
      child = std::move(idle.back());  // the one that was used last: the others may end of idleness
      idle.pop_back();
    }
    if (child->is_idle()) return child;  // else it ended while it was idle, which costs nothing
  }
  const std::string program = find_worker_program(options);
  if (program.empty())
    throw MissingError(
        fmt::format("no compile worker: no kernelwright-cc is at {}; install it there, or set "
                    "$KERNELWRIGHT_CC to it",
                    worker_program_places(options)));
  auto child = std::make_shared<WorkerChild>(WorkerChild::Start{program, nvrtc_path, options.memory_bytes});
  ++started;
  std::lock_guard hold(mutex);
  std::erase_if(all, [](const auto& each) { return each.expired(); });
  all.push_back(child);
  return child;
}

Child CompileWorkers::Impl::take_or_fall_back(const std::string& what) {
  try {
    return take();
  } catch (const MissingError& error) {
    if (where != CompileIn::kAuto) throw;
    ++in_process;
    if (!told_of_fallback.exchange(true)) tell(what, fmt::format("{}; kernels compile in this process", error.what()));
    return nullptr;
  }
}

void CompileWorkers::Impl::give_back(Child child, std::uint64_t resident_bytes, bool sound) {
  ++child->compiles;
  if (!sound || child->compiles >= options.recycle_after || resident_bytes >= options.recycle_bytes) {
    ++recycled;
    return;  // its destructor ends it
  }
  child->idle = Clock::now();
  std::lock_guard hold(mutex);
  if (stopping) return;
  idle.push_back(std::move(child));
  if (!reaper_runs) start_reaper();
}

void CompileWorkers::Impl::start_reaper() {
  reaper.join();  // it has ended, or ends now: it cleared reaper_runs
  wake = Fd(eventfd(0, EFD_CLOEXEC));
  try {
    reaper = OwnThread([this] { reap(); }, kReaperStackBytes);
    reaper_runs = true;
  } catch (const std::exception&) {  // without it, idle processes stay until the next compile or the end
  }
}

/// Ends idle processes, and itself with the last of them.
void CompileWorkers::Impl::reap() {
  const auto longest = std::chrono::milliseconds(options.idle_ms);
  for (;;) {
    std::vector<Child> old;  // end without the lock
    int sleep_ms = 0;
    {
      std::lock_guard hold(mutex);
      const auto now = Clock::now();
      const auto young = std::find_if(idle.begin(), idle.end(), [&](const Child& child) {
        return child->idle + longest > now && child->is_idle();
      });
      old.assign(std::move_iterator(idle.begin()), std::move_iterator(young));
      idle.erase(idle.begin(), young);
      if (idle.empty() || stopping) {
        reaper_runs = false;
        return;
      }
      sleep_ms =
          static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(idle.front()->idle + longest - now).count());
    }
    old.clear();
    pollfd ready{wake.get(), POLLIN, 0};
    poll(&ready, 1, std::max(sleep_ms, 1));
  }
}

void CompileWorkers::Impl::stop() {
  std::vector<Child> ended;
  {
    std::lock_guard hold(mutex);
    stopping = true;
    ended.swap(idle);
    if (wake) eventfd_write(wake.get(), 1);
  }
  reaper.join();
}

WorkerChild::Reply CompileWorkers::Impl::ask(Child& child, const std::string& what, MessageKind kind,
                                             const std::string& fields) {
  try {
    WorkerChild::Reply reply = child->ask(kind, fields, limit, interrupted);
    if (reply.kind == MessageKind::kMissing || reply.kind == MessageKind::kCannotCompile) {
      give_back(std::move(child), 0, /*sound=*/reply.kind == MessageKind::kMissing);
      if (reply.kind == MessageKind::kMissing) throw MissingError(reply.fields);
      throw CompileError(reply.fields);
    }
    return reply;
  } catch (const InterruptedError&) {
    refuse_if_interrupted(what);
    throw;
  } catch (const CompilerFaultError& error) {
    ++failures;
    tell(what, error.what());
    throw;
  }
}

CompileWorkers::CompileWorkers(std::string nvrtc_path, CompileWorkerOptions options, EventSink sink)
    : impl_(std::make_unique<Impl>(std::move(nvrtc_path), std::move(options), std::move(sink))) {}

CompileWorkers::~CompileWorkers() = default;

std::unique_ptr<CompileRoom> CompileWorkers::room() const {
  return std::make_unique<SlotRoom>(impl_->slots, static_cast<int>(std::min<long>(2 * impl_->limit.count(), INT32_MAX)),
                                    interrupted);
}

CompileAnswer CompileWorkers::compile(const CompileRequest& request) {
  const std::string what = request.what();
  refuse_if_interrupted(what);
  Child child = impl_->take_or_fall_back(what);
  if (!child) return impl_->here.compile(request);
  const WorkerChild::Reply reply = impl_->ask(child, what, MessageKind::kCompile, encode(request));
  WorkerAnswer worker;
  const auto fault = [&](const std::string& text) {
    ++impl_->failures;
    impl_->tell(what, text);
    return CompilerFaultError(text);
  };
  if (reply.kind != MessageKind::kAnswer || !decode(reply.fields, worker))
    throw fault("the compile worker was killed, because it sent bytes that are no answer");
  // What NVRTC says after a refused allocation is not to be trusted. It may call the source wrong.
  const bool short_of_memory =
      !worker.answer.compiled && (worker.refused_bytes || worker.answer.result == kOutOfMemory);
  if (short_of_memory) throw fault(memory_fault(worker, impl_->options.memory_bytes));
  ++impl_->compiles;
  // A rejected source leaves NVRTC sound. Any other failure may not, and neither may a refused allocation.
  const bool sound =
      !worker.refused_bytes && (worker.answer.compiled || worker.answer.result == "NVRTC_ERROR_COMPILATION" ||
                                worker.answer.result == "NVRTC_ERROR_INVALID_OPTION");
  impl_->give_back(std::move(child), worker.resident_bytes, sound);
  return std::move(worker.answer);
}

int CompileWorkers::version() {
  if (const int known = impl_->version) return known;
  Child child = impl_->take_or_fall_back("NVRTC");
  if (!child) return impl_->here.version();
  const WorkerChild::Reply reply = impl_->ask(child, "NVRTC", MessageKind::kVersion, "");
  WorkerAnswer worker;
  if (reply.kind != MessageKind::kAnswer || !decode(reply.fields, worker))
    throw MissingError("no compile worker: it sent bytes that are no answer");
  impl_->give_back(std::move(child), worker.resident_bytes, true);
  impl_->version = worker.answer.version;
  return worker.answer.version;
}

CompileWorkerCounters CompileWorkers::counters() const {
  return {impl_->started, impl_->compiles, impl_->failures, impl_->recycled, impl_->in_process};
}

std::unique_ptr<SourceCompiler> make_source_compiler(std::string nvrtc_path, CompileWorkerOptions options,
                                                     EventSink sink) {
  if (compile_in(options) == CompileIn::kProcess) return std::make_unique<Nvrtc>(std::move(nvrtc_path));
  return std::make_unique<CompileWorkers>(std::move(nvrtc_path), std::move(options), std::move(sink));
}

}  // namespace kernelwright
