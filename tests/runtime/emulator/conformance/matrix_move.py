"""ldmatrix, stmatrix, movmatrix: 8x8 matrices of 16-bit elements."""
from conformance.warp_module import braces, module, words

FAMILY = "matrix_move"
# 512 bytes of shared memory, 16 from each lane; row i of the matrices is at 16 * (5 i mod 32).
FILL = ("mov.u32 %r40, buffer; shl.b32 %r41, %lane, 4; add.u32 %r41, %r41, %r40; " + words(0, 0, 4, "%%r%d") +
        " st.shared.v4.b32 [%r41], {%r0, %r1, %r2, %r3}; bar.sync 0;"
        " mul.lo.u32 %r42, %lane, 5; and.b32 %r42, %r42, 31; shl.b32 %r42, %r42, 4; add.u32 %r42, %r42, %r40;"
        " cvt.u64.u32 %rd0, %r42; cvta.shared.u64 %rd0, %rd0; ")


def loads():
    outs, body = [], FILL
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            for space in (".shared", ".shared::cta", ""):
                form = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}{space}.b16"
                address = "%r42" if space else "%rd0"
                body += f"{form} {braces('%%r%d', count, 10)}, [{address}]; "
                body += words(1 + len(outs), 0, count, "%%r1%d", store=True) + " "
                outs.append((form, "b32", 32 * count, "bits"))
    return module(FAMILY, "ldmatrix", "ldmatrix in all its 16-bit forms", [("rows", "b32", 128, "bits 128 seed 1")],
                  outs, body, shared=512, version="8.0")


def stores():
    files = []
    for trans in ("", ".trans"):
        outs, body = [], ""
        for count in (1, 2, 4):
            form = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
            body += FILL + words(1, 0, 4, "%%r1%d") + f" {form} [%r42], {braces('%%r%d', count, 10)}; bar.sync 0; "
            body += "ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r41]; bar.sync 0; "
            body += words(2 + len(outs), 0, 4, "%%r2%d", store=True) + " "
            outs.append((form, "b32", 128, "bits"))
        files.append(module(FAMILY, "stmatrix" + trans.replace(".", "_"), "stmatrix" + trans,
                            [("before", "b32", 128, "bits 128 seed 2"), ("values", "b32", 128, "bits 128 seed 3")], outs,
                            body, shared=512, target="sm_90"))
    return files


def byte_loads():
    """8-bit elements, and those of 4 and 6 bits that become bytes."""
    outs, body = [], FILL
    shapes = [("m16n16", (1, 2), ".trans", 2, type_name) for type_name in (".b8", ".b8x16.b4x16_p64", ".b8x16.b6x16_p32")]
    shapes += [("m8n16", (1, 2, 4), "", 1, type_name) for type_name in (".b8x16.b4x16_p64", ".b8x16.b6x16_p32")]
    for shape, counts, trans, each, type_name in shapes:
        for count in counts:
            form = f"ldmatrix.sync.aligned.{shape}.x{count}{trans}.shared{type_name}"
            body += f"{form} {braces('%%r%d', count * each, 10)}, [%r42]; " + words(1 + len(outs), 0, count * each, "%%r1%d", store=True) + " "
            outs.append((form, "b32", 32 * count * each, "bits"))
    return module(FAMILY, "ldmatrix_bytes", "ldmatrix of 8-bit elements", [("rows", "b32", 128, "bits 128 seed 1")], outs, body,
                  shared=512, target="sm_100a", version="8.6")


def byte_stores():
    outs, body = [], ""
    for count in (1, 2, 4):
        form = f"stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8"
        body += FILL + words(1, 0, 4, "%%r1%d") + f" {form} [%r42], {braces('%%r%d', count, 10)}; bar.sync 0; "
        body += "ld.shared.v4.b32 {%r20, %r21, %r22, %r23}, [%r41]; bar.sync 0; " + words(2 + len(outs), 0, 4, "%%r2%d", store=True) + " "
        outs.append((form, "b32", 128, "bits"))
    return module(FAMILY, "stmatrix_bytes", "stmatrix of 8-bit elements", [("before", "b32", 128, "bits 128 seed 2"), ("values", "b32", 128, "bits 128 seed 3")],
                  outs, body, shared=512, target="sm_100a", version="8.6")


def moves():
    return module(FAMILY, "movmatrix", "movmatrix", [("a", "b32", 32, "bits 32 seed 4")],
                  [("movmatrix.sync.aligned.m8n8.trans.b16", "b32", 32, "bits")],
                  "ld.global.b32 %r0, [{at0}]; movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0; st.global.b32 [{at1}], %r1;")


def files():
    return [loads(), *stores(), byte_loads(), byte_stores(), moves()]
