/// The errors of the library. Each says the place, what was found and what is accepted, in the caller's words.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace kernelwright {

/// Base of every exception that the library throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One rule that a config breaks: the place (a JSON pointer such as "/schedule/stages"), what was found and what is
/// accepted.
struct Violation {
  std::string path;
  std::string message;
  /// "/schedule/stages: 40 is outside [1, 32]"
  std::string text() const { return (path.empty() ? std::string("/") : path) + ": " + message; }
  bool operator==(const Violation&) const = default;
};

/// A config, an array or a call's arguments that cannot be used. what() has one violation per line.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::vector<Violation> violations)
      : Error(join(violations)), violations_(std::move(violations)) {}
  ConfigError(std::string path, std::string message)
      : ConfigError(std::vector<Violation>{{std::move(path), std::move(message)}}) {}
  const std::vector<Violation>& violations() const { return violations_; }

 private:
  static std::string join(const std::vector<Violation>& violations) {
    std::string lines;
    for (const Violation& violation : violations) lines += (lines.empty() ? "" : "\n") + violation.text();
    return lines;
  }
  std::vector<Violation> violations_;
};

/// NVRTC rejected a source, or the compiler is missing. `source_path()` names the kept source ("" if there is none).
class CompileError : public Error {
 public:
  CompileError(const std::string& message, std::string source_path = {}, std::string log = {})
      : Error(message), source_path_(std::move(source_path)), log_(std::move(log)) {}
  const std::string& source_path() const { return source_path_; }
  const std::string& log() const { return log_; }

 private:
  std::string source_path_, log_;
};

/// The machine lacks something that the call needs: a driver, a GPU, a compiler, a disassembler.
class MissingError : public Error {
 public:
  using Error::Error;
};

/// A driver call failed. `code()` is its CUresult.
class DeviceError : public Error {
 public:
  DeviceError(const std::string& message, int code) : Error(message), code_(code) {}
  int code() const { return code_; }

 private:
  int code_;
};

}  // namespace kernelwright
