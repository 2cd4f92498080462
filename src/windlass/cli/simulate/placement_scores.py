"""``windlass sim run --scores JOB``: how the nodes ranked whenever a job of a replay was placed."""

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
"""Placements of a job that are shown to people under each policy."""


class WatchedPlacements:
    """Of no job where none is asked for."""

    def __init__(self, job: str | None) -> None:
        self._job = job
        self._witness = Witness(job) if job is not None else None

    def over(self, policy: ReplayPolicy) -> ReplayPolicy:
        return self._witness.over(policy) if self._witness else policy

    @property
    def seen(self) -> Sequence[Placement]:
        """So far."""
        return self._witness.seen if self._witness else ()

    def take(self, seen: Iterable[Placement]) -> None:
        """What others saw, in the order in which it is told."""
        if self._witness is not None:
            self._witness.seen += seen

    def as_record(self) -> dict[str, Any]:
        """For programs: every placement, all nodes."""
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
        """For people: the first placements under each policy, the best nodes of each."""
        if self._witness is None:
            return ""
        count: Counter[str] = Counter()
        parts: list[str] = []
        for seen in self._witness.seen:
            count[seen.policy] += 1
            if count[seen.policy] <= SHOWN:
                parts.append(f"\n{self._said(seen)}\n{score_tables.as_text(seen.tables)}")
        more = sum(max(number - SHOWN, 0) for number in count.values())
        parts += [f"\nand placed {plural(more, 'more time')}; -o json lists all\n"] if more else []
        return "".join(parts) or f"\njob {self._job} was never placed\n"

    def _said(self, seen: Placement) -> str:
        nodes = ", ".join(
            f"{name} ×{pods}" if pods > 1 else name for name, pods in Counter(seen.nodes).items()
        )
        fits = {row.node for table in seen.tables for row in table.nodes if row.fits}
        made = "" if fits.issuperset(seen.nodes) else ", in room that was made or kept for it"
        return f"job {self._job} under {seen.policy}, placed at {seen.seconds:,.0f}s on {nodes}{made}"


def watch(job: str | None, jobs: Sequence[TraceJob], form: str, seeds: Sequence[int]) -> WatchedPlacements:
    """``job``: an id, of a job that is in the trace. ``form``: of the output. Raises :class:`WindlassError`."""
    if job is None:
        return WatchedPlacements(None)
    if len(seeds) > 1:
        raise WindlassError(
            "WL-USE-400",
            "--scores is of one run, --seeds asks for several",
            remedies=(f"--seed {seeds[0]}, for one of them",),
        )
    if form == "csv":
        raise WindlassError(
            "WL-USE-400", "-o csv has no room for --scores", remedies=("-o json", "leave out -o")
        )
    ids = dict.fromkeys(one.id for one in jobs)
    if job not in ids:
        raise WindlassError(
            "WL-USE-400",
            f'--scores: the trace has no job "{job}"',
            evidence=f"{plural(len(ids), 'job')}, the first is {next(iter(ids))}",
            remedies=tuple(f"did you mean {one}?" for one in nearest(job, ids, 1)),
        )
    return WatchedPlacements(job)
