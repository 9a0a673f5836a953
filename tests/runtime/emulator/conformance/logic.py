"""Logic, shifts, lop3, prmt."""
from .elementwise import Form, elementwise, seed_of


def files():
    made = []

    def add(name, types, forms, **more):
        made.append(elementwise("logic", name, types, forms, **more))

    for size in (16, 32, 64):
        t = f"b{size}"
        add(f"binary.{t}", [t, t], [Form(f"{op}.{t}", t) for op in ("and", "or", "xor")])
        add(f"unary.{t}", [t], [Form(f"{op}.{t}", t) for op in ("not", "cnot")])
        shifts = [f"special 96 stride 1, bits 32 seed {seed_of('shift', t)}", "random 96 seed 11 0 70, special 32 stride 1"]
        add(f"shift.{t}", [t, "u32"], [Form(f"shl.{t}", t), Form(f"shr.{t}", t), Form(f"shr.u{size}", t), Form(f"shr.s{size}", t)],
            values=shifts)
    add("shf.b32", ["b32", "b32", "u32"], [Form(f"shf.{d}.{m}.b32", "b32") for d in "lr" for m in ("clamp", "wrap")],
        values=["bits 128 seed 12", "bits 128 seed 13", "random 96 seed 14 0 70, special 32 stride 1"])
    tables = (0x80, 0xfe, 0x96, 0xe8, 0xca, 0x1b, 0x00, 0xff)
    add("lop3.b32", ["b32", "b32", "b32"],
        [Form(f"lop3.b32[{table:#04x}]", "b32", body=f"lop3.b32 %d, %a, %b, %c, {table:#04x}") for table in tables],
        values=[f"bits 128 seed {seed}" for seed in (15, 16, 17)])
    add("lop3.predicate", ["b32", "b32", "b32"], [
        Form(f"lop3.{op}.b32.{sign}", "b32",
             body=f"setp.gt.s32 %q, %c, 0; lop3.{op}.b32 %t32|%p, %a, %b, %c, 0x80, {'!' if sign == 'not' else ''}%q; "
                  "selp.b32 %u32, 0x55555555, 0, %p; xor.b32 %d, %t32, %u32")
        for op in ("or", "and") for sign in ("plain", "not")],
        values=["special 128 stride 1", "special 128 stride 7", "special 128 stride 5"], target="sm_80", version="8.2")
    predicates = "setp.gt.s32 %p, %a, 0; setp.lt.s32 %q, %b, 100; {} selp.u16 %d, 1, 0, %p"
    add("predicate", ["s32", "s32"], [
        Form(f"{op}.pred", "u8", body=predicates.format(f"{op}.pred %p, %p, %q;")) for op in ("and", "or", "xor")] + [
        Form("not.pred", "u8", body=predicates.format("not.pred %p, %p;")),
        Form("mov.pred", "u8", body=predicates.format("mov.pred %p, %q;"))])
    add("prmt.b32", ["b32", "b32", "u32"],
        [Form("prmt.b32", "b32")] + [Form(f"prmt.b32.{m}", "b32") for m in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")],
        values=["bits 128 seed 18", "bits 128 seed 19", "bits 120 seed 20, iota 8 0 1"])
    return made
