"""f32 and f64 arithmetic. Approximations have the bounds that the ISA gives, in codes of the result."""
from .elementwise import Form, elementwise, operands

ROUNDINGS = ("rn", "rz", "rm", "rp")


def files():
    made = []

    def add(name, types, forms, **more):
        made.append(elementwise("float", name, types, forms, **more))

    for op in ("add", "sub", "mul", "fma"):
        arity = 3 if op == "fma" else 2
        modes = [f"{op}.{r}{f}{s}.f32" for r in ROUNDINGS for f in ("", ".ftz") for s in ("", ".sat")
                 if r == "rn" or not (f and s)]
        add(f"{op}.f32", ["f32"] * arity, [Form(m, "f32") for m in modes], count=256)
        add(f"{op}.f64", ["f64"] * arity, [Form(f"{op}.{r}.f64", "f64", "exact") for r in ROUNDINGS], count=256)
    # What came with sm_100: pairs, sums with halves, minima of three. No GPU has recorded these; the model holds them.
    blackwell = {"target": "sm_100a", "version": "8.8"}
    for op in ("add", "sub", "mul", "fma"):
        add(f"{op}.f32x2", ["f32x2"] * (3 if op == "fma" else 2),
            [Form(f"{op}.{r}{f}.f32x2", "f32x2") for r in ROUNDINGS for f in ("", ".ftz")], **blackwell)
    for half in ("f16", "bf16"):
        for op in ("add", "sub", "fma"):
            add(f"{op}.f32.{half}", [half] * (2 if op == "fma" else 1) + ["f32"],
                [Form(f"{op}.{r}{s}.f32.{half}", "f32") for r in ROUNDINGS for s in ("", ".sat")], count=192, **blackwell)
    for op in ("min", "max"):
        add(f"{op}.three.f32", ["f32"] * 3, [Form(f"{op}{f}{n}{x}.of.three.f32", "f32", body=f"{op}{f}{n}{x}.f32 %d, %a, %b, %c")
                                             for f in ("", ".ftz") for n in ("", ".NaN") for x in ("", ".abs")], count=256, **blackwell)
    divide = [Form(f"div.{r}{f}.f32", "f32") for r in ROUNDINGS for f in ("", ".ftz")]
    add("div.f32", ["f32", "f32"], divide, count=256)
    ulp2 = "ulp 2 because the ISA gives 2 ulp"
    add("div.approx.f32", ["f32", "f32"],
        [Form(f"div.{m}{f}.f32", "f32", ulp2) for m in ("approx", "full") for f in ("", ".ftz")], count=256)
    add("div.f64", ["f64", "f64"], [Form(f"div.{r}.f64", "f64", "exact") for r in ROUNDINGS], count=256)
    for op in ("rcp", "sqrt"):
        add(f"{op}.f32", ["f32"], [Form(f"{op}.{r}{f}.f32", "f32") for r in ROUNDINGS for f in ("", ".ftz")])
        add(f"{op}.f64", ["f64"], [Form(f"{op}.{r}.f64", "f64", "exact") for r in ROUNDINGS])

    # Results next to the smallest normal number: which of them .ftz takes to be subnormal.
    add("tiny.ftz.f32", ["f32", "f32", "f32"], [
        Form(f"{op}.{r}.ftz.f32", "f32", body=f"{op}.{r}.ftz.f32 %d, %a, %b{', %c' if op == 'fma' else ''}")
        for op in ("mul", "fma", "div") for r in ROUNDINGS],
        values=["list 0x00800001 0x00800000 0x00ffffff 0x80ffffff 0x00ffffff 0x80800001 0x00800000 0x80800000 0x00800003 0x00fffffe 0x3f7fffff 0x00800000, "
                "spread 20 seed 27 -64 -62",
                "list 0x3f7ffffe 0x3f7fffff 0x3f000000 0x3f000000 0x40000000 0x3f7ffffe 0x3f800001 0x3f800001 0x3f7ffffd 0x3f000001 0x00800000 0x3f7ffffe, "
                "spread 20 seed 28 -64 -62",
                "fill 32 0"], count=32)

    wide = [operands("approximate", ["f32"])[0]]
    ulp1 = "ulp 1 because the ISA gives 1 ulp"
    add("rcp.approx.f32", ["f32"], [Form(f"rcp.approx{f}.f32", "f32", ulp1) for f in ("", ".ftz")], values=wide)
    add("sqrt.approx.f32", ["f32"], [Form(f"sqrt.approx{f}.f32", "f32", "relative 1.2e-7 because the ISA gives 2^-23")
                                     for f in ("", ".ftz")], values=wide)
    add("rsqrt.approx.f32", ["f32"], [Form(f"rsqrt.approx{f}.f32", "f32", "relative 2.0e-7 because the ISA gives 2^-22.9")
                                      for f in ("", ".ftz")], values=wide)
    add("rsqrt.approx.f64", ["f64"], [Form("rsqrt.approx.f64", "f64", "relative 3e-7 because it is an approximation")])
    add("approx.ftz.f64", ["f64"], [Form(f"{op}.approx.ftz.f64", "f64", "relative 2e-6 because the ISA gives 20 bits")
                                    for op in ("rcp", "rsqrt")])
    moderate = ["special 64 stride 1, random 192 seed 21 -30 30"]
    add("ex2.approx.f32", ["f32"], [Form(f"ex2.approx{f}.f32", "f32", "ulp 2 because the ISA gives 2 ulp") for f in ("", ".ftz")],
        values=["special 64 stride 1, random 96 seed 22 -30 30, random 96 seed 23 -150 130"], count=256)
    add("lg2.approx.f32", ["f32"],
        [Form(f"lg2.approx{f}.f32", "f32", "relative 3e-7 absolute 2.4e-7 because the ISA gives 2^-22 absolute") for f in ("", ".ftz")],
        values=["special 64 stride 1, random 96 seed 24 0.5 2, spread 96 seed 25 -126 127"], count=256)
    for op in ("sin", "cos"):
        add(f"{op}.approx.f32", ["f32"],
            [Form(f"{op}.approx{f}.f32", "f32", "relative 0 absolute 6e-7 because the ISA gives 2^-20.5 in [-pi, pi]") for f in ("", ".ftz")],
            values=["list 0 0x80000000 inf -inf nan 0x00000001 1e-30 -1e-10, random 120 seed 26 -3.14 3.14"])
    add("tanh.approx.f32", ["f32"], [Form("tanh.approx.f32", "f32", "relative 5.2e-4 because the ISA gives 2^-11")],
        values=moderate, count=256)

    for op in ("min", "max"):
        modes = [f"{op}{f}{n}{x}.f32" for f in ("", ".ftz") for n in ("", ".NaN") for x in ("", ".xorsign.abs")]
        add(f"{op}.f32", ["f32", "f32"], [Form(m, "f32") for m in modes], count=256, target="sm_86")
        add(f"{op}.f64", ["f64", "f64"], [Form(f"{op}.f64", "f64", "exact")], count=256)
    add("sign.f32", ["f32"], [Form(f"{op}{f}.f32", "f32", "exact") for op in ("abs", "neg") for f in ("", ".ftz")])
    add("sign.f64", ["f64"], [Form(f"{op}.f64", "f64", "exact") for op in ("abs", "neg")])
    for t in ("f32", "f64"):
        add(f"copysign.{t}", [t, t], [Form(f"copysign.{t}", t)])
        tests = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
        add(f"testp.{t}", [t], [Form(f"testp.{x}.{t}", "u8", body=f"testp.{x}.{t} %p, %a; selp.u16 %d, 1, 0, %p") for x in tests])
    return made
