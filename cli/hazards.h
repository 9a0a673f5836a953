/// Reports of the emulator, for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/generator/json/document.h"
#include "kernelwright/runtime/emulator/emulator_backend.h"

namespace kernelwright::cli {

/// An array of objects: kernel, kind, what, where, count, the two sides, and the text for people.
JsonValue to_json(const std::vector<emulator::KernelHazard>& hazards);

/// Each report on separate lines, below a heading that counts them.
std::string hazards_text(const std::vector<emulator::KernelHazard>& hazards);

JsonValue to_json(const emulator::Statistics& statistics);

}  // namespace kernelwright::cli
