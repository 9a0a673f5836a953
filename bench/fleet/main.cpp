// The parts of bench/fleet_start.py that need the library or speed: a host with its ranks, the network of the shared
// cache, and the measurement of a plan's kernels.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>

#include "fleet/host.h"
#include "fleet/proxy.h"
#include "fleet/workload.h"

int main(int count, char** words) {
  using namespace kernelwright::fleet;
  CLI::App app("Parts of bench/fleet_start.py");
  app.require_subcommand(1);

  HostOptions host;
  CLI::App& run = *app.add_subcommand("host", "A host that starts its ranks");
  run.add_option("--host", host.host);
  run.add_option("--ranks", host.ranks)->check(CLI::Range(1, 1024));
  run.add_option("--threads", host.threads)->check(CLI::Range(1, 1024));
  run.add_option("--slots", host.slots)->check(CLI::Range(1, 1024));
  run.add_option("--folder", host.folder)->required();
  CLI::Option* workload = run.add_option("--workload", host.workload);
  run.add_option("--plan", host.plan)->excludes(workload);
  run.add_option("--remote", host.remote);
  run.add_option("--signing-key", host.signing_key);
  run.add_option("--public-key", host.public_key);
  run.add_option("--begin", host.begin_s);
  run.add_option("--slowdown", host.slowdown);
  run.add_option("--retry", host.retry_s);
  run.add_flag("--without-compiler", host.without_compiler);

  ProxyOptions proxy;
  CLI::App& link = *app.add_subcommand("proxy", "A network between hosts and a server");
  link.add_option("--listen", proxy.listen)->required();
  link.add_option("--server", proxy.server)->required();
  link.add_option("--gigabits", proxy.gigabits);
  link.add_option("--latency-ms", proxy.latency_ms);

  std::string plan, folder;
  CLI::App& measure = *app.add_subcommand("measure", "Compiles a plan's kernels, and prints a workload");
  measure.add_option("plan", plan)->required();
  measure.add_option("--folder", folder)->required();

  CLI11_PARSE(app, count, words);
  try {
    if (link) return run_proxy(proxy);
    if (run) return run_host(host);
    fmt::print("kernel,entry_bytes,compile_ms\n");
    for (const WorkloadKernel& kernel : measure_workload(plan, folder))
      fmt::print("{},{},{:.1f}\n", kernel.kernel, kernel.entry_bytes, kernel.compile_ms);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "kernelwright_fleet_bench: {}\n", error.what());
    return 2;
  }
}
