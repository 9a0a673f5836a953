#!/usr/bin/env python3
"""The rules of the extension are those of Python: on random calls, what it takes equals what Python's checks allow. Calls that launch
are in fast_test.py.

Needs no framework: tests/python/lent.py makes tensors with DLPack's C exchange table. Skipped where the extension is not built.
ctest sets PYTHONPATH and KERNELWRIGHT_LIBRARY.
"""
import ctypes
import math
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import kernelwright
from kernelwright import ConfigError
from kernelwright._handles import GemmKernel, Kernel, KvWriteKernel, MoeCombineKernel, MoeKernel, RouteKernel, RowOpKernel
from lent import EXTENSION, Lent
from no_kernels import NoKernels

FAST = kernelwright.fast_calls()["fast"]
HEAD = 64


class Draw:
    """Random tensors: first those that fit a problem, then with one thing changed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def tensor(self, shape, dtype="f16", padded=True):
        """Dense, or with gaps between rows, heads or batches."""
        strides, step, gap = [], 1, self.random.choice((0, 0, 1)) if padded else 0
        for place, extent in enumerate(reversed(shape)):
            strides.append(step)
            step *= extent
            if gap and place:
                step += self.random.choice((0, 8))
            elif gap:
                step += self.random.choice((0, 64))
        if padded and self.random.random() < 0.1 and len(shape) > 1:
            strides[-1] = 0
        return Lent(0x1000 * self.random.randint(1, 1000), shape, tuple(reversed(strides)), dtype)

    def changed(self, tensor):
        """The tensor with another shape, stride, dtype, rank or device; or an address, or something else."""
        shape, strides = list(tensor.shape), list(tensor.strides)
        place = self.random.randrange(len(shape))
        kind = self.random.randrange(9)
        if kind == 0:
            shape[place] = self.random.choice((0, 1, shape[place] + 1, 2 * shape[place]))
        elif kind == 1:
            strides[place] = self.random.choice((0, 1, 2, strides[place] + 8))
        elif kind == 2:
            return Lent(tensor.address, shape, strides, self.random.choice(("f16", "bf16", "f32", "i32", "u8", "bool", "e4m3", "i64")))
        elif kind == 3:
            return Lent(tensor.address, shape, strides, tensor.dtype, self.random.choice(((2, 0), (1, 0), (EXTENSION, 1))))
        elif kind == 4:
            return Lent(tensor.address, shape[1:], strides[1:], tensor.dtype)
        elif kind == 5:
            return Lent(tensor.address, [1, *shape], [1, *strides], tensor.dtype)
        elif kind == 6:
            return self.random.choice((tensor.address, 0, -1, 1 << 64, True))
        elif kind == 7:
            return self.random.choice((None, "text", 1.5))
        else:
            return Lent(0, shape, strides, tensor.dtype)
        return Lent(tensor.address, shape, strides, tensor.dtype)

    def attention(self):
        """A problem, its tensors, and numbers."""
        pick = self.random.choice
        heads, kv_heads = pick(((2, 1), (4, 4), (1, 1)))
        ragged, kind, rope = pick((False, True)), pick(("padded", "ragged", "paged")), pick((0, 0, 32))
        paged, lse = kind == "paged", pick((False, True))
        scales = pick(("none", "per_tensor", "per_head", "per_token") + ("per_page",) * paged)
        columns, e4m3 = paged and pick((False, True)), scales == "per_token" and pick((False, True))
        of, depth_v = "e4m3" if e4m3 else "f16", pick((HEAD, 32))
        problem = {"dtype": {"q": of, "kv": of, "out": pick(("f16", "f32"))}, "head_dim": {"qk": HEAD, "v": depth_v},
                   "heads": {"q": heads, "kv": kv_heads}, "lse": lse, "q_layout": "ragged" if ragged else "padded",
                   "kv_layout": {"kind": kind} | ({"page_size": 4} if paged else {}),
                   "scales": scales, "v_layout": "columns" if columns else "rows"}
        if rope:
            problem["rope"] = {"width": rope, "dtype": "f16"}
        if pick((0, 0, 1)):
            problem["mask"] = {"kind": "tensor", "tensor": {"batch": pick((False, True)), "heads": pick((False, True))}}
        if pick((0, 0, 1)):
            problem["score_mod"] = {"kind": "tensor", "dtype": "f32", "tensor": {"q": pick((False, True))}}
        batch, q_len, kv_len, pages = pick((1, 2, 3)), pick((1, 5)), pick((1, 8, 9)), 6
        q_rows = (7,) if ragged else (batch, q_len)
        kv_rows = {"padded": (batch, kv_len), "ragged": (11,), "paged": (pages, 4)}[kind]
        tensors = {"q": self.tensor((*q_rows, heads, HEAD - rope), of), "k": self.tensor((*kv_rows, kv_heads, HEAD - rope), of),
                   "v": self.tensor((pages, kv_heads, depth_v, 4) if columns else (*kv_rows, kv_heads, depth_v), of, not columns),
                   "o": self.tensor((*q_rows, heads, depth_v), problem["dtype"]["out"])}
        numbers = {}
        if rope:
            tensors |= {"q_rope": self.tensor((*q_rows, heads, rope)), "k_rope": self.tensor((*kv_rows, kv_heads, rope))}
        if ragged:
            tensors["q_offsets"], numbers["q_len"] = self.tensor((batch + 1,), "i32", False), q_len
        if kind == "ragged":
            tensors["kv_offsets"], numbers["kv_len"] = self.tensor((batch + 1,), "i32", False), kv_len
        if kind == "paged":
            tensors["page_table"] = self.tensor((batch, 3), "i32")
        small = {"kv_lengths": ((batch,), "i32"), "kv_starts": ((batch,), "i32"), "sinks": ((heads,), "f32"),
                 "alibi_slopes": ((heads,), "f32"), "workspace": ((512,), "u8"),
                 "lse": ((*q_rows, heads) if ragged else (batch, heads, q_len), "f32")}
        if e4m3:
            small["q_scale"] = (*q_rows, heads), "f32"
        tensors |= {name: self.tensor(shape, dtype, False) for name, (shape, dtype) in small.items() if pick((0, 1))}
        shape = {"per_head": (kv_heads,), "per_token": (*kv_rows, kv_heads), "per_page": (pages, kv_heads)}.get(scales, (1,))
        tensors |= {name: self.tensor(shape, "f32", len(shape) > 1) for name in ("k_scale", "v_scale") if pick((0, 1))}
        for name, own in (("mask", problem.get("mask")), ("bias", problem.get("score_mod"))):
            if own:
                extents = zip((batch, heads, q_len), ("batch", "heads", "q"))
                shape = [extent if own.get("tensor", {}).get(word, True) else 1 for extent, word in extents]
                tensors[name] = self.tensor((*shape, kv_len if kind != "paged" else 12), "u8" if name == "mask" else "f32")
        extra = {"scale": 0.25, "softcap": 30, "window": pick(((4, 0), [4, 0])), "sm_budget": 3, "pdl": True, "zero_padding": True,
                 "num_pages": pages, "batch": batch, "kv_tokens": 11}
        numbers |= {name: value for name, value in extra.items() if self.random.random() < 0.2}
        return Kernel, problem, tensors, numbers, "o"

    def gemm(self):
        pick = self.random.choice
        layout, scales = pick(("nt", "nn", "tn", "tt")), pick(("none", "per_tensor", "per_token", "per_block"))
        n, k, m = 256, 384, pick((1, 5))
        problem = {"n": n, "k": k, "dtype": {"a": "f16", "b": "f16", "c": "f16", "d": "f32"}, "layout": layout, "scales": scales}
        tensors = {"a": self.tensor((m, k) if layout[0] == "n" else (k, m)), "d": self.tensor((m, n), "f32"),
                   "b": self.tensor((n, k) if layout[1] == "t" else (k, n))}
        shapes = {"per_tensor": ((1,), (1,)), "per_token": ((m,), (n,)), "per_block": ((3, m), (2, 3))}.get(scales, ((1,), (1,)))
        small = {"c": ((m, n), "f16"), "bias": ((n,), "f16"), "workspace": ((64,), "f32"), "scale_a": (shapes[0], "f32"),
                 "scale_b": (shapes[1], "f32")}
        tensors |= {name: self.tensor(shape, dtype) for name, (shape, dtype) in small.items() if pick((0, 1))}
        extra = {"alpha": 2.0, "beta": 0, "sm_budget": 3, "pdl": True, "constant_b": True, "m": m}
        return GemmKernel, problem, tensors, {name: value for name, value in extra.items() if self.random.random() < 0.2}, "d"

    def batch(self):
        """A GEMM with a batch: groups lie behind each other or side by side, with gaps."""
        pick = self.random.choice
        layout, scales = pick(("nt", "nn")), pick(("none", "per_tensor", "per_token"))
        n, k, rows, count = 256, 384, pick((1, 5)), pick((1, 3))
        problem = {"n": n, "k": k, "dtype": {"a": "f16", "b": "f16", "c": "f16", "d": "f32"}, "layout": layout, "scales": scales,
                   "groups": {"kind": "batch", "count": count}}

        def matrices(height, width, dtype="f16"):
            if pick((0, 1)):
                return self.tensor((count, height, width), dtype)
            lent = self.tensor((height, count, width), dtype)
            strides = lent.strides[1], lent.strides[0], lent.strides[2]
            return Lent(lent.address, (count, height, width), strides, dtype)
        tensors = {"a": matrices(rows, k), "d": matrices(rows, n, "f32"), "b": matrices(*((n, k) if layout[1] == "t" else (k, n)))}
        shapes = ((count * rows,), (count, n)) if scales == "per_token" else ((1,), (count,))
        small = {"bias": ((count, n), "f16"), "workspace": ((64,), "f32"), "scale_a": (shapes[0], "f32"), "scale_b": (shapes[1], "f32")}
        tensors |= {name: self.tensor(shape, dtype, False) for name, (shape, dtype) in small.items() if pick((0, 1))}
        tensors |= {"c": matrices(rows, n)} if pick((0, 1)) else {}
        extra = {"alpha": 2.0, "beta": 0, "sm_budget": 3, "pdl": True, "constant_b": True, "m": count * rows}
        return GemmKernel, problem, tensors, {name: value for name, value in extra.items() if self.random.random() < 0.2}, "d"

    def row_op(self):
        pick = self.random.choice
        read, out, rows, width = pick(("plain", "add", "gate_up")), pick(("f16", "f32", "e4m3")), pick((1, 2, 5)), 256
        per = pick(("none", "per_tensor", "per_token", "per_block")) if out == "e4m3" else "none"
        layout = pick(("columns", "rows")) if per == "per_block" else "columns"
        problem = {"dtype": {"in": "f16", "out": out}, "width": width, "input": read, "norm": {"kind": pick(("none", "rms"))},
                   "scales": {"kind": per, "layout": layout}}
        tensors = {"x": self.tensor((rows, width * (2 if read == "gate_up" else 1))),
                   "out": self.tensor((rows, width), pick((out, "u8")) if out == "e4m3" else out)}
        if read == "add":
            tensors |= {"residual": self.tensor((rows, width)), "residual_out": self.tensor((rows, width))}
        if pick((0, 1)):
            tensors["weight"] = self.tensor((width,), "f16", False)
        shape = {"per_tensor": (1,), "per_token": (rows,), "per_block": (2, rows) if layout == "columns" else (rows, 2)}.get(per)
        if shape:
            tensors["scale"] = self.tensor(shape, "f32", False)
        extra = {"eps": 1e-3, "gate_alpha": 1, "gate_limit": 2.0, "tensor_scale": 2.0, "pdl": True, "constant_weight": True,
                 "rows": rows}
        return RowOpKernel, problem, tensors, {name: value for name, value in extra.items() if self.random.random() < 0.2}, ""

    def route(self):
        pick = self.random.choice
        experts, top_k, tokens, sort, local, bias = pick((8, 60)), pick((1, 4)), pick((1, 2, 5)), pick((True, True, False)), pick((0, 4)), pick((0, 1))
        problem = {"dtype": pick(("f32", "f16")), "experts": experts, "top_k": top_k, "sort": sort, "bias": bool(bias)}
        if sort:
            problem["local_experts"] = local
        tensors = {"logits": self.tensor((tokens, experts), problem["dtype"]), "ids": self.tensor((tokens, top_k), "i32", False),
                   "weights": self.tensor((tokens, top_k), "f32", False)}
        if bias:
            tensors["bias"] = self.tensor((experts,), "f32", False)
        if sort:
            tensors |= {"starts": self.tensor(((local or experts) + 1,), "i32", False), "positions": self.tensor((tokens, top_k), "i32", False),
                        "source_rows": self.tensor((tokens * top_k,), "i32", False)}
            if pick((0, 1)):
                tensors["sorted_weights"] = self.tensor((tokens * top_k,), "f32", False)
            if local:
                tensors["local_ids"] = self.tensor((experts,), "i32", False)
        if pick((0, 1)):
            tensors["workspace"] = self.tensor((64,), "f32")
        extra = {"factor": 2.0, "pdl": True, "tokens": tokens}
        return RouteKernel, problem, tensors, {name: value for name, value in extra.items() if self.random.random() < 0.2}, ""

    def moe_combine(self):
        pick = self.random.choice
        top_k, tokens, num_rows, width, weighted, residual = pick((1, 4)), pick((1, 2, 5)), pick((1, 7)), 64, pick((True, True, False)), pick((False, True))
        problem = {"dtype": {"in": "f16", "out": pick(("f16", "f32"))}, "width": width, "top_k": top_k, "weighted": weighted,
                   "residual": residual}
        tensors = {"rows": self.tensor((num_rows, width)), "positions": self.tensor((tokens, top_k), "i32", False),
                   "out": self.tensor((tokens, width), problem["dtype"]["out"])}
        if weighted:
            tensors["weights"] = self.tensor((tokens, top_k), "f32", False)
        if residual:
            tensors["residual"] = self.tensor((tokens, width))
        extra = {"pdl": True, "tokens": tokens, "num_rows": num_rows}
        return MoeCombineKernel, problem, tensors, {name: value for name, value in extra.items() if self.random.random() < 0.2}, ""

    def moe(self):
        pick = self.random.choice
        experts, top_k, tokens, hidden, wide, local = pick((8, 12)), pick((1, 4)), pick((1, 2, 5)), 128, pick((128, 256)), pick((0, 4))
        given, scales, residual, biased = pick((True, False)), pick(("none", "per_block")), pick((False, True)), pick((False, True))
        own, weights, route = local or experts, "e4m3" if scales == "per_block" else "f16", {"experts": experts, "top_k": top_k}
        route |= {"local_experts": local} if local else {}
        route |= {"score": "given"} if given else {"bias": biased, "dtype": pick(("f32", "f16"))}
        problem = {"dtype": "f16", "hidden": hidden, "intermediate": wide, "route": route, "scales": scales, "residual": residual,
                   "down_bias": biased} | ({"gates": "silu(gate + bias) * (up + bias)"} if biased else {})
        tensors = {"x": self.tensor((tokens, hidden)), "gate_up": self.tensor((own, 2 * wide, hidden), weights, False),
                   "down": self.tensor((own, hidden, wide), weights, False), "out": self.tensor((tokens, hidden))}
        if given:
            tensors |= {"ids": self.tensor((tokens, top_k), "i32", False), "weights": self.tensor((tokens, top_k), "f32", False)}
        else:
            tensors["logits"] = self.tensor((tokens, experts), route["dtype"])
        of_all = {"bias": "f32"} if biased and not given else {}
        for name, dtype in (of_all | ({"local_ids": "i32"} if local else {})).items():
            tensors[name] = self.tensor((experts,), dtype, False)
        if scales == "per_block":
            tensors |= {"gate_up_scale": self.tensor((own, 2 * wide // 128, 1), "f32", False),
                        "down_scale": self.tensor((own, 1, wide // 128), "f32", False)}
        if biased:
            tensors |= {"gate_up_bias": self.tensor((own, 2 * wide), padded=False), "down_bias": self.tensor((own, hidden), padded=False)}
        if residual:
            tensors["residual"] = self.tensor((tokens, hidden))
        if pick((0, 1)):
            tensors["workspace"] = self.tensor((64,), "f32")
        extra = {"factor": 2.0, "pdl": True, "tokens": tokens}
        return MoeKernel, problem, tensors, {name: value for name, value in extra.items() if self.random.random() < 0.2}, ""

    def kv_write(self):
        pick = self.random.choice
        heads, kind, entering, kv, tokens = pick(((2, 1), (4, 4), (1, 1))), pick(("padded", "ragged", "paged")), "f16", pick(("f16", "e4m3")), pick((1, 3))
        by_position, q_out = kind != "ragged" and pick((False, True)), pick((True, True, False))
        per = pick(("per_tensor", "per_head", "per_token")) if kv == "e4m3" else "none"
        v_out, ue8m0 = pick((True, True, False)), per == "per_token" and pick((False, True))
        norm, sections = pick(("none", "rms", "rms_all_heads")), pick(({}, {"first": 8, "second": 4, "third": 4}))
        problem = {"dtype": {"in": entering, "q": "f16", "kv": kv}, "head_dim": {"qk": HEAD, "v": pick((HEAD, 32))},
                   "heads": {"q": heads[0], "kv": heads[1]}, "index": "positions" if by_position else "slots", "q_out": q_out,
                   "kv_layout": {"kind": kind} | ({"page_size": 4} if kind == "paged" else {}), "qk_norm": {"kind": norm},
                   "rope": {"style": "neox", "width": 32, "sections": sections}, "v_out": v_out,
                   "scales": {"k": per, "v": per if v_out else "none", "ue8m0": ue8m0}}
        rows, more = {"padded": (3, 8), "ragged": (11,), "paged": (6, 4)}[kind], pick((0, 0, 2))
        tensors = {"k": self.tensor((tokens + more, heads[1], HEAD)), "v": self.tensor((tokens + more, heads[1], problem["head_dim"]["v"])),
                   "k_cache": self.tensor((*rows, heads[1], HEAD), kv), "cos_sin": self.tensor((32, 32), "f32", False),
                   "v_cache": self.tensor((*rows, heads[1], problem["head_dim"]["v"]), pick((kv, "u8")) if kv == "e4m3" else kv),
                   "positions": self.tensor((3, tokens) if sections else (tokens,), pick(("i32", "i64")), False)}
        if q_out:
            tensors |= {"q": self.tensor((tokens + more, heads[0], HEAD)), "q_out": self.tensor((tokens, heads[0], HEAD))}
        if by_position:
            tensors["batch_indices"] = self.tensor((tokens,), "i32", False)
        else:
            tensors["slot_mapping"] = self.tensor((tokens,), "i64", False)
        if by_position and kind == "paged":
            tensors["page_table"] = self.tensor((2, 5), "i32")
        if norm != "none":
            tensors |= {f"{of}_weight": self.tensor((HEAD * (count if norm == "rms_all_heads" else 1),), padded=False)
                        for of, count in zip("qk", heads)}
        if per != "none":
            shape = {"per_tensor": (1,), "per_head": (heads[1],), "per_token": (*rows, heads[1])}[per]
            tensors["k_scale"] = self.tensor(shape, "u8" if ue8m0 else "f32", per == "per_token")
            if v_out:
                tensors["v_scale"] = self.tensor(shape, "u8" if ue8m0 else "f32", per == "per_token")
        if not v_out:
            del tensors["v"], tensors["v_cache"]
        extra = {"eps": 1e-5, "pdl": True, "tokens": tokens, "cos_sin_rows": 32, "position_bytes": pick((4, 8)), "batch": 3}
        return KvWriteKernel, problem, tensors, {name: value for name, value in extra.items() if self.random.random() < 0.1}, None


@unittest.skipUnless(FAST, kernelwright.fast_calls()["why"])
class RulesAreThoseOfPython(unittest.TestCase):
    def structs(self, kernel, tensors, numbers, result):
        """The struct of the fast path, or None, and that of bind(), or its error."""
        try:
            slow = bytes(kernel.bind(**tensors, **numbers)._arguments)
        except (ConfigError, TypeError, AttributeError) as error:
            slow = error
        given = {"out" if name == result else name: value for name, value in tensors.items()}
        return kernel._build(**given, **numbers), slow

    def compare(self, draw, problems, changes):
        engine, taken, refused = NoKernels(), 0, 0
        for _ in range(problems):
            kind, problem, tensors, numbers, result = draw()
            kernel = kind(engine, ctypes.c_void_p(), problem, 0)
            fast, slow = self.structs(kernel, tensors, numbers, result)
            self.assertEqual(fast is None, isinstance(slow, Exception), (problem, numbers, slow))
            for _ in range(changes):
                name = self.draw.random.choice(list(tensors))
                changed = tensors | {name: self.draw.changed(tensors[name])}
                if self.draw.random.random() < 0.2:
                    number = self.draw.random.choice(kernel.names[4:-1])
                    numbers = numbers | {number: self.draw.random.choice((0, 1, 2, -1, 1 << 31, 1 << 63, 2.5, None, math.nan))} \
                        if number not in tensors else numbers
                fast, slow = self.structs(kernel, changed, numbers, result)
                refused += isinstance(slow, Exception)
                if fast is not None:
                    taken += 1
                    self.assertEqual(fast, slow, (problem, {name: vars(t) if isinstance(t, Lent) else t for name, t in changed.items()}, numbers))
        return taken, refused

    def setUp(self):
        self.draw = Draw(7)

    def test_attention(self):
        taken, refused = self.compare(self.draw.attention, 300, 12)
        self.assertGreater(taken, 300)
        self.assertGreater(refused, 1000)

    def test_kv_write(self):
        taken, refused = self.compare(self.draw.kv_write, 500, 12)
        self.assertGreater(taken, 300)
        self.assertGreater(refused, 1000)

    def test_row_op(self):
        taken, refused = self.compare(self.draw.row_op, 300, 12)
        self.assertGreater(taken, 300)
        self.assertGreater(refused, 1000)

    def test_route(self):
        taken, refused = self.compare(self.draw.route, 300, 12)
        self.assertGreater(taken, 300)
        self.assertGreater(refused, 1000)

    def test_moe(self):
        taken, refused = self.compare(self.draw.moe, 500, 12)
        self.assertGreater(taken, 300)
        self.assertGreater(refused, 1000)

    def test_moe_combine(self):
        taken, refused = self.compare(self.draw.moe_combine, 600, 12)
        self.assertGreater(taken, 300)
        self.assertGreater(refused, 1000)

    def test_gemm(self):
        taken, refused = self.compare(self.draw.gemm, 300, 12)
        self.assertGreater(taken, 300)
        self.assertGreater(refused, 1000)

    def test_batch(self):
        taken, refused = self.compare(self.draw.batch, 300, 12)
        self.assertGreater(taken, 300)
        self.assertGreater(refused, 1000)


if __name__ == "__main__":
    unittest.main(verbosity=2)
