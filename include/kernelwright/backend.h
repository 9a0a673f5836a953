/// Devices: memory, streams, events and graphs of the GPU or of the emulator.
#pragma once

#include "kernelwright/runtime/device/backend.h"
#include "kernelwright/runtime/device/emulator_options.h"
