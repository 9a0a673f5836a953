"""Servers that a benchmark starts for itself on this machine."""
import socket
import sys
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, what="a server"):
    """Ends the program with a sentence if nothing listens at the port within 5 s."""
    for _ in range(500):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)
    sys.exit(f"nothing listens at port {port}; is {what} installed?")
