"""``engine.invariants``: the checker finds what is wrong. Every kind of damage is done by hand once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from cluster_dsl import GPU, Cluster
from msgspec.structs import replace as altered

from windlass.engine import invariants
from windlass.engine.decision import Bind
from windlass.engine.invariants import InvariantViolation
from windlass.engine.nodes.table import ALLOCATABLE, RELEASING, USED
from windlass.engine.state.cluster_state import ClusterState
from windlass.spi.objects import TaskState


def sound() -> Cluster:
    c = Cluster().queues("top limit.gpu=8", "q parent=top", "default").nodes("n1 gpu=4", "n2 gpu=4")
    c.gang("g", 3, "gpu=1", queue="q").gang("w", 9, "gpu=1").gang(
        "roles", 2, "cpu=1", roles={"w": 2}, role="w"
    )
    c.cycle()
    return c


def set_plane(state: ClusterState, plane: int, units: int) -> None:
    state.table.planes[0, plane, state.table.column(GPU)] += units


DAMAGE: dict[str, tuple[Callable[[ClusterState], object], str]] = {
    "used amounts": (lambda w: set_plane(w, USED, 1000), "the books of n1"),
    "releasing amounts": (lambda w: set_plane(w, RELEASING, 1000), "the books of n1"),
    "allocatable": (lambda w: set_plane(w, ALLOCATABLE, 1000), "allocatable of n1 is out of date"),
    "the cluster's total": (lambda w: w.table.total.update(cpu=1), "total is wrong"),
    "a live flag": (lambda w: w.table.live.__setitem__(0, False), "out of step"),
    "a task's row": (lambda w: setattr(w.tasks["ns/g-0"], "row", -1), "but on no node"),
    "a task's state": (lambda w: setattr(w.tasks["ns/g-0"], "state", TaskState.FAILED), "is Failed but on"),
    "the tasks of a node": (lambda w: w.table.tasks[1].update(x=w.tasks["ns/w-0"]), "do not exist"),
    "free devices": (
        lambda w: setattr(w.table.devices.rows[w.tasks["ns/g-0"].row][GPU], "free", 255),
        "free devices are out of step",
    ),
    "taken devices": (
        lambda w: setattr(w.table.devices.rows[w.tasks["ns/g-0"].row][GPU], "taken", 0),
        "taken [], held",
    ),
    "a device given twice": (
        lambda w: setattr(w.tasks["ns/g-1"], "masks", w.tasks["ns/g-0"].masks),
        "is held 2 times",
    ),
    "a queue's sums": (lambda w: w.queues.get("q").allocated.update({GPU: 1}), "sums of queue q"),
    "an ancestor's sums": (lambda w: w.queues.get("top").pending.update({GPU: 1}), "sums of queue top"),
    "a queue's path": (lambda w: setattr(w.queues.get("q"), "path", ()), "path of queue q"),
    "a queue's children": (
        lambda w: w.queues.get("top").children.update(z=w.queues.get("q")),
        "children of queue",
    ),
    "a limit passed": (
        lambda w: setattr(
            w.queues.get("top"), "spec", replace(w.queues.get("top").spec, capability={GPU: 1000})
        ),
        "over its limit",
    ),
    "a group's counters": (lambda w: setattr(w.groups["ns/g"], "active", 9), "counters of ns/g"),
    "terminating members": (lambda w: setattr(w.groups["ns/g"], "releasing", 1), "terminating"),
    "what waits": (lambda w: w.groups["ns/w"].pending.pop("ns/w-0"), "lost track of what waits"),
    "promises": (lambda w: setattr(w.groups["ns/w"], "nominations", 1), "counts 1 promises"),
    "roles": (lambda w: w.groups["ns/roles"].active_roles.update(w=1), "roles of ns/roles"),
    "a queue's groups": (lambda w: w.queues.get("q").groups.clear(), "does not know ns/g"),
    "a bucket": (lambda w: setattr(w.groups["ns/w"], "pending_class", None), "does not know its bucket"),
    "a cached array": (
        lambda w: next(c for c in w.classes if c.built).key.__setitem__(0, 12345),
        "key of",
    ),
    "a cached total": (
        lambda w: setattr(next(c for c in w.classes if c.built).fit, "_total", 12345),
        "counts room for 12345",
    ),
    "a cached best row": (
        lambda w: (
            setattr(fit := next(c for c in w.classes if c.built).fit, "_top", len(fit.key) - 1)
            or setattr(fit, "_top_key", -1)
        ),
        "takes another node for the best",
    ),
    "a class's tasks": (lambda w: setattr(next(iter(w.classes)), "tasks", 99), "counts 99 tasks"),
    "where a class is": (lambda w: next(iter(w.classes)).placed.clear(), "does not know where"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found(kind: str) -> None:
    c = sound()
    invariants.check(c.engine)
    do, message = DAMAGE[kind]
    do(c.engine.state)
    with pytest.raises(InvariantViolation) as raised:
        invariants.check(c.engine)
    assert message in str(raised.value)


def test_over_commitment_by_the_world_is_found_unless_it_is_expected() -> None:
    c = Cluster().queues("q limit.gpu=1").nodes("n1 gpu=2")
    c.running("a", "n1", "gpu=2", queue="q", devices=(0, 1)).running(
        "b", "n1", "gpu=2", queue="q", devices=(0, 1)
    )
    invariants.check(c.engine, overcommitted=True)
    with pytest.raises(InvariantViolation) as raised:
        invariants.check(c.engine)
    for message in ("n1 is over-committed", "over its limit", "is held 2 times"):
        assert message in str(raised.value)


def test_decisions_are_checked() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4").gang("g", 2, "gpu=1")
    decision = c.cycle()
    invariants.check_decision(c.engine, decision)
    twice = altered(decision, binds=decision.binds * 2)
    bare = altered(decision, binds=tuple(Bind(b.task, b.uid, b.group, b.node) for b in decision.binds))
    for broken, message in ((twice, "bound 2 times"), (bare, "got 0 devices, not 1")):
        with pytest.raises(InvariantViolation, match=message):
            invariants.check_decision(c.engine, broken)
    c.change_task("g-0", state=TaskState.FAILED)
    with pytest.raises(InvariantViolation, match="started below its minimum: 1 of 2"):
        invariants.check_decision(c.engine, decision)


def test_a_bucket_that_forgot_to_move_is_found() -> None:
    c = sound()
    group = c.engine.state.groups["ns/w"]
    assert group.pending_class is not None
    group.set_group(altered(c.groups["ns/w"], min_member=3))
    with pytest.raises(InvariantViolation, match="waits for something it does not ask for"):
        invariants.check(c.engine)
    pending_class = group.pending_class
    pending_class.parked = False
    with pytest.raises(InvariantViolation, match="watched for but not parked"):
        invariants.check(c.engine)


def test_groups_that_are_only_named_count_nowhere_and_hide_nobody() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4")
    c.add_tasks("unknown", 1, "gpu=1").gang("g", 2, "gpu=1")
    c.cycle()  # checks the sums
    assert c.where("g") == {"n1": 2}
    c.engine.state.queues.get("default").allocated[GPU] = 1000
    with pytest.raises(InvariantViolation, match="the sums of queue default"):
        invariants.check(c.engine)
