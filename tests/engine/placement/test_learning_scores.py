"""Scores that learn: silent until they have something to say, asked anew when they do, and dumped."""

from __future__ import annotations

import numpy as np
import pytest

from windlass.engine import invariants
from windlass.engine.config import EngineConfig
from windlass.engine.deltas import GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.engine.engine import Engine
from windlass.plugins.nodes.resources import ResourcesFit
from windlass.spi.nodes import FloatArray, NodeView
from windlass.spi.objects import Group, Needs, Node, Queue, Task
from windlass.spi.plugins import Footprint, Trend
from windlass.spi.scoring import ClusterTotals


class Fixed:
    """Prefers the node named first."""

    name = "fixed"
    footprint = Footprint.ROW
    weight = 1.0
    reads_labels = True

    def trend(self, needs: Needs) -> Trend:
        return Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        return np.array([100.0 if name == "n0" else 0.0 for name in nodes.names()])


class Late:
    """Prefers the last node, far more, from a moment on."""

    name = "late"
    footprint = Footprint.ROW
    weight = 10.0
    reads_labels = True

    def __init__(self, at: float) -> None:
        self.at = at
        self.silent = True
        self.asked = 0
        self.kinds: list[tuple[Needs, int]] = []

    def learn_from(self, now: float, totals: ClusterTotals) -> bool:
        changed = self.silent is (now >= self.at)
        self.silent = now < self.at
        self.kinds = list(totals.kinds())
        return changed

    def remembered(self) -> object:
        return {"at": self.at, "silent": self.silent}

    def recall(self, learned: object) -> None:
        assert isinstance(learned, dict)
        self.at, self.silent = learned["at"], learned["silent"]

    def trend(self, needs: Needs) -> Trend:
        return Trend.ANY

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        assert not self.silent
        self.asked += 1
        return np.array([100.0 if name == "n2" else 0.0 for name in nodes.names()])


NEEDS = Needs((("cpu", 1000),))


def engine_with(late: Late) -> Engine:
    engine = Engine(EngineConfig(actions=("allocate",)), [ResourcesFit(), Fixed(), late])
    engine.apply([QueueUpserted(Queue("default"))])
    engine.apply([NodeUpserted(Node(f"n{at}", {"cpu": 8000, "pods": 100})) for at in range(3)])
    return engine


def place(engine: Engine, name: str, now: float, pods: int = 1) -> list[str]:
    group = Group(f"d/{name}", uid=name, created=now, admitted=True, min_member=pods)
    tasks = [Task(f"d/{name}-{at}", f"{name}{at}", group.key, NEEDS, index=at) for at in range(pods)]
    engine.apply([GroupUpserted(group), *map(TaskUpserted, tasks)])
    nodes = [bind.node for bind in engine.cycle(now).binds]
    invariants.check(engine)
    return nodes


def test_a_silent_score_is_not_asked_and_stands_in_nobodys_way():
    late = Late(at=10.0)
    engine = engine_with(late)
    assert place(engine, "a", 1.0) == ["n0"]
    assert late.asked == 0
    (cls,) = engine.state.classes
    assert cls.countable


def test_what_it_learns_counts_at_once_for_known_kinds():
    late = Late(at=10.0)
    engine = engine_with(late)
    place(engine, "a", 1.0)
    assert place(engine, "b", 10.0, pods=2) == ["n2", "n2"]
    (cls,) = engine.state.classes
    assert not cls.countable
    assert late.kinds == [(NEEDS, 3)]


def test_it_may_fall_silent_again():
    late = Late(at=10.0)
    engine = engine_with(late)
    place(engine, "a", 11.0)
    late.at = 1e9
    asked = late.asked
    assert place(engine, "b", 12.0) == ["n0"]
    assert late.asked == asked
    (cls,) = engine.state.classes
    assert cls.countable


@pytest.mark.parametrize("now", [1.0, 10.0])
def test_what_was_learned_is_dumped_and_loaded(now):
    engine = engine_with(Late(at=10.0))
    place(engine, "a", now)
    late = Late(at=0.0)
    other = Engine.load(engine.dump(), [ResourcesFit(), Fixed(), late])
    assert (late.at, late.silent) == (10.0, now < 10.0)
    assert place(other, "b", now) == place(engine, "b", now) == (["n0"] if now < 10.0 else ["n2"])


def test_a_dump_of_before_loads():
    engine = engine_with(Late(at=10.0))
    place(engine, "a", 1.0)
    data = engine.dump().replace(b'"learned":{"late":{"at":10.0,"silent":true}}', b'"learned":{}')
    late = Late(at=3.0)
    Engine.load(data, [ResourcesFit(), Fixed(), late])
    assert late.at == 3.0
