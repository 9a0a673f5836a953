"""mma.sync: fragments by exact integers, codes one by one, and random numbers, whose sums a tensor core rounds its own way."""
from conformance.warp_module import braces, module, words

FAMILY = "mma"
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}
STORED = {"tf32": "f32"}
# Random numbers in [-1, 1). A tensor core aligns the products of a block to the largest and drops what is below: with 24
# bits or so for 16-bit types, with fewer for 8-bit ones.
BOUND = {"f16": "absolute 8e-6", "bf16": "absolute 8e-6", "tf32": "absolute 8e-6", "e4m3": "absolute 4e-3",
         "e5m2": "absolute 4e-3"}


def registers(shape, a, accumulator):
    m, k = shape
    each = 32 // BITS[a]
    return m * k // 32 // each, k * 8 // 32 // each, m // 4 // (2 if accumulator == "f16" else 1)


def fragment(name, type_name, count, values):
    return (name, STORED.get(type_name, type_name), count * 32 * (32 // BITS.get(type_name, 32)), values)


def products(name, a, b, forms, whole, what, comparison_of, values="whole"):
    """Each form on the first registers of A (4), B (2) and C; C of f16 forms is a buffer of its own."""
    each = 32 // BITS[a]
    low_a, low_b = ("0", "0") if whole else ("-1", "-1")
    high = "6" if a != "e5m2" and b != "e5m2" else "3"
    kind_a = f"whole {{}} seed 1 {'0' if a == 'u8' else '-' + high} {high}" if whole else "random {} seed 1 -1 1"
    kind_b = f"whole {{}} seed 2 {'0' if b == 'u8' else '-' + high} {high}" if whole else "random {} seed 2 -1 1"
    if a in ("s8", "u8"):
        kind_a, kind_b = "bits {} seed 1", "bits {} seed 2"
    ins = [fragment("a", a, 4, kind_a.format(128 * each)), fragment("b", b, 2, kind_b.format(64 * each)),
           ("c", "s32" if a in ("s8", "u8") else "f32", 128, "special 64 stride 1, whole 64 seed 3 -20 20" if a in ("s8", "u8") else
            ("whole 128 seed 3 -20 20" if whole else "random 128 seed 3 -1 1")),
           ("c16", "f16", 128, "whole 128 seed 4 -20 20" if whole else "random 128 seed 4 -1 1")]
    body = " ".join([words(0, 0, 4, "%%r%d"), words(1, 0, 2, "%%r1%d"), words(2, 0, 4, "%%r2%d"), words(3, 0, 2, "%%r3%d")])
    outs = []
    for shape, accumulator, suffix in forms:
        m, k = shape
        num_a, num_b, num_c = registers(shape, a, accumulator)
        form = f"mma.sync.aligned.m{m}n8k{k}.row.col{suffix}.{accumulator}.{a}.{b}.{accumulator}"
        c = 30 if accumulator == "f16" else 20
        body += (f" {form} {braces('%%r%d', num_c, 40)}, {braces('%%r%d', num_a)}, {braces('%%r%d', num_b, 10)}, "
                 f"{braces('%%r%d', num_c, c)}; " + words(4 + len(outs), 0, num_c, "%%r4%d", store=True))
        outs.append((form, accumulator, 32 * num_c * (2 if accumulator == "f16" else 1), comparison_of(accumulator)))
    return outs, ins, body


def file_of(name, a, b, forms, whole, target, version):
    what = "exact sums" if whole else "random numbers"
    if a in ("s8", "u8"):
        compare = lambda accumulator: "bits"
    elif whole:
        compare = lambda accumulator: "exact"
    else:
        compare = lambda accumulator: (
            "relative 1e-3 absolute 4e-3 because f16 sums are rounded at the end, or more often" if accumulator == "f16"
            else f"relative 0 {BOUND[a]} because a tensor core aligns products and truncates")
    outs, ins, body = products(name, a, b, forms, whole, what, compare)
    return module(FAMILY, name + ("" if a in ("s8", "u8") else "_whole" if whole else "_random"),
                  f"mma.sync {a} x {b}, {what}", ins, outs, body, target=target, version=version)


def codes(type_name, target, version):
    """Each code once, times 1: A has one code in column 0 of each of rows 0 to 7."""
    each = 32 // BITS[type_name]
    special = {"f16": [0, 1, 0x3ff, 0x400, 0x401, 0x3c00, 0x3c01, 0x7bff, 0x7c00, 0x7e00, 0x8000, 0x8001, 0x83ff, 0xfbff, 0xfc00, 0xfe01],
               "bf16": [0, 1, 0x7f, 0x80, 0x81, 0x3f80, 0x3f81, 0x7f7f, 0x7f80, 0x7fc0, 0x8000, 0x8001, 0x807f, 0xff7f, 0xff80, 0xffc1],
               "tf32": [0, 0x2000, 0x7fe000, 0x800000, 0x3f800000, 0x3f801fff, 0x7f7fe000, 0x7f800000, 0x7fc00000, 0x80000000, 0x80002000,
                        0x3f802fff, 0xff7fe000, 0xff800000, 0xffc02000, 0x1fff]}.get(type_name, list(range(256)))
    one = {"f16": 0x3c00, "bf16": 0x3f80, "tf32": 0x3f800000, "e4m3": 0x38, "e5m2": 0x3c}[type_name]
    k = {16: 8, 32: 4, 8: 16}[BITS[type_name]]
    count = len(special)
    spread = []
    for code in special:
        spread += [code] + [0] * (4 * each - 1)
    b = ([one] + [0] * (4 * each - 1)) * 8
    stored = STORED.get(type_name, type_name)
    ins = [("a", stored, len(spread), "list " + " ".join(hex(c) for c in spread)),
           ("b", stored, len(b), "list " + " ".join(hex(c) for c in b))]
    form = f"mma.sync.aligned.m16n8k{k}.row.col.f32.{type_name}.{type_name}.f32"
    body = "ld.global.b32 %r10, [{at1}]; mov.b32 %r1, 0; "
    for i in range(count // 8):
        body += (f"ld.global.b32 %r0, [{{at0}}+{128 * i}]; "
                 f"{form} {{%r40, %r41, %r42, %r43}}, {{%r0, %r1}}, {{%r10}}, {{%r1, %r1, %r1, %r1}}; "
                 f"st.global.b32 [{{at2}}+{128 * i}], %r40; ")
    return module(FAMILY, f"{type_name}_codes", f"every code of {type_name}, or its special ones, times 1", ins,
                  [(form, "f32", 4 * count, "exact")], body, target=target, version=version)


def doubles():
    outs, body = [], ""
    loads = " ".join(f"ld.global.f64 %d{i}, [%rd0+{256 * i}];" for i in range(8))
    body = "mul.wide.u32 %rd3, %thread, 8; add.s64 %rd0, %rd3, {base0}; add.s64 %rd1, %rd3, {base1}; add.s64 %rd2, %rd3, {base2}; " + loads
    body += " ".join(f"ld.global.f64 %d{8 + i}, [%rd1+{256 * i}];" for i in range(4))
    body += " ".join(f"ld.global.f64 %d{12 + i}, [%rd2+{256 * i}];" for i in range(4))
    for m, k in ((8, 4), (16, 4), (16, 8), (16, 16)):
        form = f"mma.sync.aligned.m{m}n8k{k}.row.col.f64.f64.f64.f64"
        num_c = m // 4
        body += (f" {form} {braces('%%d%d', num_c, 20)}, {braces('%%d%d', m * k // 32)}, {braces('%%d%d', k // 4, 8)}, "
                 f"{braces('%%d%d', num_c, 12)}; add.s64 %rd4, %rd3, {{base{3 + len(outs)}}}; ")
        body += " ".join(f"st.global.f64 [%rd4+{256 * i}], %d{20 + i};" for i in range(num_c))
        outs.append((form, "f64", 32 * num_c, "bits"))
    ins = [("a", "f64", 256, "random 256 seed 1 -1 1"), ("b", "f64", 128, "random 128 seed 2 -1 1"),
           ("c", "f64", 128, "random 128 seed 3 -1 1")]
    return module(FAMILY, "f64", "mma.sync in double precision", ins, outs, body, target="sm_90")


def subbyte():
    """Integers of 4 bits and single bits. The registers hold any codes."""
    kinds = [(f"{a}_{b}", a, b, ((8, 32), (16, 32), (16, 64)), ("", ".satfinite"), "") for a in ("s4", "u4") for b in ("s4", "u4")]
    kinds += [(f"b1_{op}", "b1", "b1", ((8, 128), (16, 128), (16, 256)), ("",), f".{op}.popc") for op in ("and", "xor")]
    for name, a, b, shapes, suffixes, operation in kinds:
        ins = [("a", "b32", 128, "bits 128 seed 1"), ("b", "b32", 64, "bits 64 seed 2"), ("c", "s32", 128, "special 64 stride 1, whole 64 seed 3 -20 20")]
        body = " ".join([words(0, 0, 4, "%%r%d"), words(1, 0, 2, "%%r1%d"), words(2, 0, 4, "%%r2%d")])
        outs = []
        for m, k in shapes:
            for suffix in suffixes:
                num_b = k * (1 if a == "b1" else 4) // 128
                form = f"mma.sync.aligned.m{m}n8k{k}.row.col{suffix}.s32.{a}.{b}.s32{operation}"
                body += (f" {form} {braces('%%r%d', m // 4, 40)}, {braces('%%r%d', m // 8 * num_b)}, {braces('%%r%d', num_b, 10)}, "
                         f"{braces('%%r%d', m // 4, 20)}; " + words(3 + len(outs), 0, m // 4, "%%r4%d", store=True))
                outs.append((form, "s32", 8 * m, "bits"))
        yield module(FAMILY, name, f"mma.sync {a} x {b}{operation}", ins, outs, body, target="sm_80", version="8.0")


def whole_warp():
    """wmma: matrices from memory and back. Exact sums."""
    cases = [("f16", "f32", 16, 16, 16, 8, 8), ("f16", "f16", 32, 8, 16, 8, 8), ("f16", "f32", 8, 32, 16, 8, 8),
             ("bf16", "f32", 16, 16, 16, 4, 4), ("bf16", "f32", 32, 8, 16, 8, 2), ("bf16", "f32", 8, 32, 16, 2, 8),
             ("s8", "s32", 16, 16, 16, 2, 2), ("u8", "s32", 32, 8, 16, 4, 1), ("s8", "s32", 8, 32, 16, 1, 4), ("tf32", "f32", 16, 16, 8, 4, 4)]
    for a, sums, m, n, k, num_a, num_b in cases:
        shape, stored = f"m{m}n{n}k{k}", STORED.get(a, a)
        whole = "bits {} seed {}" if a in ("s8", "u8") else "whole {} seed {} -6 6"
        ins = [("a", stored, m * k, whole.format(m * k, 1)), ("b", stored, k * n, whole.format(k * n, 2)),
               ("c", sums, m * n, f"whole {m * n} seed 3 -20 20")]
        types = f"{sums}.{sums}" if a == "f16" else f"{sums}.{a}.{a}.{sums}"
        num_c = 4 if sums == "f16" else 8
        fragment_c, load = braces("%%r%d", num_c, 20), "sync.aligned"
        body, outs = "", []
        for layout_a, layout_b, layout_d in (("row", "col", "row"), ("col", "row", "col")):
            form = f"wmma.mma.{load}.{layout_a}.{layout_b}.{shape}.{types}"
            body += (f"wmma.load.a.{load}.{layout_a}.{shape}.global.{a} {braces('%%r%d', num_a)}, [{{base0}}]; "
                     f"wmma.load.b.{load}.{layout_b}.{shape}.global.{a} {braces('%%r%d', num_b, 10)}, [{{base1}}]; "
                     f"wmma.load.c.{load}.row.{shape}.global.{sums} {fragment_c}, [{{base2}}]; "
                     f"{form} {fragment_c}, {braces('%%r%d', num_a)}, {braces('%%r%d', num_b, 10)}, {fragment_c}; "
                     f"wmma.store.d.{load}.{layout_d}.{shape}.global.{sums} [{{base{3 + len(outs)}}}], {fragment_c}; ")
            outs.append((form, sums, m * n, "bits" if sums == "s32" else "exact"))
        yield module(FAMILY, f"wmma_{a}_{shape}", f"wmma of {a}, {shape}", ins, outs, body, target="sm_80", version="8.0")


def files():
    made = [doubles(), *subbyte(), *whole_warp()]
    half = [((16, 8), "f32", ""), ((16, 16), "f32", ""), ((16, 8), "f16", ""), ((16, 16), "f16", "")]
    for whole in (True, False):
        made.append(file_of("f16", "f16", "f16", half, whole, "sm_80", "8.0"))
        made.append(file_of("bf16", "bf16", "bf16", half[:2], whole, "sm_80", "8.0"))
        made.append(file_of("tf32", "tf32", "tf32", [((16, 4), "f32", ""), ((16, 8), "f32", "")], whole, "sm_80", "8.0"))
        for a in ("e4m3", "e5m2"):
            for b in ("e4m3", "e5m2"):
                forms = [((16, k), accumulator, "") for k in (16, 32) for accumulator in ("f32", "f16")]
                made.append(file_of(f"{a}_{b}", a, b, forms, whole, "sm_89", "8.7"))
    for a in ("s8", "u8"):
        for b in ("s8", "u8"):
            forms = [(shape, "s32", suffix) for shape in ((8, 16), (16, 16), (16, 32)) for suffix in ("", ".satfinite")]
            made.append(file_of(f"{a}_{b}", a, b, forms, True, "sm_80", "8.0"))
    made += [codes(t, "sm_80", "8.0") for t in ("f16", "bf16", "tf32")] + [codes(t, "sm_89", "8.7") for t in ("e4m3", "e5m2")]
    return made
