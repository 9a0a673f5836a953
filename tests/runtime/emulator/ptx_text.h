/// Small PTX texts for the emulator's tests.
#pragma once

#include <string>

namespace kernelwright::test {

/// Lines that module_of() puts before its text, and in_body() before its statements.
inline constexpr int kLinesBeforeText = 3, kLinesBeforeBody = 5;

inline std::string module_of(const std::string& text, const std::string& target = "sm_90a") {
  return ".version 8.8\n.target " + target + "\n.address_size 64\n" + text;
}

/// An entry k without parameters.
inline std::string in_body(const std::string& statements, const std::string& registers = "") {
  return module_of(".visible .entry k()\n{ " + registers + "\n" + statements + "\n}\n");
}

}  // namespace kernelwright::test
