"""Attention in fp64, for tests behind the classes of servers."""
import math

import torch


def reference(q, k, v, scale, window=-1, softcap=0.0, sinks=None, slopes=None):
    """q [queries, heads, head_dim] are the last of the sequence's tokens, k and v [keys, kv_heads, head_dim]. window: keys left of
    its own that a query sees; -1: all. slopes: of ALiBi."""
    n, m = len(q), len(k)
    q, k, v = (tensor.double().cpu() for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    at, keys = torch.arange(m - n, m)[:, None], torch.arange(m)
    if slopes is not None:
        scores = scores + torch.tensor(slopes, dtype=torch.float64)[:, None, None] * (keys - at)
    seen = keys <= at
    if window >= 0:
        seen = seen & (keys >= at - window)
    scores = scores.masked_fill(~seen, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double().cpu()[:, None, None].expand(-1, n, 1)], -1)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :m], v)
