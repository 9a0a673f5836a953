// Times the ways to a kernel: compiled cold with the library loaded, and compiled cold in a fresh process. Found on
// disk in a fresh process, with and without the driver's load. 64 kernels on two cores. Also checks whether two builds
// of one key are the same bytes. A case that needs a fresh process starts this program again with exec. A case that
// needs a GPU is skipped by name if there is none. Prints a table, then the same rows as CSV.
//
//   kernelwright_jit_bench [--configs DIR] [--arch sm_90a] [--repeats 3] [--samples 31] [--skip-many]
//
// DIR defaults to configs/problems below the current folder; no path is compiled in.
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernelwright/generator/attention/launch.h"
#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/store/kernel_store.h"

namespace {

using namespace kernelwright;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

double since_ms(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// The processor time that this process has used: less than the elapsed time if other processes share the core.
double processor_ms() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) * 1e-6;
}

struct Options {
  std::string configs = "configs/problems";
  Arch arch = Arch::kSm90a;
  int repeats = 3, samples = 31;
  bool many = true;
};

/// One kernel of one config.
struct Kernel {
  std::string name, path;
  AttentionConfig config;
  Spec spec;
};

std::vector<Kernel> shipped_kernels(const Options& options) {
  std::vector<fs::path> files;
  for (const auto& item : fs::directory_iterator(options.configs))
    if (item.path().extension() == ".json") files.push_back(item.path());
  std::sort(files.begin(), files.end());
  std::vector<Kernel> kernels;
  for (const fs::path& file : files) try {
      const Config config = read_config_file(file.string());
      const auto* attention = std::get_if<AttentionConfig>(&config);
      if (!attention) continue;  // no GEMM kernels yet
      const AttentionPlan plan = plan_attention(attention->problem, attention->schedule, options.arch);
      kernels.push_back({attention->name, file.string(), *attention, plan.main});
      if (plan.combine) kernels.push_back({attention->name + "/combine", file.string(), *attention, *plan.combine});
    } catch (const ConfigError& error) {
      fmt::print(stderr, "left out: {}: {}\n", file.string(), error.what());
    }
  return kernels;
}

/// Distinct kernels like those of a server with several models: heads, masks, pages and options vary.
std::vector<Spec> many_specs(Arch arch, std::size_t count) {
  std::vector<Spec> specs;
  for (const int head_dim : {64, 128, 96, 80})
    for (const MaskKind mask : {MaskKind::kCausal, MaskKind::kSlidingWindow, MaskKind::kNone})
      for (const int page_size : {0, 16, 64, 256})
        for (const ScoreModKind mod : {ScoreModKind::kNone, ScoreModKind::kSoftcap})
          for (const bool decode : {false, true}) {
            AttentionProblem problem;
            problem.head_dim = {head_dim, head_dim};
            problem.heads = {32, 8};
            problem.mask.kind = mask;
            if (mask == MaskKind::kSlidingWindow) problem.mask.window = {1023, 0};
            if (page_size) problem.kv_layout = {KvLayoutKind::kPaged, page_size};
            problem.score_mod.kind = mod;
            if (mod == ScoreModKind::kSoftcap) problem.score_mod.cap = 50;
            if (decode) problem.max_q_len = 1;
            try {
              const Spec spec = plan_attention(problem, {}, arch).main;
              if (std::find(specs.begin(), specs.end(), spec) == specs.end()) specs.push_back(spec);
            } catch (const ConfigError&) {  // no kernel for this Spec: try the next
            }
          }
  // Every k-th Spec, so that all dimensions occur.
  std::vector<Spec> some;
  for (std::size_t i = 0; i < std::min(count, specs.size()); ++i)
    some.push_back(specs[i * specs.size() / std::min(count, specs.size())]);
  return some;
}

/// The cores that this process may use, in order.
std::vector<int> cores() {
  cpu_set_t set;
  std::vector<int> found;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) found.push_back(core);
  return found;
}

/// Pins the calling thread. Threads and processes that it starts inherit the pinning.
void pin(const std::vector<int>& to) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : to) CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) fmt::print(stderr, "cannot pin to a core: timings are of all\n");
}

class Table {
 public:
  void add(const std::string& what, std::vector<double> values, const char* unit) {
    if (values.empty()) return;
    std::sort(values.begin(), values.end());
    rows_.push_back({what, unit, values.front(), values[values.size() / 2], values.back(), values.size()});
    const Row& row = rows_.back();
    fmt::print("{:<74} {:>9.3f} {:>9.3f} {:>9.3f} {:<2} n {}\n", what, row.least, row.median, row.most, unit,
               row.count);
    std::fflush(stdout);
  }
  void heading() const { fmt::print("{:<74} {:>9} {:>9} {:>9}\n", "what", "min", "median", "max"); }
  void csv() const {
    fmt::print("\ncsv,what,unit,min,median,max,n\n");
    for (const Row& row : rows_)
      fmt::print("csv,\"{}\",{},{:.4f},{:.4f},{:.4f},{}\n", row.what, row.unit, row.least, row.median, row.most,
                 row.count);
  }

 private:
  struct Row {
    std::string what, unit;
    double least, median, most;
    std::size_t count;
  };
  std::vector<Row> rows_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Runs this program again in a process of its own. Returns the numbers that it prints, or nothing if it failed.
std::vector<double> in_fresh_process(const std::vector<std::string>& words) {
  std::string command = fmt::format("'{}'", fs::read_symlink("/proc/self/exe").string());
  for (const std::string& word : words) command += fmt::format(" '{}'", word);
  std::vector<double> numbers;
  FILE* out = popen(command.c_str(), "r");
  if (!out) return numbers;
  for (double value = 0; fscanf(out, "%lf", &value) == 1;) numbers.push_back(value);
  return pclose(out) == 0 ? numbers : std::vector<double>{};
}

class TempFolder {
 public:
  TempFolder() {
    path_ = (fs::temp_directory_path() / "kernelwright-jit-XXXXXX").string();
    if (!mkdtemp(path_.data())) throw Error(path_ + " cannot be made");
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Milliseconds of each phase of one compile, as reported by NVRTC's --time.
std::map<std::string, double> phases(Compiler& compiler, SourceUnit unit, const std::string& folder) {
  const std::string path = folder + "/phases.csv";
  std::error_code ignored;
  fs::remove(path, ignored);
  unit.options.push_back("--time=" + path);
  compiler.compile(unit);
  std::map<std::string, double> found;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {  // file name, phase, number, unit
    std::vector<std::string> cells{""};
    for (const char c : line) c == ',' ? void(cells.emplace_back()) : void(cells.back() += c);
    if (cells.size() == 4 && !cells[1].empty())
      if (const double value = std::atof(cells[2].c_str()); value > 0) found[cells[1].substr(1)] += value;
  }
  return found;
}

// (a) Compiles cold with the library loaded, on one core.
void cold_in_process(const Options& options, const std::vector<Kernel>& kernels, const std::string& folder,
                     Table& table) {
  Compiler compiler;
  compiler.compile(specialize(kernels.front().spec));  // loads the library
  std::vector<double> mains, combines, processor;
  std::map<std::string, std::vector<double>> by_phase;
  std::string most_name;
  double most = 0;
  for (const Kernel& kernel : kernels) {
    const SourceUnit unit = specialize(kernel.spec);
    std::vector<double> runs, busy;
    for (int i = 0; i < options.repeats; ++i) {
      const double before = processor_ms();
      runs.push_back(compiler.compile(unit).compile_ms);
      busy.push_back(processor_ms() - before);
    }
    const double each = median(runs);
    if (std::holds_alternative<AttentionSpec>(kernel.spec)) processor.push_back(median(busy));
    (std::holds_alternative<CombineSpec>(kernel.spec) ? combines : mains).push_back(each);
    if (each > most) {
      most = each;
      most_name = kernel.name;
    }
    table.add(fmt::format("a: cold, library loaded: {}", kernel.name), runs, "ms");
    if (std::holds_alternative<AttentionSpec>(kernel.spec))
      for (const auto& [phase, ms] : phases(compiler, unit, folder)) by_phase[phase].push_back(ms);
  }
  table.add("a: cold, library loaded, all attention kernels", mains, "ms");
  table.add("a: the same, processor time", processor, "ms");
  table.add("a: cold, library loaded, all combine kernels", combines, "ms");
  for (const auto& [phase, values] : by_phase) table.add("a: of that, " + phase, values, "ms");
  fmt::print("   largest: {} with {:.1f} ms\n", most_name, most);
}

Spec spec_of(const std::string& path, const std::string& arch) {
  const Config config = read_config_file(path);
  const auto& attention = std::get<AttentionConfig>(config);
  return plan_attention(attention.problem, attention.schedule, *from_string<Arch>(arch)).main;
}

// (b), the child: from nothing to the binary, including NVRTC's load. Prints the total, the load alone, and the second
// compile.
int child_cold(const std::string& path, const std::string& arch) {
  const Spec spec = spec_of(path, arch);
  const auto start = Clock::now();
  Compiler compiler;
  compiler.version();  // loads the library
  const double load = since_ms(start);
  const Binary first = compiler.compile(specialize(spec));
  const double total = since_ms(start);
  fmt::print("{} {} {}\n", total, load, compiler.compile(specialize(spec)).compile_ms);
  return first.cubin.empty();
}

// (c), the child: the Spec is ready, as in a server that has planned. Prints, in microseconds: the compiler's identity,
// source and key, the hit itself, and the hit of a second kernel, after all work that happens once per process.
int child_hit(const std::string& path, const std::string& arch, const std::string& directory,
              const std::string& other) {
  const Spec spec = spec_of(path, arch), second = spec_of(other, arch);
  const auto start = Clock::now();
  const Compiler compiler;
  const double identity = since_ms(start);
  const CacheKey key = compiler.key(specialize(spec));
  const double keyed = since_ms(start);
  CubinCache cache({.directory = directory, .ptx = false});
  const auto found = cache.find(key);
  const double hit = since_ms(start);
  const auto again = Clock::now();
  const auto other_found = cache.find(compiler.key(specialize(second)));
  const double later = since_ms(again);
  fmt::print("{} {} {} {}\n", identity * 1e3, (keyed - identity) * 1e3, (hit - keyed) * 1e3, later * 1e3);
  return !found || found->cubin.empty() || !other_found;
}

// (d), the child: a kernel becomes ready to launch in a process that has a CUDA context. Prints, in milliseconds:
// making the context, the hit with the driver's load, the driver's load alone, and the same for a second kernel.
int child_load(const std::string& path, const std::string& arch, const std::string& directory,
               const std::string& other) {
  const Spec spec = spec_of(path, arch), second = spec_of(other, arch);
  const auto start = Clock::now();
  const std::shared_ptr<Backend> backend = make_cuda_backend();
  Device& device = backend->device(0);
  device.synchronize(nullptr);
  const double context = since_ms(start);
  const auto shared = [](const Spec& each) { return shared_bytes(std::get<AttentionSpec>(each)); };
  const auto begin = Clock::now();
  KernelStore store({.directory = directory, .ptx = false});
  const auto binary = store.find(spec);
  if (!binary) return 1;
  const double hit = since_ms(begin);
  const auto kernel = device.load(binary->cubin, binary->entry, static_cast<std::uint32_t>(shared(spec)));
  const double ready = since_ms(begin);
  const auto next = Clock::now();
  const auto other_binary = store.find(second);
  if (!other_binary) return 1;
  const auto other_kernel =
      device.load(other_binary->cubin, other_binary->entry, static_cast<std::uint32_t>(shared(second)));
  fmt::print("{} {} {} {}\n", context, ready, ready - hit, since_ms(next));
  return 0;
}

void repeat_child(int times, const std::vector<std::string>& words, const std::vector<std::string>& names,
                  const char* unit, Table& table) {
  std::vector<std::vector<double>> columns(names.size());
  for (int i = 0; i < times; ++i) {
    const std::vector<double> row = in_fresh_process(words);
    if (row.size() != names.size()) throw Error("a sample process failed: " + words.front());
    for (std::size_t c = 0; c < row.size(); ++c) columns[c].push_back(row[c]);
  }
  for (std::size_t c = 0; c < names.size(); ++c) table.add(names[c], columns[c], unit);
}

// (e) Many distinct kernels on two cores, with two threads and one library.
void many_on_two_cores(const Options& options, const std::vector<int>& two, Table& table) {
  const std::vector<Spec> specs = many_specs(options.arch, 64);
  pin(two);
  KernelStore store({.disk = false});
  store.compiler().version();
  std::atomic<std::size_t> next{0};
  std::atomic<int> failed{0};
  const auto start = Clock::now();
  const auto work = [&] {
    for (std::size_t i; (i = next++) < specs.size();) try {
        store.compile(specs[i]);
      } catch (const Error& error) {
        ++failed;
        fmt::print(stderr, "{}\n", error.what());
      }
  };
  {
    std::jthread other([&] {
      pin({two.back()});
      work();
    });
    pin({two.front()});
    work();
  }
  table.add(fmt::format("e: {} distinct kernels cold, 2 threads on {} cores", specs.size(), two.size()),
            {since_ms(start) / 1e3}, "s");
  if (failed) throw Error(fmt::format("{} of {} kernels did not compile", failed.load(), specs.size()));
}

// (f) Builds the same key twice: once here and once in the child.
int child_digest(const std::string& path, const std::string& arch) {
  const Binary binary = Compiler().compile(specialize(spec_of(path, arch)));
  std::ofstream out(std::getenv("KERNELWRIGHT_JIT_BENCH_OUT"), std::ios::binary);
  out << sha256(binary.cubin).hex() << sha256(binary.ptx).hex();
  return out.flush() ? 0 : 1;
}

bool builds_are_identical(const Options& options, const std::vector<Kernel>& kernels, const std::string& folder) {
  Compiler compiler;
  bool same = true;
  for (const Kernel& kernel : {kernels.front(), kernels.back()}) {
    const Spec spec = spec_of(kernel.path, std::string(to_string(options.arch)));
    const Binary first = compiler.compile(specialize(spec)), second = compiler.compile(specialize(spec));
    const std::string out = folder + "/digest";
    setenv("KERNELWRIGHT_JIT_BENCH_OUT", out.c_str(), 1);
    in_fresh_process({"--child-digest", kernel.path, std::string(to_string(options.arch))});
    std::ifstream file(out);
    std::string elsewhere;
    file >> elsewhere;
    const bool here = first.cubin == second.cubin && first.ptx == second.ptx;
    const bool there = elsewhere == sha256(first.cubin).hex() + sha256(first.ptx).hex();
    fmt::print("f: {}: two builds in one process {}, a third in another process {}\n", kernel.name,
               here ? "byte-identical" : "DIFFER", there ? "byte-identical" : "DIFFERS");
    same = same && here && there;
  }
  return same;
}

std::string machine() {
  std::string model = "unknown processor";
  std::ifstream cpu("/proc/cpuinfo");
  bool sha = false;
  for (std::string line; std::getline(cpu, line);) {
    if (line.starts_with("model name")) model = line.substr(line.find(':') + 2);
    sha = sha || (line.starts_with("flags") && line.find(" sha_ni") != std::string::npos);
    if (line.empty()) break;
  }
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  return fmt::format("{}, {} cores, {}SHA instructions, load {:.1f}", model, std::thread::hardware_concurrency(),
                     sha ? "" : "no ", load);
}

int run(const Options& options) {
  const std::vector<Kernel> kernels = shipped_kernels(options);
  std::vector<const Kernel*> mains;
  for (const Kernel& kernel : kernels)
    if (std::holds_alternative<AttentionSpec>(kernel.spec)) mains.push_back(&kernel);
  if (mains.size() < 2) throw Error(options.configs + " has fewer than two attention configs");
  const std::string arch(to_string(options.arch));
  const std::vector<int> all = cores();
  if (all.empty()) throw Error("no core may be used");
  Compiler compiler;
  fmt::print("{}\nNVRTC {} {}\n", machine(), compiler.version(), compiler.path());
  const TempFolder folder;
  Table table;
  table.heading();

  if (options.many) many_on_two_cores(options, {all.front(), all[std::min<std::size_t>(1, all.size() - 1)]}, table);
  pin({all.front()});
  cold_in_process(options, kernels, folder.path(), table);
  const Kernel& first = *mains[0];
  const Kernel& second = *mains[1];
  repeat_child(options.repeats, {"--child-cold", first.path, arch},
               {fmt::format("b: cold, fresh process: {}", first.name), "b: of that, loading NVRTC",
                "b: the same process' second compile"},
               "ms", table);

  KernelStore store({.directory = folder.path() + "/cache"});
  store.compile(first.spec);
  store.compile(second.spec);
  const std::string directory = store.cache().directory();
  repeat_child(options.samples, {"--child-hit", first.path, arch, directory, second.path},
               {"c: fresh process: which compiler (once a process)", "c: fresh process: source and key",
                fmt::format("c: fresh process: disk hit, host part: {}", first.name),
                "c: the process' second kernel: source, key and disk hit"},
               "us", table);
  std::string no_gpu;
  try {
    make_cuda_backend();
  } catch (const Error& error) {
    no_gpu = error.what();
  }
  if (no_gpu.empty())
    repeat_child(options.samples, {"--child-load", first.path, arch, directory, second.path},
                 {"d: fresh process: making the CUDA context",
                  fmt::format("d: context there: disk hit to launch-ready: {}", first.name),
                  "d: of that, the driver's load", "d: the process' second kernel: disk hit to launch-ready"},
                 "ms", table);
  else
    fmt::print("d: disk hit to launch-ready: skipped: {}\n", no_gpu);
  const bool same = builds_are_identical(options, {first, second}, folder.path());
  table.csv();
  return same ? 0 : 1;
}

int usage(const std::string& wrong) {
  fmt::print(stderr, "{}; options: --configs DIR --arch sm_XX --repeats N --samples N --skip-many\n", wrong);
  return 2;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 3 && words[0] == "--child-cold") return child_cold(words[1], words[2]);
  if (words.size() == 3 && words[0] == "--child-digest") return child_digest(words[1], words[2]);
  if (words.size() == 5 && words[0] == "--child-hit") return child_hit(words[1], words[2], words[3], words[4]);
  if (words.size() == 5 && words[0] == "--child-load") return child_load(words[1], words[2], words[3], words[4]);
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--skip-many") {
      options.many = false;
      continue;
    }
    if (i + 1 == words.size()) return usage(word + " is no option, or lacks its value");
    const std::string& value = words[++i];
    if (word == "--configs")
      options.configs = value;
    else if (word == "--repeats")
      options.repeats = std::max(1, std::atoi(value.c_str()));
    else if (word == "--samples")
      options.samples = std::max(1, std::atoi(value.c_str()));
    else if (const auto arch = from_string<Arch>(value); word == "--arch" && arch)
      options.arch = *arch;
    else
      return usage(word + " " + value + " is no option");
  }
  return run(options);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 3;
}
