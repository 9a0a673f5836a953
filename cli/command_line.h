/// The table of verbs and options. The command line is parsed with it, and the manual page and the shells' completions
/// are made from it.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>

#include "cli/options.h"

namespace kernelwright::cli {

class CommandLine {
 public:
  explicit CommandLine(Options& options);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  /// Parses and runs. Throws ConfigError for a line that does not parse, and whatever the verb throws.
  int operator()(int argc, char** argv);

  const CLI::App& app() const { return app_; }

 private:
  using Verb = std::function<int(const Options&)>;
  void require_verb(const std::string& word) const;
  const CLI::App* find_verb(const std::string& word) const;
  std::string verbs_text() const;
  int print_version(const Options& options) const;
  int print_help(const std::string& word) const;

  CLI::App* add_plain(const char* name, const char* text, Verb verb);
  CLI::App* add(const char* name, const char* text, Verb verb);
  void add_tune();
  void add_pack();
  void add_plan();
  void add_report();
  void add_emulate();
  void add_trace();
  void add_cache();
  void add_worker();
  void add_about();
  void remote(CLI::App* verb);
  void configs(CLI::App* verb);
  void problem(CLI::App* verb);
  void device(CLI::App* verb);
  void claimed_arch(CLI::App* verb);
  void emulated(CLI::App* verb);
  void archs(CLI::App* verb);
  void shapes(CLI::App* verb);
  void seed(CLI::App* verb);

  Options& options_;
  CLI::App app_;
  std::map<const CLI::App*, Verb> verbs_;
  std::string help_of_, shell_;
};

}  // namespace kernelwright::cli
