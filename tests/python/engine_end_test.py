#!/usr/bin/env python3
"""Engines that end, or that compile elsewhere, on the emulator. Each test has a process of its own, which a fault would take along.

ctest sets PYTHONPATH and KERNELWRIGHT_LIBRARY.
"""
import os
import subprocess
import sys
import unittest

import kernelwright
from kernelwright import ConfigError


def ended(program, **environment):
    """The process that has run the Python program. It may take a minute."""
    return subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True, timeout=60, env=os.environ | environment)


class InAProcess(unittest.TestCase):
    def test_compiles_in_worker_processes_that_leave_no_compiler_here(self):
        with self.assertRaisesRegex(ConfigError, '/compile_in: "child" is not one of process, workers, auto, hosts'):
            kernelwright.Engine("emulator", compile_in="child")
        program = (
            "import kernelwright\n"
            "with kernelwright.Engine('emulator', compile_in='workers', memory_only_cache=True) as engine:\n"
            "    engine.prepare({'kind': 'row_op', 'problem': {'width': 256, 'norm': {'kind': 'rms'}}})\n"
            "    print(engine.kernels()[0]['source'], 'libnvrtc' in open('/proc/self/maps').read())\n")
        done = ended(program)
        self.assertEqual(done.stdout, "compiled False\n", done.stderr)

    def test_stop_wakes_a_prepare_that_waits_for_a_dropped_kernel(self):
        """Else the stop hangs, and takes its process along."""
        program = (
            "import threading, time, kernelwright\n"
            "configs = [{'kind': 'row_op', 'problem': {'width': 256 * k, 'norm': {'kind': 'rms'}}} for k in range(1, 9)]\n"
            "engine = kernelwright.Engine('emulator', memory_only_cache=True, compile_threads=1)\n"
            "for config in configs:\n"
            "    engine.prepare(config, background=True)\n"
            "def wait():\n"
            "    try:\n"
            "        engine.prepare(configs[-1])\n"
            "    except kernelwright.KernelwrightError as error:\n"
            "        print(error)\n"
            "thread = threading.Thread(target=wait, daemon=True)\n"
            "thread.start()\n"
            "time.sleep(0.1)\n"
            "engine.stop()\n"
            "thread.join(10)\n")
        done = ended(program)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("stopped", done.stdout)

    def test_an_engine_may_be_collected_on_its_own_thread(self):
        """Python's collector runs on any thread, and so inside on_event on one that compiles for the engine."""
        program = (
            "import gc, threading, kernelwright\n"
            "gc.disable()\n"
            "dropped, collected = threading.Event(), threading.Event()\n"
            "def told(event):\n"
            "    if not collected.is_set() and dropped.wait(20):\n"
            "        gc.collect()\n"
            "        collected.set()\n"
            "engine = kernelwright.Engine('emulator', memory_only_cache=True, on_event=told)\n"
            "engine.prepare({'kind': 'row_op', 'problem': {'width': 256, 'norm': {'kind': 'rms'}}}, background=True)\n"
            "closed = engine._close\n"
            "del engine\n"
            "dropped.set()\n"
            "assert collected.wait(20)\n"
            "print(closed.alive)\n")
        done = ended(program, MALLOC_PERTURB_="165")  # what is freed has no old contents
        self.assertEqual((done.returncode, done.stdout), (0, "False\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
