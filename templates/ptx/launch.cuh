/// Programmatic dependent launch: a grid whose launch asks for it may start while the one ahead of it in the stream
/// ends.
///
/// Every CTA of a kernel that may be launched so waits, whether or not it has work: only then does the end of the grid
/// say that those ahead of it have ended too, which is what the wait of the grid behind it relies on. Within a CTA it
/// is enough that one thread has waited before the others touch global memory, if a barrier stands between: what the
/// wait makes visible is visible to the grid. Reads behind it must not be .nc (or __ldg): that promises bytes which
/// nobody writes while the grid runs, and lets the compiler move a read to before the wait.
#pragma once

namespace kernelwright::ptx {

/// griddepcontrol.wait (sm_90): returns once the grids that this one depends on have ended and their writes are
/// visible. Does nothing in a launch without the PDL attribute. Writes need it as much as reads: the grid ahead may
/// still read what this one is to overwrite.
__device__ __forceinline__ void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// griddepcontrol.launch_dependents (sm_90): lets the next grid start, once a thread of every CTA has said so or the
/// CTA has ended; its wait still covers all of this one. Does nothing unless the next launch asked for it.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace kernelwright::ptx
