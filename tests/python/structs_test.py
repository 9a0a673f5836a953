#!/usr/bin/env python3
"""scripts/generate_structs.py: its modules are current, and a header in an unknown form is refused."""
import importlib.util
import pathlib
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def script():
    spec = importlib.util.spec_from_file_location("generate_structs", ROOT / "scripts" / "generate_structs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = script()


class Structs(unittest.TestCase):
    def test_the_module_is_current(self):
        current = generate.module_of(generate.HEADER.read_text(encoding="utf-8"))
        self.assertEqual(generate.MODULE.read_text(encoding="utf-8"), current,
                         "python/kernelwright/_structs.py is not what runtime/c/c_api.h gives; run scripts/generate_structs.py")

    def test_the_version_is_current(self):
        current = generate.version_module_of(generate.HEADER.read_text(encoding="utf-8"))
        self.assertEqual(generate.VERSION_MODULE.read_text(encoding="utf-8"), current,
                         "python/kernelwright/_version.py is not what runtime/c/c_api.h gives; run scripts/generate_structs.py")

    def test_the_version_is_three_numbers_of_the_header(self):
        lines = "".join(f"#define KERNELWRIGHT_VERSION_{name} {number}\n" for name, number in
                        (("MAJOR", 2), ("MINOR", 10), ("PATCH", 3)))
        names = {}
        exec(generate.version_module_of(lines), names)
        self.assertEqual((names["MAJOR"], names["MINOR"], names["PATCH"], names["__version__"]), (2, 10, 3, "2.10.3"))
        for bad in (lines.replace("2\n", "TWO\n"), lines + lines, lines.replace("MINOR", "MIDDLE")):
            with self.subTest(bad), self.assertRaisesRegex(generate.Unreadable, "does not define each of"):
                generate.version_module_of(bad)

    def test_each_form_of_the_header_becomes_python(self):
        text = generate.module_of(textwrap.dedent("""\
            #ifndef GUARD /* a guard */
            #define TWO_LINES \\
              struct {
            #ifdef __cplusplus
            extern "C" {
            #endif
            typedef struct kernelwright_engine kernelwright_engine; /* opaque */
            typedef int32_t kernelwright_status;
            enum { KERNELWRIGHT_COUNT = 4, KERNELWRIGHT_OTHER = 5 };
            typedef struct kernelwright_pair {
              int64_t first, second;
            } kernelwright_pair;
            typedef struct kernelwright_two_words {
              size_t struct_size; /* a; comment */
              const char* const* words;
              kernelwright_pair pair;
              double bounds[KERNELWRIGHT_COUNT + 1];
              kernelwright_status status;
            } kernelwright_two_words;
            typedef void (*kernelwright_word_callback)(const kernelwright_two_words* words, const char* text, void* data);
            KERNELWRIGHT_API const char* kernelwright_name(void);
            #ifdef __cplusplus
            }
            #endif
            #endif
            """))
        self.assertEqual(text.removeprefix(generate.HEAD), """
COUNT = 4
OTHER = 5


class Pair(Checked):
    _fields_ = [("first", c_int64), ("second", c_int64)]


class TwoWords(Struct):
    _fields_ = [("struct_size", c_size_t), ("words", POINTER(c_char_p)), ("pair", Pair), ("bounds", c_double * (COUNT + 1)),
                ("status", c_int32)]


WordCallback = CFUNCTYPE(None, POINTER(TwoWords), c_void_p, c_void_p)
""")

    def test_what_it_cannot_read_is_an_error(self):
        def struct(field):
            return f"typedef struct kernelwright_a {{ {field} }} kernelwright_a;"

        for header, words in ((struct("int16_t x;"), "an unknown type: int16_t"),
                              (struct("int32_t x : 3;"), "an unknown type: int32_t x :"),
                              (struct("int32_t x[3][4];"), "a field in no known form"),
                              (struct("int32_t *x, y;"), r"an unknown type: int32_t\*"),
                              (struct("int32_t x[KERNELWRIGHT_MANY];"), "an unknown extent of an array: KERNELWRIGHT_MANY"),
                              (struct("struct { int32_t x; } y;"), "an unknown type: struct"),
                              ("typedef struct kernelwright_a { int32_t x; } kernelwright_b;", "a struct with two names"),
                              ("typedef union kernelwright_a { int32_t x; } kernelwright_a;", "a declaration in no known form"),
                              ("struct kernelwright_a { int32_t x; };", "a declaration in no known form"),
                              ("enum { KERNELWRIGHT_A, KERNELWRIGHT_B };", "a constant in no known form: KERNELWRIGHT_A"),
                              ("enum { OTHER_A = 1 };", "without the prefix KERNELWRIGHT_: OTHER_A"),
                              ("enum { KERNELWRIGHT_A = 1, KERNELWRIGHT_A = 2 };", "two constants with one name: A"),
                              ("enum kernelwright_a { KERNELWRIGHT_A = 1 };", "a declaration in no known form"),
                              ("typedef int32_t (*kernelwright_f)(void* data);", "a declaration in no known form"),
                              (struct("int32_t x;") + " int32_t y", "ends inside a declaration")):
            with self.subTest(header), self.assertRaisesRegex(generate.Unreadable, words):
                generate.module_of(header)


if __name__ == "__main__":
    unittest.main(verbosity=2)
