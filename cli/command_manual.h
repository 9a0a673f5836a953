/// The manual page and the shells' completions. They are made from the table that parses the command line, so they
/// cannot differ from it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace kernelwright::cli {

/// A manual page of section 1, in the man macros. `version`: "kernelwright 0.1.0".
std::string manual_page(const CLI::App& app, const std::string& version);

/// The file from which `shell` (bash, zsh or fish) completes verbs, options and their values.
std::string completion_of(const CLI::App& app, const std::string& shell);

}  // namespace kernelwright::cli
