// kernelwright_mutate: how many missing or wrong synchronisation instructions does the checker find? It deletes or
// alters each synchronisation instruction of our kernels, one at a time, and runs the emulator with its checks.
//
//   kernelwright_mutate [--kernel PART_OF_NAME] [--jobs N] [--equivalents FILE] [--markdown FILE] [--csv FILE]
//                       [--minimum PERCENT] [--verbose] [--launches FILE] [--seeds N]
//
// With --launches the kernels are PTX files of any compiler, and FILE says how they are launched
// (runtime/emulator/launches/ptx_case.h).
//
// With --seeds each mutant that nothing finds runs under N more schedules of each completion policy. Where a barrier is
// deleted, it also runs with each warp held up there for long. A fault that no check knows may then show as a wrong
// output.
//
// Exit status: 0; 1 if the adjusted score is below --minimum or an equivalent is stale; 2 for a wrong argument or a
// kernel that fails unmutated; 77 if there is no NVRTC. The program prints the share of mutants that are claimed
// equivalent.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/compile/compiler.h"
#include "runtime/emulator/mutation/mutation_report.h"

namespace {

using namespace kernelwright;
using namespace kernelwright::test;

struct Arguments {
  std::string kernel, equivalents, markdown, csv, launches;
  int jobs = 1, seeds = 0;
  double minimum = 0;
  bool verbose = false;
};

Arguments read_arguments(int count, char** values) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string name = values[i];
    if (name == "--verbose") {
      arguments.verbose = true;
      continue;
    }
    if (i + 1 >= count) throw Error(name + " is not an option, or lacks its value");
    const std::string value = values[++i];
    if (name == "--kernel")
      arguments.kernel = value;
    else if (name == "--equivalents")
      arguments.equivalents = value;
    else if (name == "--markdown")
      arguments.markdown = value;
    else if (name == "--csv")
      arguments.csv = value;
    else if (name == "--launches")
      arguments.launches = value;
    else if (name == "--jobs")
      arguments.jobs = std::max(1, std::atoi(value.c_str()));
    else if (name == "--seeds")
      arguments.seeds = std::max(0, std::atoi(value.c_str()));
    else if (name == "--minimum")
      arguments.minimum = std::atof(value.c_str());
    else
      throw Error(name + " is not an option");
  }
  return arguments;
}

void write(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) throw Error("cannot write " + path);
}

/// Silent mutants with a reason become equivalent. Entries for kernels that were run and that explain nothing are
/// stale: the mutant is found now, or the code has changed.
std::vector<std::string> apply(std::vector<Equivalent>& equivalents, const std::vector<Subject>& subjects,
                               std::vector<MutantResult>& results) {
  for (MutantResult& result : results)
    if (result.fate == Fate::kSilent)
      if (Equivalent* entry = find_equivalent(equivalents, result.key)) {
        result.fate = Fate::kEquivalent;
        ++entry->count;
      }
  std::vector<std::string> stale;
  for (const Equivalent& entry : equivalents) {
    const bool ran = std::any_of(subjects.begin(), subjects.end(),
                                 [&](const Subject& subject) { return matches(entry.pattern.kernel, subject.name); });
    if (ran && entry.count == 0)
      stale.push_back(fmt::format("line {}: {} | {} | {} | {}", entry.line, entry.pattern.kernel, entry.pattern.source,
                                  entry.pattern.instruction, entry.pattern.change));
  }
  return stale;
}

int run(const Arguments& arguments) {
  const bool shipped = arguments.launches.empty();
  if (shipped && Compiler().path().empty()) {
    std::puts("skipped: no NVRTC on this machine: set KERNELWRIGHT_NVRTC");
    return 77;
  }
  std::vector<Equivalent> equivalents;
  if (!arguments.equivalents.empty()) equivalents = read_equivalents(arguments.equivalents);
  const std::vector<Subject> subjects =
      shipped ? mutation_subjects(arguments.kernel) : ptx_subjects(arguments.launches, arguments.kernel);
  if (subjects.empty()) throw Error("no kernel's name contains " + arguments.kernel);
  std::vector<MutantResult> results;
  for (const Subject& subject : subjects) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<MutantResult> found = run_mutants(subject, arguments.jobs, arguments.seeds);
    const MutationScore score = score_of(found);
    fmt::print("{:40} {:4} mutants, {:4} found, {:6.1f} s\n", subject.name, score.mutants, score.found(),
               std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    std::fflush(stdout);
    for (MutantResult& result : found) results.push_back(std::move(result));
  }
  const std::vector<std::string> stale = apply(equivalents, subjects, results);
  if (arguments.verbose)
    for (const MutantResult& result : results)
      if (!result.first_text.empty())
        fmt::print("{} | {} | {} | {}\n{}\n", result.kernel, result.key.source, result.site.text(), result.change,
                   result.first_text);
  const std::string markdown = markdown_of(results, equivalents);
  if (!arguments.markdown.empty()) write(arguments.markdown, markdown);
  if (!arguments.csv.empty()) write(arguments.csv, csv_of(results));
  std::puts(markdown.c_str());

  const MutationScore score = score_of(results);
  int status = 0;
  for (const std::string& entry : stale) {
    fmt::print("stale: no silent mutant is what this entry of {} says: {}\n", arguments.equivalents, entry);
    status = 1;
  }
  if (score.adjusted_percent() < arguments.minimum) {
    fmt::print("{:.1f} % is below the minimum of {:.1f} %\n", score.adjusted_percent(), arguments.minimum);
    status = 1;
  }
  return status;
}

}  // namespace

int main(int count, char** values) {
  try {
    return run(read_arguments(count, values));
  } catch (const Error& error) {
    fmt::print(stderr, "kernelwright_mutate: {}\n", error.what());
    return 2;
  }
}
