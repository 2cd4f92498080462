"""Fetch of a model into the folder of a node: once, verified, and whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from windlass.modelcache.eviction import FREE_FLOOR, choose
from windlass.modelcache.folder import CachedModel, CacheFolder, ModelCacheError, ModelReference
from windlass.modelcache.sources import RemoteFile, Source, source_of

CHUNK = 1 << 20
ATTEMPTS = 5
"""Attempts for each file; each goes on where the one before was interrupted."""

Progress = Callable[[int, int | None], None]
"""Is called with the bytes that are there and the total, if known."""
Space = Callable[[Path], tuple[int, int]]
"""Returns free and total bytes of a path's file system."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Result. ``reused``: the model was there. ``evicted``: keys that made room."""

    model: CachedModel
    reused: bool
    evicted: tuple[str, ...] = ()


def disk_space(path: Path) -> tuple[int, int]:
    """Return free and total bytes of the file system of ``path``."""
    usage = shutil.disk_usage(path)
    return usage.free, usage.total


def fetch(
    folder: CacheFolder,
    model: ModelReference,
    *,
    pin: bool = False,
    floor: float = FREE_FLOOR,
    progress: Progress = lambda done, total: None,
    space: Space = disk_space,
) -> Fetched:
    """Fetch a model unless it is there. Another process that fetches it is waited for.

    Raises :class:`ModelCacheError`: ``BadSource``, ``NotFound``, ``Unreachable``,
    ``NoRoom``, ``Corrupt``. The folder is then as before.
    """
    lock = folder.lock(model.key)
    lock.acquire(wait=True, shared=True)  # others may use the model meanwhile
    try:
        if (found := _present(folder, model, pin)) is not None:
            return found
    finally:
        lock.release()
    with lock:
        if (found := _present(folder, model, pin)) is not None:
            return found
        source = source_of(model)
        files = _checked(source.files(), model)
        evicted = _make_room(folder, model, sum(each.size or 0 for each in files), floor, space)
        prepared = folder.root / f".{model.key}.partial"
        try:
            return Fetched(
                _fill(folder, model, source, files, prepared, pin, progress), False, tuple(evicted)
            )
        except OSError as error:
            raise ModelCacheError("NoRoom", f"{prepared}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(prepared, ignore_errors=True)


def _present(folder: CacheFolder, model: ModelReference, pin: bool) -> Fetched | None:
    found = folder.find(model.key)
    if found is None or (model.sha256 and found.sha256 != model.sha256):
        return None
    if pin:
        folder.pin(model.key, True)
    os.utime(folder.root / model.key)
    return Fetched(folder.find(model.key) or found, reused=True)


def checksum(files: list[tuple[str, str]]) -> str:
    """Return the checksum of a model from its files' paths and SHA-256 in hexadecimal.

    That of a single file is its own. That of several is the SHA-256 of the lines that
    ``sha256sum`` prints for them, sorted by path.
    """
    if len(files) == 1:
        return files[0][1]
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def _checked(files: list[RemoteFile], model: ModelReference) -> list[RemoteFile]:
    if not files:
        raise ModelCacheError("NotFound", f"{model.source} has no files")
    for each in files:
        path = PurePosixPath(each.path)
        if path.is_absolute() or ".." in path.parts:
            raise ModelCacheError(
                "BadSource", f"{model.source}: file name {each.path!r} leads out of the folder"
            )
    return files


def _make_room(
    folder: CacheFolder, model: ModelReference, needed: int, floor: float, space: Space
) -> list[str]:
    free, total = space(folder.root)
    models = [each for each in folder.models() if each.key != model.key]
    busy = {each.key for each in models if folder.in_use(each.key)}
    chosen = choose(models, busy, needed, free, total, floor)
    if chosen is None:
        kept = sum(each.pinned or each.key in busy for each in models)
        raise ModelCacheError(
            "NoRoom",
            f"{model.name} needs {needed} bytes; {free} of {total} are free under {folder.root}, of which "
            f"{floor:.0%} of all stay free; {kept} of {len(models)} models are pinned or in use",
        )
    removed = []
    for key in chosen:
        lock = folder.lock(key)
        if lock.acquire():
            folder.drop(key)
            removed.append(key)
        lock.release()
    return removed


def _fill(
    folder: CacheFolder,
    model: ModelReference,
    source: Source,
    files: list[RemoteFile],
    prepared: Path,
    pin: bool,
    progress: Progress,
) -> CachedModel:
    shutil.rmtree(prepared, ignore_errors=True)
    sizes = [each.size for each in files]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    digests, done = [], 0
    for each in files:
        target = prepared / "files" / each.path
        target.parent.mkdir(parents=True, exist_ok=True)
        before = done
        digest, length = _transfer(
            source, each, target, lambda now, start=before: progress(start + now, total)
        )
        digests.append((each.path, digest))
        done += length
    found = checksum(digests)
    if model.sha256 and found != model.sha256:
        raise ModelCacheError(
            "Corrupt", f"{model.source} has SHA-256 {found}, not {model.sha256} as was asked for"
        )
    facts = CachedModel(model.key, model.name, model.source, model.revision, found, done, pin)
    folder.finish(model.key, prepared, facts)
    return folder.find(model.key) or facts


def _transfer(
    source: Source, file: RemoteFile, target: Path, progress: Callable[[int], None]
) -> tuple[str, int]:
    """Copy one file; return its SHA-256 and length. Goes on after an interruption."""
    digest, done = hashlib.sha256(), 0
    with target.open("wb") as out:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with source.open(file.path, done) as stream:
                    while chunk := stream.read(CHUNK):
                        out.write(chunk)
                        digest.update(chunk)
                        done += len(chunk)
                        progress(done)
                if file.size is None or done == file.size:
                    break
                reason = f"{done} of {file.size} bytes came"
            except (ModelCacheError, ConnectionError, TimeoutError) as error:
                if isinstance(error, ModelCacheError) and error.reason != "Unreachable":
                    raise
                reason = str(error)
            if attempt == ATTEMPTS:
                raise ModelCacheError("Unreachable", f"{file.path}: {reason}, after {ATTEMPTS} attempts")
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest(), done
