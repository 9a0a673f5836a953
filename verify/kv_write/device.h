/// A call that writes a cache, on a device: its operands uploaded, its outputs poisoned, launched and read back.
#pragma once

#include "kernelwright/runtime/kv_write/kernel.h"
#include "kernelwright/verify/device/outputs_call.h"
#include "kernelwright/verify/device/twice_device.h"
#include "kernelwright/verify/kv_write/case.h"

namespace kernelwright {

class KvWriteDeviceCase final : public OutputsCall<KvWriteKernel, KvWriteTensors, KvWriteOutput> {
 public:
  /// Uploads everything. Outputs lie between guards.
  KvWriteDeviceCase(Device& device, const KvWriteCase& call, KvWriteKernel kernel);

  /// From now on q_out is q itself: poison() puts the queries there. Throws Error if their dtypes or strides differ.
  void rotate_in_place();

 private:
  void upload_places();
  void allocate_scales();
  void put_inputs_back() override;

  const KvWriteCase& call_;
  bool in_place_ = false;
};

inline LaunchedTwice<KvWriteOutput> launch_twice(Device& device, const KvWriteCase& call, const KvWriteKernel& kernel) {
  return launch_twice(device, KvWriteDeviceCase(device, call, kernel));
}

}  // namespace kernelwright
