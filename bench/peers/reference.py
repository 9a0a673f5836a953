"""The reference on the GPU: fp32 attention in chunks of queries, with a bound on the error that bf16 arithmetic may
add.

A kernel rounds the probabilities and the output to bf16, each by at most 2^-8 of the value. So the error of an output
is at most 2^-8 sum_j p_j |v_j| for the probabilities, and 2^-8 |o| <= the same for the output. Errors of sums (fp32)
and of exponentials (2^-20) are far below; a third term of the same size leaves room for them. Products of fp8 round the
probabilities to e4m3, by a share of at most 2^-4 each. The sum that divides them is of rounded ones, and is off by the
weighted mean of these shares. So a probability counts for at most twice 2^-4 more or less than it should. An output of
e4m3 is rounded by 2^-4 more, and below 2^-6 to a multiple of 2^-9, which its scale multiplies. Probabilities below 2^-6
are rounded so, too. The largest of a row is 2^5 at least, so a small one is off by at most 2^-15 of the largest, or by all
of itself. Inputs with outliers have rows whose largest probability meets a value of 0, where only that term counts. The
fp32 here, without TF32, errs by 2^-23 a step, and needs no term.

An instruction adds 32 products of fp8 to a sum. The tensor cores cut each of these 33 addends at 2^-13 of the largest
one. So a score is off by as much for each instruction. A probability is off by its score's exponential, and the sum that
divides by as much. Only outliers make that a large share. Prompts of bf16 queries over fp8 keys are products of fp8 too,
in two terms of each query: the low terms are off by 1/8 more.
"""
import functools

import torch

BF16_ROUNDING = 2.0**-8
E4M3_ROUNDING = 2.0**-4  # of a probability where products are of fp8, and of an output of fp8
E4M3_LEAST_ROUNDING = 2.0**-10  # of an element below 2^-6
LEAST_PROBABILITY = E4M3_LEAST_ROUNDING / 2.0**5  # of the largest of its row
SCORE_BYTES = 512 << 20  # of one chunk of scores
CORE_DEPTH = 32  # products of fp8 that an instruction adds
CORE_ERROR = (CORE_DEPTH + 1) * 2.0**-13  # of its sum, relative to the largest addend
LOW_TERMS = 1 / 8  # of that error, where queries are two terms


def cut_by_cores(queries, keys):
    """How far products of fp8 may be off, over CORE_ERROR: queries [H, n, D] times keys [H, D, S], [H, n, S] fp32."""
    off = sums = 0
    for begin in range(0, queries.shape[-1], CORE_DEPTH):
        q, k = queries[..., begin:begin + CORE_DEPTH], keys[:, begin:begin + CORE_DEPTH]
        sums = torch.bmm(q, k) + sums
        largest = torch.bmm(q.abs().amax(-1, keepdim=True), k.abs().amax(1, keepdim=True))
        off = torch.maximum(sums.abs(), largest) + off
    return off


def attention(q, k, v, causal=False, window=-1, sinks=None, least=0.0, cut=0.0):
    """q [n, H, D], k [S, Hk, D] and v [S, Hk, E], with the last query at the last key. Returns o, sum p |v|, sum
    min(p, least) |v| and how far o moves where cores cut scores, all [n, H, E] fp32. `least` is a share of the row's largest
    p, `cut` the error of an instruction's sum. Where one of them is 0, so is its result, the third or the last one."""
    n, heads, dim = q.shape
    length, kv_heads, _ = k.shape
    group = heads // kv_heads
    keys, values = k.float().permute(1, 2, 0), v.float().permute(1, 0, 2)  # [Hk, D, S], [Hk, S, D]
    sizes = values.abs()
    v_dim = v.shape[-1]
    out, size, small, moved = (torch.empty(n, heads, v_dim, device=q.device) for _ in range(4))
    results = [(out, values), (size, sizes)] + ([(small, sizes)] if least else [])
    step = max(1, min(n, SCORE_BYTES // (heads * length * 4)))
    for begin in range(0, n, step):
        rows = min(step, n - begin)
        position = torch.arange(begin, begin + rows, device=q.device) + (length - n)
        last = length - n + begin + rows if causal or window >= 0 else length
        first = max(0, length - n + begin - window) if window >= 0 else 0
        part = q[begin:begin + rows].float().view(rows, kv_heads, group, dim).permute(1, 2, 0, 3)
        part = part.reshape(kv_heads, group * rows, dim)
        scores = torch.bmm(part, keys[:, :, first:last]) * dim**-0.5
        if causal or window >= 0:
            key = torch.arange(first, last, device=q.device)
            hidden = key[None, :] > position[:, None]
            if window >= 0:
                hidden |= key[None, :] < position[:, None] - window
            scores.view(kv_heads, group, rows, -1).masked_fill_(hidden, float("-inf"))
        top = scores.amax(-1, keepdim=True)
        if sinks is not None:
            sink = sinks.view(kv_heads, group, 1).expand(kv_heads, group, rows).reshape(kv_heads, group * rows, 1)
            top = torch.maximum(top, sink)
        scores.sub_(top).exp_()
        total = scores.sum(-1, keepdim=True)
        if sinks is not None:
            total = total + (sink - top).exp()
        def keep(target, found):
            target[begin:begin + rows] = found.view(kv_heads, group, rows, v_dim).permute(2, 0, 1, 3).reshape(rows, heads, v_dim)

        if cut:
            off = cut_by_cores(part, keys[:, :, first:last]) * (cut * dim**-0.5)
            weights = off.clamp_(max=80).expm1_().mul_(scores).div_(total)
            share = weights.sum(-1, keepdim=True)
            off = torch.bmm(weights, sizes[:, first:last]) + share * torch.bmm(scores, values[:, first:last]).div_(total).abs_()
            keep(moved, off / (1 - share).clamp_(min=0.1))
            del weights
        for target, operand in results:
            if target is small:
                scores.clamp_(max=least)
            keep(target, torch.bmm(scores, operand[:, first:last]) / total)
    none = torch.zeros(1, 1, 1, device=q.device)
    return out, size, small if least else none, moved if cut else none


def whole(case, least=0.0, cut=0.0):
    """attention() of all sequences of a case."""
    row = case.row
    parts = [attention(q, k, v, row.causal, row.window, case.sinks, least, cut) for q, k, v in case.sequences()]
    return tuple(torch.cat(part) for part in zip(*parts))


def relative_rmse(out, exact):
    squares = torch.zeros(2, dtype=torch.float64, device=exact.device)
    for begin in range(0, len(exact), 4096):  # tokens at a time: the differences are as large as the output
        some = exact[begin:begin + 4096]
        for i, part in enumerate((out[begin:begin + 4096].float() - some, some)):
            squares[i] += part.double().square_().sum()
    return (squares[0] / squares[1]).sqrt().item()


class Truth:
    """The reference of a case, and the error of an output against it."""

    def __init__(self, case):
        torch.backends.cuda.matmul.allow_tf32 = False
        self.case, row = case, case.row
        narrow, narrow_out = row.q_dtype == "e4m3", row.out_dtype == "e4m3"
        terms = row.set == "fp8-prefill" and row.q_dtype == "bf16" and row.kv_dtype == "e4m3"
        cut = CORE_ERROR * (1 + LOW_TERMS) if terms else CORE_ERROR if narrow else 0.0
        self.out, size, small, moved = whole(case, LEAST_PROBABILITY if narrow else 0.0, cut)
        rounding = 3 * BF16_ROUNDING + E4M3_ROUNDING * (2 * narrow + narrow_out)
        least = E4M3_LEAST_ROUNDING * case.out_scale.item() if narrow_out else 0
        self.bound = size.mul_(rounding).add_(1e-6 + least)
        if narrow:
            self.bound.add_(small, alpha=2)
        if cut:
            self.bound.add_(moved)

    @functools.cached_property
    def exact(self):
        """The attention of the tensors before quantisation."""
        return self.out if self.case.given is self.case else whole(self.case.given)[0]

    def rmse(self, out):
        """The root of the mean square of an output's error against `exact`, over that of `exact`."""
        return relative_rmse(out, self.exact)

    def error(self, out):
        """The largest error of an output over its bound; infinite if an output is not finite. Above 1 is wrong."""
        worst = 0.0
        for begin in range(0, len(self.out), 4096):  # tokens at a time: the differences are as large as the output
            some = slice(begin, begin + 4096)
            off = (out[some].float() - self.out[some]).abs_().div_(self.bound[some]).max().item()
            worst = max(worst, off if off == off else float("inf"))
        return worst


class ByParts:
    """A reference whose compared(out) gives (rows of an output, what they are, the bound) of each part."""

    def error(self, out):
        worst = 0.0
        for have, want, bound in self.compared(out):
            off = ((have - want).abs() / bound).max().item()
            worst = max(worst, off if off == off else float("inf"))
        return worst

    def rmse(self, out):
        pairs = [(have, want) for have, want, _ in self.compared(out)]
        return relative_rmse(torch.cat([have for have, _ in pairs]), torch.cat([want for _, want in pairs]))
