"""mma.sp: A with half of its places empty, exact sums. The metadata differs in each group of each row."""
import random

from conformance.mma import BITS, fragment
from conformance.warp_module import braces, module, words

FAMILY = "mma"
PAIRS = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)  # of places of two elements among four
ONES = (0b0100, 0b1110)  # of the place of a tf32 among two


def metadata(nibbles, seed):
    random_of = random.Random(seed)
    return " ".join(f"0x{sum(random_of.choice(nibbles) << 4 * i for i in range(8)):08x}" for _ in range(32))


def sparse(a, b, k, accumulators, target, version, saturate=""):
    narrow = a in ("s4", "u4")
    size = 4 if narrow else BITS[a]
    each = 32 // size
    groups = k // 2 if a == "tf32" else k // (8 if narrow else 4)
    count = k // (128 // size)  # registers of A, and of B
    integer = a[1:] in ("4", "8")
    high = "3" if "e5m2" in (a, b) else "6"
    values = [("bits {} seed 1", "bits {} seed 2") if integer else (f"whole {{}} seed 1 -{high} {high}", f"whole {{}} seed 2 -{high} {high}")][0]
    if narrow:  # any codes
        ins = [("a", "b32", 32 * count, f"bits {32 * count} seed 1"), ("b", "b32", 32 * count, f"bits {32 * count} seed 2")]
    else:
        ins = [fragment("a", a, count, values[0].format(32 * count * each)), fragment("b", b, count, values[1].format(32 * count * each))]
    ins += [("c", "s32" if integer else "f32", 128, "special 64 stride 1, whole 64 seed 3 -20 20" if integer else "whole 128 seed 3 -20 20"),
           ("c16", "f16", 128, "whole 128 seed 4 -20 20"), ("e", "b32", 32, f"list {metadata(ONES if a == 'tf32' else PAIRS, f'{a}{k}')}")]
    body = " ".join([words(0, 0, count, "%%r%d"), words(1, 0, count, "%%r1%d"), words(2, 0, 4, "%%r2%d"), words(3, 0, 2, "%%r3%d"), words(4, 0, 1, "%%r4%d")])
    outs = []
    for ordered in ("", "::ordered_metadata"):
        for accumulator in accumulators:
            for selector in range({4: 4, 8: 2, 16: 1}[groups]):
                num_c = 2 if accumulator == "f16" else 4
                form = f"mma.sp{ordered}.sync.aligned.m16n8k{k}.row.col{saturate}.{accumulator}.{a}.{b}.{accumulator}"
                c = 30 if accumulator == "f16" else 20
                body += (f" {form} {braces('%%r%d', num_c, 50)}, {braces('%%r%d', count)}, {braces('%%r%d', count, 10)}, "
                         f"{braces('%%r%d', num_c, c)}, %r40, {selector}; " + words(5 + len(outs), 0, num_c, "%%r5%d", store=True))
                outs.append((f"{form}/{selector}", accumulator, 32 * num_c * (2 if accumulator == "f16" else 1), "bits" if integer else "exact"))
    return module(FAMILY, f"sparse_{a}_{b}_k{k}{saturate}", f"mma.sp {a} x {b}, k = {k}, exact sums", ins, outs, body, target=target, version=version)


def files():
    made = []
    for k in (16, 32):
        made.append(sparse("f16", "f16", k, ("f32", "f16"), "sm_80", "8.5"))
        made.append(sparse("bf16", "bf16", k, ("f32",), "sm_80", "8.5"))
        made.append(sparse("tf32", "tf32", k // 2, ("f32",), "sm_80", "8.5"))
    for a in ("s8", "u8"):
        for b in ("s8", "u8"):
            for k in (32, 64):
                made.append(sparse(a, b, k, ("s32",), "sm_80", "8.5", ".satfinite" if a != b else ""))
    for a in ("s4", "u4"):
        for b in ("s4", "u4"):
            for k in (64, 128):
                made.append(sparse(a, b, k, ("s32",), "sm_80", "8.5", ".satfinite" if a != b else ""))
    for a in ("e4m3", "e5m2"):
        for b in ("e4m3", "e5m2"):
            made.append(sparse(a, b, 64, ("f32",), "sm_89", "8.5"))
    return made
