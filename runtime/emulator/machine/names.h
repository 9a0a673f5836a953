/// What warps and places in shared memory are called, in the words of the kernel's author.
#pragma once

#include <cstdint>
#include <string>

#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/emulator/machine/warp.h"

namespace kernelwright::emulator {

struct Program;

/// Names for people: which warps play which role, and what lies where in shared memory. The launching code fills in
/// this plain table. The emulator knows nothing else of the kernel.
using LaunchNotes = KernelNotes;

/// The name of a warp's role; "" if it has none.
std::string role_of(const LaunchNotes* notes, std::uint32_t warp);
inline std::string role_of(const LaunchNotes* notes, const Warp& warp) { return role_of(notes, warp.index); }

/// "K stage 2 (shared 17408)": what lies at an offset of a CTA's shared memory; the offset includes kSharedBase.
std::string name_of_shared(const LaunchNotes* notes, const Program& program, std::uint32_t offset);
/// The same in short form, for pictures: "K[2]"; "full[2]" for "full barriers"; "shared 1040" for a place without a
/// name.
std::string short_name_of_shared(const LaunchNotes* notes, const Program& program, std::uint32_t offset);

}  // namespace kernelwright::emulator
