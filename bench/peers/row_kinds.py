"""What a row of the comparison is, of each kind: its shape, the config's problem, and the work of a launch."""
import dataclasses
import random

BF16_BYTES = 2
BYTES = {"bf16": 2, "e4m3": 1}


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    set: str  # prefill, decode, paged, fp8-kv, fp8-prefill, mixed or window
    batch: int
    q_len: int
    kv_len: int
    heads: int
    kv_heads: int
    head_dim: int
    causal: bool = False
    window: int = -1  # keys left of the diagonal: 127 for a window of 128; -1: no window
    sinks: bool = False
    page: int = 0  # keys of a page; 0: padded
    chunks: int = 0  # mixed: this many sequences have chunk_len queries, the others one
    chunk_len: int = 0
    kv_dtype: str = "bf16"  # e4m3: keys and values with scales
    q_dtype: str = "bf16"  # e4m3: both products are of fp8
    out_dtype: str = "bf16"
    scales: str = "per_tensor"  # of what is e4m3; per_head: one for each KV head, which its queries share
    v_dim: int = 0  # elements of a value head; 0: head_dim
    targets: tuple = ()  # (peer, least ratio of rates)
    smoke: bool = False  # a small shape that shows whether an arm works

    def q_lens(self):
        """Queries of each sequence; all have kv_len keys."""
        return [self.chunk_len if i < self.chunks else self.q_len for i in range(self.batch)]

    kind = "attention"

    @property
    def is_decode(self):
        return self.q_len == 1 and self.chunks == 0

    @property
    def v_head_dim(self):
        return self.v_dim or self.head_dim

    def problem(self, part="all"):
        """The config's problem. part: "all", or for a mixed row "chunks" or "decodes", each as a separate launch."""
        mask = {"kind": "causal"} if self.causal else {"kind": "none"}
        if self.window >= 0:
            mask = {"kind": "sliding_window", "window": {"left": self.window, "right": 0}}
        ragged = self.chunks > 0 and part != "decodes"
        problem = {"dtype": {"q": self.q_dtype, "kv": self.kv_dtype, "out": self.out_dtype},
                   "head_dim": {"qk": self.head_dim, "v": self.v_head_dim},
                   "heads": {"q": self.heads, "kv": self.kv_heads}, "q_layout": "ragged" if ragged else "padded",
                   "kv_layout": {"kind": "paged", "page_size": self.page} if self.page else {"kind": "padded"},
                   "mask": mask, "sinks": self.sinks, "scales": "none" if self.kv_dtype == "bf16" else self.scales}
        if self.is_decode or part == "decodes":
            # One query at the end of its keys sees them all, so a mask would cost time and change nothing.
            problem |= {"max_q_len": 1, "mask": {"kind": "none"}}
        elif self.chunks == 0:
            problem["max_q_len"] = self.q_len  # code that prepares a kernel for a shape knows it
        return problem

    def kv_bytes(self):
        return BYTES[self.kv_dtype] * self.batch * self.kv_len * self.kv_heads * (self.head_dim + self.v_head_dim)

    def work(self):
        """(amount, unit, the divisor for amount per millisecond)."""
        if self.set == "window":
            q_and_o = 2 * BF16_BYTES * self.batch * self.q_len * self.heads * self.head_dim
            return q_and_o + self.kv_bytes(), "GB/s of QKVO", 1e6
        if self.set in ("prefill", "fp8-prefill"):
            flop = 2 * self.batch * self.heads * self.q_len * self.kv_len * (self.head_dim + self.v_head_dim)
            return flop / (2 if self.causal else 1), "TFLOP/s", 1e9
        return self.kv_bytes(), "GB/s of KV", 1e6


@dataclasses.dataclass(frozen=True)
class GemmRow:
    name: str
    set: str  # gemm, gemm-decode, gemm-fp8, gemm-block, gemm-gates or gemm-quantized
    m: int
    n: int
    k: int
    dtype: str = "bf16"
    scales: str = "none"
    targets: tuple = ()  # (peer, least ratio of rates)
    smoke: bool = False
    fast: bool = False  # fp8: sums stay in the tensor cores
    gates: bool = False  # d is silu(gate) * up, of n / 2 columns
    quantized: bool = False  # d is e4m3, with a scale for 128 columns of a row

    kind = "gemm"

    @property
    def columns(self):
        """Of d."""
        return self.n // 2 if self.gates else self.n

    def problem(self):
        dtype = {"a": self.dtype, "b": self.dtype, "d": "e4m3" if self.quantized else "bf16"}
        value = "silu(gate) * up" if self.gates else "acc"
        if self.quantized:
            value = f"x = {value}; d = quantize(x, e4m3, per=token_group(128), scale=s)"
        problem = {"n": self.n, "k": self.k, "dtype": dtype, "scales": self.scales}
        return problem | ({"fast_accumulation": True} if self.fast else {}) | ({"epilogue": value} if value != "acc" else {})

    def peers(self):
        """Names of the arms beside ours."""
        if self.gates or self.quantized:
            return ["plain", "row_op"] if self.quantized else ["plain"]
        decode = self.set == "gemm-decode"
        names = ["cublas", "cublaslt"] if self.scales == "none" else ["cublaslt"]
        if self.scales == "per_block":
            names += ["cublas_bf16" if decode else "cublaslt_tensor", "deepgemm"]
        return names + (["read_stream"] if decode else [])

    def flops(self):
        return 2 * self.m * self.n * self.k

    def operand_bytes(self):
        return (self.m + self.n) * self.k * (BF16_BYTES if self.dtype == "bf16" else 1)

    def work(self):
        if self.set == "gemm-decode":
            return self.operand_bytes(), "GB/s of AB", 1e6
        return self.flops(), "TFLOP/s", 1e9


@dataclasses.dataclass(frozen=True)
class GroupedRow:
    name: str
    set: str  # grouped or grouped-decode
    groups: int
    rows: int  # of all groups
    n: int
    k: int
    dtype: str = "bf16"
    kind_of_groups: str = "rows"
    capacity: int = 0  # masked: rows for which a group has room
    skew: str = "even"  # how rows belong to groups: even, uniform, zipf or one
    aligned: bool = True  # groups begin at multiples of 128 rows
    targets: tuple = ()  # (peer, least ratio of rates)
    smoke: bool = False

    kind = "grouped"

    def problem(self):
        bounds = "counts" if self.kind_of_groups == "masked" else "starts"
        return {"n": self.n, "k": self.k, "dtype": {"a": self.dtype, "b": self.dtype, "d": "bf16"},
                "scales": "none" if self.dtype == "bf16" else "per_block",
                "groups": {"kind": self.kind_of_groups, "count": self.groups, "bounds": bounds}}

    def peers(self):
        if self.set == "grouped-decode":
            return ["deepgemm", "read_stream"]
        return ["deepgemm", "torch_grouped"] if self.dtype == "bf16" else ["deepgemm"]

    def work(self, counts=None):
        """As Row.work(). `counts`: the rows that each group has; else all groups have some."""
        if self.set == "grouped-decode":
            active = sum(1 for count in counts if count) if counts else self.groups
            return active * self.n * self.k * BYTES[self.dtype], "GB/s of B", 1e6
        return 2 * self.rows * self.n * self.k, "TFLOP/s", 1e9


@dataclasses.dataclass(frozen=True)
class WriteRow:
    """New keys and values of one sequence to pages, with or without a rotation of keys and queries."""
    name: str
    set: str  # kv-write
    tokens: int
    dtype: str = "bf16"  # of the cache, and of queries behind the rotation
    rope: bool = True
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    page: int = 16
    positions: int = 40960  # rows of the cache
    targets: tuple = ()  # (peer, least ratio of rates)
    smoke: bool = False

    kind = "kv_write"

    def problem(self):
        problem = {"dtype": {"in": "bf16", "q": self.dtype, "kv": self.dtype}, "head_dim": {"qk": self.head_dim, "v": self.head_dim},
                   "heads": {"q": self.heads, "kv": self.kv_heads}, "kv_layout": {"kind": "paged", "page_size": self.page}}
        problem |= {"rope": {"style": "neox", "width": self.head_dim}} if self.rope else {"index": "positions", "q_out": False}
        return problem | ({"scales": dict.fromkeys("qkv", "per_tensor")} if self.dtype == "e4m3" else {})

    def peers(self):
        return ["flashinfer", "copy"]

    def work(self):
        """As Row.work(): what is read and what is written, without the angles."""
        heads = 2 * self.kv_heads + (self.heads if self.rope else 0)
        return (BF16_BYTES + BYTES[self.dtype]) * self.tokens * heads * self.head_dim, "GB/s", 1e6


@dataclasses.dataclass(frozen=True)
class StepRow:
    """Steps over rows between GEMMs: a sum with a residual and its RMS norm, or gates times ups, or neither; quantised or not."""
    name: str
    set: str  # row-op
    rows: int
    width: int
    adds: bool = False  # a residual, and then an RMS norm with weights
    gates: str = ""  # what becomes of a gate: silu or gelu_tanh
    quantized: str = ""  # to e4m3 with scales: token or block, which is of 128 elements
    targets: tuple = ()  # (peer, least ratio of rates)
    smoke: bool = False

    kind = "row_op"

    def problem(self):
        problem = {"dtype": {"in": "bf16", "out": "e4m3" if self.quantized else "bf16"}, "width": self.width}
        if self.adds:
            problem |= {"input": "add", "norm": {"kind": "rms", "eps": 1e-6}}
        if self.gates:
            problem |= {"input": "gate_up", "gate": {"activation": self.gates}}
        if self.quantized:
            problem["scales"] = {"kind": f"per_{self.quantized}"} | ({"layout": "columns"} if self.quantized == "block" else {})
        return problem

    def peers(self):
        return (["flashinfer"] if (self.adds or self.gates) and not self.quantized else []) + ["copy"]

    def read_width(self):
        """Elements of a row of x."""
        return 2 * self.width if self.gates else self.width

    def group_width(self):
        """Elements that share a scale."""
        return self.width if self.quantized == "token" else 128

    def work(self):
        """As Row.work(): what is read and what is written, without the weights of the norm."""
        elements = BF16_BYTES * self.read_width() + (2 * BF16_BYTES * self.width if self.adds else 0)
        out = self.width + 4 * self.width // self.group_width() if self.quantized else BF16_BYTES * self.width
        return self.rows * (elements + out), "GB/s", 1e6


@dataclasses.dataclass(frozen=True)
class BatchedRow:
    """A product of each head, whose rows lie in tensors [tokens, heads, width]."""
    name: str
    set: str  # batched
    heads: int
    tokens: int
    n: int
    k: int
    layout: str
    a_width: int
    d_width: int
    b_rows: int  # of a head's part of the weight, of which b is the last ones
    targets: tuple = ()  # (peer, least ratio of rates)
    smoke: bool = False

    kind = "batched"

    def problem(self):
        return {"n": self.n, "k": self.k, "dtype": {"a": "bf16", "b": "bf16", "d": "bf16"}, "layout": self.layout,
                "groups": {"kind": "batch", "count": self.heads}}

    def peers(self):
        return ["torch_bmm", "read_stream"]

    def work(self):
        """As Row.work(). Products of so few columns are bound by memory, whatever the number of tokens."""
        elements = self.tokens * self.k + self.n * self.k + self.tokens * self.n
        return BF16_BYTES * self.heads * elements, "GB/s of ABD", 1e6


@dataclasses.dataclass(frozen=True)
class LayerRow:
    """A layer of experts, from logits to sums."""
    name: str
    set: str  # layers or layers-decode
    tokens: int
    hidden: int
    experts: int
    top_k: int
    width: int  # of an expert, on this rank
    dtype: str = "bf16"  # or e4m3: scales of blocks, tokens are quantised by the layer
    grouped: tuple = ()  # (groups of experts, how many of them are picked): sigmoid, with a bias; else softmax
    factor: float = 1.0
    skew: str = "uniform"  # how tokens choose experts: uniform, zipf, or one (all tokens the same)
    targets: tuple = ()  # (peer, least ratio of rates)
    smoke: bool = False

    kind = "layers"

    def problem(self):
        fields = dataclasses.asdict(self) | {"grouped": list(self.grouped)}
        return {name: fields[name] for name in ("tokens", "hidden", "experts", "top_k", "width", "dtype", "grouped", "factor")}

    def peers(self):
        names = ["vllm", "vllm_h200"] + (["triton_kernels", "torch_grouped"] if self.dtype == "bf16" else [])
        return names + (["read_stream"] if self.set == "layers-decode" else [])

    def weight_bytes(self, active):
        return active * 3 * self.width * self.hidden * BYTES[self.dtype]

    def work(self, case=None):
        """As Row.work(); all experts have tokens unless `case` says which have."""
        if self.set == "layers-decode":
            return self.weight_bytes(case.active() if case else self.experts), "GB/s of weights", 1e6
        return 6 * self.tokens * self.top_k * self.width * self.hidden, "TFLOP/s", 1e9


@dataclasses.dataclass(frozen=True)
class LatentRow:
    """Latent attention, absorbed: keys [pages, page, 1, 576], whose first 512 elements are the values. Or records of 656
    bytes; or e4m3 with one scale."""
    name: str
    set: str  # latent, latent-fp8
    batch: int
    kv_len: int
    heads: int
    q_len: int = 1
    page: int = 64
    targets: tuple = ()  # (peer, least ratio of rates)
    smoke: bool = False
    mixed: bool = False  # lengths of a server's batch, of which kv_len is the mean
    keys: str = "bf16"  # records, e4m3

    kind = "latent"
    QK, V = 576, 512

    def lengths(self):
        if not self.mixed:
            return [self.kv_len] * self.batch
        draw = random.Random(self.batch)
        return [draw.randint(1, 2 * self.kv_len) for _ in range(self.batch)]

    def problem(self):
        scales = {"bf16": "none", "records": "per_block", "e4m3": "per_tensor"}[self.keys]
        dtype = "bf16" if self.keys == "bf16" else "e4m3"
        return {"dtype": {"q": "bf16", "kv": dtype, "out": "bf16"}, "head_dim": {"qk": self.QK, "v": self.V},
                "heads": {"q": self.heads, "kv": 1}, "kv_layout": {"kind": "paged", "page_size": self.page},
                "v_layout": "key_prefix", "scales": scales, "mask": {"kind": "causal"}, "max_q_len": self.q_len}

    def peers(self):
        dense = ["flashmla"] if self.page == 64 and self.keys != "e4m3" else []
        return dense + ["read_stream"] + (["bf16"] if self.keys != "bf16" else [])

    def key_bytes(self):
        """Bytes of a key: a record has codes of the latent, 4 scales, and 64 elements that carry the rotation."""
        return {"bf16": BF16_BYTES * self.QK, "records": self.V + 16 + BF16_BYTES * (self.QK - self.V), "e4m3": self.QK}[self.keys]

    def kv_bytes(self):
        return sum(self.lengths()) * self.key_bytes()

    def work(self):
        """As Row.work()."""
        if self.heads * self.q_len >= 128:
            return 2 * sum(self.lengths()) * self.q_len * self.heads * (self.QK + self.V), "TFLOP/s", 1e9
        return self.kv_bytes(), "GB/s of keys", 1e6
