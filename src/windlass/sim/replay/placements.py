"""Node scores for the pods of one job of a replay at each of its placements, score by score.

The engine is observed from outside: while the job is pending, its score table is computed before every decision, and
kept if the decision binds pods of the job. It shows the cluster before the decision. Earlier binds of the same
decision are not included, and a node where evictions free the capacity counts as unfit. Decisions do not change, and
other jobs cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from windlass.engine.decision import Bind, Decision
from windlass.engine.engine import Engine
from windlass.engine.placement.score_table import ScoreTable
from windlass.sim.replay.policies import PolicyContext, ReplayEngine, ReplayPolicy


@dataclass(frozen=True, slots=True)
class Placement:
    """Pods of the job were bound ``seconds`` after the beginning of the trace, to ``nodes`` (one for each pod).
    ``tables``: how all nodes ranked before, for each kind of its pods."""

    policy: str
    seconds: float
    nodes: tuple[str, ...]
    tables: tuple[ScoreTable, ...]


class Witness:
    """Observer of every job with this id, under every observed policy."""

    def __init__(self, job: str) -> None:
        self._job = job
        self.seen: list[Placement] = []

    def over(self, policy: ReplayPolicy) -> ReplayPolicy:
        """The policy, watched."""

        def make(setting: PolicyContext) -> ReplayEngine:
            made = policy.make(setting)
            if setting.trial:
                return made
            keys = [key for key, job in zip(setting.keys, setting.jobs, strict=True) if job.id == self._job]
            engine = _Watched(made.engine, policy.name, keys, self.seen)
            return replace(made, engine=cast(Engine, engine))

        return replace(policy, make=make)


class _Watched:
    """An engine; ``keys``: the names of the jobs to look at. A job is a group of that name, or each of its pods is one
    of its own: ``NAME-0`` and so on."""

    def __init__(self, engine: Engine, policy: str, keys: Sequence[str], seen: list[Placement]) -> None:
        self._engine = engine
        self._policy = policy
        self._keys = keys
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def cycle(self, now: float) -> Decision:
        tables = {group: self._engine.scores(group) for group in self._groups()}
        decision = self._engine.cycle(now)
        bound: dict[str, list[Bind]] = {}
        for bind in decision.binds:
            group = self._engine.state.tasks[bind.task].group
            if group is not None and tables.get(group.key):
                bound.setdefault(group.key, []).append(bind)
        for group, binds in bound.items():
            nodes = tuple(bind.node for bind in binds)
            self._seen.append(Placement(self._policy, now, nodes, tables[group]))
        return decision

    def _groups(self) -> Iterator[str]:
        groups = self._engine.state.groups
        for key in self._keys:
            if key in groups:
                yield key
            number = 0
            while (single := f"{key}-{number}") in groups:
                yield single
                number += 1
