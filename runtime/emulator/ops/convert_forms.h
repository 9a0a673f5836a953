/// The rows of ops_convert_packed.cpp; ops_convert.cpp passes them to the decoder with its own rows.
#pragma once

#include <span>

#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {

std::span<const Form> packed_convert_forms();

}  // namespace kernelwright::emulator
