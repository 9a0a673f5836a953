/// The manual page and the shells' completions, made from the table that the command line is parsed by, so that they
/// cannot differ from it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace kernelwright::cli {

/// A page of section 1, in the man macros. `version`: "kernelwright 0.1.0".
std::string manual_page(const CLI::App& app, const std::string& version);

/// What `shell`, one of bash, zsh and fish, reads to complete verbs, options and their values.
std::string completion_of(const CLI::App& app, const std::string& shell);

}  // namespace kernelwright::cli
