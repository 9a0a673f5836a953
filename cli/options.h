/// The options of the command line, and the configs that it names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/generator/problem/config.h"
#include "kernelwright/runtime/cache/bundle.h"
#include "kernelwright/runtime/cache/cubin_cache.h"
#include "kernelwright/runtime/device/emulator_options.h"

namespace kernelwright::cli {

struct Options {
  std::vector<std::string> configs;  // files, or folders of .json files
  std::string device = "auto";
  std::string hazards;  // run, emulate, on the emulator: "" (off), error, isa or all
  std::string hazard_suppressions, sarif;
  std::string completion = "eager";  // run, emulate: eager | lazy | random
  std::vector<std::string> archs;
  std::vector<std::string> shapes;
  bool json = false;
  std::uint64_t seed = 0;
  std::string inputs, outputs;
  std::string cache_dir;
  std::vector<std::string> bundles, bundle_keys;  // all verbs with a cache
  RemoteOptions remote;                           // all verbs with a cache
  bool probe_remote = false;                      // doctor
  int lock_timeout_s = 60;                        // all verbs with a cache
  std::string kernel = "main";                    // source, ptx, sass: a PlannedKernel's role
  int repetitions = 30;                           // bench
  double minimum = 0;                             // bench: TFLOP/s or GB/s; a result below is a missed target
  std::string cache_verb;  // cache: ls, stats, verify, prune, clear, why; or empty, with max_size
  std::string max_size;
  std::optional<std::uint64_t> max_bytes, max_entries;
  std::optional<double> max_age_days;
  // tune
  std::string budget = "120s", total_budget, log;
  bool resume = false, lists_units = false, compiles_only = false;
  std::string units, shard, confirm;  // a list's file, "i/n" of it, a folder of rows
  std::vector<std::string> merge;     // folders of rows
  int candidates = 0;                 // 0: as many as the kind has
  int copies = 0;                     // of the model's choice, which alone race it; 0: candidates do
  std::string tuned_dir;              // all verbs: rows that override the library's
  bool no_tuned_rows = false;         // set by the verb
  // emulate
  std::string ptx_file, entry, fill = "zero";
  bool check = false;  // decode all entries, run none
  std::vector<std::uint32_t> grid{1}, block{32}, cluster{1};
  std::uint32_t shared_bytes = 0;
  bool cooperative = false;
  std::uint64_t buffer_bytes = 1 << 20;
  std::vector<std::string> parameters;
  std::string arguments;  // a file of JSON, or the JSON itself
  std::string timeout;    // "": no limit
  std::uint64_t max_instructions = 1'000'000'000;
  // plan
  std::string model_file, kv, kv_scales, server = "vllm", name, plan_file;
  int tp = 1, ep = 1, max_seqs = 256, max_tokens = 8192;
  std::optional<int> page_size;
  bool explains = false;
  std::vector<std::string> problems;  // of a plan, by name; all if empty
  // pack; its VERB or CONFIG are in `configs`
  std::string pack_file, oci_folder, signing_key;
  // worker
  std::string idle_exit;  // a time without requests; "": it never ends
  int jobs = 0;           // 0: as many as this machine has cores
  bool once = false;
  // report; its files are in `configs`
  std::string report_file = "report.html";
  std::vector<std::string> compared;  // two files, A and B; or none
  bool open = false;
  // trace
  bool timeline = false;  // set by the verb
  std::uint32_t cta = 0;
  std::string out, svg;
};

/// A config and where it came from.
struct NamedConfig {
  std::string path;  // of a plan's problem: "plan.json#NAME"
  Config config;
  bool in_folder = false;  // it came from a folder, not by its own name
  const std::string& name() const { return name_of(config); }
  /// The architecture of the schedule.
  const Auto<Arch>& arch() const;
  /// For configs of attention only.
  const AttentionConfig& attention() const { return std::get<AttentionConfig>(config); }
};
/// A config that came from a folder and is skipped.
struct SkippedConfig {
  std::string path, name, reason;
};
struct Configs {
  std::vector<NamedConfig> usable;
  std::vector<SkippedConfig> skipped;
};

/// Reads every config that --problem and the paths of `options` name. A folder stands for its .json files, in the order
/// of their names. A plan stands for its problems. Throws ConfigError with the violations of all files, each with its
/// file's path in front. Also throws for a folder without configs.
Configs read_configs(const Options& options);

/// The config, or the problems of the plan, for a verb that takes one file. Throws ConfigError for several files, and
/// for a plan without problems.
std::vector<NamedConfig> read_one_file(const Options& options);

/// The config for a verb that takes exactly one.
NamedConfig read_one_config(const Options& options);

/// The architectures of --arch, without repeats. Throws ConfigError for a word that is no architecture.
std::vector<Arch> parse_archs(const std::vector<std::string>& words);

/// The data by which choose_shapes() selects.
struct ShapeLabel {
  std::string name;
  bool check;
};
/// The indices of the shapes that --shape names. Without --shape: those with "check" if `checks` says so, else all.
/// Throws ConfigError.
std::vector<std::size_t> choose_shapes(const std::string& path, const std::vector<ShapeLabel>& labels,
                                       const std::vector<std::string>& names, bool checks);

/// The shapes themselves, of a config of either kind; the config came from `path`.
template <class KindOfConfig>
auto choose_shapes(const std::string& path, const KindOfConfig& config, const std::vector<std::string>& names,
                   bool checks) {
  std::vector<ShapeLabel> labels;
  for (const auto& shape : config.shapes) labels.push_back({shape.name, shape.check});
  decltype(config.shapes) chosen;
  for (const std::size_t index : choose_shapes(path, labels, names, checks)) chosen.push_back(config.shapes[index]);
  return chosen;
}

/// Throws ConfigError, with the file's path in front, if no kernel fits the config on `arch`.
void require_valid(const NamedConfig& named, std::optional<Arch> arch);

/// Throws ConfigError that names the option if a bundle, a key or a server that the command line names cannot be used.
CacheOptions cache_options(const Options& options);
/// The keys of --bundle-key. Throws ConfigError for a file that has none.
BundleTrust bundle_trust(const Options& options);

/// Parses "120s", "5m", "1h" or a number of seconds, given with `option`. Throws ConfigError.
double parse_seconds(const char* option, const std::string& text);

/// The emulator's options, for an emulator that claims to be `arch`.
EmulatorBackendOptions emulator_options(const Options& options, Arch arch);

/// Prints a line for each of the first kMostLines to standard output.
void print_skipped(const std::vector<SkippedConfig>& skipped);

/// A copy of `error` with `file` in front of its paths: "FILE: /problem/heads".
ConfigError in_file(const std::string& file, const ConfigError& error);

}  // namespace kernelwright::cli
