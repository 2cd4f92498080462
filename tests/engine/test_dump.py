"""``engine.dump``: a state written down and taken up again. (That it decides the same is a property
test, ``tests/properties/test_engine.py``.)"""

from __future__ import annotations

import json

import pytest
from cluster_dsl import Cluster, needs
from msgspec.structs import replace as altered

from windlass.engine import invariants
from windlass.engine.config import EngineConfig
from windlass.engine.dump import FORMAT, DumpError
from windlass.engine.engine import Engine
from windlass.engine.state.statement import Outbox, Statement
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import TaskState


def busy() -> Cluster:
    c = Cluster(EngineConfig(backoff_seconds=3.0)).queues("top limit.gpu=6", "a parent=top", "default")
    c.nodes("n1 gpu=4 zone=a", "n2 gpu=4 cordoned")
    c.running("old", "n1", "gpu=1", devices=(2,)).running("ghost", "gone", "gpu=1")
    c.gang("fits", 2, "gpu=1", queue="a").gang("waits", 4, "gpu=1").gang("nowhere", 1, queue="none")
    c.gang("roles", 1, "cpu=1", min=2, roles={"m": 1, "w": 1}, role="w").gang("fails", 1, "cpu=1")
    c.cycle(confirm=False)
    c.fail_bind("fails-0", "no")
    c.cycle(confirm=False)
    c.change_task("old-0", state=TaskState.RELEASING)
    return c


def test_everything_that_matters_comes_back() -> None:
    c = busy()
    copy = Engine.load(c.engine.dump(), default_plugins())
    invariants.check(copy)
    assert copy.config == c.engine.config
    for key in c.groups:
        assert copy.explain(key, c.now) == c.engine.explain(key, c.now), key
    assert copy.dump() == c.engine.dump()
    for seconds in (1.0, 2.0, 5.0):
        assert copy.cycle(c.now + seconds) == c.engine.cycle(c.now + seconds)


def test_promises_and_evictions_that_run_ahead_of_the_world_come_back() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2").running("old", "n1", "gpu=2", devices=(0, 1))
    c.gang("claimer", 1, "gpu=2")
    c.cycle()
    state = c.engine.state
    statement = Statement(state.ledger)
    statement.evict(state.tasks["ns/old-0"], "preempt", "ns/claimer")
    statement.pipeline(state.tasks["ns/claimer-0"], 0)
    statement.commit(Outbox.empty())
    c.gang("thief", 1, "gpu=1")
    c.cycle()
    twin = Cluster()
    twin.engine = Engine.load(c.engine.dump(), default_plugins())
    twin.now, twin.tasks, twin.groups = c.now, dict(c.tasks), dict(c.groups)
    assert twin.engine.state.tasks["ns/old-0"].state is TaskState.RELEASING
    for one in (c, twin):
        one.remove_task("old-0")
    assert [b.task for b in twin.cycle().binds] == [b.task for b in c.cycle().binds] == ["ns/claimer-0"]


def test_the_document_is_plain_json_that_names_its_format() -> None:
    document = json.loads(busy().engine.dump())
    assert document["format"] == FORMAT
    assert {"nodes", "queues", "groups", "tasks", "buckets", "config"} <= set(document)
    assert {task["key"] for task in document["tasks"]} >= {"ns/fits-0", "ns/ghost-0"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an engine dump"),
        (b"{}", "not an engine dump"),
        (b'{"format": "x"}', "not an engine dump"),
        (None, "has format 99"),
    ],
)
def test_what_is_no_dump_is_refused_in_words(data: bytes | None, message: str) -> None:
    if data is None:
        document = json.loads(Cluster().engine.dump())
        data = json.dumps({**document, "format": 99}).encode()
    with pytest.raises(DumpError, match=message):
        Engine.load(data, default_plugins())


def test_classes_keep_their_numbers() -> None:
    c = Cluster().queues("default").gang("a", 1, "gpu=1").gang("b", 1, needs("gpu=2"))
    c.cycle()
    c.remove("a")
    copy = Engine.load(c.engine.dump(), default_plugins())
    assert {cls.number for cls in copy.state.classes} == {cls.number for cls in c.engine.state.classes}
    copy.apply([])
    later = copy.state.classes.get(needs("gpu=3"))
    assert later.number == c.engine.state.classes.get(needs("gpu=3")).number


def test_an_empty_engine_comes_back() -> None:
    copy = Engine.load(Engine().dump(), [])
    assert altered(copy.cycle(1.0), cycle=0) == altered(Engine().cycle(1.0), cycle=0)


def test_room_is_not_kept_on_a_node_that_is_gone_and_that_no_cycle_has_looked_at() -> None:
    """The copy made a node without a name of it, on which the room stayed kept."""
    c = Cluster().queues("default").nodes("n1 gpu=2", "n2 gpu=2").running("old", "n1", "gpu=1")
    c.change_group("old", run_estimate=100.0)
    c.change_task("old-0", started=c.now)
    c.gang("large", 2, "gpu=2").gang("small", 1, "gpu=1")
    c.change_group("small", run_estimate=1000.0)
    c.cycle()
    assert list(c.engine.reservations.by_group) == ["ns/large"]
    c.remove_node("n2")
    twin = Cluster()
    twin.engine = Engine.load(c.engine.dump(), default_plugins())
    twin.now, twin.tasks, twin.groups = c.now, dict(c.tasks), dict(c.groups)
    assert twin.engine.dump() == c.engine.dump()
    for cycle in (c.cycle, twin.cycle):
        assert [bind.task for _ in range(2) for bind in cycle().binds] == ["ns/small-0"]
