"""Places of a batch: its outputs, and the folder with its state next to them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from windlass.items import object_store, parquet
from windlass.items.spec import BATCH_FILE, OUTPUTS, BatchSpec

STATE_FOLDER = ".windlass"
_ENDINGS = (".jsonl", ".csv", ".json", ".ndjson", ".parquet")


class PlaceError(ValueError):
    """A place that cannot be written to. ``reason``: short name of the cause."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Places:
    """Paths of one batch. ``folder``: the folder of the outputs, if the user named a folder.

    ``remote``: object that gets a copy of the outputs; empty: none does.
    """

    output: Path
    state: Path
    folder: Path | None
    remote: str = ""

    @property
    def ledger(self) -> Path:
        return self.state / "ledger.sqlite"

    @property
    def spool(self) -> Path:
        return self.state / "input.rows"

    @property
    def journal(self) -> Path:
        return self.state / "rows.journal"

    @property
    def status(self) -> Path:
        return self.state / "status.json"

    @property
    def contexts(self) -> Path:
        """Path of the segments and their contexts, written at the end of a batch that has them."""
        return self.state / "contexts.jsonl"

    @property
    def groups(self) -> Path:
        """Path of the counts of all groups of a batch that has ended."""
        return self.state / "groups.json"

    @property
    def remote_branch(self) -> str:
        """Return the object with the rows below the minimum score."""
        return f"{self.remote.rpartition('/')[0]}/{self.branch.name}"

    @property
    def branch(self) -> Path:
        """Path of the rows below the minimum score (``onLow: Branch``)."""
        return self.output.with_name(f"{self.output.stem}.below{self.output.suffix}")


def places_of(batch: BatchSpec, environment: Mapping[str, str]) -> Places:
    """Return the places of a batch. Raises :class:`PlaceError` without an absolute path."""
    if object_store.is_url(batch.outputs.path):
        return _places_of_object(batch, environment)
    text = batch.outputs.path or environment.get(OUTPUTS, "")
    if not text:
        text = str(Path(environment.get(BATCH_FILE, "batch.json")).absolute().parent / "outputs")
    if not os.path.isabs(text):
        raise PlaceError("OutputUnwritable", f"spec.outputs.path {text!r} must be an absolute path")
    path = Path(text)
    suffix = f".{batch.outputs.format}"
    is_file = not text.endswith("/") and path.suffix in _ENDINGS
    if is_file and not path.is_dir():
        return Places(path, state_of(path), None)
    return Places(path / f"outputs{suffix}", path / STATE_FOLDER, path)


def _places_of_object(batch: BatchSpec, environment: Mapping[str, str]) -> Places:
    """Return the places of outputs in an object store: rows and ledger are in a folder until the end."""
    url = batch.outputs.path
    base = Path(environment.get(OUTPUTS) or Path(environment.get(BATCH_FILE, "batch.json")).absolute().parent)
    name = url.rpartition("/")[2]
    if not name.endswith(_ENDINGS):
        name = f"outputs.{batch.outputs.format}"
        url = f"{url.rstrip('/')}/{name}"
    return Places(base / name, state_of(base / name), None, url)


def state_of(output: Path) -> Path:
    """Return the folder with the state of a batch, next to its output."""
    return output.with_name(f".{output.name}{STATE_FOLDER}")


def prepare(places: Places) -> None:
    """Create the folders and try to write. Raises :class:`PlaceError`.

    Rows that an earlier job left in an object store are copied from there.
    """
    if places.output.suffix == ".parquet" and not parquet.available():
        text = f"outputs in Parquet need the package arro3-io: {parquet.REMEDY}"
        raise PlaceError("MissingPackage", text)
    try:
        places.state.mkdir(parents=True, exist_ok=True)
        probe = places.state / ".probe"
        probe.write_bytes(b"windlass\n")
        probe.unlink()
        target = places.output.parent / f".{places.output.name}.probe"
        target.write_bytes(b"windlass\n")
        target.unlink()
    except OSError as error:
        raise unwritable(places.output, error) from None
    if places.remote:
        _prepare_remote(places)


def _prepare_remote(places: Places) -> None:
    copies = [(places.remote, places.output), (places.remote_branch, places.branch)]
    try:
        object_store.probe(places.remote)
    except object_store.ObjectError as error:
        raise unsendable(places.remote, error) from None
    for url, path in copies:
        try:
            if object_store.look(url) and not path.exists() and not places.ledger.exists():
                partial = path.with_name(f".{path.name}.fetched")
                object_store.fetch(url, partial)
                partial.replace(path)
        except object_store.ObjectError as error:
            raise unsendable(url, error) from None
        except OSError as error:
            raise unwritable(path, error) from None


def unsendable(url: str, error: object_store.ObjectError) -> PlaceError:
    """Return the error of an object that cannot be written to."""
    if error.package:
        return PlaceError("MissingPackage", f"{error}, or write to a volume")
    text = (
        f"{url} cannot be written: {error}: check spec.outputs.path, and AWS_ENDPOINT_URL and the keys in env "
        "of spec.template"
    )
    return PlaceError("OutputUnwritable", text)


def full_disk(path: Path, error: Exception) -> PlaceError | None:
    """Return the error of a full disk; ``None`` for another error. SQLite has one of its own for that."""
    import errno

    if isinstance(error, PlaceError):
        return error if error.reason == "DiskFull" else None
    sqlite = getattr(error, "sqlite_errorname", "") == "SQLITE_FULL"
    if not sqlite and getattr(error, "errno", None) not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return PlaceError("DiskFull", f"the disk of {path.parent} is full: free space, then it continues")


def unwritable(path: Path, error: OSError) -> PlaceError:
    """Return the error of a path that cannot be written to."""
    if (full := full_disk(path, error)) is not None:
        return full
    text = f"{path} cannot be written: {error.strerror}: check spec.outputs.path and the rights of its folder"
    return PlaceError("OutputUnwritable", text)
