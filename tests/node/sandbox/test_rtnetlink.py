"""Links of a network namespace: the bridge of the pods."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import fcntl, os, socket, sys
from windlass.node.runtime import syscalls
from windlass.node.sandbox.rtnetlink import Netlink

try:
    syscalls.unshare(syscalls.CLONE_NEWNET)
except OSError as error:
    sys.exit(f"refused: {error}")

def address(link):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return fcntl.ioctl(one, 0x8927, link.encode().ljust(40, b"\\0"))[18:24].hex()

wanted = bytes.fromhex("025764000001")
with Netlink() as links:
    links.add_bridge("pods", wanted)
    links.up("pods")
    for number in range(4):
        links.add_veth(f"p{number}", f"q{number}", os.getpid(), "pods")
        assert address("pods") == wanted.hex(), number
    links.delete_link("p0")
    assert address("pods") == wanted.hex()
    links.add_bridge("other")
    links.add_veth("r", "s", os.getpid(), "other")
    assert address("other") == address("r")  # without one of its own, that of a port
"""


def test_bridge_keeps_its_hardware_address_when_pods_come_and_go() -> None:
    """Pods remember the hardware address that answers for Services."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    if "refused" in done.stderr:
        pytest.skip(f"this machine refuses namespaces: {done.stderr.strip()}")
    assert (done.returncode, done.stderr) == (0, "")
