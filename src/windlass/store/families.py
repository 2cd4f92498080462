"""Families of resources that share tables and a retention.

Events and leases are written most often and matter for the shortest time. They have
tables of their own, so their log is compacted earlier without shortening the history of
other kinds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreFamily:
    """Family of resources. ``log_*`` bound its watch log.

    Rows that are too old *or* beyond the maximum count are dropped, except for the
    newest ``log_keep_rows``. ``ttl_seconds``: objects expire that long after their last
    write.
    """

    name: str
    log_age_seconds: float = 300.0
    log_rows: int = 200_000
    log_keep_rows: int = 1_000
    ttl_seconds: float | None = None


MAIN = StoreFamily("main")
EVENTS = StoreFamily("events", log_rows=20_000, ttl_seconds=3600.0)
LEASES = StoreFamily("leases", log_age_seconds=60.0, log_rows=5_000, log_keep_rows=200)

_OF = {"events": "events", "leases.coordination.k8s.io": "leases"}


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Limits of the store. Bytes refer to encoded objects.

    ``ring_bytes``: maximum size of superseded versions in memory per kind (older
        history is read from the log).
    ``lag_bytes``: maximum distance of a live watcher behind the newest event before it
        is ended.
    """

    families: tuple[StoreFamily, ...] = (MAIN, EVENTS, LEASES)
    ring_bytes: int = 48 * 2**20
    ring_events: int = 100_000
    lag_bytes: int = 48 * 2**20
    wake_seconds: float = 0.0
    """Minimum interval (seconds) between two wake-ups of a kind's watchers under load."""
    epoch_jump: int = 10_000
    busy_seconds: float = 10.0
    """Timeout (seconds) of another program's lock on the file before it is reported."""
    allow_network: bool = False
    synchronous: str = "FULL"
    """``OFF`` is for throw-away servers of tests: a power loss may then roll back the history."""

    def family_of(self, resource: str) -> StoreFamily:
        wanted = _OF.get(resource, "main")
        return next(family for family in self.families if family.name == wanted)
