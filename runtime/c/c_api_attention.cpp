/// The C ABI of attention.
#include "kernelwright/runtime/c/c_api_guard.h"

namespace kernelwright {
namespace {

constexpr std::size_t kProblem1 = KERNELWRIGHT_END_OF(kernelwright_attention_problem, max_q_len);
constexpr std::size_t kTensors1 = KERNELWRIGHT_END_OF(kernelwright_attention_tensors, window_right);

AttentionProblem problem_of(const kernelwright_attention_problem* given) {
  const auto c = read_struct(&not_null(given, "attention_problem"), "attention_problem", kProblem1);
  AttentionProblem problem;
  read_word(c.q_dtype, "/problem/dtype/q", problem.dtype.q);
  read_word(c.kv_dtype, "/problem/dtype/kv", problem.dtype.kv);
  read_word(c.out_dtype, "/problem/dtype/out", problem.dtype.out);
  problem.head_dim = {c.head_dim_qk, c.head_dim_v};
  problem.heads = {c.q_heads, c.kv_heads};
  read_word(c.q_layout, "/problem/q_layout", problem.q_layout);
  read_word(c.kv_layout, "/problem/kv_layout/kind", problem.kv_layout.kind);
  problem.kv_layout.page_size = c.page_size;
  read_word(c.mask, "/problem/mask/kind", problem.mask.kind);
  if (problem.mask.kind == MaskKind::kSlidingWindow) problem.mask.window = {c.window_left, c.window_right};
  problem.mask.chunk = c.mask_chunk;
  read_word(c.score_mod, "/problem/score_mod/kind", problem.score_mod.kind);
  problem.score_mod.cap = c.softcap;
  problem.sinks = c.sinks != 0;
  problem.lse = c.lse != 0;
  read_word(c.scales, "/problem/scales", problem.scales);
  problem.max_q_len = c.max_q_len;
  problem.kv_offsets = c.kv_offsets != 0;
  problem.deterministic = c.deterministic != 0;
  problem.batch_invariant = c.batch_invariant != 0;
  problem.kv_starts = c.kv_starts != 0;
  return problem;
}

}  // namespace

AttentionTensors tensors_of(const kernelwright_attention_tensors* given) {
  const auto c = read_struct(&not_null(given, "attention_tensors"), "attention_tensors", kTensors1);
  return read_fields<AttentionTensors>(c, "attention_tensors");
}

const char* use_of(const AttentionKernel&) { return "computes attention; kernelwright_launch() launches it"; }

}  // namespace kernelwright

using namespace kernelwright;

kernelwright_status kernelwright_prepare_attention(kernelwright_engine* engine,
                                                   const kernelwright_attention_problem* problem,
                                                   const kernelwright_prepare_options* options,
                                                   kernelwright_kernel** kernel) {
  return guarded([&] {
    kernelwright_kernel*& out = not_null(kernel, "kernel");
    kernelwright_engine& owner = not_null(engine, "engine");
    out = owner.handle(owner.engine.prepare(problem_of(problem), {}, options_of(options)));
  });
}

kernelwright_status kernelwright_launch(const kernelwright_kernel* kernel,
                                        const kernelwright_attention_tensors* tensors, void* stream) {
  return guarded([&] { kernel_of<AttentionKernel>(kernel).launch(tensors_of(tensors), static_cast<Stream>(stream)); });
}

kernelwright_status kernelwright_workspace_bytes(const kernelwright_kernel* kernel,
                                                 const kernelwright_attention_tensors* tensors, uint64_t* bytes) {
  return guarded([&] {
    uint64_t& out = not_null(bytes, "bytes");
    const auto& of = kernel_of<AttentionKernel>(kernel);
    out = of.workspace_bytes(of.extent(tensors_of(tensors)));
  });
}
