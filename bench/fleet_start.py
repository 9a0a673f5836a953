#!/usr/bin/env python3
"""How a fleet starts: hosts with their ranks, a real Redis behind a network of limited rate, and an arrival pattern.

    python3 bench/fleet_start.py --workload bench/fleet/llama3-8b.csv cold warm rolling gone
    python3 bench/fleet_start.py --plan plan.json --hosts 2 --ranks 4 --slots 1 cold
    python3 bench/fleet_start.py --list

Each host has a cache directory and locks of its own, and each rank is a process with the library's cache: its locks, its entries on
disk, its client of Redis, its leases, signatures and time limits. With `--workload`, a compile is a sleep of the time in that
file, and 768 ranks run on two cores. With `--plan`, each rank is a real engine: it compiles by NVRTC in compile workers, and
loads onto the emulator. docs/fleet-capacity.md has the results and says what is modelled.

Needs redis-server, and the program kernelwright_fleet_bench of the build. Exit status: 0, 1 if a rank was not ready in time.
"""
import argparse
import base64
import collections
import csv
import json
import os
import pathlib
import random
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from loopback import free_port, wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent
ARRIVALS = ("once", "rolling", "poisson", "crash")
FAULTS = ("none", "gone", "gone-midway", "hangs", "read-only", "holder-killed")
# What each scenario sets beside the options of the command line.
SCENARIOS = {
    "alone": ("no shared cache", {"remote": False}),
    "cold": ("all at once, the cache is empty", {}),
    "warm": ("all at once, the cache has everything, hosts only read", {"warm": True, "readers": True}),
    "warm-1gbit": ("the same over 1 Gb/s", {"warm": True, "readers": True, "gigabits": 1.0}),
    "warm-writers": ("the same, and every host has the signing key", {"warm": True}),
    "rolling": ("8 hosts every 2 s, the cache is empty", {"arrivals": "rolling"}),
    "poisson": ("10 hosts a second at random, the cache is empty", {"arrivals": "poisson"}),
    "crash": ("half the hosts die midway, and start again with empty disks", {"arrivals": "crash"}),
    "gone": ("the server is not there", {"fault": "gone"}),
    "gone-midway": ("the server dies midway", {"fault": "gone-midway"}),
    "hangs": ("the server accepts, and never answers", {"fault": "hangs"}),
    "slow": ("0.02 Gb/s, the cache has everything, hosts only read", {"warm": True, "readers": True, "gigabits": 0.02}),
    "slow-cold": ("0.02 Gb/s, the cache is empty", {"gigabits": 0.02}),
    "read-only": ("the server refuses writes, the cache is empty", {"fault": "read-only"}),
    "readers": ("hosts have no signing key, the cache is empty", {"readers": True}),
    "holder-killed": ("the host that compiles first is killed meanwhile", {"fault": "holder-killed"}),
    "no-compiler": ("one host has no compiler, the cache is empty", {"hosts_without_compiler": 1}),
}
SHOWN = ("scenario", "all_ready_s", "p50_s", "p99_s", "max_s", "compiles", "lease_waits", "requests", "peak_requests_s",
         "mb_from_server", "mb_to_server", "failures", "not_ready")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="by --list; default: cold")
    parser.add_argument("--list", action="store_true", help="print the scenarios")
    kernels = parser.add_mutually_exclusive_group()
    kernels.add_argument("--workload", type=pathlib.Path, default=ROOT / "bench/fleet/llama3-8b.csv",
                         help="CSV of kernels; kernelwright_fleet_bench measure makes one")
    kernels.add_argument("--plan", type=pathlib.Path, help="a plan for real engines")
    parser.add_argument("--hosts", type=int, default=96)
    parser.add_argument("--ranks", type=int, default=8, help="processes of a host")
    parser.add_argument("--threads", type=int, default=4, help="threads of a rank that ask for kernels")
    parser.add_argument("--slots", type=int, default=8, help="compiles at once on a host")
    parser.add_argument("--slowdown", type=float, default=1.0, help="of compiles: 2 doubles their time")
    parser.add_argument("--gigabits", type=float, default=10.0, help="a second, of the server's link; 0: no limit")
    parser.add_argument("--latency-ms", type=float, default=0.1, help="of each direction")
    parser.add_argument("--arrivals", choices=ARRIVALS, default="once")
    parser.add_argument("--spread", type=float, default=10.0, help="once, crash: hosts start at random within so many seconds")
    parser.add_argument("--batch", type=int, default=8, help="rolling: hosts that start together")
    parser.add_argument("--interval", type=float, default=2.0, help="rolling: seconds between batches")
    parser.add_argument("--rate", type=float, default=10.0, help="poisson: hosts a second")
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--hosts-without-compiler", type=int, default=0)
    parser.add_argument("--retry", type=float, default=5.0, help="seconds until a rank whose start failed starts again")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds to wait for all ranks")
    parser.add_argument("--seed", type=int, default=1, help="of arrivals")
    parser.add_argument("--folder", default="/dev/shm", help="for caches and locks: a local file system")
    parser.add_argument("--program", default=ROOT / "build/bench/kernelwright_fleet_bench")
    parser.add_argument("--json", action="store_true", help="print a JSON object for each scenario, not a table")
    parser.add_argument("--csv", type=pathlib.Path, metavar="FILE", help="also write every counter of each scenario")
    parser.set_defaults(remote=True, warm=False, readers=False)
    return parser.parse_args()


def write_keys(folder):
    """A new pair of Ed25519 keys as PEM files (RFC 8410)."""
    from_seed, private, public = bytes.fromhex("302e020100300506032b657004220420"), folder / "key.pem", folder / "key.pub"
    body = base64.b64encode(from_seed + os.urandom(32)).decode()
    private.touch(0o600)
    private.write_text(f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, stderr=subprocess.DEVNULL)
    public.chmod(0o644)
    return private, public


def ahead_of_hosts():
    """The server's processes go first, as if they had cores of their own. Only root may ask for that."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    except PermissionError:
        pass


class Server:
    """A Redis, and the network before it."""

    def __init__(self, options, folder):
        self.program, self.port, self.front = options.program, free_port(), free_port()
        self.options, self.link = options, None
        self.redis = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly",
                                       "no", "--dir", folder, "--loglevel", "warning"], stdout=subprocess.DEVNULL, preexec_fn=ahead_of_hosts)
        wait_for(self.port, "redis-server")

    def open_link(self):
        options = self.options
        self.link = subprocess.Popen([self.program, "proxy", "--listen", str(self.front), "--server", str(self.port), "--gigabits",
                                      str(options.gigabits), "--latency-ms", str(options.latency_ms)], stdout=subprocess.PIPE, preexec_fn=ahead_of_hosts)
        wait_for(self.front, "the build's program")

    def ask(self, command):
        """The reply to one command, whole if it is a text."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
            link.sendall(command.encode() + b"\r\n")
            stream = link.makefile("rb")
            head = stream.readline().decode().strip()
            return stream.read(int(head[1:])).decode() if head.startswith("$") else head

    def info(self, section):
        return dict(line.split(":", 1) for line in self.ask(f"INFO {section}").splitlines() if ":" in line)

    def calls(self):
        """Requests by command."""
        stats = self.info("commandstats")
        return {name[len("cmdstat_"):]: int(value.split("calls=")[1].split(",")[0]) for name, value in stats.items()}

    def die(self):
        for process in (self.link, self.redis):
            if process and process.poll() is None:
                process.kill()
                process.wait()

    def close(self):
        """What passed through the network."""
        passed = {}
        if self.link and self.link.poll() is None:
            self.link.terminate()
            passed = json.loads(self.link.communicate()[0] or b"{}")
        self.die()
        return passed


class Fleet:
    """The hosts of one run, and what their ranks have said."""

    def __init__(self, options, folder, address, keys):
        self.options, self.folder, self.address, self.keys = options, folder, address, keys
        self.reading, self.writing = os.pipe()
        self.rest = b""
        self.processes = {}
        self.starts = 0
        self.ready, self.counters, self.failed, self.compiles = {}, {}, 0, []
        self.degraded = collections.Counter()

    def start(self, host, begin, **changed):
        """Starts a host, with an empty disk, whose ranks begin at the Unix time `begin`."""
        options = argparse.Namespace(**(vars(self.options) | changed))
        folder = self.folder / f"host-{host}-{self.starts}"
        self.starts += 1
        words = [options.program, "host", "--host", host, "--folder", folder, "--ranks", options.ranks, "--threads", options.threads,
                 "--slots", options.slots, "--slowdown", options.slowdown, "--retry", options.retry, "--begin", repr(begin)]
        words += ["--plan", options.plan] if options.plan else ["--workload", options.workload]
        if options.remote:
            words += ["--remote", self.address, "--public-key", self.keys[1]]
            if not options.readers:
                words += ["--signing-key", self.keys[0]]
        if host < options.hosts_without_compiler:
            words += ["--without-compiler", 1]
        self.processes[host] = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=self.writing,
                                                start_new_session=True)

    def kill(self, host):
        os.killpg(self.processes[host].pid, signal.SIGKILL)
        self.processes.pop(host).wait()
        for rank in [rank for rank in self.ready if rank[0] == host]:
            del self.ready[rank]

    def listen(self, seconds):
        """Takes what ranks say, for so long at most."""
        if not select.select([self.reading], [], [], seconds)[0]:
            return
        *lines, self.rest = (self.rest + os.read(self.reading, 1 << 20)).split(b"\n")
        for line in map(json.loads, lines):
            rank = line["host"], line["rank"]
            if "compile" in line:
                self.compiles.append(line)
            elif "ready_s" in line:
                self.ready[rank] = time.time(), line["ready_s"]
            elif "counters" in line:
                self.counters[rank] = line["counters"]
            elif "degraded" in line:
                # Without addresses and times, so that equal reasons are counted together.
                self.degraded[re.sub(r"redis://\S+: |; it is not asked.*|kw2/\S+ ", "", line["degraded"])] += 1
            else:
                self.failed += 1

    def end(self):
        """Tells the ranks that all is over, and waits for their counters."""
        for process in self.processes.values():
            process.stdin.close()
        while any(process.poll() is None for process in self.processes.values()):
            self.listen(0.05)
        self.listen(0)
        os.close(self.reading)
        os.close(self.writing)

    def total(self, name):
        return sum(counters[name] for counters in self.counters.values())


def begin_times(options, start):
    """When each host starts."""
    dice = random.Random(options.seed)
    times, at = [], start
    for host in range(options.hosts):
        if options.arrivals in ("once", "crash"):
            at = start + dice.uniform(0, options.spread)
        elif options.arrivals == "rolling":
            at = start + host // options.batch * options.interval
        else:
            at += dice.expovariate(options.rate)
        times.append(at)
    return times


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None


def fill(options, folder, server, keys):
    """One host compiles everything at no cost, and sends it."""
    fleet = Fleet(options, folder, f"redis://127.0.0.1:{server.port}", keys)
    fleet.start(options.hosts, time.time(), ranks=1, slowdown=0, readers=False, hosts_without_compiler=0)
    while not fleet.ready:
        fleet.listen(1)
    fleet.end()


def watch(options, fleet, server, start):
    """Plays the faults, and listens until all ranks are ready. Returns the most requests in a second and the lost hosts."""
    killed, crashed, lost = False, False, 0
    samples, last, midway = [], 0.0, start + options.spread / 2
    while time.time() < start + options.limit and len(fleet.ready) < options.ranks * len(fleet.processes):
        fleet.listen(0.02)
        now = time.time()
        if options.fault == "holder-killed" and fleet.compiles and not killed:
            fleet.kill(fleet.compiles[0]["host"])
            killed, lost = True, 1
        if options.fault == "gone-midway" and now > midway and server.redis.poll() is None:
            server.die()
        if options.arrivals == "crash" and now > midway and not crashed:
            crashed = True
            half = list(fleet.processes)[:options.hosts // 2]
            for host in half:
                fleet.kill(host)
            dice = random.Random(options.seed)
            for host in half:
                fleet.start(host, now + dice.uniform(0, options.spread / 2))
        if options.fault in ("none", "read-only", "holder-killed") and options.remote and now > last + 0.25:
            last = now
            samples.append((now, int(server.info("stats")["total_commands_processed"])))
    peak = max(((b[1] - a[1] - 1) / (b[0] - a[0]) for a, b in zip(samples, samples[1:])), default=0)
    return peak, lost


def run(name, options):
    """One scenario. Returns its row."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kernelwright-fleet-", dir=options.folder))
    server = Server(options, folder) if options.remote else None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        keys = write_keys(folder)
        if options.warm:
            fill(options, folder, server, keys)
        if server:
            server.ask("CONFIG RESETSTAT")
            if options.fault == "read-only":
                server.ask("ACL SETUSER default -@write -eval")
            if options.fault != "gone":
                server.open_link()
            if options.fault == "hangs":
                server.redis.send_signal(signal.SIGSTOP)
        fleet = Fleet(options, folder, f"redis://127.0.0.1:{server.front}" if server else "", keys)
        start = time.time() + 0.5 + 0.02 * options.hosts  # until then the hosts' programs are loaded
        begin = dict(enumerate(begin_times(options, start)))
        for host, at in begin.items():
            fleet.start(host, at)
        peak, lost = watch(options, fleet, server, start)
        asked = {} if not server or options.fault in ("gone", "gone-midway", "hangs") else server.calls()
        waits = [seconds for _, seconds in fleet.ready.values()]
        end = max((at for at, _ in fleet.ready.values()), default=start)
        fleet.end()
        passed = server.close() if server else {}
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        processor_s = spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime
        return {
            "scenario": name, "hosts": options.hosts, "ranks": options.hosts * options.ranks, "all_ready_s": round(end - start, 2),
            "p50_s": percentile(waits, 0.5), "p99_s": percentile(waits, 0.99), "max_s": max(waits, default=None), "compiles": len(fleet.compiles),
            "compile_s": round(fleet.total("compile_s"), 2),
            "lease_waits": fleet.total("lease_waits"), "lock_waits": fleet.total("lock_waits"),
            "requests": sum(count for command, count in asked.items() if command in ("get", "set", "eval")), "by_command": asked,
            "peak_requests_s": round(peak), "mb_from_server": round(passed.get("bytes_from_server", 0) / 1e6, 1),
            "mb_to_server": round(passed.get("bytes_to_server", 0) / 1e6, 1), "connections": passed.get("connections", 0),
            "hits": fleet.total("hits"), "misses": fleet.total("misses"), "failures": fleet.total("failures"),
            "skipped": fleet.total("skipped"), "rejected": fleet.total("rejected"), "writes": fleet.total("writes"),
            "dropped": fleet.total("dropped"), "degraded": fleet.degraded, "failed_starts": fleet.failed, "lost_hosts": lost,
            "not_ready": (options.hosts - lost) * options.ranks - len(waits),
            "busy_cores": round(processor_s / max(end - start, 1e-3), 2)}
    finally:
        if server:
            server.redis.send_signal(signal.SIGCONT)
            server.close()
        shutil.rmtree(folder, ignore_errors=True)


def flat(value):
    """A cell of CSV: counters by name as one text."""
    return "; ".join(f"{count} {name}" for name, count in value.items()) if isinstance(value, dict) else value


def main():
    options = arguments()
    if options.list:
        for name, (text, _) in SCENARIOS.items():
            print(f"{name:14} {text}")
        return 0
    names = options.scenarios or ["cold"]
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        sys.exit(f"fleet_start.py: {', '.join(unknown)}: no scenario; --list names them")
    if not pathlib.Path(options.program).is_file():
        sys.exit(f"fleet_start.py: {options.program} is missing; cmake --build build --target kernelwright_fleet_bench makes it, and "
                 "--program names another one")
    for tool in ("redis-server", "openssl"):
        if not shutil.which(tool):
            sys.exit(f"fleet_start.py: {tool} is not installed")
    rows = []
    if not options.json:
        print("|", " | ".join(SHOWN), "|\n|" + "---|" * len(SHOWN))
    for name in names:
        row = run(name, argparse.Namespace(**(vars(options) | SCENARIOS[name][1])))
        rows.append(row)
        print(json.dumps(row) if options.json else f"| {' | '.join(str(row[column]) for column in SHOWN)} |", flush=True)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            table = csv.DictWriter(file, rows[0], lineterminator="\n")
            table.writeheader()
            table.writerows({name: flat(value) for name, value in row.items()} for row in rows)
    return 1 if any(row["not_ready"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
