"""Field ``spec.contextCache``: which context a segment gets."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.items.fields import SpecFields

OVERLAP, OUTPUT = "Overlap", "Output"
MODES = (OVERLAP, OUTPUT)
DEFAULT_WINDOW = 30.0
"""Default of ``window``: media time before the start of a segment (seconds)."""
DEFAULT_TTL = 3600.0
"""Default of ``ttlSeconds``: time after the last use of an entry (seconds)."""
DEFAULT_BYTES = 64 * 2**20
"""Default of ``maxBytes``: size of all entries in bytes."""
DEFAULT_KEY = "stream"
"""Default of ``key``: field with the stream of a row."""
FIELD = "context"
"""Field of a row that its context is put in."""


@dataclass(frozen=True, slots=True)
class ContextSpec:
    """Rule of contexts.

    ``mode``: ``Overlap`` gives the rows before a segment, ``Output`` their results.
    ``window``: media time in seconds. ``ttl_seconds``: wall time. ``key``: field or
    expression that names the stream of a row.
    """

    mode: str = OVERLAP
    window: float = DEFAULT_WINDOW
    ttl_seconds: float = DEFAULT_TTL
    max_bytes: int = DEFAULT_BYTES
    key: str = DEFAULT_KEY


def parse_context(one: SpecFields) -> ContextSpec | None:
    """Read the field; ``None`` if it is absent or not enabled."""
    found = ContextSpec(
        mode=one.choice("mode", OVERLAP, MODES),
        window=one.seconds("window", DEFAULT_WINDOW),
        ttl_seconds=one.seconds("ttlSeconds", DEFAULT_TTL),
        max_bytes=one.size("maxBytes", DEFAULT_BYTES),
        key=one.text("key", DEFAULT_KEY),
    )
    if found.window <= 0:
        one.bad("window", "Invalid value: must be more than 0 s of media time, for example 30s")
    return found if one.flag("enabled", bool(one.values)) else None
