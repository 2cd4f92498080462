"""The box: one network (and, for an ordinary user, one user namespace) that all pods hang off.

A small process holds it open. It outlives the agent, which finds it again by ``box.json`` (pid and start
time). Inside: a bridge named ``pods``. Started by root, a cable leads out to the machine's own network
(the *uplink*), so that the machine reaches its pods; for an ordinary user slirp4netns puts its tap on
the bridge (:mod:`windlass.node.sandbox.egress`). When the holder goes and no pod is left, the kernel removes
all of it: nothing stays behind.

The holder leaves by itself when ``box.json`` no longer names it, or is gone with its folder. It keeps
both ends of a pipe open (``exit_descriptor`` in its record is the one to read): whoever has opened the
reading end learns that the holder is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import Any

from windlass.node.runtime import attempt_files, syscalls
from windlass.node.sandbox.rtnetlink import Netlink

RECORD = "box.json"
SPEC = "box-spec.json"
BRIDGE = "pods"
UPLINK_INSIDE = "uplink"
TAP = "tap0"
"""slirp4netns' end in the box."""
_LOOK_SECONDS = 5


def main(folder: str) -> int:
    """Make the box that ``box-spec.json`` describes, say ``s`` on stdout, hold it until replaced.

    ``{"user_namespace": bool, "network": bool, "uplink": name or "", "uplink_address": "10.x.0.1",
    "prefix": 16, "pods": [sandboxes that hold the box of a killed holder]}``
    """
    syscalls.close_inherited()
    syscalls.set_process_name("windlass-box")
    spec = attempt_files.read(folder, SPEC)
    if spec is None:
        raise SystemExit(f"no box is described in {folder}")
    try:
        if not _rejoin(spec):
            _build(spec)
    except OSError as error:
        os.write(1, f"f{error}".encode())
        return 1
    kept = {key: value for key, value in spec.items() if key != "pods"}
    reading, _ = os.pipe2(os.O_CLOEXEC)
    own = {**attempt_files.identity(os.getpid()), "exit_descriptor": reading}
    attempt_files.write(folder, RECORD, {**own, **kept})
    hold(folder, RECORD)
    return 0


def _rejoin(spec: dict[str, Any]) -> bool:
    """Join the box that pods of a killed holder still keep alive; False when there is none."""
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
        inside.add_bridge(BRIDGE)
        inside.up(BRIDGE)
        if outside is None:  # the first address of the range is then the box itself, for its helpers
            inside.add_address(BRIDGE, spec["uplink_address"], spec["prefix"])
        if outside is not None:
            with outside:
                if outside.exists(spec["uplink"]):
                    outside.delete_link(spec["uplink"])  # of a box that has just died
                outside.add_cable(spec["uplink"], UPLINK_INSIDE, os.getpid())
                outside.add_address(spec["uplink"], spec["uplink_address"], spec["prefix"])
            inside.up(UPLINK_INSIDE, master=BRIDGE)


def hold(folder: str, name: str) -> None:
    """Tell the starter that all is ready, then wait until the record names another process or is gone."""
    os.chdir("/")
    with contextlib.suppress(OSError):  # the agent may be gone
        os.write(1, b"s")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    while True:
        signal.sigtimedwait({signal.SIGUSR1}, _LOOK_SECONDS)
        record = attempt_files.read(folder, name)
        if record is None or record.get("pid") != os.getpid():
            return


def attach(pid: int, started: int, user_namespace: bool, link: str) -> None:
    """Inside the box: bring ``link`` (slirp's tap) up as a port of the bridge. Changes this process."""
    syscalls.enter(pid, started, ("user", "net") if user_namespace else ("net",))
    with Netlink() as inside:
        inside.up(link, master=BRIDGE)
