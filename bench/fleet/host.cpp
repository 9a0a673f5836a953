#include "fleet/host.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "fleet/workload.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/models/plan_file.h"
#include "kernelwright/runtime/cache/cubin_cache.h"
#include "kernelwright/runtime/engine/engine.h"
#include "kernelwright/runtime/store/kernel_store.h"
#include "kernelwright/runtime/workers/host_slots.h"

namespace kernelwright::fleet {
namespace {

using Seconds = std::chrono::duration<double>;

double unix_time_s() { return Seconds(std::chrono::system_clock::now().time_since_epoch()).count(); }

/// How long a compile may wait for a slot: twice the time limit of a compile, as compile workers do.
constexpr int kSlotWaitMs = 240'000;

/// As a text of JSON. Messages here have neither backslashes nor line ends.
std::string quoted(std::string text) {
  std::ranges::replace(text, '"', '\'');
  return '"' + text + '"';
}

/// What a rank's caches did, over all its attempts to start.
struct Totals {
  CacheCounters cache;
  RemoteCounters remote;
  double compile_s = 0;  // of its compiles, without waits
  void add(const CacheCounters& more, const RemoteCounters& more_remote) {
    for (auto field : {&CacheCounters::disk_hits, &CacheCounters::compiles, &CacheCounters::lock_waits,
                       &CacheCounters::lock_timeouts})
      cache.*field += more.*field;
    for (auto field : {&RemoteCounters::hits, &RemoteCounters::misses, &RemoteCounters::failures,
                       &RemoteCounters::rejected, &RemoteCounters::skipped, &RemoteCounters::writes,
                       &RemoteCounters::write_failures, &RemoteCounters::dropped, &RemoteCounters::lease_waits})
      remote.*field += more_remote.*field;
  }
  std::string json() const {
    return fmt::format(
        R"({{"disk_hits":{},"compiles":{},"lock_waits":{},"lock_timeouts":{},"hits":{},"misses":{},"failures":{},)"
        R"("rejected":{},"skipped":{},"writes":{},"write_failures":{},"dropped":{},"lease_waits":{},"compile_s":{:.3f}}})",
        cache.disk_hits, cache.compiles, cache.lock_waits, cache.lock_timeouts, remote.hits, remote.misses,
        remote.failures, remote.rejected, remote.skipped, remote.writes, remote.write_failures, remote.dropped,
        remote.lease_waits, compile_s);
  }
};

/// A store that tells of each compile when it has ended.
class ToldStore final : public KernelStore {
 public:
  using Tell = std::function<void(const Binary&)>;
  ToldStore(CacheOptions cache, CompileWorkerOptions workers, Tell tell)
      : KernelStore(std::move(cache), {}, std::move(workers)), tell_(std::move(tell)) {}

 private:
  Binary build(const SourceUnit& unit) override {
    Binary binary = KernelStore::build(unit);
    tell_(binary);
    return binary;
  }
  const Tell tell_;
};

/// One process of a host.
class Rank {
 public:
  Rank(const HostOptions& host, int number) : host_(host), number_(number) {}

  /// Returns the exit status.
  int simulate(const std::vector<WorkloadKernel>& kernels);
  int run_engine(const std::vector<Config>& configs);

 private:
  /// One write, so that lines of several processes do not mix.
  void say(const std::string& members) const {
    const std::string line = fmt::format("{{\"host\":{},\"rank\":{},{}}}\n", host_.host, number_, members);
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0) _exit(3);
  }
  void say_ready() const { say(fmt::format("\"ready_s\":{:.4f}", unix_time_s() - host_.begin_s)); }
  /// A server would serve now. Its caches send what they have compiled meanwhile.
  static void serve_until_end() {
    for (char byte = 0; read(STDIN_FILENO, &byte, 1) > 0;) {
    }
  }
  std::string locks() const { return host_.folder + "/locks"; }
  CacheOptions cache_options() const;
  CacheKey key_of(const WorkloadKernel& kernel, std::size_t index) const;
  Binary compile(const WorkloadKernel& kernel, std::size_t index);
  /// Returns why a kernel is missing, or "".
  std::string ask_for_all(CubinCache& cache, const std::vector<WorkloadKernel>& kernels);

  const HostOptions& host_;
  const int number_;
  std::optional<HostSlots> slots_;
  std::atomic<double> compile_s_{0};
};

CacheOptions Rank::cache_options() const {
  CacheOptions options{.directory = host_.folder + "/cache"};
  options.lock_directory = locks();
  options.remote = {.address = host_.remote, .keys = {}, .signing_key = host_.signing_key, .allow_unsigned = false};
  if (!host_.public_key.empty()) options.remote.keys = {host_.public_key};
  options.sink = [this](const Event& event) {
    if (event.kind == EventKind::kCacheDegraded) say("\"degraded\":" + quoted(event.detail));
  };
  return options;
}

CacheKey Rank::key_of(const WorkloadKernel& kernel, std::size_t index) const {
  CacheKey key;
  key.entry_stem = kernel.kernel;
  key.spec = fmt::format("simulated = {}\n", index);
  key.closure = sha256("fleet");
  key.options = {"-arch=sm_90a"};
  key.arch = "sm_90a";
  if (!host_.without_compiler) key.compiler = "simulated";
  return key;
}

/// A sleep under a slot of the host, and bytes that do not compress, the same ones on every host.
Binary Rank::compile(const WorkloadKernel& kernel, std::size_t index) {
  if (host_.without_compiler) throw MissingError("no NVRTC on this host");
  say(fmt::format("\"compile\":\"{}\"", kernel.kernel));
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(kernel.compile_ms * host_.slowdown));
  compile_s_ += kernel.compile_ms * host_.slowdown * 1e-3;
  Binary binary;
  binary.entry = fmt::format("{}_{}", kernel.kernel, index);
  binary.arch = "sm_90a";
  std::mt19937 random(static_cast<std::mt19937::result_type>(index));
  binary.cubin.resize(kernel.entry_bytes);
  for (std::byte& each : binary.cubin) each = static_cast<std::byte>(random());
  binary.ptx = "// none";
  binary.compiler = "simulated";
  binary.compile_ms = kernel.compile_ms;
  return binary;
}

std::string Rank::ask_for_all(CubinCache& cache, const std::vector<WorkloadKernel>& kernels) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::string fault;
  std::vector<std::thread> threads;
  for (int i = 0; i < host_.threads; ++i)
    threads.emplace_back([&] {
      for (std::size_t index = next++; index < kernels.size(); index = next++) try {
          const WorkloadKernel& kernel = kernels[index];
          SlotRoom room(*slots_, kSlotWaitMs, {});
          cache.get_or_compile(
              key_of(kernel, index), [&] { return compile(kernel, index); }, nullptr, nullptr, &room);
        } catch (const std::exception& error) {
          std::lock_guard hold(mutex);
          fault = error.what();
        }
    });
  for (std::thread& thread : threads) thread.join();
  return fault;
}

int Rank::simulate(const std::vector<WorkloadKernel>& kernels) {
  slots_.emplace(host_.slots, locks());
  Totals totals;
  for (;;) {
    CubinCache cache(cache_options());
    const std::string fault = ask_for_all(cache, kernels);
    if (fault.empty()) {
      say_ready();
      serve_until_end();
    }
    totals.add(cache.counters(), cache.remote_counters());
    if (fault.empty()) break;
    say("\"failed\":" + quoted(fault));
    std::this_thread::sleep_for(Seconds(host_.retry_s));
  }
  totals.compile_s = compile_s_;
  say(fmt::format("\"counters\":{}", totals.json()));
  return 0;
}

int Rank::run_engine(const std::vector<Config>& configs) {
  CompileWorkerOptions workers;
  workers.where = CompileIn::kWorkers;
  workers.most_per_host = host_.slots;
  workers.lock_directory = locks();
  EngineOptions options;
  options.backend = "emulator";
  options.custom_store = std::make_shared<ToldStore>(cache_options(), workers, [this](const Binary& binary) {
    compile_s_ += binary.compile_ms * 1e-3;
    say("\"compile\":" + quoted(binary.entry));
  });
  options.compile_threads = host_.threads;
  Engine engine(std::move(options));
  for (const Config& config : configs)
    std::visit([&](const auto& of) { engine.prepare(of.problem, of.schedule, {.background = true}); }, config);
  if (!engine.wait_until_ready()) {
    say("\"failed\":\"a kernel did not compile\"");
    return 1;
  }
  say_ready();
  serve_until_end();
  Totals totals;
  totals.add(engine.counters().cache, engine.counters().remote);
  totals.compile_s = compile_s_;
  say(fmt::format("\"counters\":{}", totals.json()));
  return 0;
}

}  // namespace

int run_host(const HostOptions& options) {
  std::vector<Config> configs;
  std::vector<WorkloadKernel> kernels;
  bool is_plan = false;
  if (options.plan.empty())
    kernels = read_workload(options.workload);
  else
    configs = read_config_or_plan_file(options.plan, is_plan);
  mkdir(options.folder.c_str(), 0700);
  mkdir((options.folder + "/locks").c_str(), 0700);
  if (const double wait_s = options.begin_s - unix_time_s(); wait_s > 0) std::this_thread::sleep_for(Seconds(wait_s));
  std::vector<pid_t> ranks;
  for (int number = 0; number < options.ranks; ++number) {
    const pid_t child = fork();
    if (child < 0) throw Error("fork: no more processes; fewer ranks would do");
    if (child == 0) {
      Rank rank(options, number);
      _exit(options.plan.empty() ? rank.simulate(kernels) : rank.run_engine(configs));
    }
    ranks.push_back(child);
  }
  int worst = 0;
  for (const pid_t rank : ranks) {
    int status = 0;
    waitpid(rank, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}

}  // namespace kernelwright::fleet
