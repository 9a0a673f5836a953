"""cvt between all types, and cvt.pack."""
from .elementwise import Form, elementwise, seed_of

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
ROUNDINGS = ("rn", "rz", "rm", "rp")
# Around halves, the ends of every integer type, and infinity.
EDGES = ("0.5 -0.5 1.5 2.5 -1.5 -2.5 0.49999997 -0.49999997 127.5 127.4 128 -128.5 -129 255.5 254.5 256 32767.5 32768 -32769 65535.5 65536 "
         "8388609 16777216 2147483520 2147483648 -2147483648 -2147483904 4294967040 4294967296 9.2e18 9223372036854775808 -9223372036854775808 "
         "-1e19 1.8e19 18446744073709551616 1e30 -1e30 inf -inf nan").split()


def edges(kind, count):
    spread = {"f16": "-3 15", "bf16": "-4 66", "f32": "-4 66", "f64": "-4 66"}[kind]
    special = 40
    return f"list {' '.join(EDGES)}, special {special} stride 1, spread {count - special - len(EDGES)} seed {seed_of('edges', kind)} {spread}"


def files():
    made = []

    def add(name, types, forms, **more):
        made.append(elementwise("convert", name, types, forms, **more))

    for source in INTEGERS:
        bits = int(source[1:])
        values = [f"special 48 stride 1, spread 48 seed {seed_of(source)} 0 {bits}"]
        others = [t for t in INTEGERS if t != source]
        add(f"integers.{source}", [source], [Form(f"cvt.{t}.{source}", t) for t in others] +
            [Form(f"cvt.sat.{t}.{source}", t) for t in others if not (t[0] == source[0] and int(t[1:]) >= bits)
             and not (source[0] == "u" and int(t[1:]) > bits)], values=values, count=96)
        add(f"to.f32.{source}", [source], [Form(f"cvt.{r}.f32.{source}", "f32") for r in ROUNDINGS], values=values, count=96)
        add(f"to.f64.{source}", [source], [Form(f"cvt.{r}.f64.{source}", "f64") for r in ROUNDINGS], values=values, count=96)
        add(f"to.f16.{source}", [source], [Form(f"cvt.{r}.f16.{source}", "f16") for r in ROUNDINGS], values=values, count=96)
        if bits > 8:
            add(f"to.bf16.{source}", [source], [Form(f"cvt.{r}.bf16.{source}", "bf16") for r in ROUNDINGS], values=values, count=96, target="sm_90")
    # An integer may sit in a register that is wider than it.
    add("integers.wide", ["b32", "b64"], [
        Form("cvt.u32.u8.of.b32", "b32", body="cvt.u32.u8 %d, %a"), Form("cvt.s32.s8.of.b32", "b32", body="cvt.s32.s8 %d, %a"),
        Form("cvt.s32.s16.of.b32", "b32", body="cvt.s32.s16 %d, %a"), Form("cvt.s64.s16.of.b64", "b64", body="cvt.s64.s16 %d, %b"),
        Form("cvt.u8.u32.to.b32", "b32", body="cvt.u8.u32 %d, %a"), Form("cvt.s8.s32.to.b32", "b32", body="cvt.s8.s32 %d, %a"),
        Form("cvt.sat.s8.s32.to.b32", "b32", body="cvt.sat.s8.s32 %d, %a"), Form("cvt.sat.u8.s32.to.b32", "b32", body="cvt.sat.u8.s32 %d, %a"),
    ], values=["special 48 stride 1, spread 48 seed 41 0 32", "special 48 stride 1, spread 48 seed 42 0 64"], count=96)

    for source in ("f16", "bf16", "f32", "f64"):
        target = {"target": "sm_90"} if source == "bf16" else {}
        for t in INTEGERS[2:] if source == "bf16" else INTEGERS:
            modes = [f"cvt.{r}i.{t}.{source}" for r in ROUNDINGS]
            if source == "f32":
                modes += [f"cvt.{r}i.ftz.{t}.f32" for r in ("rz", "rp")]
            add(f"{t}.of.{source}", [source], [Form(m, t) for m in modes], values=[edges(source, 128)], **target)
        add(f"whole.{source}", [source], [Form(f"cvt.{r}i.{source}.{source}", source, "exact" if source == "f64" else "bits") for r in ROUNDINGS],
            values=[edges(source, 128)], **target)
    add("whole.ftz.f32", ["f32"], [Form(f"cvt.{r}i.ftz{s}.f32.f32", "f32") for r in ROUNDINGS for s in ("", ".sat")], values=[edges("f32", 128)])
    add("same.f32", ["f32"], [Form("cvt.ftz.f32.f32", "f32"), Form("cvt.sat.f32.f32", "f32"), Form("cvt.ftz.sat.f32.f32", "f32")])
    add("f64.of.f32", ["f32"], [Form("cvt.f64.f32", "f64", "exact"), Form("cvt.ftz.f64.f32", "f64", "exact")])
    # Exponents in which all roundings, subnormal results and overflow are met.
    narrow = {"f64": "special 64 stride 1, spread 128 seed 43 -152 129", "f32": "special 64 stride 1, spread 128 seed 44 -27 17"}
    add("f32.of.f64", ["f64"], [Form(f"cvt.{r}{f}{s}.f32.f64", "f32") for r in ROUNDINGS for f in ("", ".ftz") for s in ("", ".sat") if not (f and s)],
        values=[narrow["f64"]], count=192)
    add("f16.of.f32", ["f32"], [Form(f"cvt.{r}{f}{s}.f16.f32", "f16") for r in ROUNDINGS for f in ("", ".ftz") for s in ("", ".sat") if not (f and s)],
        values=[narrow["f32"]], count=192)
    add("f16.of.f64", ["f64"], [Form(f"cvt.{r}.f16.f64", "f16") for r in ROUNDINGS],
        values=["special 64 stride 1, spread 128 seed 45 -27 17"], count=192)
    add("f32.of.f16", ["f16"], [Form("cvt.f32.f16", "f32"), Form("cvt.ftz.f32.f16", "f32"), Form("cvt.sat.f32.f16", "f32")])
    add("f64.of.f16", ["f16"], [Form("cvt.f64.f16", "f64", "exact")])
    bf16_values = ["special 64 stride 1, spread 96 seed 46 -140 127, list 0x3f808000 0x3f818000 0x3f808001 0x3f807fff 0x7f7f8000 0x7f7f7fff 0x00008000 0x00018000, "
                   "spread 24 seed 47 -2 2"]
    add("bf16.of.f32", ["f32"], [Form(f"cvt.{r}{x}.bf16.f32", "bf16") for r in ("rn", "rz") for x in ("", ".relu")], values=bf16_values, count=192)
    add("bf16.of.f32.directed", ["f32"], [Form(f"cvt.{r}.bf16.f32", "bf16") for r in ("rm", "rp")], values=bf16_values, count=192, target="sm_90")
    add("f32.of.bf16", ["bf16"], [Form("cvt.f32.bf16", "f32", "exact")], target="sm_90")
    add("between.16", ["f16", "bf16"], [Form("cvt.rn.bf16.f16", "bf16", body="cvt.rn.bf16.f16 %d, %a"),
                                        Form("cvt.rn.f16.bf16", "f16", body="cvt.rn.f16.bf16 %d, %b")], target="sm_90")
    # Spellings that ptxas takes beside the ISA's: no rounding means .rn, and a rounding of what is exact changes nothing.
    add("between.16.plain", ["f16", "bf16"], [Form("cvt.bf16.f16", "bf16", body="cvt.bf16.f16 %d, %a"),
                                              Form("cvt.f16.bf16", "f16", body="cvt.f16.bf16 %d, %b")], target="sm_90")
    add("of.bf16.rounded", ["bf16"], [Form(f"cvt.{r}.{t}.bf16", t, "exact") for t in ("f32", "f64") for r in ROUNDINGS], target="sm_90")
    add("finite.16", ["f32"], [Form(f"cvt.{r}{x}.satfinite.{t}.f32", t) for t in ("f16", "bf16") for r in ("rn", "rz") for x in ("", ".relu")],
        values=["special 64 stride 1, spread 64 seed 48 -27 17, spread 64 seed 49 -140 127"], count=192, version="8.1")

    pairs = ["special 64 stride 1, spread 128 seed 50 -27 17", "special 64 stride 5, spread 128 seed 51 -27 17"]
    for t in ("f16x2", "bf16x2"):
        add(f"{t}.of.f32", ["f32", "f32"], [Form(f"cvt.{r}{x}{s}.{t}.f32", t) for r in ("rn", "rz") for x in ("", ".relu") for s in ("", ".satfinite")],
            values=pairs, count=192, version="8.1")
    tf32 = ["special 64 stride 1, spread 112 seed 52 -130 127, list 0x3f801000 0x3f803000 0x3f800fff 0x3f801001 0xbf801000 0x7f7ff000 0x7f7fefff 0xff7ff000 "
            "0x00000fff 0x00001000 0x00001001 0x7f7fffff 0xbf803000 0x3f805000 0x3f807000 0x7fffffff"]
    add("tf32.rna", ["f32"], [Form("cvt.rna.tf32.f32", "b32")], values=tf32, count=192)
    add("tf32", ["f32"], [Form(f"cvt.{r}{x}.tf32.f32", "b32") for r in ("rn", "rz") for x in ("", ".relu")], values=tf32, count=192, target="sm_90", version="7.8")
    add("tf32.finite", ["f32"], [Form("cvt.rna.satfinite.tf32.f32", "b32")], values=tf32, count=192, target="sm_89", version="8.1")

    # Codes of f32 a half step of the narrow format apart, through its whole range and beyond: every tie.
    def ties(first_exponent, last_exponent, mantissa_bits):
        step = 1 << (23 - mantissa_bits - 1)
        first = (127 + first_exponent) << 23
        count = ((last_exponent - first_exponent) << 23) // step
        return first, step, count

    for t, first, last, mantissa in (("e4m3", -11, 10, 3), ("e5m2", -18, 17, 2), ("e3m2", -6, 6, 2), ("e2m3", -5, 4, 3), ("e2m1", -4, 4, 1)):
        begin, step, count = ties(first, last, mantissa)
        extra = 64
        total = count + extra
        fp8 = t in ("e4m3", "e5m2")
        where = {"target": "sm_89" if fp8 else "sm_100a", "version": "8.1" if fp8 else "8.6"}
        out, each = ("b16", 16) if t != "e2m1" else ("b8", 8)
        more = "list 0x7f800000 0xff800000 0x7fc00000 0xffc00000 0x80000000 0x7f7fffff 0xff7fffff 0x00000001"
        values = [f"iota {count} {begin} {step}, {more}, spread {extra - 8} seed {seed_of(t)} {first} {last}",
                  f"{more}, spread {extra - 8} seed {seed_of(t, 'low')} {first} {last}, iota {count} {begin + 0x80000000} {step}"]
        body = "cvt.rn.satfinite{}.{}x2.f32 %d, {}"
        if t == "e2m1":  # its eight bits must be a .b8 register
            body = ".reg .b8 %x; cvt.rn.satfinite{}.{}x2.f32 %x, {}; cvt.u16.u8 %d, %x"
        forms = [Form(f"cvt.rn.satfinite{x}.{t}x2.f32", out, body=body.format(x, t, "%a, %b")) for x in ("", ".relu")]
        add(f"{t}x2.of.f32", ["b32", "b32"], forms, values=values, count=total, **where)
        if fp8:
            add(f"{t}x2.of.f16x2", ["f16x2"], [Form(f"cvt.rn.satfinite{x}.{t}x2.f16x2", out) for x in ("", ".relu")],
                values=[f"special 128 stride 1, bits 64 seed 53, spread 192 seed 54 {max(first, -14)} {min(last, 15)}"], count=192, **where)
        codes = {"e4m3": 256, "e5m2": 256, "e3m2": 64, "e2m3": 64, "e2m1": 256}[t]
        if t == "e2m1":
            unpack = ".reg .b8 %x; cvt.u8.u16 %x, %a; cvt.rn{}.f16x2.e2m1x2 %d, %x"
            made_of = ["iota 256 0 1"]
            count = 256
        else:
            unpack = "cvt.rn{}.f16x2." + t + "x2 %d, %a"
            made_of = [f"iota {codes // 2} 256 514"]
            count = codes // 2
        add(f"f16x2.of.{t}x2", ["b16"], [Form(f"cvt.rn{x}.f16x2.{t}x2", "f16x2", body=unpack.format(x)) for x in ("", ".relu")],
            values=made_of, count=count, **where)
    scale = {"target": "sm_100a", "version": "8.6"}
    add("ue8m0x2.of.f32", ["f32", "f32"], [Form(f"cvt.{r}{s}.ue8m0x2.f32", "b16") for r in ("rz", "rp") for s in ("", ".satfinite")],
        values=["special 64 stride 1, spread 64 seed 55 -130 127", "special 64 stride 3, spread 64 seed 56 -130 127"], **scale)
    add("ue8m0x2.of.bf16x2", ["bf16x2"], [Form(f"cvt.{r}{s}.ue8m0x2.bf16x2", "b16") for r in ("rz", "rp") for s in ("", ".satfinite")],
        values=["special 128 stride 1, spread 128 seed 57 -130 127"], **scale)
    add("bf16x2.of.ue8m0x2", ["b16"], [Form("cvt.rn.bf16x2.ue8m0x2", "bf16x2")], values=["iota 128 256 514"], **scale)

    numbers = ["special 64 stride 1, spread 64 seed 58 0 32", "special 64 stride 5, spread 64 seed 59 0 32"]
    add("pack.16", ["s32", "s32"], [Form(f"cvt.pack.sat.{t}.s32", "b32") for t in ("u16", "s16")], values=numbers)
    add("pack.8", ["s32", "s32", "b32"], [Form(f"cvt.pack.sat.{t}.s32.b32", "b32") for t in ("u8", "s8")],
        values=numbers + ["bits 128 seed 60"])
    add("pack.4", ["s32", "s32", "b32"], [Form(f"cvt.pack.sat.{t}.s32.b32", "b32") for t in ("u4", "s4", "u2", "s2")],
        values=["random 128 seed 61 -20 20", "random 128 seed 62 -20 20", "bits 128 seed 60"])
    return made
