"""Run-time prediction by history: quantiles of the last runs of the most similar known work.

The levels of similarity, from the closest, are:

* the same name, owner, queue, size and request (if they are known);
* the same without the request;
* the same without the size;
* the same owner, queue and size;
* the same queue and size.

Names are compared without numbers and generated parts (:mod:`windlass.predict.names`),
sizes by powers of two. A level is used once it has enough runs; wider levels need more.
The last :data:`WINDOW` runs of each key count, so that old behaviour is forgotten. At
most :data:`KEYS` keys are kept, those with the latest completions.

The predicted time is the 0.9-quantile (of few runs, the longest). An overestimate costs
idle time, an underestimate delays other work.
``docs/operations/benchmarks/run-times.md`` compares the quality with gradient-boosted
trees; it is measured by ``benchmarks/runtimes.py``.

Invariants: each piece of work counts once, by its longest pod. Equal observations in
equal order give an equal state. ``as_record`` and ``of_record`` preserve everything but
the latest pieces of work.
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
"""Maximum number of pieces of work that are remembered until their other pods end."""
PREDICTED_QUANTILE = 0.9
VERSION = 1

Key = tuple[str, ...]


class KeyRecord(msgspec.Struct, frozen=True, array_like=True):
    key: list[str]
    total: int
    seconds: list[int]


class HistoryRecord(msgspec.Struct, frozen=True):
    """Whole state, small enough for a ConfigMap: whole seconds, rounded up."""

    version: int
    keys: list[KeyRecord]


class _Runs:
    """Last runs of one key. ``total``: number of all its runs."""

    __slots__ = ("seconds", "total")

    def __init__(self) -> None:
        self.seconds: deque[float] = deque(maxlen=WINDOW)
        self.total = 0


class History:
    """Learned :class:`~windlass.predict.model.RunTimeModel`."""

    def __init__(self) -> None:
        self._runs: OrderedDict[Key, _Runs] = OrderedDict()
        self._works: OrderedDict[str, float] = OrderedDict()
        self.version = 0
        """Number of observations that changed the state."""

    @property
    def empty(self) -> bool:
        """True if nothing is known."""
        return not self._runs

    def observe(self, run: CompletedRun) -> None:
        """Record a completed run. If the same work is reported again, the longest run counts."""
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
        """Return whether a run of this piece of work was observed recently."""
        return work in self._works

    def predict(self, traits: Traits) -> Prediction | None:
        """Return the prediction; ``None`` if too little is known."""
        for key, enough, description in _levels(traits):
            runs = self._runs.get(key)
            if runs is not None and len(runs.seconds) >= enough:
                return _prediction(sorted(runs.seconds), runs.total, description)
        return None

    def similar(self, traits: Traits) -> Sequence[float]:
        """Return the runs behind :meth:`predict`, seconds in ascending order; none if
        too little is known."""
        for key, enough, _ in _levels(traits):
            runs = self._runs.get(key)
            if runs is not None and len(runs.seconds) >= enough:
                return sorted(runs.seconds)
        return ()

    # ------------------------------------------------------------------ persistence

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
        """Return the history of a record; an empty one for another version."""
        history = cls()
        for known in record.keys if record.version == VERSION else ():
            runs = history._runs[tuple(known.key)] = _Runs()
            runs.seconds.extend(float(seconds) for seconds in known.seconds)
            runs.total = max(known.total, len(runs.seconds))
        return history


def _levels(traits: Traits) -> list[tuple[Key, int, str]]:
    """Return the levels from the closest: key, minimum number of runs, and name for users."""
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


def _prediction(ordered: Sequence[float], total: int, description: str) -> Prediction:
    quantiles = {part: _quantile(ordered, part) for part in QUANTILES}
    shown = ", ".join(
        f"p{round(100 * part)} {durations.write(quantiles[part])}" for part in (0.5, PREDICTED_QUANTILE)
    )
    return Prediction(
        quantiles[PREDICTED_QUANTILE],
        quantiles,
        f"by {total} earlier runs {description}: {shown}",
        runs=tuple(ordered),
    )


def _quantile(ordered: Sequence[float], part: float) -> float:
    """Return a bound for the next run with this probability, if it is drawn like these.

    Of n values the k-th is a bound with probability k / (n + 1). The rank is rounded
    outwards from the middle, and limited to the smallest and largest value.
    """
    count = len(ordered)
    if part == 0.5:
        rank = -(-count // 2)
    elif part < 0.5:
        rank = floor(part * (count + 1))
    else:
        rank = ceil(part * (count + 1))
    return ordered[min(max(rank, 1), count) - 1]


def _last(seconds: Sequence[float], value: float) -> int:
    return max(at for at, known in enumerate(seconds) if known == value)
