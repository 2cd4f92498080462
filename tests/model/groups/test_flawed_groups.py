"""Gangs with contradictory pods: held while the other pods do not meet the minimum."""

from __future__ import annotations

from kubeobjects import Json, group, pod

from windlass.api import views
from windlass.engine import deltas
from windlass.model.cluster.cluster_model import ClusterModel

WRONG = {
    "topologySpreadConstraints": [{"topologyKey": "", "maxSkew": 0, "whenUnsatisfiable": "DoNotSchedule"}]
}


def model(minimum: int, *pods: Json) -> ClusterModel:
    made = ClusterModel(["windlass"])
    made.objects.upsert_group(views.decode_pod_group(views.encode(group("g", minimum))))
    for one in pods:
        made.objects.upsert_pod(views.decode_pod(views.encode(one)))
    return made


def held(made: ClusterModel) -> list[bool]:
    """Return ``held`` of the group in each delta, in order."""
    return [
        change.group.held
        for change in made.take()
        if isinstance(change, deltas.GroupUpserted) and change.group.key == "default/g"
    ]


def test_group_is_held_until_enough_pods_are_corrected() -> None:
    made = model(2, pod("g-0", group="g"), pod("g-1", group="g", **WRONG))
    assert held(made)[-1:] == [True]
    made.objects.remove_pod("default/g-1")
    made.objects.upsert_pod(views.decode_pod(views.encode(pod("g-1", group="g", uid="mended"))))
    assert held(made)[-1:] == [False]


def test_group_runs_if_valid_pods_meet_its_minimum() -> None:
    made = model(2, pod("g-0", group="g"), pod("g-1", group="g"), pod("g-2", group="g", **WRONG))
    assert True not in held(made)
    made.objects.remove_pod("default/g-0")
    assert held(made) == [True]
    made.objects.upsert_pod(views.decode_pod(views.encode(pod("g-3", group="g"))))
    assert held(made) == [False]


def test_placed_pods_count() -> None:
    made = model(2, pod("g-0", group="g", node="n1"), pod("g-1", group="g", phase="Succeeded"))
    made.objects.upsert_pod(views.decode_pod(views.encode(pod("g-2", group="g", **WRONG))))
    assert True not in held(made)


def test_invalid_single_pod_is_not_sent() -> None:
    made = ClusterModel(["windlass"])
    made.objects.upsert_pod(views.decode_pod(views.encode(pod("a", **WRONG))))
    assert not [one for one in made.take() if isinstance(one, deltas.GroupUpserted | deltas.TaskUpserted)]
