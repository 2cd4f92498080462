"""File system of a pod: the machine's, with the volumes mounted into it.

This runs in the container's own mount namespace, before exec. It never writes to the machine's file
system. If a mount point does not exist, its deepest existing ancestor is *shadowed*: a tmpfs covers
it, shows its entries by bind mounts, and has the missing directories. If the ancestor is ``/``, a
new root is built the same way, and becomes the root by ``pivot_root``.

:func:`plan` is pure (it sees the file system through a protocol), :func:`perform` executes the plan.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Protocol

from windlass.node.runtime import syscalls


class Mount(NamedTuple):
    """Mount of ``source``, a path of the machine, at ``target``, an absolute path of the pod.

    ``optional``: it is skipped if the target does not exist (generated files of /etc).
    """

    source: str
    target: str
    read_only: bool = False
    optional: bool = False


class Shadow(NamedTuple):
    """Cover the existing directory ``path`` by a tmpfs that shows its entries."""

    path: str


class Make(NamedTuple):
    """Create the missing mount point ``path`` under a shadow: a directory or an empty file."""

    path: str
    directory: bool


class BindMount(NamedTuple):
    source: str
    target: str
    read_only: bool


Step = Shadow | Make | BindMount


class FileSystem(Protocol):
    def real(self, path: str) -> str: ...
    def exists(self, path: str) -> bool: ...
    def is_directory(self, path: str) -> bool: ...


class MachineFileSystem:
    """File system of this machine."""

    def real(self, path: str) -> str:
        return os.path.realpath(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)


def ancestor(path: str, files: FileSystem) -> str:
    """Return the deepest existing directory above a path that does not exist."""
    above = os.path.dirname(path)
    while above != "/" and not files.exists(above):
        above = os.path.dirname(above)
    return above


def shadows(mounts: list[Mount], files: FileSystem) -> list[str]:
    """Return the directories to shadow for the missing mount points, without duplicates."""
    return _shadows(_resolved(mounts, files), files)


def _resolved(mounts: list[Mount], files: FileSystem) -> list[tuple[str, Mount]]:
    """Return the mounts with their real targets."""
    return [(files.real(mount.target), mount) for mount in mounts]


def _shadows(resolved: list[tuple[str, Mount]], files: FileSystem) -> list[str]:
    targets = {target for target, _ in resolved}
    directories: list[str] = []
    for target, mount in resolved:
        if not mount.optional and not files.exists(target):
            above = ancestor(target, files)
            if above not in directories and not _is_inside(above, targets):
                directories.append(above)
    return sorted(directories, key=lambda path: (path.count("/"), path))


def _is_inside(path: str, targets: set[str]) -> bool:
    """Return whether a volume is mounted at or above the path."""
    return any(path == target or path.startswith(target + "/") for target in targets)


def plan(mounts: list[Mount], files: FileSystem) -> list[Step]:
    """Return the steps in order: shadows, then mounts from the outermost to the innermost.

    A mount point inside another volume of the pod is created in that volume, as container runtimes
    do.
    """
    resolved = _resolved(mounts, files)
    targets = {target for target, _ in resolved}
    steps: list[Step] = [Shadow(path) for path in _shadows(resolved, files)]
    made: set[str] = set()
    for target, mount in sorted(resolved, key=lambda pair: (pair[0].count("/"), pair[1].target)):
        known = target in made or files.exists(target)
        if mount.optional and not known:
            continue
        if not known or _is_inside(os.path.dirname(target), targets):
            steps.append(Make(target, files.is_directory(mount.source)))
            made.add(target)
        steps.append(BindMount(mount.source, target, mount.read_only))
    return steps


def perform(steps: list[Step], staging: str) -> None:
    """Execute the steps in this process's own mount namespace. Raises ``OSError`` with the path.

    ``staging`` is the path of the directory in which a new root is built if one is needed. Shadows
    come first and hide nothing. Then all sources are opened, before one volume covers the directory of another.
    """
    for step in steps:
        if isinstance(step, Shadow):
            _new_root(staging) if step.path == "/" else _shadow(step.path)
    wanted = {step.source for step in steps if isinstance(step, BindMount)}
    sources = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in sorted(wanted)}
    try:
        for step in steps:
            if isinstance(step, Make):
                _make(step)
            elif isinstance(step, BindMount):
                _bind(f"/proc/self/fd/{sources[step.source]}", step)
    finally:
        for descriptor in sources.values():
            os.close(descriptor)


def _make(step: Make) -> None:
    if os.path.exists(step.path):
        return
    if step.directory:
        os.makedirs(step.path, exist_ok=True)
        return
    os.makedirs(os.path.dirname(step.path), exist_ok=True)
    os.close(os.open(step.path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _bind(source: str, step: BindMount) -> None:
    syscalls.mount(source, step.target, None, syscalls.MS_BIND | syscalls.MS_REC)
    if step.read_only:
        # A remount must repeat the flags of the mount below, which a user namespace may not drop.
        retained = os.statvfs(step.target).f_flag & _RETAINED_FLAGS
        flags = syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY | retained
        syscalls.mount(None, step.target, None, flags)


_RETAINED_FLAGS = (
    syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC | syscalls.MS_NOATIME | syscalls.MS_NODIRATIME
)


def _fill(original: int, target: str) -> None:
    """Show the entries of the directory behind the descriptor ``original`` in the empty ``target``."""
    source = f"/proc/self/fd/{original}"
    with os.scandir(source) as entries:
        for entry in entries:
            shown = os.path.join(target, entry.name)
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), shown)
                continue
            if entry.is_dir(follow_symlinks=False):
                os.mkdir(shown, 0o755)
            else:
                os.close(os.open(shown, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            try:
                syscalls.mount(entry.path, shown, None, syscalls.MS_BIND | syscalls.MS_REC)
            except PermissionError:
                continue  # an entry without access stays empty
            except FileNotFoundError:
                os.rmdir(shown) if os.path.isdir(shown) else os.unlink(shown)  # vanished meanwhile


def _shadow(path: str) -> None:
    original = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mode = os.fstat(original).st_mode & 0o1777
        syscalls.mount("tmpfs", path, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, f"mode={mode:o}")
        _fill(original, path)
    finally:
        os.close(original)


def _new_root(staging: str) -> None:
    original = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.makedirs(staging, exist_ok=True)
        syscalls.mount("tmpfs", staging, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "mode=755")
        _fill(original, staging)
        before = os.path.join(staging, ".before")
        os.mkdir(before)
        syscalls.pivot_root(staging, before)
    finally:
        os.close(original)
    os.chdir("/")
    syscalls.umount("/.before", syscalls.MNT_DETACH)
    os.rmdir("/.before")


def mount_proc() -> None:
    """Mount the ``/proc`` of this pid namespace."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    syscalls.mount("proc", "/proc", "proc", flags)
