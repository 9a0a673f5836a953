/// What the command line said, and the configs that it named.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernelwright/generator/arch.h"
#include "kernelwright/generator/config.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/cubin_cache.h"
#include "kernelwright/runtime/emulator/emulator_options.h"

namespace kernelwright::cli {

struct Options {
  std::vector<std::string> configs;  // files, or folders of .json files
  std::string device = "auto";
  bool hazards = false;              // run, emulate: on the emulator
  std::string completion = "eager";  // likewise: eager | lazy | random
  std::vector<std::string> archs;
  std::vector<std::string> shapes;
  bool json = false;
  std::uint64_t seed = 0;
  std::string inputs, outputs;
  std::string cache_dir;
  std::string kernel = "main";  // source, ptx, sass: main | combine
  int repetitions = 30;         // bench
  double minimum = 0;           // bench: TFLOP/s or GB/s below which a target is missed
  std::string cache_verb;       // cache: ls, verify, prune, clear, why
  std::optional<std::uint64_t> max_bytes, max_entries;
  std::optional<double> max_age_days;
  // tune
  std::string budget = "120s", log;
  bool resume = false;
  int candidates = 64;
  std::string tuned_dir;       // all verbs: rows that lie over the library's
  bool no_tuned_rows = false;  // set by the verb
  // emulate
  std::string ptx_file, entry, fill = "zero";
  std::vector<std::uint32_t> grid{1}, block{32}, cluster{1};
  std::uint32_t shared_bytes = 0;
  std::uint64_t buffer_bytes = 1 << 20;
  std::vector<std::string> parameters;
  // trace
  bool timeline = false;  // set by the verb
  std::uint32_t cta = 0;
  std::string out, svg;
};

/// A config that has a kernel, and where it came from.
struct NamedConfig {
  std::string path;
  AttentionConfig config;
  bool in_folder = false;  // not named itself
};
/// One that has none, met in a folder.
struct SkippedConfig {
  std::string path, name, reason;
};
struct Configs {
  std::vector<NamedConfig> usable;
  std::vector<SkippedConfig> skipped;
};

/// Reads every config that `paths` name; folders stand for their .json files, by name. Throws ConfigError with the
/// violations of all files, each led by the file's path; also for a file named directly that no kernel exists for, and
/// for a folder without configs.
Configs read_configs(const std::vector<std::string>& paths);

/// The one config of a verb that takes one.
NamedConfig read_one_config(const std::vector<std::string>& paths);

/// The architectures of --arch, without repeats. Throws ConfigError for a word that is none.
std::vector<Arch> parse_archs(const std::vector<std::string>& words);

/// The shapes of --shape; without it those with "check" as `checks` says, else all. Throws ConfigError.
std::vector<AttentionShape> choose_shapes(const NamedConfig& named, const std::vector<std::string>& names, bool checks);

/// Throws ConfigError, led by the file's path, if no kernel fits the config on `arch`.
void require_valid(const NamedConfig& named, std::optional<Arch> arch);

CacheOptions cache_options(const Options& options);

/// "120s", "5m", "1h" or a number of seconds. Throws ConfigError.
double parse_seconds(const std::string& text);

/// How the emulator runs, as what `arch`.
EmulatorBackendOptions emulator_options(const Options& options, Arch arch);

/// A copy of `error` whose paths are led by `file`: "FILE: /problem/heads".
ConfigError in_file(const std::string& file, const ConfigError& error);

}  // namespace kernelwright::cli
