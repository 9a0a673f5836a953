// secure_getenv everywhere: a set-user-id program must not start a program that its caller names.
#include "kernelwright/runtime/workers/options.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/compile/nvrtc_path.h"

namespace kernelwright {
namespace {

constexpr const char* kName = "kernelwright-cc";

bool is_program(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

/// Where the program may be, best first. A place that the caller or the environment names hides all others.
std::vector<std::string> places(const CompileWorkerOptions& options) {
  if (!options.program.empty()) return {options.program};
  if (const char* named = secure_getenv("KERNELWRIGHT_CC"); named && *named) return {named};
  std::vector<std::string> found;
  for (const std::string& own : own_folders())
    for (const char* beside : {"/", "/bin/", "/../bin/", "/../../bin/", "/../cli/"})
      found.push_back(own + beside + kName);
  return found;
}

}  // namespace

std::string_view to_string(CompileIn where) {
  switch (where) {
    case CompileIn::kProcess: return "process";
    case CompileIn::kWorkers: return "workers";
    case CompileIn::kAuto: return "auto";
    case CompileIn::kHosts: return "hosts";
  }
  return "?";
}

CompileIn compile_in_of(std::string_view word, const std::string& path) {
  for (const CompileIn each : {CompileIn::kProcess, CompileIn::kWorkers, CompileIn::kAuto, CompileIn::kHosts})
    if (word == to_string(each)) return each;
  throw ConfigError(path, fmt::format("\"{:.64}\" is not one of process, workers, auto, hosts", word));
}

CompileIn compile_in(const CompileWorkerOptions& options) {
  if (options.where) return *options.where;
  const char* word = secure_getenv("KERNELWRIGHT_COMPILE_IN");
  return word && *word ? compile_in_of(word, "$KERNELWRIGHT_COMPILE_IN") : CompileIn::kProcess;
}

std::string find_worker_program(const CompileWorkerOptions& options) {
  for (const std::string& place : places(options))
    if (is_program(place)) return place;
  return {};
}

std::string worker_program_places(const CompileWorkerOptions& options) {
  std::string words;
  for (const std::string& place : places(options)) words += (words.empty() ? "" : ", ") + place;
  return words;
}

}  // namespace kernelwright
