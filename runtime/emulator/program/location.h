/// Where something happened, in the words of the kernel's author.
#pragma once

#include <string>

#include "kernelwright/runtime/emulator/emulator.h"
#include "kernelwright/runtime/emulator/machine/cta.h"

namespace kernelwright::emulator {

/// The name of a warp's role; "" if it has none.
std::string role_of(const LaunchNotes* notes, std::uint32_t warp);
inline std::string role_of(const LaunchNotes* notes, const Warp& warp) { return role_of(notes, warp.index); }

/// One side of a report: `warp` at instruction `index`. `lane` -1: all lanes.
HazardSide side_of(const LaunchNotes* notes, const Warp& warp, int lane, std::uint32_t index);
/// The same for a warp that may have exited: its CTA's place in the grid, and its number in the CTA.
HazardSide side_of(const LaunchNotes* notes, const Program& program, const std::uint32_t (&cta)[3], std::uint32_t warp,
                   int lane, std::uint32_t index);
/// "CTA (0, 1, 0) warp 4 (math 0) lane 3, PTX line 120 `st.shared…`, attention_sm90.cu:88"
std::string text_of(const HazardSide& side);

/// "K stage 2 (shared 17408)": what lies at an offset of a CTA's shared memory; the offset includes kSharedBase.
std::string name_of_shared(const LaunchNotes* notes, const Program& program, std::uint32_t offset);
/// The same in short form, for pictures: "K[2]"; "full[2]" for "full barriers"; "shared 1040" for a place without a
/// name.
std::string short_name_of_shared(const LaunchNotes* notes, const Program& program, std::uint32_t offset);

}  // namespace kernelwright::emulator
