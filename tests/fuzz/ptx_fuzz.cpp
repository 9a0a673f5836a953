// Any text is either a module, or is refused with a line and a reason. The registers of a module find places. No crash,
// no leak, and no time or memory out of proportion to the text. A module must keep what promises.h says.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/ptx/promises.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kernelwright;
  try {
    const auto module = emulator::parse_ptx(std::string(reinterpret_cast<const char*>(data), size));
    if (!test::broken_promise(*module).empty()) std::abort();
  } catch (const emulator::PtxError& error) {
    if (error.line() < 1 || std::string(error.what()).size() > 1000) std::abort();
  }
  return 0;
}
