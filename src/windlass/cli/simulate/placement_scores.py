"""Report of ``windlass sim run --scores JOB``: ranking of nodes at each placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from windlass.api.errors import WindlassError
from windlass.cli.errors import nearest
from windlass.cli.simulate import score_tables
from windlass.cli.text import plural
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.placements import Placement, Witness
from windlass.sim.replay.policies import ReplayPolicy

SHOWN = 5
"""Maximum number of placements that are shown to people under each policy."""


class WatchedPlacements:
    """Placements of one job with the ranking of nodes; none if ``job`` is ``None``."""

    def __init__(self, job: str | None) -> None:
        self._job = job
        self._witness = Witness(job) if job is not None else None

    def over(self, policy: ReplayPolicy) -> ReplayPolicy:
        return self._witness.over(policy) if self._witness else policy

    @property
    def seen(self) -> Sequence[Placement]:
        """Placements so far."""
        return self._witness.seen if self._witness else ()

    def add(self, seen: Iterable[Placement]) -> None:
        """Add placements that other processes saw, in the order of the report."""
        if self._witness is not None:
            self._witness.seen += seen

    def as_record(self) -> dict[str, Any]:
        """Return every placement with all nodes, for programs."""
        if self._witness is None:
            return {}
        return {
            "scores": [
                {
                    "policy": seen.policy,
                    "job": self._job,
                    "seconds": seen.seconds,
                    "nodes": list(seen.nodes),
                    "tables": score_tables.as_records(seen.tables),
                }
                for seen in self._witness.seen
            ]
        }

    def as_text(self) -> str:
        """Return the first placements under each policy with the best nodes, for people."""
        if self._witness is None:
            return ""
        count: Counter[str] = Counter()
        parts: list[str] = []
        for seen in self._witness.seen:
            count[seen.policy] += 1
            if count[seen.policy] <= SHOWN:
                parts.append(f"\n{self._title(seen)}\n{score_tables.as_text(seen.tables)}")
        more = sum(max(number - SHOWN, 0) for number in count.values())
        parts += [f"\n{plural(more, 'more placement')} not shown; -o json lists all\n"] if more else []
        return "".join(parts) or f"\njob {self._job} was never placed\n"

    def _title(self, seen: Placement) -> str:
        nodes = ", ".join(
            f"{name} ×{pods}" if pods > 1 else name for name, pods in Counter(seen.nodes).items()
        )
        fits = {row.node for table in seen.tables for row in table.nodes if row.fits}
        reserved = "" if fits.issuperset(seen.nodes) else ", on capacity that was freed or reserved for it"
        return f"job {self._job} under {seen.policy}, placed at {seen.seconds:,.0f}s on {nodes}{reserved}"


def watch(job: str | None, jobs: Sequence[TraceJob], form: str, seeds: Sequence[int]) -> WatchedPlacements:
    """Return the watch for ``job``, the id of a job in the trace.

    Raises :class:`WindlassError`. ``form``: format of the output.
    """
    if job is None:
        return WatchedPlacements(None)
    if len(seeds) > 1:
        raise WindlassError(
            "WL-USE-400",
            "--scores needs a single run, but --seeds requests several",
            remedies=(f"--seed {seeds[0]}   (for one of them)",),
        )
    if form == "csv":
        raise WindlassError(
            "WL-USE-400", "--scores does not work with -o csv", remedies=("-o json", "omit -o")
        )
    ids = dict.fromkeys(match.id for match in jobs)
    if job not in ids:
        raise WindlassError(
            "WL-USE-400",
            f'--scores: the trace has no job "{job}"',
            evidence=f"it has {plural(len(ids), 'job')}; the first is {next(iter(ids))}",
            remedies=tuple(f"did you mean {match}?" for match in nearest(job, ids, 1)),
        )
    return WatchedPlacements(job)
