// Families that have not landed yet.
#include "kernelwright/runtime/emulator/decoder.h"
#include "kernelwright/runtime/emulator/mbarrier.h"
namespace kernelwright::emulator {
#define W __attribute__((weak))
W std::span<const Form> atomic_forms() { return {}; }
W std::span<const Form> warp_forms() { return {}; }
W std::span<const Form> mbarrier_forms() { return {}; }
W std::span<const Form> cluster_forms() { return {}; }
W std::span<const Form> fence_forms() { return {}; }
W std::span<const Form> copy_async_forms() { return {}; }
W std::span<const Form> bulk_copy_forms() { return {}; }
W std::span<const Form> tensor_copy_forms() { return {}; }
W std::span<const Form> matrix_move_forms() { return {}; }
W std::span<const Form> mma_forms() { return {}; }
W std::span<const Form> wgmma_forms() { return {}; }
}  // namespace kernelwright::emulator
