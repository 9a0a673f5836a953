#include "kernelwright/runtime/emulator/program/lined_text.h"

#include <exception>
#include <utility>

#include "kernelwright/runtime/emulator/ptx/parser.h"
#include "kernelwright/runtime/process/own_thread.h"

namespace kernelwright::emulator {

namespace {

/// The places of all instructions, by line.
std::map<int, TextPlace> places_of(const Module& module) {
  std::map<int, TextPlace> places;
  const auto add = [&](const Body& body) {
    for (const Instruction& instruction : body.instructions)
      places.try_emplace(instruction.line, TextPlace{&module, instruction.line, instruction.source});
  };
  for (const Entry& entry : module.entries) add(entry);
  for (const Function& function : module.functions) add(function);
  return places;
}

}  // namespace

const TextPlace* LinedText::find(int line) {
  std::call_once(once_, [&] { read(); });
  const auto place = places_.find(line);
  return place == places_.end() ? nullptr : &place->second;
}

// Both texts have the same instructions in the same order, so the n-th line with instructions is the same in both.
void LinedText::read() {
  const Make make = std::exchange(make_, nullptr);
  try {
    std::string text = make();
    if (text.empty()) return;
    lined_ = with_stack(kParserStackBytes, kParserStackBytes, [&] { return parse_ptx(std::move(text)); });
  } catch (const std::exception&) {  // the report then names the lines of the text that runs
    return;
  }
  const std::map<int, TextPlace> plain = places_of(plain_), lined = places_of(*lined_);
  if (plain.size() != lined.size()) return;
  auto at = lined.begin();
  for (const auto& [line, unused] : plain) places_.emplace(line, (at++)->second);
}

}  // namespace kernelwright::emulator
