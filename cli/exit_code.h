/// The meaning of the command's exit codes; scripts rely on them. The help and the manual page print kExitCodes.
#pragma once

namespace kernelwright::cli {

enum ExitCode : int {
  kDone = 0,
  kMismatch = 1,       // the result did not match the reference, or a target was missed
  kInputWrong = 2,     // the command line, a config or an array cannot be used
  kMissing = 3,        // the machine lacks a GPU, a compiler or a disassembler; or memory or file descriptors ran out
  kOutputLost = 4,     // standard output could not be written
  kInterrupted = 130,  // tune: a person pressed Ctrl-C; the log keeps what was measured
};

struct ExitCodeText {
  ExitCode code;
  const char* text;
};
inline constexpr ExitCodeText kExitCodes[] = {
    {kDone, "done"},
    {kMismatch, "the result did not match, or a target was missed"},
    {kInputWrong, "the input was wrong"},
    {kMissing, "the machine lacks something, or memory, address space or descriptors ran out"},
    {kOutputLost, "standard output could not be written"},
    {kInterrupted, "tune was interrupted"},
};

}  // namespace kernelwright::cli
