// kernelwright bench: how fast, on a cold L2.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cold_launches.h"
#include "engine_for.h"
#include "exit_code.h"
#include "kernelwright/generator/config_json_document.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/engine.h"
#include "kernelwright/verify/attention_device.h"
#include "targets.h"
#include "terminal.h"
#include "verbs.h"

namespace kernelwright::cli {
namespace {

constexpr int kLaunchesPerGraph = 10;

/// Microseconds of one launch: the median over rounds, and the tenth and ninetieth percentile.
struct Timing {
  double median, low, high;
};

Timing time_launches(Device& device, DeviceCase& on_device, Flusher& flusher, int rounds) {
  const Stream stream = on_device.stream();
  on_device.launch();
  on_device.wait();
  ColdLaunches launches(
      device, stream, flusher, [&] { on_device.launch(); }, kLaunchesPerGraph);
  for (int i = 0; i < 3; ++i) launches.sample();  // clocks rise, graphs are uploaded
  std::vector<double> samples;
  for (int i = 0; i < rounds; ++i) samples.push_back(launches.sample());
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    return samples[static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1))];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

// Decode reads each key for a few queries: bytes are what counts there.
bool counts_bytes(const AttentionCase& call) { return call.operations() < 100 * std::max(1.0, call.kv_bytes()); }

}  // namespace

int bench(const Options& options) {
  Configs configs = read_configs(options.configs);
  std::vector<std::pair<const NamedConfig*, AttentionShape>> work;
  const std::optional<Arch> gpu = gpu_arch();
  for (const NamedConfig& named : configs.usable) {
    require_valid(named, std::nullopt);
    if (auto skipped = skipped_on(named, gpu)) {
      configs.skipped.push_back(std::move(*skipped));
      continue;
    }
    for (AttentionShape& shape : choose_shapes(named, options.shapes, false))
      work.emplace_back(&named, std::move(shape));
  }
  if (options.device == "emulator")
    throw ConfigError("--device",
                      "emulator: its times say nothing about a GPU; run checks results on it, and bench "
                      "needs a GPU");
  if (options.device == "auto") make_cuda_backend();  // throws where there is none
  if (configs.usable.empty()) throw ConfigError("CONFIG", "no config is named that a kernel exists for");
  Machine machine(options);
  Device& device = machine.place_for(configs.usable.at(0)).device;
  Flusher flusher(device);
  const Style style(stdout);
  Table table({"config", "shape", "median", "10 % .. 90 %", "rate", ""});
  JsonValue rows = JsonValue::array();
  bool reached = true;
  {
    Progress progress("timing", work.size());
    for (const auto& [named, shape] : work) {
      const AttentionKernel kernel = prepare(machine.place_for(*named), *named);
      const AttentionCase call = make_inputs(named->config.problem, shape, {.seed = options.seed});
      DeviceCase on_device(device, call, kernel);
      const Timing timing = time_launches(device, on_device, flusher, options.repetitions);
      const double tflops = call.operations() / timing.median / 1e6, gbytes = call.kv_bytes() / timing.median / 1e3;
      const bool bytes = counts_bytes(call);
      const bool enough = (bytes ? gbytes : tflops) >= options.minimum;
      reached = reached && enough;
      table.row({named->config.name, shape.name, duration_text(timing.median / 1e3),
                 fmt::format("{} .. {}", duration_text(timing.low / 1e3), duration_text(timing.high / 1e3)),
                 bytes ? fmt::format("{:.0f} GB/s of KV", gbytes) : fmt::format("{:.1f} TFLOP/s", tflops),
                 options.minimum > 0 ? style.verdict(enough) : ""});
      const auto binary = kernel.binary();
      rows.push(JsonValue::object()
                    .set("config", named->config.name)
                    .set("shape", shape.name)
                    .set("key", kernel.key())
                    .set("entry", binary ? binary->entry : "")
                    .set("registers", binary ? binary->usage.registers : 0)
                    .set("median_us", timing.median)
                    .set("p10_us", timing.low)
                    .set("p90_us", timing.high)
                    .set("operations", call.operations())
                    .set("kv_bytes", call.kv_bytes())
                    .set("tflops", tflops)
                    .set("kv_gb_per_s", gbytes)
                    .set("target_reached", enough));
      progress.step(named->config.name + " " + shape.name);
    }
  }
  if (options.json) {
    fmt::print("{}\n", JsonValue::object()
                           .set("device", device.info().name)
                           .set("l2_flushed", true)
                           .set("rounds", options.repetitions)
                           .set("launches_per_round", kLaunchesPerGraph)
                           .set("verdict", reached ? "ok" : "failed")
                           .set("rows", std::move(rows))
                           .dump());
  } else {
    fmt::print("{}\n{}",
               style.dim(fmt::format("{}, L2 flushed, {} rounds of {} launches", device.info().name,
                                     options.repetitions, kLaunchesPerGraph)),
               table.text(style));
    for (const SkippedConfig& config : configs.skipped)
      fmt::print("{} {}: {}\n", style.dim("skipped"), config.path, config.reason);
  }
  return reached ? kDone : kMismatch;
}

}  // namespace kernelwright::cli
