"""``engine.queues.running_groups``: which groups hold anything, by queue and priority."""

from __future__ import annotations

from cluster_dsl import Cluster

from windlass.engine.queues.running_groups import RunningGroups


def groups(running: RunningGroups, c: Cluster, queue: str, below: int | None = None) -> list[str]:
    found = running.within(c.engine.state.queues.get(queue), below)
    return [group.key.removeprefix("ns/") for group in found]


def test_groups_come_move_and_go() -> None:
    c = Cluster().queues("a", "b").nodes("n1 gpu=8")
    c.running("one", "n1", "gpu=1", queue="a").running("two", "n1", "gpu=1", queue="a")
    c.gang("waits", 1, "gpu=1", queue="a")
    state = c.engine.state
    running = RunningGroups(state.groups)
    assert (running.queues(), groups(running, c, "a")) == ([], [])
    running.update(())  # the first time it looks at all
    assert (running.queues(), groups(running, c, "a")) == (["a"], ["one", "two"])
    assert list(running.of(state.queues.get("a"))) == ["ns/one", "ns/two"]
    c.change_group("two", queue="b")
    running.update([state.groups["ns/two"]])
    assert (groups(running, c, "a"), groups(running, c, "b")) == (["one"], ["two"])
    c.finish("one")
    running.update([state.groups["ns/one"]])
    assert running.queues() == ["b"]
    assert not running.any_of(state.queues.get("a"))
    assert running.any_of(state.queues.get("b"))


def test_lower_priorities_first_and_alone() -> None:
    c = Cluster().queues("a").nodes("n1 gpu=8")
    for name, priority in (("high", 9), ("low", 1), ("middle", 5)):
        c.running(name, "n1", "gpu=1", queue="a")
        c.change_group(name, priority=priority)
    running = RunningGroups(c.engine.state.groups)
    running.update(())
    assert groups(running, c, "a") == ["low", "middle", "high"]
    assert groups(running, c, "a", below=5) == ["low"]
    assert not running.any_of(c.engine.state.queues.get("a"), below=1)
    assert sorted(running.of(c.engine.state.queues.get("a"))) == ["ns/high", "ns/low", "ns/middle"]
    c.change_group("high", priority=0)
    running.update([c.engine.state.groups["ns/high"]])
    assert groups(running, c, "a", below=5) == ["high", "low"]


def test_a_group_that_was_made_anew_takes_the_place_of_the_old_one() -> None:
    c = Cluster().queues("a").nodes("n1 gpu=8").running("one", "n1", "gpu=1", queue="a")
    running = RunningGroups(c.engine.state.groups)
    running.update(())
    old = c.engine.state.groups["ns/one"]
    c.remove("one")
    c.cycle()
    c.running("one", "n1", "gpu=1", queue="a")
    new = c.engine.state.groups["ns/one"]
    assert new is not old
    running.update([new])
    assert list(running.within(c.engine.state.queues.get("a"))) == [new]
