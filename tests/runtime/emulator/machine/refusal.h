#pragma once

#include <string>

#include "kernelwright/generator/error.h"
#include "kernelwright/runtime/emulator/machine/tensor_map.h"

namespace kernelwright::emulator::test {

/// The message of the refusal to encode `map`, or "accepted".
inline std::string refusal(const TensorMapDescription& map) {
  try {
    encode_tensor_map(map);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace kernelwright::emulator::test
