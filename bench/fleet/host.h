/// A host of a fleet that starts: a process that forks its ranks. Each rank is a process with a cache of its own, and
/// the ranks share the host's cache directory and locks, as the ranks of a server do.
#pragma once

#include <string>

namespace kernelwright::fleet {

struct HostOptions {
  int host = 0;             // its number, for the report
  int ranks = 8;            // processes
  int threads = 4;          // of each rank, that ask for kernels at once
  int slots = 8;            // compiles at once on this host
  std::string folder;       // of the host's cache and locks. The locks need a local file system
  std::string workload;     // the kernels, with a sleep for each compile: see read_workload()
  std::string plan;         // instead: a plan for real engines, which compile with NVRTC and load onto the emulator
  std::string remote;       // address of the shared cache; "": there is none
  std::string signing_key;  // "": this host only reads
  std::string public_key;   // that signed what is read
  double begin_s = 0;       // the Unix time at which the ranks start
  double slowdown = 1;      // of compiles: 2 doubles their time
  double retry_s = 5;       // after that a rank whose start failed is started again
  bool without_compiler = false;
};

/// Starts the ranks at `begin_s`, and returns when all have ended. Ranks write lines of JSON to standard output:
///   {"host":0,"rank":1,"compile":"gemm_sm90"}             a compile begins (ends, with a plan)
///   {"host":0,"rank":1,"failed":"..."}                    a start has failed
///   {"host":0,"rank":1,"degraded":"..."}                  a layer of the cache is off, and why
///   {"host":0,"rank":1,"ready_s":1.25}                    all kernels are there, so long after `begin_s`
///   {"host":0,"rank":1,"counters":{...}}                  what the cache did, once standard input is closed
int run_host(const HostOptions& options);

}  // namespace kernelwright::fleet
