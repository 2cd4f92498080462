"""System calls that Python 3.11 lacks: namespaces, mounts, prctl.

The imports are few (ctypes, os), because the supervisors of pods start with this module. Every
failure is an ``OSError`` with the call and its arguments.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_NOATIME = 1024
MS_NODIRATIME = 2048
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

NAMESPACES = {
    "user": CLONE_NEWUSER,
    "net": CLONE_NEWNET,
    "uts": CLONE_NEWUTS,
    "ipc": CLONE_NEWIPC,
    "mnt": CLONE_NEWNS,
    "pid": CLONE_NEWPID,
}
"""File name under ``/proc/PID/ns`` → flag, in the order in which a namespace set is entered."""

_libc: Any = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str, path: str | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}", path)
    return result


def unshare(flags: int) -> None:
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(descriptor: int, flag: int) -> None:
    _check(_libc.setns(descriptor, flag), f"setns({flag:#x})")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if part is None else os.fsencode(part) for part in (source, target, kind, data)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"mount({source or kind} on {target})", target)


def umount(target: str, flags: int = 0) -> None:
    _check(_libc.umount2(os.fsencode(target), flags), f"umount({target})", target)


def pivot_root(new_root: str, put_old: str) -> None:
    _check(_libc.pivot_root(os.fsencode(new_root), os.fsencode(put_old)), f"pivot_root({new_root})", new_root)


def set_hostname(name: str) -> None:
    raw = name.encode()
    _check(_libc.sethostname(raw, ctypes.c_size_t(len(raw))), f"sethostname({name})")


def prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    _check(_libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero), f"prctl({option}, {value})")


def set_process_name(name: str) -> None:
    """Set the name that ``ps`` shows in its ``comm`` column. The first 15 bytes count."""
    zero = ctypes.c_ulong(0)
    _libc.prctl(PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), zero, zero, zero)


def read_small(path: str) -> bytes:
    """Return the content of a file of at most 64 KiB, with a third of the calls of ``open``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65_536)
    finally:
        os.close(descriptor)


def start_time(pid: int | str) -> int | None:
    """Return field 22 of ``/proc/PID/stat`` (clock ticks since boot), or None without such a process.

    A zombie counts as gone. Pid and start time together identify a process until the next reboot.
    """
    try:
        fields = read_small(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


_boot_id = ""


def boot_id() -> str:
    """Return the boot id. Pids and start times of another boot are meaningless."""
    global _boot_id
    if not _boot_id:  # it is asked for a dozen times for each pod and never changes
        with contextlib.suppress(OSError):
            _boot_id = read_small("/proc/sys/kernel/random/boot_id").decode().strip()
    return _boot_id


def is_alive(pid: int, started: int) -> bool:
    return start_time(pid) == started


def children(pid: int | str) -> list[int]:
    """Return the direct children of all threads of ``pid``. Empty if it is gone."""
    pids: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except (FileNotFoundError, ProcessLookupError):
        return pids
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as stream:
                pids += [int(child) for child in stream.read().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return pids


def descendants(pid: int) -> list[int]:
    """Return all descendants of ``pid``, parents before children."""
    pids = children(pid)
    for child in pids:  # grows during the iteration
        pids += children(child)
    return pids


def kill_marked(entry: str) -> list[int]:
    """Kill every process of this user with ``entry`` (``NAME=value``) in its environment.

    The environment at exec counts. Return the pids.
    """
    wanted = entry.encode()
    killed = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as stream:
                if wanted in stream.read().split(b"\0"):
                    os.kill(int(name), 9)
                    killed.append(int(name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return killed


def close_inherited() -> None:
    """Close every descriptor but the three standard ones, which a parent may have left open."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(int(name))


def map_own_ids(inside_uid: int, inside_gid: int, outside_uid: int, outside_gid: int) -> None:
    """Map one uid and one gid into a new user namespace, right after ``unshare(CLONE_NEWUSER)``."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside_uid} {outside_uid} 1"),
        ("gid_map", f"{inside_gid} {outside_gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as stream:
            stream.write(text)


def enter(pid: int, started: int, names: tuple[str, ...]) -> None:
    """Join the named namespaces of a process, after a check that the process is still the same.

    The descriptors are opened first, since joining a mount namespace changes ``/proc``.
    """
    opened: list[tuple[str, int]] = []
    try:
        for name in NAMESPACES:
            if name in names:
                descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
                opened.append((name, descriptor))
        if not is_alive(pid, started):
            raise ProcessLookupError(3, f"process {pid} that held the namespaces is gone")
        for name, descriptor in opened:
            setns(descriptor, NAMESPACES[name])
    finally:
        for _, descriptor in opened:
            os.close(descriptor)
