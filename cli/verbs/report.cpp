// kernelwright report: one HTML page of tuning logs and of measurements, to look at and to send on.
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <filesystem>
#include <span>

#include "cli/exit_code.h"
#include "cli/output_file.h"
#include "cli/report/report_page.h"
#include "cli/terminal.h"
#include "cli/verbs/verbs.h"
#include "kernelwright/generator/error.h"

namespace kernelwright::cli {
namespace {

/// Shows the file in the user's browser. The page is written by then, so a machine without a browser loses nothing.
void open_in_browser(const std::string& path) {
  std::string word = "xdg-open", file = std::filesystem::absolute(path).string();
  char* words[] = {word.data(), file.data(), nullptr};
  pid_t child = 0;
  int status = 0;
  if (::posix_spawnp(&child, words[0], nullptr, nullptr, words, environ) != 0 ||
      ::waitpid(child, &status, 0) != child || status != 0)
    throw MissingError(fmt::format("--open: xdg-open did not show {}; a browser would do", file));
}

}  // namespace

int report(const Options& options) {
  const bool compare = !options.compared.empty();
  std::vector<ReportSource> sources;
  for (const auto* paths : {&options.compared, &options.configs})
    for (const std::string& path : *paths) sources.push_back(read_report_source(path));
  if (sources.empty())
    throw ConfigError("command line", "report needs a file: LOG of tune, CSV of compare_peers.py, or --compare A B");
  const std::string page = report_page(sources, compare);
  write_output_file(options.report_file, std::as_bytes(std::span(page)));
  if (options.json)
    fmt::print("{}\n", JsonValue::object()
                           .set("file", options.report_file)
                           .set("bytes", page.size())
                           .set("sources", sources.size())
                           .dump());
  else
    fmt::print("{}, {}\n", options.report_file, size_text(static_cast<double>(page.size())));
  if (options.open) open_in_browser(options.report_file);
  return kDone;
}

}  // namespace kernelwright::cli
