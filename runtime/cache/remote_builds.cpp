#include "kernelwright/runtime/cache/remote_builds.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/source/read_spec.h"
#include "kernelwright/runtime/process/interrupt.h"

namespace kernelwright {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstLook{50}, kPause{20};
constexpr milliseconds kAskAgain{
    1'000};  // the server may have lost the request, or a worker may have refused a false one

}  // namespace

RemoteBuilds::RemoteBuilds(const RemoteLayer& layer, EventSink sink, Waits waits)
    : queue_(layer), sink_(std::move(sink)), waits_(waits) {}

bool RemoteBuilds::can_ask(const CacheKey& key) const {
  return !stopped_ && key.compiler.empty() && queue_.works() && read_spec(key.entry_stem, key.spec).has_value();
}

std::vector<std::string> RemoteBuilds::archs_with_workers() {
  std::vector<std::string> found;
  for (const ArchInfo& arch : all_archs())
    if (queue_.works() && queue_.has_worker(std::string(arch.name)).value_or(false)) found.emplace_back(arch.name);
  return found;
}

void RemoteBuilds::tell(EventKind kind, const CacheKey& key, std::string detail) const {
  if (sink_) sink_({kind, key.digest_without_compiler().hex(), key.entry_stem, std::move(detail)});
}

void RemoteBuilds::give_up(const CacheKey& key, const std::string& what, const std::string& why) {
  if (!nobody_.exchange(true))
    tell(EventKind::kCacheDegraded, key,
         fmt::format("remote cache {}: {}; kernels are not built", queue_.server(), why));
  throw MissingError(fmt::format(
      "{}: this host has no compiler, and {} ({}); start \"kernelwright worker\" with that server on a host that has "
      "NVRTC, or install the CUDA toolkit or the PyPI wheel nvidia-cuda-nvrtc here",
      what, why, queue_.server()));
}

DecodedEntry RemoteBuilds::build(const CacheKey& key) {
  const std::string what = key.entry_stem + " for " + key.arch;
  try {
    DecodedEntry entry = wait_for(key, what);
    ++built_;
    if (nobody_.exchange(false))
      tell(EventKind::kCacheRestored, key,
           fmt::format("remote cache {}: workers build kernels again", queue_.server()));
    return entry;
  } catch (const Error&) {
    ++failed_;
    throw;
  }
}

DecodedEntry RemoteBuilds::wait_for(const CacheKey& key, const std::string& what) {
  const Deadline begin = RemoteClock::now();
  Deadline last_seen = begin, next_question = begin;
  bool seen = false;  // a worker, at the last question
  // A host that has waited for a worker once does not wait for one again, for each further kernel.
  const milliseconds patience = nobody_ ? milliseconds(0) : waits_.worker;
  std::minstd_rand random(std::random_device{}());
  for (milliseconds poll = kFirstLook;; poll = std::min(poll * 2, waits_.longest_poll)) {
    if (RemoteClock::now() >= next_question) {
      const RemoteReply posted = queue_.post(key);
      if (posted.outcome == RemoteOutcome::kAbsent) give_up(key, what, "its queue of requests is full");
      if (posted.outcome != RemoteOutcome::kDone) give_up(key, what, "no request can be put there: " + posted.detail);
      if (const std::optional<std::string> reason = queue_.failure(key))
        throw CompileError(fmt::format("{}: a worker of another host says:\n{}", what, *reason));
      seen = queue_.has_worker(key.arch).value_or(false);
      if (seen) last_seen = RemoteClock::now();
      next_question = RemoteClock::now() + kAskAgain;
    }
    std::optional<DecodedEntry> entry;
    if (queue_.find(key, entry) == RemoteOutcome::kDone) return std::move(*entry);
    const Deadline now = RemoteClock::now();
    if (now - begin >= waits_.build)
      give_up(key, what, fmt::format("no worker has built it within {} s", waits_.build.count() / 1000));
    if (!seen && now - last_seen >= patience) give_up(key, what, fmt::format("no worker for {} is there", key.arch));
    std::uniform_real_distribution<double> jitter(0.5, 1.5);
    const Deadline next = now + std::chrono::duration_cast<RemoteClock::duration>(poll * jitter(random));
    while (RemoteClock::now() < std::min({next, begin + waits_.build})) {
      refuse_if_interrupted(what);
      if (stopped_) throw MissingError(what + ": the engine is sealed, and asks no other host any more");
      std::this_thread::sleep_for(kPause);
    }
  }
}

}  // namespace kernelwright
