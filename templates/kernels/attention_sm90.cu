/// Attention prefill on TMA and wgmma for sm_90a. TEMPORARY: no body yet.
#include "spec.h"

#include "contract/hopper_attention.h"
#include "contract/spec_words.h"

extern "C" __global__ void __launch_bounds__(128 * (1 + kernelwright::spec::kMathWarpgroups), 1)
    KERNELWRIGHT_ENTRY(const __grid_constant__ kernelwright::contract::HopperAttentionParams params) {}
