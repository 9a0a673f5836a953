/// A GEMM call on a device: its operands uploaded, its output poisoned, launched and read back.
#pragma once

#include <optional>
#include <vector>

#include "kernelwright/runtime/gemm/kernel.h"
#include "kernelwright/verify/device/device_call.h"
#include "kernelwright/verify/device/twice_device.h"
#include "kernelwright/verify/gemm/case.h"
#include "kernelwright/verify/kv_write/device.h"

namespace kernelwright {

class GemmDeviceCase final : public DeviceCall<GemmCase, GemmKernel, GemmTensors> {
 public:
  /// Uploads everything. d lies between guards, which hold a pattern; the gap after each row of d holds it too.
  GemmDeviceCase(Device& device, const GemmCase& call, GemmKernel kernel);

  /// From now on d and c are the same buffer: poison() puts c's values there. Throws Error if they differ in dtype or
  /// stride.
  void accumulate_in_place();

  /// Fills d with NaN (or with c) and its scales with the guards' pattern, fills the kernel's part of the workspace
  /// with NaN, and renews the guards. Waits for queued work.
  void poison();
  /// Waits, then reads d.
  GemmOutput download();
  /// Waits. Returns false if a launch has written in front of, behind or beside d's rows, or in rows of no group; or
  /// beside the scales of d.
  bool guards_are_intact();
  /// Waits. The status of a launch with groups: 1 if bounds did not fit, in any launch.
  std::int32_t status();

 private:
  std::uint64_t needed_workspace() const override { return kernel_.workspace_bytes(call_.m); }
  DevicePtr upload(const void* data, std::size_t bytes);
  /// Each group's matrix b by itself, and their addresses: null for groups without rows.
  void upload_each(const HostMatrix& b);
  std::vector<std::byte> read_rows();
  bool other_rows_are_intact(const std::vector<std::byte>& bytes) const;
  /// Operands and memory of outputs beside d.
  void add_statistics();
  void add_cache();
  bool scales_are_intact();
  /// The same of a block-scaled d: gaps between rows of scales, and rows of them that belong to no group.
  bool blocks_are_intact();
  bool squares_are_intact();
  std::vector<std::byte> read_scales();
  /// Where row `index` of `rows` rows of all groups lies in memory.
  std::int64_t place(std::int64_t index, std::int64_t rows) const {
    if (!call_.side_by_side) return index;
    const std::int64_t count = call_.problem.groups.count, of_group = rows / count;
    return index % of_group * count + index / of_group;
  }
  std::int64_t place(std::int64_t index) const { return place(index, call_.m); }  // of d
  std::size_t row(std::int64_t index) const { return static_cast<std::size_t>(index) * stride_bytes_; }

  std::size_t row_bytes_ = 0, stride_bytes_ = 0;  // of d
  DeviceMemory::Guarded d_;
  std::vector<std::byte> poison_;  // d's rows and their gaps
  DeviceMemory::Guarded scale_d_;  // of a quantised d
  DeviceMemory::Guarded squares_, amax_;
  std::optional<KvWriteDeviceCase> kv_;  // the cache that is written, without a kernel of its own
  KvWriteTensors kv_tensors_;
};

inline LaunchedTwice<GemmOutput> launch_twice(Device& device, const GemmCase& call, const GemmKernel& kernel) {
  return launch_twice(device, GemmDeviceCase(device, call, kernel));
}

}  // namespace kernelwright
