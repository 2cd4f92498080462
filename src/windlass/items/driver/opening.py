"""State that an earlier driver left at the place of the outputs."""

from __future__ import annotations

import json
import logging
import sqlite3

from windlass.items.ledger.database import VERSION, LedgerFile
from windlass.items.ledger.failures import TOO_MANY_FAILED
from windlass.items.places import STATE_FOLDER, Places
from windlass.kits.files import FileLock

_log = logging.getLogger(__name__)


def stored_state(places: Places, uid: str) -> tuple[str, str]:
    """Return the state of a ledger of this job, and the last value that asked for its dead letters.

    The state is ``open``, ``finished`` or ``""`` without such a ledger.
    """
    if not uid or not places.ledger.exists():
        return "", ""
    try:
        ledger = LedgerFile(places.ledger)
        try:
            if ledger.meta("uid") != uid:
                return "", ""
            asked = ledger.meta("retried")
            if ledger.meta("finished"):
                return "finished", asked
            if ledger.meta("version") != VERSION:
                _log.info("another version of Windlass wrote %s: the rows are admitted again", places.ledger)
                return "", asked
            end = int(ledger.meta("journal_end") or 0)
            there = places.journal.exists() and places.journal.stat().st_size >= end
            return "open" if there and places.spool.exists() else "", asked
        finally:
            ledger.close()
    except sqlite3.DatabaseError as error:
        _log.warning("%s cannot be read (%s): the rows are admitted again", places.ledger, error)
        return "", ""


def leaves_items(places: Places, attempt: int) -> bool:
    """Return whether the last attempt left items: too many failed, or the job ended before them.

    ``attempt``: number of the present one. A driver that is restarted repeats no attempt.
    """
    try:
        ended = json.loads(places.status.read_text())
    except (OSError, ValueError):
        return False
    if "stopped" in ended:
        return True
    reason = (ended.get("failure") or {}).get("reason")
    return reason == TOO_MANY_FAILED and attempt > int(ended.get("attempt") or 1)


def holder_of(lock: FileLock) -> str:
    """Return the message about the job that holds the outputs."""
    try:
        name = lock.path.read_text().strip()
    except (OSError, ValueError):
        name = ""
    folder = lock.path.parent
    output = (
        folder.parent
        if folder.name == STATE_FOLDER
        else folder.with_name(folder.name[1 : -len(STATE_FOLDER)])
    )
    holder = f"job {name}" if name else "another job"
    return f"{holder} writes to the outputs {output}: cancel it, wait for its end, or choose another path"
