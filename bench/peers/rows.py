"""The rows of the comparison with their targets, and the peers of each.

Shapes follow the recorded peers: 16k tokens in all, and 2048 q_heads * head_dim, unless a row says otherwise.
"""
import mmap

from .row_kinds import BatchedRow, GemmRow, GroupedRow, LatentRow, LayerRow, Row, StepRow, WriteRow


def _latent_fp8(batch, kv_len, heads, keys, q_len=1):
    more = "" if q_len == 1 else f"-q{q_len}"
    return LatentRow(f"latent-{keys}-b{batch}-{_size(kv_len)}-h{heads}{more}", "latent-fp8", batch, kv_len, heads, q_len, keys=keys,
                     targets=(("bf16", 1.00),) + ((("flashmla", 1.08),) if keys == "records" else ()))


def _latent(batch, kv_len, heads, q_len=1, page=64, target=1.08, mixed=False):
    more = ("" if q_len == 1 else f"-q{q_len}") + ("" if page == 64 else f"-page{page}") + ("-mixed" if mixed else "")
    return LatentRow(f"latent-b{batch}-{_size(kv_len)}-h{heads}{more}", "latent", batch, kv_len, heads, q_len, page,
                     (("flashmla", target),) if page == 64 else (), mixed=mixed)


def _gemm(m, n, k, *targets):
    return GemmRow(f"gemm-bf16-{m}x{n}x{k}", "gemm", m, n, k, targets=tuple(("cublas", x) for x in targets))


def _gemm_step(m, n, k):
    # A server's step of some prompts beside its decodes: layers of Llama-3-8B.
    return GemmRow(f"gemm-step-{m}x{n}x{k}", "gemm-step", m, n, k, targets=(("cublas", 1.00),))


def _fp8(m, n, k, target):
    return GemmRow(f"gemm-fp8-{m}x{n}x{k}", "gemm-fp8", m, n, k, "e4m3", "per_tensor", (("cublaslt", target),), fast=True)


def _block(m, n, k, target):
    return GemmRow(f"gemm-block-{m}x{n}x{k}", "gemm-block", m, n, k, "e4m3", "per_block", (("deepgemm", target),))


def _gates(m, n, k, dtype="bf16"):
    scales = "none" if dtype == "bf16" else "per_block"
    return GemmRow(f"gemm-gates-{dtype}-{m}x{n}x{k}", "gemm-gates", m, n, k, dtype, scales, (("plain", 0.99),), gates=True)


def _quantized(m, n, k, dtype="e4m3", gates=True):
    # Ours with bf16 results is "plain"; "row_op" is that and a launch that quantises them.
    scales = "none" if dtype == "bf16" else "per_block"
    return GemmRow(f"gemm-quantized-{dtype}{'-gates' if gates else ''}-{m}x{n}x{k}", "gemm-quantized", m, n, k, dtype, scales,
                   (("plain", 0.98), ("row_op", 1.0)), gates=gates, quantized=True)


def _gemm_decode(m, n, k, dtype="bf16", scales="none", recorded=False):
    # At most 1.25 times the time of a stream over the same bytes. DeepGEMM is recorded for some rows, else live.
    targets = (("read_stream", 1 / 1.25),) + ((("deepgemm", 0.98),) if recorded else ())
    name = f"gemm-decode-{'block' if scales == 'per_block' else dtype}-{m}x{n}x{k}"
    return GemmRow(name, "gemm-decode", m, n, k, dtype, scales, targets)


def _size(n):
    return f"{n // 1024}k" if n >= 1024 else str(n)


def _prefill(head_dim, causal, length, *targets):
    name = f"d{head_dim}-{'causal' if causal else 'dense'}-{_size(length)}"
    heads = 2048 // head_dim
    return Row(name, "prefill", max(1, 16384 // length), length, length, heads, heads, head_dim, causal, targets=targets)


def _gqa(length, *targets):
    return Row(f"gqa-causal-{_size(length)}", "prefill", 1, length, length, 32, 8, 128, True, targets=targets)


def _decode(batch, length, *targets, page=0):
    name = f"{f'paged{page}' if page else 'decode'}-b{batch}-{_size(length)}"
    return Row(name, "paged" if page else "decode", batch, 1, length, 32, 8, 128, page=page, targets=targets)


def _fp8_decode(batch, length, *targets, page=16, head_dim=128, q_dtype="bf16"):
    form = ("-q" if q_dtype == "e4m3" else "") + ("" if head_dim == 128 else f"-d{head_dim}")
    name = f"fp8-kv{form}-b{batch}-{_size(length)}{'' if page == 16 else f'-page{page}'}"
    return Row(name, "fp8-kv", batch, 1, length, 32, 8, head_dim, page=page, kv_dtype="e4m3", q_dtype=q_dtype,
               targets=tuple(("read_stream", x) for x in targets) + (("fa3", 1.00),))


def _fp8_prefill(head_dim, causal, length, v_dim=0, scales="per_tensor"):
    dims = f"d{head_dim}{f'-{v_dim}' if v_dim else ''}"
    name = f"fp8-{dims}-{'causal' if causal else 'dense'}-{_size(length)}{'-per-head' if scales == 'per_head' else ''}"
    heads = 2048 // (v_dim or head_dim)
    targets = (("bf16", 1.15), ("fa3", 1.00)) + ((("cudnn", 1.00),) if scales == "per_tensor" else ())
    return Row(name, "fp8-prefill", max(1, 16384 // length), length, length, heads, heads, head_dim, causal, kv_dtype="e4m3",
               q_dtype="e4m3", scales=scales, v_dim=v_dim, targets=targets)


def _fp8_keys_prefill(head_dim, causal, length):
    # bf16 queries over fp8 keys: the products are those of bf16 keys, and so is the aim.
    name = f"fp8-kv-d{head_dim}-{'causal' if causal else 'dense'}-{_size(length)}"
    heads = 2048 // head_dim
    return Row(name, "fp8-prefill", max(1, 16384 // length), length, length, heads, heads, head_dim, causal, kv_dtype="e4m3",
               targets=(("bf16", 0.97),))


def _grouped(groups, each, n, k, dtype, target, skew="even", aligned=True):
    form = "" if aligned and skew == "even" else f"-{skew}" if aligned else "-unaligned"
    name = f"grouped-{dtype}-{groups}x{each}-n{n}-k{k}{form}"
    return GroupedRow(name, "grouped", groups, groups * each, n, k, dtype, skew=skew, aligned=aligned,
                      targets=(("deepgemm", target),))


def _masked(groups, each, n, k, dtype, target, capacity=128):
    return GroupedRow(f"masked-{dtype}-{groups}x{each}-n{n}-k{k}", "grouped-decode", groups, groups * each, n, k, dtype,
                      "masked", capacity, targets=(("deepgemm", target),))


def _absorbed_q(tokens, heads, layout):
    """Queries of latents: q_nope, 128 of 192 columns, times W_UK into 512 of 576. kv_b_proj's weight has columns of W_UK
    innermost (nn); a copy may have k innermost (nt)."""
    rows = 256 if layout == "nn" else 512
    return BatchedRow(f"absorbed-q-h{heads}-t{tokens}-{layout}", "batched", heads, tokens, 512, 128, layout, 192, 576, rows,
                      targets=(("torch_bmm", 1.00),))


def _absorbed_o(tokens, heads):
    """Outputs of heads: those of latents times W_UV."""
    return BatchedRow(f"absorbed-o-h{heads}-t{tokens}", "batched", heads, tokens, 128, 512, "nt", 512, 128, 256,
                      targets=(("torch_bmm", 1.00),))


def _write(tokens, dtype="bf16", rope=True):
    form = f"rope-{dtype}" if rope else "append"
    return WriteRow(f"kv-write-{form}-{_size(tokens)}", "kv-write", tokens, dtype, rope, targets=(("flashinfer", 1.00),))


def _step(rows, width, form, quantized=""):
    """A copy of as many bytes is the bound of many rows. Of few rows it is a launch of as little work."""
    steps = {"add-norm": {"adds": True}, "silu": {"gates": "silu"}, "gelu": {"gates": "gelu_tanh"}, "quantize": {}}[form]
    end = f"-{quantized}" if quantized else ""
    return StepRow(f"row-op-{form}{end}-{rows}x{width}", "row-op", rows, width, quantized=quantized,
                   targets=(("copy", 0.90),) if rows >= 4096 else (), **steps)


def _deepseek(tokens, skew="uniform"):
    """A layer of DeepSeek-V3 on one of 8 ranks of tensor parallelism."""
    form = "" if skew == "uniform" else f"-{skew}"
    return LayerRow(f"layer-deepseek-v3-tp8-{tokens}{form}", "layers-decode", tokens, 7168, 256, 8, 256, "e4m3", (8, 4), 2.5, skew,
                    targets=(("vllm", 1.00), ("vllm_h200", 1.00)))


def _qwen3(tokens, skew="uniform", set="layers"):
    """A layer of Qwen3-30B-A3B."""
    form = "" if skew == "uniform" else f"-{skew}"
    # Decoding streams weights, in every arm.
    peers = ("vllm", 1.00), ("vllm_h200", 1.00), ("triton_kernels", 1.00), ("torch_grouped", 1.3 if set == "layers" else 1.00)
    return LayerRow(f"layer-qwen3-30b-{tokens}{form}", set, tokens, 2048, 128, 8, 768, skew=skew, targets=peers)


ROWS = [
    _prefill(128, False, 512, ("cudnn", 1.05)),
    _prefill(128, False, 2048, ("cudnn", 1.05)),
    _prefill(128, False, 8192, ("cudnn", 1.05)),
    _prefill(128, False, 16384, ("cudnn", 1.05), ("fa3", 1.05)),
    _prefill(128, True, 512, ("cudnn", 1.05)),
    _prefill(128, True, 2048, ("fa3", 1.03)),
    _prefill(128, True, 8192, ("fa3", 1.00)),
    _prefill(128, True, 16384, ("fa3", 1.00)),
    _prefill(64, False, 512, ("cudnn", 1.05)),
    _prefill(64, False, 4096, ("fa3", 1.05)),
    _prefill(64, False, 16384, ("fa3", 1.05)),
    _prefill(64, True, 512, ("cudnn", 1.05)),
    _prefill(64, True, 4096, ("fa3", 1.05)),
    _prefill(64, True, 16384, ("fa3", 1.05)),
    _prefill(32, False, 4096, ("cudnn", 1.00)),
    _prefill(32, True, 4096, ("cudnn", 1.00)),
    _prefill(16, False, 4096, ("cudnn", 1.00)),
    _prefill(256, False, 8192, ("cudnn", 1.00)),
    _prefill(256, True, 8192, ("cudnn", 1.05)),
    _gqa(4096, ("fa3", 1.02)),
    _gqa(8192, ("fa3", 1.02)),
    _gqa(32768, ("fa3", 1.02)),
    _decode(1, 8192, ("cudnn", 1.50)),
    _decode(16, 8192, ("cudnn", 1.02)),
    _decode(64, 4096, ("cudnn", 1.00)),
    _decode(1, 131072, ("cudnn", 1.04)),
    _decode(16, 8192, ("read_stream", 0.90), page=16),
    _decode(16, 8192, ("read_stream", 0.94), page=64),
    *(_fp8_decode(batch, length, target, page=page, q_dtype=q) for q in ("bf16", "e4m3")
      for batch, length, target, page in ((1, 8192, 0.50, 16), (16, 8192, 0.90, 16), (64, 4096, 0.90, 16), (64, 4096, 0.90, 64),
                                          (1, 131072, 0.95, 16))),
    _fp8_decode(64, 8192, head_dim=64),
    _fp8_decode(32, 4096, head_dim=256),
    _fp8_keys_prefill(128, False, 2048),
    _fp8_keys_prefill(128, False, 8192),
    _fp8_keys_prefill(128, True, 2048),
    _fp8_keys_prefill(128, True, 8192),
    _fp8_keys_prefill(64, False, 8192),
    _fp8_keys_prefill(256, False, 8192),
    _fp8_prefill(128, False, 2048),
    _fp8_prefill(128, False, 8192),
    _fp8_prefill(128, False, 16384),
    _fp8_prefill(128, True, 2048),
    _fp8_prefill(128, True, 8192),
    _fp8_prefill(128, True, 16384),
    _fp8_prefill(64, False, 8192),
    _fp8_prefill(64, True, 8192),
    _fp8_prefill(256, False, 8192),
    _fp8_prefill(256, True, 8192),
    _fp8_prefill(192, False, 8192, v_dim=128),
    _fp8_prefill(192, True, 8192, v_dim=128),
    _fp8_prefill(128, False, 8192, scales="per_head"),
    # At most 0.9 of the time of the separate launches.
    Row("mixed-4x512-60x1-4k", "mixed", 64, 1, 4096, 32, 8, 128, True, page=64, chunks=4, chunk_len=512,
        targets=(("separate", 1 / 0.9),)),
    *(Row(f"mixed-1x512-{decodes}x1-608-page16", "mixed", decodes + 1, 1, 608, 32, 8, 128, True, page=16, chunks=1, chunk_len=512,
          targets=(("separate", 1.00),)) for decodes in (30, 100)),
    Row("window-gpt-oss-8k", "window", 1, 8192, 8192, 64, 8, 64, window=127, sinks=True, targets=(("copy", 0.70),)),
    *(_gemm_step(m, n, k) for m in (300, 600, 900) for n, k in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))),
    _gemm(8192, 8192, 8192, 1.00),
    _gemm(4096, 4096, 4096, 1.00),
    _gemm(16384, 4096, 4096, 1.00),
    _gemm(4096, 7168, 2048, 1.03),
    _gemm(4096, 24576, 1536, 1.03),
    _gemm(2048, 2048, 2048, 1.03),
    _gemm(4096, 512, 7168, 1.05),
    _gemm_decode(64, 7168, 4096),
    _gemm_decode(128, 4096, 7168),
    _gemm_decode(16, 8192, 8192),
    _fp8(8192, 8192, 8192, 1.00),
    _fp8(4096, 4096, 4096, 1.02),
    _fp8(2048, 2048, 2048, 1.05),
    _block(8192, 8192, 8192, 1.00),
    _block(16384, 4096, 4096, 1.00),
    _block(4096, 4096, 4096, 1.02),
    _block(4096, 7168, 2048, 1.03),
    _block(2048, 2048, 2048, 1.05),
    *(_gates(m, n, k, dtype) for m, n, k in ((8192, 28672, 4096), (4096, 4096, 7168), (2048, 6144, 2048), (64, 28672, 4096))
      for dtype in ("bf16", "e4m3")),
    *(_quantized(m, n, k) for m, n, k in ((8192, 28672, 4096), (4096, 4096, 7168), (2048, 6144, 2048), (64, 28672, 4096), (16, 4096, 7168))),
    *(_quantized(m, 4096, 4096, dtype, False) for m in (8192, 64) for dtype in ("e4m3", "bf16")),
    _gemm_decode(64, 7168, 4096, "e4m3", "per_block", True),
    _gemm_decode(128, 4096, 7168, "e4m3", "per_block", True),
    *(_gemm_decode(m, n, k, "e4m3", "per_block") for m, n, k in ((64, 4096, 7168), (128, 7168, 4096))),
    *(_gemm_decode(m, n, k, "e4m3", "per_block") for m in (64, 128)
      for n, k in ((2112, 7168), (24576, 1536), (7168, 2048), (7168, 16384))),
    *(_grouped(groups, rows, n, k, dtype, target)
      for groups, rows, n, k, targets in ((4, 8192, 4096, 7168, (1.00, 1.00)), (4, 8192, 7168, 2048, (1.00, 1.03)),
                                          (8, 4096, 4096, 7168, (1.00, 1.00)), (8, 4096, 7168, 2048, (1.00, 1.03)),
                                          (32, 256, 4096, 7168, (1.05, 1.05)), (128, 512, 1536, 2048, (1.05, 1.05)),
                                          (128, 128, 768, 2048, (1.08, 1.05)))
      for dtype, target in zip(("e4m3", "bf16"), targets)),
    *(_grouped(4, 8192, n, k, "e4m3", 0.99, aligned=False) for n, k in ((4096, 7168), (7168, 2048))),
    *(_grouped(128, 512, 1536, 2048, dtype, 1.00, skew=skew) for skew in ("uniform", "zipf") for dtype in ("e4m3", "bf16")),
    _grouped(128, 512, 1536, 2048, "bf16", 1.00, skew="one"),
    _masked(32, 8, 4096, 7168, "e4m3", 1.00),
    _masked(32, 8, 7168, 2048, "e4m3", 1.04),
    _masked(128, 4, 1536, 2048, "e4m3", 1.04, capacity=64),
    _masked(32, 64, 4096, 7168, "e4m3", 1.00),
    _masked(32, 8, 4096, 7168, "bf16", 1.00),
    _masked(128, 4, 1536, 2048, "bf16", 1.00, capacity=64),
    *(row for heads in (128, 16) for tokens in (1, 16, 128, 1024, 4096)
      for row in (_absorbed_q(tokens, heads, "nn"), _absorbed_q(tokens, heads, "nt"), _absorbed_o(tokens, heads))),
    *(_write(tokens, *form) for form in (("bf16", False), ("bf16",), ("e4m3",)) for tokens in (1, 128, 8192)),
    _deepseek(128),
    _deepseek(1),
    _deepseek(16),
    _deepseek(128, "zipf"),
    _deepseek(512),
    _qwen3(32768),
    _qwen3(32768, "zipf"),
    _qwen3(32768, "one"),
    _qwen3(4096),
    _qwen3(64, set="layers-decode"),
    _qwen3(64, "zipf", set="layers-decode"),
    _qwen3(1, set="layers-decode"),
    _latent(128, 8192, 128),
    _latent(128, 8192, 128, 2),
    _latent(64, 4096, 128),
    _latent(16, 32768, 128),
    _latent(1, 32768, 128),
    _latent(128, 4096, 64),
    _latent(128, 4096, 16),
    _latent(256, 4096, 16, 2),
    _latent(128, 8192, 128, page=16),
    _latent(128, 8192, 128, page=128),
    _latent(128, 4096, 128, mixed=True),
    _latent(32, 8192, 128, mixed=True),
    _latent(128, 4096, 16, mixed=True),
    _latent(32, 8192, 16, mixed=True),
    _latent_fp8(128, 4096, 16, "records"),
    _latent_fp8(128, 4096, 16, "e4m3"),
    _latent_fp8(128, 4096, 64, "records"),
    _latent_fp8(128, 8192, 128, "records"),
    _latent_fp8(128, 8192, 128, "e4m3"),
    _latent_fp8(1, 32768, 16, "records"),
    _latent_fp8(256, 4096, 16, "records", 2),
    *(_step(rows, width, form, quantized) for form, width, quantized in (
        ("add-norm", 4096, ""), ("add-norm", 7168, ""), ("add-norm", 4096, "token"), ("add-norm", 7168, "block"),
        ("silu", 14336, ""), ("silu", 14336, "token"), ("silu", 2048, "block"), ("gelu", 9216, ""), ("quantize", 7168, "block"))
      for rows in (1, 128, 8192)),
    StepRow("smoke-row-op", "row-op", 37, 512, adds=True, quantized="block", smoke=True),
    WriteRow("smoke-kv-write", "kv-write", 37, "e4m3", positions=512, smoke=True),
    LatentRow("smoke-latent-records", "latent-fp8", 3, 192, 20, 2, 64, keys="records", smoke=True),
    LatentRow("smoke-latent-e4m3", "latent-fp8", 3, 192, 20, 2, 64, keys="e4m3", smoke=True),
    LatentRow("smoke-latent", "latent", 3, 192, 20, 2, 64, smoke=True),
    LayerRow("smoke-layer", "layers", 50, 256, 16, 4, 128, smoke=True),
    LayerRow("smoke-layer-fp8", "layers-decode", 50, 256, 32, 4, 128, "e4m3", (4, 2), 2.5, smoke=True),
    GroupedRow("smoke-grouped", "grouped", 5, 700, 384, 256, "e4m3", skew="uniform", smoke=True),
    GroupedRow("smoke-masked", "grouped-decode", 5, 40, 384, 256, "e4m3", "masked", 64, "uniform", smoke=True),
    BatchedRow("smoke-batched", "batched", 5, 37, 136, 72, "nt", 96, 200, 150, smoke=True),
    GemmRow("smoke-gemm", "gemm", 300, 520, 200, smoke=True),
    GemmRow("smoke-quantized", "gemm-quantized", 300, 512, 256, "e4m3", "per_block", gates=True, quantized=True, smoke=True),
    Row("smoke-dense", "prefill", 2, 512, 512, 4, 4, 128, smoke=True),
    Row("smoke-causal-gqa", "prefill", 2, 384, 700, 8, 2, 64, True, smoke=True),
    Row("smoke-decode", "decode", 4, 1, 1000, 8, 2, 128, smoke=True),
    Row("smoke-paged", "paged", 4, 1, 1024, 8, 2, 128, page=16, smoke=True),
    Row("smoke-fp8-kv", "fp8-kv", 4, 1, 1024, 8, 2, 128, page=16, kv_dtype="e4m3", smoke=True),
    Row("smoke-fp8", "fp8-prefill", 2, 512, 512, 4, 4, 128, True, kv_dtype="e4m3", q_dtype="e4m3", smoke=True),
    Row("smoke-fp8-per-head", "fp8-prefill", 2, 384, 384, 8, 2, 64, kv_dtype="e4m3", q_dtype="e4m3", scales="per_head", smoke=True),
    Row("smoke-mixed", "mixed", 6, 1, 512, 8, 2, 128, True, page=64, chunks=2, chunk_len=100, smoke=True),
    Row("smoke-window", "window", 1, 512, 512, 8, 2, 64, window=127, sinks=True, smoke=True),
]
SETS = ("prefill", "decode", "paged", "fp8-kv", "fp8-prefill", "mixed", "window", "gemm", "gemm-step", "gemm-decode", "gemm-fp8",
        "gemm-block", "gemm-gates", "gemm-quantized", "grouped", "grouped-decode", "batched", "kv-write", "row-op", "layers", "layers-decode",
        "latent", "latent-fp8", "all", "smoke")


def selected(sets, pattern):
    """The rows of the sets whose names match the compiled `pattern`. "all" excludes the smoke rows."""
    for row in ROWS:
        named = "smoke" in sets if row.smoke else "all" in sets or row.set in sets
        if named and pattern.search(row.name):
            yield row


FUNCTION, WHEEL = "fa3_fwd", "_vllm_fa3_C"  # a library of FlashAttention-3 with a plain function; that of vLLM's wheel


def fa3_form(path):
    """Which of them a shared object is, by the names that it holds."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
        for form in (WHEEL, FUNCTION):
            if held.find(form.encode()) >= 0:
                return form
    raise ValueError(f"--fa3: {path} has neither {FUNCTION}() nor the operators {WHEEL} of vLLM's wheel")


def peers_of(row, asked, fa3_form=FUNCTION):
    """(peer, None) for each peer that supports the row, and (peer, why not) for each requested peer that does not."""
    if row.kind != "attention":
        yield from ((name, None) for name in row.peers())
        return
    own = {"paged": ["read_stream"], "fp8-kv": ["read_stream"], "fp8-prefill": ["bf16"], "mixed": ["separate"],
           "window": ["copy"]}.get(row.set, [])
    for peer in asked:
        if peer == "fa3" and fa3_form == WHEEL:
            yield peer, None if row.head_dim >= 64 else f"this build has no head_dim {row.head_dim}"
        elif peer == "flashinfer":
            yield peer, _flashinfer_refusal(row)
        else:
            yield peer, _refusal(row, peer)
    for peer in own:
        yield peer, None


def _flashinfer_refusal(row):
    """Why the arm of FlashInfer does not take the row, or None."""
    if row.chunks or row.sinks or row.window >= 0:
        return "this arm has neither mixed batches nor windows with sinks"
    if row.is_decode and not row.page:
        return "decodes over pages alone"
    return "this arm has no scales of heads" if row.scales == "per_head" else None


def _refusal(row, peer):
    """Why cuDNN, FlashAttention-2 or fa3_fwd cannot take the row, or None."""
    if row.page:
        return "takes no page table"
    if row.sinks or row.window >= 0:
        return "takes no window with sinks"
    if row.kv_dtype != "bf16":
        if row.q_dtype == "bf16" or peer == "fa2":
            return f"takes no fp8 keys under {row.q_dtype} queries"
        if row.scales == "per_head":
            return "takes no scales of heads"
    if peer == "fa3":
        if row.is_decode:
            return "this build has no split keys, so no decode worth comparing"
        return None if row.head_dim in (64, 128, 256) else f"this build has no head_dim {row.head_dim}"
    return "aligns its causal mask to the top left" if row.causal and row.q_len != row.kv_len else None
