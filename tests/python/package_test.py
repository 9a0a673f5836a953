#!/usr/bin/env python3
"""The package as a wheel installs it: Python files, the C library, the command and the extension in one folder of
site-packages, and NVRTC's wheel beside it. And the stubs, and what pyproject.toml says.

ctest sets PYTHONPATH, KERNELWRIGHT_LIBRARY and KERNELWRIGHT_COMMAND to what was built.
"""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import kernelwright
from kernelwright import MissingError, _command, _door, _library, _version

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "kernelwright"


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Installed(unittest.TestCase):
    """A site-packages folder, and Python in an empty environment that sees no other package of ours."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.site = pathlib.Path(cls.folder.name).resolve() / "site"
        cls.package = cls.site / "kernelwright"
        shutil.copytree(PACKAGE, cls.package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(_library.find(), cls.package / "libkernelwright_c.so")
        (cls.package / "bin").mkdir()
        shutil.copy(_command.find_command(), cls.package / "bin" / "kernelwright")
        if _door._fast:
            shutil.copy(_door.WHY, cls.package)
        told = subprocess.run([_command.find_command(), "doctor", "--json"], capture_output=True, check=False)
        nvrtc = json.loads(told.stdout)["compiler"]
        cls.has_nvrtc = "version" in nvrtc
        if cls.has_nvrtc:
            major = nvrtc["version"].partition(".")[0]
            beside = cls.site / "nvidia" / ("cu13" if major == "13" else "cuda_nvrtc") / "lib"
            beside.mkdir(parents=True)
            for file in pathlib.Path(nvrtc["path"]).parent.glob("libnvrtc*.so*"):
                (beside / file.name).symlink_to(file.resolve())
            cls.nvrtc = str(beside / f"libnvrtc.so.{major}")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def python(self, *words, **environment):
        return subprocess.run([sys.executable, "-B", *words], capture_output=True, text=True, check=False, cwd=self.folder.name,
                              env={"PYTHONPATH": str(self.site), "HOME": self.folder.name, **environment})

    def test_doctor_says_how_calls_are_served_and_which_nvrtc_serves(self):
        done = self.python("-m", "kernelwright", "doctor", "--json")
        told = json.loads(done.stdout)
        self.assertEqual(told["python"], {"version": sys.version.split()[0], "fast": _door._fast is not None,
                                          "why": told["python"]["why"]}, done.stderr)
        if _door._fast:
            self.assertEqual(told["python"]["why"], str(self.package / "_fast.abi3.so"))
        if self.has_nvrtc:
            self.assertEqual(told["compiler"]["path"], self.nvrtc)

    def test_nvrtc_beside_the_package_compiles_without_a_variable(self):
        if not self.has_nvrtc:
            self.skipTest("no NVRTC here")
        done = self.python("-c", "import kernelwright\n"
                           "engine = kernelwright.Engine('emulator', memory_only_cache=True)\n"
                           "heads = {'head_dim': {'qk': 64, 'v': 64}, 'heads': {'q': 1, 'kv': 1}}\n"
                           "kernel = engine.prepare({'problem': heads})\n"
                           "q, k, v = (engine.empty((1, 4, 1, 64), 'bf16') for _ in range(3))\n"
                           "for tensor in (q, k, v): tensor.write(b'\\x80\\x3f' * 256)\n"  # ones
                           "print(engine.counters()['compiles'], set(kernel(q, k, v).read()), kernelwright._library.find())")
        self.assertEqual(done.stdout, f"1 {{128, 63}} {self.package / 'libkernelwright_c.so'}\n", done.stderr)

    def test_the_module_is_the_command(self):
        done = self.python("-m", "kernelwright", "version")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(kernelwright.__version__, done.stdout)
        done = self.python("-m", "kernelwright", "run", "/nowhere.json")
        self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_pips_own_script_is_not_taken_for_the_command(self):
        bare = self.site.parent / "bare" / "kernelwright"
        shutil.copytree(PACKAGE, bare, ignore=shutil.ignore_patterns("__pycache__"))
        folder = self.site.parent / "scripts"
        folder.mkdir()
        (folder / "kernelwright").write_text(f"#!{sys.executable}\nfrom kernelwright.__main__ import main\nmain()\n")
        (folder / "kernelwright").chmod(0o755)
        done = self.python("-m", "kernelwright", "doctor", PYTHONPATH=str(bare.parent), PATH=str(folder))
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertRegex(done.stderr, "^kernelwright: the command kernelwright is neither beside the package nor in PATH;")


class Versions(unittest.TestCase):
    def test_the_package_has_the_librarys_version(self):
        self.assertEqual(kernelwright.version(), kernelwright.__version__)

    def test_a_library_of_another_major_version_is_refused(self):
        with mock.patch.object(_library, "MAJOR", _version.MAJOR + 1):
            with self.assertRaisesRegex(MissingError, rf"has version {re.escape(_version.__version__)}, and this package .*, "
                                                      rf"which needs {_version.MAJOR + 1}\.x; install both from one wheel"):
                _library.Library(_library.find())

    def test_a_newer_minor_version_is_taken(self):
        with mock.patch.object(_library, "__version__", f"{_version.MAJOR}.{_version.MINOR + 1}.0"):
            self.assertEqual(_library.Library(_library.find()).version(), _version.__version__)

    @unittest.skipIf(sys.version_info < (3, 11), "this Python reads no TOML")
    def test_the_wheel_takes_its_version_from_the_header(self):
        import tomllib
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        rule, = project["tool"]["dynamic-metadata"]
        found = re.search(rule["regex"], (ROOT / rule["input"]).read_text(encoding="utf-8"))
        self.assertEqual(rule["result"].format(**found.groupdict()), kernelwright.__version__)
        self.assertEqual(sorted(project["project"]["optional-dependencies"]), ["cu12", "cu13", "ray"])


class Stubs(unittest.TestCase):
    def test_they_are_current(self):
        done = subprocess.run([sys.executable, "-B", str(ROOT / "scripts" / "generate_stubs.py"), "--check"],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_public_name_without_a_type_is_refused(self):
        generate = script("generate_stubs")

        def surprise(unheard_of):
            return unheard_of

        with self.assertRaisesRegex(generate.Untyped, "^surprise: has no type; add one to a table"):
            generate.function_text("", "surprise", generate.parameters_of(surprise))
        with self.assertRaisesRegex(generate.Untyped, "^surprise, unheard_of: has no type"):
            generate.function_text("", "surprise", generate.parameters_of(surprise), result="None")


if __name__ == "__main__":
    unittest.main(verbosity=2)
