#include "kernelwright/runtime/fleet/build_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/source/read_spec.h"
#include "kernelwright/runtime/cache/build_queue.h"
#include "kernelwright/runtime/cache/remote_name.h"
#include "kernelwright/runtime/process/interrupt.h"
#include "kernelwright/runtime/process/own_thread.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Outcome = BuildReport::Outcome;

constexpr milliseconds kSlice{20};
constexpr milliseconds kTellEvery{3'000};  // that a worker is there, which the server forgets after 10 s
constexpr std::uint64_t kMostMemoryBytes = std::uint64_t{64} << 20;  // of binaries that were built: nobody asks again

/// Sleeps for `time`, or until `ends()`.
template <class Ends>
void sleep_unless(milliseconds time, const Ends& ends) {
  for (const auto until = Clock::now() + time; Clock::now() < until && !ends();)
    std::this_thread::sleep_for(std::min(kSlice, time));
}

std::unique_ptr<RemoteLayer> layer_of(const CacheOptions& cache) {
  std::string fault;
  std::unique_ptr<RemoteLayer> layer = RemoteLayer::of_options(cache.remote, cache.sink, fault);
  if (!fault.empty()) throw ConfigError("remote", fault);
  if (!layer)
    throw ConfigError("remote",
                      "names no server; redis://HOST:PORT or redis+unix:///PATH is accepted, also in "
                      "$KERNELWRIGHT_REMOTE");
  if (!layer->transport().runs_scripts())
    throw ConfigError("remote", fmt::format("{} cannot queue requests; a server of Redis or Valkey is accepted",
                                            layer->transport().name()));
  if (!layer->access().writes)
    throw ConfigError("signing_key",
                      "is absent, and other hosts take no binary without a signature; write the file of "
                      "an Ed25519 private key");
  return layer;
}

CompileWorkerOptions in_workers(CompileWorkerOptions options) {
  options.where = CompileIn::kWorkers;
  return options;
}

/// This host's own cache. The queue asks the server and sends to it: a lease of a worker that died would only delay the
/// next one.
CacheOptions local(CacheOptions cache) {
  cache.max_memory_bytes = kMostMemoryBytes;
  cache.remote.off = true;
  return cache;
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kBuilt: return "built";
    case Outcome::kPresent: return "present";
    case Outcome::kRefused: return "refused";
    case Outcome::kFailed: return "failed";
    case Outcome::kLost: return "lost";
  }
  return "?";
}

struct BuildServer::Impl {
  explicit Impl(BuildServerOptions given)
      : options(std::move(given)),
        layer(layer_of(options.cache)),
        queue(*layer),
        store(local(options.cache), options.nvrtc_path, in_workers(options.workers)),
        compiler("NVRTC " + store.compiler().version()) {  // starts a process that compiles, so that a fault shows now
    if (options.archs.empty())
      for (const ArchInfo& info : all_archs()) options.archs.push_back(*from_string<Arch>(info.name));
  }

  BuildServerOptions options;
  const std::unique_ptr<RemoteLayer> layer;
  BuildQueue queue;
  KernelStore store;
  const std::string compiler;

  struct Job {
    TakenRequest request;
    std::string arch;  // of the queue that had it
  };

  std::mutex polling;                          // held by the one idle thread that looks at the queue
  std::mutex mutex;                            // guards what follows, and `options.report`
  std::map<std::string, TakenRequest> active;  // by their tokens
  Clock::time_point last_request = Clock::now();
  std::exception_ptr failure;
  std::atomic<bool> ended{false};  // no further request is taken

  bool cut_off = false;  // guarded by `polling`: the last look at the queue failed
  void tell_change(const RemoteReply& reply);
  /// Waits for a request. Nothing if `ends()`, or if none came in time.
  template <class Ends>
  std::optional<Job> next(const Ends& ends);
  void serve(const Job& job);
  BuildReport answer(const Job& job);
  void keep_leases(const std::atomic<bool>& done);
};

template <class Ends>
std::optional<BuildServer::Impl::Job> BuildServer::Impl::next(const Ends& ends) {
  std::lock_guard one(polling);
  while (!ends()) {
    for (const Arch arch : options.archs) {
      Job job{{}, std::string(to_string(arch))};
      const RemoteReply reply = queue.take(job.arch, milliseconds(options.lease_ms), job.request);
      tell_change(reply);
      if (reply.outcome != RemoteOutcome::kDone) continue;
      std::lock_guard hold(mutex);
      active.emplace(job.request.token, job.request);
      ended = ended || options.once;
      return job;
    }
    sleep_unless(milliseconds(options.poll_ms), ends);
    std::lock_guard hold(mutex);
    if (!active.empty()) last_request = Clock::now();
    if (options.idle_exit_ms > 0 && Clock::now() - last_request >= milliseconds(options.idle_exit_ms)) ended = true;
  }
  return std::nullopt;
}

/// Tells once that requests cannot be taken, and once that they can be again.
void BuildServer::Impl::tell_change(const RemoteReply& reply) {
  const bool failed = reply.outcome == RemoteOutcome::kFailed || reply.outcome == RemoteOutcome::kRefused;
  if (failed == std::exchange(cut_off, failed) || !options.cache.sink) return;
  options.cache.sink(
      {failed ? EventKind::kCacheDegraded : EventKind::kCacheRestored, "", queue.server(),
       fmt::format("remote cache {}: {}{}", queue.server(),
                   failed ? "requests cannot be taken: " : "requests are taken again", failed ? reply.detail : "")});
}

/// Everything in a request is what another host claims. The source, its key and its name are made here.
BuildReport BuildServer::Impl::answer(const Job& job) {
  BuildReport report{.name = job.request.name, .kernel = job.request.kernel, .arch = job.arch};
  const auto refuse = [&](const char* why) {
    report.outcome = Outcome::kRefused, report.detail = why;
    queue.finish(job.request);
    return report;
  };
  const std::optional<Spec> spec = read_spec(job.request.kernel, job.request.spec);
  if (!spec) return refuse("it has no Spec of a kernel of this library");
  const KernelSource source = store.source_of(*spec);
  if (source.unit.arch != job.arch) return refuse("its Spec is for another architecture than its queue");
  if (RemoteName(source.key, /*any_compiler=*/true).text != job.request.name)
    return refuse("its name is not that of the kernel which its Spec makes here");
  std::optional<DecodedEntry> entry;
  if (queue.find(source.key, entry) == RemoteOutcome::kDone) {
    report.outcome = Outcome::kPresent;
  } else {
    const std::shared_ptr<const Binary> binary = store.compile(source);
    if (report.detail = queue.send(source.key, *binary); !report.detail.empty()) {
      report.outcome = Outcome::kLost;  // the request stays this worker's until its lease ends: no retry at once
      return report;
    }
  }
  queue.finish(job.request);
  return report;
}

void BuildServer::Impl::serve(const Job& job) {
  const auto begin = Clock::now();
  BuildReport report{
      .outcome = Outcome::kLost, .name = job.request.name, .kernel = job.request.kernel, .arch = job.arch};
  const auto give_back = [&](const Error& error) {
    report.detail = error.what();
    queue.give_back(job.request);
    ended = true;
  };
  try {
    report = answer(job);
  } catch (const CompileError& error) {
    report.outcome = Outcome::kFailed, report.detail = error.what();
    queue.fail(job.request, error.what());
  } catch (const InterruptedError& error) {
    give_back(error);
  } catch (const MissingError& error) {  // the compiler is gone, for every other request too
    give_back(error);
    std::lock_guard hold(mutex);
    if (!failure) failure = std::current_exception();
  } catch (const std::exception& error) {  // no memory, say. A host that still waits asks again
    report.detail = error.what();
    queue.finish(job.request);
  }
  report.milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  std::lock_guard hold(mutex);
  active.erase(job.request.token);
  last_request = Clock::now();
  if (options.report) options.report(report);
}

/// Until `done`: the requests that are being built stay this worker's, and hosts see that a worker is there.
void BuildServer::Impl::keep_leases(const std::atomic<bool>& done) {
  while (!done) {
    sleep_unless(std::min(milliseconds(options.lease_ms / 3), kTellEvery), [&] { return done.load(); });
    std::vector<TakenRequest> requests;
    {
      std::lock_guard hold(mutex);
      for (const auto& [token, request] : active) requests.push_back(request);
    }
    if (requests.empty() || done) continue;  // an idle thread tells hosts by looking at the queue
    for (const TakenRequest& request : requests) queue.renew(request, milliseconds(options.lease_ms));
    for (const Arch arch : options.archs) queue.announce(std::string(to_string(arch)));
  }
}

BuildServer::BuildServer(BuildServerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
BuildServer::~BuildServer() = default;

const std::string& BuildServer::server() const { return impl_->queue.server(); }
const std::string& BuildServer::compiler() const { return impl_->compiler; }

void BuildServer::run(const std::atomic<bool>& stop, const std::atomic<bool>& abandon) {
  Impl& impl = *impl_;
  std::atomic<bool> done{false};
  OwnThread keeper([&] { impl.keep_leases(done); });
  {
    std::vector<OwnThread> threads;
    for (int i = 0; i < std::max(1, impl.options.jobs); ++i)
      threads.emplace_back([&] {
        const InterruptScope scope(&abandon);
        while (const std::optional<Impl::Job> job = impl.next([&] { return stop || impl.ended; })) impl.serve(*job);
      });
  }
  done = true;
  keeper.join();
  if (impl.failure) std::rethrow_exception(impl.failure);
}

}  // namespace kernelwright
