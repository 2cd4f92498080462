"""The engine gets the same groups for any order of events, if pods define queue and
priority."""

from __future__ import annotations

from typing import Any

from coschedulingobjects import coscheduling_group, member
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kaiobjects import kai_queue
from kubeobjects import namespace, pod
from model_deltas import Sent

from windlass.api import views
from windlass.model.cluster.cluster_model import ClusterModel

SCHEDULERS = ("windlass", "windlass", "windlass", "somebody-else")
KINDS = ("coscheduling", "native", "kueue", "batch")
QUEUES = ({}, {"kai.scheduler/queue": "q"}, {"volcano.sh/queue-name": "v"})


@st.composite
def pods(draw: st.DrawFn, name: str, kinds: tuple[str, ...]) -> dict[str, Any]:
    labels = dict(draw(st.sampled_from(QUEUES)))
    options: dict[str, Any] = {
        "scheduler": draw(st.sampled_from(SCHEDULERS)),
        "priority": draw(st.sampled_from((0, 5))),
        "node": draw(st.sampled_from(("", "n1"))),
    }
    kind = draw(st.sampled_from(kinds))
    if kind == "coscheduling":
        made = member(name, "train", labels=labels, **options)
    elif kind == "native":
        made = pod(name, labels=labels, schedulingGroup={"podGroupName": "train"}, **options)
    elif kind == "batch":
        labels["kai.scheduler/queue"] = "q"
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
        notes = {"kai.scheduler/batch-min-member": draw(st.sampled_from(("1", "2")))}
        made = pod(name, labels=labels, annotations=notes, metadata={"ownerReferences": [owner]}, **options)
    else:
        count = {"kueue.x-k8s.io/pod-group-total-count": draw(st.sampled_from(("2", "3")))}
        labels["kueue.x-k8s.io/pod-group-name"] = "train"
        made = pod(name, labels=labels, annotations=count, **options)
    made["metadata"]["creationTimestamp"] = draw(
        st.sampled_from(("2026-01-01T12:00:00Z", "2026-01-01T12:00:01Z"))
    )
    return made


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """Return the objects, each by a name of its own."""
    said = draw(st.sampled_from(("", "team")))
    notes = {"scheduling.volcano.sh/queue-name": said} if said else {}
    kinds = draw(st.sampled_from((*((kind,) for kind in KINDS), KINDS)))
    made = {f"pod {name}": draw(pods(name, kinds)) for name in ("a", "b", "c") if draw(st.booleans())}
    made["namespace"] = namespace("default", annotations=notes)
    if draw(st.booleans()):
        labels = dict(draw(st.sampled_from(QUEUES)))
        made["group"] = coscheduling_group("train", draw(st.sampled_from((1, 2))), labels=labels)
    if draw(st.booleans()):
        policy = {"gang": {"minCount": draw(st.sampled_from((1, 2)))}}
        meta = {"name": "train", "namespace": "default", "labels": draw(st.sampled_from(QUEUES))}
        made["native"] = {"metadata": meta, "spec": {"schedulingPolicy": policy}}
    if draw(st.booleans()):
        made["kai"] = kai_queue("q")
    return made


def enter(model: ClusterModel, what: str, obj: dict[str, Any] | None) -> None:
    """Show the model a thing as it is now; ``None``: it is gone."""
    if what == "namespace" and obj is not None:
        model.objects.upsert_namespace(views.decode_namespace(views.encode(obj)))
    elif what == "group":
        if obj is None:
            model.objects.remove_coscheduling_group("default/train")
        else:
            model.objects.upsert_coscheduling_group(views.decode_coscheduling_group(views.encode(obj)))
    elif what == "native":
        if obj is None:
            model.objects.remove_native_group("default/train")
        else:
            model.objects.upsert_native_group(views.decode_native_group(views.encode(obj)))
    elif what == "kai":
        if obj is None:
            model.objects.remove_kai_queue("q")
        else:
            model.objects.upsert_kai_queue(views.decode_kai_queue(views.encode(obj)))
    elif what.startswith("pod "):
        if obj is None:
            model.objects.remove_pod(f"default/{what.removeprefix('pod ')}")
        else:
            model.objects.upsert_pod(views.decode_pod(views.encode(obj)))


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(worlds(), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_the_end_alone_counts(course: list[dict[str, dict[str, Any]]], random: Any) -> None:
    model = ClusterModel(("windlass",))
    sent = Sent(model)
    before: dict[str, dict[str, Any]] = {}
    for world in course:
        steps = sorted({*before, *world})
        random.shuffle(steps)
        for what in steps:
            if before.get(what) != world.get(what):
                enter(model, what, world.get(what))
            if random.random() < 0.4:
                sent.take(model)
        before = world
    sent.take(model)

    fresh = ClusterModel(("windlass",))
    for what in sorted(course[-1]):
        enter(fresh, what, course[-1][what])
    expected = Sent(fresh)
    assert sent.groups == expected.groups
    assert sent.tasks == expected.tasks
    for key in expected.groups:
        told, meant = model.explanation(key), fresh.explanation(key)
        assert (told and told.message) == (meant and meant.message)
