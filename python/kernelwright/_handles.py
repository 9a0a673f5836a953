"""Kernel and its kin: the handles of kernels of runtime/c/c_api.h as Python objects, a class for each kind.
Engine.prepare() makes them."""
from ctypes import byref, c_uint64

from . import _structs as structs
from ._arguments import Arguments, Problem, tensors_and_numbers
from ._door import AttentionCalls, Calls, GemmCalls, KvWriteCalls, MoeCalls, MoeCombineCalls, QuantizeCalls, RouteCalls, RowOpCalls
from ._errors import ConfigError
from ._gemm import GemmProblem
from ._kv_write import KvWriteProblem
from ._launches import GemmLaunch, KvWriteLaunch, Launch, MoeCombineLaunch, MoeLaunch, RouteLaunch, RowOpLaunch
from ._moe import MoeCombineProblem, RouteProblem
from ._moe_layer import MoeProblem
from ._quantize import check_sizes, quantize_arguments
from ._row_op import RowOpProblem
from ._tensors import stream_address

STATES = {structs.PENDING: "pending", structs.READY: "ready", structs.FAILED: "failed"}


class _Handle(Calls):
    """A kernel of an engine; it keeps the engine alive. Engine.prepare() makes it."""

    def __init__(self, engine, handle, problem, device):
        self.engine, self.device, self._handle = engine, device, handle
        self._problem = problem
        self._own_memory = engine.is_emulated(device)
        self._open_door()

    def wait(self):
        """Waits until the kernel is ready. If it has failed, raises the reason."""
        self.engine._live()
        self.engine._lib.kernel_wait(self._handle)

    def info(self):
        """A dict: state, serves_fallback, device, registers, spill_bytes, static_shared_bytes, cubin_bytes, key."""
        self.engine._live()
        info = structs.KernelInfo()
        self.engine._lib.kernel_get_info(self._handle, byref(info))
        told = {name: getattr(info, name) for name, _ in structs.KernelInfo._fields_ if name != "struct_size"}
        return told | {"state": STATES[told["state"]], "serves_fallback": bool(told["serves_fallback"]),
                       "key": told["key"].decode()}

    @property
    def state(self):
        return self.info()["state"]

    @property
    def serves_fallback(self):
        return self.info()["serves_fallback"]

    @property
    def key(self):
        return self.info()["key"]


class Kernel(AttentionCalls, _Handle):
    """The kernel of an attention problem.

    kernel(q, k, v, out=o, ...) queues the attention on the framework's current stream, or on `stream`. It takes the
    arguments of bind(), with `out` for o, and returns out; if the problem has an LSE, (out, lse). A result that is not
    given is allocated by the framework, and so is a workspace. Read docs/embedding.md, "Fast calls".
    """

    def __init__(self, engine, handle, problem, device):
        super().__init__(engine, handle, Problem(problem), device)

    def bind(self, *, q, k, o, v=None, lse=None, q_offsets=None, kv_offsets=None, kv_lengths=None, page_table=None, sinks=None,
             k_scale=None, v_scale=None, alibi_slopes=None, workspace=None, batch=None, q_len=None, kv_len=None, q_tokens=None,
             kv_tokens=None, page_table_stride=None, workspace_bytes=None, scale=None, softcap=None, window=None,
             sm_budget=0, pdl=False, q_rope=None, k_rope=None, q_scale=None, num_pages=None, zero_padding=False,
             mask=None, bias=None, kv_starts=None):
        """A Launch of these tensors: read and checked once, launched any number of times.

        Tensors are objects with __dlpack__ or __cuda_array_interface__, Arrays, or device addresses.

        Shapes, as in runtime/attention/kernel.h: q, o [batch, q_len, q_heads, head_dim], ragged [tokens, q_heads,
        head_dim]; k, v [batch, kv_len, kv_heads, head_dim], ragged [tokens, ...], paged [pages, page_size, ...].
        With "v_layout": "key_prefix" v is left out, or is k, and v_scale is left out. With scales "per_block" k is
        u8: records of 656 bytes, which hold their scales.

        Sizes that shapes do not tell must be given: q_len (the longest) for ragged queries, and kv_len (the longest,
        or a bound) for ragged keys. Beside addresses, all sizes must be given. These include kv_tokens, the rows of
        ragged k and v, unless k and v share the offsets of q. They also include num_pages, the pages of k and v:
        entries of page_table past it are not followed.

        sm_budget limits the SMs that a persistent kernel takes; 0: all. pdl, programmatic dependent launch, lets the
        kernel start while the kernel ahead of it in the stream ends. q_rope and k_rope are a head's rotary part, if
        the problem has one. A k_rope that is expanded over its heads (stride 0) is one for all. zero_padding sets
        rows of ragged o that belong to no sequence to zero; otherwise they are not written.

        Scales are f32: what is stored, times its scale, is the value. k_scale and v_scale are both [1] (per_tensor),
        [kv_heads] (per_head), [pages, kv_heads] (per_page) or k without its last dimension (per_token: [batch, kv_len,
        kv_heads], ragged [tokens, kv_heads], paged [pages, page_size, kv_heads]). Those of pages and tokens may have any
        strides. q_scale goes with per_token and e4m3 queries, and is q without its last dimension, contiguous.

        kv_starts (i32 [batch]), if the problem has "kv_starts", is the first key of each sequence: left padding. Keys
        before it do not exist for any query.

        mask (u8 or bool) and bias, if the problem has them, are [batch or 1, q_heads or 1, q_len or 1, kv_len], keys
        contiguous. A dimension of one, or a broadcast one, means one element for all.
        """
        tensors, numbers = tensors_and_numbers(structs.AttentionTensors, locals())
        built = Arguments(self._problem, self.device, self._own_memory).build(tensors, numbers)
        return Launch(self, tensors, built)

    def launch(self, *, stream=None, **tensors):
        """Queues the attention of the tensors, given as for bind(), on `stream`: an address, an object with
        __cuda_stream__ or cuda_stream (torch) or ptr (CuPy), or None, the default stream. Allowed while the stream
        captures."""
        self.bind(**tensors)(stream)

    def workspace_bytes(self, **tensors):
        """Bytes of workspace that a launch of these tensors needs; only their sizes matter."""
        return self.bind(**tensors).needed_workspace_bytes()


class GemmKernel(GemmCalls, _Handle):
    """The kernels of a GEMM, for any number of rows. info() describes the kernel for many rows.

    kernel(a, b, out=d, ...) queues the product as a Kernel's call does. It takes the arguments of bind(), with `out` for
    d, and returns out. If the epilogue quantises, it returns (out, scale_d).
    """

    def __init__(self, engine, handle, problem, device):
        super().__init__(engine, handle, GemmProblem(problem), device)

    def bind(self, *, a, b, d, c=None, bias=None, scale_a=None, scale_b=None, m=None, alpha=None, beta=None,
             workspace=None, workspace_bytes=None, bounds=None, status=None, gather=None, source_rows=None, scale_d=None,
             scatter=None, result_rows=None, b_stride=None, tensor_scale=None, amax=None, squares=None, squares_a=None,
             rms_eps=None, expected_m=0, sm_budget=0, pdl=False, constant_b=False, kv_write=None):
        """A GemmLaunch of these tensors: read and checked once, launched any number of times.

        Tensors are given as for Kernel.bind(): a [m, k] or [k, m] as the layout says, b [n, k] or [k, n], c and d [m,
        n], bias [n], rows contiguous. Scales are f32: per_tensor [1], per_token [m] and [n], per_block [k / 128, m]
        and [n / 128, k / 128]. With gates, d is [m, n / 2] and that scale_b [2 ceil(n / 256), k / 128]. Block-scaled
        operands are u8 [rows, bytes of a row], and their scales bytes of whole atoms, as QuantizeKernel makes them.
        workspace: workspace_bytes() bytes of any dtype.

        m is needed only beside addresses; alpha and beta are 1 unless given. With pdl, constant_b says that no
        earlier kernel that may still run writes b. The first tiles of b are then loaded before that kernel has ended,
        but not with groups.

        With groups (docs/gemm/groups.md): b [count, n, k], bias [count, n], scale_b [count, ...], and of masked groups a
        and d [count, capacity, ..] and scale_a per_block [count, k / 128, capacity]. bounds are i32, and lie on the device.
        status, i32 [1], becomes 1 where they do not fit. expected_m, the rows of a group that has any, chooses the kernel.
        With gather, which is i32 [m], a is [source_rows, k]; source_rows is needed only beside an address.
        With scatter, which is i32 [m], c and d are [result_rows, n]. result_rows is needed only beside an address, or to make
        out, whose other rows hold anything. With pointers, b is i64 [count] on the device: the address of each group's [n, k],
        whose rows are b_stride elements apart, or without a gap. The caller keeps these tensors alive.

        A batch has the shapes of masked groups, and no bounds. Its a, b, c and d may have any strides, but rows are
        contiguous: q.transpose(0, 1) of q [tokens, heads, k] is an a.

        Of groups of kind k, a is [rows, m / count] and b [rows, n], bounds are those of their rows, and c and d are [count,
        m / count, n], wherever their matrices lie. source_rows is needed only beside addresses.

        If the epilogue quantises, scale_d is f32 [columns of d / 128, m] and is written. Of masked groups and a batch it
        is [count, columns of d / 128, capacity]. A GEMM with per_block scales takes d and scale_d as a and scale_a, if m, or the
        capacity, is a multiple of 4. If it quantises to mxfp8, mxfp4 or nvfp4, d is u8 [m, bytes of a row], and scale_d u8:
        whole atoms, or with layout=rows [m, columns of d / 32 or 16]. Atoms of groups: docs/gemm/groups.md. value / tensor_scale
        is quantised, 1 unless given.

        Where the epilogue has them: amax, f32 [1], becomes the largest magnitude if it is less. squares, f32 [columns of d
        / 128, m], is written. For rstd, squares_a is such a tensor of a, [k / 128, m], and rms_eps is 1e-6 unless given.

        If the problem has kv_write, d is [m, columns of queries], and kv_write is a dict of what KvWriteKernel.bind() takes,
        without q, k, v, q_out and pdl: dict(k_cache=keys, v_cache=values, slot_mapping=slots, ...).
        """
        tensors, numbers = tensors_and_numbers(structs.GemmTensors, locals())
        built = self._problem.arguments(tensors, numbers, self.device, self._own_memory)
        return GemmLaunch(self, tensors | {"kv_write": kv_write}, built)

    def launch(self, *, stream=None, **tensors):
        """Queues the product of the tensors, given as for bind(), on `stream`, as Kernel.launch() does."""
        self.bind(**tensors)(stream)

    def workspace_bytes(self, **tensors):
        """Bytes of workspace that a launch of these tensors needs: 0, except for kernels whose parts of k take turns.
        """
        return self.bind(**tensors).needed_workspace_bytes()


class QuantizeKernel(QuantizeCalls, _Handle):
    """Quantises rows of floats to a block-scaled format.

    kernel(x, elements=e, scales=s, ...) queues the work as a Kernel's call does. It takes the arguments of launch(), and
    returns (elements, scales). Those that it allocates are of dtype u8: [rows, k], or [rows, k / 2] for formats of four
    bits, and [scale_bytes(rows, k)].
    """

    def scale_bytes(self, rows, k):
        """Bytes of the scales of [rows, k] elements, in whole atoms."""
        check_sizes(rows, k)
        count = c_uint64()
        self.engine._lib.quantize_scale_bytes(self._problem[1].encode(), rows, k, byref(count))
        return count.value

    def launch(self, *, x, elements, scales, rows=None, k=None, tensor_scale=1.0, pdl=False, stream=None):
        """Queues elements, scales = quantised x / tensor_scale on `stream`, as Kernel.launch() does.

        Tensors are given as for Kernel.bind(): x [rows, k], k a multiple of 32 and rows contiguous. elements and
        scales are contiguous, of dtype u8 or any known dtype of 8 bits. elements have rows * k bytes (mxfp8) or half
        as many; scales have scale_bytes(rows, k) bytes. rows and k are needed if x is an address.
        """
        self.engine._live()
        if not tensor_scale > 0:
            raise ConfigError(f"tensor_scale: {tensor_scale} does not divide; give a number above 0")
        built = quantize_arguments(self, dict(x=x, elements=elements, scales=scales), rows, k)
        built.tensor_scale, built.pdl = tensor_scale, pdl
        self.engine._lib.launch_quantize(self._handle, byref(built), stream_address(stream))


class KvWriteKernel(KvWriteCalls, _Handle):
    """Writes new keys and values to a cache, and rotates the queries on the way.

    kernel(q, k, v, k_cache, v_cache, slot_mapping=..., ...) queues the work as a Kernel's call does. It takes the arguments
    of bind(), and returns q_out. Without queries it is kernel(k, v, k_cache, v_cache, ...), and returns None.
    """

    def __init__(self, engine, handle, problem, device):
        super().__init__(engine, handle, KvWriteProblem(problem), device)

    def bind(self, *, k, k_cache, v=None, v_cache=None, q=None, q_out=None, q_weight=None, k_weight=None, cos_sin=None, positions=None,
             slot_mapping=None, batch_indices=None, page_table=None, q_scale=None, k_scale=None, v_scale=None, tokens=None,
             num_pages=None, batch=None, kv_len=None, kv_tokens=None, page_table_stride=None, cos_sin_rows=None,
             position_bytes=None, eps=None, pdl=False):
        """A KvWriteLaunch of these tensors: read and checked once, launched any number of times.

        Tensors are given as for Kernel.bind(): q, k, v and q_out [tokens, heads, head_dim] or [tokens, heads *
        head_dim], rows as far apart as their strides say. k_cache and v_cache are paged [pages, page_size, heads,
        head_dim], padded [batch, kv_len, ...] or ragged [rows, ...] with any strides of whole heads. slot_mapping is
        i64 [tokens], positions i32 or i64 [tokens] or [3, tokens], batch_indices i32 [tokens], page_table i32 [batch,
        pages], and cos_sin f32 [rows, width]: rope_table() makes it. Scales are f32 (docs/kv-write.md). Beside
        addresses, sizes must be given. tokens may be less than k has rows.
        """
        tensors, numbers = tensors_and_numbers(structs.KvWriteTensors, locals())
        built = self._problem.arguments(tensors, numbers, self.device, self._own_memory)
        return KvWriteLaunch(self, tensors, built)

    def launch(self, *, stream=None, **tensors):
        """Queues the writing of a cache, with tensors given as for bind(), on `stream`, as Kernel.launch() does."""
        self.engine._live()
        self.bind(**tensors)(stream)


class RowOpKernel(RowOpCalls, _Handle):
    """Takes steps over rows between GEMMs: sum with a residual or gated product, norm, quantisation. Or merges two parts of
    an attention.

    kernel(x, weight=w, ...) queues the work as a Kernel's call does; with input "add" and "merge" it is kernel(x, residual,
    ...). It takes the arguments of bind(), and returns out, then residual_out, lse_out and scale if the problem writes them.
    A result that is not given is allocated.
    """

    def __init__(self, engine, handle, problem, device):
        super().__init__(engine, handle, RowOpProblem(problem), device)

    def bind(self, *, x, residual=None, out, residual_out=None, weight=None, scale=None, rows=None, eps=None, gate_alpha=None,
             gate_limit=None, tensor_scale=None, pdl=False, constant_weight=False, lse=None, residual_lse=None, lse_out=None):
        """A RowOpLaunch of these tensors: read and checked once, launched any number of times.

        Tensors are given as for Kernel.bind(): x [rows, width], with input "gate_up" [rows, 2 width]; residual,
        residual_out and out [rows, width]; weight [width]. Rows are contiguous, and as far apart as strides say.
        residual_out may be residual. out may be x, if dtypes and strides agree.

        scale is f32: per_tensor [1], which is read; per_token [rows]; per_block [width / 128, rows] or, with layout
        "rows", [rows, width / 128]. Of mxfp8, mxfp4 and nvfp4, out is u8 [rows, bytes of a row], and scale has whole
        atoms of bytes. A GEMM takes scale as its scale_a or atoms.

        With input "merge" x and residual are attention over two sets of keys, and lse and residual_lse, f32 [rows, heads],
        say what each weighs; -inf: no key, and the row does not count. lse_out, that of both, is neither of them. All three
        have the same strides. out may be residual, too.

        rows is needed only beside addresses. eps, and gate_alpha and gate_limit of clamped gates, are the problem's unless
        given. With mxfp8, mxfp4 and nvfp4, value / tensor_scale is quantised. With pdl, constant_weight says that no
        earlier kernel that may still run writes the weights. They are then loaded before that kernel has ended.
        """
        tensors, numbers = tensors_and_numbers(structs.RowOpTensors, locals())
        built = self._problem.arguments(tensors, numbers, self.device, self._own_memory)
        return RowOpLaunch(self, tensors, built)

    def launch(self, *, stream=None, **tensors):
        """Queues the steps over rows, with tensors given as for bind(), on `stream`, as Kernel.launch() does."""
        self.engine._live()
        self.bind(**tensors)(stream)


class RouteKernel(RouteCalls, _Handle):
    """Chooses the experts of each token, and sorts tokens by expert.

    kernel(logits, bias=b, ...) queues the work as a Kernel's call does. It takes the arguments of bind(), and returns (ids,
    weights), and if the problem sorts (ids, weights, starts, source_rows, positions). A result that is not given is
    allocated, and so is a workspace. sorted_weights is written only where it is given.

    Where experts are given, it is kernel(ids, ...), and returns (starts, source_rows, positions).
    """

    def __init__(self, engine, handle, problem, device):
        super().__init__(engine, handle, RouteProblem(problem), device)

    def bind(self, *, logits=None, bias=None, local_ids=None, ids, weights=None, starts=None, source_rows=None, positions=None,
             sorted_weights=None, workspace=None, tokens=None, factor=None, workspace_bytes=None, pdl=False):
        """A RouteLaunch of these tensors: read and checked once, launched any number of times.

        Tensors are given as for Kernel.bind(): logits [tokens, experts], rows contiguous and as far apart as the stride
        says; bias f32 [experts]; local_ids i32 [experts]. What is written is contiguous: ids i32 and weights f32 [tokens,
        top_k]. With sort, starts i32 [local experts + 1], positions i32 [tokens, top_k], source_rows i32 and sorted_weights
        f32 [tokens * top_k + (alignment - 1) * local experts]. docs/moe-route.md has their meaning. Where experts are given
        (score), ids and weights are read, and there are no logits; weights are needed for sorted_weights alone.

        tokens is needed only beside addresses. factor is the problem's unless given.
        """
        tensors, numbers = tensors_and_numbers(structs.RouteTensors, locals())
        built = self._problem.arguments(tensors, numbers, self.device, self._own_memory)
        return RouteLaunch(self, tensors, built)

    def launch(self, *, stream=None, **tensors):
        """Queues the choice of experts, with tensors given as for bind(), on `stream`, as Kernel.launch() does."""
        self.engine._live()
        self.bind(**tensors)(stream)


class MoeKernel(MoeCalls, _Handle):
    """A whole layer of experts, from the choice of experts to the sum over their rows: several kernels behind one handle.

    kernel(x, logits, gate_up, down, ...) queues the layer as a Kernel's call does; where experts are given (score), it is
    kernel(x, ids, weights, gate_up, down, ...), which the extension takes with all tensors by name. It takes the arguments
    of bind(), and returns out. A result that is not given is allocated, and so is a workspace.
    """

    def __init__(self, engine, handle, problem, device):
        super().__init__(engine, handle, MoeProblem(problem), device)

    def bind(self, *, x, logits=None, ids=None, weights=None, gate_up, down, out, bias=None, local_ids=None, gate_up_scale=None,
             gate_up_bias=None, down_scale=None, down_bias=None, residual=None, workspace=None, tokens=None, factor=None,
             workspace_bytes=None, pdl=False):
        """A MoeLaunch of these tensors: read and checked once, launched any number of times.

        Tensors are given as for Kernel.bind(): x, residual and out [tokens, hidden] and logits [tokens, experts], rows
        contiguous and as far apart as strides say; the others contiguous. gate_up [experts, 2 intermediate, hidden] has 8
        rows of gates, the 8 rows of ups that belong to them, and so on; gate_up_bias [experts, 2 intermediate] likewise.
        down is [experts, hidden, intermediate], and down_bias [experts, hidden]. With scales per_block, weights are e4m3,
        and scales f32: gate_up_scale [experts, 2 ceil(intermediate / 128), hidden / 128], those of gates first, and
        down_scale [experts, hidden / 128, intermediate / 128]. bias f32 and local_ids i32 are [experts of all ranks].

        ids i32 and weights f32 are [tokens, top_k]. Where experts are given, they are read. Otherwise they are written, if
        they are given. out may be x or residual, with its strides. workspace: workspace_bytes() bytes of any dtype.

        tokens is needed only beside addresses. factor is the problem's unless given.
        """
        tensors, numbers = tensors_and_numbers(structs.MoeTensors, locals())
        built = self._problem.arguments(tensors, numbers, self.device, self._own_memory)
        return MoeLaunch(self, tensors, built)

    def launch(self, *, stream=None, **tensors):
        """Queues the layer, with tensors given as for bind(), on `stream`, as Kernel.launch() does."""
        self.engine._live()
        self.bind(**tensors)(stream)

    def workspace_bytes(self, tokens):
        """Bytes of workspace for any launch of at most `tokens` tokens."""
        self.engine._live()
        count, sizes = c_uint64(), structs.MoeTensors(tokens=tokens)
        self.engine._lib.moe_workspace_bytes(self._handle, byref(sizes), byref(count))
        return count.value


class MoeCombineKernel(MoeCombineCalls, _Handle):
    """Adds up the rows that experts made of each token, by weight.

    kernel(rows, positions, weights, ...) queues the work as a Kernel's call does; of problems without weights it is
    kernel(rows, positions, ...). It takes the arguments of bind(), and returns out, which is allocated if it is not given.
    """

    def __init__(self, engine, handle, problem, device):
        super().__init__(engine, handle, MoeCombineProblem(problem), device)

    def bind(self, *, rows, positions, weights=None, residual=None, out, num_rows=None, tokens=None, pdl=False):
        """A MoeCombineLaunch of these tensors: read and checked once, launched any number of times.

        Tensors are given as for Kernel.bind(): rows [num_rows, width], residual and out [tokens, width], rows contiguous and
        as far apart as strides say; positions i32 and weights f32 [tokens, top_k], contiguous. out may be residual, if
        dtypes and strides agree. num_rows and tokens are needed only beside addresses.
        """
        tensors, numbers = tensors_and_numbers(structs.MoeCombineTensors, locals())
        built = self._problem.arguments(tensors, numbers, self.device, self._own_memory)
        return MoeCombineLaunch(self, tensors, built)

    def launch(self, *, stream=None, **tensors):
        """Queues the sums, with tensors given as for bind(), on `stream`, as Kernel.launch() does."""
        self.engine._live()
        self.bind(**tensors)(stream)
