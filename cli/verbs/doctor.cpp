// kernelwright doctor: what is installed, what is missing, and what to do about it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "cli/disassembler.h"
#include "cli/exit_code.h"
#include "cli/terminal.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/gemm/planner.h"
#include "kernelwright/generator/json/document.h"
#include "kernelwright/generator/kernels.h"
#include "kernelwright/generator/problem/arch.h"
#include "kernelwright/runtime/cache/cubin_cache.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/cuda/cuda_backend.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/workers/compile_workers.h"

namespace kernelwright::cli {
namespace {

struct Finding {
  std::string what;
  bool present;
  std::string text;    // the finding
  std::string remedy;  // what to do if it is missing
};

JsonValue to_json(const DeviceInfo& info) {
  JsonValue device = JsonValue::object();
  device.set("name", info.name).set("compute_capability", fmt::format("{}.{}", info.compute_major, info.compute_minor));
  device.set("arch", info.arch ? JsonValue(to_string(*info.arch)) : JsonValue());
  return device.set("sms", info.num_sms)
      .set("memory_bytes", info.memory_bytes)
      .set("l2_bytes", info.l2_bytes)
      .set("clock_khz", info.clock_khz);
}

void find_driver(std::vector<Finding>& findings, JsonValue& object) {
  try {
    const std::string version = driver_version();
    object.set("driver", version);
    findings.push_back({"driver", true, "for CUDA " + version, ""});
  } catch (const Error& error) {
    object.set("driver", JsonValue());
    findings.push_back({"driver", false, error.what(),
                        "compile, explain, source, ptx and sass work without one; run and bench do not"});
  }
}

bool find_gpus(std::vector<Finding>& findings, JsonValue& devices, std::string& why_none) {
  try {
    const auto backend = make_cuda_backend();
    bool usable = false;
    for (int i = 0; i < backend->device_count(); ++i) {
      const DeviceInfo& info = backend->device(i).info();
      devices.push(to_json(info));
      usable |= info.arch.has_value();
      findings.push_back(
          {fmt::format("GPU {}", i), info.arch.has_value(),
           fmt::format("{}, {}, {} SMs, {}, L2 {}", info.name,
                       info.arch ? std::string(to_string(*info.arch))
                                 : fmt::format("compute capability {}.{}", info.compute_major, info.compute_minor),
                       info.num_sms, size_text(static_cast<double>(info.memory_bytes)),
                       size_text(static_cast<double>(info.l2_bytes))),
           fmt::format("no kernel here is compiled for it; architectures are {}", all_words<Arch>())});
    }
    return usable;
  } catch (const Error& error) {
    if (findings.back().present)  // otherwise the driver's line has reported it
      findings.push_back({"GPU", false, error.what(), "an NVIDIA GPU from compute capability 8.0 on"});
    why_none = error.what();
    return false;
  }
}

void find_emulator(std::vector<Finding>& findings, JsonValue& object) {
  JsonValue archs = JsonValue::array();
  for (const ArchInfo& row : all_archs()) archs.push(row.name);
  object.set("emulator", JsonValue::object().set("archs", std::move(archs)));
  findings.push_back(
      {"emulator", true,
       fmt::format("runs kernels on the CPU as {} to {}", all_archs().front().name, all_archs().back().name), ""});
}

bool find_compiler(std::vector<Finding>& findings, JsonValue& object) {
  Compiler compiler;
  JsonValue found = JsonValue::object();
  found.set("path", compiler.path());
  try {
    const std::string version = compiler.version();
    found.set("version", version);
    object.set("compiler", std::move(found));
    findings.push_back({"compiler", true, fmt::format("NVRTC {} at {}", version, compiler.path()), ""});
    return true;
  } catch (const Error& error) {
    found.set("error", error.what());
    object.set("compiler", std::move(found));
    findings.push_back({"compiler", false, error.what(),
                        "a CUDA toolkit from 12.8 on, with CUDA_HOME naming it, or KERNELWRIGHT_NVRTC naming libnvrtc; "
                        "beside the Python package: pip install nvidia-cuda-nvrtc"});
    return false;
  }
}

/// Whether the worker program is found and starts, and how long that takes.
void find_compile_workers(std::vector<Finding>& findings, JsonValue& object) {
  CompileWorkerOptions options;
  JsonValue found = JsonValue::object();
  const std::string program = find_worker_program(options);
  found.set("program", program);
  std::string text, remedy = "build or install kernelwright-cc beside the command, or set KERNELWRIGHT_CC to it";
  bool starts = false;
  try {
    const CompileIn chosen = compile_in(options);
    found.set("compile_in", to_string(chosen));
    options.where = CompileIn::kWorkers;
    Compiler compiler(
        {}, {}, [&](const std::string& path) { return std::make_unique<CompileWorkers>(path, options, EventSink()); });
    const auto begin = std::chrono::steady_clock::now();
    const std::string version = compiler.version();
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - begin;
    found.set("starts_in_ms", spent.count());
    starts = true;
    text =
        fmt::format("{} starts with NVRTC {} in {:.0f} ms; {}", program, version, spent.count(),
                    chosen == CompileIn::kProcess ? "not used: KERNELWRIGHT_COMPILE_IN=auto uses it"
                    : chosen == CompileIn::kHosts ? "not used: KERNELWRIGHT_COMPILE_IN=hosts asks other hosts"
                                                  : fmt::format("used: KERNELWRIGHT_COMPILE_IN={}", to_string(chosen)));
  } catch (const Error& error) {
    found.set("error", error.what());
    text = error.what();
    if (!program.empty()) remedy = "kernels compile in the process that asks for them";
  }
  object.set("compile_workers", std::move(found));
  findings.push_back({"workers", starts, text, remedy});
}

/// If the Python package handed over: which Python, and whether its extension takes the calls of handles
/// (python/kernelwright/_command.py). A text that the package did not write is passed over.
void find_python(std::vector<Finding>& findings, JsonValue& object) {
  const char* told = std::getenv("KERNELWRIGHT_PYTHON_CALLS");
  if (!told || !*told) return;
  try {
    const JsonValue calls = JsonValue::parse(told);
    const std::string& version = calls.at("/python").as_string();
    const std::string& why = calls.at("/why").as_string();
    const bool fast = calls.at("/fast").as_bool();
    object.set("python", JsonValue::object().set("version", version).set("fast", fast).set("why", why));
    findings.push_back({"python", fast,
                        fast ? fmt::format("{}; calls of handles take the extension {}", version, why)
                             : fmt::format("{}; calls of handles go through ctypes: {}", version, why),
                        "results are the same, and a call takes longer"});
  } catch (const Error&) {
  }
}

void find_cache(const Options& options, std::vector<Finding>& findings, JsonValue& object) {
  const CubinCache cache(cache_options(options));
  const std::vector<EntrySummary> entries = cache.list();
  double bytes = 0;
  for (const EntrySummary& entry : entries) bytes += static_cast<double>(entry.file_bytes);
  const bool there = !cache.directory().empty();
  object.set("cache", JsonValue::object()
                          .set("directory", cache.directory())
                          .set("entries", entries.size())
                          .set("bytes", bytes)
                          .set("status", cache.status()));
  findings.push_back(
      {"cache", there,
       there ? fmt::format("{}: {} kernel{}, {}", cache.directory(), entries.size(), entries.size() == 1 ? "" : "s",
                           size_text(bytes))
             : "in memory only",
       "set HOME, XDG_CACHE_HOME or KERNELWRIGHT_CACHE_DIR, so that kernels are kept between processes"});
  std::string status = cache.status();
  while (!status.empty() && status.back() == '\n') status.pop_back();
  for (std::size_t at = 0; (at = status.find('\n', at)) != status.npos; at += 12)
    status.replace(at, 1, "\n           ");
  findings.push_back({"", true, status, ""});
}

/// Returns whether the server does what is asked of it.
bool find_remote(const Options& options, std::vector<Finding>& findings, JsonValue& object) {
  CubinCache cache(cache_options(options));
  const std::optional<RemoteProbe> probe = cache.probe_remote();
  constexpr const char* kRemedy =
      "--remote or KERNELWRIGHT_REMOTE names the server, and --remote-key or KERNELWRIGHT_REMOTE_KEYS a builder's key";
  if (!probe) {
    object.set("remote", JsonValue());
    findings.push_back({"remote", false, "no server is named, or it cannot be used", kRemedy});
    return false;
  }
  object.set("remote", JsonValue::object()
                           .set("server", probe->server)
                           .set("read", probe->read)
                           .set("wrote", probe->wrote)
                           .set("fault", probe->fault)
                           .set("milliseconds", probe->milliseconds)
                           .set("workers", [&] {
                             JsonValue archs = JsonValue::array();
                             for (const std::string& arch : probe->workers) archs.push(arch);
                             return archs;
                           }()));
  const bool works = probe->fault.empty();
  findings.push_back({"remote", works,
                      fmt::format("{}: {}{}{} ({:.1f} ms)", probe->server,
                                  probe->wrote ? "a value was put, read, proved and removed"
                                  : works      ? "answers; nothing is written without a signing key"
                                               : "failed",
                                  probe->fault.empty() ? "" : "; ", probe->fault, probe->milliseconds),
                      kRemedy});
  if (!probe->workers.empty())
    findings.push_back(
        {"", true, fmt::format("workers of other hosts build for {}", fmt::join(probe->workers, ", ")), ""});
  return works;
}

/// Plans each row of one kind for its own problem. Returns how many rows could be planned, and adds the others to
/// `unusable`.
template <class Match>
std::size_t count_usable(const std::vector<Match>& rows, std::vector<SkippedRow>& unusable) {
  std::size_t usable = 0;
  for (const Match& match : rows) try {
      plan_by_model(match.row->problem, match.row->schedule, match.row->arch);
      ++usable;
    } catch (const ConfigError& error) {
      unusable.push_back({match.name, error.what()});
    }
  return usable;
}

/// Reports rows that cannot be used, so that no server meets them first.
void find_tuned_rows(const Options& options, std::vector<Finding>& findings, JsonValue& object) {
  const TunedTable table = TunedTable::from_environment(options.tuned_dir, require_usable);
  std::vector<SkippedRow> unusable = table.skipped();
  const std::size_t usable =
      count_usable(table.rows<AttentionConfig>(&unusable), unusable) + count_usable(table.rows<GemmConfig>(), unusable);
  JsonValue list = JsonValue::array();
  for (const SkippedRow& row : unusable) list.push(JsonValue::object().set("row", row.name).set("reason", row.reason));
  object.set(
      "tuned",
      JsonValue::object().set("directory", table.directory()).set("usable", usable).set("unusable", std::move(list)));
  findings.push_back({"tuned", unusable.empty(),
                      fmt::format("{} row{}{}", usable, usable == 1 ? "" : "s",
                                  table.directory().empty() ? "" : " with those of " + table.directory()),
                      "rows that cannot be used are passed over; the planner's model chooses there"});
  for (const SkippedRow& row : unusable) findings.push_back({"", true, row.name + ": " + row.reason, ""});
}

/// What works on a machine without a compiler.
std::vector<std::string> works_without_compiler(bool can_run) {
  return {can_run ? "run and bench of kernels in the cache"
                  : "run and trace of kernels in the cache, with --device emulator",
          "explain", "source", "emulate", "cache"};
}

}  // namespace

int doctor(const Options& options) {
  std::vector<Finding> findings;
  JsonValue object = JsonValue::object(), devices = JsonValue::array();
  find_driver(findings, object);
  std::string gpu_error;
  const bool can_run = find_gpus(findings, devices, gpu_error);
  object.set("devices", std::move(devices));
  if (!gpu_error.empty()) object.set("devices_error", gpu_error);
  find_emulator(findings, object);
  const bool can_compile = find_compiler(findings, object);
  if (can_compile) find_compile_workers(findings, object);
  find_python(findings, object);
  find_cache(options, findings, object);
  const bool remote_works = !options.probe_remote || find_remote(options, findings, object);
  find_tuned_rows(options, findings, object);
  const auto disassembler = find_disassembler();
  findings.push_back({"sass", disassembler.has_value(),
                      disassembler ? disassembler->path : "no nvdisasm and no cuobjdump",
                      "the CUDA toolkit has both; CUDA_HOME or PATH would name them"});
  object.set("disassembler", disassembler ? JsonValue(disassembler->path) : JsonValue());
  object.set("can_compile", can_compile).set("can_run", can_run);
  const std::vector<std::string> works = can_compile ? std::vector<std::string>{} : works_without_compiler(can_run);
  if (!can_compile) {
    JsonValue list = JsonValue::array();
    for (const std::string& what : works) list.push(what);
    object.set("works_without_compiler", std::move(list));
  }

  const int code = (can_compile || can_run) && remote_works ? kDone : kMissing;
  if (options.json) {
    fmt::print("{}\n", object.set("verdict", code == kDone ? "ok" : "missing").dump());
    return code;
  }
  const Style style(stdout);
  for (const Finding& finding : findings) {
    const std::string mark = finding.what.empty() ? " "
                             : finding.present    ? style.good(style.utf8() ? "✓" : "+")
                                                  : style.bad(style.utf8() ? "✗" : "-");
    fmt::print("{} {:<9}{}\n", mark, finding.what, finding.what.empty() ? style.dim(finding.text) : finding.text);
    if (!finding.present) fmt::print("           {}\n", style.dim(finding.remedy));
  }
  fmt::print("{}\n", can_run && can_compile ? "Can compile and run kernels."
                     : can_compile          ? "Can compile kernels, and run them on the emulator."
                     : can_run              ? "Can run cached kernels; cannot compile new ones."
                                            : "Can neither compile kernels nor run them on a GPU.");
  if (!works.empty()) fmt::print("What works without a compiler: {}.\n", fmt::join(works, "; "));
  return code;
}

}  // namespace kernelwright::cli
