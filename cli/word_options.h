/// Options of the command line whose values are text.
#pragma once

#include <CLI/CLI.hpp>

namespace kernelwright::cli {

template <class T>
CLI::Option* word(CLI::App* verb, const char* name, T& to, const char* text, const char* type) {
  return verb->add_option(name, to, text)->type_name(type);
}

/// One value each time that the option is given.
inline void many(CLI::Option* option) { option->take_all()->expected(1); }

}  // namespace kernelwright::cli
