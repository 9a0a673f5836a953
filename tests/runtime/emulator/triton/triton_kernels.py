"""Kernels in Triton's language with the traits of its tutorials: masks, reductions, pipelined tensor cores, tensor
descriptors, counters as random numbers, locks, online softmax, lists of problems on the device, scaled blocks."""
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def add_vectors(left, right, total, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(total + at, tl.load(left + at, mask=inside) + tl.load(right + at, mask=inside), mask=inside)


@triton.jit
def add_dependent(left, right, total, count, BLOCK: tl.constexpr):
    """The sum of a launch that may start before the one ahead of it has ended."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    gdc_wait()
    a = tl.load(left + at, mask=inside)
    b = tl.load(right + at, mask=inside)
    gdc_launch_dependents()
    tl.store(total + at, a + b, mask=inside)


@triton.jit
def arc_sine(values, results, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(results + at, libdevice.asin(tl.load(values + at, mask=inside)), mask=inside)


@triton.jit
def softmax_rows(scores, weights, rows, columns, stride, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Programs walk the rows; a row is one block."""
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        score = tl.load(scores + row * stride + at, mask=at < columns, other=float("-inf"))
        weight = tl.exp(score - tl.max(score, 0))
        tl.store(weights + row * stride + at, weight / tl.sum(weight, 0), mask=at < columns)


@triton.jit
def drop_and_scale(values, kept, count, rate, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(values + at, mask=inside)
    chosen = tl.rand(seed, at) > rate
    tl.store(kept + at, tl.where(chosen, value / (1 - rate), 0.0), mask=inside)


@triton.jit
def tile_of(number, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Tiles go down GROUP rows before they go right, so that neighbours share operands in the L2."""
    per_group = GROUP * tiles_n
    first = number // per_group * GROUP
    height = min(tiles_m - first, GROUP)
    within = number % per_group
    return first + within % height, within // height


@triton.jit
def matmul(a, b, c, m, n, k, stride_a, stride_b, stride_c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
           GROUP: tl.constexpr, STAGES: tl.constexpr):
    row, column = tile_of(tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN), GROUP)
    at_m = row * BM + tl.arange(0, BM)
    at_n = column * BN + tl.arange(0, BN)
    at_k = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), tl.float32)
    for k0 in tl.range(0, k, BK, num_stages=STAGES):
        left = tl.load(a + at_m[:, None] * stride_a + (k0 + at_k)[None, :],
                       mask=(at_m < m)[:, None] & (k0 + at_k < k)[None, :], other=0.0)
        right = tl.load(b + (k0 + at_k)[:, None] * stride_b + at_n[None, :],
                        mask=(k0 + at_k < k)[:, None] & (at_n < n)[None, :], other=0.0)
        sums = tl.dot(left, right, sums)
    inside = (at_m < m)[:, None] & (at_n < n)[None, :]
    tl.store(c + at_m[:, None] * stride_c + at_n[None, :], sums.to(tl.float16), mask=inside)


@triton.jit
def matmul_split(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr):
    """Programs share a tile's k, and add their parts with atomics."""
    at_m = tl.program_id(0) * BM + tl.arange(0, BM)
    at_n = tl.program_id(1) * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), tl.float32)
    for k0 in tl.range(tl.program_id(2) * BK, k, SPLIT * BK, num_stages=3):
        at_k = k0 + tl.arange(0, BK)
        left = tl.load(a + at_m[:, None] * k + at_k[None, :], mask=(at_m < m)[:, None], other=0.0)
        right = tl.load(b + at_n[None, :] * k + at_k[:, None], mask=(at_n < n)[None, :], other=0.0)
        sums = tl.dot(left, right, sums)
    inside = (at_m < m)[:, None] & (at_n < n)[None, :]
    tl.atomic_add(c + at_m[:, None] * n + at_n[None, :], sums, mask=inside)


@triton.jit
def matmul_tensors(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
                   STAGES: tl.constexpr, SPECIALIZE: tl.constexpr):
    """Persistent: programs walk the tiles. The host makes the tensor maps. b is transposed."""
    tiles_m = tl.cdiv(m, BM)
    tiles_n = tl.cdiv(n, BN)
    for number in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=not SPECIALIZE,
                           warp_specialize=SPECIALIZE):
        row, column = tile_of(number, tiles_m, tiles_n, GROUP)
        sums = tl.zeros((BM, BN), tl.float32)
        for k0 in tl.range(0, k, BK, num_stages=STAGES):
            sums = tl.dot(a.load([row * BM, k0]), b.load([column * BN, k0]).T, sums)
        c.store([row * BM, column * BN], sums.to(tl.float16))


@triton.jit
def normalize(x, weight, bias, y, means, deviations, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(value, 0) / columns
    centred = tl.where(inside, value - mean, 0.0)
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 0) / columns + epsilon)
    tl.store(means + row, mean)
    tl.store(deviations + row, inverse)
    scaled = centred * inverse * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
    tl.store(y + row * columns + at, scaled, mask=inside)


@triton.jit
def normalize_backward(dx, dy, part_weight, part_bias, x, weight, means, deviations, locks, columns,
                       GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """The gradient of a row, and its share of the gradients of weight and bias. Rows of a group add into one buffer,
    which a lock protects; the first of them stores instead."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    slope = tl.load(dy + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    inverse = tl.load(deviations + row)
    normal = tl.where(inside, (value - tl.load(means + row)) * inverse, 0.0)
    weighted = tl.where(inside, slope * tl.load(weight + at, mask=inside), 0.0)
    along = tl.sum(normal * weighted, 0) / columns
    average = tl.sum(weighted, 0) / columns
    tl.store(dx + row * columns + at, (weighted - normal * along - average) * inverse, mask=inside)
    group = row % GROUPS
    to_weight = part_weight + group * columns + at
    to_bias = part_bias + group * columns + at
    share_weight = slope * normal
    share_bias = slope
    while tl.atomic_cas(locks + group, 0, 1) == 1:
        pass
    if tl.load(locks + GROUPS + group) == 0:
        tl.atomic_xchg(locks + GROUPS + group, 1)
    else:
        share_weight += tl.load(to_weight, mask=inside)
        share_bias += tl.load(to_bias, mask=inside)
    tl.store(to_weight, share_weight, mask=inside)
    tl.store(to_bias, share_bias, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(locks + group, 0)


@triton.jit
def sum_groups(parts, total, groups, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((ROWS, BLOCK), tl.float32)
    for row0 in range(0, groups, ROWS):
        row = row0 + tl.arange(0, ROWS)
        inside = (row < groups)[:, None] & (at < columns)[None, :]
        sums += tl.load(parts + row[:, None] * columns + at[None, :], mask=inside, other=0.0)
    tl.store(total + at, tl.sum(sums, 0), mask=at < columns)


@triton.jit
def attend(q, k, v, o, lse, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
           STAGES: tl.constexpr):
    """Causal attention of one block of queries of one head, with an online softmax in base 2."""
    head = tl.program_id(1) * length * D
    at_m = tl.program_id(0) * BM + tl.arange(0, BM)
    at_d = tl.arange(0, D)
    queries = tl.load(q + head + at_m[:, None] * D + at_d[None, :], mask=(at_m < length)[:, None], other=0.0)
    largest = tl.full((BM,), float("-inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, D), tl.float32)
    for first in tl.range(0, min((tl.program_id(0) + 1) * BM, length), BN, num_stages=STAGES):
        at_n = first + tl.arange(0, BN)
        inside = (at_n < length)[:, None]
        keys = tl.load(k + head + at_n[:, None] * D + at_d[None, :], mask=inside, other=0.0)
        scores = tl.dot(queries, keys.T) * (scale * 1.4426950408889634)
        scores = tl.where((at_m[:, None] >= at_n[None, :]) & (at_n < length)[None, :], scores, float("-inf"))
        top = tl.maximum(largest, tl.max(scores, 1))
        powers = tl.exp2(scores - top[:, None])
        fade = tl.exp2(largest - top)
        weight = weight * fade + tl.sum(powers, 1)
        values = tl.load(v + head + at_n[:, None] * D + at_d[None, :], mask=inside, other=0.0)
        sums = tl.dot(powers.to(tl.float16), values, sums * fade[:, None])
        largest = top
    inside = at_m < length
    tl.store(o + head + at_m[:, None] * D + at_d[None, :], (sums / weight[:, None]).to(tl.float16),
             mask=inside[:, None])
    tl.store(lse + tl.program_id(1) * length + at_m, largest + tl.log2(weight), mask=inside)


@triton.jit
def attend_tensors(q, k, v, o, lse, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr,
                   STAGES: tl.constexpr, SPECIALIZE: tl.constexpr):
    """The same with tensor descriptors; the length is a multiple of the blocks. Heads follow each other in rows."""
    head = tl.program_id(1) * length
    first_m = tl.program_id(0) * BM
    at_m = first_m + tl.arange(0, BM)
    queries = q.load([head + first_m, 0])
    largest = tl.full((BM,), float("-inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, D), tl.float32)
    for first in tl.range(0, first_m + BM, BN, num_stages=STAGES, warp_specialize=SPECIALIZE):
        at_n = first + tl.arange(0, BN)
        scores = tl.dot(queries, k.load([head + first, 0]).T) * (scale * 1.4426950408889634)
        scores = tl.where(at_m[:, None] >= at_n[None, :], scores, float("-inf"))
        top = tl.maximum(largest, tl.max(scores, 1))
        powers = tl.exp2(scores - top[:, None])
        fade = tl.exp2(largest - top)
        weight = weight * fade + tl.sum(powers, 1)
        sums = tl.dot(powers.to(tl.float16), v.load([head + first, 0]), sums * fade[:, None])
        largest = top
    o.store([head + first_m, 0], (sums / weight[:, None]).to(tl.float16))
    tl.store(lse + head + at_m, largest + tl.log2(weight))


@triton.jit
def attend_backward(q, k, v, do, lse, delta, dq, dk, dv, length, scale, BM: tl.constexpr, BN: tl.constexpr,
                    D: tl.constexpr, STAGES: tl.constexpr):
    """The gradients of one block of keys and values; those of the queries are added with atomics. The length is a
    multiple of the blocks."""
    head = tl.program_id(1) * length
    at_n = tl.program_id(0) * BN + tl.arange(0, BN)
    at_d = tl.arange(0, D)
    of_keys = (head + at_n)[:, None] * D + at_d[None, :]
    keys = tl.load(k + of_keys)
    values = tl.load(v + of_keys)
    sum_dk = tl.zeros((BN, D), tl.float32)
    sum_dv = tl.zeros((BN, D), tl.float32)
    for first in tl.range(tl.program_id(0) * BN // BM * BM, length, BM, num_stages=STAGES):
        at_m = first + tl.arange(0, BM)
        of_queries = (head + at_m)[:, None] * D + at_d[None, :]
        queries = tl.load(q + of_queries)
        scores = tl.dot(keys, queries.T) * (scale * 1.4426950408889634)
        powers = tl.exp2(scores - tl.load(lse + head + at_m)[None, :])
        powers = tl.where(at_m[None, :] >= at_n[:, None], powers, 0.0)
        slope = tl.load(do + of_queries)
        sum_dv = tl.dot(powers.to(tl.float16), slope, sum_dv)
        change = tl.dot(values, slope.T) - tl.load(delta + head + at_m)[None, :]
        change = (powers * change).to(tl.float16)
        sum_dk = tl.dot(change, queries, sum_dk)
        tl.atomic_add(dq + of_queries, tl.dot(change.T, keys) * scale)
    tl.store(dk + of_keys, (sum_dk * scale).to(tl.float16))
    tl.store(dv + of_keys, sum_dv.to(tl.float16))


@triton.jit
def grouped_matmul(lefts, rights, results, sizes, groups, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Programs walk the tiles of all problems of a list: pointers, and (m, n, k) of each."""
    tile = tl.program_id(0)
    done = 0
    for group in range(groups):
        m = tl.load(sizes + group * 3)
        n = tl.load(sizes + group * 3 + 1)
        k = tl.load(sizes + group * 3 + 2)
        tiles_n = tl.cdiv(n, BN)
        tiles = tl.cdiv(m, BM) * tiles_n
        a = tl.load(lefts + group).to(tl.pointer_type(tl.float16))
        b = tl.load(rights + group).to(tl.pointer_type(tl.float16))
        c = tl.load(results + group).to(tl.pointer_type(tl.float16))
        while tile < done + tiles:
            at_m = (tile - done) // tiles_n * BM + tl.arange(0, BM)
            at_n = (tile - done) % tiles_n * BN + tl.arange(0, BN)
            sums = tl.zeros((BM, BN), tl.float32)
            for k0 in tl.range(0, k, BK, num_stages=3):
                at_k = k0 + tl.arange(0, BK)
                left = tl.load(a + at_m[:, None] * k + at_k[None, :], mask=(at_m < m)[:, None], other=0.0)
                right = tl.load(b + at_k[:, None] * n + at_n[None, :], mask=(at_n < n)[None, :], other=0.0)
                sums = tl.dot(left, right, sums)
            inside = (at_m < m)[:, None] & (at_n < n)[None, :]
            tl.store(c + at_m[:, None] * n + at_n[None, :], sums.to(tl.float16), mask=inside)
            tile += tl.num_programs(0)
        done += tiles


@triton.jit
def grouped_matmul_tensors(lefts, rights, results, sizes, groups, BM: tl.constexpr, BN: tl.constexpr,
                           BK: tl.constexpr):
    """The same, with tensor descriptors that the device makes for each problem. The right operands are transposed."""
    tile = tl.program_id(0)
    done = 0
    for group in range(groups):
        m = tl.load(sizes + group * 3)
        n = tl.load(sizes + group * 3 + 1)
        k = tl.load(sizes + group * 3 + 2)
        tiles_n = tl.cdiv(n, BN)
        tiles = tl.cdiv(m, BM) * tiles_n
        if tile < done + tiles:
            a = tl.make_tensor_descriptor(tl.load(lefts + group).to(tl.pointer_type(tl.float16)), [m, k], [k, 1],
                                          [BM, BK])
            b = tl.make_tensor_descriptor(tl.load(rights + group).to(tl.pointer_type(tl.float16)), [n, k], [k, 1],
                                          [BN, BK])
            c = tl.make_tensor_descriptor(tl.load(results + group).to(tl.pointer_type(tl.float16)), [m, n], [n, 1],
                                          [BM, BN])
            while tile < done + tiles:
                row = (tile - done) // tiles_n * BM
                column = (tile - done) % tiles_n * BN
                sums = tl.zeros((BM, BN), tl.float32)
                for k0 in tl.range(0, k, BK, num_stages=3):
                    sums = tl.dot(a.load([row, k0]), b.load([column, k0]).T, sums)
                c.store([row, column], sums.to(tl.float16))
                tile += tl.num_programs(0)
        done += tiles


@triton.jit
def matmul_scaled(a, b, scales_a, scales_b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                  FORMAT: tl.constexpr, STAGES: tl.constexpr):
    """Blocks of 32 elements along k share a scale, a power of two. Both operands are K-major, and sizes are multiples
    of the blocks. FORMAT e2m1 has two elements in a byte."""
    PACK: tl.constexpr = 2 if FORMAT == "e2m1" else 1
    at_m = tl.program_id(0) * BM + tl.arange(0, BM)
    at_n = tl.program_id(1) * BN + tl.arange(0, BN)
    at_k = tl.arange(0, BK // PACK)
    at_s = tl.arange(0, BK // 32)
    sums = tl.zeros((BM, BN), tl.float32)
    for k0 in tl.range(0, k, BK, num_stages=STAGES):
        left = tl.load(a + at_m[:, None] * (k // PACK) + (k0 // PACK + at_k)[None, :])
        right = tl.load(b + at_n[:, None] * (k // PACK) + (k0 // PACK + at_k)[None, :])
        left_scale = tl.load(scales_a + at_m[:, None] * (k // 32) + (k0 // 32 + at_s)[None, :])
        right_scale = tl.load(scales_b + at_n[:, None] * (k // 32) + (k0 // 32 + at_s)[None, :])
        sums = tl.dot_scaled(left, left_scale, FORMAT, right.T, right_scale, FORMAT, sums)
    tl.store(c + at_m[:, None] * n + at_n[None, :], sums)
