// Families that have not landed yet.
#include "kernelwright/runtime/emulator/decoder.h"
#include "kernelwright/runtime/emulator/mbarrier.h"
namespace kernelwright::emulator {
#define W __attribute__((weak))
W std::span<const Form> integer_forms() { return {}; }
W std::span<const Form> logic_forms() { return {}; }
W std::span<const Form> float_forms() { return {}; }
W std::span<const Form> half_forms() { return {}; }
W std::span<const Form> compare_forms() { return {}; }
W std::span<const Form> convert_forms() { return {}; }
W std::span<const Form> move_forms() { return {}; }
W std::span<const Form> mbarrier_forms() { return {}; }
W std::span<const Form> cluster_forms() { return {}; }
W std::span<const Form> fence_forms() { return {}; }
W std::span<const Form> bulk_copy_forms() { return {}; }
W std::span<const Form> tensor_copy_forms() { return {}; }
W std::span<const Form> wgmma_forms() { return {}; }
}  // namespace kernelwright::emulator
