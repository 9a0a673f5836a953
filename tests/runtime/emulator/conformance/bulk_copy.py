"""cp.async.bulk and cp.reduce.async.bulk, st.async, red.async, mapa, and the mbarriers that they complete on."""
from conformance.ptx_text import Module

TILE = 1024


def round_trip():
    module = Module("bulk_copy", "load_and_store", "global to shared memory and back, in two groups", shared=TILE + 4096)
    module.input("x", "b32", 1024, "bits 1024 seed 1")
    out = module.output("out", "b32", 1024)
    module.add(f"""
        setp.eq.u32 %p0, %t, 0;
        @%p0 mbarrier.init.shared::cta.b64 [%data], 1;
        @%p0 fence.mbarrier_init.release.cluster;
        bar.sync 0;
        add.u32 %r10, %data, {TILE};
        add.u32 %r11, %data, {TILE + 16};
        mov.u32 %r12, 4080;
        @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%data], 4096;
        @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%x], 16, [%data];
        add.s64 %rd1, %x, 16;
        @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r11], [%rd1], %r12, [%data];
    """)
    module.wait(0, 0)
    module.add(f"""
        add.s64 %rd2, {out}, 2048;
        add.u32 %r13, %data, {TILE + 2048};
        @%p0 cp.async.bulk.global.shared::cta.bulk_group [{out}], [%r10], 2048;
        @%p0 cp.async.bulk.commit_group;
        @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r13], 2048;
        @%p0 cp.async.bulk.commit_group;
        @%p0 cp.async.bulk.wait_group.read 1;
        @%p0 cp.async.bulk.wait_group 0;
    """)
    yield module.file()


REDUCTIONS = [("add", t) for t in ("u32", "s32", "u64", "f32", "f64")] + [("add.noftz", t) for t in ("f16", "bf16")]
REDUCTIONS += [(op, t) for op in ("min", "max") for t in ("u32", "s32", "u64", "s64", "f16", "bf16")]
REDUCTIONS += [("inc", "u32"), ("dec", "u32")] + [(op, t) for op in ("and", "or", "xor") for t in ("b32", "b64")]
SIZES = {"u32": 4, "s32": 4, "u64": 8, "s64": 8, "f32": 4, "f64": 8, "f16": 2, "bf16": 2, "b32": 4, "b64": 8}


def reductions():
    for operation, kind in REDUCTIONS:
        module = Module("bulk_copy", f"reduce_{operation.split('.')[0]}_{kind}", f"cp.reduce.async.bulk to global memory, .{operation}.{kind}", shared=TILE + 1024)
        count = 1024 // SIZES[kind]
        low_high = {"f32": "-20 20", "f64": "-20 20", "f16": "-12 12", "bf16": "-20 20"}.get(kind, f"0 {8 * SIZES[kind]}")
        module.input("from", kind, count, f"special {count // 2} stride 1, spread {count - count // 2} seed 5 {low_high}")
        module.buffer("inout", "x", kind, count, f"exact = special {count // 2} stride 5, spread {count - count // 2} seed 6 {low_high}")
        module.copy_to_shared("%from", TILE, 1024)
        module.add(f"""
            setp.eq.u32 %p0, %t, 0;
            fence.proxy.async.shared::cta;
            bar.sync 0;
            add.u32 %r10, %data, {TILE};
            @%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{kind} [%x], [%r10], 1024;
            @%p0 cp.async.bulk.commit_group;
            @%p0 cp.async.bulk.wait_group 0;
        """)
        yield module.file()


def cluster():
    """CTA 0 writes into CTA 1 by each of the ways there are; CTA 1 waits for all of it."""
    module = Module("bulk_copy", "to_the_cluster", "copies, reductions and stores into the other CTA's shared memory", cluster=2, shared=TILE + 2048)
    module.input("x", "b32", 256, "bits 256 seed 7")
    out = module.output("out", "b32", 1024)
    ranks = module.output("ranks", "b32", 4)
    ways = [("red.async", op, kind) for op, kind in (("add", "u32"), ("add", "s32"), ("min", "u32"), ("max", "s32"), ("inc", "u32"),
                                                     ("dec", "u32"), ("and", "b32"), ("or", "b32"), ("xor", "b32"), ("add", "u64"))]
    stores = [("", "b32", "%r5"), (".v2", "u32", "{%r5, %r6}"), (".v4", "s32", "{%r5, %r6, %r7, %r8}"), ("", "b64", "%rd5"), (".v2", "u64", "{%rd5, %rd6}")]
    red_bytes = 8 * sum(SIZES[kind] for _, _, kind in ways)  # by 8 threads
    total = 1024 + 512 + red_bytes + 4 + 8 + 16 + 8 + 16
    module.add("""
        setp.eq.u32 %p0, %t, 0;
        setp.lt.u32 %p2, %t, 8;
        mov.u32 %r15, %cluster_ctarank;
        setp.eq.u32 %p1, %r15, 0;
        @%p0 mbarrier.init.shared::cta.b64 [%data], 1;
        @%p0 fence.mbarrier_init.release.cluster;
        and.pred %p3, %p0, %p1;
        and.pred %p2, %p2, %p1;
    """)
    module.fill_shared(TILE, 2048, 0x01234567)
    module.copy_to_shared("%x", TILE, 1024)
    module.add(f"""
        fence.proxy.async.shared::cta;
        bar.sync 0;
        @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%data], {total};
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
        mapa.shared::cluster.u32 %r0, %data, 1;
        cvt.u64.u32 %rd7, %data;
        cvta.shared.u64 %rd8, %rd7;
        mapa.u64 %rd9, %rd8, 1;
        getctarank.u64 %r1, %rd9;
        getctarank.shared::cluster.u32 %r2, %r0;
        add.u32 %r10, %data, {TILE};
        add.u32 %r11, %r0, {TILE + 1024};
        @%p3 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r11], [%r10], 1024, [%r0];
        add.u32 %r12, %r0, {TILE};
        @%p3 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r12], [%r10], 512, [%r0];
        shl.b32 %r5, %t, 4;
        add.u32 %r5, %r5, 3;
        mul.lo.u32 %r6, %r5, 77777777;
        mul.lo.u32 %r7, %r5, 55555555;
        not.b32 %r8, %r5;
        mov.b64 %rd5, {{%r6, %r7}};
        mov.b64 %rd6, {{%r8, %r5}};
    """)
    at = TILE + 512
    for _, operation, kind in ways:
        value = "%rd5" if kind == "u64" else "%r6"
        module.add(f"@%p2 red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{operation}.{kind} [%r0+{at}], {value}, [%r0];")
        at += 8
    at = TILE + 768
    for vector, kind, value in stores:
        module.add(f"@%p3 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes{vector}.{kind} [%r0+{at}], {value}, [%r0];")
        at += 16
    module.add("@!%p1 bra WAIT;\n@%p0 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%data], %r13;".replace("%r13", str(total)))
    module.add("WAIT:")
    module.wait(0, 0)
    module.add(f"mul.wide.u32 %rd1, %r15, 2048;\nadd.s64 %rd1, %rd1, {out};")
    module.copy_from_shared("%rd1", TILE, 2048)
    module.add(f"""
        @%p3 st.global.v2.b32 [{ranks}], {{%r1, %r2}};
        mov.u32 %r16, 0;
        @%p3 st.global.v2.b32 [{ranks}+8], {{%r16, %r16}};
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
    """)
    yield module.file()


def mbarriers():
    module = Module("bulk_copy", "mbarrier", "phases, counts and states of an mbarrier, as one thread sees them", block=1, shared=64)
    names = []

    def show(name, code):
        names.append((name, code))

    show("fresh_parity_0", "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%data], 0;")
    show("fresh_parity_1", "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%data], 1;")
    show("state", "mbarrier.arrive.shared::cta.b64 %rd1, [%data];\nmbarrier.test_wait.shared::cta.b64 %p1, [%data], %rd1;")
    show("no_complete", "mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %rd2, [%data], 1;\nmbarrier.test_wait.shared::cta.b64 %p1, [%data], %rd2;")
    show("last", "mbarrier.arrive.release.cta.shared::cta.b64 %rd3, [%data], 1;\nmbarrier.test_wait.shared::cta.b64 %p1, [%data], %rd3;")
    show("state_is_past", "mbarrier.test_wait.shared::cta.b64 %p1, [%data], %rd1;")
    show("phase_1_parity_0", "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 %p1, [%data], 0;")
    show("phase_1_parity_1", "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%data], 1;")
    show("bytes_hold_it", "mbarrier.arrive.expect_tx.shared::cta.b64 %rd4, [%data], 64;\nmbarrier.arrive.shared::cta.b64 %rd5, [%data], 2;\nmbarrier.test_wait.shared::cta.b64 %p1, [%data], %rd5;")
    show("half_of_them", "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%data], 32;\nmbarrier.test_wait.shared::cta.b64 %p1, [%data], %rd5;")
    show("all_of_them", "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%data], 32;\nmbarrier.test_wait.shared::cta.b64 %p1, [%data], %rd5;")
    show("early_bytes", "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%data], 16;\nmbarrier.arrive.shared::cta.b64 %rd6, [%data], 3;\nmbarrier.test_wait.shared::cta.b64 %p1, [%data], %rd6;")
    show("expected_late", "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%data], 16;\nmbarrier.test_wait.shared::cta.b64 %p1, [%data], %rd6;")
    show("dropped", "mbarrier.arrive_drop.shared::cta.b64 %rd7, [%data];\nmbarrier.arrive.shared::cta.b64 %rd7, [%data], 2;\nmbarrier.test_wait.shared::cta.b64 %p1, [%data], %rd7;")
    show("two_are_enough", "mbarrier.arrive.shared::cta.b64 %rd8, [%data], 2;\nmbarrier.test_wait.shared::cta.b64 %p1, [%data], %rd8;")
    show("try_wait_state", "mbarrier.try_wait.shared::cta.b64 %p1, [%data], %rd8, 100;")
    tests = module.output("tests", "b32", len(names))
    counts = module.output("counts", "b32", 8)
    module.add("mbarrier.init.shared::cta.b64 [%data], 3;")
    for index, (_, code) in enumerate(names):
        module.add(code)
        module.add(f"selp.u32 %r1, 1, 0, %p1;\nst.global.b32 [{tests}+{4 * index}], %r1;")
    for index in range(8):
        module.add(f"mbarrier.pending_count.b64 %r1, %rd{index + 1};\nst.global.b32 [{counts}+{4 * index}], %r1;")
    module.add("mbarrier.inval.shared::cta.b64 [%data];")
    yield module.file()


def files():
    return [*round_trip(), *reductions(), *cluster(), *mbarriers()]
