"""Integer arithmetic, with and without a carry."""
from .elementwise import Form, elementwise, operands, seed_of

INTEGERS = ["u16", "s16", "u32", "s32", "u64", "s64"]
WIDE = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}


def videos():
    """vadd and its like, on words, halves and bytes."""
    made = []
    for size in ("", "2", "4"):
        seconds = ("", ".add") if size == "" else ("",)
        not_saturated = ("vadd", "vabsdiff") if size == "" else ()  # an H100 does not saturate their unsigned results

        def form(name, result, second):
            c = ", %c" if size or second else ""
            return Form(name + second, result, body=f"{name}{second} %d, %a, %b{c}")

        for op in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
            forms = [form(f"{op}{size}.{d}.{a}.{b}{sat}", d, second) for d in ("u32", "s32") for a, b in (("u32", "u32"), ("s32", "u32"), ("s32", "s32"))
                     for sat in ("", ".sat") for second in seconds if not (sat and (second or (op in not_saturated and d == "u32")))]
            if size and op == "vabsdiff":
                forms.append(form(f"{op}{size}.u32.u32.u32", "u32", ".add"))
            made.append(elementwise("integer", f"{op}{size}", ["b32"] * 3, forms, target="sm_80"))
        forms = [form(f"vset{size}.{a}.{b}.{relation}", "u32", second) for a, b in (("u32", "u32"), ("s32", "u32"), ("s32", "s32"))
                 for relation in ("eq", "ne", "lt", "le", "gt", "ge") for second in ("", ".add")]
        made.append(elementwise("integer", f"vset{size}", ["b32"] * 3, forms, target="sm_80"))
    amount = "random 128 seed 9 0 70"
    for op in ("vshl", "vshr"):
        forms = [Form(f"{op}.{d}.{a}.u32.{mode}", d) for d in ("u32", "s32") for a in ("u32", "s32") for mode in ("clamp", "wrap")]
        made.append(elementwise("integer", op, ["b32", "u32"], forms, values=[operands(op, ["b32"])[0], amount], target="sm_80"))
    return made


def files():
    made = []

    def add(name, types, forms, **more):
        made.append(elementwise("integer", name, types, forms, **more))

    for t in INTEGERS:
        add(f"binary.{t}", [t, t], [Form(f"{op}.{t}", t) for op in ("add", "sub", "mul.lo", "mul.hi", "min", "max")])
        add(f"mad.{t}", [t, t, t], [Form(f"{op}.{t}", t) for op in ("mad.lo", "mad.hi", "sad")])
        # A zero divisor gives what the ISA does not say.
        divisors = "list 1 2 3 7 10 100 127 " + ("-1 -2 -3 -7 -128" if t[0] == "s" else "128 200 255 1000 65535")
        special = f"special 96 stride 1, spread 32 seed {seed_of('divide', t)} 0 {t[1:]}"
        rest = f"random 116 seed {seed_of('divisor', t)} 1 {2**(int(t[1:]) - 1) - 1 if t[1:] != '64' else 2**40}"
        add(f"divide.{t}", [t, t], [Form(f"{op}.{t}", t) for op in ("div", "rem")], values=[special, f"{divisors}, {rest}"])
    for t, wide in WIDE.items():
        add(f"mul.wide.{t}", [t, t], [Form(f"mul.wide.{t}", wide)])
        add(f"mad.wide.{t}", [t, t, wide], [Form(f"mad.wide.{t}", wide)])
    for t in ("s16", "s32", "s64"):
        add(f"unary.{t}", [t], [Form(f"{op}.{t}", t) for op in ("abs", "neg")])
    add("saturate.s32", ["s32", "s32"], [Form("add.sat.s32", "s32"), Form("sub.sat.s32", "s32")])
    add("mad.hi.sat.s32", ["s32", "s32", "s32"], [Form("mad.hi.sat.s32", "s32")])
    for t in ("u32", "s32"):
        add(f"mul24.{t}", [t, t], [Form(f"mul24.lo.{t}", t), Form(f"mul24.hi.{t}", t)])
        add(f"mad24.{t}", [t, t, t], [Form(f"mad24.lo.{t}", t), Form(f"mad24.hi.{t}", t)] +
            ([Form("mad24.hi.sat.s32", "s32")] if t == "s32" else []))
    for t in ("u16x2", "s16x2"):
        relu = [Form(f"{op}.relu.{t}", t) for op in ("min", "max")] if t == "s16x2" else []
        add(f"pair.{t}", [t, t], [Form(f"{op}.{t}", t) for op in ("add", "min", "max")] + relu, target="sm_90")
    add("relu.s32", ["s32", "s32"], [Form("min.relu.s32", "s32"), Form("max.relu.s32", "s32")], target="sm_90")

    made += videos()
    for t in ("b32", "b64"):
        add(f"bits.{t}", [t], [Form(f"popc.{t}", "u32"), Form(f"clz.{t}", "u32"), Form(f"brev.{t}", t)])
    for t in ("u32", "s32", "u64", "s64"):
        add(f"bfind.{t}", [t], [Form(f"bfind.{t}", "u32"), Form(f"bfind.shiftamt.{t}", "u32")])
        position = f"random 64 seed {seed_of('bfe', t)} 0 70, special 64 stride 1"
        length = f"random 64 seed {seed_of('bfe length', t)} 0 70, special 64 stride 5"
        source = operands("bfe" + t, [t])[0]
        add(f"bfe.{t}", [t, "u32", "u32"], [Form(f"bfe.{t}", t)], values=[source, position, length])
        if t[0] == "u":
            b = f"b{t[1:]}"
            add(f"bfi.{b}", [b, b, "u32", "u32"], [Form(f"bfi.{b}", b)], values=[source, operands("bfi" + t, [t])[0],
                                                                                 position, length])
    small = f"random 96 seed 3 0 40, special 32 stride 1"
    add("bmsk.b32", ["u32", "u32"], [Form(f"bmsk.{m}.b32", "b32") for m in ("clamp", "wrap")],
        values=[small, "random 96 seed 4 0 40, special 32 stride 3"])
    for t in ("u32", "s32"):
        add(f"szext.{t}", [t, "u32"], [Form(f"szext.{m}.{t}", t) for m in ("clamp", "wrap")],
            values=["special 64 stride 1, bits 64 seed 5", small])
    add("fns.b32", ["b32", "u32", "s32"], [Form("fns.b32", "u32")],
        values=["bits 120 seed 6, fill 8 0xffffffff", "random 128 seed 7 0 31", "random 128 seed 8 -12 12"])
    forms4 = [Form(f"dp4a.{a}.{b}", "u32") for a in ("u32", "s32") for b in ("u32", "s32")]
    forms2 = [Form(f"dp2a.{h}.{a}.{b}", "u32") for h in ("lo", "hi") for a in ("u32", "s32") for b in ("u32", "s32")]
    dots = ["bits 128 seed 9", "bits 128 seed 10", "special 128 stride 1"]
    add("dp4a", ["b32", "b32", "b32"], forms4, values=dots)
    add("dp2a", ["b32", "b32", "b32"], forms2, values=dots)

    # A carry is seen in what the next instruction makes of it.
    for t in ("u32", "s32", "u64", "s64"):
        r = "%t" + t[1:]
        add(f"carry.{t}", [t, t, t], [
            Form(f"add.cc.{t}", t, body=f"add.cc.{t} {r}, %a, %b; addc.{t} %d, 0, 0"),
            Form(f"addc.cc.{t}", t, body=f"add.cc.{t} {r}, %a, %b; addc.cc.{t} {r}, %b, %c; addc.{t} %d, {r}, %a"),
            Form(f"sub.cc.{t}", t, body=f"sub.cc.{t} {r}, %a, %b; subc.{t} %d, 0, 0"),
            Form(f"subc.cc.{t}", t, body=f"sub.cc.{t} {r}, %a, %b; subc.cc.{t} {r}, %b, %c; subc.{t} %d, {r}, %a"),
            Form(f"mad.lo.cc.{t}", t, body=f"mad.lo.cc.{t} {r}, %a, %b, %c; addc.{t} %d, {r}, 0"),
            Form(f"mad.hi.cc.{t}", t, body=f"mad.hi.cc.{t} {r}, %a, %b, %c; addc.{t} %d, {r}, 0"),
            Form(f"madc.lo.{t}", t, body=f"add.cc.{t} {r}, %a, %b; madc.lo.{t} %d, %a, %b, %c"),
            Form(f"madc.hi.{t}", t, body=f"add.cc.{t} {r}, %a, %b; madc.hi.{t} %d, %a, %b, %c"),
            Form(f"madc.lo.cc.{t}", t, body=f"add.cc.{t} {r}, %a, %b; madc.lo.cc.{t} {r}, %a, %b, %c; addc.{t} %d, {r}, 0"),
            Form(f"madc.hi.cc.{t}", t, body=f"add.cc.{t} {r}, %a, %b; madc.hi.cc.{t} {r}, %a, %b, %c; addc.{t} %d, {r}, 0"),
        ])
    return made
