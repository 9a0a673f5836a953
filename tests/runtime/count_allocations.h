/// Counts the allocations of one thread. runtime/attention/allocations_test.cpp replaces operator new for it.
#pragma once

namespace kernelwright::test {

extern thread_local bool count_allocations;
extern thread_local int allocations;

/// The number of allocations that `call` makes on this thread.
template <class F>
int allocations_of(F&& call) {
  allocations = 0;
  count_allocations = true;
  call();
  count_allocations = false;
  return allocations;
}

}  // namespace kernelwright::test
