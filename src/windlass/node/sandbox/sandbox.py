"""Sandbox of a pod: the namespaces that its containers share, and the process that holds them.

These are network (a veth pair to the bridge of the pod network, one address), UTS (hostname), IPC,
and a mount namespace with the pod's memory volumes. Containers join it and add their own mount and
pid namespaces. The holder survives the agent. It ends by itself when its record is gone (see
:func:`network_namespace.hold`).
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any

from windlass.api.service_network import SERVICE_NETWORK
from windlass.node.runtime import attempt_files, syscalls
from windlass.node.sandbox import network_namespace
from windlass.node.sandbox.rtnetlink import Netlink

RECORD = "sandbox.json"
INTERFACE = "eth0"


def main(argument: str) -> int:
    """Create the sandbox that ``argument`` describes as JSON. Write ``s`` or ``f<why>`` to stdout.

    ``{"directory": of the pod, "box": {"pid", "start_time", "user_namespace"} or null, "namespaces": ["net", …],
    "hostname", "veth": {"outside", "address", "prefix", "gateway" or ""} or null,
    "tmpfs": [{"path", "size_bytes"}]}``

    ``box``: holder of the pod network. ``veth``: veth pair to it.
    """
    syscalls.close_inherited()
    syscalls.set_process_name("windlass-pod")
    spec = json.loads(argument)
    directory = spec["directory"]
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if attempt_files.is_running(attempt_files.read(directory, RECORD)):
        os.write(1, b"s")  # a fork server that was given up had started another process for this sandbox
        return 0
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
    attempt_files.write(directory, RECORD, record, durable=False)
    os.close(lock)
    network_namespace.hold(directory, RECORD)
    return 0


def namespaces(spec: dict[str, Any]) -> list[str]:
    """Return the namespaces that a container joins: first the user namespace, if there is one."""
    user = ["user"] if spec["box"] and spec["box"]["user_namespace"] else []
    return [*user, *spec["namespaces"]]


def build(spec: dict[str, Any]) -> int:
    """Create the namespaces. Raises ``OSError`` with the refused call.

    Return a descriptor of the pod network (-1 without). This process keeps it open, so that the network
    lives as long as any of its pods, and a new holder can join it after the old one was killed.
    """
    outside, descriptor = None, -1
    if spec["box"]:
        user = ("user",) if spec["box"]["user_namespace"] else ()
        network = ("net",) if spec["veth"] else ()  # without a veth pair: the machine's own network
        syscalls.enter(spec["box"]["pid"], spec["box"]["start_time"], user + network)
        if spec["veth"]:
            outside = Netlink()
            descriptor = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    flags = 0
    for name in spec["namespaces"]:
        flags |= syscalls.NAMESPACES[name]
    syscalls.unshare(flags)
    if "uts" in spec["namespaces"]:
        syscalls.set_hostname(spec["hostname"])
    if outside is not None:
        _connect(outside, spec["veth"])
    if "mnt" in spec["namespaces"]:
        syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
        for volume in spec["tmpfs"]:
            _mount_memory(volume)
    return descriptor


def _connect(outside: Netlink, veth: dict[str, Any]) -> None:
    with outside, Netlink() as inside:
        inside.up("lo")
        try:
            outside.add_veth(veth["outside"], INTERFACE, os.getpid(), network_namespace.BRIDGE)
        except FileExistsError:  # left by an earlier sandbox of this pod
            outside.delete_link(veth["outside"])
            outside.add_veth(veth["outside"], INTERFACE, os.getpid(), network_namespace.BRIDGE)
        inside.add_address(INTERFACE, veth["address"], veth["prefix"])
        inside.up(INTERFACE)
        if veth["gateway"]:
            inside.add_default_route(INTERFACE, veth["gateway"])
        network, _, prefix = SERVICE_NETWORK.partition("/")
        inside.add_link_route(INTERFACE, network, int(prefix))


def _mount_memory(volume: dict[str, Any]) -> None:
    options = "mode=1777"
    if volume.get("size_bytes"):
        options += f",size={volume['size_bytes']}"
    syscalls.mount("tmpfs", volume["path"], "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
