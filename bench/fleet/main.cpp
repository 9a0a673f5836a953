// The parts of bench/fleet_start.py that need the library or speed: a host with its ranks, the network of the shared
// cache, and the measurement of a plan's kernels.
//
//   kernelwright_fleet_bench host --folder DIR --workload FILE [--ranks N ...]
//   kernelwright_fleet_bench proxy --listen PORT --server PORT [--gigabits N] [--latency-ms N]
//   kernelwright_fleet_bench measure --plan PLAN --folder DIR
#include <fmt/format.h>

#include <exception>
#include <map>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "fleet/host.h"
#include "fleet/proxy.h"
#include "fleet/workload.h"
#include "kernelwright/generator/error.h"

namespace {

using namespace kernelwright;
using namespace kernelwright::fleet;

/// "--name value" by name. Every option must be taken.
class Options {
 public:
  Options(int count, char** words) {
    for (int i = 0; i < count; i += 2) {
      const std::string name = words[i];
      if (!name.starts_with("--") || i + 1 == count) throw ConfigError(name, "is no option with a value");
      values_[name] = words[i + 1];
    }
  }
  /// Sets `value` if the option was given.
  template <class Value>
  Options& take(const std::string& name, Value& value) {
    const auto found = values_.extract(name);
    if (!found) return *this;
    if constexpr (std::is_same_v<Value, std::string>) {
      value = found.mapped();
    } else if (std::istringstream text(found.mapped()); !(text >> value) || !text.eof() || found.mapped()[0] == '-') {
      throw ConfigError(name, fmt::format("\"{}\" is not a number from 0 on", found.mapped()));
    }
    return *this;
  }
  void end() const {
    if (!values_.empty()) throw ConfigError(values_.begin()->first, "is not an option here");
  }

 private:
  std::map<std::string, std::string> values_;
};

int host(Options options) {
  HostOptions host;
  options.take("--host", host.host).take("--ranks", host.ranks).take("--threads", host.threads);
  options.take("--slots", host.slots).take("--folder", host.folder).take("--workload", host.workload);
  options.take("--plan", host.plan).take("--remote", host.remote).take("--signing-key", host.signing_key);
  options.take("--public-key", host.public_key).take("--begin", host.begin_s).take("--slowdown", host.slowdown);
  options.take("--retry", host.retry_s).take("--without-compiler", host.without_compiler).end();
  return run_host(host);
}

int proxy(Options options) {
  ProxyOptions proxy;
  options.take("--listen", proxy.listen).take("--server", proxy.server).take("--gigabits", proxy.gigabits);
  options.take("--latency-ms", proxy.latency_ms).end();
  return run_proxy(proxy);
}

int measure(Options options) {
  std::string plan, folder;
  options.take("--plan", plan).take("--folder", folder).end();
  const std::vector<WorkloadKernel> kernels = measure_workload(plan, folder);
  fmt::print("kernel,entry_bytes,compile_ms\n");
  for (const WorkloadKernel& kernel : kernels)
    fmt::print("{},{},{:.1f}\n", kernel.kernel, kernel.entry_bytes, kernel.compile_ms);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::map<std::string, int (*)(Options)> verbs = {{"host", host}, {"measure", measure}, {"proxy", proxy}};
  const auto verb = count > 1 ? verbs.find(words[1]) : verbs.end();
  if (verb == verbs.end()) {
    fmt::print(stderr, "usage: kernelwright_fleet_bench host|proxy|measure [--OPTION VALUE]...\n");
    return 2;
  }
  try {
    return verb->second(Options(count - 2, words + 2));
  } catch (const std::exception& error) {
    fmt::print(stderr, "kernelwright_fleet_bench: {}\n", error.what());
    return 2;
  }
}
