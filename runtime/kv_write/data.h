/// A look at the slots, positions, pages and scales of a launch, which lie in device memory and which the kernel bounds
/// rather than trusts: EngineOptions::check_data.
#pragma once

#include <string>
#include <vector>

#include "kernelwright/runtime/kv_write/launch.h"

namespace kernelwright::detail {

/// As in runtime/attention/data.h: "slot_mapping[3] is 99, and the cache has slots 0 to 63; the token is not written".
/// A negative slot or sequence is no mistake. Waits for `stream`.
std::vector<std::string> find_bad_data(const LoadedKvWrite& kernel, const KvWriteTensors& tensors, Stream stream);
/// The same of tensors that are resolved() and break no rule, while nothing is captured or queued.
std::vector<std::string> find_bad_places(const LoadedKvWrite& kernel, const KvWriteTensors& tensors);

}  // namespace kernelwright::detail
