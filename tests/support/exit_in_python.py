"""Leaves while compiles run in the background, for process_exit_test.cpp: MODE DELAY_US. The engine is never closed.

end      falls off the end of the script
exit     sys.exit(7)
daemon   falls off the end while a daemon thread is inside a prepare() that waits
Exit status 0 or 7; 99 if a call failed."""
import sys
import threading
import time

import kernelwright

seen = []


def problem(head_dim, mask):
    return {"problem": {"head_dim": {"qk": head_dim, "v": head_dim}, "heads": {"q": 4, "kv": 4}, "mask": {"kind": mask}}}


def prepare_blocking():
    for head_dim in (96, 192):
        try:
            engine.prepare(problem(head_dim, "causal"))
        except kernelwright.NotReadyError:  # the interpreter is leaving
            return


mode, delay_us = sys.argv[1], int(sys.argv[2])
engine = kernelwright.Engine("emulator", memory_only_cache=True, compile_threads=3,
                             on_event=lambda event: seen.append(event["kind"]))
left_over = engine.empty((1000,), "f32")  # freed by nobody
for head_dim in (64, 128):
    for mask in ("causal", "none"):
        engine.prepare(problem(head_dim, mask), background=True)
if mode == "daemon":
    threading.Thread(target=prepare_blocking, daemon=True).start()
time.sleep(delay_us / 1e6)
if mode == "exit":
    sys.exit(7)
