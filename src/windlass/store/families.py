"""Which objects share tables and a retention.

Events and leases are written most often and matter least long: they have tables of their own, so
that their log can be compacted earlier without shortening everybody else's history.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreFamily:
    """``log_*`` bound the watch log: whatever is older *or* beyond the count goes, but never the newest
    ``log_keep_rows``. ``ttl_seconds``: objects vanish that long after their last write."""

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
    """Limits. Bytes are of encoded objects.

    ``ring_bytes`` bounds the superseded versions that are kept in memory per kind (older history is
    read from the log); ``lag_bytes`` is how far a live watcher may fall behind before it is ended.
    """

    families: tuple[StoreFamily, ...] = (MAIN, EVENTS, LEASES)
    ring_bytes: int = 96 * 2**20
    ring_events: int = 100_000
    lag_bytes: int = 64 * 2**20
    wake_seconds: float = 0.0
    """How long watchers of a kind are left alone after they were woken, while writes pour in."""
    epoch_jump: int = 10_000
    busy_seconds: float = 10.0
    """How long another program may hold SQLite's lock on the file before that is told."""
    allow_network: bool = False
    synchronous: str = "FULL"
    """``OFF`` is for throw-away servers of tests: a power loss may then run the history backwards."""

    def family_of(self, resource: str) -> StoreFamily:
        wanted = _OF.get(resource, "main")
        return next(family for family in self.families if family.name == wanted)
