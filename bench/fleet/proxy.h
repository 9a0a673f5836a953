/// A TCP proxy that is as slow as a network: all connections share one rate, and every byte has a latency. It models
/// the link of the server: each direction has the rate to itself, and connections take turns.
#pragma once

namespace kernelwright::fleet {

struct ProxyOptions {
  int listen = 0;           // port of loopback
  int server = 0;           // port of loopback that connections go on to
  double gigabits = 10;     // a second, in each direction; 0: no limit
  double latency_ms = 0.1;  // of each direction
};

/// Serves until SIGTERM. Then prints a line of JSON: bytes to the server and from it, and most connections at once.
int run_proxy(const ProxyOptions& options);

}  // namespace kernelwright::fleet
