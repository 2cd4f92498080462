"""Handing gangs over and back: one write each, and none that is not needed."""

from __future__ import annotations

from typing import Any

import pytest
from fakeapi import FakeApi
from volcanobodies import group, queue

from windlass.api.annotations import ADOPTED, ADOPTED_SUFFIX
from windlass.api.resources import POD_GROUPS, QUEUES
from windlass.api.views import PodGroup, Queue, decode_pod_group, decode_queue, encode
from windlass.controllers.adoption.controller import AdoptionController
from windlass.controllers.adoption.step import step
from windlass.controllers.effects import NOTHING, Patch

Json = dict[str, Any]


def of(queue_name: str = "q", **metadata: Any) -> PodGroup:
    obj = group("g", queue=queue_name)
    obj["metadata"] |= {"namespace": "ns", "uid": "u", "resourceVersion": "7", **metadata}
    return decode_pod_group(encode(obj))


def marked(value: str | None = "true") -> Queue:
    obj = queue("q")
    obj["metadata"]["annotations"] = {} if value is None else {ADOPTED: value}
    return decode_queue(encode(obj))


@pytest.mark.parametrize(
    ("written", "mark", "beside", "wanted"),
    [
        ("q", "true", True, "q" + ADOPTED_SUFFIX),
        ("q", None, True, None),
        ("q", "yes", True, None),
        ("q" + ADOPTED_SUFFIX, "true", True, None),
        ("q" + ADOPTED_SUFFIX, None, True, "q"),
        ("q" + ADOPTED_SUFFIX, "true", False, "q"),  # Volcano is gone
        ("q", "true", False, None),
        ("", "true", True, "default" + ADOPTED_SUFFIX),
    ],
)
def test_the_write(written: str, mark: str | None, beside: bool, wanted: str | None) -> None:
    effects = step(of(written), marked(mark), beside=beside)
    if wanted is None:
        assert effects is NOTHING
        return
    (patch,) = effects.patches
    assert patch == Patch(POD_GROUPS, "g", {"spec": {"queue": wanted}}, "ns", uid="u", resource_version="7")
    (event,) = effects.events
    assert event.reason == ("Adopted" if wanted.endswith(ADOPTED_SUFFIX) else "Released")


def test_a_group_whose_queue_is_gone_is_given_back() -> None:
    assert step(of("q" + ADOPTED_SUFFIX), None, beside=True).patches[0].patch == {"spec": {"queue": "q"}}


def test_a_group_on_its_way_out_is_left() -> None:
    gone = of(deletionTimestamp="2026-01-01T00:00:00Z")
    assert step(gone, marked(), beside=True) is NOTHING


async def test_a_mark_on_a_queue_concerns_its_gangs() -> None:
    api = FakeApi()
    for name, where in (("a", "q"), ("b", "q"), ("c", "other")):
        obj = group(name, queue=where)
        obj["metadata"]["namespace"] = "ns"
        api.put(POD_GROUPS, obj)
    api.put(QUEUES, queue("q"))
    controller = AdoptionController(api, beside=True)
    groups, queues = controller.watches()
    assert sorted(queues.keys(marked())) == ["ns/a", "ns/b"]
    assert queues.matters is not None
    assert queues.matters(marked(None), marked())
    assert not queues.matters(marked(), marked())
    assert list(groups.keys(of())) == ["ns/g"]
    assert await controller.look("ns/unknown") is NOTHING
