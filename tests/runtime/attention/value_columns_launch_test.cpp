/// Values in columns: the tensor map of a launch, and strides that do not fit.
#include <functional>
#include <vector>

#include "kernelwright/runtime/attention/arguments.h"
#include "kernelwright/runtime/attention/tensor_maps.h"
#include "runtime/engine/engine_fixture.h"

namespace kernelwright::test::value_columns_launch_test {

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kPage = 64, kHead = 128 * kPage;

AttentionProblem columns(DType q) {
  AttentionProblem problem = prefill_problem();
  problem.dtype = {q, DType::kE4m3, DType::kBf16};
  problem.kv_layout = {KvLayoutKind::kPaged, kPage};
  problem.v_layout = VLayout::kColumns;
  if (q != DType::kE4m3) problem.max_q_len = 1;
  return problem;
}

struct Call {
  detail::LoadedAttention kernel;
  AttentionTensors tensors = some_tensors();
  explicit Call(const AttentionProblem& problem)
      : kernel(detail::describe(problem, plan_attention(problem, {}, Arch::kSm90a), DeviceInfo{.num_sms = 132})) {
    tensors.page_table = 0x60000, tensors.page_table_stride = 5, tensors.num_pages = 9;
    if (problem.max_q_len) tensors.q_len = 1;
  }
  std::vector<std::string> broken() const {
    std::vector<std::string> lines;
    for (const Violation& violation : detail::broken_rules(kernel, tensors, detail::resolve_strides(kernel, tensors)))
      lines.push_back(violation.text());
    return lines;
  }
  bool surely_fine() const {
    return detail::surely_fine(kernel, tensors, detail::resolve_strides(kernel, tensors), 2 * tensors.q_len);
  }
};

TEST(ValueColumnsLaunch, MapsAreKeyDepthHeadPage) {
  for (const DType q : {DType::kE4m3, DType::kBf16}) {
    Call call(columns(q));
    const auto map = [&] {
      return detail::tensor_maps_of(call.kernel, call.tensors, detail::resolve_strides(call.kernel, call.tensors)).v;
    };
    const TensorMapRequest dense = map();
    EXPECT_THAT(std::vector(dense.dims, dense.dims + 4), ElementsAre(kPage, 128, 2, 9));
    EXPECT_THAT(std::vector(dense.strides_bytes, dense.strides_bytes + 3), ElementsAre(kPage, kHead, 2 * kHead));
    const unsigned width = q == DType::kE4m3 ? 64 : 32;  // a warp of the decode form takes 32 keys
    EXPECT_THAT(std::vector(dense.box, dense.box + 4), ElementsAre(width, 128, 1, 1));
    EXPECT_EQ(dense.swizzle, q == DType::kE4m3 ? Swizzle::k64B : Swizzle::k32B);
    call.tensors.v_strides = {3 * kHead, 0, kHead + 16};
    const TensorMapRequest strided = map();
    EXPECT_THAT(std::vector(strided.strides_bytes, strided.strides_bytes + 3),
                ElementsAre(kPage, kHead + 16, 3 * kHead));
  }
}

TEST(ValueColumnsLaunch, TakesStridesOfPagesAndHeads) {
  Call call(columns(DType::kE4m3));
  EXPECT_THAT(call.broken(), IsEmpty());
  EXPECT_TRUE(call.surely_fine());
  call.tensors.v_strides = {3 * kHead, 0, kHead + 16};
  EXPECT_THAT(call.broken(), IsEmpty());
  EXPECT_TRUE(call.surely_fine());
  call.tensors.v_strides = {2 * kHead, 0, 128};
  EXPECT_FALSE(call.surely_fine());
  EXPECT_THAT(call.broken(),
              ElementsAre("/tensors/v_strides: strides [batch 16384, token 0, head 128] are below a head of 8192 "
                          "elements; give 0 to broadcast, or at least a head"));
}

}  // namespace
}  // namespace kernelwright::test::value_columns_launch_test
