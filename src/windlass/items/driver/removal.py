"""Removal of the files of a batch: ``python -m windlass.items.driver.removal``.

It runs when the time to live of a job with ``outputs.retain: false`` is over. Outputs that
another job has written since, or writes to now, stay.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import sys
from collections.abc import Mapping
from pathlib import Path

from windlass.items import object_store
from windlass.items.driver.__main__ import load_batch, problems_of
from windlass.items.ledger.database import LedgerFile
from windlass.items.places import Places, places_of
from windlass.items.spec import BatchSpec
from windlass.kits.files import FileLock

_log = logging.getLogger(__name__)


def remove(batch: BatchSpec, environment: Mapping[str, str]) -> str:
    """Remove the files of a batch; return why they stay, empty if they do not.

    Raises ``OSError``, ``ValueError`` or :class:`ObjectError`.
    """
    places = places_of(batch, environment)
    if not places.state.is_dir():
        return ""  # an earlier removal was interrupted after the last step but one
    lock = FileLock(places.state / "lock")
    if not lock.acquire():
        return "another job writes to the outputs"
    try:
        if _owner(places) != batch.uid:
            return "another job has written the outputs"
        _remove_all(places, batch)
    finally:
        lock.release()
    return ""


def _owner(places: Places) -> str:
    """Return the uid of the job that the ledger belongs to; empty without a ledger that can be read."""
    if not places.ledger.exists():
        return ""
    try:
        ledger = LedgerFile(places.ledger)
        try:
            return ledger.meta("uid")
        finally:
            ledger.close()
    except sqlite3.DatabaseError:
        return ""


def _remove_all(places: Places, batch: BatchSpec) -> None:
    """Remove the outputs first: the ledger tells until the end that they are of this job."""
    dead = batch.items.dead_letter_path
    for path in (places.output, places.branch, *((Path(dead),) if dead else ())):
        path.unlink(missing_ok=True)
    for url in (places.remote, places.remote_branch) if places.remote else ():
        object_store.delete(url)
    shutil.rmtree(places.state)
    if places.folder is not None:
        with contextlib.suppress(OSError):
            places.folder.rmdir()  # other files stay in it


def main() -> int:
    """Remove the files of the batch that the environment names."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname).1s %(message)s")
    try:
        kept = remove(load_batch(os.environ), os.environ)
    except object_store.ObjectError as error:
        _log.error("%s", error)
        return 1
    except (OSError, ValueError) as error:
        _log.error("%s", "; ".join(f"{path}: {text}" for path, text in problems_of(error)))
        return 1
    _log.info("%s", kept or "the outputs are removed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
