"""``engine.preemption.relocation``: who was asked to go and may stay, and who gets another place."""

from __future__ import annotations

import pytest
from cluster_dsl import Cluster, needs
from msgspec.structs import replace as altered

from windlass.engine.preemption.relocation import RelocationStrategy, Relocator
from windlass.engine.state.statement import Outbox, Statement
from windlass.engine.victims.victim_pool import PooledVictimSet
from windlass.plugins.queues.protection import MOVABLE
from windlass.spi.objects import Expression, PodTerm, TaskState
from windlass.spi.victims import VictimSet


class Scene:
    def __init__(self, c: Cluster) -> None:
        for group in list(c.groups.values()):
            c.group(altered(group, annotations={MOVABLE: "true"}))
        c.cycle()
        self.c = c
        context = c.engine._context
        self.statement: Statement = context.statement
        self.relocator = Relocator(
            context.state, context.plugins, context.placer, context.gang_allocator, self.statement
        )

    def unit(self, name: str, *tasks: int, core: bool = True) -> PooledVictimSet:
        group = self.c.engine.state.groups[f"ns/{name}"]
        entries = [group.tasks[f"ns/{name}-{at}"] for at in tasks or (0,)]
        view = VictimSet(group.spec, (), tuple(e.task for e in entries), entries[0].cls.request, core, 0)
        return PooledVictimSet(view, group, entries)

    def evict(self, *units: PooledVictimSet) -> list[PooledVictimSet]:
        for unit in units:
            for entry in unit.entries:
                self.statement.evict(entry, "reclaim", "ns/claimer")
        return list(units)

    def take(self, name: str, node: str) -> None:
        """Promise a waiting task room."""
        entry = self.c.engine.state.tasks[f"ns/{name}"]
        self.statement.pipeline(entry, self.c.engine.state.table.rows[node])

    def where(self) -> dict[str, str]:
        """Evicted task → where it moves, ``stays`` or ``goes``."""
        names = self.c.engine.state.table.names
        found = {}
        for entry in self.c.engine.state.tasks.values():
            if entry.nominated_row >= 0 and entry.state is TaskState.RELEASING:
                found[entry.key] = names[entry.nominated_row]
            elif entry.row >= 0:
                found[entry.key] = "goes" if entry.state is TaskState.RELEASING else "stays"
        return {key.removeprefix("ns/"): place for key, place in found.items()}


def scene(*nodes: str, gangs: dict[str, tuple[str, ...]], request: str = "gpu=1") -> Scene:
    """Running tasks by group: the node of each. A task named ``claimer`` waits."""
    c = Cluster().queues("default").nodes(*nodes)
    for name, places in gangs.items():
        c.gang(name, 0)
        c.add_tasks(name, len(places), request)
        for at, node in enumerate(places):
            c.change_task(f"{name}-{at}", state=TaskState.RUNNING, node=node)
    c.gang("claimer", 1, "gpu=9")
    return Scene(c)


def test_who_has_room_again_stays_the_dearest_first() -> None:
    s = scene("n1 gpu=2", gangs={"a": ("n1",), "b": ("n1",)})
    units = s.evict(s.unit("a"), s.unit("b"))
    s.c.gang("small", 1, "gpu=1")
    s.take("small-0", "n1")
    stay, moved = s.relocator.find_places(units, move=False)
    assert (stay, moved) == ({units[1]}, set())
    assert s.where() == {"a-0": "goes", "b-0": "stays"}
    out = Outbox.empty()
    s.statement.commit(out)
    assert [eviction.task for eviction in out.evictions] == ["ns/a-0"]


def test_a_unit_stays_whole_or_goes_whole() -> None:
    s = scene("n1 gpu=2", "n2 gpu=1", gangs={"a": ("n1", "n1")})
    units = s.evict(s.unit("a", 0, 1))
    s.c.gang("small", 2, "gpu=1", min=1)
    s.take("small-0", "n1")
    s.take("small-1", "n2")
    assert s.relocator.find_places(units, move=True) == (set(), set())
    assert s.where() == {"a-0": "goes", "a-1": "goes"}
    s.statement.rollback()
    assert s.where() == {"a-0": "stays", "a-1": "stays"}


def test_part_of_a_unit_may_move_while_the_rest_stays() -> None:
    s = scene("n1 gpu=2", "n2 gpu=1", gangs={"a": ("n1", "n1")})
    units = s.evict(s.unit("a", 0, 1))
    s.c.gang("small", 1, "gpu=1")
    s.take("small-0", "n1")
    assert s.relocator.find_places(units, move=True) == (set(), {units[0]})
    assert sorted(s.where().values()) == ["n2", "stays"]


def test_extras_do_not_stay_without_their_core() -> None:
    s = scene("n1 gpu=2", "n2 gpu=1", gangs={"a": ("n1", "n2")})
    extra, core = s.unit("a", 1, core=False), s.unit("a", 0)
    units = s.evict(extra, core)
    s.c.gang("small", 1, "gpu=2")
    s.take("small-0", "n1")
    assert s.relocator.find_places(units, move=False) == (set(), set())
    assert s.where() == {"a-0": "goes", "a-1": "goes"}


def test_the_largest_may_stay_before_the_dearest() -> None:
    for strategy, stays in (
        (RelocationStrategy.COSTLIEST_FIRST, "ns/dear"),
        (RelocationStrategy.LARGEST_FIRST, "ns/big"),
    ):
        c = Cluster().queues("default").nodes("n1 gpu=3")
        c.running("big", "n1", "gpu=2").running("dear", "n1", "gpu=1").gang("claimer", 1, "gpu=1")
        s = Scene(c)
        units = s.evict(s.unit("big"), s.unit("dear"))
        s.take("claimer-0", "n1")
        stay, _ = s.relocator.find_places(units, move=False, strategy=strategy)
        assert [unit.group.key for unit in stay] == [stays]
        s.statement.rollback()


def test_packing_moves_what_could_stay() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4", "n2 gpu=4")
    c.running("a", "n1", "gpu=3").running("b", "n2", "gpu=1").gang("claimer", 1, "gpu=9")
    s = Scene(c)
    units = s.evict(s.unit("b"))
    assert s.relocator.find_places(units, move=True, strategy=RelocationStrategy.LARGEST_BY_SCORE) == (
        set(),
        {units[0]},
    )
    assert s.where() == {"a-0": "stays", "b-0": "n1"}


def test_nobody_stays_beside_a_claimer_that_does_not_bear_them() -> None:
    term = PodTerm((Expression("app", "In", ("x",)),), "kubernetes.io/hostname")
    for bears, place in ((True, "stays"), (False, "n2")):
        c = Cluster().queues("default").nodes("n1 gpu=4", "n2 gpu=1 taint=a=b:NoSchedule")
        c.gang("a", 0).add_tasks("a", 1, needs("gpu=1", labels={"app": "x"}))
        c.change_task("a-0", state=TaskState.RUNNING, node="n1")
        c.nodes("n2 gpu=1")
        c.gang("full", 0).add_tasks("full", 1, "gpu=1")
        c.change_task("full-0", state=TaskState.RUNNING, node="n2")
        c.gang("claimer", 1, needs("gpu=1", anti_affinity=() if bears else (term,)), held=True)
        s = Scene(c)
        units = s.evict(s.unit("a"), s.unit("full"))
        s.take("claimer-0", "n1")
        s.relocator.find_places(units[:1], move=True)
        assert s.where()["a-0"] == place
        s.statement.rollback()


def test_a_class_without_room_is_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    s = scene("n1 gpu=3", gangs={"a": ("n1",), "b": ("n1",), "c": ("n1",)})
    units = s.evict(s.unit("a"), s.unit("b"), s.unit("c"))
    s.c.gang("all", 1, "gpu=3")
    s.take("all-0", "n1")
    asked = []
    best = Relocator._best
    monkeypatch.setattr(Relocator, "_best", lambda self, cls: asked.append(cls) or best(self, cls))
    assert s.relocator.find_places(units, move=True) == (set(), set())
    assert len(asked) == 1
    s.relocator.find_places(units, move=True)
    assert len(asked) == 2


def test_who_is_told_a_place_takes_it_if_it_has_room() -> None:
    for request, place in (("gpu=1", "n3"), ("gpu=2", "stays")):
        s = scene("n1 gpu=2", "n2 gpu=2", "n3 gpu=1", gangs={"a": ("n1",)}, request=request)
        units = s.evict(s.unit("a"))
        s.relocator.find_places(units, move=True, strategy=RelocationStrategy.IN_ORDER, places={"ns/a": "n3"})
        assert s.where() == {"a-0": place}
        s.statement.rollback()
