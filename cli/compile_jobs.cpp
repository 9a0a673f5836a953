#include "cli/compile_jobs.h"

#include <fmt/format.h>

#include <chrono>
#include <map>

#include "cli/exit_code.h"
#include "cli/explain/resources.h"
#include "cli/targets.h"
#include "cli/terminal.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/verify/parallel.h"

namespace kernelwright::cli {
namespace {

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

void build(KernelStore& store, CompileJob& job) {
  const auto start = std::chrono::steady_clock::now();
  double lock_wait_ms = 0;  // time of another process, not of this kernel
  try {
    job.key = store.key(job.spec).digest().hex();
    CacheSource source = CacheSource::kNone;
    job.binary = store.compile(job.spec, &source, &lock_wait_ms);
    job.cached = source != CacheSource::kCompiled;
  } catch (const std::exception& error) {
    const auto resource = exhausted_resource(error);
    job.error = resource ? error.what() + std::string("\n") + *resource : error.what();
    job.missing = resource || dynamic_cast<const MissingError*>(&error);
  }
  job.milliseconds = since(start) - lock_wait_ms;
}

/// The jobs that share a Spec, by their places in `jobs`. Configs that differ in shapes only share a kernel, so each
/// Spec is built once.
std::vector<std::vector<std::size_t>> jobs_by_spec(const std::vector<CompileJob>& jobs) {
  std::map<std::string, std::vector<std::size_t>> by_spec;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    by_spec[kernel_name(jobs[i].spec) + "\n" + canonical_text(jobs[i].spec)].push_back(i);
  std::vector<std::vector<std::size_t>> groups;
  for (auto& [spec, members] : by_spec) groups.push_back(std::move(members));
  return groups;
}

}  // namespace

int CompileTotals::exit_code() const { return failed ? kMismatch : missing ? kMissing : kDone; }

std::vector<CompileJob> plan_jobs(Configs& configs, const Options& options) {
  std::vector<CompileJob> jobs;
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

CompileTotals build_all(KernelStore& store, std::vector<CompileJob>& jobs) {
  const std::vector<std::vector<std::size_t>> groups = jobs_by_spec(jobs);
  const auto start = std::chrono::steady_clock::now();
  Progress progress("compiling", groups.size());
  parallel_for(groups.size(), [&](std::size_t i) {
    CompileJob& first = jobs[groups[i].front()];
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
  CompileTotals totals{.kernels = groups.size(), .milliseconds = since(start)};
  for (const std::vector<std::size_t>& group : groups) {
    const CompileJob& job = jobs[group.front()];
    totals.failed += !job.binary && !job.missing;
    totals.missing += job.missing;
    totals.compiled += job.binary && !job.cached;
  }
  return totals;
}

void print_errors(const std::vector<CompileJob>& jobs) {
  std::map<std::string, int> errors;  // one line per cause
  for (const CompileJob& job : jobs)
    if (!job.binary && errors[job.error]++ == 0)
      fmt::print(stderr, "kernelwright: {} for {}: {}\n", job.named->path, to_string(job.arch), job.error);
}

}  // namespace kernelwright::cli
