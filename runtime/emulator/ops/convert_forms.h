/// The rows of ops_convert_packed.cpp, which ops_convert.cpp hands to the decoder with its own.
#pragma once

#include <span>

#include "kernelwright/runtime/emulator/program/decoder.h"

namespace kernelwright::emulator {

std::span<const Form> packed_convert_forms();

}  // namespace kernelwright::emulator
