/// A look at the lengths, offsets and pages of a launch, which lie in device memory and which kernels bound rather than
/// trust: EngineOptions::check_data.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/runtime/attention/launch.h"

namespace kernelwright::detail {

/// A sentence for each number that contradicts the tensors of the launch. It has the row, the value and how the kernel
/// reads it: "kv_lengths[3] is 5000, above kv_len 4096; it is read as 4096". If there are more than 16, the last
/// sentence says how many there are. Waits for `stream`, then reads the arrays. Empty while `stream` captures, and for
/// arguments that launch_attention() refuses. Entries of the page table that no query needs may hold anything. Throws
/// DeviceError if the arrays cannot be read.
std::vector<std::string> find_bad_data(const LoadedAttention& kernel, const AttentionTensors& tensors, Stream stream);

}  // namespace kernelwright::detail
