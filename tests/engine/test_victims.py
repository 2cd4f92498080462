"""``engine.victims``: what is offered of groups that run, as the policies see it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from arena import ALL, Arena
from cluster_dsl import GPU, NAMESPACE, Cluster

from windlass.engine.config import EngineConfig
from windlass.plugins.defaults import default_plugins
from windlass.spi.plugins import QueueView
from windlass.spi.victims import Claim, VictimUnit


class Watcher:
    """Spares nothing, and notes what it is asked about."""

    name = "watcher"

    def __init__(self) -> None:
        self.units: list[VictimUnit] = []

    def spares_queue(self, claim: Claim, path: Sequence[QueueView]) -> bool:
        return False

    def spares(self, claim: Claim, unit: VictimUnit) -> bool:
        self.units.append(unit)
        return False


def watched(gpus: int) -> tuple[Arena, Watcher]:
    watcher = Watcher()
    a = Arena()
    a.world = Cluster(EngineConfig(actions=ALL), [*default_plugins(), watcher])
    return a.node("n0", gpus).queue("q", deserved=gpus), watcher


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_core_is_asked_about_with_all_that_it_holds(n: int) -> None:
    a, watcher = watched(2 * n)
    a.runs("low", "q", *["n0:2"] * n, min=n, priority=40).waits("high", "q", 2, priority=60).cycle()
    unit = watcher.units[0]
    assert {task.key for task in unit.tasks} == {f"{NAMESPACE}/low-{i}" for i in range(n)}
    assert (unit.request[GPU], unit.core, unit.spare, unit.members) == (2000 * n, True, 0, n)
    assert len(a.evicted) == n


def test_extras_are_asked_about_one_by_one_and_the_core_after_them() -> None:
    a, watcher = watched(4)
    a.runs("low", "q", *["n0:1"] * 4, min=2, priority=40).waits("high", "q", 4, priority=60).cycle()
    found = dict.fromkeys((u.core, u.spare, u.members, u.request[GPU]) for u in watcher.units)
    assert list(found) == [(False, 2, 4, 1000), (False, 1, 3, 1000), (True, 0, 2, 2000)]
    assert {(unit.size, unit.started) for unit in watcher.units} == {(4, 2.0)}


def test_of_a_core_one_task_may_move_the_last_first() -> None:
    a = Arena("allocate", "consolidation").node("n0", 2).node("n1", 2).queue("q", deserved=4)
    a.runs("pair", "q", "n0:1", "n1:1", min=2).waits("mine", "q", 2).cycle()
    assert a.evicted == {"pair-1"}
    assert a.promised == {"mine-0": "n1", "pair-1": "n0"}
    a.rest()
    assert a.running() == {"pair": 2, "mine": 1}
