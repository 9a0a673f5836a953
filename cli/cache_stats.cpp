#include "cli/cache_stats.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <ctime>
#include <optional>

#include "cli/exit_code.h"
#include "cli/terminal.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"

namespace kernelwright::cli {
namespace {

std::string seconds_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.1f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string day_text(std::int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  char day[32] = "";
  if (::gmtime_r(&time, &parts)) std::strftime(day, sizeof day, "%Y-%m-%d", &parts);
  return day;
}

std::string bytes_text(std::uint64_t bytes) { return size_text(static_cast<double>(bytes)); }

}  // namespace

std::uint64_t parse_size(const std::string& option, const std::string& text) {
  const auto refuse = [&] {
    return ConfigError(option, fmt::format("{:.64} is no size; 512MB, 1.5G, 2GiB and a number of bytes are", text));
  };
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), last, number, std::chars_format::fixed);
  std::string unit(stop, last);
  if (fault != std::errc() || !(number >= 0)) throw refuse();
  if (unit.ends_with('B')) unit.pop_back();
  const bool binary = unit.ends_with('i');
  if (binary) unit.pop_back();
  constexpr std::string_view kUnits = "KMGT";
  if (unit.size() > 1 || (binary && unit.empty()) || kUnits.find(unit) == std::string_view::npos) throw refuse();
  const auto power = unit.empty() ? 0.0 : static_cast<double>(kUnits.find(unit) + 1);
  const double bytes = std::round(number * std::pow(binary ? 1024 : 1000, power));
  if (!(bytes < 0x1p63)) throw refuse();
  return static_cast<std::uint64_t>(bytes);
}

int cache_stats(CubinCache& cache, bool json) {
  const CacheStats stats = cache.stats();
  std::uint64_t bytes = 0, kernels = 0;
  for (const EntrySummary& entry : cache.list()) {
    bytes += entry.file_bytes;
    ++kernels;
  }
  const std::uint64_t hits = stats.disk_hits + stats.layer_hits, misses = stats.compiles + stats.compile_failures;
  if (json) {
    fmt::print("{}\n", JsonValue::object()
                           .set("directory", cache.directory())
                           .set("kernels", kernels)
                           .set("bytes", bytes)
                           .set("max_bytes", cache.max_bytes())
                           .set("since_s", stats.since_s)
                           .set("runs", stats.runs)
                           .set("hits", hits)
                           .set("misses", misses)
                           .set("disk_hits", stats.disk_hits)
                           .set("layer_hits", stats.layer_hits)
                           .set("memory_hits", stats.memory_hits)
                           .set("compiles", stats.compiles)
                           .set("compile_failures", stats.compile_failures)
                           .set("compile_s", stats.compile_s)
                           .set("saved_s", stats.saved_s)
                           .set("bytes_read", stats.bytes_read)
                           .set("bytes_written", stats.bytes_written)
                           .set("quarantined", stats.quarantined)
                           .set("evicted", stats.evicted)
                           .set("fault", stats.fault)
                           .dump());
    return kDone;
  }
  const Style style(stdout);
  fmt::print("{} {}: {} kernel{}, {} of {}\n", style.dim("cache"), cache.directory(), kernels, kernels == 1 ? "" : "s",
             bytes_text(bytes), bytes_text(cache.max_bytes()));
  if (!stats.fault.empty()) fmt::print("  {}\n", style.bad("the file stats " + stats.fault + "; it is begun anew"));
  if (stats.runs == 0) {
    fmt::print("  nothing has been asked of it yet\n");
    return kDone;
  }
  fmt::print("  {} run{} since {}\n", stats.runs, stats.runs == 1 ? "" : "s", day_text(stats.since_s));
  const std::string share =
      hits + misses == 0
          ? ""
          : fmt::format(", {:.0f} % of all", 100.0 * static_cast<double>(hits) / static_cast<double>(hits + misses));
  fmt::print("  hits     {}{}: {} from the directory, {} from read-only layers; {} read\n", hits, share,
             stats.disk_hits, stats.layer_hits, bytes_text(stats.bytes_read));
  fmt::print("  misses   {}: {} compiled in {}, {} failed; {} written\n", misses, stats.compiles,
             seconds_text(stats.compile_s), stats.compile_failures, bytes_text(stats.bytes_written));
  fmt::print("  saved    {} of compiling\n", seconds_text(stats.saved_s));
  fmt::print("  upkeep   {} evicted, {} quarantined\n", stats.evicted, stats.quarantined);
  return kDone;
}

int cache_limit(CubinCache& cache, const std::string& size, bool json) {
  std::optional<std::uint64_t> bytes;
  if (size != "none") bytes = parse_size("--max-size", size);
  if (const std::string reason = cache.set_max_bytes(bytes); !reason.empty())
    throw ConfigError("--max-size", "is not kept: " + reason);
  const std::size_t removed = cache.prune();
  if (json)
    fmt::print("{}\n", JsonValue::object()
                           .set("directory", cache.directory())
                           .set("max_bytes", cache.max_bytes())
                           .set("removed", removed)
                           .dump());
  else
    fmt::print("{} keeps at most {}{}; {} kernel{} removed\n", cache.directory(), bytes_text(cache.max_bytes()),
               bytes ? "" : ", the default", removed, removed == 1 ? "" : "s");
  return kDone;
}

}  // namespace kernelwright::cli
