// Uses the installed face alone, and one function of each library in the package, to check that each links with all
// that it needs.
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "kernelwright/attention.h"
#include "kernelwright/backend.h"
#include "kernelwright/engine.h"
#include "kernelwright/gemm.h"
#include "kernelwright/kv_write.h"
#include "kernelwright/moe_combine.h"
#include "kernelwright/quantize.h"
#include "kernelwright/route.h"
#include "kernelwright/row_op.h"

int main(int argc, char**) {
  if (argc > 1) kernelwright::Engine engine;  // never: to be linked is enough
  const std::string_view event = kernelwright::to_string(kernelwright::EventKind::kCompile);
  const std::int64_t bytes = kernelwright::quantize_scale_bytes(kernelwright::DType::kMxfp8, 128, 128);
  const kernelwright::AttentionTensors attention{.batch = 1};
  const kernelwright::GemmTensors gemm{.m = 1};
  const kernelwright::KvWriteTensors cache{.tokens = 1};
  const kernelwright::RowOpTensors rows{.rows = 1};
  const kernelwright::RouteTensors route{.tokens = 1};
  const kernelwright::MoeCombineTensors sums{.tokens = 1};
  std::printf("event = %.*s, scales = %lld bytes\n", static_cast<int>(event.size()), event.data(),
              static_cast<long long>(bytes));
  return event == "compile" && bytes == 512 && attention.batch == gemm.m && cache.tokens == rows.rows &&
                 route.tokens == sums.tokens
             ? 0
             : 1;
}
