// From words to configs, shapes and architectures. Everything that is wrong with the command line is told at once.
#include "options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "kernelwright/generator/config_json.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/validate.h"

namespace kernelwright::cli {
namespace {

namespace fs = std::filesystem;

void append(std::vector<Violation>& all, const ConfigError& error) {
  all.insert(all.end(), error.violations().begin(), error.violations().end());
}

void read_file(const std::string& path, bool named_directly, Configs& configs, std::vector<Violation>& violations) {
  try {
    Config config = read_config_file(path);
    if (const auto reason = why_no_kernel(config)) {
      if (named_directly)
        violations.push_back({path, *reason});
      else
        configs.skipped.push_back({path, name_of(config), *reason});
      return;
    }
    if (auto* attention = std::get_if<AttentionConfig>(&config))
      configs.usable.push_back({path, std::move(*attention), !named_directly});
    else
      violations.push_back({path, "no kernel computes this kind yet; kind attention would do"});
  } catch (const ConfigError& error) {
    append(violations, in_file(path, error));
  }
}

std::vector<std::string> json_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code))
    if (at->path().extension() == ".json") files.push_back(at->path().string());
  if (code) throw ConfigError(folder, "cannot be read: " + code.message());
  if (files.empty()) throw ConfigError(folder, "holds no .json file; a folder of configs would do");
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

ConfigError in_file(const std::string& file, const ConfigError& error) {
  std::vector<Violation> violations = error.violations();
  for (Violation& violation : violations)  // errors of the file itself name it already
    if (violation.path.find(file) == std::string::npos)
      violation.path = violation.path.empty() ? file : file + ": " + violation.path;
  return ConfigError(std::move(violations));
}

Configs read_configs(const std::vector<std::string>& paths) {
  Configs configs;
  std::vector<Violation> violations;
  for (const std::string& path : paths) {
    std::error_code code;
    if (!fs::is_directory(path, code)) {
      read_file(path, true, configs, violations);
      continue;
    }
    try {
      for (const std::string& file : json_files(path)) read_file(file, false, configs, violations);
    } catch (const ConfigError& error) {
      append(violations, error);
    }
  }
  if (!violations.empty()) throw ConfigError(std::move(violations));
  return configs;
}

NamedConfig read_one_config(const std::vector<std::string>& paths) {
  if (paths.size() != 1) throw ConfigError("CONFIG", fmt::format("{} are named; one would do", paths.size()));
  std::error_code code;
  if (fs::is_directory(paths[0], code)) throw ConfigError(paths[0], "is a directory; one config file would do");
  return std::move(read_configs(paths).usable.at(0));
}

std::vector<Arch> parse_archs(const std::vector<std::string>& words) {
  std::vector<Arch> archs;
  for (const std::string& word : words) {
    const auto arch = from_string<Arch>(word);
    if (!arch)
      throw ConfigError("--arch",
                        fmt::format("{} is no architecture here; it takes one of {}", word, all_words<Arch>()));
    if (std::find(archs.begin(), archs.end(), *arch) == archs.end()) archs.push_back(*arch);
  }
  return archs;
}

std::vector<AttentionShape> choose_shapes(const NamedConfig& named, const std::vector<std::string>& names,
                                          bool checks) {
  const std::vector<AttentionShape>& all = named.config.shapes;
  std::vector<AttentionShape> chosen;
  if (names.empty()) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(chosen),
                 [&](const auto& shape) { return shape.check == checks; });
    if (chosen.empty()) chosen = all;
    if (chosen.empty()) throw ConfigError(named.path + ": /shapes", "is empty; a shape to run would do");
    return chosen;
  }
  for (const std::string& name : names) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& shape) { return shape.name == name; });
    if (found == all.end()) {
      std::vector<std::string> known;
      for (const AttentionShape& shape : all) known.push_back(shape.name);
      throw ConfigError("--shape",
                        fmt::format("{} is no shape of {}; it has {}", name, named.path, fmt::join(known, ", ")));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

void require_valid(const NamedConfig& named, std::optional<Arch> arch) {
  std::vector<Violation> violations = validate(named.config, arch);
  if (!violations.empty()) throw in_file(named.path, ConfigError(std::move(violations)));
}

EmulatorBackendOptions emulator_options(const Options& options, Arch arch) {
  using emulator::Completion;
  EmulatorBackendOptions emulator;
  emulator.arch = arch;
  emulator.hazards = options.hazards;
  emulator.completion = options.completion == "lazy"     ? Completion::kLazy
                        : options.completion == "random" ? Completion::kRandom
                                                         : Completion::kEager;
  emulator.seed = options.seed;
  emulator.timeline = options.timeline;
  emulator.timeline_cta = options.cta;
  return emulator;
}

CacheOptions cache_options(const Options& options) {
  CacheOptions cache;
  if (!options.cache_dir.empty()) cache.directory = options.cache_dir;
  // What a person pays for in time is not kept: that is said once a cause, and is no failure.
  cache.sink = [](const Event& event) {
    if (event.kind != EventKind::kCacheDegraded && event.kind != EventKind::kCacheQuarantine) return;
    const bool named = event.name.empty() || event.detail.find(event.name) != std::string::npos;
    fmt::print(stderr, "kernelwright: cache: {}{}{}\n", named ? "" : event.name, named ? "" : ": ", event.detail);
  };
  return cache;
}

}  // namespace kernelwright::cli
