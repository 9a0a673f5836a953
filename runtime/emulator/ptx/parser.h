/// Reads PTX, completely: what NVRTC 12.8 to 13.x emit, and what a person writes in the same subset. Every token is
/// understood or refused; nothing is skipped to the next semicolon.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

/// PTX that cannot be read or that the emulator does not model. what() is "line 12: …", then what was found and what
/// would be accepted.
class PtxError : public Error {
 public:
  PtxError(int line, const std::string& message)
      : Error("line " + std::to_string(line) + ": " + message), line_(line), message_(message) {}
  int line() const { return line_; }
  /// what() without the line.
  const std::string& message() const { return message_; }

 private:
  int line_;
  std::string message_;
};

/// What parse_ptx() needs of a caller's stack.
constexpr std::size_t kParserStackBytes = std::size_t{512} << 10;

/// Reads a module. Registers and labels are scoped by braces, branch targets are resolved, and .loc lines are attached
/// to the instructions that follow them.
/// Throws PtxError for an error outside the entries, and for an entry without an end. If an entry cannot be read,
/// because of its contents or of a function that it calls, it keeps only the reason (Entry::refusal). The other entries
/// are not affected. The recursion is never deeper than the text nests, which is limited.
std::unique_ptr<Module> parse_ptx(std::string text);

}  // namespace kernelwright::emulator
