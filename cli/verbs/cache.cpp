// kernelwright cache: lists, checks and limits the stored kernels, and explains why a kernel was not found.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "cli/cache_stats.h"
#include "cli/exit_code.h"
#include "cli/targets.h"
#include "cli/terminal.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace kernelwright::cli {
namespace {

int list(CubinCache& cache, bool json) {
  const std::vector<EntrySummary> entries = cache.list();
  const Style style(stdout);
  Table table({"key", "kernel", "arch", "size", "last used", "compiler"});
  JsonValue rows = JsonValue::array();
  std::uint64_t bytes = 0;
  for (const EntrySummary& entry : entries) {
    bytes += entry.file_bytes;
    char day[32] = "";
    const std::time_t used = entry.last_used_s;
    std::tm parts{};
    if (used > 0 && ::gmtime_r(&used, &parts)) std::strftime(day, sizeof day, "%Y-%m-%d", &parts);
    const bool faulty = !entry.fault.empty();
    if (rows.elements().size() < kMostLines)
      table.row({entry.name.substr(0, 12), faulty ? style.bad(entry.fault) : entry.key.entry_stem, entry.key.arch,
                 size_text(static_cast<double>(entry.file_bytes)), day, entry.binary.compiler});
    JsonValue row = JsonValue::object();
    row.set("key", entry.name).set("bytes", entry.file_bytes).set("last_used_s", entry.last_used_s);
    if (faulty)
      row.set("fault", entry.fault);
    else
      row.set("kernel", entry.key.entry_stem)
          .set("arch", entry.key.arch)
          .set("compiler", entry.binary.compiler)
          .set("registers", entry.binary.usage.registers);
    rows.push(std::move(row));
  }
  if (json)
    fmt::print("{}\n", JsonValue::object()
                           .set("directory", cache.directory())
                           .set("bytes", bytes)
                           .set("entries", std::move(rows))
                           .dump());
  else
    fmt::print("{}{}{} {}: {} kernel{}, {}\n", entries.empty() ? "" : table.text(style),
               more_text(style, entries.size()), style.dim("cache"), cache.directory(), entries.size(),
               entries.size() == 1 ? "" : "s", size_text(static_cast<double>(bytes)));
  return kDone;
}

int check(CubinCache& cache, bool json) {
  const VerifyReport report = cache.verify();
  const Style style(stdout);
  JsonValue bad = JsonValue::array();
  for (const auto& [name, reason] : report.bad) bad.push(JsonValue::object().set("key", name).set("reason", reason));
  if (json)
    fmt::print("{}\n", JsonValue::object()
                           .set("directory", cache.directory())
                           .set("checked", report.checked)
                           .set("bytes", report.bytes)
                           .set("bad", std::move(bad))
                           .set("verdict", report.bad.empty() ? "ok" : "failed")
                           .dump());
  else {
    for (std::size_t i = 0; i < std::min(report.bad.size(), kMostLines); ++i)
      fmt::print("  {}  {}\n", report.bad[i].first.substr(0, 12), style.bad(report.bad[i].second));
    fmt::print("{}", more_text(style, report.bad.size()));
    fmt::print("{} {} kernel{}, {} in {}{}\n", style.verdict(report.bad.empty()), report.checked,
               report.checked == 1 ? "" : "s", size_text(static_cast<double>(report.bytes)), cache.directory(),
               report.bad.empty() ? "" : fmt::format("; {} set aside, to be built anew", report.bad.size()));
  }
  return report.bad.empty() ? kDone : kMismatch;
}

/// `failure`: why some entries could not be removed.
int removed(CubinCache& cache, bool json, std::size_t count, std::string failure) {
  if (failure.empty() && cache.directory().empty())
    failure = "no cache directory is named; --cache-dir or KERNELWRIGHT_CACHE_DIR would do";
  if (!failure.empty()) {
    if (count > 0) failure += fmt::format("; {} kernel{} removed before", count, count == 1 ? " was" : "s were");
    throw ConfigError("cache", failure);
  }
  if (json)
    fmt::print("{}\n", JsonValue::object().set("directory", cache.directory()).set("removed", count).dump());
  else
    fmt::print("{} kernel{} removed from {}\n", count, count == 1 ? "" : "s", cache.directory());
  return kDone;
}

int why(const Options& options) {
  const NamedConfig named = read_one_config(options);
  const Arch arch = choose_arch(named, options);
  require_valid(named, arch);
  KernelStore store(cache_options(options));
  const Spec spec = kernels_for(named, choose_machine(options, arch), tuned_rows(options)).front().spec;
  const CacheKey key = store.key(spec);
  const bool found = store.find(spec) != nullptr;
  const std::string reason = found ? "" : store.cache().why_missed(key);
  const auto answers = store.cache().layer_answers(key);
  JsonValue layers = JsonValue::array();
  for (const auto& [layer, has] : answers) layers.push(JsonValue::object().set("layer", layer).set("found", has));
  if (options.json)
    fmt::print("{}\n", JsonValue::object()
                           .set("key", key.digest().hex())
                           .set("arch", to_string(arch))
                           .set("found", found)
                           .set("why", reason)
                           .set("layers", std::move(layers))
                           .dump());
  else
    fmt::print("{} for {}, key {}: {}\n", named.name(), to_string(arch), key.digest().hex().substr(0, 12),
               found ? "in the cache" : "not in the cache; " + reason);
  if (!options.json)
    for (const auto& [layer, has] : answers) fmt::print("  {}  {}\n", has ? "has it " : "has not", layer);
  return kDone;
}

}  // namespace

int cache(const Options& options) {
  if (options.cache_verb.empty() && options.max_size.empty())
    throw ConfigError(
        "cache", "names no VERB; ls, stats, verify, prune, clear and why CONFIG are, and --max-size SIZE stands alone");
  if (!options.cache_verb.empty() && !options.max_size.empty())
    throw ConfigError("--max-size", fmt::format("stands alone; cache {} does not take it", options.cache_verb));
  if (options.cache_verb == "why") return why(options);
  if (!options.configs.empty())
    throw ConfigError("command line", fmt::format("cache {} takes no CONFIG; only cache why does", options.cache_verb));
  CubinCache cache(cache_options(options));
  if (!options.max_size.empty()) return cache_limit(cache, options.max_size, options.json);
  if (options.cache_verb == "stats") return cache_stats(cache, options.json);
  if (options.cache_verb == "ls") return list(cache, options.json);
  if (options.cache_verb == "verify") return check(cache, options.json);
  std::string failure;
  if (options.cache_verb == "clear") {
    const std::size_t count = cache.clear(&failure);
    return removed(cache, options.json, count, failure);
  }
  PruneLimits limits{options.max_bytes, options.max_entries, std::nullopt};
  if (options.max_age_days) limits.max_age_s = static_cast<std::int64_t>(*options.max_age_days * 86400);
  const std::size_t count = cache.prune(limits, &failure);
  return removed(cache, options.json, count, failure);
}

}  // namespace kernelwright::cli
