/// The sides of a report: which warp, at which instruction.
#pragma once

#include <cstdint>
#include <string>

#include "kernelwright/runtime/emulator/checker/hazard_report.h"
#include "kernelwright/runtime/emulator/machine/cta.h"
#include "kernelwright/runtime/emulator/machine/names.h"
#include "kernelwright/runtime/emulator/program/lined_text.h"

namespace kernelwright::emulator {

/// Where reports say that instruction `index` stands: in the text with lines, if the module has one. Line 0: there is
/// no such instruction.
TextPlace place_of(const Program& program, std::uint32_t index);
/// One side of a report: `warp` at instruction `index`. `lane` -1: all lanes.
HazardSide side_of(const LaunchNotes* notes, const Warp& warp, int lane, std::uint32_t index);
/// The same for a warp that may have exited: its CTA's place in the grid, and its number in the CTA.
HazardSide side_of(const LaunchNotes* notes, const Program& program, const std::uint32_t (&cta)[3], std::uint32_t warp,
                   int lane, std::uint32_t index);
/// "CTA (0, 1, 0) warp 4 (math 0) lane 3, PTX line 120 `st.shared…`, attention_sm90.cu:88"
std::string text_of(const HazardSide& side);

}  // namespace kernelwright::emulator
