"""Files and batches on disk: ``files/<id>/``, ``batches/<id>.json``, ``outputs/<id>/``."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from windlass.batchapi.objects import ApiError, StoredBatch, StoredFile, read_batch
from windlass.kits.files import write_atomic
from windlass.kits.rng import Random

CONTENT, FACTS = "content", "file.json"


class BatchStore:
    """Folder of the interface. Every write is whole or absent."""

    def __init__(self, root: Path, rng: Random) -> None:
        self.root, self._rng = root, rng
        for name in ("files", "batches", "outputs"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def new_id(self, prefix: str) -> str:
        """Return an id that has not been given."""
        return f"{prefix}{self._rng.getrandbits(128):032x}"

    @contextmanager
    def new_file(self, filename: str, purpose: str, now: int) -> Iterator[FileWriter]:
        """Give a writer; the file exists once the context ends without an error."""
        writer = FileWriter(self.new_id("file-"), filename, purpose, now, self.root / "files")
        try:
            yield writer
            writer.finish()
        finally:
            writer.abandon()

    def file(self, identifier: str) -> StoredFile:
        """Return a file. Raises :class:`ApiError` (404)."""
        try:
            return StoredFile(**json.loads((self._folder(identifier) / FACTS).read_text()))
        except FileNotFoundError:
            raise ApiError(404, f"No such File object: {identifier}", param="id") from None

    def content(self, identifier: str) -> Path:
        """Return the path of a file's content. Raises :class:`ApiError` (404)."""
        self.file(identifier)
        return self._folder(identifier) / CONTENT

    def files(self) -> list[StoredFile]:
        """Return all files, the newest first."""
        found = [self.file(each.name) for each in (self.root / "files").iterdir() if (each / FACTS).exists()]
        return sorted(found, key=lambda each: (-each.created_at, each.id))

    def delete_file(self, identifier: str) -> None:
        """Remove a file. Raises :class:`ApiError` (404)."""
        self.file(identifier)
        os.unlink(self._folder(identifier) / FACTS)
        shutil.rmtree(self._folder(identifier), ignore_errors=True)

    def batch(self, identifier: str) -> StoredBatch:
        """Return a batch. Raises :class:`ApiError` (404)."""
        try:
            return read_batch(json.loads(self._record(identifier).read_text()))
        except FileNotFoundError:
            raise ApiError(404, f"No batch found with id '{identifier}'.", param="id") from None

    def batches(self) -> list[StoredBatch]:
        """Return all batches, the newest first."""
        found = [self.batch(each.stem) for each in (self.root / "batches").glob("*.json")]
        return sorted(found, key=lambda each: (-each.created_at, each.id))

    def put_batch(self, batch: StoredBatch) -> None:
        """BatchStore a batch."""
        write_atomic(self._record(batch.id), json.dumps(asdict(batch)))

    def outputs_of(self, batch: StoredBatch) -> Path:
        """Return the path of the rows that the batch's job writes."""
        folder = self.root / "outputs" / batch.id
        folder.mkdir(exist_ok=True)
        return folder / "rows.jsonl"

    def _folder(self, identifier: str) -> Path:
        return self.root / "files" / _name(identifier)

    def _record(self, identifier: str) -> Path:
        return self.root / "batches" / f"{_name(identifier)}.json"


class FileWriter:
    """File that is being written."""

    def __init__(self, identifier: str, filename: str, purpose: str, now: int, folder: Path) -> None:
        self.id, self.filename, self.purpose, self._now = identifier, filename, purpose, now
        self._partial, self._folder = folder / f".{identifier}", folder / identifier
        self._partial.mkdir()
        self._stream: IO[bytes] = (self._partial / CONTENT).open("wb")
        self.size = 0

    def write(self, data: bytes) -> int:
        """Append bytes. Raises ``OSError`` on a full disk."""
        self._stream.write(data)
        self.size += len(data)
        return len(data)

    def line(self, value: Any) -> None:
        """Append a line of JSON."""
        self.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

    def finish(self) -> StoredFile:
        """Make the file visible."""
        found = StoredFile(self.id, self.filename, self.purpose, self.size, self._now)
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        write_atomic(self._partial / FACTS, json.dumps(asdict(found)))
        os.rename(self._partial, self._folder)
        return found

    def abandon(self) -> None:
        """Remove what is not finished."""
        self._stream.close()
        shutil.rmtree(self._partial, ignore_errors=True)


def _name(identifier: str) -> str:
    """Return an id that is safe as a file name. Raises :class:`ApiError` (404)."""
    if not identifier.replace("-", "").replace("_", "").isalnum():
        raise ApiError(404, f"no object has the id {identifier!r}", param="id")
    return identifier
