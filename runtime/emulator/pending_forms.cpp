// The family that has not landed yet.
#include "kernelwright/runtime/emulator/decoder.h"
namespace kernelwright::emulator {
__attribute__((weak)) std::span<const Form> wgmma_forms() { return {}; }
}  // namespace kernelwright::emulator
