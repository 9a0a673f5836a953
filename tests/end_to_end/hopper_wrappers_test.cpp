// Every wrapper of templates/ptx/ for Hopper, and the pipelines built on them: ptxas accepts their PTX, and immediate
// operands stand at the right places.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "fmt/format.h"
#include "kernelwright/generator/error.h"
#include "kernelwright/generator/template_library.h"
#include "kernelwright/runtime/compile/compiler.h"

namespace kernelwright {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class HopperWrappers : public testing::Test {
 protected:
  void SetUp() override {
    if (compiler_.path().empty()) GTEST_SKIP() << "no NVRTC on this machine: set KERNELWRIGHT_NVRTC";
  }

  Binary compile(const std::string& ahead, std::initializer_list<const char*> headers, const std::string& file_scope,
                 const std::string& body) {
    return compiler_.compile(source_of(ahead, headers, file_scope, body));
  }

  /// `body` in a kernel of [map, out, n] that includes `headers` after `ahead`.
  static SourceUnit source_of(const std::string& ahead, std::initializer_list<const char*> headers,
                              const std::string& file_scope, const std::string& body) {
    SourceUnit unit;
    unit.kernel = unit.entry = "wrappers";
    unit.spec_header = unit.spec_text = "#pragma once\n";
    std::string source = ahead;
    std::set<std::string> seen;
    for (const char* header : headers) {
      source += fmt::format("#include \"{}\"\n", header);
      for (const TemplateFile& file : template_closure(header).files)
        if (seen.insert(file.path).second) unit.headers.push_back(file);
    }
    source +=
        "using namespace kernelwright;\nusing namespace kernelwright::ptx;\n" + file_scope +
        "extern \"C\" __global__ void __launch_bounds__(256) wrappers(const __grid_constant__ contract::TensorMap "
        "map, float* out, uint32_t n) {\n" +
        body + "}\n";
    unit.source = source;
    unit.arch = "sm_90a";
    unit.options = {"--gpu-architecture=sm_90a", "--std=c++17", "-default-device", "--minimal", "--ptxas-options=-v"};
    return unit;
  }

  Compiler compiler_;
};

TEST_F(HopperWrappers, MoveDataInEveryFormThatPtxasTakes) {
  std::string body = "uint64_t policy = n ? createpolicy_evict_first() : createpolicy_evict_last();\n";
  const std::string at[] = {"", "1", "1, 2", "1, 2, 3", "1, 2, 3, 4", "1, 2, 3, 4, 5"};
  body += "prefetch_tensormap(map); cp_async_bulk_tensor_1d(n, map, 1, n);\n";
  for (int rank = 2; rank <= 5; ++rank) {
    for (const char* cast : {"", "_multicast"})
      for (const char* policy : {"", ", policy"})
        body += fmt::format("cp_async_bulk_tensor_{}d{}(n, map, {}, n + 8{}{});\n", rank, cast, at[rank],
                            *cast ? ", uint16_t(3)" : "", policy);
    body += fmt::format("cp_async_bulk_tensor_{}d_store(map, {}, n);\n", rank, at[rank]);
    if (rank < 5) body += fmt::format("cp_async_bulk_prefetch_tensor_{}d(map, {});\n", rank, at[rank]);
    if (rank < 4) body += fmt::format("cp_reduce_async_bulk_tensor_{}d_add(map, {}, n);\n", rank, at[rank]);
  }
  body += R"(
    cp_async_bulk_load(n, out, 16, n); cp_async_bulk_load(n, out, 16, n, policy);
    cp_async_bulk_load_multicast(n, out, 16, n, 3); cp_async_bulk_to_cluster(n, n + 16, 16, n);
    cp_async_bulk_store(out, n, 16); cp_reduce_async_bulk_add_f32(out, n, 16);
    cp_async_bulk_commit_group(); cp_async_bulk_wait_group<1>(); cp_async_bulk_wait_group_read<0>();
    uint32_t four[4] = {n, n + 1, n + 2, n + 3}, two[2] = {n, n + 1};
    stmatrix_x4(n, four); stmatrix_x4_trans(n, four); stmatrix_x2(n, two);
    st_shared_f32(n, ld_shared_f32(n)); st_shared_u32(n, ld_shared_u32(n));
    cp_async_ca_4(n, out); cp_async_wait_all();
    st_async_u32(n, 1, n); st_async_v4_u32(n, four, n);
  )";
  const Binary binary = compile("", {"ptx/tma.cuh", "ptx/memory.cuh", "ptx/cluster.cuh"}, "", body);
  EXPECT_THAT(binary.warnings, IsEmpty());
  EXPECT_THAT(binary.ptx, HasSubstr("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                                    ".multicast::cluster.L2::cache_hint"));
}

TEST_F(HopperWrappers, SynchroniseInEveryFormThatPtxasTakes) {
  const Binary binary =
      compile("", {"ptx/barrier.cuh", "ptx/mbarrier.cuh", "ptx/cluster.cuh", "contract/tensor_map.h"}, "", R"(
    if (elect_one()) mbarrier_init(n, 1);
    fence_mbarrier_init(); fence_proxy_async(); fence_proxy_async_shared();
    bar_sync(1, 256); bar_arrive(2, 256);
    if (threadIdx.x < 128) setmaxnreg_dec<24>(); else setmaxnreg_inc<240>();
    mbarrier_arrive(n); mbarrier_arrive_cluster(mapa(n, cluster_ctarank())); mbarrier_arrive_remote(mapa(n, cluster_ctarank())); mbarrier_arrive_expect_tx(n, 16);
    mbarrier_expect_tx(n, 16); mbarrier_wait_parity(n, 0); mbarrier_wait_parity_cluster(n, 1);
    out[0] = mbarrier_test_wait_parity(n, 0);
    cp_async_mbarrier_arrive_noinc(n); mbarrier_inval(n);
    barrier_cluster_arrive(); barrier_cluster_wait(); barrier_cluster_arrive_relaxed(); barrier_cluster_wait();
  )");
  EXPECT_THAT(binary.ptx, HasSubstr("setmaxnreg.inc.sync.aligned.u32 240"));
}

/// `n` columns in each form, for one type.
std::string products(int n, const char* type) {
  return fmt::format(
      "{{ float d[{0}]; uint32_t a[4] = {{n, n, n, n}};\n"
      "for (int i = 0; i < {0}; ++i) d[i] = out[i];\n"
      "wgmma_fence();\n"
      "wgmma_ss<DType::{1}, false>(d, n, n + 1, n); wgmma_ss<DType::{1}, true, true, -1>(d, n, n + 1, 1);\n"
      "wgmma_rs<DType::{1}, false>(d, a, n + 1, n); wgmma_rs<DType::{1}, true, -1>(d, a, n + 1, 1);\n"
      "wgmma_commit_group(); wgmma_wait_group<0>(); pin_registers(d);\n"
      "for (int i = 0; i < {0}; ++i) out[i] = d[i]; }}\n",
      n / 2, type);
}

TEST_F(HopperWrappers, MultiplyEveryNumberOfColumns) {
  for (const char* type : {"kF16", "kBf16"}) {
    std::string body;
    for (int n = 8; n <= 256; n += 8) body += products(n, type);
    const std::string ptx =
        compiler_.compile_with_lines(source_of("", {"ptx/wgmma.cuh", "contract/tensor_map.h"}, "", body));
    const std::string word = std::string(type) == "kF16" ? "f16" : "bf16";
    for (int n = 8; n <= 256; n += 8) {
      const std::string start = fmt::format("wgmma.mma_async.sync.aligned.m64n{}k16.f32.{}.{} {{", n, word, word);
      // The four forms differ in the immediates after the predicate: signs of A and B, then which operand is MN-major.
      std::set<std::string> forms;
      for (size_t at = ptx.find(start); at != std::string::npos; at = ptx.find(start, at + 1)) {
        const size_t p = ptx.find(", p, ", at);
        ASSERT_NE(p, std::string::npos);
        const size_t registers = ptx.find('}', at);
        const std::string sums = ptx.substr(at + start.size(), registers - at - start.size());
        EXPECT_EQ(std::count(sums.begin(), sums.end(), ','), n / 2 - 1);
        forms.insert((ptx[registers + 3] == '{' ? "rs " : "ss ") + ptx.substr(p + 5, ptx.find(';', p) - p - 5));
      }
      EXPECT_EQ(forms, (std::set<std::string>{"ss 1, 1, 0, 0", "ss -1, 1, 1, 1", "rs 1, 1, 0", "rs -1, 1, 1"})) << n;
    }
  }
}

TEST_F(HopperWrappers, ReadOnlyTheColumnCountsThatTheKernelNames) {
  const std::string named = "#define KERNELWRIGHT_WGMMA_N0 176\n#define KERNELWRIGHT_WGMMA_N1 128\n";
  const auto with = [&](int n) {
    return compile(named, {"ptx/wgmma.cuh", "contract/tensor_map.h"}, "", products(n, "kBf16"));
  };
  EXPECT_THAT(with(128).ptx, HasSubstr("m64n128k16"));
  EXPECT_THAT(with(176).ptx, HasSubstr("m64n176k16"));
  EXPECT_THAT(compile("", {"ptx/wgmma.cuh", "contract/tensor_map.h"}, "", products(88, "kF16")).ptx,
              HasSubstr("m64n88k16"));
  EXPECT_THROW(with(64), CompileError);
}

TEST_F(HopperWrappers, CarryPipelinesThatStayInRegisters) {
  for (const bool shared : {true, false})
    for (const char* order : {"kAlternating", "kKeysAhead"}) {
      const int chunks = shared ? 1 : 2;  // the shared ring's slots are whole
      const std::string scope = fmt::format(
          "using namespace kernelwright::pipeline;\n"
          "struct Tiles {{ static constexpr int element_bytes = 2, k_rows_per_cta = 64, v_cols_per_cta = 128,\n"
          "  BK0 = {}, BK1 = 64, num_kv_stages = 3, num_qk_stages = {}, num_mma_stages = 1, cluster = 1;\n"
          "  static constexpr bool shared_ring = {}; static constexpr KvOrder order = KvOrder::{}; }};\n",
          128 / chunks, chunks, shared, order);
      const std::string chunk =
          "k.acquire<{0}>(); cp_async_bulk_tensor_2d(k.get_tile<{0}>(true).smem, map, {0}, j, n);";
      std::string load_k;
      for (int q = 0; q < chunks; ++q) load_k += fmt::format(fmt::runtime(chunk), q);
      const Binary binary = compile(
          "",
          {"ptx/tma.cuh", "ptx/memory.cuh", "pipeline/tma_producer_pipeline.cuh", "pipeline/kv_consumer_pipeline.cuh"},
          scope,
          "using Kv = KvConsumerPipeline<Tiles, WarpRelease<>>;\n"
          "if (threadIdx.x == 0) Kv::init(n, 1, 4);\n"
          "__syncthreads();\n"
          "if (threadIdx.x == 0) {\n"
          "  KvProducer<Tiles> rings(n, n + 1024, n + 65536); auto k = rings.k(); auto v = rings.v();\n"
          "  for (uint32_t i = 0; i < n; ++i) for_each_load<Tiles::order>(static_cast<int>(out[i]),\n"
          "    [&](int j) { " +
              load_k +
              " k.commit_step(); },\n"
              "    [&](int j) { v.acquire(); const TileTarget to = v.get_tile(true, 512);\n"
              "                 cp_async_bulk_tensor_2d(to.smem, map, 0, j, to.full); v.commit_step(); });\n"
              "  rings.drain();\n"
              "} else if (threadIdx.x >= 128) {\n"
              "  Kv kv(n, n + 1024, n + 65536, {threadIdx.x % 32}); float sum = 0;\n"
              "  for (uint32_t i = 0; i < n; ++i) {\n"
              "    sum += ld_shared_f32(kv.wait_whole_k()); kv.release_whole_k();\n"
              "    for (int j = 1; j < static_cast<int>(out[i]); ++j) {\n"
              "      sum += ld_shared_f32(kv.wait_whole_k()) + ld_shared_f32(kv.wait_v());\n"
              "      kv.release_whole_k(); kv.release_v(); }\n"
              "    sum += ld_shared_f32(kv.wait_v()); kv.release_v(); }\n"
              "  out[threadIdx.x] = sum; }\n");
      EXPECT_THAT(binary.warnings, IsEmpty());
      EXPECT_THAT(binary.ptx, Not(HasSubstr(".local")));
    }
}

}  // namespace
}  // namespace kernelwright
