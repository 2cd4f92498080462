"""Quality of run-time predictions on a trace: every job at its submission, from earlier
completions.

    python -m benchmarks.runtimes TRACES/philly/philly_oct.csv.gz TRACES/muri/trace3.csv.gz

Each job is assumed to start at once. The result is a table in Markdown with the
measures of ``windlass.predict.scoring``. Models: the product's (``learned``); the last
two runs of such work, as in Tsafrir, Etsion and Feitelson (2007), with a factor of ten
to both sides (``last two``); all completed runs, whatever they were (``all alike``).
"""

from __future__ import annotations

import gzip
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from windlass.predict.history import History
from windlass.predict.model import CompletedRun, Prediction, RunTimeModel, Traits
from windlass.predict.scoring import Case, online, score
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.estimates import traits_of
from windlass.sim.traces import formats


class LastTwo:
    """The mean of the last two runs of the same owner in the same queue."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], deque[float]] = {}

    def observe(self, run: CompletedRun) -> None:
        key = (run.traits.queue, run.traits.owner)
        self._last.setdefault(key, deque(maxlen=2)).append(run.seconds)

    def predict(self, traits: Traits) -> Prediction | None:
        last = self._last.get((traits.queue, traits.owner))
        if last is None or len(last) < 2:
            return None
        middle = sum(last) / 2
        return Prediction(middle * 10, {0.1: middle / 10, 0.5: middle, 0.9: middle * 10, 1.0: middle * 10})


class AllAlike:
    """One history for all work."""

    def __init__(self) -> None:
        self._history = History()

    def observe(self, run: CompletedRun) -> None:
        self._history.observe(CompletedRun(run.work, Traits("", "", "", 1), run.seconds))

    def predict(self, traits: Traits) -> Prediction | None:
        return self._history.predict(Traits("", "", "", 1))


def cases(jobs: list[TraceJob]) -> list[Case]:
    """The jobs, as if each had a cluster for itself."""
    return [
        Case(
            traits_of(job, f"{number}"),
            job.submit_seconds,
            job.submit_seconds + job.duration_seconds,
            job.duration_seconds,
        )
        for number, job in enumerate(jobs)
    ]


def main(*traces: str) -> None:
    print("| trace | model | jobs | answered | pinball | seconds | error | inside p10–p90 | within p90 |")
    print("|---|---|---|---|---|---|---|---|---|")
    for trace in traces:
        with gzip.open(trace, "rt") as lines:
            known = cases(formats.read(lines.read().splitlines(), trace))
        models: Mapping[str, RunTimeModel] = {
            "learned": History(),
            "last two": LastTwo(),
            "all alike": AllAlike(),
        }
        for name, model in models.items():
            found = score(online(model, known))
            print(
                f"| {Path(trace).name} | {name} | {found.count:,} | {found.answered:.1%} | {found.pinball:.3f} "
                f"| {found.pinball_seconds:,.0f} | {found.error:.2f} | {found.inside:.1%} | {found.kept:.1%} |",
                flush=True,
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
