/// What a compiler is asked, and what it answers: text in, code out. NVRTC answers in this process (nvrtc.h) or in a
/// process of its own (runtime/workers/), with the same bytes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernelwright/generator/error.h"

namespace kernelwright {

struct CompileRequest {
  std::string kernel;  // names the program in the compiler's messages
  std::string arch;    // for our own messages
  std::string source;
  std::vector<std::pair<std::string, std::string>> headers;  // name and text
  std::vector<std::string> options;
  bool machine_code = true;  // false: PTX alone
  /// "attention_sm90 for sm_90a"
  std::string what() const { return kernel + " for " + arch; }
};

struct CompileAnswer {
  int version = 0;        // 13000: NVRTC 13.0
  bool compiled = false;  // false: `result` and `log` say why
  std::string result;     // NVRTC's name of its result: "NVRTC_ERROR_COMPILATION"
  std::string log;
  std::string cubin, ptx;   // "" unless compiled; no cubin without `machine_code`
  double milliseconds = 0;  // inside NVRTC
};

/// The compiler ended, hung or sent garbage instead of answering. It costs the kernel that was asked for.
class CompilerFaultError : public Error {
 public:
  using Error::Error;
};

class SourceCompiler {
 public:
  virtual ~SourceCompiler() = default;
  /// Any number of threads. Throws MissingError if there is no NVRTC that can be used, CompileError if NVRTC cannot
  /// begin, CompilerFaultError, and InterruptedError as Compiler says. A rejected source is an answer.
  virtual CompileAnswer compile(const CompileRequest& request) = 0;
  /// 13000 for NVRTC 13.0. Opens it if needed. Throws MissingError.
  virtual int version() = 0;
};

}  // namespace kernelwright
