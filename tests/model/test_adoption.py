"""Two schedulers of one name: whose a pod is follows from its group, whatever comes first."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from kubeobjects import group, node, pod, queue

from windlass.api import views
from windlass.api.annotations import ADOPTED_SUFFIX
from windlass.engine.deltas import Delta, GroupRemoved, GroupUpserted, TaskRemoved, TaskUpserted
from windlass.model.cluster import ClusterModel
from windlass.model.tasks import FOREIGN

Json = dict[str, object]


def beside() -> ClusterModel:
    made = ClusterModel(["windlass", "volcano"], shared=["volcano"])
    made.upsert_node(views.decode_node(views.encode(node("n1", gpus=8))))
    made.upsert_queue(views.decode_queue(views.encode(queue("q"))))
    return made


def put_pod(model: ClusterModel, obj: Json) -> None:
    model.upsert_pod(views.decode_pod(views.encode(obj)))


def put_group(model: ClusterModel, *, ours: bool) -> None:
    found = group("g", 1, queue="q" + (ADOPTED_SUFFIX if ours else ""))
    model.upsert_group(views.decode_pod_group(views.encode(found)))


def waiting(name: str = "a") -> Json:
    return pod(name, group="g", scheduler="volcano")


def tasks(deltas: list[Delta]) -> dict[str, str]:
    """Keys of the tasks that the engine was told of, with their groups."""
    found: dict[str, str] = {}
    for delta in deltas:
        if isinstance(delta, TaskUpserted):
            found[delta.task.key] = delta.task.group
        elif isinstance(delta, TaskRemoved):
            found.pop(delta.key, None)
    return found


def test_the_object_says_whose_it_is() -> None:
    view = views.decode_pod_group(views.encode(group("g", 1, queue="q" + ADOPTED_SUFFIX)))
    assert (view.queue, view.adopted) == ("q", True)
    view = views.decode_pod_group(views.encode(group("g", 1, queue="q")))
    assert (view.queue, view.adopted) == ("q", False)


def test_what_was_not_handed_over_is_not_seen() -> None:
    model = beside()
    put_group(model, ours=False)
    put_pod(model, waiting())
    found = model.take()
    assert tasks(found) == {}
    assert not any(isinstance(delta, GroupUpserted) for delta in found)
    assert model.group_of("default/a") is None


def test_a_bound_pod_of_the_others_counts_on_its_node() -> None:
    model = beside()
    put_group(model, ours=False)
    put_pod(model, pod("a", group="g", scheduler="volcano", node="n1", phase="Running"))
    assert tasks(model.take()) == {"default/a": FOREIGN}


def test_a_gang_is_handed_over_and_back_with_its_pods() -> None:
    model = beside()
    put_group(model, ours=False)
    put_pod(model, waiting())
    put_pod(model, pod("b", group="g", scheduler="volcano", node="n1", phase="Running"))
    assert tasks(model.take()) == {"default/b": FOREIGN}
    put_group(model, ours=True)
    found = model.take()
    assert tasks(found) == {"default/a": "default/g", "default/b": "default/g"}
    (upserted,) = [delta.group for delta in found if isinstance(delta, GroupUpserted)]
    assert upserted.queue == "q"
    put_group(model, ours=False)
    found = model.take()
    assert tasks(found) == {"default/b": FOREIGN}
    assert [delta.key for delta in found if isinstance(delta, GroupRemoved)] == ["default/g"]
    assert [delta.key for delta in found if isinstance(delta, TaskRemoved)] == ["default/a"]


def test_pods_that_name_windlass_are_always_ours() -> None:
    model = beside()
    put_pod(model, pod("a", scheduler="windlass"))
    assert list(tasks(model.take())) == ["default/a"]


@given(st.permutations(range(5)), st.booleans())
def test_the_order_of_events_does_not_matter(order: list[int], ours: bool) -> None:
    """However the last state is reached, the engine is told the same in the end."""
    model = beside()
    events = (
        lambda: put_group(model, ours=not ours),
        lambda: put_pod(model, waiting()),
        lambda: model.remove_pod("default/a"),
        lambda: model.remove_group("default/g"),
        lambda: put_pod(model, pod("a", group="other", scheduler="volcano")),
    )
    known: dict[str, str] = {}
    for step in itertools.chain(order):
        events[step]()
        _follow(known, model.take())
    put_pod(model, waiting())
    put_group(model, ours=ours)
    _follow(known, model.take())
    assert known == ({"default/a": "default/g"} if ours else {})


def _follow(known: dict[str, str], deltas: list[Delta]) -> None:
    for delta in deltas:
        if isinstance(delta, TaskUpserted):
            known[delta.task.key] = delta.task.group
        elif isinstance(delta, TaskRemoved):
            known.pop(delta.key, None)
