// The host part of a disk hit in a fresh process: the time from a key's fields to the Binary. The steps before it
// (where NVRTC is, which build it is) are timed separately. Each sample is a process of its own, started with exec. The
// program prints medians and extremes. The entry has the size of attention_portable's for sm_90a: an 80 KB cubin and
// 190 KB of PTX that pack to 20 and 24 KB.
//
//   kernelwright_cache_bench [samples]
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <vector>

#include "kernelwright/runtime/cache/cubin_cache.h"
#include "kernelwright/runtime/compile/compiler_identity.h"
#include "kernelwright/runtime/compile/nvrtc_path.h"

namespace {

using namespace kernelwright;
using Clock = std::chrono::steady_clock;

double us(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

CacheKey sample_key(std::string compiler) {
  CacheKey key;
  key.entry_stem = "attention_portable";
  for (int i = 0; i < 40; ++i) key.spec += fmt::format("field_{} = {}\n", i, i * i);
  key.closure = sha256("closure");
  key.options = {"-arch=sm_90a", "-std=c++17", "--no-cache", "-default-device", "--ptxas-options=-v"};
  key.arch = "sm_90a";
  key.compiler = std::move(compiler);
  return key;
}

// Bytes that compress like code, four to one and eight to one: 16-byte words from a skewed set, and lines that name few
// registers.
Binary sample_binary() {
  Binary binary;
  std::mt19937 random(7);
  for (int word = 0; word < 5120; ++word) {
    for (int byte = 0; byte < 16; ++byte) {
      const unsigned pick = byte < 4 ? random() % 251 : word % 7 * 31u + static_cast<unsigned>(byte);
      binary.cubin.push_back(static_cast<std::byte>(pick));
    }
  }
  for (int line = 0; line < 6000; ++line)
    binary.ptx += fmt::format("\tfma.rn.f32 \t%f{}, %f{}, %f{};\n", line / 4, random() % 30, line / 8);
  binary.entry = "kernelwright_sample";
  return binary;
}

std::string identity() { return compiler_identity(find_nvrtc().value_or("")).value_or("none"); }

// A fresh process: prints identity, hit, warm identity, warm hit in microseconds.
int sample(const char* directory, bool ptx) {
  const auto start = Clock::now();
  const std::string compiler = identity();
  const auto identified = Clock::now();
  CubinCache cache({.directory = directory, .ptx = ptx});
  const auto found = cache.find(sample_key(compiler));
  const auto hit = Clock::now();
  if (!found || found->cubin.empty()) return 1;
  CubinCache again({.directory = directory, .ptx = ptx});
  const auto before = Clock::now();
  if (!again.find(sample_key(compiler))) return 1;
  const auto after = Clock::now();
  fmt::print("{} {} {}\n", us(start, identified), us(identified, hit), us(before, after));
  return 0;
}

void report(const std::string& what, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  fmt::print("{:<52} median {:7.1f} us   p90 {:7.1f}   least {:7.1f}   n {}\n", what, values[values.size() / 2],
             values[values.size() * 9 / 10], values.front(), values.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--sample") return sample(argv[2], std::string(argv[3]) == "ptx");
  const int samples = argc > 1 ? std::max(1, std::atoi(argv[1])) : 51;
  std::string directory = (std::filesystem::temp_directory_path() / "kernelwright-bench-XXXXXX").string();
  if (!mkdtemp(directory.data())) return 1;
  std::vector<double> publish, ids, hits, warm;
  {
    CubinCache cache({.directory = directory});
    CacheKey key = sample_key(identity());
    for (int i = 0; i < 20; ++i) {
      key.abi = 20 - i - 1;  // the last key is the one that is timed
      const auto begin = Clock::now();
      cache.put(key, sample_binary());
      publish.push_back(us(begin, Clock::now()));
    }
    fmt::print("entry: {} bytes of {} cubin and {} PTX\n", cache.list()[0].file_bytes, sample_binary().cubin.size(),
               sample_binary().ptx.size());
  }
  for (const char* parts : {"ptx", "cubin"}) {
    ids.clear(), hits.clear(), warm.clear();
    for (int i = 0; i < samples; ++i) {
      const std::string command = fmt::format(
          "'{}' --sample '{}' {}", std::filesystem::read_symlink("/proc/self/exe").string(), directory, parts);
      FILE* out = popen(command.c_str(), "r");
      double id = 0, hit = 0, second = 0;
      if (!out || fscanf(out, "%lf %lf %lf", &id, &hit, &second) != 3) return 1;
      pclose(out);
      ids.push_back(id);
      hits.push_back(hit);
      warm.push_back(second);
    }
    const char* what = *parts == 'p' ? "cubin and PTX" : "cubin alone";
    report(fmt::format("disk hit, fresh process, {}", what), hits);
    report(fmt::format("disk hit, the process' second, {}", what), warm);
  }
  report("find NVRTC and read its build-ids, fresh process", ids);
  report("publish (pack, write, fdatasync, rename, index)", publish);
  std::filesystem::remove_all(directory);
  return 0;
}
