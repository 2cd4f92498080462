"""What a policy of time-sharing has counted, as text that outlasts the process, and back.

The text says up to when was counted: what ran on across that moment is not counted twice. It is as large as the counts
of a few sizes, whatever there was to count. Pure.
"""

from __future__ import annotations

import contextlib

import msgspec

from windlass.engine.timesharing.attained_service import TimeSharingState
from windlass.spi.timeshare import PersistentCounts, RunTimeCounts

VERSION = 1
EXACT = 1e-3
"""Seconds: moments that are nearer to each other are one."""


class CountsRecord(msgspec.Struct, frozen=True):
    """``at``: up to when was counted, Unix seconds."""

    version: int
    at: float
    counts: RunTimeCounts


def counted(time_sharing: TimeSharingState) -> float:
    """How much was counted so far: 0 where nothing is."""
    return time_sharing.policy.counted if isinstance(time_sharing.policy, PersistentCounts) else 0.0


def as_text(time_sharing: TimeSharingState) -> str | None:
    """``None`` where nothing was counted."""
    policy = time_sharing.policy
    if not isinstance(policy, PersistentCounts) or not policy.counted:
        return None
    due, at = time_sharing.next_due(), max(time_sharing.now, time_sharing.counted)
    if due is not None and due <= at:  # that is not counted yet
        at = due - EXACT
    return msgspec.json.encode(CountsRecord(VERSION, at, policy.counts())).decode()


def offer(time_sharing: TimeSharingState, text: str | None, now: float) -> None:
    """As :func:`resume`; who counts otherwise begins anew."""
    if text is not None:
        with contextlib.suppress(ValueError):
            resume(time_sharing, text, now)


def resume(time_sharing: TimeSharingState, text: str, now: float) -> None:
    """Go on with what was counted before, as far as the policy in force counts. ``now``: Unix seconds. Raises
    ``ValueError``, and changes nothing, where that is not possible."""
    policy = time_sharing.policy
    if not isinstance(policy, PersistentCounts):
        return
    record = msgspec.json.decode(text, type=CountsRecord, strict=False)
    if record.version != VERSION:
        raise ValueError(f"they have version {record.version}, this one reads {VERSION}")
    policy.resume(record.counts)
    time_sharing.counted = min(record.at, now)
