// kernelwright emulate: a run of any PTX on the emulator. Arguments and buffers come from --args; without it, each
// pointer gets its own buffer. The output is statistics, how much of each buffer was changed, and what went wrong.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include "cli/exit_code.h"
#include "cli/hazards.h"
#include "cli/launch_arguments.h"
#include "cli/terminal.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/plan/machine.h"
#include "kernelwright/runtime/emulator/emulator.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"

namespace kernelwright::cli {
namespace {

constexpr const char* kBufferWord = "buffer";

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in || text.empty()) throw ConfigError(path, "cannot be read, or is empty; a file of PTX would do");
  return text;
}

const emulator::Entry& choose_entry(const emulator::Module& module, const Options& options) {
  std::vector<std::string> all;
  for (const emulator::Entry& entry : module.entries) all.emplace_back(entry.name);
  const std::string names = listed(all);
  if (options.entry.empty()) {
    if (module.entries.size() == 1) return module.entries[0];
    throw ConfigError(
        "--entry", fmt::format("{} has {} entries; name one of: {}", options.ptx_file, module.entries.size(), names));
  }
  if (const emulator::Entry* entry = module.find(options.entry)) return *entry;
  throw ConfigError("--entry", fmt::format("{} is no entry of {}; it has: {}", options.entry, options.ptx_file, names));
}

std::vector<std::byte> contents(const Options& options) {
  std::vector<std::byte> bytes(options.buffer_bytes);
  if (options.fill == "pattern")
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 + (i >> 8) + 7);
  return bytes;
}

/// Whether an integer of `bytes` bytes, signed or unsigned, can hold the magnitude.
bool fits(std::uint64_t magnitude, bool negative, std::uint64_t bytes) {
  if (bytes >= 8) return !negative || magnitude <= std::uint64_t{1} << 63;
  return magnitude <= (negative ? std::uint64_t{1} << (8 * bytes - 1) : (std::uint64_t{1} << (8 * bytes)) - 1);
}

/// The bits of an integer, or of a float if the word has a point. Throws ConfigError for other words.
std::uint64_t number(const std::string& word, std::uint64_t bytes) {
  const char *begin = word.data(), *end = begin + word.size();
  if (word.find('.') != word.npos) {
    double value = 0;
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || stop != end || (bytes != 4 && bytes != 8))
      throw ConfigError("--params", fmt::format("{} is no float for a parameter of {} bytes", word, bytes));
    std::uint64_t bits = 0;
    const auto narrow = static_cast<float>(value);
    if (bytes == 4 && !std::isfinite(narrow))
      throw ConfigError("--params", fmt::format("{} is too large for a float of 4 bytes", word));
    if (bytes == 4)
      std::memcpy(&bits, &narrow, 4);
    else
      std::memcpy(&bits, &value, 8);
    return bits;
  }
  const bool negative = word.starts_with('-'), hex = word.find("0x") == (negative ? 1u : 0u);
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(begin + negative + (hex ? 2 : 0), end, value, hex ? 16 : 10);
  if (error != std::errc() || stop != end)
    throw ConfigError(
        "--params", fmt::format("{} is no number; an integer, a float with a point or the word buffer would do", word));
  if (!fits(value, negative, bytes))
    throw ConfigError("--params", fmt::format("{} is too large for a parameter of {} bytes", word, bytes));
  return negative ? 0 - value : value;
}

/// Lays out the parameters that --params names, and makes the buffers to which they point.
LaunchArguments parameters_of(const emulator::Entry& entry, const Options& options, emulator::GlobalMemory& memory) {
  if (options.parameters.size() > entry.parameters.size())
    throw ConfigError("--params", fmt::format("{} words are given and {} takes {} parameters",
                                              options.parameters.size(), entry.name, entry.parameters.size()));
  LaunchArguments made;
  made.parameters.resize(entry.parameter_bytes);
  for (std::size_t i = 0; i < entry.parameters.size(); ++i) {
    const auto& [name, variable] = entry.parameters[i];
    const bool given = i < options.parameters.size();
    std::uint64_t value = 0;
    if (given ? options.parameters[i] == kBufferWord : variable.bytes == 8) {
      if (variable.bytes != 8)
        throw ConfigError("--params", fmt::format("{} has {} bytes; a buffer's address has 8", name, variable.bytes));
      value =
          place(made.buffers.emplace_back(LaunchBuffer{std::string(name), 0, contents(options), {}, {}, {}}), memory);
    } else if (given) {
      if (variable.bytes > 8)
        throw ConfigError("--params",
                          fmt::format("{} has {} bytes, which no number has; leave it 0 by naming fewer words", name,
                                      variable.bytes));
      value = number(options.parameters[i], variable.bytes);
    }
    std::memcpy(made.parameters.data() + variable.offset, &value, std::min<std::uint64_t>(variable.bytes, 8));
  }
  return made;
}

void copy_dimensions(const std::vector<std::uint32_t>& from, emulator::Dim3& to) {
  for (std::size_t i = 0; i < from.size(); ++i) to[static_cast<int>(i)] = from[i];
}

/// The grid that a GPU takes. In a larger grid, the number of CTAs would not fit into 32 bits either.
void check_grid(const emulator::LaunchShape& shape) {
  constexpr std::uint32_t kMostOfYZ = 65535;
  for (const int axis : {1, 2})
    if (shape.grid[axis] > kMostOfYZ)
      throw ConfigError("--grid",
                        fmt::format("{} of {} is outside [1, {}]", shape.grid[axis], axis == 1 ? "Y" : "Z", kMostOfYZ));
  const double ctas = static_cast<double>(shape.grid[0]) * shape.grid[1] * shape.grid[2];
  if (ctas > std::numeric_limits<std::int32_t>::max())
    throw ConfigError("--grid", fmt::format("{:.4g} CTAs are more than the 2^31 - 1 that are run here", ctas));
}

void print_json(const emulator::LaunchReport& report, const emulator::Entry& entry, const LaunchArguments& arguments,
                const std::vector<emulator::KernelHazard>& hazards, int code) {
  JsonValue changed = JsonValue::array();
  for (const LaunchBuffer& buffer : arguments.buffers) {
    JsonValue one = JsonValue::object();
    one.set("parameter", buffer.parameter).set("bytes", buffer.before.size()).set("changed", buffer.changed_bytes());
    if (report.completed && !buffer.out.empty()) one.set("out", buffer.out);
    changed.push(std::move(one));
  }
  JsonValue object = JsonValue::object();
  object.set("verdict", code == kDone ? "ok" : "failed").set("entry", entry.name).set("completed", report.completed);
  object.set("fault", report.fault).set("printed", report.printed).set("statistics", to_json(report.statistics));
  fmt::print("{}\n", object.set("buffers", std::move(changed)).set("hazards", to_json(hazards)).dump());
}

void print_text(const emulator::LaunchReport& report, const emulator::Entry& entry, const LaunchArguments& arguments,
                const std::vector<emulator::KernelHazard>& hazards, int code) {
  const Style style(stdout);
  const emulator::Statistics& ran = report.statistics;
  fmt::print("{}", report.printed);
  if (!report.printed.empty() && !report.printed.ends_with('\n')) fmt::print("\n");
  fmt::print("{}  {}\n", style.bold(entry.name), style.verdict(code == kDone));
  fmt::print("  {:.3g} warp instructions in {}, {:.1f} M a second; {:.3g} operations in matrix units; {} copied\n",
             static_cast<double>(ran.warp_instructions), duration_text(ran.seconds * 1e3),
             static_cast<double>(ran.warp_instructions) / std::max(ran.seconds, 1e-9) / 1e6,
             static_cast<double>(ran.mma_operations), size_text(static_cast<double>(ran.copied_bytes)));
  const auto& buffers = arguments.buffers;
  for (std::size_t i = 0; i < std::min(buffers.size(), kMostLines); ++i)
    fmt::print("  {}: {} of {} bytes changed{}\n", buffers[i].parameter, buffers[i].changed_bytes(),
               buffers[i].before.size(),
               report.completed && !buffers[i].out.empty() ? fmt::format("; written to {}", buffers[i].out) : "");
  fmt::print("{}", more_text(style, buffers.size()));
  if (!report.completed) fmt::print("  {}\n", style.bad(report.fault));
  fmt::print("{}", hazards_text(hazards));
}

/// Decodes each entry, or the one that is named.
int check_entries(const Options& options, const std::string& text) {
  emulator::Emulator machine;
  const auto module = machine.load(text);
  if (!options.entry.empty()) choose_entry(module->module(), options);
  JsonValue all = JsonValue::array();
  bool refused = false;
  for (const emulator::Entry& entry : module->module().entries) {
    if (!options.entry.empty() && entry.name != options.entry) continue;
    std::string refusal;
    try {
      module->program(entry.name);
    } catch (const emulator::PtxError& error) {
      refusal = error.what();
      refused = true;
    }
    if (options.json)
      all.push(JsonValue::object().set("entry", entry.name).set("refusal", refusal));
    else
      fmt::print("{}: {}\n", entry.name, refusal.empty() ? "can run" : refusal);
  }
  if (options.json) fmt::print("{}\n", JsonValue::object().set("entries", std::move(all)).dump());
  return refused ? kMismatch : kDone;
}

int run_entry(const Options& options, const std::string& text) {
  HazardReview review(options);
  const EmulatorBackendOptions how = emulator_options(options, Arch::kSm90a);
  emulator::Options machine_options;
  machine_options.hazards = how.hazards;
  machine_options.completion = how.completion;
  machine_options.seed = how.seed;
  machine_options.shuffle = how.seed != 0;
  machine_options.num_sms = usual_machine(how.arch).sms;
  machine_options.max_instructions = options.max_instructions;
  if (!options.timeout.empty()) machine_options.timeout_s = parse_seconds("--timeout", options.timeout);
  emulator::Emulator machine(machine_options);
  const auto module = machine.load(text);
  const emulator::Entry& entry = choose_entry(module->module(), options);
  module->program(entry.name);  // refuses what is not modelled, before buffers are made

  const LaunchArguments arguments = options.arguments.empty() ? parameters_of(entry, options, machine.memory())
                                                              : arguments_of(entry, options, machine.memory());
  emulator::LaunchShape shape;
  copy_dimensions(options.grid, shape.grid);
  copy_dimensions(options.block, shape.block);
  copy_dimensions(options.cluster, shape.cluster);
  shape.cooperative = options.cooperative;
  check_grid(shape);
  shape.dynamic_shared_bytes = options.shared_bytes;
  const emulator::LaunchReport report = [&] {
    const SlowNotice notice(fmt::format("{} is still running", entry.name));
    return machine.launch(*module, entry.name, shape, arguments.parameters);
  }();

  if (report.completed) arguments.write_back();

  std::vector<emulator::KernelHazard> hazards;
  for (const emulator::HazardReport& hazard : report.hazards) hazards.push_back({std::string(entry.name), hazard});
  hazards = review.judge(std::move(hazards));
  review.finish();
  const int code = report.completed && hazards.empty() ? kDone : kMismatch;
  if (options.json)
    print_json(report, entry, arguments, hazards, code);
  else
    print_text(report, entry, arguments, hazards, code);
  return code;
}

}  // namespace

int emulate(const Options& options) {
  const std::string text = read_text(options.ptx_file);
  try {
    return options.check ? check_entries(options, text) : run_entry(options, text);
  } catch (const emulator::PtxError& error) {
    throw ConfigError(options.ptx_file, error.what());
  }
}

}  // namespace kernelwright::cli
