"""shfl, vote, match, redux, elect: lanes of a warp."""
from conformance.warp_module import module

FAMILY = "warp"
VALUES = ("a", "b32", 32, "bits 32 seed 1")


def shuffles():
    ins = [VALUES, ("b", "b32", 32, "random 32 seed 2 0 40")]
    outs, body = [], "ld.global.b32 %r0, [{at0}]; ld.global.b32 %r1, [{at1}]; "
    for mode in ("up", "down", "bfly", "idx"):
        for b in ("1", "5", "%r1"):
            if b == "%r1" and mode != "idx":
                continue
            for c in ("0", "0x1f", "0x181f", "0x1c03", "0x0f0f", "0x1000"):
                form = f"shfl.sync.{mode}.b32/{'lane' if b == '%r1' else b}/{c}"
                target = 2 + len(outs)
                body += (f"shfl.sync.{mode}.b32 %r2|%p1, %r0, {b}, {c}, 0xffffffff; st.global.b32 [{{at{target}}}], %r2; "
                         f"selp.u32 %r3, 1, 0, %p1; st.global.b32 [{{at{target + 1}}}], %r3; ")
                outs += [(form, "b32", 32, "bits"), (form + "/predicate", "b32", 32, "bits")]
    body += f"shfl.sync.idx.b32 %r2, %r0, %r1, 31, -1; st.global.b32 [{{at{2 + len(outs)}}}], %r2; "
    outs.append(("shfl.sync.idx.b32/alone", "b32", 32, "bits"))
    body += (f"setp.lt.u32 %p2, %lane, 16; mov.b32 %r2, 0; @%p2 shfl.sync.bfly.b32 %r2, %r0, 3, 31, 0xffff; "
             f"@!%p2 shfl.sync.down.b32 %r2, %r0, 1, 31, 0xffff0000; st.global.b32 [{{at{2 + len(outs)}}}], %r2; ")
    outs.append(("shfl.sync/members", "b32", 32, "bits"))
    return module(FAMILY, "shfl", "shfl.sync", ins, outs, body)


def votes():
    ins = [("a", "b32", 8 * 32, "fill 32 0, fill 32 1, random 192 seed 3 0 1")]
    outs, body = [], ""
    for i in range(8):
        body += f"ld.global.b32 %r0, [{{at0}}+{128 * i}]; setp.ne.u32 %p1, %r0, 0; "
        for j, form in enumerate(("all", "any", "uni")):
            for k, predicate in enumerate(("%p1", "!%p1")):
                body += (f"vote.sync.{form}.pred %p2, {predicate}, -1; selp.u32 %r1, 1, 0, %p2; "
                         f"st.global.b32 [{{at{1 + 2 * j + k}}}+{128 * i}], %r1; ")
        for k, predicate in enumerate(("%p1", "!%p1")):
            body += f"vote.sync.ballot.b32 %r1, {predicate}, -1; st.global.b32 [{{at{7 + k}}}+{128 * i}], %r1; "
    for form in ("all.pred", "any.pred", "uni.pred", "ballot.b32"):
        for negated in ("", "/negated"):
            outs.append((f"vote.sync.{form}{negated}", "b32", 256, "bits"))
    body += ("mov.b32 %r1, 0; setp.lt.u32 %p3, %lane, 12; setp.gt.u32 %p1, %lane, 5; "
             "@%p3 vote.sync.ballot.b32 %r1, %p1, 0xfff; st.global.b32 [{at9}], %r1; ")
    outs.append(("vote.sync.ballot.b32/members", "b32", 32, "bits"))
    return module(FAMILY, "vote", "vote.sync", ins, outs, body)


def matches():
    ins = [("a", "b32", 128, "random 32 seed 4 0 5, fill 32 7, bits 32 seed 5, fill 31 1, list 2")]
    outs = [(f"match.{kind}.sync.{t}{p}", "b32", 128, "bits")
            for kind, p in (("any", ""), ("all", ""), ("all", "/predicate")) for t in ("b32", "b64")]
    body = ""
    for i in range(4):
        body += f"ld.global.b32 %r0, [{{at0}}+{128 * i}]; cvt.u64.u32 %rd0, %r0; shl.b64 %rd0, %rd0, 33; "
        for j, (t, register) in enumerate((("b32", "%r0"), ("b64", "%rd0"))):
            body += (f"match.any.sync.{t} %r1, {register}, -1; st.global.b32 [{{at{1 + j}}}+{128 * i}], %r1; "
                     f"match.all.sync.{t} %r1|%p1, {register}, -1; st.global.b32 [{{at{3 + j}}}+{128 * i}], %r1; "
                     f"selp.u32 %r1, 1, 0, %p1; st.global.b32 [{{at{5 + j}}}+{128 * i}], %r1; ")
    return module(FAMILY, "match", "match.sync", ins, outs, body)


def each_form(forms, rounds):
    """Every form on `rounds` times 32 elements of the first buffer; each form has an output of its own."""
    body = ""
    for i in range(rounds):
        body += f"ld.global.b32 %r0, [{{at0}}+{128 * i}]; "
        for j, form in enumerate(forms):
            body += f"{form} %r1, %r0, -1; st.global.b32 [{{at{1 + j}}}+{128 * i}], %r1; "
    return body


def reductions():
    forms = [f"redux.sync.{op}.{t}" for op in ("add", "min", "max") for t in ("u32", "s32")]
    forms += [f"redux.sync.{op}.b32" for op in ("and", "or", "xor")]
    body = each_form(forms, 4)
    outs = [(form, "b32", 128, "bits") for form in forms]
    body += "mov.b32 %r1, 0; setp.lt.u32 %p3, %lane, 12; @%p3 redux.sync.add.u32 %r1, %r0, 0xfff; st.global.b32 [{at10}], %r1; "
    outs.append(("redux.sync.add.u32/members", "b32", 32, "bits"))
    return module(FAMILY, "redux", "redux.sync", [("a", "b32", 128, "special 64 stride 1, bits 64 seed 6")], outs, body)


def float_reductions():
    forms = [f"redux.sync.{op}{absolute}{nan}.f32" for op in ("min", "max") for absolute in ("", ".abs") for nan in ("", ".NaN")]
    body = each_form(forms, 5)
    outs = [(form, "f32", 160, "bits") for form in forms]
    body += "mov.b32 %r1, 0; setp.lt.u32 %p3, %lane, 12; @%p3 redux.sync.max.f32 %r1, %r0, 0xfff; st.global.b32 [{at9}], %r1; "
    outs.append(("redux.sync.max.f32/members", "f32", 32, "bits"))
    values = "special 32 stride 1, spread 32 seed 7 -130 127, fill 31 -0.0, list 0, fill 32 nan, spread 32 seed 8 -3 3"
    return module(FAMILY, "redux.f32", "redux.sync of f32", [("a", "f32", 160, values)], outs, body, target="sm_100a", version="8.6")


def elections():
    body = ("elect.sync %r0|%p1, -1; st.global.b32 [{at1}], %r0; selp.u32 %r1, 1, 0, %p1; st.global.b32 [{at2}], %r1; "
            "mov.b32 %r1, 0; setp.ge.u32 %p3, %lane, 20; @%p3 elect.sync _|%p2, 0xfff00000; @%p3 selp.u32 %r1, 1, 0, %p2; "
            "st.global.b32 [{at3}], %r1; ")
    return module(FAMILY, "elect", "elect.sync", [VALUES],
                  [("elect.sync", "b32", 32, "bits"), ("elect.sync/predicate", "b32", 32, "bits"),
                   ("elect.sync/members", "b32", 32, "bits")], body, target="sm_90")


def launched(name, what, registers, body_of):
    """A file with an output for each register: a word for each thread of a grid of clusters."""
    body = "mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ctaid.y; mad.lo.u32 %r2, %r3, 4, %r2; mul.wide.u32 %rd0, %r2, 256; "
    for i, register in enumerate(registers):
        body += f"{body_of(register)} add.s64 %rd1, %rd0, {{at{i}}}; st.global.b32 [%rd1], %r0; "
    file = module(FAMILY, name, what, [], [(register, "b32", 512, "bits") for register in registers], body, block=64,
                  target="sm_90", version="8.6")
    file.text = file.text.replace("// launch: grid 1 1 1 block 64", "// launch: grid 4 2 1 block 64 cluster 2 1 1")
    return file


def registers():
    """Special registers whose values the launch decides."""
    names = [f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid")
             for axis in "xyzw"]
    names += ["%laneid", "%cluster_ctarank", "%cluster_nctarank", "%dynamic_smem_size"]
    names += [f"%lanemask_{kind}" for kind in ("eq", "le", "lt", "ge", "gt")]
    half = [name for name in names[:16] if name[-1] in "xw"]
    yield launched("registers", "special registers that the launch decides", names, lambda name: f"mov.u32 %r0, {name};")
    yield launched("registers_16_bits", "special registers as 16 bits", half, lambda name: f"mov.u16 %h0, {name}; cvt.u32.u16 %r0, %h0;")
    yield launched("registers_explicit_cluster", "a special register that is a predicate", ["%is_explicit_cluster"],
                   lambda name: f"mov.pred %p1, {name}; selp.u32 %r0, 1, 0, %p1;")


def machine_registers():
    """Registers of which the ISA does not say what a launch finds in them: a file each, so that a GPU tells them apart. Left out are
    %warpid, which differs from run to run, and what a driver keeps in the other environment registers and at the other offsets."""
    yield launched("registers_nwarpid", "how many warps have identifiers", ["%nwarpid"], lambda name: f"mov.u32 %r0, {name};")
    yield launched("registers_envreg", "which environment registers of grids are zero: both, unless the launch is cooperative", ["%envreg1", "%envreg2"],
                   lambda name: f"mov.b32 %r0, {name}; setp.eq.u32 %p1, %r0, 0; selp.u32 %r0, 1, 0, %p1;")
    yield launched("registers_reserved_shared", "where the reserved shared memory lies",
                   [f"%reserved_smem_offset_{end}" for end in ("begin", "cap", "0")], lambda name: f"mov.u32 %r0, {name};")


def files():
    return [shuffles(), votes(), matches(), reductions(), float_reductions(), elections(), *registers(), *machine_registers()]
