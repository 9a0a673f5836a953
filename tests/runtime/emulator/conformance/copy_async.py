"""cp.async: sizes, zero fill, groups, arrivals on an mbarrier."""
from conformance.warp_module import module

FAMILY = "copy_async"
START = ("mov.u32 %r40, buffer; shl.b32 %r41, %thread, 4; add.u32 %r41, %r41, %r40; cvt.u64.u32 %rd9, %thread; shl.b64 %rd9, %rd9, 4; "
         "add.s64 %rd0, %rd9, {base0}; ")
CLEAR = "st.shared.v4.b32 [%r41], {%thread, %thread, %thread, %thread}; "
SOURCE = ("x", "b32", 256, "bits 256 seed 1")
MODIFIERS = ["", ".L2::64B", ".L2::128B", ".L2::256B"]


def dump(index):
    return (f"ld.shared.v4.b32 {{%r0, %r1, %r2, %r3}}, [%r41]; add.s64 %rd1, %rd9, {{base{index}}}; "
            "st.global.v4.b32 [%rd1], {%r0, %r1, %r2, %r3}; ")


def plain():
    outs, body = [], START
    for cache, sizes in (("ca", (4, 8, 16)), ("cg", (16,))):
        for size in sizes:
            for at, modifier in enumerate(MODIFIERS):
                form = f"cp.async.{cache}.{'shared' if at % 2 else 'shared::cta'}.global{modifier}"
                body += CLEAR + f"{form} [%r41+{16 - size}], [%rd0+{16 - size}], {size}; cp.async.wait_all; "
                body += dump(1 + len(outs))
                outs.append((f"{form}/{size}", "b32", 128, "bits"))
    return module(FAMILY, "plain", "cp.async without a source size", [SOURCE], outs, body, shared=512)


def sized():
    outs, body = [], START
    for cache, size in (("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)):
        for what in ("register", "0", "3", "predicate", "!predicate"):
            operand = {"register": "%r5", "predicate": "%p1", "!predicate": "!%p1"}.get(what, what)
            body += CLEAR + (f"rem.u32 %r5, %lane, {size + 1}; setp.gt.u32 %p1, %r5, 2; "
                             f"cp.async.{cache}.shared.global [%r41], [%rd0], {size}, {operand}; cp.async.wait_all; ")
            body += dump(1 + len(outs))
            outs.append((f"cp.async.{cache}/{size}/{what}", "b32", 128, "bits"))
    return module(FAMILY, "sized", "cp.async with a source size or a predicate to ignore the source", [SOURCE], outs, body,
                  shared=512)


def groups():
    body = START + CLEAR
    for i in range(4):
        body += f"cp.async.ca.shared.global [%r41+{4 * i}], [%rd0+{4 * i}], 4; cp.async.commit_group; "
    body += "cp.async.commit_group; "
    for i, allowed in enumerate((4, 3, 1, 0)):
        body += f"cp.async.wait_group {allowed}; ld.shared.b32 %r{i}, [%r41+{4 * i}]; "
    body += "add.s64 %rd1, %rd9, {base1}; st.global.v4.b32 [%rd1], {%r0, %r1, %r2, %r3}; "
    return module(FAMILY, "groups", "groups complete in order, and an empty one counts", [SOURCE],
                  [("cp.async.wait_group", "b32", 128, "bits")], body, shared=512)


def arrivals():
    outs, body = [], START
    for space in ("", ".shared", ".shared::cta"):
        for noinc in ("", ".noinc"):
            form = f"cp.async.mbarrier.arrive{noinc}{space}.b64"
            label = f"W{len(outs)}"
            # Without .noinc the copies' arrivals are not counted at init, so that each thread arrives once more.
            body += CLEAR + ("cvt.u64.u32 %rd5, %r40; cvta.shared.u64 %rd5, %rd5; bar.sync 0; setp.eq.u32 %p1, %thread, 0; "
                             "@%p1 mbarrier.init.shared.b64 [%r40+1024], 32; bar.sync 0; "
                             "cp.async.cg.shared.global [%r41], [%rd0], 16; "
                             f"{form} [{'%r40' if space else '%rd5'}+1024]; ")
            if not noinc:
                body += "mbarrier.arrive.shared.b64 %rd6, [%r40+1024]; "
            body += (f"{label}: mbarrier.test_wait.parity.shared.b64 %p2, [%r40+1024], 0; @!%p2 bra {label}; ")
            # What a sibling copied is visible too.
            body += ("xor.b32 %r6, %r41, 16; ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%r6]; "
                     f"add.s64 %rd1, %rd9, {{base{1 + len(outs)}}}; st.global.v4.b32 [%rd1], {{%r0, %r1, %r2, %r3}}; "
                     "bar.sync 0; @%p1 mbarrier.inval.shared.b64 [%r40+1024]; bar.sync 0; ")
            outs.append((form, "b32", 128, "bits"))
    return module(FAMILY, "mbarrier", "cp.async.mbarrier.arrive", [SOURCE], outs, body, shared=1032)


def files():
    return [plain(), sized(), groups(), arrivals()]
