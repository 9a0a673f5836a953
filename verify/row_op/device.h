/// A call of steps over rows, on a device: its operands uploaded, its outputs poisoned, launched and read back.
#pragma once

#include "kernelwright/runtime/row_op/kernel.h"
#include "kernelwright/verify/device/outputs_call.h"
#include "kernelwright/verify/device/twice_device.h"
#include "kernelwright/verify/row_op/case.h"

namespace kernelwright {

class RowOpDeviceCase final : public OutputsCall<RowOpKernel, RowOpTensors, RowOpOutput> {
 public:
  /// Uploads everything. Outputs lie between guards.
  RowOpDeviceCase(Device& device, const RowOpCase& call, RowOpKernel kernel);

  /// From now on residual_out is the residual itself, and out is x itself where dtypes and strides agree: poison() puts
  /// the inputs there.
  void work_in_place();

 private:
  void put_inputs_back() override;

  const RowOpCase& call_;
  bool out_is_x_ = false, adds_in_place_ = false;
};

inline LaunchedTwice<RowOpOutput> launch_twice(Device& device, const RowOpCase& call, const RowOpKernel& kernel) {
  return launch_twice(device, RowOpDeviceCase(device, call, kernel));
}

}  // namespace kernelwright
