// Turns words into configs, shapes and architectures. Reports everything that is wrong with the command line at once.
#include "cli/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>

#include "cli/terminal.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/message.h"
#include "kernelwright/generator/models/plan_file.h"
#include "kernelwright/runtime/cache/bundle.h"
#include "kernelwright/runtime/cache/remote_layer.h"

namespace kernelwright::cli {
namespace {

namespace fs = std::filesystem;

void append(std::vector<Violation>& all, const ConfigError& error) {
  all.insert(all.end(), error.violations().begin(), error.violations().end());
}

void read_file(const std::string& path, bool named_directly, Configs& configs, std::vector<Violation>& violations) {
  try {
    bool is_plan = false;
    for (Config& config : read_config_or_plan_file(path, is_plan)) {
      std::string place = is_plan ? path + "#" + name_of(config) : path;
      configs.usable.push_back({std::move(place), std::move(config), !named_directly});
    }
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
  for (Violation& violation : violations)  // errors about the file itself name the file already
    if (violation.path.find(file) == std::string::npos)
      violation.path = violation.path.empty() ? file : file + ": " + violation.path;
  return ConfigError(std::move(violations));
}

namespace {

/// Keeps the configs that --problem names. Throws ConfigError for a name that none has.
void keep_named(Configs& configs, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::vector<std::string> known;
  for (const NamedConfig& named : configs.usable) known.push_back(named.name());
  for (const std::string& name : names)
    if (std::ranges::find(known, name) == known.end())
      throw ConfigError("--problem", fmt::format("{} is no problem here; there are {}", name, listed(known)));
  std::erase_if(configs.usable, [&](const NamedConfig& named) { return !std::ranges::count(names, named.name()); });
}

}  // namespace

Configs read_configs(const Options& options) {
  Configs configs;
  std::vector<Violation> violations;
  for (const std::string& path : options.configs) {
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
  keep_named(configs, options.problems);
  return configs;
}

void print_skipped(const std::vector<SkippedConfig>& skipped) {
  const Style style(stdout);
  for (std::size_t i = 0; i < std::min(skipped.size(), kMostLines); ++i)
    fmt::print("  {} {}: {}\n", style.dim("skipped"), skipped[i].path, skipped[i].reason);
  fmt::print("{}", more_text(style, skipped.size()));
}

std::vector<NamedConfig> read_one_file(const Options& options) {
  const std::vector<std::string>& paths = options.configs;
  if (paths.size() != 1) throw ConfigError("CONFIG", fmt::format("{} are named; one would do", paths.size()));
  std::error_code code;
  if (fs::is_directory(paths[0], code)) throw ConfigError(paths[0], "is a directory; one config file would do");
  Configs configs = read_configs(options);
  if (configs.usable.empty()) throw ConfigError(paths[0], "is a plan without problems; one with some would do");
  return std::move(configs.usable);
}

NamedConfig read_one_config(const Options& options) {
  std::vector<NamedConfig> configs = read_one_file(options);
  if (configs.size() > 1) {
    std::vector<std::string> names;
    for (const NamedConfig& named : configs) names.push_back(named.name());
    throw ConfigError(
        options.configs[0],
        fmt::format("is a plan of {} problems; --problem NAME would do, with one of {}", names.size(), listed(names)));
  }
  return std::move(configs[0]);
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

const Auto<Arch>& NamedConfig::arch() const {
  return std::visit([](const auto& kind) -> const Auto<Arch>& { return kind.schedule.arch; }, config);
}

std::vector<std::size_t> choose_shapes(const std::string& path, const std::vector<ShapeLabel>& labels,
                                       const std::vector<std::string>& names, bool checks) {
  std::vector<std::size_t> chosen;
  if (names.empty()) {
    for (std::size_t i = 0; i < labels.size(); ++i)
      if (labels[i].check == checks) chosen.push_back(i);
    if (chosen.empty())
      for (std::size_t i = 0; i < labels.size(); ++i) chosen.push_back(i);
    if (chosen.empty()) throw ConfigError(path + ": /shapes", "is empty; a shape to run would do");
    return chosen;
  }
  for (const std::string& name : names) {
    const auto found =
        std::find_if(labels.begin(), labels.end(), [&](const ShapeLabel& label) { return label.name == name; });
    if (found == labels.end()) {
      std::vector<std::string> known;
      for (const ShapeLabel& label : labels) known.push_back(label.name);
      throw ConfigError("--shape", fmt::format("{} is no shape of {}; it has {}", name, path, listed(known)));
    }
    chosen.push_back(static_cast<std::size_t>(found - labels.begin()));
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
  emulator.hazards = !options.hazards.empty();
  emulator.completion = options.completion == "lazy"     ? Completion::kLazy
                        : options.completion == "random" ? Completion::kRandom
                                                         : Completion::kEager;
  emulator.seed = options.seed;
  emulator.timeline = options.timeline;
  emulator.timeline_cta = options.cta;
  return emulator;
}

double parse_seconds(const char* option, const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  const double factor = unit == "" || unit == "s" ? 1 : unit == "m" || unit == "min" ? 60 : unit == "h" ? 3600 : 0;
  if (fault != std::errc() || factor == 0 || !(value > 0) || value * factor > 1e6)
    throw ConfigError(option, quoted_for_message(text) + " is no time; 120s, 5m or 1h would do");
  return value * factor;
}

BundleTrust bundle_trust(const Options& options) {
  BundleTrust trust = BundleTrust::of_files(options.bundle_keys);
  if (!trust.fault.empty()) throw ConfigError("--bundle-key", trust.fault);
  return trust;
}

namespace {

/// The environment may name what the options do not, and the other way round.
void require_remote(const RemoteOptions& remote) {
  const std::pair<const char*, bool> named[] = {{"--remote-key", !remote.keys.empty()},
                                                {"--remote-signing-key", !remote.signing_key.empty()},
                                                {"--remote-ca", !remote.ca.empty()},
                                                {"--remote-certificate", !remote.certificate.empty()},
                                                {"--remote-certificate-key", !remote.certificate_key.empty()}};
  const auto* const first = std::ranges::find_if(named, [](const auto& option) { return option.second; });
  if (remote.address.empty() && first == std::end(named)) return;
  if (!RemoteLayer::open(remote, {}, "--remote"))
    throw ConfigError(first->first, "no server is named; --remote or $KERNELWRIGHT_REMOTE would do");
}

}  // namespace

CacheOptions cache_options(const Options& options) {
  CacheOptions cache;
  if (!options.cache_dir.empty()) cache.directory = options.cache_dir;
  const BundleTrust trust = bundle_trust(options);
  for (const std::string& path : options.bundles)
    if (const Bundle bundle(path, Payload::kSkip, {}, trust); !bundle.fault().empty())
      throw ConfigError("--bundle", bundle.fault());
  cache.bundles = options.bundles;
  cache.bundle_keys = options.bundle_keys;
  require_remote(options.remote);
  cache.remote = options.remote;
  // A cache that stores nothing costs the person time. Each cause is reported once; it is no failure.
  cache.lock_timeout_ms = options.lock_timeout_s * 1000;
  cache.sink = [](const Event& event) {
    if (event.kind == EventKind::kLockWait) {
      fmt::print(stderr, "kernelwright: {}: {} (--lock-timeout)\n", event.name, event.detail);
      return;
    }
    if (event.kind == EventKind::kCompileWorker) {
      fmt::print(stderr, "kernelwright: {}: {}\n", event.name, event.detail);
      return;
    }
    if (event.kind != EventKind::kCacheDegraded && event.kind != EventKind::kCacheQuarantine) return;
    const bool named = event.name.empty() || event.detail.find(event.name) != std::string::npos;
    fmt::print(stderr, "kernelwright: cache: {}{}{}\n", named ? "" : event.name, named ? "" : ": ", event.detail);
  };
  return cache;
}

}  // namespace kernelwright::cli
