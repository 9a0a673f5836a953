"""mov: packing and unpacking. (Copies are in every file.)"""
from .elementwise import Form, elementwise


def files():
    made = []

    def add(name, types, forms, **more):
        made.append(elementwise("move", name, types, forms, **more))

    add("pack", ["b16", "b16", "b32", "b64"], [
        Form("mov.b32.pack2", "b32", body="mov.b32 %d, {%a, %b}"),
        Form("mov.b64.pack4", "b64", body="mov.b64 %d, {%a, %b, %b, %a}"),
        Form("mov.b64.pack2", "b64", body="cvt.u32.u16 %t32, %a; mov.b64 %d, {%c, %t32}"),
        Form("mov.b32.unpack2", "b16", body="mov.b32 {%t16, %u16}, %c; sub.u16 %d, %u16, %t16"),
        Form("mov.b32.unpack.sink", "b16", body="mov.b32 {_, %d}, %c"),
        Form("mov.b64.unpack2", "b32", body="mov.b64 {%t32, %u32}, %e; sub.u32 %d, %u32, %t32"),
        Form("mov.b64.unpack4", "b16", body="mov.b64 {%t16, _, %u16, _}, %e; sub.u16 %d, %u16, %t16"),
    ])
    add("bytes", ["b32", "b16"], [
        Form("mov.b32.pack4", "b32", body=".reg .b8 %x<4>; cvt.u8.u16 %x0, %b; cvt.u8.u32 %x1, %a; cvt.u8.u16 %x2, 7; "
                                         "cvt.u8.u32 %x3, %a; mov.b32 %d, {%x0, %x1, %x2, %x3}"),
        Form("mov.b32.unpack4", "b32", body=".reg .b8 %x<4>; mov.b32 {%x0, %x1, %x2, %x3}, %a; mov.b32 %d, {%x3, %x2, %x1, %x0}"),
        Form("mov.b16.unpack2", "b16", body=".reg .b8 %x<2>; mov.b16 {%x0, %x1}, %b; mov.b16 %d, {%x1, %x0}"),
    ])
    add("b128", ["b64", "b64"], [
        Form("mov.b128.pack2", "b64", body=".reg .b128 %q0, %q1; .reg .b64 %x<2>; mov.b128 %q0, {%a, %b}; mov.b128 %q1, %q0; "
                                         "mov.b128 {%x0, %x1}, %q1; sub.u64 %d, %x1, %x0"),
    ], target="sm_70", version="8.3")
    return made
