"""setp, set, selp, slct."""
from .elementwise import Form, elementwise

ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
UNSIGNED = ORDERED + ("lo", "ls", "hi", "hs")
FLOATING = ORDERED + ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def comparisons(t):
    return ("eq", "ne") if t[0] == "b" and t != "bf16" and t != "bf16x2" else UNSIGNED if t[0] == "u" else ORDERED if t[0] == "s" else FLOATING


def files():
    made = []

    def add(name, types, forms, **more):
        made.append(elementwise("compare", name, types, forms, **more))

    types = ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64", "f16", "bf16")
    for t in types:
        target = {"target": "sm_90"} if t == "bf16" else {}
        add(f"setp.{t}", [t, t], [Form(f"setp.{c}.{t}", "u8", body=f"setp.{c}.{t} %p, %a, %b; selp.u16 %d, 1, 0, %p")
                                  for c in comparisons(t)], **target)
    for t in ("f32", "f16"):
        add(f"setp.ftz.{t}", [t, t], [Form(f"setp.{c}.ftz.{t}", "u8", body=f"setp.{c}.ftz.{t} %p, %a, %b; selp.u16 %d, 1, 0, %p")
                                      for c in comparisons(t)])
    # Two results: p in bit 0, q in bit 1.
    both = "selp.u16 %t16, 1, 0, %p; selp.u16 %u16, 2, 0, %q; or.b16 %d, %t16, %u16"
    for t in ("s32", "f32"):
        add(f"setp.combine.{t}", [t, t, "s32"], [
            Form(f"setp.lt.{op}.{sign}{t}", "u8",
                 body=f"setp.gt.s32 %q, %c, 0; setp.lt.{op}.{t} %p|%q, %a, %b, {'!' if sign else ''}%q; {both}")
            for op in ("and", "or", "xor") for sign in ("", "not.")])
        add(f"setp.pair.{t}", [t, t], [Form(f"setp.{c}.{t}.both", "u8", body=f"setp.{c}.{t} %p|%q, %a, %b; {both}")
                                       for c in ("lt", "ne")])
    for t, target in (("f16x2", "sm_80"), ("bf16x2", "sm_90")):
        add(f"setp.{t}", [t, t], [Form(f"setp.{c}.{t}", "u8", body=f"setp.{c}.{t} %p|%q, %a, %b; {both}") for c in FLOATING], target=target)
        add(f"set.{t}", [t, t], [Form(f"set.{c}.{t}.{t}", t) for c in ("eq", "lt", "geu", "nan")], target=target)
        add(f"set.mask.{t}", [t, t], [Form(f"set.{c}.u32.{t}", "u16x2") for c in ("eq", "ltu")], target=target)
    for t in ("b32", "u16", "s64", "f32", "f64"):
        some = ("eq", "ne") if t[0] == "b" else ("lt", "ge")
        add(f"set.{t}", [t, t], [Form(f"set.{c}.{d}.{t}", d) for c in some for d in ("u32", "s32", "f32")])
    add("set.ftz.f32", ["f32", "f32"], [Form(f"set.{c}.ftz.{d}.f32", d) for c in ("eq", "ltu") for d in ("u32", "f32")])
    add("set.f16", ["f16", "f16"], [Form("set.lt.f16.f16", "f16"), Form("set.lt.u16.f16", "u16"), Form("set.neu.u32.f16", "u32")])
    add("set.combine.s32", ["s32", "s32", "s32"],
        [Form(f"set.lt.{op}.u32.s32", "u32", body=f"setp.gt.s32 %q, %c, 0; set.lt.{op}.u32.s32 %d, %a, %b, %q") for op in ("and", "or", "xor")])
    for size in (16, 32, 64):
        t = f"b{size}"
        add(f"selp.{t}", [t, t, "s32"], [
            Form(f"selp.{t}", t, body=f"setp.lt.s32 %p, %c, 0; selp.{t} %d, %a, %b, %p")])
        add(f"slct.{t}", [t, t, "s32"], [Form(f"slct.{t}.s32", t)])
        add(f"slct.float.{t}", [t, t, "f32"], [Form(f"slct.{t}.f32", t), Form(f"slct.ftz.{t}.f32", t)])
    return made
