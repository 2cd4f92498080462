"""``engine.state.statement``: everything can be tried and taken back without a trace."""

from __future__ import annotations

from typing import Any

from cluster_dsl import GPU, Cluster, needs
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine import invariants
from windlass.engine.decision import Bind, DeviceShare, Eviction, Nomination
from windlass.engine.deltas import EvictionFailed
from windlass.engine.groups.entries import TaskEntry
from windlass.engine.nodes.view import TableView
from windlass.engine.state.statement import Outbox, Statement
from windlass.spi.objects import Expression, HostPort, PodTerm, TaskState


def cluster() -> Cluster:
    c = Cluster().queues("top", "a parent=top", "default").nodes("n1 gpu=4 cpu=8", "n2 gpu=4 cpu=8")
    c.running("old", "n1", "gpu=2", queue="a", devices=(0, 1))
    anti = PodTerm((Expression("app", "In", ("x",)),), "kubernetes.io/hostname")
    c.gang(
        "g", 3, needs("gpu=1", anti_affinity=(anti,), labels={"app": "x"}, host_ports=(HostPort("TCP", 80),))
    )
    c.gang("roles", 2, "gpu=1", queue="a", roles={"w": 2}, role="w")
    return c


def state(c: Cluster) -> dict[str, Any]:
    """Everything the books say, in a form that compares."""
    state = c.engine.state
    plugins = state.plugins.domains
    return {
        "planes": state.table.planes.tolist(),
        "devices": [
            {r: (s.free, s.taken, dict(s.surplus)) for r, s in slots.items()}
            for slots in state.table.devices.rows
        ],
        "queues": {
            q.name: tuple(
                {n: u for n, u in sums.items() if u} for sums in (q.allocated, q.releasing, q.pending)
            )
            for q in state.queues
        },
        "groups": {
            g.key: (g.active, g.releasing, sorted(g.pending), {r: n for r, n in g.active_roles.items() if n})
            for g in state.groups.values()
        },
        "tasks": {t.key: (t.state, t.row, t.masks, t.nominated_row) for t in state.tasks.values()},
        "placed": {cls.number: dict(cls.placed) for cls in state.classes},
        "domains": [
            [
                None
                if (verdict := plugin.verdict(cls.number, TableView(state.table))) is None
                else verdict.tolist()
                for cls in state.classes
                if plugin.constrains(cls.number)
            ]
            for plugin in plugins
        ],
    }


def entry(c: Cluster, name: str) -> TaskEntry:
    return c.engine.state.tasks[f"ns/{name}"]


def statement(c: Cluster) -> Statement:
    return Statement(c.engine.state.ledger)


def allocate(c: Cluster, s: Statement, name: str, node: str) -> None:
    task = entry(c, name)
    assert task.group is not None
    s.allocate(task.group, task.cls, c.engine.state.table.rows[node], (task,))


def test_commit_turns_operations_into_decisions_in_order() -> None:
    c = cluster()
    s, out = statement(c), Outbox.empty()
    allocate(c, s, "g-0", "n1")
    s.evict(entry(c, "old-0"), "preempt", "ns/g")
    s.pipeline(entry(c, "g-1"), c.engine.state.table.rows["n2"])
    s.commit(out)
    assert out.binds == [Bind("ns/g-0", "uid-ns/g-0", "ns/g", "n1", (DeviceShare(2, GPU),))]
    assert out.evictions == [Eviction("ns/old-0", "uid-ns/old-0", "ns/old", "n1", "preempt", "ns/g")]
    assert out.nominations == [Nomination("ns/g-1", "uid-ns/g-1", "n2")]
    assert len(s) == 0
    invariants.check(c.engine)


def test_rollback_leaves_no_trace() -> None:
    c = cluster()
    before = state(c)
    s = statement(c)
    allocate(c, s, "g-0", "n1")
    allocate(c, s, "roles-w-0", "n2")
    s.evict(entry(c, "old-0"), "reclaim")
    s.pipeline(entry(c, "g-1"), 0)
    assert state(c) != before
    s.rollback()
    assert state(c) == before
    assert not c.engine.state.table.improved - {0, 1}
    invariants.check(c.engine)


def test_rollback_to_a_checkpoint_keeps_what_was_before() -> None:
    c = cluster()
    s = statement(c)
    allocate(c, s, "g-0", "n1")
    mark = s.checkpoint()
    between = state(c)
    allocate(c, s, "g-1", "n2")
    s.evict(entry(c, "old-0"), "preempt")
    s.rollback(mark)
    assert state(c) == between
    out = Outbox.empty()
    s.commit(out)
    assert [bind.task for bind in out.binds] == ["ns/g-0"]
    assert out.evictions == []


def test_an_evicted_task_keeps_its_room_until_it_is_gone_and_a_promise_holds_it_for_the_claimer() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2")
    c.running("old", "n1", "gpu=2")
    c.gang("claimer", 1, "gpu=2")
    c.cycle()
    s = statement(c)
    s.evict(entry(c, "old-0"), "preempt", "ns/claimer")
    s.pipeline(entry(c, "claimer-0"), 0)
    s.commit(Outbox.empty())
    c.gang("thief", 1, "gpu=1")
    assert c.cycle().binds == ()
    c.remove_task("old-0")
    binds = c.cycle().binds
    assert [bind.task for bind in binds] == ["ns/claimer-0"]  # not the thief's
    assert entry(c, "claimer-0").nominated_row == -1
    assert c.code("thief") == "InsufficientResources"


def promised() -> Cluster:
    """``claimer`` is promised the room of ``old``, which goes; ``next`` waits."""
    c = Cluster().queues("default").nodes("n1 gpu=2")
    c.running("old", "n1", "gpu=2")
    c.gang("claimer", 1, "gpu=2")
    c.cycle()
    s = statement(c)
    s.evict(entry(c, "old-0"), "preempt", "ns/claimer")
    s.pipeline(entry(c, "claimer-0"), 0)
    s.commit(Outbox.empty())
    c.gang("next", 1, "gpu=1")
    c.cycle()
    return c


def test_a_promise_given_up_helps_those_who_wait() -> None:
    c = promised()
    c.remove("claimer")
    c.remove_task("old-0")
    assert [bind.task for bind in c.cycle().binds] == ["ns/next-0"]


def test_who_gets_what_he_was_promised_leaves_nothing_to_look_for() -> None:
    c = promised()
    c.remove_task("old-0")
    decision = c.cycle()
    assert [bind.task for bind in decision.binds] == ["ns/claimer-0"]
    assert decision.wake_at is None  # no other has more than before
    c.remove("claimer")
    assert [bind.task for bind in c.cycle().binds] == ["ns/next-0"]


def test_a_promise_taken_back_frees_something_of_its_queue_and_of_those_above() -> None:
    c = Cluster().queues("top", "a parent=top", "b parent=top").nodes("n1 gpu=2")
    c.running("old", "n1", "gpu=2", queue="b")
    c.gang("claimer", 1, "gpu=2", queue="a")
    c.cycle()
    s = statement(c)
    s.evict(entry(c, "old-0"), "preempt", "ns/claimer")
    s.pipeline(entry(c, "claimer-0"), 0)
    s.commit(Outbox.empty())
    queues = c.engine.state.queues
    queues.freed.clear()
    s.withdraw_nomination(entry(c, "claimer-0"))
    s.commit(Outbox.empty())
    assert {"a", "top"} <= set(queues.freed)
    assert "b" not in queues.freed


def test_a_gang_starts_where_it_was_promised_room_though_it_would_not_be_found_anew() -> None:
    """Two nodes of 12 hold 6, 4, 4, 4, 3 and 3 in one way only, which looking pod by pod does not find."""

    def gang(c: Cluster) -> Cluster:
        c.queues("default").nodes("n1 cpu=12", "n2 cpu=12").gang("g", 0, min=6)
        for size, n in ((6, 1), (4, 3), (3, 2)):
            c.add_tasks("g", n, f"cpu={size}", role=f"r{size}")
        return c

    anew = gang(Cluster())
    assert anew.cycle().binds == ()
    c = gang(Cluster().nodes("n1", "n2").running("left", "n1", "cpu=12").running("right", "n2", "cpu=12"))
    c.cycle()
    way = {"r6-0": "n1", "r3-0": "n1", "r3-1": "n1", "r4-0": "n2", "r4-1": "n2", "r4-2": "n2"}
    s = statement(c)
    s.evict(entry(c, "left-0"), "preempt", "ns/g")
    s.evict(entry(c, "right-0"), "preempt", "ns/g")
    for task, node in way.items():
        s.pipeline(entry(c, f"g-{task}"), c.engine.state.table.rows[node])
    s.commit(Outbox.empty())
    c.remove_task("left-0")
    c.remove_task("right-0")
    assert {bind.task: bind.node for bind in c.cycle().binds} == {f"ns/g-{t}": n for t, n in way.items()}


def test_a_failed_eviction_puts_the_task_back() -> None:
    c = cluster()
    s = statement(c)
    s.evict(entry(c, "old-0"), "preempt")
    s.commit(Outbox.empty())
    c.task(c.tasks["ns/old-0"])  # the world still calls it running
    assert entry(c, "old-0").state is TaskState.RELEASING
    c.engine.apply([EvictionFailed("ns/old-0", "another uid", "no")])
    assert entry(c, "old-0").state is TaskState.RELEASING
    c.engine.apply([EvictionFailed("ns/old-0", "uid-ns/old-0", "no")])
    assert entry(c, "old-0").state is TaskState.RUNNING
    c.cycle()


@settings(max_examples=examples(80), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["allocate", "evict", "pipeline", "mark"]), st.integers(0, 9), st.integers(0, 1)
        ),
        max_size=14,
    )
)
def test_any_sequence_rolls_back_to_any_checkpoint(operations: list[tuple[str, int, int]]) -> None:
    c = cluster()
    c.gang("more", 3, "cpu=1", min=1)
    s = statement(c)
    marks = [(s.checkpoint(), state(c))]
    world = c.engine.state
    for kind, pick, row in operations:
        pending = [e for e in world.tasks.values() if e.state is TaskState.PENDING]
        holding = [e for e in world.tasks.values() if e.state in (TaskState.ASSUMED, TaskState.RUNNING)]
        if kind == "mark":
            marks.append((s.checkpoint(), state(c)))
        elif kind == "evict" and holding:
            s.evict(holding[pick % len(holding)], "preempt")
        elif kind == "pipeline" and (free := [e for e in pending if e.nominated_row < 0]):
            s.pipeline(free[pick % len(free)], row)
        elif kind == "allocate" and pending:
            task = pending[pick % len(pending)]
            task.cls.refresh()
            if task.cls.count[row] > 0 and task.group is not None:
                s.allocate(task.group, task.cls, row, (task,))
        invariants.check(c.engine)
    for mark, expected in reversed(marks):
        s.rollback(mark)
        assert state(c) == expected
        invariants.check(c.engine)
