"""The group of one of a pod that is in no other."""

from __future__ import annotations

import pytest
from kubeobjects import pod

from windlass.api import annotations as names
from windlass.api import views
from windlass.model.groups.podgroups import Classes, implicit_group
from windlass.model.pods.engine_task import task_of
from windlass.spi.objects import Needs

JOB = {"ownerReferences": [{"kind": "Job", "name": "j", "uid": "j", "controller": True}]}


@pytest.mark.parametrize(("metadata", "movable"), [({}, False), (JOB, True)], ids=["nobody's", "a Job's"])
def test_pod_without_a_controller_is_not_movable(metadata: dict, movable: bool) -> None:
    agreed = {names.MOVABLE: "true", names.TIME_SHARE: "true"}
    found = views.decode_pod(views.encode(pod("a", metadata=metadata, annotations=agreed)))
    notes = implicit_group(found, Classes()).annotations
    assert (names.MOVABLE in notes, notes[names.TIME_SHARE]) == (movable, "true")


def test_safe_to_evict_is_read_from_each_pod() -> None:
    for notes, said in (({names.SAFE_TO_EVICT: "false"}, ((names.SAFE_TO_EVICT, "false"),)), ({}, ())):
        found = views.decode_pod(views.encode(pod("a", annotations=notes)))
        assert task_of(found, "g", Needs(), Classes()).annotations == said
