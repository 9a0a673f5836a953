/// What the command's exit codes mean; scripts rely on them.
#pragma once

namespace kernelwright::cli {

enum ExitCode : int {
  kDone = 0,
  kMismatch = 1,       // the result did not match the reference, or a target was missed
  kInputWrong = 2,     // the command line, a config or an array cannot be used
  kMissing = 3,        // the machine lacks a GPU, a compiler or a disassembler
  kInterrupted = 130,  // tune: a person's Ctrl-C; what was measured is in the log
};

}  // namespace kernelwright::cli
