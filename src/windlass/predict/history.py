"""Run times by history: the quantiles of the last runs of the most similar work of which enough is known.

Similar is, from the nearest: of this name by this owner in this queue, of this size and with equal requests,
where those are known; the same with any; the same of any size; of this size by this owner; of this size in this
queue. A name counts without its numbers and generated parts (:mod:`windlass.predict.names`); sizes are told apart
by powers of two. A level answers once it knows of enough runs, more the wider it is. The last :data:`WINDOW` runs
of each count, so that what has changed is forgotten; of :data:`KEYS` kinds of work at most, those that ended last.

What to reckon with is the 0.9-quantile (of few runs, the longest): to be wrong by too much costs an idle
moment, to be wrong by too little delays somebody. How good it is, beside gradient-boosted trees, is told in
``docs/operations/benchmarks/run-times.md`` and measured by ``benchmarks/runtimes.py``.

Invariants: a piece of work counts once, by its longest pod; equal observations in equal order give an equal
state; ``as_record`` and ``of_record`` lose nothing but which work was seen last.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from math import ceil, floor

import msgspec

from windlass.kits import durations
from windlass.predict.model import QUANTILES, CompletedRun, Prediction, Traits
from windlass.predict.names import pattern

WINDOW = 32
KEYS = 1024
WORKS = 4096
"""So many pieces of work are remembered, for more pods of them to end."""
RECKONED = 0.9
VERSION = 1

Key = tuple[str, ...]


class KeyRecord(msgspec.Struct, frozen=True, array_like=True):
    key: list[str]
    total: int
    seconds: list[int]


class HistoryRecord(msgspec.Struct, frozen=True):
    """The whole state, small enough for a ConfigMap: whole seconds, rounded up."""

    version: int
    keys: list[KeyRecord]


class _Runs:
    """The last runs of one kind of work. ``total``: how many there have been in all."""

    __slots__ = ("seconds", "total")

    def __init__(self) -> None:
        self.seconds: deque[float] = deque(maxlen=WINDOW)
        self.total = 0


class History:
    """A :class:`~windlass.predict.model.RunTimeModel`."""

    def __init__(self) -> None:
        self._runs: OrderedDict[Key, _Runs] = OrderedDict()
        self._works: OrderedDict[str, float] = OrderedDict()
        self.version = 0
        """Counts the observations that changed something."""

    @property
    def empty(self) -> bool:
        """True if nothing is known."""
        return not self._runs

    def observe(self, run: CompletedRun) -> None:
        """A run has ended. Told again of the same work, the longest counts."""
        before = self._works.get(run.work)
        if run.seconds <= 0 or (before is not None and before >= run.seconds):
            return
        self.version += 1
        self._works[run.work] = run.seconds
        self._works.move_to_end(run.work)
        if len(self._works) > WORKS:
            self._works.popitem(last=False)
        for key, _, _ in _levels(run.traits):
            runs = self._runs.get(key)
            if runs is None:
                runs = self._runs[key] = _Runs()
            else:
                self._runs.move_to_end(key)
            if before is not None and before in runs.seconds:
                runs.seconds[_last(runs.seconds, before)] = run.seconds
            else:
                runs.seconds.append(run.seconds)
                runs.total += 1
        while len(self._runs) > KEYS:
            self._runs.popitem(last=False)

    def knows(self, work: str) -> bool:
        """Return whether a run of this piece of work was observed, lately."""
        return work in self._works

    def predict(self, traits: Traits) -> Prediction | None:
        """``None`` where too little is known."""
        for key, enough, words in _levels(traits):
            runs = self._runs.get(key)
            if runs is not None and len(runs.seconds) >= enough:
                return _prediction(sorted(runs.seconds), runs.total, words)
        return None

    def similar(self, traits: Traits) -> Sequence[float]:
        """The runs that :meth:`predict` rests on, seconds in ascending order; none where too little is known."""
        for key, enough, _ in _levels(traits):
            runs = self._runs.get(key)
            if runs is not None and len(runs.seconds) >= enough:
                return sorted(runs.seconds)
        return ()

    # ------------------------------------------------------------------ kept across restarts

    def as_record(self) -> HistoryRecord:
        return HistoryRecord(
            VERSION,
            [
                KeyRecord(list(key), runs.total, [-int(-seconds // 1) for seconds in runs.seconds])
                for key, runs in self._runs.items()
            ],
        )

    @classmethod
    def of_record(cls, record: HistoryRecord) -> History:
        """A history as it was; of another version, an empty one."""
        found = cls()
        for known in record.keys if record.version == VERSION else ():
            runs = found._runs[tuple(known.key)] = _Runs()
            runs.seconds.extend(float(seconds) for seconds in known.seconds)
            runs.total = max(known.total, len(runs.seconds))
        return found


def _levels(traits: Traits) -> list[tuple[Key, int, str]]:
    """From the nearest: the key of a level, how many runs it takes to answer, and its name for people."""
    name, size = pattern(traits.name), str(max(traits.size, 1).bit_length())
    owner, queue = traits.owner, traits.queue
    shaped = ("shape", queue, owner, name, size, traits.shape)
    return [
        *([(shaped, 3, "of this name, size and request")] if traits.shape else []),
        (("name+size", queue, owner, name, size), 3, "of this name and size"),
        (("name", queue, owner, name), 3, "of this name"),
        (("owner", queue, owner, size), 10, f"of this size by {owner}"),
        (("queue", queue, size), 20, f"of this size in queue {queue}"),
    ]


def _prediction(ordered: Sequence[float], total: int, words: str) -> Prediction:
    quantiles = {part: _quantile(ordered, part) for part in QUANTILES}
    shown = ", ".join(f"p{round(100 * part)} {durations.write(quantiles[part])}" for part in (0.5, RECKONED))
    return Prediction(
        quantiles[RECKONED], quantiles, f"by {total} earlier runs {words}: {shown}", runs=tuple(ordered)
    )


def _quantile(ordered: Sequence[float], part: float) -> float:
    """What the next run stays below with this probability, were it drawn like these: of n values the k-th bounds it
    with k / (n + 1). Rounded outwards, from the middle; of few values, the least and the greatest of them."""
    count = len(ordered)
    if part == 0.5:
        at = -(-count // 2)
    elif part < 0.5:
        at = floor(part * (count + 1))
    else:
        at = ceil(part * (count + 1))
    return ordered[min(max(at, 1), count) - 1]


def _last(seconds: Sequence[float], value: float) -> int:
    return max(at for at, known in enumerate(seconds) if known == value)
