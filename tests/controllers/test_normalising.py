"""Other spellings on a server without admission: recorded first, moved then, never guessed."""

from __future__ import annotations

from typing import Any

import pytest
from fakeapi import FakeApi
from volcanoobjects import queue as queue_body

from windlass.api import aliases
from windlass.api.resources import PODS, QUEUES
from windlass.api.views import decode_pod, encode
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import NOTHING
from windlass.controllers.normalising import reconcile
from windlass.controllers.normalising.controller import NormalisingController
from windlass.kits.clock import FakeClock

Json = dict[str, Any]
NOW = "2026-01-01T12:00:00Z"
AMOUNTS = {"nvidia.com/gpu": "4"}


async def settled(api: FakeApi, name: str, looks: int = 6) -> list[str]:
    """Look until nothing is written; the words of the events."""
    controller = NormalisingController(api, api, FakeClock())  # type: ignore[arg-type]
    said: list[str] = []
    for _ in range(looks):
        effects = await controller.reconcile(f"queue:{name}")
        if effects is NOTHING:
            return said
        said += [event.message for event in effects.events]
        await EffectExecutor(api).perform(effects)  # type: ignore[arg-type]
        api.catch_up()
    raise AssertionError(f"still writing after {looks} looks")


async def test_a_queue_is_moved_after_it_was_recorded() -> None:
    api = FakeApi()
    api.put(QUEUES, queue_body("q", guaranteed=AMOUNTS))
    said = await settled(api, "q")
    found = api.object(QUEUES, "q")
    assert found is not None
    assert found["spec"] == {"weight": 1, "guarantee": {"resource": AMOUNTS}, "deserved": AMOUNTS}
    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Normalized", "True", "Alias")
    assert condition["message"].startswith(aliases.GUARANTEED)
    assert said == [condition["message"]]


async def test_what_is_given_twice_with_other_amounts_stays() -> None:
    api = FakeApi()
    spec = {"guaranteed": AMOUNTS, "guarantee": {"resource": {"nvidia.com/gpu": "2"}}}
    api.put(QUEUES, queue_body("q", **spec))
    await settled(api, "q")
    found = api.object(QUEUES, "q")
    assert found is not None
    assert found["spec"] == {"weight": 1, **spec}
    (condition,) = found["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "AliasConflict")


async def test_a_deserved_amount_that_was_given_stays() -> None:
    api = FakeApi()
    api.put(QUEUES, queue_body("q", guaranteed=AMOUNTS, deserved={"nvidia.com/gpu": "6"}))
    await settled(api, "q")
    found = api.object(QUEUES, "q")
    assert found is not None
    assert found["spec"]["deserved"] == {"nvidia.com/gpu": "6"}


def pod(name: str = "p", limits: Json | None = None, **spec: Any) -> Json:
    container = {"name": "m", "image": "x", "resources": {"limits": limits or {}}}
    metadata = {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "3"}
    return {"metadata": metadata, "spec": {"schedulerName": "windlass", "containers": [container], **spec}}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (pod(limits={"aliyun.com/gpu-mem": "10"}), "aliyun.com/gpu-mem 10 -> 10 GiB"),
        (
            pod(nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB"}),
            "real label NVIDIA-H100-80GB-HBM3",
        ),
    ],
)
def test_a_pod_keeps_its_words_and_its_conditions(body: Json, words: str) -> None:
    other = {"type": "PodScheduled", "status": "False"}
    body["status"] = {"conditions": [other]}
    effects = reconcile.pod(body, NOW)
    (patch,) = effects.patches
    kept, made = patch.patch["status"]["conditions"]
    assert (kept, made["type"], patch.subresource, patch.resource_version) == (
        other,
        "Normalized",
        "status",
        "3",
    )
    assert words in made["message"]
    assert effects.events[0].message == made["message"]
    body["status"]["conditions"] = [other, made]
    assert reconcile.pod(body, NOW) is NOTHING
    api = FakeApi()
    controller = NormalisingController(api, api, FakeClock())  # type: ignore[arg-type]
    watch = next(watch for watch in controller.watches() if watch.informer.resource is PODS)
    assert list(watch.keys(decode_pod(encode(body)))) == ["pod:ns/p"]


def test_a_plain_pod_is_not_looked_at() -> None:
    api = FakeApi()
    controller = NormalisingController(api, api, FakeClock())  # type: ignore[arg-type]
    watch = next(watch for watch in controller.watches() if watch.informer.resource is PODS)
    body = pod(limits={"nvidia.com/gpu": "1"}, nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H200"})
    assert reconcile.pod(body, NOW) is NOTHING
    body["spec"].pop("nodeSelector")
    assert list(watch.keys(decode_pod(encode(body)))) == []


def test_a_job_of_the_old_version_is_told_once() -> None:
    job = {"metadata": {"name": "j", "namespace": "ns", "uid": "u"}}
    assert reconcile.job(job) is NOTHING
    job["metadata"]["managedFields"] = [{"apiVersion": "batch.volcano.sh/v1beta1"}]  # type: ignore[assignment]
    (event,) = reconcile.job(job).events
    assert (event.reason, event.message, event.lasting) == ("Normalized", reconcile.OLD_VERSION, True)
