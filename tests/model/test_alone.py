"""The group of one of a pod that is in no other."""

from __future__ import annotations

import pytest
from kubeobjects import pod

from windlass.api import annotations as names
from windlass.api import views
from windlass.model.groups import Classes, implicit_group

JOB = {"ownerReferences": [{"kind": "Job", "name": "j", "uid": "j", "controller": True}]}


@pytest.mark.parametrize(("metadata", "movable"), [({}, False), (JOB, True)], ids=["nobody's", "a Job's"])
def test_who_would_not_be_made_anew_is_not_movable(metadata: dict, movable: bool) -> None:
    agreed = {names.MOVABLE: "true", names.TIME_SHARE: "true"}
    found = views.decode_pod(views.encode(pod("a", metadata=metadata, annotations=agreed)))
    notes = implicit_group(found, Classes()).annotations
    assert (names.MOVABLE in notes, notes[names.TIME_SHARE]) == (movable, "true")
