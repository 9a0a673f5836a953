// kernelwright bench: the speed of kernels on a cold L2.
#include <fmt/format.h>

#include <algorithm>
#include <variant>

#include "cli/bound.h"
#include "cli/cold_launches.h"
#include "cli/engine_for.h"
#include "cli/exit_code.h"
#include "cli/kinds.h"
#include "cli/targets.h"
#include "cli/terminal.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/runtime/engine/engine.h"

namespace kernelwright::cli {
namespace {

constexpr int kLaunchesPerGraph = 10;

/// Microseconds of one launch: the median over rounds, and the 10th and the 90th percentile.
struct Timing {
  double median, low, high;
};

template <class OnDevice>
Timing time_launches(Device& device, OnDevice& on_device, Flusher& flusher, int rounds) {
  const Stream stream = on_device.stream();
  on_device.launch();
  on_device.wait();
  ColdLaunches launches(
      device, stream, flusher, [&] { on_device.launch(); }, kLaunchesPerGraph);
  for (int i = 0; i < 3; ++i) launches.sample();  // not counted: clocks rise, and graphs are uploaded
  std::vector<double> samples;
  for (int i = 0; i < rounds; ++i) samples.push_back(launches.sample());
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    return samples[static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1))];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

/// One shape of one config.
struct Item {
  const NamedConfig* named;
  std::variant<AttentionShape, GemmShape, KvWriteShape, RowOpShape, RouteShape, MoeCombineShape> shape;
};

struct Row {
  Timing timing;
  Rate rate;
  KernelSummary kernel;
  PredictedBound bound;  // the best that the device could do
};

template <class KindOfConfig>
Row bench_shape(const Place& place, const NamedConfig& named, const KindOfConfig& config,
                const typename Kind<KindOfConfig>::Shape& shape, Flusher& flusher, const Options& options) {
  const auto kernel = prepare(place, named, config);
  const typename Kind<KindOfConfig>::Case call = inputs_of(config, shape, options.seed);
  typename Kind<KindOfConfig>::OnDevice on_device(place.device, call, kernel);
  const Arch arch = place.device.info().arch.value();
  Row row{time_launches(place.device, on_device, flusher, options.repetitions), {}, summary_of(kernel, call), {}};
  row.rate = rate_of(call, row.timing.median, arch);
  row.bound = predict(config.problem, shape, machine_of(place.device.info().name, arch));
  return row;
}

Row bench_item(const Place& place, const Item& item, Flusher& flusher, const Options& options) {
  return std::visit(
      [&]<class KindOfConfig>(const KindOfConfig& config) {
        return bench_shape(place, *item.named, config, std::get<typename Kind<KindOfConfig>::Shape>(item.shape),
                           flusher, options);
      },
      item.named->config);
}

JsonValue to_json(const Item& item, const std::string& shape, const Row& row, bool enough) {
  const std::string of_bytes = *row.rate.bytes_of ? "kv_" : "";
  return JsonValue::object()
      .set("config", item.named->name())
      .set("shape", shape)
      .set("key", row.kernel.key)
      .set("entry", row.kernel.entry)
      .set("registers", row.kernel.registers)
      .set("median_us", row.timing.median)
      .set("p10_us", row.timing.low)
      .set("p90_us", row.timing.high)
      .set("operations", row.rate.operations)
      .set(of_bytes + "bytes", row.rate.bytes)
      .set("tflops", row.rate.tflops)
      .set(of_bytes + "gb_per_s", row.rate.gbytes)
      .set("bound_us", row.bound.microseconds())
      .set("compute_us", row.bound.compute_us)
      .set("memory_us", row.bound.memory_us)
      .set("target_reached", enough);
}

}  // namespace

int bench(const Options& options) {
  Configs configs = read_configs(options);
  std::vector<Item> work;
  const std::optional<Arch> gpu = gpu_arch();
  for (const NamedConfig& named : configs.usable) {
    require_valid(named, std::nullopt);
    if (auto skipped = skipped_on(named, gpu)) {
      configs.skipped.push_back(std::move(*skipped));
      continue;
    }
    std::visit(
        [&](const auto& config) {
          for (auto& shape : choose_shapes(named.path, config, options.shapes, false))
            work.push_back({&named, std::move(shape)});
        },
        named.config);
  }
  if (options.device == "emulator")
    throw ConfigError("--device",
                      "emulator: its times say nothing about a GPU; run checks results on it, and bench "
                      "needs a GPU");
  if (options.device == "auto") make_cuda_backend();  // throws if there is no GPU
  if (configs.usable.empty()) throw ConfigError("CONFIG", "every config was passed over");
  Machine machine(options);
  Device& device = machine.place_for(configs.usable.at(0)).device;
  Flusher flusher(device);
  const Style style(stdout);
  Table table({"config", "shape", "median", "10 % .. 90 %", "rate", "at best", ""});
  JsonValue rows = JsonValue::array();
  bool reached = true;
  {
    Progress progress("timing", work.size());
    for (const Item& item : work) {
      const std::string shape = std::visit([](const auto& of) { return of.name; }, item.shape);
      const Row row = bench_item(machine.place_for(*item.named), item, flusher, options);
      const bool enough = row.rate.value() >= options.minimum;
      reached = reached && enough;
      table.row({item.named->name(), shape, duration_text(row.timing.median / 1e3),
                 fmt::format("{} .. {}", duration_text(row.timing.low / 1e3), duration_text(row.timing.high / 1e3)),
                 row.rate.text(),
                 fmt::format("{}, by {}", duration_text(row.bound.microseconds() / 1e3),
                             row.bound.by_memory() ? "memory" : "matrix rate"),
                 options.minimum > 0 ? style.verdict(enough) : ""});
      rows.push(to_json(item, shape, row, enough));
      progress.step(item.named->name() + " " + shape);
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
