"""Handing gangs over and back: one write each, and none that is not needed. Of Volcano's, and of KAI's."""

from __future__ import annotations

from typing import Any

import pytest
from fakeapi import FakeApi
from kaiobjects import kai_group, kai_pod, kai_queue
from volcanoobjects import group, queue

from windlass.api.annotations import ADOPTED, ADOPTED_POOL, ADOPTED_SUFFIX, NODE_POOL_KAI
from windlass.api.errors import not_found
from windlass.api.resources import KAI_POD_GROUPS, KAI_QUEUES, POD_GROUPS, PODS, QUEUES
from windlass.api.views import (
    KaiPodGroup,
    KaiQueue,
    PodGroup,
    QueueObject,
    decode_kai_pod_group,
    decode_kai_queue,
    decode_pod_group,
    decode_queue,
    encode,
)
from windlass.controllers.adoption.controller import AdoptionController
from windlass.controllers.adoption.reconcile import reconcile
from windlass.controllers.effects import NOTHING, Patch
from windlass.controllers.expectations import identity

Json = dict[str, Any]


def of(queue_name: str = "q", **metadata: Any) -> PodGroup:
    obj = group("g", queue=queue_name)
    obj["metadata"] |= {"namespace": "ns", "uid": "u", "resourceVersion": "7", **metadata}
    return decode_pod_group(encode(obj))


def marked(value: str | None = "true") -> QueueObject:
    obj = queue("q")
    obj["metadata"]["annotations"] = {} if value is None else {ADOPTED: value}
    return decode_queue(encode(obj))


@pytest.mark.parametrize(
    ("written", "mark", "coexists", "wanted"),
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
def test_the_write(written: str, mark: str | None, coexists: bool, wanted: str | None) -> None:
    effects = reconcile(of(written), marked(mark), coexists=coexists)
    if wanted is None:
        assert effects is NOTHING
        return
    (patch,) = effects.patches
    assert patch == Patch(POD_GROUPS, "g", {"spec": {"queue": wanted}}, "ns", uid="u", resource_version="7")
    (event,) = effects.events
    assert event.reason == ("Adopted" if wanted.endswith(ADOPTED_SUFFIX) else "Released")


def test_a_group_whose_queue_is_gone_is_given_back() -> None:
    assert reconcile(of("q" + ADOPTED_SUFFIX), None, coexists=True).patches[0].patch == {
        "spec": {"queue": "q"}
    }


def test_a_group_on_its_way_out_is_left() -> None:
    gone = of(deletionTimestamp="2026-01-01T00:00:00Z")
    assert reconcile(gone, marked(), coexists=True) is NOTHING


async def test_a_mark_on_a_queue_concerns_its_gangs() -> None:
    api = FakeApi()
    for name, where in (("a", "q"), ("b", "q"), ("c", "other")):
        obj = group(name, queue=where)
        obj["metadata"]["namespace"] = "ns"
        api.put(POD_GROUPS, obj)
    api.put(QUEUES, queue("q"))
    controller = AdoptionController(api, api, other_schedulers=["volcano"])
    groups, queues = controller.watches()
    assert sorted(queues.keys(marked())) == ["ns/a", "ns/b"]
    assert queues.matters is not None
    assert queues.matters(marked(None), marked())
    assert not queues.matters(marked(), marked())
    assert list(groups.keys(of())) == ["ns/g"]
    assert await controller.reconcile("ns/unknown") is NOTHING


# ---------------------------------------------------------------------- KAI's


def kai_of(pool: str = "") -> PodGroup | KaiPodGroup:
    obj = kai_group("g", 2, "q")
    obj["metadata"] |= {"namespace": "ns", "uid": "u", "resourceVersion": "7"}
    obj["metadata"]["labels"] = {"team": "a"} | ({NODE_POOL_KAI: pool} if pool else {})
    return decode_kai_pod_group(encode(obj))


def kai_marked(value: str | None = "true") -> KaiQueue:
    obj = kai_queue("q", "org")
    obj["metadata"]["annotations"] = {} if value is None else {ADOPTED: value}
    return decode_kai_queue(encode(obj))


@pytest.mark.parametrize(
    ("pool", "mark", "coexists", "kept_reason", "wanted"),
    [
        ("", "true", True, "", {NODE_POOL_KAI: ADOPTED_POOL}),
        ("", None, True, "", None),
        ("", "true", True, "it shares a card", None),
        (ADOPTED_POOL, "true", True, "", None),
        (ADOPTED_POOL, "true", True, "it shares a card", {NODE_POOL_KAI: None}),  # its pods came later
        (ADOPTED_POOL, None, True, "", {NODE_POOL_KAI: None}),
        (ADOPTED_POOL, "true", False, "", {NODE_POOL_KAI: None}),  # KAI is gone
        ("", "true", False, "", None),
    ],
)
def test_the_write_for_kai(
    pool: str, mark: str | None, coexists: bool, kept_reason: str, wanted: dict[str, str | None] | None
) -> None:
    effects = reconcile(kai_of(pool), kai_marked(mark), coexists=coexists, kept_reason=kept_reason)
    if wanted is None:
        assert effects.patches == []
        assert [event.reason for event in effects.events] == (["NotAdopted"] if kept_reason else [])
        return
    (patch,) = effects.patches
    body = {"metadata": {"labels": wanted}}
    assert patch == Patch(KAI_POD_GROUPS, "g", body, "ns", uid="u", resource_version="7")
    (event,) = effects.events
    assert event.reason == ("Adopted" if wanted[NODE_POOL_KAI] else "Released")


def kai_api() -> FakeApi:
    api = FakeApi()
    for name, labels in (("a", {}), ("b", {NODE_POOL_KAI: "other-shard"}), ("c", {})):
        obj = kai_group(name, 1, "q")
        obj["metadata"]["labels"] = labels
        api.put(KAI_POD_GROUPS, obj)
    queue_ = kai_queue("q", "org")
    queue_["metadata"]["annotations"] = {ADOPTED: "true"}
    api.put(KAI_QUEUES, queue_)
    return api


async def test_what_shares_cards_and_other_shards_stay_with_kai() -> None:
    api = kai_api()
    sharer = kai_pod("c-0", "c")
    sharer["metadata"]["annotations"]["gpu-fraction"] = "0.5"
    controller = AdoptionController(api, api, other_schedulers=["kai"])
    watches = list(controller.watches())
    assert sorted(watches[3].keys(kai_marked())) == ["kai:default/a", "kai:default/b", "kai:default/c"]
    assert list(controller.initial_keys()) == []

    async def writes() -> dict[str, bool]:
        looks = {name: await controller.reconcile(f"kai:default/{name}") for name in "abc"}
        return {name: bool(effects.patches) for name, effects in looks.items()}

    assert await writes() == {"a": True, "b": False, "c": True}
    api.put(PODS, sharer)
    (seen,) = watches[4].informer.items.values()
    assert (identity(seen).key, list(watches[4].keys(seen))) == ("default/c-0", ["kai:default/c"])
    assert await writes() == {"a": True, "b": False, "c": False}
    await api.delete(PODS, "c-0", "default")
    assert await writes() == {"a": True, "b": False, "c": True}
    assert not controller._sharing  # nothing is kept of groups whose pods are gone


async def test_marks_that_kai_has_left_are_taken_off_once() -> None:
    api = kai_api()
    stored = api.object(KAI_POD_GROUPS, "default/a")
    assert stored is not None
    stored["metadata"]["labels"][NODE_POOL_KAI] = ADOPTED_POOL
    controller = AdoptionController(api, api, other_schedulers=[])
    assert all(watch.informer.resource in (POD_GROUPS, QUEUES) for watch in controller.watches())
    (key,) = controller.initial_keys()
    (patch,) = (await controller.reconcile(key)).patches
    assert (patch.name, patch.patch) == ("a", {"metadata": {"labels": {NODE_POOL_KAI: None}}})


async def test_a_cluster_without_kai_has_nothing_left() -> None:
    class Without(FakeApi):
        async def list(self, *_: Any, **__: Any) -> Any:
            raise not_found(KAI_POD_GROUPS, "")

    api = Without()
    controller = AdoptionController(api, api, other_schedulers=[])
    (key,) = controller.initial_keys()
    assert await controller.reconcile(key) is NOTHING
