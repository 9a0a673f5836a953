/// Reads PTX. Total for what NVRTC 12.8 to 13.x emits and for what a person writes in the same subset: every token is
/// understood or refused; nothing is skipped to the next semicolon.
#pragma once

#include <memory>
#include <string>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

/// PTX that cannot be read or that the emulator does not model. what() is "line 12: …", then what was found and what
/// would do.
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

/// Registers and labels are scoped by braces; branch targets are resolved; .loc lines are attached to the instructions
/// that follow them. Throws PtxError for what is wrong outside the entries and where an entry has no end. An entry that
/// cannot be read, for what stands in it or for a function that it calls, keeps the reason (Entry::refusal) and nothing
/// else; the others are as good as without it. Never recurses deeper than the text nests, which is limited.
std::unique_ptr<Module> parse_ptx(std::string text);

}  // namespace kernelwright::emulator
