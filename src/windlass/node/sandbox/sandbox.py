"""The sandbox of a pod: the namespaces that its containers share, and the process that holds them.

Network (one cable to the box's bridge, one address), UTS (hostname), IPC, and a mount namespace with the
pod's memory volumes. Containers join it and add their own mount and pid namespaces.
The holder outlives the agent and leaves by itself when its record is gone (see :func:`network_namespace.hold`).
"""

from __future__ import annotations

import os
from typing import Any

from windlass.node.runtime import attempt_files, syscalls
from windlass.node.sandbox import network_namespace
from windlass.node.sandbox.rtnetlink import Netlink

RECORD = "sandbox.json"
SPEC = "sandbox-spec.json"
INTERFACE = "eth0"


def main(folder: str) -> int:
    """Make what ``sandbox-spec.json`` says. Says ``s`` or ``f<why>`` on stdout.

    ``{"box": {"pid", "start_time", "user_namespace"} or null, "namespaces": ["net", …],
    "hostname", "cable": {"outside", "address", "prefix", "gateway" or ""} or null,
    "tmpfs": [{"path", "size_bytes"}]}``
    """
    syscalls.close_inherited()
    syscalls.set_process_name("windlass-pod")
    spec = attempt_files.read(folder, SPEC)
    if spec is None:
        raise SystemExit(f"no sandbox is described in {folder}")
    try:
        box_descriptor = build(spec)
    except OSError as error:
        os.write(1, f"f{error}".encode())
        return 1
    record = {
        **attempt_files.identity(os.getpid()),
        "namespaces": namespaces(spec),
        "box_descriptor": box_descriptor,
    }
    attempt_files.write(folder, RECORD, record, durable=False)
    network_namespace.hold(folder, RECORD)
    return 0


def namespaces(spec: dict[str, Any]) -> list[str]:
    """What a container joins: the user namespace of the box first, if there is one."""
    user = ["user"] if spec["box"] and spec["box"]["user_namespace"] else []
    return [*user, *spec["namespaces"]]


def build(spec: dict[str, Any]) -> int:
    """Raises ``OSError`` naming the call that was refused.

    Returns a descriptor of the box's network (-1 without), which this process keeps open: so the box
    lives as long as any of its pods, and a new holder can join it when the old one was killed.
    """
    outside, descriptor = None, -1
    if spec["box"]:
        user = ("user",) if spec["box"]["user_namespace"] else ()
        network = ("net",) if spec["cable"] else ()  # without a cable: the machine's own network
        syscalls.enter(spec["box"]["pid"], spec["box"]["start_time"], user + network)
        if spec["cable"]:
            outside = Netlink()
            descriptor = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    flags = 0
    for name in spec["namespaces"]:
        flags |= syscalls.NAMESPACES[name]
    syscalls.unshare(flags)
    if "uts" in spec["namespaces"]:
        syscalls.set_hostname(spec["hostname"])
    if outside is not None:
        _connect(outside, spec["cable"])
    if "mnt" in spec["namespaces"]:
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        for volume in spec["tmpfs"]:
            _mount_memory(volume)
    return descriptor


def _connect(outside: Netlink, cable: dict[str, Any]) -> None:
    with outside, Netlink() as inside:
        inside.up("lo")
        if outside.exists(cable["outside"]):
            outside.delete_link(cable["outside"])  # of this pod's sandbox that died
        outside.add_cable(cable["outside"], INTERFACE, os.getpid(), network_namespace.BRIDGE)
        inside.add_address(INTERFACE, cable["address"], cable["prefix"])
        inside.up(INTERFACE)
        if cable["gateway"]:
            inside.add_default_route(INTERFACE, cable["gateway"])


def _mount_memory(volume: dict[str, Any]) -> None:
    options = "mode=1777"
    if volume.get("size_bytes"):
        options += f",size={volume['size_bytes']}"
    syscalls.mount("tmpfs", volume["path"], "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
