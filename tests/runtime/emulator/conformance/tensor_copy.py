"""cp.async.bulk.tensor: boxes of one to five dimensions, swizzles, edges of the tensor, multicast, stores, reductions.

The innermost coordinate is a multiple of 16 bytes, and a store begins inside the tensor: an H100 takes others for illegal
instructions. A load is seen as the shared memory that it leaves, so that every byte of the layout is recorded, and what it leaves alone.
"""
import itertools

from conformance.ptx_text import Module

BYTES = {"bf16": 2, "f16": 2, "f32": 4, "e4m3": 1}
INTEGER = {1: "u8", 2: "b16", 4: "b32"}
TILE = 1024  # the mbarrier is at 0
SPANS = {"none": 0, "32B": 32, "64B": 64, "128B": 128}


def tensor(module, dtype, dims, name="x"):
    """Whole numbers in rows padded to 16 bytes; returns the strides."""
    size = BYTES[dtype]
    strides, pitch = [], (dims[0] * size + 15) // 16 * 16
    for extent in dims[1:]:
        strides.append(pitch)
        pitch *= extent
    count = pitch // size
    module.input(name, dtype, count, f"bits {count} seed {len(dims)}")
    return strides


def begin(module, barriers=1):
    module.add("setp.eq.u32 %p0, %t, 0;")
    for i in range(barriers):
        module.add(f"@%p0 mbarrier.init.shared::cta.b64 [%data+{8 * i}], 1;")
    module.add("@%p0 fence.mbarrier_init.release.cluster;\nbar.sync 0;")


def load(module, tensor_map, coordinates, box_bytes, phase, modifier="", mask=""):
    registers = ", ".join(f"%r{i}" for i in range(len(coordinates)))
    for i, value in enumerate(coordinates):
        module.add(f"mov.u32 %r{i}, {value};")
    module.add(f"""
        fence.proxy.async.shared::cta;
        bar.sync 0;
        add.u32 %r10, %data, {TILE};
        @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 %rd0, [%data], {box_bytes};
        @%p0 cp.async.bulk.tensor.{len(coordinates)}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{modifier} [%r10], [{tensor_map}, {{{registers}}}], [%data]{mask};
    """)
    module.wait(0, phase & 1)


def loads(name, what, dtype, dims, cases):
    """cases: (output, box, swizzle, coordinates)."""
    module = Module("tensor_copy", name, what, shared=TILE + 4096)
    strides = tensor(module, dtype, dims)
    prepared = []
    for index, (output, box, swizzle, coordinates) in enumerate(cases):
        size = BYTES[dtype]
        for extent in box:
            size *= extent
        shown = (size + 127) // 128 * 128 + 128  # and some that stays as it is
        register = module.output(output, "b32", shown // 4)
        prepared.append((module.map(f"m{index}", "x", dtype, dims, strides, box, swizzle), coordinates, size, shown, register))
    begin(module)
    for phase, (tensor_map, coordinates, size, shown, register) in enumerate(prepared):
        module.add("bar.sync 0;")
        module.fill_shared(TILE, shown, 0xeeeeeeee)
        load(module, tensor_map, coordinates, size, phase)
        module.copy_from_shared(register, TILE, shown)
    return module.file()


def swizzles():
    for dtype in BYTES:
        size = BYTES[dtype]
        cases = []
        for swizzle, span in SPANS.items():
            for row in (16, 32, 64, 128):
                if span and row > span:
                    continue
                cases.append((f"s{swizzle}_{row}", (row // size, 9), swizzle, (16 // size, 1)))
        yield loads(f"swizzles_{dtype}", f"boxes of 9 rows of {dtype}, of every width that a swizzle takes", dtype, (160 // size, 12), cases)


def edges():
    for swizzle, row in (("none", 64), ("32B", 32), ("64B", 64), ("128B", 128)):
        box = (row // 2, 4)
        cases = [(f"at_{x}_{y}".replace("-", "minus"), box, swizzle, (x, y))
                 for x, y in itertools.product((-8, 0, 32), (-2, 3))]
        cases += [("outside_left", box, swizzle, (-200, 0)), ("outside_below", box, swizzle, (0, 90))]
        yield loads(f"edges_{swizzle}", f"boxes over the edges of a tensor of 43 x 6 bf16, swizzle {swizzle}", "bf16", (43, 6), cases)


def ranks():
    yield loads("rank_1", "boxes of one dimension", "f32", (50,), [("inside", (16,), "none", (4,)), ("over", (32,), "none", (40,)),
                                                                 ("before", (8,), "32B", (-4,))])
    yield loads("rank_3", "boxes of three dimensions", "bf16", (24, 5, 4),
                [("inside", (16, 2, 2), "32B", (8, 1, 1)), ("over", (16, 3, 3), "none", (16, 3, 2)), ("before", (8, 2, 2), "none", (-8, -1, -1))])
    yield loads("rank_4", "boxes of four dimensions", "f16", (16, 3, 4, 3),
                [("inside", (16, 2, 2, 2), "32B", (0, 1, 1, 1)), ("over", (8, 2, 2, 2), "none", (8, 2, 3, 2)), ("before", (8, 2, 1, 2), "none", (-8, -1, 0, -1))])
    yield loads("rank_5", "boxes of five dimensions", "e4m3", (32, 3, 2, 3, 2),
                [("inside", (32, 2, 2, 2, 2), "32B", (0, 1, 0, 1, 0)), ("over", (16, 2, 1, 2, 2), "none", (16, 2, 1, 2, 1)), ("before", (16, 1, 2, 1, 2), "none", (-16, 0, -1, 2, -1))])


def multicast():
    module = Module("tensor_copy", "multicast", "one box into both CTAs of a cluster, by each of them in turn", cluster=2, shared=TILE + 2048)
    strides = tensor(module, "bf16", (64, 16))
    first = module.map("m0", "x", "bf16", (64, 16), strides, (64, 8), "128B")
    out = module.output("out", "b32", 2 * 512)
    begin(module)
    module.fill_shared(TILE, 2048, 0xeeeeeeee)
    module.add(f"""
        mov.u32 %r15, %cluster_ctarank;
        mov.u32 %r0, 0;
        shl.b32 %r1, %r15, 2;
        shl.b32 %r10, %r15, 10;
        add.u32 %r10, %r10, %data;
        add.u32 %r10, %r10, {TILE};
        fence.proxy.async.shared::cta;
        @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 %rd0, [%data], 2048;
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
    """)
    module.declare(".reg .b16 %mask;")
    module.add(f"""
        mov.b16 %mask, 3;
        @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r10], [{first}, {{%r0, %r1}}], [%data], %mask;
    """)
    module.wait(0, 0)
    module.add(f"mul.wide.u32 %rd1, %r15, 2048;\nadd.s64 %rd1, %rd1, {out};")
    module.copy_from_shared("%rd1", TILE, 2048)
    module.add("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
    yield module.file()


def stores():
    for swizzle, row in (("none", 48), ("32B", 32), ("64B", 64), ("128B", 128)):
        module = Module("tensor_copy", f"store_{swizzle}", f"stores of boxes over the edges of a tensor, swizzle {swizzle}", shared=TILE + 4096)
        module.input("from", "b32", 1024, "bits 1024 seed 3")
        dims = (70, 11)
        module.output("x", "bf16", 72 * 11, "bits")
        strides, box = [144], (row // 2, 4)
        tensor_map = module.map("m", "x", "bf16", dims, strides, box, swizzle)
        module.copy_to_shared("%from", TILE, 4096)
        module.add("setp.eq.u32 %p0, %t, 0;\nfence.proxy.async.shared::cta;\nbar.sync 0;")
        for i, (x, y) in enumerate(((0, 1), (row // 2, 0), (8, 9), (200, 3), (56, 5))):
            module.add(f"""
                mov.u32 %r0, {x};
                mov.u32 %r1, {y};
                add.u32 %r10, %data, {TILE + 512 * i};
                @%p0 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [{tensor_map}, {{%r0, %r1}}], [%r10];
            """)
        module.add("@%p0 cp.async.bulk.commit_group;\n@%p0 cp.async.bulk.wait_group 0;")
        yield module.file()


def reductions():
    for dtype, operations in (("bf16", ("add", "min", "max")), ("f16", ("add", "min", "max")), ("f32", ("add",))):
        for operation in operations:
            module = Module("tensor_copy", f"reduce_{operation}_{dtype}", f"cp.reduce.async.bulk.tensor .{operation} of {dtype}", shared=TILE + 1024)
            size = BYTES[dtype]
            count = 1024 // size
            module.input("from", dtype, count, f"spread {count - 64} seed 3 -4 4, special 64 stride 1")
            dims = (256 // size, 4)
            module.buffer("inout", "x", dtype, count, f"exact = spread {count} seed 4 -4 4")
            tensor_map = module.map("m", "x", dtype, dims, [256], dims, "none")
            module.copy_to_shared("%from", TILE, 1024)
            module.add(f"""
                setp.eq.u32 %p0, %t, 0;
                fence.proxy.async.shared::cta;
                bar.sync 0;
                mov.u32 %r0, 0;
                add.u32 %r10, %data, {TILE};
                @%p0 cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.tile.bulk_group [{tensor_map}, {{%r0, %r0}}], [%r10];
                @%p0 cp.async.bulk.commit_group;
                @%p0 cp.async.bulk.wait_group.read 0;
                @%p0 cp.async.bulk.wait_group 0;
            """)
            yield module.file()


MAP = 512  # where a map is edited in shared memory
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%scratch], 128;"


def edited_map(name, what, edit):
    """A kernel that makes a map at %scratch, then loads a box of 4 rows of 16 words with it, at (4, 1)."""
    module = Module("tensor_copy", name, what, shared=TILE + 1024)
    strides = tensor(module, "f32", (36, 9))
    module.input("scratch", "b32", 64, "fill 64 0")
    small = module.map("m", "x", "f32", (36, 5), strides, (16, 2), "64B")
    out = module.output("out", "b32", 96)
    begin(module)
    module.fill_shared(TILE, 384, 0xeeeeeeee)
    module.add("setp.lt.u32 %p1, %t, 32;\nadd.u32 %r25, %data, 512;\nbar.sync 0;")
    edit(module, small)
    load(module, "%scratch", (4, 1), 256, 0)
    module.copy_from_shared(out, TILE, 384)
    return module.file()


def replace(module, space, at, field, ordinal, value, wide=False):
    kind = "b64" if wide else "b32"
    ordinal = "" if ordinal is None else f"{ordinal}, "
    if field in ("elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity", "fill_mode"):
        module.add(f"@%p0 tensormap.replace.tile.{field}.{space}.b1024.{kind} [{at}], {value};")
        return
    register = "%rd9" if wide else "%r26"
    module.add(f"mov.{kind} {register}, {value};\n@%p0 tensormap.replace.tile.{field}.{space}.b1024.{kind} [{at}], {ordinal}{register};")


def copy_map(module, source, target):
    """128 bytes, by the first warp; `target` is a line that stores %r22 at %r20 bytes."""
    module.add(f"""
        shl.b32 %r20, %t, 2;
        cvt.u64.u32 %rd14, %r20;
        add.s64 %rd15, {source}, %rd14;
        @%p1 ld.b32 %r22, [%rd15];
        {target}
        bar.warp.sync 0xffffffff;
    """)


TO_SHARED = "add.u32 %r21, %r25, %r20;\n@%p1 st.shared.b32 [%r21], %r22;"
FENCED_COPY = """
    bar.warp.sync 0xffffffff;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%scratch], [%r25], 128;
"""


def converted(element, name):
    """A load of f32 numbers with another type in the map."""
    def edit(module, small):
        copy_map(module, small, TO_SHARED)
        replace(module, "shared::cta", "%r25", "elemtype", None, element)
        module.add(FENCED_COPY + ACQUIRE)

    module = Module("tensor_copy", f"elements_{name}", f"loads with a map of {name}", shared=TILE + 1024)
    module.input("x", "f32", 128, "special 64 stride 1, spread 32 seed 1 -149 127, bits 32 seed 2")
    module.input("scratch", "b32", 64, "fill 64 0")
    small = module.map("m", "x", "f32", (16, 8), [64], (16, 8), "none")
    loaded = module.output("loaded", "b32", 128)
    begin(module)
    module.add("setp.lt.u32 %p1, %t, 32;\nadd.u32 %r25, %data, 512;\nbar.sync 0;")
    edit(module, small)
    load(module, "%scratch", (0, 0), 512, 0)
    module.copy_from_shared(loaded, TILE, 512)
    return module.file()


def converted_stores(element, name):
    module = Module("tensor_copy", f"store_{name}", f"a store with a map of {name}", shared=TILE + 1024)
    module.input("from", "f32", 128, "special 64 stride 1, spread 32 seed 1 -149 127, bits 32 seed 2")
    module.output("x", "f32", 128, "bits")
    module.input("scratch", "b32", 64, "fill 64 0")
    small = module.map("m", "x", "f32", (16, 8), [64], (16, 8), "none")
    module.copy_to_shared("%from", TILE, 512)
    module.add("setp.eq.u32 %p0, %t, 0;\nsetp.lt.u32 %p1, %t, 32;\nadd.u32 %r25, %data, 512;\nbar.sync 0;")
    copy_map(module, small, TO_SHARED)
    replace(module, "shared::cta", "%r25", "elemtype", None, element)
    module.add(FENCED_COPY + ACQUIRE)
    module.add(f"""
        fence.proxy.async.shared::cta;
        bar.sync 0;
        mov.u32 %r0, 0;
        add.u32 %r10, %data, {TILE};
        @%p0 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%scratch, {{%r0, %r0}}], [%r10];
        @%p0 cp.async.bulk.commit_group;
        @%p0 cp.async.bulk.wait_group 0;
    """)
    return module.file()


def conversions():
    for element, name in ((8, "f32_ftz"), (11, "tf32"), (12, "tf32_ftz")):
        yield converted(element, name)
        yield converted_stores(element, name)


def edited_maps():
    def in_shared(module, small):
        copy_map(module, small, TO_SHARED)
        replace(module, "shared::cta", "%r25", "global_dim", 1, 4)
        replace(module, "shared::cta", "%r25", "box_dim", 1, 4)
        module.add(FENCED_COPY + ACQUIRE)

    def in_global(module, small):
        copy_map(module, small, "add.s64 %rd15, %scratch, %rd14;\n@%p1 st.global.b32 [%rd15], %r22;")
        replace(module, "global", "%scratch", "global_dim", 1, 4)
        replace(module, "global", "%scratch", "box_dim", 1, 4)
        replace(module, "global", "%scratch", "global_stride", 0, 144, wide=True)
        module.add("fence.proxy.tensormap::generic.release.gpu;\n" + ACQUIRE)

    def of_zeros(module, small):
        copy_map(module, "%scratch", TO_SHARED)
        shared = ("shared::cta", "%r25")
        replace(module, *shared, "global_address", None, "%x", wide=True)
        replace(module, *shared, "rank", None, 1)
        for dimension, (box, size) in enumerate(((16, 36), (4, 4))):
            replace(module, *shared, "box_dim", dimension, box)
            replace(module, *shared, "global_dim", dimension, size)
            replace(module, *shared, "element_stride", dimension, 1)
        replace(module, *shared, "global_stride", 0, 144, wide=True)
        for field, value in (("elemtype", 7), ("interleave_layout", 0), ("swizzle_mode", 2), ("fill_mode", 0)):
            replace(module, *shared, field, None, value)
        module.add(FENCED_COPY + ACQUIRE)

    yield edited_map("map_edited_in_shared", "tensormap.replace in shared memory, tensormap.cp_fenceproxy", in_shared)
    yield edited_map("map_edited_in_global", "tensormap.replace in global memory", in_global)
    yield edited_map("map_made_of_zeros", "tensormap.replace of every field in 128 bytes of zeros", of_zeros)


def files():
    return [*conversions(), *edited_maps(), *swizzles(), *edges(), *ranks(), *multicast(), *stores(), *reductions()]
