#!/usr/bin/env python3
"""Times how a host starts the kernels of a whole model that another host has compiled.

    bench/remote_start.py [--model CONFIG_JSON] [--arch ARCH] [--repeats N] [--output FILE]

Host A compiles the model's plan with an empty cache, signs the binaries and sends them to a server. Host B starts with an
empty cache and A's public key. A host is a process with a cache directory and a lock directory of its own; both are on
this machine, so the network costs nothing. The servers are Redis and nginx, over http and https, of the distribution.
A last host serves from a bundle. Each host prepares every problem of the plan on an engine of the emulator, until all
are ready. B must compile nothing, and must run the same kernels as A (plan_digest), or the script fails.

It needs redis-server, nginx and openssl, and a finished build in build/.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from loopback import free_port, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[1]
COMMAND = ROOT / "build" / "cli" / "kernelwright"

NGINX = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
  access_log off; default_type application/octet-stream;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} {listen}; root {folder}/data; client_max_body_size 9m; {tls}
    location / {{ dav_methods PUT DELETE; create_full_put_path on; }}
  }}
}}
"""


def run_host(words):
    """In a child: prepares the plan's problems, and prints one line of JSON."""
    plan, arch = json.loads(pathlib.Path(words[0]).read_text()), words[1]
    sys.path.insert(0, str(ROOT / "python"))
    import kernelwright
    begin = time.perf_counter()
    options = {"memory_only_cache": True} if words[2] == "-" else {"cache_directory": words[2]}
    with kernelwright.Engine("emulator", emulator_arch=arch, **options) as engine:
        for config in kernelwright.Plan(plan).configs().values():
            engine.prepare(config, background=True)
        if not engine.wait_until_ready():
            sys.exit("a kernel has failed: " + json.dumps([row["error"] for row in engine.kernels()]))
        seconds = time.perf_counter() - begin
        text = engine.metrics()
        hits = re.search(r'kernelwright_remote_results_total\{result="hit"\} (\d+)', text)
        print(json.dumps({"seconds": seconds, "compiles": engine.counters()["compiles"],
                          "binaries": len({row["key"] for row in engine.kernels()}), "hits": int(hits.group(1)) if hits else 0,
                          "digest": engine.plan_digest().hex()}))


def host(folder, plan, arch, disk=True, compiler=True, **variables):
    """What run_host() printed, for a host that keeps its files in `folder`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KERNELWRIGHT_")}
    environment.update({"KERNELWRIGHT_LIBRARY": str(ROOT / "build" / "runtime"), "XDG_RUNTIME_DIR": str(folder)})
    if "KERNELWRIGHT_NVRTC" in os.environ:
        environment["KERNELWRIGHT_NVRTC"] = os.environ["KERNELWRIGHT_NVRTC"]
    if not compiler:
        environment["KERNELWRIGHT_NVRTC"] = "/nonexistent"
    environment.update({f"KERNELWRIGHT_{name}": str(value) for name, value in variables.items()})
    folder.mkdir(mode=0o700, exist_ok=True)
    words = [sys.executable, __file__, "--host", str(plan), arch, str(folder / "cache") if disk else "-"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr or done.stdout)
    return json.loads(done.stdout)


class Server:
    """A server of the distribution in a folder of its own: its address, and what hosts need beside it."""

    def __init__(self, kind, folder):
        folder.mkdir()
        (folder / "data").mkdir()
        port, self.variables = free_port(), {}
        if kind == "Redis":
            words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
            address = f"redis://127.0.0.1:{port}"
        else:
            tls = ""
            if kind == "nginx, https":
                subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                                "-nodes", "-days", "2", "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1",
                                "-keyout", folder / "key.pem", "-out", folder / "ca.pem"], check=True, capture_output=True)
                tls = f"ssl_certificate {folder}/ca.pem; ssl_certificate_key {folder}/key.pem;"
                self.variables["REMOTE_CA"] = folder / "ca.pem"
            (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, listen="ssl" if tls else "", tls=tls))
            words = [shutil.which("nginx") or "/usr/sbin/nginx", "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]
            address = f"{'https' if tls else 'http'}://127.0.0.1:{port}/kernels"
        self.variables["REMOTE"] = address
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(port)

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def main():
    if sys.argv[1:2] == ["--host"]:
        return run_host(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=ROOT / "tests/golden/models/llama3-8b.config.json", help="its config.json")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--repeats", type=int, default=5, help="starts of each host but A")
    parser.add_argument("--output", help="file for the table; standard output")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        plan, secret, public = work / "plan.json", work / "key.pem", work / "key.pub"
        subprocess.run([COMMAND, "plan", given.model, "--arch", given.arch, "--output", plan], check=True, capture_output=True)
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", secret], check=True)
        subprocess.run(["openssl", "pkey", "-in", secret, "-pubout", "-out", public], check=True)
        secret.chmod(0o600)
        count = 0

        def starts(what, digest, **options):
            nonlocal count
            found = []
            for _ in range(given.repeats):
                count += 1
                found.append(host(work / f"b{count}", plan, given.arch, **options))
                if found[-1]["compiles"] or found[-1]["digest"] != digest:
                    sys.exit(f"{what}: {found[-1]}, and host A has {digest}")
            times = sorted(one["seconds"] for one in found)
            rows.append((what, 0, found[0]["hits"], times[0], statistics.median(times)))

        for kind in ("Redis", "nginx, http", "nginx, https"):
            server = Server(kind, work / re.sub(r"\W", "", kind))
            a = work / f"a-{server.process.pid}"
            first = host(a, plan, given.arch, REMOTE_SIGNING_KEY=secret, **server.variables)
            rows.append((f"A compiles and sends to {kind}", first["compiles"], first["hits"], first["seconds"], first["seconds"]))
            server.variables["REMOTE_KEYS"] = public
            starts(f"B from {kind}", first["digest"], **server.variables)
            starts(f"B from {kind}, without NVRTC", first["digest"], compiler=False, **server.variables)
            server.end()
        again = host(a, plan, given.arch)
        rows.append(("A again, from its disk", again["compiles"], 0, again["seconds"], again["seconds"]))
        bundle = work / "model.kwpack"
        subprocess.run([COMMAND, "pack", plan, "--arch", given.arch, "--sign", secret, "--output", bundle, "--cache-dir",
                        a / "cache"], check=True, capture_output=True)
        starts("B from a bundle, without NVRTC", again["digest"], disk=False, compiler=False, BUNDLES=bundle, BUNDLE_KEYS=public)
        lines = [f"{first['binaries']} binaries for {given.arch}", "",
                 "| host | compiles | values of the server | ms, least | ms, median |", "|---|---|---|---|---|"]
        lines += [f"| {what} | {compiles} | {hits} | {least * 1e3:.0f} | {median * 1e3:.0f} |"
                  for what, compiles, hits, least, median in rows]
    text = "\n".join(lines) + "\n"
    if given.output:
        pathlib.Path(given.output).write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
