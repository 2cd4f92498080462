"""Files that are whole or absent, and locks that die with their holder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_OPEN = ("/dev/", "/proc/")
"""Names below these lead to what somebody has open, which must not be put in another file's place."""


def write_atomic(path: Path, data: bytes | str, mode: int = 0o600, *, durable: bool = True) -> None:
    """Replace ``path`` by ``data`` in one step; a reader sees the old or the new content, never half.

    Raises ``OSError`` (read-only folder, full disk); the old file is then untouched.
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
        unlink_if_there(temporary)
        raise


def write_named(path: Path, data: bytes | str, mode: int = 0o644) -> None:
    """Write what a user named: a plain file as :func:`write_atomic` does, through a link to one; a pipe, a device or
    standard output (``/dev/stdout``) is written to, and stays what it is. Raises ``OSError``."""
    target = Path(os.path.realpath(path))
    if is_stream(path):
        with open(path, "ab") as stream:
            stream.write(data.encode() if isinstance(data, str) else data)
    else:
        write_atomic(target, data, mode)


def is_stream(path: Path) -> bool:
    """Whether a name leads to what is written to as it is: a pipe, a device, what a process has open."""
    return str(path.absolute()).startswith(_OPEN) or (path.exists() and not path.is_file())


def unlink_if_there(path: str | Path) -> None:
    """Remove a file that may be gone already."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


class FileLock:
    """An exclusive advisory lock; the kernel drops it when the process dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, *, wait: bool = False) -> bool:
        """Take the lock; ``False`` if another process holds it and ``wait`` is false."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def in_place(self) -> bool:
        """Whether ``path`` still leads to the file that is locked; a lock on a removed file keeps nobody out.

        True as well when that cannot be told now (a mount that does not answer, say).
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
