"""Contexts of a running batch: read from its rows and results, kept in a cache, told to users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from windlass.api.media.assembly import assemble, cut, number
from windlass.api.media.segments import MediaTimeError, Segment, SegmentIndex, times_of
from windlass.items.context.cache import ContextCache
from windlass.items.context.gate import SegmentGate
from windlass.items.context.spec import FIELD, OUTPUT, ContextSpec
from windlass.items.context.streams import StreamNames
from windlass.items.ledger.changes import ItemChange, ItemState
from windlass.items.ledger.database import LedgerFile
from windlass.items.ledger.journal import RowJournal, RowSpool
from windlass.items.ledger.table import ItemTable
from windlass.items.spec import BatchSpec
from windlass.kits.clock import Clock

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_ENDED = (ItemState.DONE, ItemState.DEAD)


class SegmentContexts:
    """Contexts of the segments of one batch. ``gate`` is set in mode ``Output``."""

    def __init__(
        self, batch: BatchSpec, rule: ContextSpec, table: ItemTable, spool: RowSpool, clock: Clock
    ) -> None:
        self._batch, self._rule, self._table, self._spool, self._clock = batch, rule, table, spool, clock
        self.index = SegmentIndex(self._segments(), rule.window)
        self._results = rule.mode == OUTPUT
        ended = [n for n in self.index.numbers() if table.state[n] in _ENDED]
        self.gate = SegmentGate(self.index, ended) if self._results else None
        self._left = Counter(
            self.index.segment(n).stream for n in self.index.numbers() if table.state[n] != ItemState.DONE
        )
        self._cache = ContextCache(rule.max_bytes, rule.ttl_seconds, self._needed, self._open)

    def _segments(self) -> Iterator[Segment]:
        """Read the segments from the input rows. Rows that are not valid have no place there."""
        names = StreamNames(self._rule.key)
        for place in range(len(self._table)):
            length = self._table.length[place]
            if not length:
                continue
            row = _decode(self._spool.read(self._table.offset[place], length))
            try:
                start, end = times_of(row)
            except MediaTimeError:
                continue  # it was done before, by a job that needed no media time
            yield Segment(place, str(row["id"]), names.of(row), start, end)

    def _needed(self, place: int) -> bool:
        state = self._table.state
        return self._results and any(state[other] != ItemState.DONE for other in self.index.after(place))

    def _open(self, place: int) -> bool:
        return self._results and self._left[self.index.segment(place).stream] > 0

    def _key(self, place: int) -> str:
        one = self.index.segment(place)
        return f"{self._batch.name}/{one.stream}/{one.id}"

    # Entries

    def load(self, ledger: LedgerFile, journal: RowJournal) -> None:
        """Read the results that segments without a result need, after a start of the driver."""
        if not self._results:
            return
        view = journal.view()
        now = self._clock.now()
        for place, state, offset, length in ledger.rows():
            if state == ItemState.DONE and length and place in self.index and self._needed(place):
                self._put(place, view[offset : offset + length], now)

    def keep(self, changes: Sequence[ItemChange]) -> list[int]:
        """Take results that were committed. Return the numbers of the segments that have ended."""
        now = self._clock.now()
        ended: list[int] = []
        for change in changes:
            if change.state not in _ENDED or change.number not in self.index:
                continue
            ended.append(change.number)
            if change.state == ItemState.DONE:
                self._left[self.index.segment(change.number).stream] -= 1
                if self._results and self._needed(change.number):
                    self._put(change.number, change.row, now)
        return ended

    def expire(self) -> None:
        """Drop entries that were not used for a long time."""
        self._cache.expire(self._clock.now())

    def _put(self, place: int, row: bytes, now: float) -> dict[str, Any]:
        values = _decode(row)
        self._cache.put(self._key(place), place, values, len(row), now)
        return values

    # Contexts

    def row(self, place: int, row: bytes) -> bytes:
        """Return the input row of a segment with its context."""
        if place not in self.index:
            return row
        body = row.rstrip()[:-1].rstrip()
        comma = b"" if body.endswith(b"{") else b","
        return b'%b%b"%b":%b}' % (body, comma, FIELD.encode(), _encode(self.of(place)))

    def of(self, place: int) -> dict[str, Any]:
        """Return the context of a segment."""
        now = self._clock.now()
        low = self.index.range(place)[0]
        rows, missing = [], []
        for other in self.index.before(place):
            one = self.index.segment(other)
            values = self._values(other, now)
            if values is None:
                missing.append(one.id)
            else:
                rows.append(cut(values, low, one.start, self.index.end(other)))
        stream = self.index.segment(place).stream
        return assemble(stream, self._rule.mode, self.index.range(place), rows, missing)

    def _values(self, place: int, now: float) -> Mapping[str, Any] | None:
        found = self._cache.get(self._key(place), now)
        if found is not None or self._results:
            return found
        table = self._table
        return self._put(place, self._spool.read(table.offset[place], table.length[place]), now)

    # What users see

    def status(self) -> dict[str, Any]:
        """Return the rule and the figures of the cache."""
        cache = self._cache
        found: dict[str, Any] = {
            "mode": self._rule.mode,
            "windowSeconds": number(self._rule.window),
            "streams": len(self.index.streams),
            "entries": len(cache),
            "bytes": cache.bytes,
            "hits": cache.hits,
            "misses": cache.misses,
            "evictions": cache.evictions + cache.expired,
        }
        if self.gate is not None:
            found["waiting"] = len(self.gate.waiting)
        return found

    def records(self, limit: int = -1, wanted: str = "") -> Iterator[dict[str, Any]]:
        """Yield each segment with the range of its context, stream by stream.

        ``wanted``: id of the only segment to tell of.
        """
        count = 0
        for place in self.index.numbers():
            one = self.index.segment(place)
            if count == limit or (wanted and one.id != wanted):
                continue
            count += 1
            low, high = self.index.range(place)
            before = self.index.before(place)
            dead = [n for n in before if self._results and self._table.state[n] == ItemState.DEAD]
            record: dict[str, Any] = {
                "id": one.id,
                "stream": one.stream,
                "start": number(one.start),
                "end": number(end) if (end := self.index.end(place)) > one.start else None,
                "key": self._key(place),
                "state": self._state(place),
                "context": {
                    "start": number(low),
                    "end": number(high),
                    "segments": [self.index.segment(n).id for n in before if n not in dead],
                },
            }
            if dead:
                record["context"]["missing"] = [self.index.segment(n).id for n in dead]
            yield record

    def _state(self, place: int) -> str:
        if self.gate is not None and place in self.gate.waiting:
            return "WaitingForContext"
        return ("Pending", "Leased", "Done", "DeadLetter")[self._table.state[place]]
