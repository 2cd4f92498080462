"""Files of a model in the memory of a node, once for all workers that use it."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from windlass.kits.files import FileLock
from windlass.modelcache.folder import ModelCacheError

MEMORY = Path("/dev/shm")
"""File system in memory in which models are shared."""


def memory_of(models: str | Path) -> str:
    """Return the folder in memory that belongs to a folder of models.

    Two boxes on one machine have two folders of models. Their copies in memory have different
    names, so each box loads and removes its own.
    """
    return f"{MEMORY}/windlass-models-{hashlib.sha256(str(models).encode()).hexdigest()[:12]}"


@dataclass
class Attachment:
    """Model in memory. ``files``: its folder. ``loaded``: copied by this process, else found there."""

    files: Path
    loaded: bool
    bytes: int
    _users: FileLock

    def close(self) -> None:
        """Let go of the model. The last user removes it from memory."""
        alone = self._users.acquire()
        if alone:
            _remove(self.files.parent)
        self._users.release()


def attach(files: Path, key: str, memory: Path = MEMORY, limit: int | None = None) -> Attachment:
    """Give the files of a model in memory; the first process copies them, others wait for it.

    ``limit``: most bytes. Raises :class:`ModelCacheError` (``NoMemory``). The copy stays
    until the last process that attached it closes it. If all users were killed, the copy
    stays for the next one.
    """
    root = memory / f"windlass-models-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    users = FileLock(root / f"{key}.users")
    with FileLock(root / f"{key}.load"):
        users.acquire(wait=True, shared=True)
        place = root / key / "files"
        if place.is_dir():
            return Attachment(place, False, _size(place), users)
        try:
            return Attachment(place, True, _copy(files, root / key, limit), users)
        except BaseException:
            users.release()
            raise


def _copy(files: Path, place: Path, limit: int | None) -> int:
    needed = _size(files)
    free = shutil.disk_usage(place.parent).free
    if limit is not None and needed > limit:
        raise ModelCacheError("NoMemory", f"{files} has {needed} bytes, and sharing.sizeLimit allows {limit}")
    if needed > free:
        raise ModelCacheError(
            "NoMemory", f"{files} has {needed} bytes, and {free} are free in {place.parent}"
        )
    prepared = place.parent / f".{place.name}.partial"
    shutil.rmtree(prepared, ignore_errors=True)
    try:
        shutil.copytree(files, prepared / "files")
        os.rename(prepared, place)
    finally:
        shutil.rmtree(prepared, ignore_errors=True)
    return needed


def _remove(place: Path) -> None:
    """Remove a copy at once: a process that attaches later never finds a part of it."""
    doomed = place.parent / f".{place.name}.removed"
    shutil.rmtree(doomed, ignore_errors=True)
    try:
        os.rename(place, doomed)
    except FileNotFoundError:
        return
    shutil.rmtree(doomed, ignore_errors=True)


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
