// What compile workers cost and what they save. Each sample is a process of its own, started with exec: it compiles one
// kernel, compiles it again three times, and reads its own memory.
//
//   kernelwright_worker_bench CONFIG [samples]
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "kernelwright/generator/attention/planner.h"
#include "kernelwright/generator/json/config_json.h"
#include "kernelwright/generator/source/specialize.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "kernelwright/runtime/workers/compile_workers.h"

namespace {

using namespace kernelwright;
using Clock = std::chrono::steady_clock;

double since_ms(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Private and shared memory of this process, in MB.
double resident_mb() {
  std::ifstream file("/proc/self/statm");
  double size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

// A fresh process: prints the first compile with everything before it, the median of later ones, and the memory that it
// has more than before.
int sample(const std::string& path) {
  const Config config = read_config_file(path);
  const auto& attention = std::get<AttentionConfig>(config);
  const SourceUnit unit = specialize(plan_attention(attention.problem, attention.schedule, Arch::kSm90a).main);
  const double before = resident_mb();
  const auto start = Clock::now();
  Compiler compiler({}, {}, [](const std::string& nvrtc) { return make_source_compiler(nvrtc, {}, {}); });
  compiler.compile(unit);
  const double first = since_ms(start);
  std::array<double, 3> later{};
  for (double& each : later) {
    const auto begin = Clock::now();
    compiler.compile(unit);
    each = since_ms(begin);
  }
  std::sort(later.begin(), later.end());
  malloc_trim(0);
  fmt::print("{} {} {}\n", first, later[1], resident_mb() - before);
  return 0;
}

void measure(const std::string& self, const std::string& path, const char* where, int samples) {
  std::array<std::vector<double>, 3> columns;
  const std::string command = fmt::format("KERNELWRIGHT_COMPILE_IN={} '{}' --sample '{}'", where, self, path);
  for (int i = 0; i < samples; ++i) {
    FILE* out = popen(command.c_str(), "r");
    std::array<double, 3> row{};
    if (!out || std::fscanf(out, "%lf %lf %lf", &row[0], &row[1], &row[2]) != 3) std::exit(1);
    pclose(out);
    for (std::size_t column = 0; column < row.size(); ++column) columns[column].push_back(row[column]);
  }
  constexpr const char* kNames[] = {"first compile, ms", "later compile, ms", "memory kept, MB"};
  for (std::size_t column = 0; column < columns.size(); ++column) {
    std::vector<double>& values = columns[column];
    std::sort(values.begin(), values.end());
    fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.1f} |\n", where, kNames[column], values.front(),
               values[values.size() / 2], values.back());
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 3 && std::string(arguments[1]) == "--sample") return sample(arguments[2]);
  if (count < 2) {
    fmt::print(stderr, "usage: kernelwright_worker_bench CONFIG [samples]\n");
    return 2;
  }
  const int samples = count > 2 ? std::max(std::atoi(arguments[2]), 1) : 9;
  fmt::print("| compile in | what | least | median | most |\n|---|---|---|---|---|\n");
  for (const char* where : {"process", "workers"}) measure(arguments[0], arguments[1], where, samples);
}
