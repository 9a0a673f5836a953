#!/usr/bin/env python3
"""One decoder layer with latent attention in torch, with the sizes of DeepSeek-V3, against fp64.

Run by hand like torch_test.py; it needs a GPU. All projections, norms, cache writes, products of each head and attention
are kernels of this library. A prompt takes the unabsorbed form: latents are expanded to keys and values of all heads. Its
last token then takes the absorbed form over the cache, with keys of 16 bits, and with records of 656 bytes.

The bound: a value passes ROUNDINGS roundings to bf16 on its way through the layer, each by at most 2^-9 of the value. They
are independent, so their squares add up. Both forms keep it, and differ by at most two such errors.
"""
import math
import unittest

import torch

import kernelwright

HAS_GPU = torch.cuda.is_available()
HIDDEN, HEADS, Q_RANK, LATENTS, NOPE, ROPE, V, INNER = 7168, 128, 1536, 512, 128, 64, 128, 18432
PAGE, EPS, LENGTHS = 64, 1e-6, (300, 64, 1, 517)
SCALE = (NOPE + ROPE) ** -0.5
# norm, a, norm of a, b, rotation or absorbed q, probabilities, latents of the result, values, o, sum, norm, gates, down, sum
ROUNDINGS = 14
BOUND = 2.0**-9 * math.sqrt(ROUNDINGS)


def off(found, right):
    return ((found.double() - right.double()).norm() / right.double().norm()).item()


def weight(*shape):
    return (torch.randn(shape, device="cuda") / math.sqrt(shape[-1])).to(torch.bfloat16)


def norm64(x, weights):
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weights


def turn64(x, positions):
    """Element 2 i turns with element 2 i + 1. x [tokens, ..., ROPE]."""
    angles = positions.double()[:, None] * 10000.0 ** (-torch.arange(0, ROPE, 2, device=x.device).double() / ROPE)
    angles = angles.view(len(positions), *[1] * (x.dim() - 2), ROPE // 2)
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()), -1).flatten(-2)


class Layer:
    """The weights, in bf16, and the kernels."""

    def __init__(self, engine):
        prepare = lambda kind, **problem: engine.prepare({"kind": kind, "problem": problem}, background=True)  # noqa: E731
        gemm = lambda n, k, **more: prepare("gemm", n=n, k=k, **more)  # noqa: E731
        cache = {"kind": "paged", "page_size": PAGE}
        self.w = {"norm": 1 + weight(HIDDEN), "q_norm": 1 + weight(Q_RANK), "kv_norm": 1 + weight(LATENTS),
                  "mlp_norm": 1 + weight(HIDDEN),
                  "qkv_a": weight(Q_RANK + LATENTS + ROPE, HIDDEN), "q_b": weight(HEADS * (NOPE + ROPE), Q_RANK),
                  "kv_b": weight(HEADS * (NOPE + V), LATENTS), "o": weight(HIDDEN, HEADS * V),
                  "gate_up": weight(2 * INNER, HIDDEN), "down": weight(HIDDEN, INNER)}
        # b of a GEMM with gates: 8 gates, their 8 ups, and so on.
        self.interleaved = self.w["gate_up"].view(2, INNER // 8, 8, HIDDEN).transpose(0, 1).reshape(2 * INNER, HIDDEN)
        norm = {"norm": {"kind": "rms", "eps": EPS}}
        self.norm = prepare("row_op", width=HIDDEN, **norm)
        self.add_norm = prepare("row_op", width=HIDDEN, input="add", **norm)
        self.q_norm = prepare("row_op", width=Q_RANK, **norm)
        self.qkv_a, self.q_b = gemm(Q_RANK + LATENTS + ROPE, HIDDEN), gemm(HEADS * (NOPE + ROPE), Q_RANK)
        self.kv_b, self.o = gemm(HEADS * (NOPE + V), LATENTS), gemm(HIDDEN, HEADS * V)
        self.gate_up, self.down = gemm(2 * INNER, HIDDEN, epilogue="silu(gate) * up"), gemm(HIDDEN, INNER)
        heads = {"kind": "batch", "count": HEADS}
        self.uk, self.uv = gemm(LATENTS, NOPE, layout="nn", groups=heads), gemm(V, LATENTS, groups=heads)
        latents = {"head_dim": {"qk": 128, "v": 128}, "heads": {"q": 4, "kv": 4}, "kv_layout": cache,
                   "qk_norm": {"kind": "rms_all_heads", "eps": EPS}, "q_out": False, "v_out": False}
        self.write = prepare("kv_write", **latents)
        self.write_codes = prepare("kv_write", **latents, dtype={"kv": "e4m3"}, scales={"k": "per_token"})
        self.write_rope = prepare("kv_write", head_dim={"qk": ROPE, "v": ROPE}, heads={"q": HEADS, "kv": 1}, kv_layout=cache,
                                  rope={"style": "gptj", "width": ROPE}, v_out=False)
        ragged = {"q_layout": "ragged", "kv_layout": {"kind": "ragged"}}
        self.prefill = prepare("attention", head_dim={"qk": NOPE + ROPE, "v": V}, heads={"q": HEADS, "kv": HEADS}, **ragged,
                               mask={"kind": "causal"}, rope={"width": ROPE})
        latent = {"head_dim": {"qk": LATENTS + ROPE, "v": LATENTS}, "heads": {"q": HEADS, "kv": 1}, "kv_layout": cache,
                  "v_layout": "key_prefix", "mask": {"kind": "causal"}, "max_q_len": 1}
        self.decode = prepare("attention", **latent)
        self.decode_records = prepare("attention", **latent, dtype={"kv": "e4m3"}, scales="per_block")
        for kernel in [each for each in vars(self).values() if hasattr(each, "wait")]:
            kernel.wait()
        self.table = torch.tensor(kernelwright.rope_table(ROPE, 1024).tolist(), device="cuda")

    def queries(self, x, positions, slots, cache, records):
        """q [tokens, HEADS, NOPE + ROPE], its last part rotated; the keys of the tokens go to both caches."""
        made = self.qkv_a(self.norm(x, weight=self.w["norm"]), self.w["qkv_a"])
        q_a, latents, rope = made.split((Q_RANK, LATENTS, ROPE), -1)
        q = self.q_b(self.q_norm(q_a, weight=self.w["q_norm"]), self.w["q_b"]).view(-1, HEADS, NOPE + ROPE)
        turning = q[..., NOPE:]
        for write, keys, scales, rotated in (
                (self.write, cache[..., :LATENTS].view(-1, PAGE, 4, 128), {}, cache[..., LATENTS:].unsqueeze(2)),
                (self.write_codes, records[..., :LATENTS].view(torch.float8_e4m3fn).unflatten(-1, (4, 128)),
                 {"k_scale": records[..., LATENTS:LATENTS + 16].view(torch.float32)},
                 records[..., LATENTS + 16:].view(torch.bfloat16).unsqueeze(2))):
            write.bind(k=latents.view(-1, 4, 128), k_cache=keys, k_weight=self.w["kv_norm"], slot_mapping=slots,
                       **scales)(torch.cuda.current_stream())
            turned = turning if write is self.write_codes else torch.empty_like(turning)
            self.write_rope.bind(q=turning, q_out=turned, k=rope.view(-1, 1, ROPE), k_cache=rotated, cos_sin=self.table,
                                 positions=positions, slot_mapping=slots)(torch.cuda.current_stream())
        return q

    def rest(self, x, values):
        """What follows attention: [tokens, HEADS, V]."""
        normed, x = self.add_norm(self.o(values.flatten(1), self.w["o"]), x, weight=self.w["mlp_norm"])
        return x + self.down(self.gate_up(normed, self.interleaved), self.w["down"])

    def unabsorbed(self, x, q, keys, starts):
        """keys: the rows of the cache, [tokens, LATENTS + ROPE]."""
        kv = self.kv_b(keys[:, :LATENTS], self.w["kv_b"]).view(-1, HEADS, NOPE + V)
        rope = keys[:, None, LATENTS:].expand(-1, HEADS, -1)
        values = self.prefill(q[..., :NOPE], kv[..., :NOPE], kv[..., NOPE:], q_rope=q[..., NOPE:], k_rope=rope,
                              q_offsets=starts, kv_offsets=starts, q_len=max(LENGTHS), kv_len=max(LENGTHS), scale=SCALE)
        return self.rest(x, values)

    def absorbed(self, x, q, decode, keys, pages, lengths):
        kv_b = self.w["kv_b"].view(HEADS, NOPE + V, LATENTS)
        both = torch.empty(len(x), HEADS, LATENTS + ROPE, dtype=torch.bfloat16, device="cuda")
        self.uk(q[..., :NOPE].transpose(0, 1), kv_b[:, :NOPE], out=both[..., :LATENTS].transpose(0, 1))
        both[..., LATENTS:] = q[..., NOPE:]
        out = decode(both[:, None], keys, page_table=pages, kv_lengths=lengths, scale=SCALE)[:, 0]
        values = torch.empty(len(x), HEADS, V, dtype=torch.bfloat16, device="cuda")
        self.uv(out.transpose(0, 1), kv_b[:, NOPE:], out=values.transpose(0, 1))
        return self.rest(x, values)

    def exact(self, x, positions, starts, keys=None):
        """In fp64. keys: what the cache has instead of the keys of x, [tokens, LATENTS + ROPE]."""
        w = {name: value.double() for name, value in self.w.items()}
        made = norm64(x.double(), w["norm"]) @ w["qkv_a"].t()
        q_a, latents, rope = made.split((Q_RANK, LATENTS, ROPE), -1)
        q = (norm64(q_a, w["q_norm"]) @ w["q_b"].t()).view(-1, HEADS, NOPE + ROPE)
        q = torch.cat((q[..., :NOPE], turn64(q[..., NOPE:], positions)), -1)
        latents, rope = norm64(latents, w["kv_norm"]), turn64(rope, positions)
        if keys is not None:
            latents, rope = keys.double().split((LATENTS, ROPE), -1)
        kv = (latents @ w["kv_b"].t()).view(-1, HEADS, NOPE + V)
        k = torch.cat((kv[..., :NOPE], rope[:, None].expand(-1, HEADS, -1)), -1)
        values = []
        for begin, end in zip(starts[:-1], starts[1:]):
            scores = torch.einsum("qhd,khd->hqk", q[begin:end], k[begin:end]) * SCALE
            hidden = torch.ones(end - begin, end - begin, device=x.device).triu(1).bool()
            weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
            values.append(torch.einsum("hqk,khd->qhd", weights, kv[begin:end, :, NOPE:]))
        x = x.double() + torch.cat(values).flatten(1) @ w["o"].t()
        gate, up = (norm64(x, w["mlp_norm"]) @ w["gate_up"].t()).chunk(2, -1)
        return x + (torch.nn.functional.silu(gate) * up) @ w["down"].t()


@unittest.skipUnless(HAS_GPU, "no GPU")
class LatentLayer(unittest.TestCase):
    def test_both_forms_match_fp64_and_each_other(self):
        torch.manual_seed(3)
        torch.set_grad_enabled(False)
        self.addCleanup(torch.set_grad_enabled, True)
        layer = Layer(kernelwright.Engine("cuda"))
        counts = [-(-length // PAGE) for length in LENGTHS]
        order = torch.randperm(sum(counts))  # pages of the pool, in no order
        pages = torch.zeros(len(LENGTHS), max(counts), dtype=torch.int32)
        for row, drawn in zip(pages, order.split(counts)):
            row[:len(drawn)] = drawn
        ends = torch.tensor(LENGTHS).cumsum(0)
        starts = [0, *ends.tolist()]
        positions = torch.cat([torch.arange(length) for length in LENGTHS]).cuda()
        slots = torch.cat([pages[i, torch.arange(length) // PAGE].long() * PAGE + torch.arange(length) % PAGE
                           for i, length in enumerate(LENGTHS)]).cuda()
        pages, lengths, last = pages.cuda(), torch.tensor(LENGTHS, dtype=torch.int32).cuda(), (ends - 1).cuda()
        x = torch.randn(sum(LENGTHS), HIDDEN).to(torch.bfloat16).cuda()
        cache = torch.full((sum(counts), PAGE, LATENTS + ROPE), math.nan, dtype=torch.bfloat16, device="cuda")
        records = torch.full((sum(counts), PAGE, 656), 255, dtype=torch.uint8, device="cuda")

        q = layer.queries(x, positions, slots, cache, records)
        rows = cache.view(-1, LATENTS + ROPE)[slots]
        offsets = torch.tensor(starts, dtype=torch.int32).cuda()
        prompt = layer.unabsorbed(x, q, rows, offsets)
        right = layer.exact(x, positions, starts)
        self.assertLess(off(prompt, right), BOUND)

        decoded = layer.absorbed(x[last], q[last], layer.decode, cache.unsqueeze(2), pages, lengths)
        self.assertLess(off(decoded, right[last]), BOUND)
        self.assertLess(off(decoded, prompt[last]), math.sqrt(2) * BOUND)

        # Records lose more than bf16 does, so fp64 gets what they say.
        bytes_of = records.view(-1, 656)[slots]
        codes, scales = bytes_of[:, :LATENTS].view(torch.float8_e4m3fn), bytes_of[:, LATENTS:LATENTS + 16].view(torch.float32)
        latents = codes.double().unflatten(-1, (4, 128)) * scales.double()[..., None]
        said = torch.cat((latents.flatten(1), bytes_of[:, LATENTS + 16:].view(torch.bfloat16).double()), -1)
        self.assertLess(off(said, rows), 2.0**-4)  # e4m3 has 4 bits
        short = layer.absorbed(x[last], q[last], layer.decode_records, records.unsqueeze(2), pages, lengths)
        of_said = layer.exact(x, positions, starts, said)[last]
        self.assertLess(off(short, of_said), BOUND)
        print(f"off by {off(prompt, right):.2e} unabsorbed, {off(decoded, right[last]):.2e} absorbed, {off(short, of_said):.2e} "
              f"over records; apart by {off(decoded, prompt[last]):.2e}; bound {BOUND:.2e}")


if __name__ == "__main__":
    unittest.main()
