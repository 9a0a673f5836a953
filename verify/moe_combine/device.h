/// A sum over the rows of tokens' experts, on a device: its operands uploaded, its output poisoned, launched and read
/// back.
#pragma once

#include "kernelwright/runtime/moe_combine/kernel.h"
#include "kernelwright/verify/device/outputs_call.h"
#include "kernelwright/verify/device/twice_device.h"
#include "kernelwright/verify/moe_combine/case.h"

namespace kernelwright {

class MoeCombineDeviceCase final : public OutputsCall<MoeCombineKernel, MoeCombineTensors, MoeCombineOutput> {
 public:
  /// Uploads everything. The output lies between guards.
  MoeCombineDeviceCase(Device& device, const MoeCombineCase& call, MoeCombineKernel kernel);

  /// Copies the operands of another case of the same shape.
  void take_inputs(const MoeCombineCase& other);
  /// From now on out is the residual itself: poison() puts the residual there. Throws Error where their dtypes or
  /// strides differ.
  void add_in_place();

 private:
  void put_inputs_back() override;

  const MoeCombineCase& call_;
  bool in_place_ = false;
};

inline LaunchedTwice<MoeCombineOutput> launch_twice(Device& device, const MoeCombineCase& call,
                                                    const MoeCombineKernel& kernel) {
  return launch_twice(device, MoeCombineDeviceCase(device, call, kernel));
}

}  // namespace kernelwright
