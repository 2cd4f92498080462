"""Folder of a node in which models are kept.

``<root>/<key>/files``: the files of a model. ``<root>/<key>/model.json``: facts about
them; its presence says that the model is complete. ``<root>/<key>.lock``: held shared
by processes that use the model, and exclusively while it is fetched or removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from windlass.kits.files import FileLock, write_atomic

FACTS = "model.json"


class ModelCacheError(Exception):
    """A model that cannot be had. ``reason``: one word in CamelCase, for conditions."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ModelReference:
    """Model by name, place and revision.

    ``source``: URI, such as ``hf://owner/name``, ``https://host/file`` or ``file:///folder``.
    ``revision``: branch, tag or commit; empty: the newest. ``sha256``: expected checksum
    in hexadecimal (see :func:`windlass.modelcache.fetch.checksum`); empty: not checked.
    """

    name: str
    source: str
    revision: str = ""
    sha256: str = ""

    @property
    def key(self) -> str:
        """Return the name of the model's folder: readable, and different for other sources."""
        digest = hashlib.sha256(f"{self.source}\0{self.revision}".encode()).hexdigest()[:12]
        readable = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:40].strip("-")
        return f"{readable or 'model'}-{digest}"


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A complete model of the folder. ``last_used``: Unix seconds. ``bytes``: of its files."""

    key: str
    name: str
    source: str
    revision: str
    sha256: str
    bytes: int
    pinned: bool
    last_used: float = 0.0


class CacheFolder:
    """The models under ``root``, which is created where it is missing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def files_of(self, key: str) -> Path:
        """Return the folder with the files of a model."""
        return self.root / key / "files"

    def find(self, key: str) -> CachedModel | None:
        """Return a complete model, or ``None`` if it is missing or was not finished."""
        try:
            facts: dict[str, Any] = json.loads((self.root / key / FACTS).read_text())
            used = os.stat(self.root / key).st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise ModelCacheError("Corrupt", f"{self.root / key / FACTS} cannot be read: {error}") from error
        facts |= {"key": key, "last_used": used}
        return CachedModel(**facts)

    def models(self) -> list[CachedModel]:
        """Return all complete models, by key."""
        keys = sorted(
            each.name for each in self.root.iterdir() if each.is_dir() and not each.name.startswith(".")
        )
        return [found for key in keys if (found := self.find(key)) is not None]

    def in_use(self, key: str) -> bool:
        """Return whether a process uses, fetches or removes the model."""
        lock = self.lock(key)
        free = lock.acquire()
        lock.release()
        return not free

    def lock(self, key: str) -> FileLock:
        """Return the lock of a model, not yet taken."""
        return FileLock(self.root / f"{key}.lock")

    @contextmanager
    def use(self, key: str) -> Iterator[Path]:
        """Give the files of a model, which stay while the context is open.

        Raises :class:`ModelCacheError` (``Absent``).
        """
        lock = self.lock(key)
        lock.acquire(wait=True, shared=True)
        try:
            if self.find(key) is None:
                raise ModelCacheError("Absent", f"model {key} is not in {self.root}")
            os.utime(self.root / key)
            yield self.files_of(key)
        finally:
            lock.release()

    def finish(self, key: str, prepared: Path, facts: CachedModel) -> None:
        """Put a fetched model in its place. The caller holds the lock exclusively."""
        write_atomic(prepared / FACTS, json.dumps(_stored(facts), indent=1) + "\n", 0o644)
        self.drop(key)
        os.rename(prepared, self.root / key)

    def pin(self, key: str, pinned: bool) -> None:
        """Set whether the model may be removed to make room. The caller holds the lock."""
        found = self.find(key)
        if found is not None and found.pinned != pinned:
            facts = {**_stored(found), "pinned": pinned}
            write_atomic(self.root / key / FACTS, json.dumps(facts, indent=1) + "\n", 0o644)

    def drop(self, key: str) -> None:
        """Remove a model at once: a reader of the folder never finds half of it."""
        doomed = self.root / f".{key}.removed"
        shutil.rmtree(doomed, ignore_errors=True)
        try:
            os.rename(self.root / key, doomed)
        except FileNotFoundError:
            return
        shutil.rmtree(doomed, ignore_errors=True)


def _stored(model: CachedModel) -> dict[str, object]:
    return {name: value for name, value in asdict(model).items() if name not in ("key", "last_used")}
