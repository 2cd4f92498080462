"""Files that are whole or absent, and locks that die with their holder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_OPEN = ("/dev/", "/proc/")
"""Prefixes of names that lead to open files of processes, which must not be replaced."""


def write_atomic(path: Path, data: bytes | str, mode: int = 0o600, *, durable: bool = True) -> None:
    """Replace ``path`` by ``data`` atomically: readers see the old or the new content.

    Raises ``OSError`` (read-only directory, full disk). Then the old file is untouched.
    """
    import tempfile  # the command line reads far more often than it writes

    raw = data.encode() if isinstance(data, str) else data
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(raw)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        unlink_if_exists(temporary)
        raise


def write_named(path: Path, data: bytes | str, mode: int = 0o644) -> None:
    """Write to a path that a user named.

    A regular file, also behind a link, is replaced as by :func:`write_atomic`. A pipe,
    a device or standard output (``/dev/stdout``) is written to. Raises ``OSError``.
    """
    target = Path(os.path.realpath(path))
    if is_stream(path):
        with open(path, "ab") as stream:
            stream.write(data.encode() if isinstance(data, str) else data)
    else:
        write_atomic(target, data, mode)


def is_stream(path: Path) -> bool:
    """Return whether the path is written to in place: a pipe, a device, an open file."""
    return str(path.absolute()).startswith(_OPEN) or (path.exists() and not path.is_file())


def unlink_if_exists(path: str | Path) -> None:
    """Remove a file if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


class FileLock:
    """An advisory lock; the kernel drops it when the process dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, *, wait: bool = False, shared: bool = False) -> bool:
        """Take the lock; ``False`` if another process holds it and ``wait`` is false.

        ``shared``: several processes may hold it so at once. A process that holds it
        already changes between shared and exclusive; without success it holds nothing.
        """
        if self._descriptor is not None:
            self.release()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(
                descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
            )
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def in_place(self) -> bool:
        """Return whether ``path`` still leads to the locked file.

        A lock on a removed file excludes no other process. Also true if the check is
        impossible now, for example because a mount does not respond.
        """
        if self._descriptor is None:
            return False
        held = os.fstat(self._descriptor)
        try:
            found = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> FileLock:
        self.acquire(wait=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
