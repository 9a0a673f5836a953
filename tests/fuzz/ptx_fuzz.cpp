// Any text is either a module, or is refused with a line and a reason. The registers of a module find places. The
// decoder takes each entry, or refuses it in the same way. No crash, no leak, and no time or memory out of proportion
// to the text. A module must keep what promises.h says.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "kernelwright/runtime/emulator/program/clock_reads.h"
#include "kernelwright/runtime/emulator/program/program.h"
#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "runtime/emulator/ptx/promises.h"

namespace {

void decode_or_refuse(const kernelwright::emulator::Module& module, const kernelwright::emulator::Entry& entry) {
  constexpr std::uint64_t kGlobals = 0x10000;  // nothing is read or written there
  try {
    if (kernelwright::emulator::decode(module, entry, kGlobals)->ops.empty()) std::abort();
  } catch (const kernelwright::emulator::PtxError& error) {
    if (error.line() < 1 || std::string(error.what()).size() > 1000) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kernelwright;
  try {
    const auto module = emulator::parse_ptx(std::string(reinterpret_cast<const char*>(data), size));
    if (!test::broken_promise(*module).empty()) std::abort();
    emulator::respell(*module);
    emulator::split_clock_reads(*module);
    for (const emulator::Entry& entry : module->entries)
      if (entry.refusal.empty()) decode_or_refuse(*module, entry);
  } catch (const emulator::PtxError& error) {
    if (error.line() < 1 || std::string(error.what()).size() > 1000) std::abort();
  }
  return 0;
}
