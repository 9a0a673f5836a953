// kernelwright compile: compiles every kernel of every config for every architecture, on all cores, through the cache.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "cli/compile_jobs.h"
#include "cli/exit_code.h"
#include "cli/explain/resources.h"
#include "cli/terminal.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"

namespace kernelwright::cli {
namespace {

/// "gemm_sm90 m64"
std::string kernel_text(const CompileJob& job) {
  return kernel_name(job.spec) + (job.role == "main" || job.role == "combine" ? "" : " " + job.role);
}

/// Two configs with the same name would write to the same files.
void require_names_apart(const Configs& configs) {
  std::map<std::string, std::string> paths;
  for (const NamedConfig& named : configs.usable)
    if (const auto [first, is_new] = paths.emplace(named.name(), named.path); !is_new)
      throw ConfigError(named.path + ": /name",
                        fmt::format("{} is the name of {} too, and --outputs names its files by it; another name, or "
                                    "another folder for each, would do",
                                    named.name(), first->second));
}

void write_file(const std::string& path, const void* data, std::size_t bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  if (!file.flush()) throw ConfigError(path, "cannot be written");
}

void write_outputs(const std::vector<CompileJob>& jobs, const std::string& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (!std::filesystem::is_directory(folder)) throw ConfigError(folder, "cannot be made a folder: " + code.message());
  for (const CompileJob& job : jobs) {
    if (!job.binary) continue;
    const std::string stem = fmt::format("{}/{}{}.{}", folder, job.named->name(),
                                         job.role == "main" ? "" : "." + job.role, to_string(job.arch));
    write_file(stem + ".cubin", job.binary->cubin.data(), job.binary->cubin.size());
    write_file(stem + ".ptx", job.binary->ptx.data(), job.binary->ptx.size());
  }
}

JsonValue to_json(const CompileJob& job) {
  JsonValue row = JsonValue::object();
  row.set("config", job.named->name()).set("path", job.named->path).set("arch", to_string(job.arch));
  row.set("kernel", kernel_name(job.spec)).set("role", job.role).set("key", job.key);
  if (!job.binary) return row.set("error", job.error);
  const ResourceUsage& usage = job.binary->usage;
  JsonValue warnings = JsonValue::array();
  for (const std::string& warning : job.binary->warnings) warnings.push(warning);
  return row.set("entry", job.binary->entry)
      .set("registers", usage.registers)
      .set("spill_bytes", usage.spill_stores + usage.spill_loads)
      .set("cubin_bytes", job.binary->cubin.size())
      .set("cached", job.cached)
      .set("milliseconds", job.milliseconds)
      .set("warnings", std::move(warnings));
}

void print_json(const std::vector<CompileJob>& jobs, const Configs& configs, const CompileTotals& totals) {
  JsonValue rows = JsonValue::array(), skipped = JsonValue::array();
  for (const CompileJob& job : jobs) rows.push(to_json(job));
  for (const SkippedConfig& config : configs.skipped)
    skipped.push(JsonValue::object().set("path", config.path).set("reason", config.reason));
  fmt::print("{}\n", JsonValue::object()
                         .set("verdict", totals.exit_code() == kDone ? "ok" : "failed")
                         .set("milliseconds", totals.milliseconds)
                         .set("compiled", totals.compiled)
                         .set("kernels", std::move(rows))
                         .set("skipped", std::move(skipped))
                         .dump());
}

void print_table(const std::vector<CompileJob>& jobs, const Configs& configs, const CompileTotals& totals) {
  const Style style(stdout);
  Table table({"config", "arch", "kernel", "registers", "spills", "cubin", "time", ""});
  for (const CompileJob& job : jobs) {
    if (&job >= jobs.data() + kMostLines && job.binary) continue;  // failures are always printed
    if (!job.binary) {
      table.row({job.named->name(), std::string(to_string(job.arch)), kernel_text(job), "-", "-", "-", "-",
                 style.verdict(false)});
      continue;
    }
    const ResourceUsage& usage = job.binary->usage;
    const int spills = usage.spill_stores + usage.spill_loads;
    table.row({job.named->name(), std::string(to_string(job.arch)), kernel_text(job), std::to_string(usage.registers),
               spills ? style.bad(std::to_string(spills)) : "0",
               size_text(static_cast<double>(job.binary->cubin.size())),
               job.cached ? "cached" : duration_text(job.milliseconds), style.verdict(true)});
  }
  const std::size_t hidden = static_cast<std::size_t>(
      std::count_if(jobs.begin() + static_cast<std::ptrdiff_t>(std::min(jobs.size(), kMostLines)), jobs.end(),
                    [](const CompileJob& job) { return job.binary != nullptr; }));
  if (!jobs.empty()) fmt::print("{}{}", table.text(style), more_text(style, jobs.size(), jobs.size() - hidden));
  print_skipped(configs.skipped);
  fmt::print("{} kernel{}, {} compiled in {}\n", totals.kernels, totals.kernels == 1 ? "" : "s", totals.compiled,
             duration_text(totals.milliseconds));
}

}  // namespace

int compile(const Options& options) {
  Configs configs = read_configs(options);
  if (!options.outputs.empty()) require_names_apart(configs);
  std::vector<CompileJob> jobs = plan_jobs(configs, options);
  require_address_space();
  KernelStore store(cache_options(options));
  const CompileTotals totals = build_all(store, jobs);
  if (!options.outputs.empty()) write_outputs(jobs, options.outputs);
  if (options.json)
    print_json(jobs, configs, totals);
  else
    print_table(jobs, configs, totals);
  print_errors(jobs);
  return totals.exit_code();
}

}  // namespace kernelwright::cli
