"""Namespaces that this machine permits, found by creating them in short-lived processes.

It runs as a helper and prints one JSON object: ``{"user": bool, "namespaces": [...], "pid": bool,
"refused": {"net": "why", …}}``. ``user``: an own user namespace was used.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable

from windlass.node.runtime import mounts, syscalls
from windlass.node.sandbox.rtnetlink import Netlink


def main(_: str) -> int:
    print(json.dumps(permitted_namespaces()))
    return 0


def permitted_namespaces() -> dict[str, object]:
    """Try every namespace that pods may get, with everything that is done in it."""
    user = os.geteuid() != 0
    refused: dict[str, str] = {}
    allowed = []
    for name, attempt in (
        ("mnt", _try_mounts),
        ("net", _try_network),
        ("uts", _try_hostname),
        ("ipc", _try_ipc),
        ("pid", _try_pid),
    ):
        why = _in_child(user, attempt)
        if why:
            refused[name] = why
        else:
            allowed.append(name)
    return {
        "user": user,
        "namespaces": [n for n in allowed if n != "pid"],
        "pid": "pid" in allowed,
        "refused": refused,
    }


def _in_child(user: bool, attempt: Callable[[], None]) -> str:
    """Run ``attempt`` in a forked process. Return the reason of its failure, or an empty text."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            if user:
                uid, gid = os.geteuid(), os.getegid()
                syscalls.unshare(syscalls.CLONE_NEWUSER)
                syscalls.map_own_ids(0, 0, uid, gid)
            attempt()
        except OSError as error:
            os.write(writer, (error.strerror or str(error)).encode())
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        why = stream.read().decode()
    status = os.waitpid(pid, 0)[1]
    return why or ("" if status == 0 else "killed during the attempt")


def _try_mounts() -> None:
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    directory = tempfile.gettempdir()
    syscalls.mount("tmpfs", directory, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV)
    inner = os.path.join(directory, "a")
    os.mkdir(inner)
    syscalls.mount("/etc", inner, None, syscalls.MS_BIND | syscalls.MS_REC)


def _try_network() -> None:
    syscalls.unshare(syscalls.CLONE_NEWNET)
    with Netlink() as outside:
        outside.add_bridge("b")
        outside.up("b")
        syscalls.unshare(syscalls.CLONE_NEWNET)
        with Netlink() as inside:
            inside.up("lo")
            outside.add_veth("o", "i", os.getpid(), "b")
            inside.add_address("i", "10.0.0.2", 24)
            inside.up("i")


def _try_hostname() -> None:
    syscalls.unshare(syscalls.CLONE_NEWUTS)
    syscalls.set_hostname("tried")


def _try_ipc() -> None:
    syscalls.unshare(syscalls.CLONE_NEWIPC)


def _try_pid() -> None:
    syscalls.unshare(syscalls.CLONE_NEWNS | syscalls.CLONE_NEWPID)
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            mounts.mount_proc()
            os.listdir("/proc/self/fd")
        except OSError as error:
            os.write(writer, (error.strerror or "refused").encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as stream:
        why = stream.read().decode()
    if why:
        raise OSError(1, f"proc of a pid namespace: {why}")
