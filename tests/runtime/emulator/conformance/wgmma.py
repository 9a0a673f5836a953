"""wgmma: every type, both sources of A, every layout of shared memory, N from 8 to 256.

The operands are images of shared memory: whichever layout a descriptor names, some small whole numbers are there, so that
sums are exact and each thread may hash its registers of D into one word. Rounding is compared in a file of its own.
"""
import struct

from conformance.ptx_text import Module

KBYTES = 32
SPANS = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
MODES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
B_AT = 8192  # A's image takes 64 rows of 128 bytes, B's 256
SHARED = B_AT + 32768
TYPES = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
ELEMENT = {"tf32": "f32"}


def strides(swizzle, mn_major, size):
    """Leading and stride byte offsets of a dense operand."""
    span = SPANS[swizzle]
    if swizzle == "none":
        return (128, 256)
    if mn_major:
        return (16 * span, 8 * span)
    return (16, 8 * span)


def descriptor(module, target, offset, swizzle, mn_major, size):
    leading, stride = strides(swizzle, mn_major, size)
    constant = (leading >> 4) << 16 | (stride >> 4) << 32 | MODES[swizzle] << 62
    module.add(f"""
        add.u32 %r20, %data, {offset};
        and.b32 %r20, %r20, 0x3ffff;
        shr.u32 %r20, %r20, 4;
        cvt.u64.u32 {target}, %r20;
        or.b64 {target}, {target}, {constant:#x};
    """)


def new_module(name, what, a_type, b_type, source, low=-4, high=4, random=False):
    module = Module("wgmma", name, what, block=128, shared=SHARED)
    kind = "random" if random else "whole"
    for letter, type_name, count in (("a", a_type, B_AT), ("b", b_type, 32768)):
        first = 0 if type_name == "u8" and not random else low
        module.input(letter, ELEMENT.get(type_name, type_name), count // TYPES[type_name],
                     f"{kind} {count // TYPES[type_name]} seed {ord(letter)} {first} {high}")
    module.declare(".reg .b32 %d<128>, %a<4>, %hash;")
    module.declare(".reg .f32 %f;")
    return module


def load_operands(module, source):
    module.copy_to_shared("%a", 0, B_AT)
    module.copy_to_shared("%b", B_AT, 32768)
    if source == "rs":
        module.add("""
            mul.wide.u32 %rd0, %t, 16;
            add.s64 %rd0, %rd0, %a;
            ld.global.v4.b32 {%a0, %a1, %a2, %a3}, [%rd0];
        """)
    module.add("""
        fence.proxy.async.shared::cta;
        bar.sync 0;
    """)


def num_registers(n, d_type):
    return n // 4 if d_type == "f16" else n // 2


def set_d(module, n, d_type):
    """Small whole numbers that differ between registers."""
    for i in range(num_registers(n, d_type)):
        value = i * 5 % 16
        if d_type == "f32":
            code = f"{struct.unpack('<I', struct.pack('<f', value))[0]:#x}"
        elif d_type == "f16":
            code = f"{struct.unpack('<I', struct.pack('<ee', value, value + 1))[0]:#x}"
        else:
            code = value - 8
        module.add(f"mov.b32 %d{i}, {code};")


def multiply(module, n, d_type, a_type, b_type, source, scale_d="1", tail="", saturate=""):
    registers = ", ".join(f"%d{i}" for i in range(num_registers(n, d_type)))
    a = "{%a0, %a1, %a2, %a3}" if source == "rs" else "%rd1"
    depth = KBYTES // TYPES[a_type]
    module.add(f"wgmma.mma_async.sync.aligned.m64n{n}k{depth}.{d_type}.{a_type}.{b_type}{saturate} "
               f"{{{registers}}}, {a}, %rd2, {scale_d}{tail};")


def finish(module):
    module.add("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;")


def hash_d(module, output, n, d_type):
    module.add("mov.u32 %hash, 0;")
    for i in range(num_registers(n, d_type)):
        module.add(f"mad.lo.u32 %hash, %hash, 31, %d{i};")
    module.add(f"""
        mul.wide.u32 %rd0, %t, 4;
        add.s64 %rd0, %rd0, {output};
        st.global.b32 [%rd0], %hash;
    """)


def tail(a_type, source, scale_a=1, scale_b=1, trans_a=0, trans_b=0):
    if a_type in ("s8", "u8"):
        return ""
    text = f", {scale_a}, {scale_b}"
    if TYPES[a_type] == 2:
        text += f", {trans_b}" if source == "rs" else f", {trans_a}, {trans_b}"
    return text


COMBINATIONS = [("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"), ("f32", "tf32", "tf32"),
                ("f32", "e4m3", "e4m3"), ("f32", "e5m2", "e5m2"), ("f32", "e4m3", "e5m2"), ("f16", "e5m2", "e4m3"),
                ("s32", "s8", "s8"), ("s32", "u8", "u8"), ("s32", "s8", "u8"), ("s32", "u8", "s8")]


def types():
    for d_type, a_type, b_type in COMBINATIONS:
        for source in ("ss", "rs"):
            name = f"{source}_{d_type}_{a_type}_{b_type}"
            module = new_module(name, f"wgmma.mma_async {d_type} += {a_type} * {b_type}, A from "
                                      f"{'registers' if source == 'rs' else 'shared memory'}", a_type, b_type, source)
            ns = (8, 64, 128, 256)
            outputs = [module.output(f"n{n}", "b32", 128) for n in ns]
            load_operands(module, source)
            for n, output in zip(ns, outputs):
                descriptor(module, "%rd1", 0, "128B", False, 64)
                descriptor(module, "%rd2", B_AT, "128B", False, n)
                set_d(module, n, d_type)
                module.add("wgmma.fence.sync.aligned;")
                multiply(module, n, d_type, a_type, b_type, source, tail=tail(a_type, source))
                finish(module)
                hash_d(module, output, n, d_type)
            yield module.file()


def layouts():
    for a_type, majors in (("bf16", (0, 1)), ("f16", (0, 1)), ("e4m3", (0,)), ("tf32", (0,)), ("s8", (0,))):
        d_type = "s32" if a_type == "s8" else "f32"
        for source in ("ss", "rs") if len(majors) > 1 else ("ss",):
            module = new_module(f"layouts_{source}_{a_type}", f"wgmma's operands of {a_type} in every layout of shared memory",
                                a_type, a_type, source)
            steps = []
            for swizzle in SPANS:
                for trans_a in majors if source == "ss" else (0,):
                    for trans_b in majors:
                        for n in (128,):
                            letters = "km"[trans_a] + "km"[trans_b]
                            out = module.output(f"s{swizzle}_{letters}", "b32", 128)
                            steps.append((swizzle, trans_a, trans_b, n, out))
            load_operands(module, source)
            for swizzle, trans_a, trans_b, n, out in steps:
                # Within a swizzled atom, K-major operands advance along K by moving the start.
                start = 32 if SPANS[swizzle] > 32 else 0
                descriptor(module, "%rd1", 0 if trans_a else start, swizzle, trans_a, 64)
                descriptor(module, "%rd2", B_AT + (0 if trans_b else start), swizzle, trans_b, n)
                set_d(module, n, d_type)
                module.add("wgmma.fence.sync.aligned;")
                multiply(module, n, d_type, a_type, a_type, source, tail=tail(a_type, source, trans_a=trans_a, trans_b=trans_b))
                finish(module)
                hash_d(module, out, n, d_type)
            yield module.file()


def scales():
    module = new_module("scales", "wgmma's scale-d as predicate and constant, imm-scale-a and -b, several in a group", "f16",
                        "f16", "ss")
    variants = [("d_one", "1", 1, 1), ("d_zero", "0", 1, 1), ("p_true", "%p0", 1, 1), ("p_false", "%p1", 1, 1),
                ("not_true", "!%p0", 1, 1), ("minus_a", "1", -1, 1), ("minus_b", "1", 1, -1), ("minus_both", "1", -1, -1)]
    variants = [v for v in variants if not v[1].startswith("!")]
    outputs = [module.output(name, "b32", 128) for name, *_ in variants] + [module.output("chain", "b32", 128)]
    load_operands(module, "ss")
    module.add("setp.lt.u32 %p0, %t, 128;\nsetp.ge.u32 %p1, %t, 128;")
    descriptor(module, "%rd1", 0, "128B", False, 64)
    descriptor(module, "%rd2", B_AT, "128B", False, 64)
    for (name, scale_d, scale_a, scale_b), out in zip(variants, outputs):
        set_d(module, 64, "f32")
        module.add("wgmma.fence.sync.aligned;")
        multiply(module, 64, "f32", "f16", "f16", "ss", scale_d, tail("f16", "ss", scale_a, scale_b))
        finish(module)
        hash_d(module, out, 64, "f32")
    set_d(module, 64, "f32")
    module.add("wgmma.fence.sync.aligned;")
    for step in range(4):  # along K, 32 bytes at a time
        multiply(module, 64, "f32", "f16", "f16", "ss", "1", tail("f16", "ss"))
        module.add("wgmma.commit_group.sync.aligned;\nadd.s64 %rd1, %rd1, 2;\nadd.s64 %rd2, %rd2, 2;")
    module.add("wgmma.wait_group.sync.aligned 1;\nwgmma.wait_group.sync.aligned 0;")
    hash_d(module, outputs[-1], 64, "f32")
    yield module.file()

    module = new_module("satfinite", "wgmma of bytes whose sums leave s32", "s8", "s8", "ss", -128, 127)
    outputs = [module.output(name, "b32", 128) for name in ("wraps", "saturates")]
    load_operands(module, "ss")
    descriptor(module, "%rd1", 0, "128B", False, 64)
    descriptor(module, "%rd2", B_AT, "128B", False, 64)
    for out, saturate in zip(outputs, ("", ".satfinite")):
        for i in range(32):
            module.add(f"mov.u32 %d{i}, {0x7ffffff0 if i % 2 else 0x80000010:#x};")
        module.add("wgmma.fence.sync.aligned;")
        multiply(module, 64, "s32", "s8", "s8", "ss", saturate=saturate)
        finish(module)
        hash_d(module, out, 64, "s32")
    yield module.file()


def rounding():
    """Sums that are not exact: four instructions in a row along K. The emulator sums fp8 as the hardware does."""
    for d_type, a_type, bound in (("f32", "bf16", "absolute 4e-6"), ("f32", "f16", "absolute 4e-6"), ("f32", "tf32", "absolute 4e-6"),
                                  ("f32", "e4m3", ""), ("f32", "e5m2", ""), ("f16", "f16", "absolute 2e-2")):
        module = new_module(f"rounding_{d_type}_{a_type}", f"how wgmma sums {a_type} into {d_type}", a_type, a_type, "ss", -1, 1,
                            random=True)
        count = num_registers(16, d_type) * 128
        out = module.output("d", "f16" if d_type == "f16" else "f32", count * (2 if d_type == "f16" else 1),
                            f"relative 1e-6 {bound} because the hardware aligns the products of an instruction and truncates "
                            "what does not fit" if bound else "exact")
        load_operands(module, "ss")
        descriptor(module, "%rd1", 0, "128B", False, 64)
        descriptor(module, "%rd2", B_AT, "128B", False, 16)
        module.add("wgmma.fence.sync.aligned;")
        for step in range(4):
            multiply(module, 16, d_type, a_type, a_type, "ss", "1" if step else "0", tail(a_type, "ss"))
            module.add("add.s64 %rd1, %rd1, 2;\nadd.s64 %rd2, %rd2, 2;")
        finish(module)
        module.add(f"mul.wide.u32 %rd0, %t, 4;\nadd.s64 %rd0, %rd0, {out};")
        for i in range(num_registers(16, d_type)):
            module.add(f"st.global.b32 [%rd0+{512 * i}], %d{i};")
        yield module.file()


def files():
    return [*types(), *layouts(), *scales(), *rounding()]
