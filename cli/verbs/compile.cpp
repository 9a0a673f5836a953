// kernelwright compile: compiles every kernel of every config for every architecture, on all cores, through the cache.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "cli/exit_code.h"
#include "cli/explain/resources.h"
#include "cli/targets.h"
#include "cli/terminal.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/runtime/store/kernel_store.h"
#include "kernelwright/verify/parallel.h"

namespace kernelwright::cli {
namespace {

/// One kernel of a config that must be compiled.
struct Job {
  const NamedConfig* named;
  Arch arch;
  std::string role;
  Spec spec;
  std::shared_ptr<const Binary> binary;
  bool cached = false;
  double milliseconds = 0;
  std::string key, error;
  bool missing = false;  // the machine causes the error, not the kernel
};

/// "gemm_sm90 m64"
std::string kernel_text(const Job& job) {
  return kernel_name(job.spec) + (job.role == "main" || job.role == "combine" ? "" : " " + job.role);
}

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// The first violation, without the file's name.
std::string first_of(const NamedConfig& named, const std::vector<Violation>& violations) {
  std::string text = violations.at(0).text();
  if (const std::string file = named.path + ": "; text.starts_with(file)) text.erase(0, file.size());
  if (violations.size() > 1) text += fmt::format(" (and {} more)", violations.size() - 1);
  return text;
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

/// Configs that are skipped go to configs.skipped, by name. In a folder, a config is skipped if its schedule is for
/// other architectures, or on one architecture if another one accepts it. If the user named no architecture, each one
/// that does not accept the config is skipped. A config that no architecture accepts is refused.
std::vector<Job> plan_jobs(Configs& configs, const Options& options) {
  std::vector<Job> jobs;
  std::vector<Violation> violations;
  const TunedTable rows = tuned_rows(options);
  const bool archs_are_named = !options.archs.empty();
  std::map<Arch, const MachineClass*> machines;  // the device is asked once
  const auto machine_on = [&](Arch arch) {
    const MachineClass*& known = machines[arch];
    return known ? known : known = &choose_machine(options, arch);
  };
  for (const NamedConfig& named : configs.usable) {
    std::vector<Arch> archs = choose_archs(named, options);
    std::optional<SkippedConfig> skipped;
    std::erase_if(archs, [&](Arch arch) {
      auto on = skipped_on(named, arch);
      if (!on) return false;
      skipped = std::move(on);
      return true;
    });
    if (archs.empty() && skipped) configs.skipped.push_back(std::move(*skipped));
    std::vector<std::pair<Arch, std::vector<Violation>>> refusals;
    for (const Arch arch : archs) try {
        for (PlannedKernel& kernel : kernels_for(named, *machine_on(arch), rows))
          jobs.push_back({&named, arch, std::move(kernel.role), std::move(kernel.spec), nullptr});
      } catch (const ConfigError& error) {
        refusals.emplace_back(arch, error.violations());
      }
    const bool taken = refusals.size() < archs.size();
    for (const auto& [arch, why] : refusals)
      if (taken && (named.in_folder || !archs_are_named))
        configs.skipped.push_back(
            {named.path, named.name(), fmt::format("not for {}: {}", to_string(arch), first_of(named, why))});
      else
        violations.insert(violations.end(), why.begin(), why.end());
  }
  if (!violations.empty()) throw ConfigError(std::move(violations));
  return jobs;
}

void build(KernelStore& store, Job& job) {
  const auto start = std::chrono::steady_clock::now();
  double lock_wait_ms = 0;  // time of another process, not of this kernel
  try {
    job.key = store.key(job.spec).digest().hex();
    job.binary = store.find(job.spec);
    job.cached = job.binary != nullptr;
    if (!job.binary) job.binary = store.compile(job.spec, nullptr, &lock_wait_ms);
  } catch (const std::exception& error) {
    const auto resource = exhausted_resource(error);
    job.error = resource ? error.what() + std::string("\n") + *resource : error.what();
    job.missing = resource || dynamic_cast<const MissingError*>(&error);
  }
  job.milliseconds = since(start) - lock_wait_ms;
}

void write_file(const std::string& path, const void* data, std::size_t bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  if (!file.flush()) throw ConfigError(path, "cannot be written");
}

void write_outputs(const std::vector<Job>& jobs, const std::string& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (!std::filesystem::is_directory(folder)) throw ConfigError(folder, "cannot be made a folder: " + code.message());
  for (const Job& job : jobs) {
    if (!job.binary) continue;
    const std::string stem = fmt::format("{}/{}{}.{}", folder, job.named->name(),
                                         job.role == "main" ? "" : "." + job.role, to_string(job.arch));
    write_file(stem + ".cubin", job.binary->cubin.data(), job.binary->cubin.size());
    write_file(stem + ".ptx", job.binary->ptx.data(), job.binary->ptx.size());
  }
}

JsonValue to_json(const Job& job) {
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

/// The jobs that share a Spec, by their places in `jobs`. Configs that differ in shapes only share a kernel, so each
/// Spec is built once.
std::vector<std::vector<std::size_t>> jobs_by_spec(const std::vector<Job>& jobs) {
  std::map<std::string, std::vector<std::size_t>> by_spec;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    by_spec[kernel_name(jobs[i].spec) + "\n" + canonical_text(jobs[i].spec)].push_back(i);
  std::vector<std::vector<std::size_t>> groups;
  for (auto& [spec, members] : by_spec) groups.push_back(std::move(members));
  return groups;
}

/// Builds each Spec, and gives the result to all jobs that share it.
void build_all(KernelStore& store, std::vector<Job>& jobs, const std::vector<std::vector<std::size_t>>& groups) {
  Progress progress("compiling", groups.size());
  parallel_for(groups.size(), [&](std::size_t i) {
    Job& first = jobs[groups[i].front()];
    build(store, first);
    for (const std::size_t other : groups[i]) {
      const NamedConfig* named = jobs[other].named;
      std::string role = std::move(jobs[other].role);
      jobs[other] = first;
      jobs[other].named = named;
      jobs[other].role = std::move(role);
    }
    progress.step(first.named->name());
  });
}

/// Kernels, not jobs.
struct Totals {
  std::size_t kernels = 0;
  int failed = 0, missing = 0, compiled = 0;
  double milliseconds = 0;
  int exit_code() const { return failed ? kMismatch : missing ? kMissing : kDone; }
};

void print_json(const std::vector<Job>& jobs, const Configs& configs, const Totals& totals) {
  JsonValue rows = JsonValue::array(), skipped = JsonValue::array();
  for (const Job& job : jobs) rows.push(to_json(job));
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

void print_table(const std::vector<Job>& jobs, const Configs& configs, const Totals& totals) {
  const Style style(stdout);
  Table table({"config", "arch", "kernel", "registers", "spills", "cubin", "time", ""});
  for (const Job& job : jobs) {
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
                    [](const Job& job) { return job.binary != nullptr; }));
  if (!jobs.empty()) fmt::print("{}{}", table.text(style), more_text(style, jobs.size(), jobs.size() - hidden));
  print_skipped(configs.skipped);
  fmt::print("{} kernel{}, {} compiled in {}\n", totals.kernels, totals.kernels == 1 ? "" : "s", totals.compiled,
             duration_text(totals.milliseconds));
}

}  // namespace

int compile(const Options& options) {
  Configs configs = read_configs(options);
  if (!options.outputs.empty()) require_names_apart(configs);
  std::vector<Job> jobs = plan_jobs(configs, options);
  require_address_space();
  KernelStore store(cache_options(options));
  const std::vector<std::vector<std::size_t>> groups = jobs_by_spec(jobs);

  const auto start = std::chrono::steady_clock::now();
  build_all(store, jobs, groups);
  Totals totals{.kernels = groups.size(), .milliseconds = since(start)};
  for (const std::vector<std::size_t>& group : groups) {
    const Job& job = jobs[group.front()];
    totals.failed += !job.binary && !job.missing;
    totals.missing += job.missing;
    totals.compiled += job.binary && !job.cached;
  }
  if (!options.outputs.empty()) write_outputs(jobs, options.outputs);
  if (options.json)
    print_json(jobs, configs, totals);
  else
    print_table(jobs, configs, totals);
  std::map<std::string, int> errors;  // one line per cause
  for (const Job& job : jobs)
    if (!job.binary && errors[job.error]++ == 0)
      fmt::print(stderr, "kernelwright: {} for {}: {}\n", job.named->path, to_string(job.arch), job.error);
  return totals.exit_code();
}

}  // namespace kernelwright::cli
