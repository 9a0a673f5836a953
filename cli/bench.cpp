// kernelwright bench: how fast, on a cold L2. A CUDA graph holds several (flush, launch) pairs and another the flushes
// alone; both are replayed in turn, and their difference is the kernel.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "engine_for.h"
#include "exit_code.h"
#include "kernelwright/generator/config_json_document.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/engine.h"
#include "kernelwright/verify/attention_device.h"
#include "terminal.h"
#include "verbs.h"

namespace kernelwright::cli {
namespace {

constexpr int kLaunchesPerGraph = 10;

/// A buffer whose writing leaves nothing else in the L2.
class Flusher {
 public:
  explicit Flusher(Device& device)
      : device_(device), bytes_(2 * std::max<std::size_t>(device.info().l2_bytes, 1 << 20)) {
    buffer_ = device.allocate(bytes_);
  }
  ~Flusher() { device_.free(buffer_); }
  Flusher(const Flusher&) = delete;
  Flusher& operator=(const Flusher&) = delete;
  void flush(Stream stream) { device_.fill(buffer_, 0, bytes_, stream); }

 private:
  Device& device_;
  std::size_t bytes_;
  DevicePtr buffer_;
};

struct OwnedEvent {
  Device& device;
  DeviceEvent* event;
  explicit OwnedEvent(Device& on) : device(on), event(on.create_event()) {}
  ~OwnedEvent() { device.destroy_event(event); }
};

/// Microseconds of one launch: the median over rounds, and the tenth and ninetieth percentile.
struct Timing {
  double median, low, high;
};

Timing time_launches(Device& device, DeviceCase& on_device, Flusher& flusher, int rounds) {
  const Stream stream = on_device.stream();
  on_device.launch();
  on_device.wait();
  const auto record = [&](bool with_kernel) {
    device.begin_capture(stream);
    for (int i = 0; i < kLaunchesPerGraph; ++i) {
      flusher.flush(stream);
      if (with_kernel) on_device.launch();
    }
    return device.end_capture(stream);
  };
  const auto kernel = record(true), flushes = record(false);
  OwnedEvent start(device), stop(device);
  const auto time = [&](Device::Graph& graph) {
    device.record(start.event, stream);
    graph.replay(stream);
    device.record(stop.event, stream);
    return device.elapsed_ms(start.event, stop.event) * 1e3 / kLaunchesPerGraph;
  };
  for (int i = 0; i < 3; ++i) time(*kernel), time(*flushes);  // clocks rise, graphs are uploaded
  std::vector<double> samples;
  for (int i = 0; i < rounds; ++i) {
    const double with = time(*kernel), without = time(*flushes);
    samples.push_back(std::max(with - without, 1e-3));
  }
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
  const Configs configs = read_configs(options.configs);
  std::vector<std::pair<const NamedConfig*, AttentionShape>> work;
  for (const NamedConfig& named : configs.usable) {
    require_valid(named, std::nullopt);
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
