"""Places of a batch: its outputs, and the folder with its state next to them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from windlass.items.spec import BATCH_FILE, OUTPUTS, BatchSpec

STATE_FOLDER = ".windlass"


class PlaceError(ValueError):
    """A place that cannot be written to. ``reason``: short name of the cause."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Places:
    """Paths of one batch. ``folder``: the folder of the outputs, if the user named a folder."""

    output: Path
    state: Path
    folder: Path | None

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
    def branch(self) -> Path:
        """Path of the rows below the minimum score (``onLow: Branch``)."""
        return self.output.with_name(f"{self.output.stem}.below{self.output.suffix}")


def places_of(batch: BatchSpec, environment: Mapping[str, str]) -> Places:
    """Return the places of a batch. Raises :class:`PlaceError` without an absolute path."""
    text = batch.outputs.path or environment.get(OUTPUTS, "")
    if not text:
        text = str(Path(environment.get(BATCH_FILE, "batch.json")).absolute().parent / "outputs")
    if not os.path.isabs(text):
        raise PlaceError("OutputUnwritable", f"spec.outputs.path {text!r} must be an absolute path")
    path = Path(text)
    suffix = f".{batch.outputs.format}"
    is_file = not text.endswith("/") and path.suffix in (".jsonl", ".csv", ".json", ".ndjson")
    if is_file and not path.is_dir():
        return Places(path, path.parent / f".{path.name}{STATE_FOLDER}", None)
    return Places(path / f"outputs{suffix}", path / STATE_FOLDER, path)


def prepare(places: Places) -> None:
    """Create the folders and try to write. Raises :class:`PlaceError`."""
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


def unwritable(path: Path, error: OSError) -> PlaceError:
    """Return the error of a path that cannot be written to."""
    import errno

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return PlaceError("DiskFull", f"the disk of {path.parent} is full: free space, then it continues")
    text = f"{path} cannot be written: {error.strerror}: check spec.outputs.path and the rights of its folder"
    return PlaceError("OutputUnwritable", text)
