/// A launch allocates nothing. This file also replaces operator new for the other tests that count allocations.
#include <cstdlib>
#include <new>
#include <vector>

#include "runtime/attention/launch_fixture.h"
#include "runtime/count_allocations.h"

namespace kernelwright::test {

thread_local bool count_allocations = false;
thread_local int allocations = 0;

}  // namespace kernelwright::test

// Counts the allocations of this thread while a test asks for it. Kept out of line: a compiler that inlines one half of
// the pair reports a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  using namespace kernelwright::test;
  if (count_allocations) ++allocations;
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  using namespace kernelwright::test;
  if (count_allocations) ++allocations;
  return std::malloc(bytes ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace kernelwright::test {
namespace {

using ::testing::SizeIs;

TEST_F(LaunchTest, AllocatesNothing) {
  const AttentionKernel kernel = engine.prepare(decode_problem(), four_parts());
  AttentionTensors tensors = decode_tensors();
  tensors.workspace = 0x80000;
  tensors.workspace_bytes = kernel.workspace_bytes(kernel.extent(tensors));
  device().forget_launches();
  allocations = 0;
  count_allocations = true;
  kernel.launch(tensors, some_stream());
  const AttentionKernel found = engine.find(decode_problem());
  const bool counted = count_allocations;
  count_allocations = false;
  EXPECT_TRUE(counted);
  EXPECT_TRUE(found);
  EXPECT_THAT(device().launches(), SizeIs(2));
  // decode_problem() makes no text and no list, so all of the above may allocate nothing.
  EXPECT_EQ(allocations, 0);
  count_allocations = true;
  std::vector<int> probe(100);
  count_allocations = false;
  EXPECT_EQ(allocations, 1) << "the counter does not count";
}

}  // namespace
}  // namespace kernelwright::test
