"""What arithmetic and conversions give, computed anew with exact fractions: a second opinion on the emulator and on what a GPU
recorded. It shares no code and no method with either.

`kernelwright_conformance --values FILE DIR` writes what check() reads. Forms that are not modelled here are counted, not guessed.
"""
import collections
import math
import re
from fractions import Fraction

FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}  # bits of exponent and mantissa
Number = collections.namedtuple("Number", "kind value sign")  # kind: finite, infinite, nan


def bit_count(type_name):
    return int(re.sub(r"\D", "", type_name))


def signed(code, bits):
    return code - (1 << bits) if code >> (bits - 1) & 1 else code


class Format:
    """A floating-point format: codes to fractions and back."""

    def __init__(self, name, flushes=False):
        self.name = name
        self.flushes = flushes  # results that are too small to be normal, however subnormal rounding would lift them
        self.exponent_bits, self.mantissa_bits = FORMATS[name]
        self.bias = (1 << (self.exponent_bits - 1)) - 1
        self.sign = 1 << (self.exponent_bits + self.mantissa_bits)
        self.infinity = ((1 << self.exponent_bits) - 1) << self.mantissa_bits
        self.one = self.bias << self.mantissa_bits
        self.nan = {"f16": 0x7fff, "bf16": 0x7fff, "f32": 0x7fffffff, "f64": 0x7ff8000000000000}[name]

    def is_nan(self, code):
        return code & (self.sign - 1) > self.infinity

    def decode(self, code):
        sign, magnitude = int(code & self.sign != 0), code & (self.sign - 1)
        if magnitude >= self.infinity:
            return Number("nan" if magnitude > self.infinity else "infinite", None, sign)
        exponent, mantissa = magnitude >> self.mantissa_bits, magnitude & ((1 << self.mantissa_bits) - 1)
        hidden = (1 << self.mantissa_bits) if exponent else 0
        value = (mantissa + hidden) * Fraction(2) ** (max(exponent, 1) - self.bias - self.mantissa_bits)
        return Number("finite", -value if sign else value, sign)

    def encode(self, value, rounding, zero_sign=0, finite=False):
        if value == 0:
            return zero_sign * self.sign
        sign, magnitude = int(value < 0), abs(value)
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        exponent -= Fraction(2) ** exponent > magnitude
        if self.flushes and exponent < 1 - self.bias:
            plain = Format(self.name)
            scale = Fraction(2) ** (1 - self.bias - exponent)  # to where it is rounded as a normal number
            if abs(plain.decode(plain.encode(value * scale, rounding)).value) / scale < Fraction(2) ** (1 - self.bias):
                return sign * self.sign
        exponent = max(exponent, 1 - self.bias)
        steps = magnitude / Fraction(2) ** (exponent - self.mantissa_bits)
        whole = steps.numerator // steps.denominator
        rest, half = steps - whole, Fraction(1, 2)
        up = {"rn": rest > half or (rest == half and whole % 2 == 1), "rz": False, "rm": sign == 1 and rest > 0,
              "rp": sign == 0 and rest > 0}[rounding]
        code = ((exponent - 1 + self.bias) << self.mantissa_bits) + whole + up
        if code >= self.infinity:
            outward = rounding == "rn" or rounding == ("rm" if sign else "rp")
            code = self.infinity if outward and not finite else self.infinity - 1
        return code | sign * self.sign

    def flush(self, code):
        return code & self.sign if code & self.infinity == 0 else code

    def finish(self, code, modifiers):
        """.ftz, .sat and .relu of a result."""
        if "ftz" in modifiers:
            code = self.flush(code)
        if "sat" in modifiers:
            code = 0 if self.is_nan(code) or code & self.sign else min(code, self.one)
        if "relu" in modifiers and code & self.sign and not self.is_nan(code):
            code = 0
        return code


def rounding_of(modifiers):
    return next((r for r in ("rz", "rm", "rp") if r in modifiers), "rn")


def product(a, b):
    sign = a.sign ^ b.sign
    if "nan" in (a.kind, b.kind):
        return Number("nan", None, sign)
    if "infinite" in (a.kind, b.kind):
        return Number("nan" if 0 in (a.value, b.value) else "infinite", None, sign)
    return Number("finite", a.value * b.value, sign)


def sum_code(form, a, b, rounding):
    if "nan" in (a.kind, b.kind) or (a.kind == b.kind == "infinite" and a.sign != b.sign):
        return form.nan
    for number in (a, b):
        if number.kind == "infinite":
            return form.infinity | number.sign * form.sign
    zero_sign = a.sign if a.sign == b.sign else int(rounding == "rm")
    return form.encode(a.value + b.value, rounding, zero_sign)


def number_code(form, number, rounding):
    if number.kind == "nan":
        return form.nan
    return form.infinity | number.sign * form.sign if number.kind == "infinite" else form.encode(number.value, rounding, number.sign)


def quotient_code(form, a, b, rounding):
    sign = (a.sign ^ b.sign) * form.sign
    if "nan" in (a.kind, b.kind) or (a.kind == b.kind and (a.kind == "infinite" or a.value == b.value == 0)):
        return form.nan
    if a.kind == "infinite" or (b.kind == "finite" and b.value == 0):
        return form.infinity | sign
    return sign if b.kind == "infinite" else form.encode(a.value / b.value, rounding, a.sign ^ b.sign)


def root_code(form, a, rounding):
    if a.kind == "nan" or (a.sign and a.value != 0):
        return form.nan
    if a.kind == "infinite" or a.value == 0:
        return form.infinity if a.kind == "infinite" else a.sign * form.sign
    scale = 2400  # bits beyond the point; one more says whether the root goes on
    scaled = a.value * Fraction(4) ** scale
    floor = scaled.numerator // scaled.denominator
    root = math.isqrt(floor)
    exact = scaled.denominator == 1 and root * root == floor
    return form.encode(Fraction(2 * root + (not exact), 1 << (scale + 1)), rounding)


def arithmetic(opcode, type_name, codes):
    """add, sub, mul, fma, div, rcp and sqrt, in all their rounding modes."""
    operation, *modifiers = opcode.split(".")
    form, rounding = Format(type_name, "ftz" in modifiers), rounding_of(modifiers)
    if "ftz" in modifiers:
        codes = [form.flush(code) for code in codes]
    if operation == "sub":
        codes = [codes[0], codes[1] ^ form.sign]
    numbers = [form.decode(code) for code in codes]
    if operation in ("add", "sub"):
        code = sum_code(form, *numbers, rounding)
    elif operation == "mul":
        code = number_code(form, product(*numbers[:2]), rounding)
    elif operation == "fma":
        code = sum_code(form, product(*numbers[:2]), numbers[2], rounding)
    elif operation == "sqrt":
        code = root_code(form, numbers[0], rounding)
    else:
        code = quotient_code(form, *([form.decode(form.one), numbers[0]] if operation == "rcp" else numbers[:2]), rounding)
    return form.finish(code, modifiers)


def clamp(value, low, high):
    return max(low, min(high, value))


def integer_range(type_name):
    bits = bit_count(type_name)
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if type_name[0] == "s" else (0, (1 << bits) - 1)


def whole_number(value, rounding):
    floor = value.numerator // value.denominator
    rest, half = value - floor, Fraction(1, 2)
    return floor + {"rni": rest > half or (rest == half and floor % 2 == 1), "rzi": value < 0 and rest > 0, "rmi": False,
                    "rpi": rest > 0}[rounding]


def conversion(opcode, code):
    *modifiers, to, source = opcode.split(".")[1:]
    integral = next((r for r in ("rni", "rzi", "rmi", "rpi") if r in modifiers), None)
    low, high = integer_range(to)
    mask = (1 << bit_count(to)) - 1
    if source not in FORMATS:
        value = signed(code, bit_count(source)) if source[0] == "s" else code
        if to in FORMATS:
            return Format(to).encode(Fraction(value), rounding_of(modifiers))
        return (clamp(value, low, high) if "sat" in modifiers else value) & mask
    if "ftz" in modifiers and source == "f32" and to != "f16":
        code = Format(source).flush(code)
    number = Format(source).decode(code)
    if to not in FORMATS:
        if number.kind == "nan":
            return 1 << (bit_count(to) - 1) if source == "f64" or bit_count(to) == 64 else 0
        value = (low if number.sign else high) if number.kind == "infinite" else whole_number(number.value, integral)
        return clamp(value, low, high) & mask
    form, finite = Format(to), "satfinite" in modifiers
    if number.kind == "finite":
        value = Fraction(whole_number(number.value, integral)) if integral else number.value
        result = form.encode(value, rounding_of(modifiers), number.sign, finite)
    else:
        result = form.nan if number.kind == "nan" else (form.infinity - finite) | number.sign * form.sign
    return form.finish(result, [m for m in modifiers if m != "ftz" or to == "f32"])


def field(operand, bits):
    """A position or length: hardware reads a byte of it for 32 bits, all of it for 64."""
    return operand & 255 if bits == 32 else operand


def integer(opcode, codes):
    """The plain integer instructions; None for those that are not modelled."""
    operation, *modifiers, type_name = opcode.split(".")
    if not re.fullmatch(r"[usb]\d+", type_name) or "cc" in modifiers:
        return None
    bits, is_signed = bit_count(type_name), type_name[0] == "s"
    mask = (1 << bits) - 1
    values = [signed(code, bits) for code in codes] if is_signed else codes
    limited = (lambda v: clamp(v, *integer_range(type_name))) if "sat" in modifiers else (lambda v: v)
    if operation in ("add", "sub"):
        return limited(values[0] + values[1] if operation == "add" else values[0] - values[1]) & mask
    if operation in ("mul", "mad"):
        full = values[0] * values[1]
        addend = values[2] if operation == "mad" else 0
        if "wide" in modifiers:
            return (full + (codes[2] if operation == "mad" else 0)) & ((1 << 2 * bits) - 1)
        return limited((full if "lo" in modifiers else full >> bits) + addend) & mask
    if operation in ("min", "max"):
        value = (min if operation == "min" else max)(values[:2])
        return (max(value, 0) if "relu" in modifiers else value) & mask
    if operation in ("div", "rem"):
        magnitude = abs(values[0]) // abs(values[1])
        ratio = -magnitude if (values[0] < 0) != (values[1] < 0) else magnitude
        return (ratio if operation == "div" else values[0] - ratio * values[1]) & mask
    if operation == "bfe":
        position, length = field(codes[1], bits), field(codes[2], bits)
        fill = codes[0] >> min(position + length - 1, bits - 1) & 1 if is_signed and length else 0
        return sum((codes[0] >> (position + i) & 1 if i < length and position + i < bits else fill) << i for i in range(bits))
    if operation == "bfi":
        position, length = field(codes[2], bits), field(codes[3], bits)
        return sum((codes[0] >> (i - position) & 1 if position <= i < position + length else codes[1] >> i & 1) << i for i in range(bits))
    simple = {"sad": lambda: values[2] + abs(values[0] - values[1]), "abs": lambda: abs(values[0]), "neg": lambda: -values[0],
              "popc": lambda: bin(codes[0]).count("1"), "clz": lambda: bits - codes[0].bit_length(),
              "brev": lambda: int(f"{codes[0]:0{bits}b}"[::-1], 2)}
    return simple[operation]() & mask if operation in simple else None


def extremum(name, codes):
    """min and max of any number of f32; NaN is left out unless .NaN asks for it, and +0 is above -0."""
    operation, *modifiers = name.split(".")
    form = Format("f32")
    codes = [form.flush(c) if "ftz" in modifiers else c for c in codes]
    codes = [c & ~form.sign if "abs" in modifiers else c for c in codes]
    numbers = [c for c in codes if not form.is_nan(c)]
    if not numbers or ("NaN" in modifiers and len(numbers) < len(codes)):
        return form.nan
    return (min if operation == "min" else max)(numbers, key=lambda c: -(c & ~form.sign) - 1 if c & form.sign else c)


def expected(case, name, type_name, codes):
    family, operation = case.split("/")[0], name.split(".")[0]
    mixed = re.fullmatch(r"(.*\.f32)\.(b?f16)", name) if family == "float" else None
    if mixed:  # halves are f32 before anything else happens
        name, half = mixed[1], Format(mixed[2])
        codes = [number_code(Format("f32"), half.decode(code), "rn") for code in codes[:-1]] + codes[-1:]
    if ".of.three." in name:
        return extremum(name, codes)
    if family in ("float", "half") and operation in ("add", "sub", "mul", "fma", "div", "rcp", "sqrt"):
        return None if re.search(r"approx|full", name) else arithmetic(name, type_name, codes)
    if family == "integer":
        return integer(name, codes)
    if family == "convert" and len(codes) == 1 and re.fullmatch(r"cvt(\.\w+)*\.([us]\d+|b?f\d+)\.([us]\d+|b?f\d+)", name):
        return conversion(name, codes[0])
    return None


def check(values_file):
    """Prints where a file of --values differs from the model; 1 if it does anywhere."""
    agreed, unmodelled, wrong = 0, set(), {}
    case, inputs = "", []
    with open(values_file, encoding="ascii") as lines:
        for line in lines:
            kind, name, *rest = line.split()
            if kind == "case":
                case, inputs = name, []
                continue
            type_name, values = rest[0], [int(word, 16) for word in rest[1:]]
            if kind == "in":
                inputs.append(values)
                continue
            if any(len(each) != len(values) for each in inputs):
                unmodelled.add(f"{case} {name}")
                continue
            for codes in zip(*inputs, values):
                want = expected(case, name, type_name, list(codes[:-1]))
                if want is None:
                    unmodelled.add(f"{case} {name}")
                    break
                both_nan = type_name in FORMATS and Format(type_name).is_nan(want) and Format(type_name).is_nan(codes[-1])
                if want == codes[-1] or both_nan:
                    agreed += 1
                else:
                    wrong.setdefault(f"{case} {name}", []).append(f"{[hex(c) for c in codes[:-1]]} gives {codes[-1]:#x}, not {want:#x}")
    for where, messages in wrong.items():
        print(f"{where}: {len(messages)} values differ: {messages[0]}")
    print(f"{agreed} values agree with the model; {len(wrong)} forms differ; {len(unmodelled)} forms are not modelled")
    return 1 if wrong or not agreed else 0
