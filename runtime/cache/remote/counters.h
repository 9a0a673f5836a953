/// What a remote cache was asked, and how it answered.
#pragma once

#include <cstdint>
#include <string>

namespace kernelwright {

struct RemoteCounters {
  std::uint64_t hits = 0, misses = 0;
  std::uint64_t failures = 0;  // operations without an answer, or refused ones
  std::uint64_t rejected = 0;  // values that are no envelope of the key, or not signed by a trusted key
  std::uint64_t skipped = 0;   // operations that the breaker kept from the server
  std::uint64_t writes = 0, write_failures = 0;
  std::uint64_t dropped = 0;  // binaries that were not sent: the queue was full, they were too large, or time was over
  std::uint64_t lease_waits = 0;  // another host compiled the key, and was waited for
};

/// What a remote cache has proved.
struct RemoteProbe {
  std::string server;       // its address, without credentials
  bool read = false;        // it answered a get
  bool wrote = false;       // it took a value, which came back whole and signed by a trusted key
  std::string fault;        // what failed; "": nothing did
  double milliseconds = 0;  // of one get
};

}  // namespace kernelwright
