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

int checked_time_limit(int milliseconds) {
  if (milliseconds >= 1) return milliseconds;
  throw ConfigError("/compile_time_limit_ms",
                    fmt::format("{} is not a time; write 1 or more milliseconds", milliseconds));
}

}  // namespace

struct CompileWorkers::Impl {
  Impl(std::string path, CompileWorkerOptions given, EventSink told)
      : nvrtc_path(std::move(path)),
        options(std::move(given)),
        where(compile_in(options)),
        sink(std::move(told)),
        limit(checked_time_limit(options.time_limit_ms)),
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

CompileAnswer CompileWorkers::compile(const CompileRequest& request) {
  const std::string what = request.what();
  // Twice the time of one compile: a slot whose holder hangs is free after one.
  const HostSlots::Slot slot =
      impl_->slots.acquire(static_cast<int>(std::min<long>(2 * impl_->limit.count(), INT32_MAX)), interrupted);
  refuse_if_interrupted(what);
  Child child = impl_->take_or_fall_back(what);
  if (!child) return impl_->here.compile(request);
  const WorkerChild::Reply reply = impl_->ask(child, what, MessageKind::kCompile, encode(request));
  WorkerAnswer worker;
  if (reply.kind != MessageKind::kAnswer || !decode(reply.fields, worker)) {
    ++impl_->failures;
    const CompilerFaultError error("the compile worker was killed, because it sent bytes that are no answer");
    impl_->tell(what, error.what());
    throw error;
  }
  ++impl_->compiles;
  // A rejected source leaves NVRTC sound. Any other failure may not: too little memory, or a fault inside.
  const bool sound = worker.answer.compiled || worker.answer.result == "NVRTC_ERROR_COMPILATION" ||
                     worker.answer.result == "NVRTC_ERROR_INVALID_OPTION";
  impl_->give_back(std::move(child), worker.resident_bytes, sound);
  if (!sound && impl_->options.memory_bytes)
    worker.answer.result +=
        fmt::format(" (a compile worker may have {} MiB of memory)", impl_->options.memory_bytes >> 20);
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
