/// The options of compiles in processes of their own, and their counters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kernelwright {

/// Where NVRTC runs.
enum class CompileIn {
  kProcess,  // in this process
  kWorkers,  // in worker processes; an error where they cannot be started
  kAuto,     // in worker processes; in this process, with an event, where they cannot be started
  kHosts,    // on other hosts, by `kernelwright worker`. An NVRTC of this host is not used
};
/// "process", "workers", "auto", "hosts"
std::string_view to_string(CompileIn where);
/// Throws ConfigError that names `path` and the accepted words.
CompileIn compile_in_of(std::string_view word, const std::string& path);

struct CompileWorkerOptions {
  /// Absent: the word in $KERNELWRIGHT_COMPILE_IN, else kProcess. docs/compile-workers.md says why.
  std::optional<CompileIn> where;
  /// The worker program. "": $KERNELWRIGHT_CC, else kernelwright-cc beside this library or program.
  std::string program;
  /// How long one compile may take, in milliseconds. Its worker is killed then. From 1 on. A host without a compiler
  /// waits as long for a build on another host.
  int time_limit_ms = 120'000;
  /// How many bytes of writable private memory a worker may have (RLIMIT_DATA): 64 MiB or more. 0: no limit.
  std::uint64_t memory_bytes = std::uint64_t{2} << 30;
  /// How many compiles run at once on this host, in all processes of this user. 0: as many as cores, and as many as
  /// free memory has room for.
  int most_per_host = 0;
  /// A worker ends after so many compiles, or once so many bytes stay in its memory.
  int recycle_after = 256;
  std::uint64_t recycle_bytes = std::uint64_t{768} << 20;
  int idle_ms = 10'000;                       // an idle worker ends after that
  std::optional<std::string> lock_directory;  // as CacheOptions::lock_directory
};

/// What the workers of this process did.
struct CompileWorkerCounters {
  std::uint64_t started = 0;     // processes
  std::uint64_t compiles = 0;    // answered, rejected sources included
  std::uint64_t failures = 0;    // workers that ended, hung or sent garbage instead
  std::uint64_t recycled = 0;    // ended after enough compiles, or with too much memory
  std::uint64_t in_process = 0;  // compiles that ran here, because no worker could be started
};

/// `options.where`, or what the environment says. Throws ConfigError for a word that is none.
CompileIn compile_in(const CompileWorkerOptions& options);

/// The worker program's path, or "" if it is in none of its places. Reads the environment anew.
std::string find_worker_program(const CompileWorkerOptions& options);
/// The places that find_worker_program() looks into, for an error message.
std::string worker_program_places(const CompileWorkerOptions& options);

}  // namespace kernelwright
