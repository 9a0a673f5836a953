"""mma.sync of 4- and 6-bit floats and with block scaling (sm_120a), exact sums. No GPU has recorded these files yet."""
from conformance.warp_module import braces, module, words

FAMILY = "mma"
TYPES = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")


def scaled(name, what, forms, seed):
    """forms: opcode behind the layouts, type of D, and the selectors of A and of B."""
    # Bits that are no NaN or infinity in any type, small numbers: so that sums are exact.
    narrow = "list " + " ".join(f"0x{(seed * 2654435761 * (i + 1) >> 7) & 0x9c9c9c9c:08x}" for i in range(32))
    powers = "list " + " ".join("0x" + "".join(f"{126 + (i * 7 + byte * 3 + seed) % 4:02x}" for byte in range(4)) for i in range(32))
    fractions = "list " + " ".join("0x" + "".join(f"{0x30 + 8 * ((i * 7 + byte * 3 + seed) % 4):02x}" for byte in range(4)) for i in range(32))
    ins = [("a", "b32", 128, ", ".join([narrow] * 4)), ("b", "b32", 64, ", ".join([narrow] * 2)), ("c", "f32", 128, "whole 128 seed 3 -20 20"),
           ("c16", "f16", 128, "whole 128 seed 4 -20 20"), ("ue8m0", "b32", 32, powers), ("ue4m3", "b32", 32, fractions)]
    body = " ".join(words(i, 0, count, registers) for i, (count, registers) in enumerate(
        ((4, "%%r%d"), (2, "%%r1%d"), (4, "%%r2%d"), (2, "%%r3%d"), (1, "%%r4%d"), (1, "%%r6%d"))))
    outs = []
    for suffix, accumulator, selectors in forms:
        num_c = 2 if accumulator == "f16" else 4
        scale = "%r60" if suffix.endswith("ue4m3") else "%r40"
        c = 30 if accumulator == "f16" else 20
        tail = f", {scale}, {{{selectors[0]}}}, {scale}, {{{selectors[1]}}}" if selectors else ""
        body += (f" mma.sync.aligned.{suffix} {braces('%%r%d', num_c, 50)}, {braces('%%r%d', 4)}, {braces('%%r%d', 2, 10)}, "
                 f"{braces('%%r%d', num_c, c)}{tail}; " + words(6 + len(outs), 0, num_c, "%%r5%d", store=True))
        name_of = f"mma.sync.aligned.{suffix}" + ("/" + "/".join(s.replace(", ", ".") for s in selectors) if selectors else "")
        outs.append((name_of, accumulator, 32 * num_c * (2 if accumulator == "f16" else 1), "exact"))
    return module(FAMILY, name, what, ins, outs, body, target="sm_120a", version="8.8")


def files():
    made = []
    for i, a in enumerate(TYPES):
        plain = [(f"m16n8k32.row.col.kind::f8f6f4.{acc}.{a}.{b}.{acc}", acc, None) for b in TYPES for acc in ("f32", "f16")]
        made.append(scaled(f"narrow_{a}", f"kind::f8f6f4, {a} by all types", plain, 11 + i))
        with_scales = [(f"m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.{a}.{b}.f32.ue8m0", "f32", (f"{j % 4}, {j % 2}", f"{3 - j % 4}, {j % 4}"))
                       for j, b in enumerate(TYPES)]
        made.append(scaled(f"scaled_{a}", f"kind::mxf8f6f4, {a} by all types", with_scales, 21 + i))
    for kind in ("mxf4", "mxf4nvf4"):
        forms = [(f"m16n8k64.row.col.kind::{kind}.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", "f32", (f"{byte}, {thread % 2}", f"{2 - byte}, {thread}"))
                 for byte in (0, 2) for thread in range(4)]
        if kind == "mxf4nvf4":
            forms += [("m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "f32", (f"0, {thread % 2}", f"0, {thread}"))
                      for thread in range(4)]
        made.append(scaled(f"scaled_{kind}", f"kind::{kind}", forms, 31))
    return made
