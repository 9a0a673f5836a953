/// The lines of the source for PTX that does not name them. A report needs them, and most launches make no report. So
/// they are read from a second text of the same instructions, which is made when the first report asks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "kernelwright/runtime/emulator/ptx/module.h"

namespace kernelwright::emulator {

/// Where an instruction stands: a line of a module's text, and the line of the source that it comes from.
struct TextPlace {
  const Module* module = nullptr;
  int line = 0;  // from 1
  SourceLine source;
};

/// The second text of a module. Safe from any number of threads.
class LinedText {
 public:
  /// Returns PTX with the instructions of the module and with their lines (-lineinfo), or "" if there is none.
  using Make = std::function<std::string()>;

  /// `module` is the text that runs; it must outlive this object. `make` is called once, when find() is called first.
  LinedText(const Module& module, Make make) : plain_(module), make_(std::move(make)) {}

  /// The place in the second text of the instruction that stands in `line` of the module's text. Null if there is no
  /// second text, if it cannot be read, or if it has other instructions.
  const TextPlace* find(int line);

 private:
  void read();

  const Module& plain_;
  Make make_;  // empty once it was called
  std::once_flag once_;
  std::unique_ptr<const Module> lined_;
  std::map<int, TextPlace> places_;  // by the line in the module's text
};

}  // namespace kernelwright::emulator
