/// A launch of a layer of experts, on a device: its operands uploaded, its output and workspace poisoned, launched and
/// read back.
#pragma once

#include "kernelwright/runtime/moe/kernel.h"
#include "kernelwright/verify/device/outputs_call.h"
#include "kernelwright/verify/moe/case.h"

namespace kernelwright {

class MoeDeviceCase final : public OutputsCall<MoeKernel, MoeTensors, MoeOutput> {
 public:
  /// Uploads everything. The output and the workspace lie between guards.
  MoeDeviceCase(Device& device, const MoeCase& call, MoeKernel kernel);

  /// Copies the tokens and the choice of another case of the same shape.
  void take_tokens(const MoeCase& other);
};

}  // namespace kernelwright
