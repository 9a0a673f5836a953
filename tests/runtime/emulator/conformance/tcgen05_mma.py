"""tcgen05.mma: every kind and type, every layout of shared and tensor memory.

The operands are images of shared memory, as in wgmma.py: whichever layout a descriptor names, some small whole numbers are
there, so that sums are exact and each thread may hash its lane of D into one word. No GPU has recorded these files yet.
"""
from conformance.ptx_text import Module

A_AT, B_AT = 1024, 1024 + 32768
SHARED = B_AT + 65536
SPANS = {"none": 16, "32B": 32, "64B": 64, "128B": 128, "128B_32B": 128}
MODES = {"none": 0, "128B_32B": 1, "128B": 2, "64B": 4, "32B": 6}
# kind, type of A and B, code of it, of D; bytes of an element (0: padded, 4 or 6 bits)
TYPES = {"f16": ("f16", 0, 1, 2), "bf16": ("f16", 1, 1, 2), "tf32": ("tf32", 2, 1, 4), "e4m3": ("f8f6f4", 0, 1, 1), "e5m2": ("f8f6f4", 1, 1, 1),
         "e2m3": ("f8f6f4", 3, 1, 0), "e3m2": ("f8f6f4", 4, 1, 0), "e2m1": ("f8f6f4", 5, 1, 0), "u8": ("i8", 0, 2, 1), "s8": ("i8", 1, 2, 1)}
D, A, SCALE_A, SCALE_B = 0, 256, 320, 352  # columns


def module_of(name, what, type_name):
    module = Module("tcgen05_mma", name, what, block=128, shared=SHARED, target="sm_100a", version="8.8")
    size = TYPES.get(type_name, (0, 0, 0, 0))[3]
    for letter, seed in (("a", 1), ("b", 2)):
        if size == 0:
            module.input(letter, "b8", 32768, f"bits 32768 seed {seed}")  # every code is a number
        else:
            low = 0 if type_name == "u8" else -4
            module.input(letter, "f32" if type_name == "tf32" else type_name, 32768 // size, f"whole {32768 // size} seed {seed} {low} 4")
    module.declare(".reg .b32 %lane, %v<4>, %hash;")
    return module


def begin(module):
    """Shared memory filled, 512 columns allocated; tensor memory full of small whole numbers: (lane + column) % 4 in each cell."""
    module.copy_to_shared("%a", A_AT, 32768)
    module.copy_to_shared("%b", B_AT, 32768)
    module.copy_to_shared("%a", B_AT + 32768, 32768)
    module.add("""
        setp.ge.u32 %p0, %t, 32;
        setp.ne.u32 %p1, %t, 0;
        @%p1 bra INITIALISED;
        mbarrier.init.shared::cta.b64 [%data], 1;
        fence.mbarrier_init.release.cluster;
        INITIALISED:
        @%p0 bra ALLOCATED;
        add.u32 %r0, %data, 16;
        tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r0], 512;
        tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
        ALLOCATED:
        bar.sync 0;
        and.b32 %lane, %t, 96;
        shl.b32 %lane, %lane, 16;
    """)


def store(module, column, columns, word):
    """Cells of `columns` columns become `word`, PTX that makes %v0 of the column %r1."""
    loop = module.label()
    module.add(f"""
        mov.u32 %r1, 0;
        {loop}:
        {word}
        add.u32 %r2, %lane, %r1;
        tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2+{column}], {{%v0}};
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p2, %r1, {columns};
        @%p2 bra {loop};
    """)


def multiply(module, instructions):
    module.add("""
        tcgen05.wait::st.sync.aligned;
        fence.proxy.async.shared::cta;
        tcgen05.fence::before_thread_sync;
        bar.sync 0;
        @%p1 bra ISSUED;
        tcgen05.fence::after_thread_sync;
        setp.eq.u32 %p3, %t, 0;
    """)
    module.add(instructions)
    module.add("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%data];\nISSUED:")
    module.wait(0, 0)
    module.add("tcgen05.fence::after_thread_sync;")


def finish(module, columns):
    loop = module.label()
    module.output("d", "b32", 128)
    module.add(f"""
        mov.u32 %r1, 0;
        mov.u32 %hash, 0;
        {loop}:
        add.u32 %r2, %lane, %r1;
        tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%v0}}, [%r2+{D}];
        tcgen05.wait::ld.sync.aligned;
        mad.lo.u32 %hash, %hash, 0x01000193, %v0;
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p2, %r1, {columns};
        @%p2 bra {loop};
        mul.wide.u32 %rd0, %t, 4;
        add.s64 %rd0, %rd0, %d;
        st.global.b32 [%rd0], %hash;
        tcgen05.fence::before_thread_sync;
        bar.sync 0;
        @%p0 bra DONE;
        tcgen05.fence::after_thread_sync;
        mov.u32 %r0, 0;
        tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r0, 512;
        DONE:
    """)
    return module.file()


def shared_descriptor(register, at, swizzle, mn_major):
    span = SPANS[swizzle]
    rows = 4 if swizzle == "128B_32B" and mn_major else 8
    leading, stride = (2048, 128) if swizzle == "none" else (8192, rows * span)
    constant = MODES[swizzle] << 61 | 1 << 46 | (leading >> 4) << 16 | (stride >> 4) << 32
    return f"add.u32 %r3, %data, {at}; and.b32 %r3, %r3, 0x3ffff; shr.u32 %r3, %r3, 4; cvt.u64.u32 {register}, %r3; or.b64 {register}, {register}, {constant:#x};\n"


def instruction(code, d, m, n, a_mn=0, b_mn=0):
    return d << 4 | code << 7 | code << 10 | a_mn << 15 | b_mn << 16 | n >> 3 << 17 | m >> 4 << 24


WHOLE = "add.u32 %v1, %r1, %t; and.b32 %v1, %v1, 3;"


def product(name, what, type_name, m=128, n=32, swizzle="128B", a_mn=0, b_mn=0, ws=False, a_tensor=False, lane=0, more="", form=""):
    kind, code, d, _ = TYPES[type_name]
    module = module_of(name, what, type_name)
    begin(module)
    store(module, D, 256, WHOLE + (" mov.b32 %v0, %v1;" if d == 2 else " cvt.rn.f32.u32 %v0, %v1;"))
    if a_tensor:  # the thread's own row: 8 words of A's image
        module.add("shl.b32 %r4, %t, 5; add.u32 %r4, %r4, %data;")
        store(module, A, 8, f"shl.b32 %r5, %r1, 2; add.u32 %r5, %r5, %r4; ld.shared.b32 %v0, [%r5+{A_AT}];")
    a = f"[%r6+{A}]" if a_tensor else "%rd1"
    mask = "{%v0, %v1, %v2, %v3}, " if form == "mask" else ""
    masks = "".join(f"mov.u32 %v{i}, {word};\n" for i, word in enumerate(("1", "0x80000000", "0xffff0000", "0"))) if mask else ""
    predicate = "!%p3" if form == "overwrite" else "%p3"
    multiply(module, shared_descriptor("%rd1", A_AT, swizzle, a_mn) + shared_descriptor("%rd2", B_AT, swizzle, b_mn) +
             f"mov.u32 %r6, {lane << 16};\nmov.u32 %r7, {instruction(code, d, m, n, a_mn, b_mn):#x};\n" + masks +
             f"tcgen05.mma{'.ws' if ws else ''}.cta_group::1.kind::{kind} [%r6+{D}], {a}, %rd2, %r7, {mask}{predicate}{more};")
    return finish(module, n if not ws or m == 128 else n * m // 128)


def scaled(name, what, kind, block, type_name="e2m1", n=32, ids=(0, 0), ue8m0=1):
    code = TYPES[type_name][1] if kind == "mxf8f6f4" else 1
    module = module_of(name, what, type_name)
    begin(module)
    store(module, D, 256, WHOLE + " cvt.rn.f32.u32 %v0, %v1;")
    # Powers of two, the same in all four quarters: bytes of 126 to 129 (ue8m0), or of 0.5 to 4 (ue4m3).
    scales = "and.b32 %v1, %t, 31; add.u32 %v1, %v1, %r1; and.b32 %v1, %v1, 3; " + (
        "mad.lo.u32 %v0, %v1, 0x01010101, 0x7e7e7e7e;" if ue8m0 else "mad.lo.u32 %v0, %v1, 0x08080808, 0x30303030;")
    store(module, SCALE_A, 8, scales)
    store(module, SCALE_B, 8, scales)
    idesc = (instruction(code, 0, 128, n)) | ids[1] << 4 | ids[0] << 29 | ue8m0 << 23
    multiply(module, shared_descriptor("%rd1", A_AT, "128B", 0) + shared_descriptor("%rd2", B_AT, "128B", 0) +
             f"mov.u32 %r6, 0;\nmov.u32 %r7, {idesc:#x};\n"
             f"tcgen05.mma.cta_group::1.kind::{kind}.block_scale.block{block} [%r6+{D}], %rd1, %rd2, %r7, [%r6+{SCALE_A}], [%r6+{SCALE_B}], %p3;")
    return finish(module, n)


def files():
    made = []
    for type_name in TYPES:
        made.append(product(f"ss_{type_name}", f"tcgen05.mma of {type_name}", type_name))
        made.append(product(f"ts_{type_name}", f"tcgen05.mma of {type_name}, A in tensor memory", type_name, a_tensor=True))
    for type_name in ("bf16", "tf32", "e4m3"):
        for a_mn, b_mn in ((0, 0), (1, 0), (0, 1), (1, 1)):
            for swizzle in ("128B_32B",) if type_name == "tf32" and (a_mn or b_mn) else ("none", "32B", "64B", "128B"):
                made.append(product(f"layout_{type_name}_{swizzle}_{'mn' if a_mn else 'k'}_{'mn' if b_mn else 'k'}",
                                    f"A {'M' if a_mn else 'K'}-major, B {'N' if b_mn else 'K'}-major, {swizzle}", type_name,
                                    swizzle=swizzle, a_mn=a_mn, b_mn=b_mn))
    for m, n in ((64, 8), (64, 256), (128, 8), (128, 16), (128, 24), (128, 256)):
        made.append(product(f"shape_m{m}_n{n}", f"M = {m}, N = {n}", "bf16", m=m, n=n))
    made.append(product("shape_m64_lane16", "M = 64 in the upper half of each quarter", "bf16", m=64, lane=16))
    for m in (32, 64, 128):
        made.append(product(f"ws_m{m}", f".ws, M = {m}", "bf16", m=m, n=128, ws=True))
    made.append(product("overwrite", "D is not read", "bf16", form="overwrite"))
    made.append(product("mask", "disable-output-lane", "bf16", form="mask"))
    made.append(product("scale_input_d", "scale-input-d", "bf16", more=", 3"))
    for type_name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1"):
        made.append(scaled(f"mxf8f6f4_{type_name}", f"mxf8f6f4 of {type_name}", "mxf8f6f4", 32, type_name, ids=(1, 3)))
    made.append(scaled("mxf4", "mxf4", "mxf4", 32, ids=(2, 0)))
    made.append(scaled("mxf4nvf4_block32", "mxf4nvf4, ue8m0 for 32", "mxf4nvf4", 32, ids=(0, 2)))
    made.append(scaled("mxf4nvf4_block16", "mxf4nvf4, ue8m0 for 16", "mxf4nvf4", 16))
    made.append(scaled("mxf4nvf4_ue4m3", "mxf4nvf4, ue4m3 for 16", "mxf4nvf4", 16, ue8m0=0))
    return made
