"""atom and red. Each of 128 threads has a word of its own, so that what is returned does not depend on an order; one more
file has all threads at one word, with operations whose end does not depend on it either."""
from conformance.elementwise import BITS, PAIRS, element, operands
from conformance.warp_module import module

FAMILY = "atomic"
THREADS = 128
OPERATIONS = {
    "add": ["u32", "s32", "u64", "f32", "f64", "f16", "f16x2", "bf16", "bf16x2"],
    "min": ["u32", "s32", "u64", "s64"], "max": ["u32", "s32", "u64", "s64"],
    "and": ["b32", "b64"], "or": ["b32", "b64"], "xor": ["b32", "b64"], "inc": ["u32"], "dec": ["u32"],
    "exch": ["b32", "b64"], "cas": ["b16", "b32", "b64"]}


def size(type_name):
    return BITS[element(type_name)] * (2 if type_name in PAIRS else 1)


def noftz(type_name):
    return ".noftz" if "f16" in type_name else ""


def register(type_name, number):
    return {16: "%h", 32: "%r", 64: "%rd"}[size(type_name)] + str(number)


def access(type_name):
    return f"b{size(type_name)}"


def scalar(operation, type_name):
    ops = ["a", "b", "c"] if operation == "cas" else ["a", "b"]
    count = THREADS * (2 if type_name in PAIRS else 1)
    values = operands(operation + type_name, [type_name] * len(ops), count=THREADS)
    ins = [(letter, element(type_name), count, value) for letter, value in zip(ops, values)]
    if operation == "cas":  # half of the comparisons hold
        ins[1] = ("b", ins[0][1], count, ins[0][3].split(",")[0] + ", bits 32 seed 77")
    bytes_each = size(type_name) // 8
    compare = "exact" if "f" in type_name else "bits"
    body = f"mul.wide.u32 %rd20, %thread, {bytes_each}; mov.u32 %r40, buffer; cvt.u32.u64 %r41, %rd20; add.u32 %r40, %r40, %r41; "
    for i in range(len(ops)):
        body += f"add.s64 %rd21, %rd20, {{base{i}}}; ld.global.{access(type_name)} {register(type_name, i)}, [%rd21]; "
    more = ", " + register(type_name, 2) if operation == "cas" else ""
    outs = []
    for opcode in ("atom", "red") if operation not in ("exch", "cas") else ("atom",):
        for space in ("global", "shared", "generic"):
            name = f"{opcode}{'' if space == 'generic' else '.' + space}.{operation}{noftz(type_name)}.{type_name}"
            target = len(ins) + len(outs)
            body += f"add.s64 %rd22, %rd20, {{base{target}}}; "
            if space == "shared":
                # Elsewhere a barrier is not needed; but 16-bit values share a word with a neighbour's.
                body += f"st.shared.{access(type_name)} [%r40], {register(type_name, 0)}; bar.sync 0; "
            else:
                body += f"st.global.{access(type_name)} [%rd22], {register(type_name, 0)}; "
            address = "%r40" if space == "shared" else "%rd22"
            d = register(type_name, 5) + ", " if opcode == "atom" else ""
            body += f"{name} {d}[{address}], {register(type_name, 1)}{more}; "
            if space == "shared":
                body += f"bar.sync 0; ld.shared.{access(type_name)} {register(type_name, 6)}, [%r40]; bar.sync 0; st.global.{access(type_name)} [%rd22], {register(type_name, 6)}; "
            outs.append((name, element(type_name), count, compare))
            if opcode == "atom":
                body += f"add.s64 %rd23, %rd20, {{base{target + 1}}}; st.global.{access(type_name)} [%rd23], {register(type_name, 5)}; "
                outs.append((name + "/returned", element(type_name), count, compare))
    return module(FAMILY, f"{operation}_{type_name}", f"{operation} {type_name} in every space", ins, outs, body, block=THREADS,
                  shared=1024, target="sm_90")


def wide():
    """b128: two 64-bit halves."""
    body = ("mul.wide.u32 %rd20, %thread, 16; mov.u32 %r40, buffer; cvt.u32.u64 %r41, %rd20; add.u32 %r40, %r40, %r41; "
            "add.s64 %rd21, %rd20, {base0}; ld.global.v2.b64 {%rd0, %rd1}, [%rd21]; "
            "add.s64 %rd21, %rd20, {base1}; ld.global.v2.b64 {%rd2, %rd3}, [%rd21]; setp.gt.u32 %p1, %lane, 15; "
            "selp.b64 %rd4, %rd0, %rd2, %p1; selp.b64 %rd5, %rd1, %rd3, %p1; .reg .b128 %q<4>; mov.b128 %q0, {%rd4, %rd5}; "
            "mov.b128 %q1, {%rd2, %rd3}; ")
    outs = []
    for operation in ("exch", "cas"):
        for space in ("global", "shared"):
            name = f"atom.{space}.{operation}.b128"
            target = 2 + len(outs)
            body += f"add.s64 %rd22, %rd20, {{base{target}}}; "
            where = "%r40" if space == "shared" else "%rd22"
            body += f"st.{space}.v2.b64 [{where}], {{%rd0, %rd1}}; "
            body += f"{name} %q2, [{where}], {'%q1' if operation == 'exch' else '%q0, %q1'}; "
            body += f"ld.{space}.v2.b64 {{%rd6, %rd7}}, [{where}]; st.global.v2.b64 [%rd22], {{%rd6, %rd7}}; "
            body += f"mov.b128 {{%rd6, %rd7}}, %q2; add.s64 %rd23, %rd20, {{base{target + 1}}}; st.global.v2.b64 [%rd23], {{%rd6, %rd7}}; "
            outs += [(name, "b64", 64, "bits"), (name + "/returned", "b64", 64, "bits")]
    return module(FAMILY, "b128", "exch and cas on 128 bits", [("a", "b64", 64, "bits 64 seed 1"), ("b", "b64", 64, "bits 64 seed 2")],
                  outs, body, shared=512, target="sm_90", version="8.3")


def vectors():
    made = []
    for operation, type_name in [("add", "f32")] + [(o, t) for o in ("add", "min", "max") for t in ("f16", "bf16", "f16x2", "bf16x2")]:
        lengths = [2, 4, 8] if size(type_name) == 16 else [2, 4]
        each = 2 if type_name in PAIRS else 1
        count = 32 * 16 // (size(type_name) // 8) * each  # 16 bytes a thread
        values = operands("vector" + operation + type_name, [type_name] * 2, count=count // each)
        ins = [("a", element(type_name), count, values[0]), ("b", element(type_name), count, values[1])]
        reg = "%h" if size(type_name) == 16 else "%r"
        per_thread = 16 // (size(type_name) // 8)
        body = "mul.wide.u32 %rd20, %thread, 16; "
        for i in range(2):
            body += f"add.s64 %rd21, %rd20, {{base{i}}}; ld.global.v4.b32 {{%r{40 + 4 * i}, %r{41 + 4 * i}, %r{42 + 4 * i}, %r{43 + 4 * i}}}, [%rd21]; "
        if reg == "%h":
            body += " ".join(f"mov.b32 {{%h{2 * i}, %h{2 * i + 1}}}, %r{44 + i};" for i in range(4))
        else:
            body += " ".join(f"mov.b32 %r{i}, %r{44 + i};" for i in range(4))
        outs = []
        for opcode in ("atom", "red"):
            for length in lengths:
                name = f"{opcode}.global.{operation}{noftz(type_name)}.v{length}.{type_name}"
                target = 2 + len(outs)
                body += f" add.s64 %rd22, %rd20, {{base{target}}}; st.global.v4.b32 [%rd22], {{%r40, %r41, %r42, %r43}}; "
                for first in range(0, per_thread, length):
                    b = "{" + ", ".join(f"{reg}{first + i}" for i in range(length)) + "}"
                    d = "{" + ", ".join(f"{reg}{8 + i}" for i in range(length)) + "}, " if opcode == "atom" else ""
                    body += f"{name} {d}[%rd22+{first * size(type_name) // 8}], {b}; "
                outs.append((name, element(type_name), count, "exact"))
                if opcode == "atom":  # what the last one returned
                    body += f"add.s64 %rd23, {{base{target + 1}}}, 0; mad.wide.u32 %rd23, %thread, {length * size(type_name) // 8}, %rd23; "
                    body += " ".join(f"st.global.b{size(type_name)} [%rd23+{i * size(type_name) // 8}], {reg}{8 + i};" for i in range(length))
                    outs.append((name + "/returned", element(type_name), 32 * length * each, "exact"))
        made.append(module(FAMILY, f"vector_{operation}_{type_name}", f"vectors: {operation} {type_name}", ins, outs, body,
                           target="sm_90", version="8.1"))
    return made


def together():
    """All threads of a CTA at one word."""
    outs, body = [], "mov.u32 %r40, buffer; ld.global.b32 %r0, [{at0}]; cvt.rn.f32.u32 %f0, %thread; "
    for space in ("global", "shared"):
        for form in ("add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32", "inc.u32", "add.f32", "relaxed.cta.add.u32",
                     "release.gpu.add.u32"):
            parts = form.split(".")
            spelt = f"red.{'.'.join(parts[:-2])}{'.' if len(parts) > 2 else ''}{space}.{'.'.join(parts[-2:])}"
            target = 1 + len(outs)
            first = "-1" if "and" in form else "0"
            address = "[%r40]" if space == "shared" else f"[{{base{target}}}]"
            body += f"setp.eq.u32 %p1, %thread, 0; @%p1 st.{space}.b32 {address}, {first}; bar.sync 0; "
            operand = "%f0" if "f32" in form else "100" if "inc" in form else "%r0"
            body += f"{spelt} {address}, {operand}; bar.sync 0; "
            if space == "shared":
                body += f"@%p1 ld.shared.b32 %r1, [%r40]; @%p1 st.global.b32 [{{base{target}}}], %r1; bar.sync 0; "
            outs.append((spelt, "f32" if "f32" in form else "b32", 1, "bits"))
    return module(FAMILY, "together", "all threads at one word", [("x", "b32", THREADS, "bits 128 seed 5")], outs, body,
                  block=THREADS, shared=16, target="sm_90")


def files():
    made = [scalar(operation, type_name) for operation, types in OPERATIONS.items() for type_name in types]
    return made + [wide(), together()] + vectors()
