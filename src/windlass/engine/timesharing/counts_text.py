"""Counters of a time-sharing policy as text that outlives the process.

The text contains the time up to which runs were counted. Runs across that time are not
counted twice. Its size does not depend on the number of runs. Pure.
"""

from __future__ import annotations

import contextlib

import msgspec

from windlass.engine.timesharing.attained_service import TimeSharingState
from windlass.spi.timeshare import PersistentCounts, RunTimeCounts

VERSION = 1
EXACT = 1e-3
"""Times that differ by less than this are equal (seconds)."""


class CountsRecord(msgspec.Struct, frozen=True):
    """Counters and the time up to which they are complete (``at``, Unix seconds)."""

    version: int
    at: float
    counts: RunTimeCounts


def counted_total(time_sharing: TimeSharingState) -> float:
    """Return how much has been counted so far; 0 without counters."""
    return time_sharing.policy.counted if isinstance(time_sharing.policy, PersistentCounts) else 0.0


def as_text(time_sharing: TimeSharingState) -> str | None:
    """Return the counters as text; ``None`` if nothing was counted."""
    policy = time_sharing.policy
    if not isinstance(policy, PersistentCounts) or not policy.counted:
        return None
    due, time = time_sharing.next_due(), max(time_sharing.now, time_sharing.counted)
    if due is not None and due <= time:  # that is not counted yet
        time = due - EXACT
    return msgspec.json.encode(CountsRecord(VERSION, time, policy.counts())).decode()


def load_if_possible(time_sharing: TimeSharingState, text: str | None, now: float) -> None:
    """Load counters like :func:`load`.

    If they do not match the policy, counting begins at zero.
    """
    if text is not None:
        with contextlib.suppress(ValueError):
            load(time_sharing, text, now)


def load(time_sharing: TimeSharingState, text: str, now: float) -> None:
    """Load counters that the policy supports. ``now``: Unix seconds.

    Raises ``ValueError``, and changes nothing, if they cannot be loaded.
    """
    policy = time_sharing.policy
    if not isinstance(policy, PersistentCounts):
        return
    record = msgspec.json.decode(text, type=CountsRecord, strict=False)
    if record.version != VERSION:
        raise ValueError(f"they have version {record.version}, this one reads {VERSION}")
    policy.resume(record.counts)
    time_sharing.counted = min(record.at, now)
