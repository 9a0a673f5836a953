// kernelwright trace: one launch on the emulator as a timeline. It writes a file for Perfetto and a picture, and prints
// which warps waited for what.
#include "kernelwright/runtime/emulator/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>

#include "cli/engine_for.h"
#include "cli/exit_code.h"
#include "cli/kinds.h"
#include "cli/terminal.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/verify/attention/case.h"

namespace kernelwright::cli {
namespace {

using emulator::RoleWaits;
using emulator::Trace;

/// The rank of CTA `index` of the grid in the traced cluster.
std::uint32_t rank_of(const Trace& trace, std::uint32_t index) {
  std::uint32_t rank = 0, stride = 1;
  for (int i = 0; i < 3; ++i) {
    rank += (index % trace.grid[i] - trace.first_cta[i]) * stride;
    index /= trace.grid[i];
    stride *= trace.cluster[i];
  }
  return rank;
}

double share(std::uint64_t cycles, const Trace& trace) {
  return static_cast<double>(cycles) / static_cast<double>(std::max<std::uint64_t>(1, trace.cycles));
}

[[noreturn]] void refuse_path(const std::string& path, const char* option) {
  throw ConfigError(option, fmt::format("{} cannot be written; a file in a folder that exists would do", path));
}

// Errors in a path are reported before anything is launched. Nothing is created yet.
void check_folder_of(const std::string& path, const char* option) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code code;
  if (!path.empty() && !folder.empty() && !std::filesystem::is_directory(folder, code)) refuse_path(path, option);
}

void write_file(const std::string& path, const char* option, const std::function<void(std::ostream&)>& write) {
  std::ofstream out(path, std::ios::binary);
  if (out) write(out);
  out.close();
  if (!out) refuse_path(path, option);
}

std::string places_text(const RoleWaits& role) {
  constexpr std::size_t kMost = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, role.places.size()); ++i)
    text += fmt::format("{}{} {:.0f} %", i ? ", " : "", role.places[i].name, 100 * role.places[i].share);
  return text;
}

void print_text(const Trace& trace, std::uint32_t rank) {
  const Style style(stdout);
  fmt::print(
      "{}  {}\n", style.bold(trace.kernel),
      style.dim(fmt::format("{} on emulated {}, tensor cores {:.1f} % busy, copies {:.1f} %{}",
                            fmt::format("{} cycles", trace.cycles), trace.target,
                            100 * share(trace.units[rank].tensor, trace), 100 * share(trace.units[rank].copies, trace),
                            trace.complete ? "" : "; it is longer than what was kept")));
  Table table({"role", "waits", "for"});
  for (const RoleWaits& role : waits_by_role(trace, rank))
    table.row({role.role, fmt::format("{:.1f} %", 100 * role.waiting), places_text(role)});
  fmt::print("{}", table.text(style));
}

JsonValue to_json(const Trace& trace, std::uint32_t rank) {
  JsonValue roles = JsonValue::array();
  for (const RoleWaits& role : waits_by_role(trace, rank)) {
    JsonValue places = JsonValue::object();
    for (const RoleWaits::Place& place : role.places) places.set(place.name, place.share);
    roles.push(JsonValue::object().set("role", role.role).set("waiting", role.waiting).set("for", std::move(places)));
  }
  JsonValue object = JsonValue::object();
  object.set("kernel", trace.kernel).set("arch", trace.target).set("cycles", trace.cycles);
  object.set("complete", trace.complete).set("tensor_busy", share(trace.units[rank].tensor, trace));
  return object.set("copies_busy", share(trace.units[rank].copies, trace)).set("roles", std::move(roles));
}

/// The launches of one call: the kernel, and the kernel that merges its splits.
template <class KindOfConfig>
std::vector<Trace> traces_of(const Place& place, const NamedConfig& named, const KindOfConfig& config,
                             const typename Kind<KindOfConfig>::Shape& shape, std::uint64_t seed) {
  const auto kernel = prepare(place, named, config);
  const typename Kind<KindOfConfig>::Case call = inputs_of(config, shape, seed);
  const SlowNotice notice(fmt::format("{} on {}", shape.name, place.device.info().name));
  typename Kind<KindOfConfig>::OnDevice on_device(place.device, call, kernel);
  on_device.poison();
  on_device.launch();
  on_device.wait();
  std::vector<Trace> traces;
  for (const auto& trace : place.emulator->take_traces()) traces.push_back(*trace);
  return traces;
}

}  // namespace

int trace(const Options& options) {
  Options traced = options;
  traced.device = "emulator";
  traced.timeline = true;
  const NamedConfig named = read_one_config(options);
  require_valid(named, std::nullopt);
  if (options.shapes.size() > 1)
    throw ConfigError("--shape", fmt::format("{} are named and a timeline has one", options.shapes.size()));
  const std::string shape = std::visit(
      [&](const auto& config) { return choose_shapes(named.path, config, options.shapes, true).front().name; },
      named.config);
  check_folder_of(options.out, "--out");
  check_folder_of(options.svg, "--svg");

  Machine machine(traced);
  const std::vector<Trace> traces = std::visit(
      [&](const auto& config) {
        return traces_of(machine.place_for(named), named, config,
                         choose_shapes(named.path, config, {shape}, true).front(), options.seed);
      },
      named.config);
  if (traces.empty())
    throw ConfigError("--cta", fmt::format("{} is not in the grid of {}; 0 would do", options.cta, named.name()));
  const std::uint32_t rank = rank_of(traces.front(), options.cta);

  const std::string json_path = options.out.empty() && options.svg.empty() ? named.name() + ".trace.json" : options.out;
  if (!json_path.empty()) write_file(json_path, "--out", [&](std::ostream& out) { write_chrome_trace(out, traces); });
  if (!options.svg.empty())
    write_file(options.svg, "--svg", [&](std::ostream& out) {
      write_svg(out, traces.front(), {.title = fmt::format("{}, shape {}", named.name(), shape), .cta = rank});
    });

  if (options.json) {
    JsonValue kernels = JsonValue::array();
    for (const Trace& one : traces) kernels.push(to_json(one, &one == &traces.front() ? rank : 0));
    JsonValue object = JsonValue::object();
    object.set("config", named.name()).set("shape", shape).set("kernels", std::move(kernels));
    object.set("out", json_path).set("svg", options.svg);
    fmt::print("{}\n", object.dump());
    return kDone;
  }
  for (const Trace& one : traces) print_text(one, &one == &traces.front() ? rank : 0);
  const Style style(stdout);
  if (!json_path.empty()) fmt::print("{}\n", style.dim(json_path + ": open it in ui.perfetto.dev"));
  if (!options.svg.empty()) fmt::print("{}\n", style.dim(options.svg));
  return kDone;
}

}  // namespace kernelwright::cli
