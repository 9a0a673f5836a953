/// What ends an emulated launch: the program did something that hardware would trap on or leave undefined.
#pragma once

#include "kernelwright/generator/error.h"

namespace kernelwright::emulator {

/// Thrown by handlers with what happened; the machine catches it, and reports it with the warp, lane mask, PTX line,
/// role and template line.
class Fault : public Error {
 public:
  using Error::Error;
};

}  // namespace kernelwright::emulator
