"""A gang asks a real API server for its nodes; what an autoscaler would answer is written here. With the autoscaler
itself: ``test_autoscaler.py``."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from clusters import Cluster
from provisioning_request_crd import ATOMIC, install_requests
from realkube import RealKube
from scheduling_over_http import Scene, eventually

from windlass.api.annotations import EXPLANATION, NODES_REQUESTED
from windlass.api.reasons import Explanation
from windlass.api.resources import POD_GROUPS, POD_TEMPLATES, PROVISIONING_REQUESTS
from windlass.kits.timestamps import rfc3339

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
Json = dict[str, Any]
ASKED = (PROVISIONING_REQUESTS, POD_TEMPLATES)


@pytest.fixture
async def scene(real_kube: RealKube) -> AsyncIterator[Scene]:
    install_requests(real_kube)
    cluster = Cluster.of_real(real_kube)
    made = Scene(cluster, cluster.new_namespace("asking"))
    await made.make_queue()
    await made.node("small", 1)
    await made.start(provisioning_class=ATOMIC, provisioning_backoff_seconds=1.0)
    yield made
    await made.close()


async def asked(scene: Scene) -> tuple[list[Json], list[Json]]:
    """Requests and templates."""
    requests, templates = [(await scene.client.list(kind, scene.namespace)).items for kind in ASKED]
    return requests, templates


async def request_of(scene: Scene, ending: str = "-1") -> Json:
    async def made() -> Json | None:
        found = [one for one in (await asked(scene))[0] if one["metadata"]["name"].endswith(ending)]
        return found[0] if found else None

    return await eventually(made, f"a request {ending}")


async def say(scene: Scene, request: Json, *kinds: str) -> None:
    """The autoscaler's conditions."""
    at = rfc3339(scene.clock.now())
    told = [
        {"type": k, "status": "True", "reason": "R", "message": f"{k}.", "lastTransitionTime": at}
        for k in kinds
    ]
    name = request["metadata"]["name"]
    patch = {"status": {"conditions": told}}
    await scene.client.patch(PROVISIONING_REQUESTS, name, patch, scene.namespace, subresource="status")


async def told(scene: Scene, state: str) -> Explanation:
    async def so() -> Explanation | None:
        group = await scene.client.get(POD_GROUPS, "train", scene.namespace)
        text = (group["metadata"].get("annotations") or {}).get(EXPLANATION)
        found = Explanation.from_dict(json.loads(text)) if text else None
        conditions = (group.get("status") or {}).get("conditions") or ()
        words = [one.get("message", "") for one in conditions if one["type"] == "Unschedulable"]
        shown = any(text.endswith(f"nodes requested: 3 x 1 GPU, {state}") for text in words)
        return found if found and found.asked and found.asked.state == state and shown else None

    return await eventually(so, f"{state} told")


async def test_a_gang_asks_is_told_asks_anew_and_leaves_nothing_once_it_is_placed(scene: Scene) -> None:
    await scene.gang("train", 3)
    first = await request_of(scene)
    _, (template,) = await asked(scene)
    (pod_set,) = first["spec"]["podSets"]
    assert (pod_set["count"], pod_set["podTemplateRef"]["name"]) == (3, template["metadata"]["name"])
    (container,) = template["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    await say(scene, first, "Accepted", "Failed")
    second = await request_of(scene, "-2")
    await say(scene, second, "Accepted")
    record = await told(scene, "accepted")
    assert record.asked is not None
    assert (record.asked.request, record.asked.attempt) == (second["metadata"]["name"], 2)
    wanted = {second["metadata"]["name"]}

    async def named() -> bool:
        notes = [pod["metadata"]["annotations"] for pod in (await scene.pods()).values()]
        return {note.get(NODES_REQUESTED) for note in notes} == wanted

    await eventually(named, "the request on every pod")
    await scene.node("large", 2)

    async def clean() -> bool:
        return len(await scene.bound()) == 3 and await asked(scene) == ([], [])

    await eventually(clean, "bound, and nothing left")


async def test_what_was_asked_for_a_gang_that_is_deleted_while_nobody_schedules_goes_with_it(
    scene: Scene,
) -> None:
    await scene.gang("train", 3)
    await request_of(scene)
    await scene.kill()
    await scene.client.delete(POD_GROUPS, "train", scene.namespace)

    async def clean() -> bool:
        return await asked(scene) == ([], [])

    await eventually(clean, "what the gang owned is collected")
