/// Programmatic dependent launch.
#pragma once

namespace kernelwright::ptx {

/// griddepcontrol.wait (sm_90): returns once the grids that this one depends on have ended and their writes are
/// visible. Does nothing in a launch without the PDL attribute.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// griddepcontrol.launch_dependents (sm_90): lets the next grid start; its wait still covers all of this one.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace kernelwright::ptx
