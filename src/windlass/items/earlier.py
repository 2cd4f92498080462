"""Rows of an earlier job that a batch takes over: how many, and what has changed since."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from pathlib import Path
from typing import Any

from windlass.items.ledger.database import LedgerFile
from windlass.items.program_files import file_digests
from windlass.items.spec import BatchSpec


def settings_of(batch: BatchSpec) -> dict[str, str]:
    """Return a digest of each setting that decides what an output row says."""
    runtime, quality = batch.runtime, batch.outputs.quality
    program = [runtime.name, runtime.function, runtime.url, list(runtime.command), dict(runtime.parameters)]
    scorer = [quality.scorer, dict(quality.arguments)] if quality is not None else []
    parts = {"prompt": batch.input.prompt, "model": batch.model, "program": program, "scorer": scorer}
    if runtime.image:
        parts["image"] = runtime.image
    return {name: _digest(value) for name, value in parts.items()} | file_digests(batch)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def taken_over(
    ledger: Path,
    batch: BatchSpec,
    rows: int,
    outputs: Path | str,
    changed_rows: int = 0,
    other_rows: int = 0,
) -> dict[str, Any]:
    """Return the record of rows that are taken over or have changed; empty if there are none.

    ``ledger``: ledger of the earlier job at the same place. ``rows``: number of items that are
    done already. ``changed_rows``: number of items that were done before their row changed.
    ``other_rows``: number of outputs that stay, although the input has no row for them. A
    ledger of the same job keeps its record. ``changed`` names the settings that differ from the
    earlier job, or in which the earlier rows differ from one another.
    """
    uid, settings, record = _stored(ledger)
    same = bool(uid) and uid == batch.uid
    found: dict[str, Any] = dict(record) if same else {}
    if rows and not same:
        changed = set(record.get("changed") or ())
        now = settings_of(batch)
        changed |= {name for name in now if settings and settings.get(name, now[name]) != now[name]}
        found = {"rows": rows, "from": str(outputs), "changed": sorted(changed)}
    if changed_rows:
        before = int(found.get("changedRows") or 0)
        found = {"rows": 0, "from": str(outputs), "changed": [], **found}
        found["changedRows"] = before + changed_rows
    if other_rows:
        found = {"rows": 0, "from": str(outputs), "changed": [], **found, "otherRows": other_rows}
    return found


def _stored(path: Path) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Return uid, settings and record of a ledger; empty ones if it cannot be read."""
    if not path.exists():
        return "", {}, {}
    try:
        ledger = LedgerFile(path)
        try:
            texts = [ledger.meta(name) or "{}" for name in ("settings", "taken_over")]
            return ledger.meta("uid"), json.loads(texts[0]), json.loads(texts[1])
        finally:
            ledger.close()
    except (sqlite3.DatabaseError, OSError, ValueError):
        return "", {}, {}
