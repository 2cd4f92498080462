"""Two schedulers of one name: the group of a pod determines its scheduler, in any event order."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import group, node, pod, queue

from windlass.api import views
from windlass.api.annotations import ADOPTED_POOL, ADOPTED_SUFFIX, NODE_POOL_KAI
from windlass.engine.deltas import Delta, GroupRemoved, GroupUpserted, TaskRemoved, TaskUpserted
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.ownership import OtherScheduler
from windlass.model.pods.engine_task import FOREIGN

Json = dict[str, object]


def beside() -> ClusterModel:
    made = ClusterModel(["windlass", "volcano"], other_schedulers=[OtherScheduler.parse("volcano")])
    made.objects.upsert_node(views.decode_node(views.encode(node("n1", gpus=8))))
    made.objects.upsert_queue(views.decode_queue(views.encode(queue("q"))))
    return made


def put_pod(model: ClusterModel, obj: Json) -> None:
    model.objects.upsert_pod(views.decode_pod(views.encode(obj)))


def put_group(model: ClusterModel, *, ours: bool) -> None:
    found = group("g", 1, queue="q" + (ADOPTED_SUFFIX if ours else ""))
    model.objects.upsert_group(views.decode_pod_group(views.encode(found)))


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


def test_object_determines_the_owner() -> None:
    view = views.decode_pod_group(views.encode(group("g", 1, queue="q" + ADOPTED_SUFFIX)))
    assert (view.queue, view.adopted) == ("q", True)
    view = views.decode_pod_group(views.encode(group("g", 1, queue="q")))
    assert (view.queue, view.adopted) == ("q", False)


def test_gangs_that_were_not_handed_over_are_ignored() -> None:
    model = beside()
    put_group(model, ours=False)
    put_pod(model, waiting())
    found = model.take()
    assert tasks(found) == {}
    assert not any(isinstance(delta, GroupUpserted) for delta in found)
    assert model.groups.group_of("default/a") is None


def test_bound_foreign_pod_counts_on_its_node() -> None:
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


def test_pods_that_name_windlass_are_always_owned() -> None:
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
        lambda: model.objects.remove_pod("default/a"),
        lambda: model.objects.remove_group("default/g"),
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


# ---------------------------------------------------------------------- KAI's


def beside_kai() -> ClusterModel:
    made = ClusterModel(["windlass", "kai-scheduler"], other_schedulers=[OtherScheduler.parse("kai")])
    made.objects.upsert_node(views.decode_node(views.encode(node("n1", gpus=8))))
    for obj in (kai_queue("org"), kai_queue("q", "org")):
        made.objects.upsert_kai_queue(views.decode_kai_queue(views.encode(obj)))
    return made


def put_kai_group(model: ClusterModel, pool: str = "") -> None:
    found = kai_group("g", 1, "q")
    found["metadata"]["labels"] = {NODE_POOL_KAI: pool} if pool else {}
    model.objects.upsert_kai_group(views.decode_kai_pod_group(views.encode(found)))


def test_a_gang_of_kai_is_handed_over_and_back_with_its_pods() -> None:
    model = beside_kai()
    put_kai_group(model)
    put_pod(model, kai_pod("a", "g"))
    put_pod(model, kai_pod("b", "g", node="n1", phase="Running"))
    put_pod(model, kai_pod("c", queue="q"))  # KAI's pod grouper has not seen it yet
    assert tasks(model.take()) == {"default/b": FOREIGN}
    put_kai_group(model, ADOPTED_POOL)
    found = model.take()
    assert tasks(found) == {"default/a": "default/kai:g", "default/b": "default/kai:g"}
    (upserted,) = [delta.group for delta in found if isinstance(delta, GroupUpserted)]
    assert upserted.queue == "kai/q"
    put_kai_group(model, "another-shard")
    found = model.take()
    assert tasks(found) == {"default/b": FOREIGN}
    assert [delta.key for delta in found if isinstance(delta, GroupRemoved)] == ["default/kai:g"]


@pytest.mark.parametrize("word", ["gpu-fraction", "gpu-memory"])
def test_pods_that_need_kais_binder_stay_with_kai(word: str) -> None:
    model = beside_kai()
    put_kai_group(model, ADOPTED_POOL)
    sharer = kai_pod("a", "g")
    sharer["metadata"]["annotations"][word] = "1"
    put_pod(model, sharer)
    assert tasks(model.take()) == {}


def test_groups_of_volcanos_api_do_not_belong_to_kai() -> None:
    model = beside_kai()
    model.objects.upsert_queue(views.decode_queue(views.encode(queue("q"))))
    put_group(model, ours=False)
    put_pod(model, pod("a", group="g", scheduler="windlass"))
    put_pod(model, pod("b", group="g", scheduler="kai-scheduler"))
    assert tasks(model.take()) == {"default/a": "default/g"}


def test_other_schedulers_are_parsed() -> None:
    assert OtherScheduler.parse("volcano") == OtherScheduler("volcano", ("volcano",))
    assert OtherScheduler.parse("kai") == OtherScheduler("kai", ("kai-scheduler",))
    for text in ("volcano", "kai", "kai:one,two"):
        assert str(OtherScheduler.parse(text)) == text
    assert OtherScheduler.parse("kai:one,two").names == ("one", "two")
    with pytest.raises(ValueError, match="must be one of volcano, kai"):
        OtherScheduler.parse("yunikorn")


def test_scheduler_of_another_name_is_separated_too() -> None:
    model = ClusterModel(["windlass", "batch"], other_schedulers=[OtherScheduler.parse("volcano:batch")])
    model.objects.upsert_node(views.decode_node(views.encode(node("n1", gpus=8))))
    put_group(model, ours=False)
    put_pod(model, pod("a", group="g", scheduler="batch"))
    assert tasks(model.take()) == {}
    put_group(model, ours=True)
    assert tasks(model.take()) == {"default/a": "default/g"}


def test_without_kai_pods_wait_for_its_pod_grouper() -> None:
    model = ClusterModel(["windlass", "kai-scheduler"], wait_for_group=["volcano", "kai-scheduler"])
    model.objects.upsert_node(views.decode_node(views.encode(node("n1", gpus=8))))
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    part = kai_pod("b", queue="q", metadata={"ownerReferences": [job]})
    part["metadata"]["annotations"] = {"kai.scheduler/batch-min-member": "2"}
    put_pod(model, kai_pod("a", queue="q"))
    put_pod(model, part)  # Windlass would group these itself where no pod grouper is
    assert tasks(model.take()) == {}
    put_kai_group(model)
    for name in ("a", "b"):
        put_pod(model, kai_pod(name, "g", queue="q"))
    assert tasks(model.take()) == {"default/a": "default/kai:g", "default/b": "default/kai:g"}


# ---------------------------------------------------------------------- pods that name Windlass in a gang of the other


def told(model: ClusterModel) -> tuple[str, str, tuple[str, ...]] | None:
    model.take()
    found = model.explanation("default/g")
    return None if found is None else (str(found.code), found.message, found.remedies)


NOBODYS = (
    "Misconfigured",
    "Volcano decides on PodGroup default/g, since its queue q is not handed over to Windlass; no scheduler places "
    "1 pod of it that names schedulerName windlass",
    (
        "hand the queue over: windlass install --adopt volcano -q q",
        "or have Volcano place it: schedulerName: volcano in its pod template",
    ),
)


@pytest.mark.parametrize("group_first", [True, False])
def test_pod_without_a_responsible_scheduler_is_explained(group_first: bool) -> None:
    """It names windlass, and its gang is in a queue that was not handed over."""
    model = beside()
    steps = [
        lambda: put_group(model, ours=False),
        lambda: put_pod(model, pod("a", group="g", scheduler="windlass")),
    ]
    for step in steps if group_first else reversed(steps):
        step()
    assert told(model) == NOBODYS
    put_group(model, ours=True)
    assert told(model) is None
    put_group(model, ours=False)
    assert told(model) == NOBODYS
    model.objects.remove_group("default/g")
    code, message, _ = told(model) or ("", "", ())
    assert (code, message.partition(";")[0]) == ("WaitingForMembers", "PodGroup default/g does not exist")


def test_change_of_ownership_marks_the_gang_as_changed() -> None:
    model = beside()
    put_pod(model, pod("a", group="g", scheduler="windlass"))
    model.take()
    for change in (
        lambda: put_group(model, ours=False),
        lambda: put_group(model, ours=True),
        lambda: put_group(model, ours=False),
        lambda: model.objects.remove_group("default/g"),
    ):
        model.marks.reported.clear()
        change()
        model.take()
        assert "default/g" in model.marks.reported


def test_gang_in_migration_is_explained_as_waiting() -> None:
    model = beside()
    marked = queue("q")
    marked["metadata"]["annotations"] = {"windlass.dev/adopted": "true"}
    model.objects.upsert_queue(views.decode_queue(views.encode(marked)))
    put_group(model, ours=False)
    put_pod(model, pod("a", group="g", scheduler="windlass"))
    code, message, _ = told(model) or ("", "", ())
    assert code == "WaitingForMembers"
    assert "which is not handed over yet, though its queue q is; 1 pod of it" in message


def test_kai_gang_that_was_not_handed_over_is_explained() -> None:
    model = ClusterModel(["windlass", "kai-scheduler"], other_schedulers=[OtherScheduler.parse("kai")])
    model.objects.upsert_kai_queue(views.decode_kai_queue(views.encode(kai_queue("q"))))
    found = views.decode_kai_pod_group(views.encode(kai_group("g", 1, queue="q")))
    model.objects.upsert_kai_group(found)
    body = kai_pod("a", "g")
    body["spec"]["schedulerName"] = "windlass"
    put_pod(model, body)
    model.take()
    (key,) = model.groups.membership.pods
    explanation = model.explanation(key)
    assert explanation is not None
    assert explanation.message.startswith(
        "KAI decides on PodGroup default/g, since its queue q is not handed over"
    )
    assert explanation.remedies[0] == "hand the queue over: windlass install --adopt kai -q q"
    model.objects.remove_kai_group("default/g")
    model.take()
    assert "does not exist" in str(model.explanation(key))
