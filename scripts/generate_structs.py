#!/usr/bin/env python3
"""Writes python/kernelwright/_structs.py and _version.py from runtime/c/c_api.h.

    scripts/generate_structs.py           # writes the files
    scripts/generate_structs.py --check   # fails if a file is not what the header gives

The header is plain C of a few forms, and this script reads these forms alone: a struct of fields, an enum of numbers,
a callback, an opaque handle, a name for an integer type, and a function. It refuses any other declaration, so that no
field is left out silently.
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
HEADER = ROOT / "runtime" / "c" / "c_api.h"
MODULE = ROOT / "python" / "kernelwright" / "_structs.py"
VERSION_MODULE = MODULE.with_name("_version.py")

HEAD = '''"""The structs, callbacks and constants of runtime/c/c_api.h.

scripts/generate_structs.py writes this file. Do not edit it: change the header and run the script.
"""
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

from ._checked import Checked, Struct
'''

VERSION_TEXT = '''"""The version of runtime/c/c_api.h, and so of this package.

scripts/generate_structs.py writes this file. Do not edit it: change the header and run the script.
"""
MAJOR, MINOR, PATCH = {0}, {1}, {2}
__version__ = "{0}.{1}.{2}"
'''

TYPES = {"size_t": "c_size_t", "int32_t": "c_int32", "int64_t": "c_int64", "uint32_t": "c_uint32", "uint64_t": "c_uint64",
         "float": "c_float", "double": "c_double", "const char*": "c_char_p", "const char* const*": "POINTER(c_char_p)",
         "const double*": "POINTER(c_double)", "void*": "c_void_p"}
# ctypes would cut the text of a callback at its first zero. A callback gets the address instead, and a length beside.
CALLBACK_TYPES = TYPES | {"const char*": "c_void_p"}
WIDTH = 128


class Unreadable(Exception):
    """A part of the header that is in none of the known forms."""


def declarations(text):
    """The declarations of a header, without comments and preprocessor lines, in their order."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", text, flags=re.S | re.M)
    text = re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*\n", "", text, flags=re.M)
    found, depth, begin = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == ";" and depth == 0:
            found.append(" ".join(text[begin:place].split()))
            begin = place + 1
    if depth != 0 or text[begin:].strip():
        raise Unreadable(f"the header ends inside a declaration: {text[begin:].strip()[:80]}")
    return found


def class_name(c_name):
    """AttentionTensors, for kernelwright_attention_tensors."""
    return "".join(word.capitalize() for word in c_name.removeprefix("kernelwright_").split("_"))


def constant_name(c_name):
    if not c_name.startswith("KERNELWRIGHT_"):
        raise Unreadable(f"a constant without the prefix KERNELWRIGHT_: {c_name}")
    return c_name.removeprefix("KERNELWRIGHT_")


class Module:
    """The text of the module, made declaration by declaration."""

    def __init__(self):
        self.text, self.known, self.constants = HEAD, {}, set()
        self.constants_last = True  # whether the text ends with constants, or with the imports; two blank lines otherwise

    def type_of(self, words, types):
        """The ctypes type of a C type."""
        words = re.sub(r"\s*\*", "*", " ".join(words.split())).replace("*const", "* const")
        if words in types:
            return types[words]
        if words in self.known:
            return self.known[words]
        pointed = re.fullmatch(r"(?:const )?(\w+)\*", words)
        if pointed and pointed[1] in self.known:
            return f"POINTER({self.known[pointed[1]]})"
        raise Unreadable(f"an unknown type: {words}")

    def count_of(self, words):
        """The extent of an array: a number, a constant of the header, or a sum of the two."""
        terms = [term.strip() for term in words.split("+")]
        terms = [term if term.isdigit() else constant_name(term) for term in terms]
        for term in terms:
            if not term.isdigit() and term not in self.constants:
                raise Unreadable(f"an unknown extent of an array: {words}")
        return " + ".join(terms)

    def fields_of(self, body):
        fields = []
        for declaration in filter(None, map(str.strip, body.split(";"))):
            parts = re.fullmatch(r"(.*?[\s*])(\w+(?:\s*,\s*\w+)*)\s*(?:\[([^\]]*)\])?", declaration)
            if not parts:
                raise Unreadable(f"a field in no known form: {declaration}")
            kind = self.type_of(parts[1], TYPES)
            if parts[3]:
                count = self.count_of(parts[3])
                kind = f"{kind} * {count}" if "+" not in count else f"{kind} * ({count})"
            fields += [(name.strip(), kind) for name in parts[2].split(",")]
        return fields

    def add_struct(self, c_name, body):
        name, fields = class_name(c_name), self.fields_of(body)
        base = "Struct" if fields[:1] == [("struct_size", "c_size_t")] else "Checked"
        lines, line = [], "    _fields_ = ["
        for at, (field, kind) in enumerate(fields):
            item = f'("{field}", {kind})' + ("," if at + 1 < len(fields) else "]")
            if len(line) + 1 + len(item) > WIDTH:
                lines.append(line)
                line = " " * 16
            line += item if line[-1] in "[ " else " " + item
        self.text += f"\n\nclass {name}({base}):\n" + "\n".join(lines + [line]) + "\n"
        self.known[c_name], self.constants_last = name, False

    def add_constants(self, body):
        lines = []
        for item in body.split(","):
            parts = re.fullmatch(r"\s*(\w+)\s*=\s*(\d+)\s*", item)
            if not parts:
                raise Unreadable(f"a constant in no known form: {item.strip()}")
            name = constant_name(parts[1])
            if name in self.constants:
                raise Unreadable(f"two constants with one name: {name}")
            self.constants.add(name)
            lines.append(f"{name} = {parts[2]}\n")
        gap = "\n" if self.constants_last else "\n\n"
        self.text += gap + "".join(lines)
        self.constants_last = True

    def add_callback(self, c_name, parameters):
        kinds = []
        for parameter in parameters.split(","):
            parts = re.fullmatch(r"\s*(.*[\s*])\w+\s*", parameter)
            if not parts:
                raise Unreadable(f"a parameter in no known form: {parameter.strip()}")
            kinds.append(self.type_of(parts[1], CALLBACK_TYPES))
        name = class_name(c_name)
        self.text += f"\n\n{name} = CFUNCTYPE(None, {', '.join(kinds)})\n"
        self.known[c_name], self.constants_last = name, False

    def add(self, declaration):
        name = r"(kernelwright_\w+)"
        if parts := re.fullmatch(rf"typedef struct {name} {{(.*)}} {name}", declaration):
            if parts[1] != parts[3]:
                raise Unreadable(f"a struct with two names: {parts[1]} and {parts[3]}")
            return self.add_struct(parts[1], parts[2])
        if parts := re.fullmatch(r"enum {(.*)}", declaration):
            return self.add_constants(parts[1])
        if parts := re.fullmatch(rf"typedef void \(\*{name}\)\((.*)\)", declaration):
            return self.add_callback(parts[1], parts[2])
        if re.fullmatch(rf"typedef struct {name} \1", declaration):  # an opaque handle
            return None
        if parts := re.fullmatch(rf"typedef (\w+) {name}", declaration):
            self.known[parts[2]] = self.type_of(parts[1], TYPES)
            return None
        if re.fullmatch(r"KERNELWRIGHT_API .* ?\*?kernelwright_\w+\([^()]*\)", declaration):
            return None
        raise Unreadable(f"a declaration in no known form: {declaration[:120]}")


def module_of(header):
    """The text of the module for the text of a header."""
    module = Module()
    for declaration in declarations(header):
        module.add(declaration)
    return module.text


def version_module_of(header):
    """The text of the version's module for the text of a header."""
    parts = [re.findall(rf"^#define KERNELWRIGHT_VERSION_{name} (\d+)$", header, re.M) for name in ("MAJOR", "MINOR", "PATCH")]
    if any(len(found) != 1 for found in parts):
        raise Unreadable("it does not define each of KERNELWRIGHT_VERSION_MAJOR, _MINOR and _PATCH once, as a number")
    return VERSION_TEXT.format(*(found[0] for found in parts))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="write nothing; fail if the file is not current")
    check = arguments.parse_args().check
    try:
        header = HEADER.read_text(encoding="utf-8")
        texts = {MODULE: module_of(header), VERSION_MODULE: version_module_of(header)}
    except Unreadable as error:
        sys.exit(f"{HEADER.relative_to(ROOT)}: {error}")
    for module, text in texts.items():
        if not check:
            module.write_text(text, encoding="utf-8")
        elif not module.exists() or module.read_text(encoding="utf-8") != text:
            sys.exit(f"{module.relative_to(ROOT)} is not what {HEADER.relative_to(ROOT)} gives; run scripts/generate_structs.py")


if __name__ == "__main__":
    main()
