"""f16, bf16 and pairs."""
from .elementwise import Form, elementwise


def files():
    made = []

    def add(name, types, forms, **more):
        made.append(elementwise("half", name, types, forms, **more))

    for pair in ("", "x2"):
        f16, bf16 = f"f16{pair}", f"bf16{pair}"
        for op in ("add", "sub", "mul"):
            add(f"{op}.{f16}", [f16, f16], [Form(f"{op}{r}{f}{s}.{f16}", f16) for r in ("", ".rn") for f in ("", ".ftz") for s in ("", ".sat")
                                            if r or not (f or s)], count=192)
            add(f"{op}.{bf16}", [bf16, bf16], [Form(f"{op}.rn.{bf16}", bf16)], target="sm_90", count=192)
        add(f"fma.{f16}", [f16] * 3, [Form(f"fma.rn{f}{s}.{f16}", f16) for f in ("", ".ftz") for s in ("", ".sat", ".relu")], count=192)
        add(f"fma.{bf16}", [bf16] * 3, [Form(f"fma.rn{s}.{bf16}", bf16) for s in ("", ".relu")], count=192)
        for t in (f16, bf16):
            add(f"fma.oob.{t}", [t] * 3, [Form(f"fma.rn.oob{s}.{t}", t) for s in ("", ".relu")], target="sm_90", version="8.1", count=192)
        for op in ("min", "max"):
            add(f"{op}.{f16}", [f16, f16], [Form(f"{op}{f}{n}{x}.{f16}", f16) for f in ("", ".ftz") for n in ("", ".NaN")
                                            for x in ("", ".xorsign.abs")], target="sm_86", count=192)
            add(f"{op}.{bf16}", [bf16, bf16], [Form(f"{op}{n}{x}.{bf16}", bf16) for n in ("", ".NaN")
                                               for x in ("", ".xorsign.abs")], target="sm_86", count=192)
        add(f"sign.{f16}", [f16], [Form(f"{op}{f}.{f16}", f16, "exact") for op in ("abs", "neg") for f in ("", ".ftz")])
        add(f"sign.{bf16}", [bf16], [Form(f"{op}.{bf16}", bf16, "exact") for op in ("abs", "neg")])
        small = f"special {64 * (2 if pair else 1)} stride 1, random {64 * (2 if pair else 1)} seed 31 -12 12"
        add(f"ex2.approx.{f16}", [f16], [Form(f"ex2.approx.{f16}", f16, "ulp 1 because the ISA gives 2^-9.9 relative")], values=[small])
        add(f"tanh.approx.{f16}", [f16], [Form(f"tanh.approx.{f16}", f16, "ulp 2 because the ISA gives 2^-10.987")], values=[small])
        add(f"ex2.approx.{bf16}", [bf16], [Form(f"ex2.approx.ftz.{bf16}", bf16, "ulp 1 because the ISA gives 2^-7")],
            values=[small], target="sm_90")
        add(f"tanh.approx.{bf16}", [bf16], [Form(f"tanh.approx.{bf16}", bf16, "ulp 1 because the ISA gives 2^-8")],
            values=[small], target="sm_90")
    return made
