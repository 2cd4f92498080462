"""Pod network: one network namespace, with a user namespace for an ordinary user, of all pods.

A small process holds it. It survives the agent, which finds it again by ``box.json`` (pid and start
time). Inside is a bridge named ``pods``. With root, a veth pair leads to the machine's own network
(the *uplink*), so that the machine reaches its pods. For an ordinary user slirp4netns attaches its
tap to the bridge (:mod:`windlass.node.sandbox.egress`). When holder and pods are gone, the kernel
removes everything.

The holder ends by itself when ``box.json`` no longer names it, or is gone with its directory. It
keeps both ends of a pipe open (``exit_descriptor`` of its record is the read end). A process that
has opened the read end sees the end of the holder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from typing import Any

from windlass.node.runtime import attempt_files, syscalls
from windlass.node.sandbox.rtnetlink import Netlink

RECORD = "box.json"
SPEC = "box-spec.json"
BRIDGE = "pods"
_LOCAL_ADDRESS = b"\x02\x57"
"""Start of a hardware address that is assigned locally."""
UPLINK_INSIDE = "uplink"
TAP = "tap0"
"""Interface of slirp4netns in the pod network."""
_CHECK_SECONDS = 5


def main(directory: str) -> int:
    """Create the pod network of ``box-spec.json``, write ``s`` to stdout, and hold it.

    ``{"user_namespace": bool, "network": bool, "uplink": name or "", "uplink_address": "10.x.0.1",
    "prefix": 16, "pods": [sandboxes that hold the network of a killed holder]}``
    """
    syscalls.close_inherited()
    syscalls.set_process_name("windlass-box")
    spec = attempt_files.read(directory, SPEC)
    if spec is None:
        raise SystemExit(f"{directory} has no spec of the pod network")
    try:
        if not _rejoin(spec):
            _build(spec)
    except OSError as error:
        os.write(1, f"f{error}".encode())
        return 1
    fields = {key: value for key, value in spec.items() if key != "pods"}
    reading, _ = os.pipe2(os.O_CLOEXEC)
    own = {**attempt_files.identity(os.getpid()), "exit_descriptor": reading}
    attempt_files.write(directory, RECORD, {**own, **fields})
    hold(directory, RECORD)
    return 0


def _rejoin(spec: dict[str, Any]) -> bool:
    """Join the network that pods of a killed holder keep alive. Return False if there is none."""
    for pod in spec.get("pods", ()):
        try:
            network = os.open(f"/proc/{pod['pid']}/fd/{pod['box_descriptor']}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                if spec["user_namespace"]:
                    syscalls.enter(pod["pid"], pod["start_time"], ("user",))
                if not syscalls.is_alive(pod["pid"], pod["start_time"]):
                    continue
                syscalls.setns(network, syscalls.CLONE_NEWNET)
            finally:
                os.close(network)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        return True
    return False


def _build(spec: dict[str, Any]) -> None:
    outside = Netlink() if spec["uplink"] else None
    if spec["user_namespace"]:
        uid, gid = os.geteuid(), os.getegid()
        syscalls.unshare(syscalls.CLONE_NEWUSER)
        syscalls.map_own_ids(0, 0, uid, gid)
    if not spec["network"]:
        return
    syscalls.unshare(syscalls.CLONE_NEWNET)
    with Netlink() as inside:
        inside.up("lo")
        inside.add_bridge(BRIDGE, _LOCAL_ADDRESS + socket.inet_aton(spec["uplink_address"]))
        inside.up(BRIDGE)
        if (
            outside is None
        ):  # without uplink the first address of the range belongs to the bridge, for the helpers
            inside.add_address(BRIDGE, spec["uplink_address"], spec["prefix"])
        if outside is not None:
            with outside:
                if outside.exists(spec["uplink"]):
                    outside.delete_link(spec["uplink"])  # left by an earlier holder
                outside.add_veth(spec["uplink"], UPLINK_INSIDE, os.getpid())
                outside.add_address(spec["uplink"], spec["uplink_address"], spec["prefix"])
            inside.up(UPLINK_INSIDE, master=BRIDGE)


def hold(directory: str, name: str) -> None:
    """Report that all is ready. Then wait until the record names another process or is gone."""
    os.chdir("/")
    with contextlib.suppress(OSError):  # the agent may be gone
        os.write(1, b"s")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    while True:
        signal.sigtimedwait({signal.SIGUSR1}, _CHECK_SECONDS)
        record = attempt_files.read(directory, name)
        if record is None or record.get("pid") != os.getpid():
            return


def attach(pid: int, started: int, user_namespace: bool, link: str) -> None:
    """Join the pod network and attach ``link`` (slirp's tap) to the bridge.

    This changes the namespaces of the calling process.
    """
    syscalls.enter(pid, started, ("user", "net") if user_namespace else ("net",))
    with Netlink() as inside:
        inside.up(link, master=BRIDGE)
