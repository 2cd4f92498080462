"""Kinds that a CustomResourceDefinition declares, on the embedded server."""

from __future__ import annotations

import copy
from typing import Any

import yaml
from definitions import FULL_SCHEMA, definition, thing
from server_in_process import TABLE, Api

from windlass.api.resources import CUSTOM_RESOURCE_DEFINITIONS
from windlass.api.wire import schema_crd
from windlass.server.apiserver import ApiServer

DEFINITIONS = CUSTOM_RESOURCE_DEFINITIONS.path()
THINGS = "/apis/conformance.example.com/v1/namespaces/default/things"


def full() -> dict[str, Any]:
    return definition("things", "Thing", schema=FULL_SCHEMA, scale=True)


async def test_kind_is_served_from_its_definition_to_its_removal(api: Api) -> None:
    assert (await api.get(THINGS)).status == 404
    crd = (await api.post(DEFINITIONS, full())).ok(201)
    assert [c["type"] for c in crd["status"]["conditions"]] == ["NamesAccepted", "Established"]
    assert crd["status"]["storedVersions"] == ["v1"]
    created = (await api.post(THINGS, thing("a", {"size": 1, "gone": 2}))).ok(201)
    assert created["spec"] == {"size": 1, "color": "red"}
    other = ApiServer(api.store, clock=api.clock, rng=api.server.core.rng)  # as after a restart
    assert [r.plural for r in other.core.kinds.current().custom] == ["things"]
    (await api.delete(f"{DEFINITIONS}/things.conformance.example.com")).ok()
    left = (await api.get(f"{DEFINITIONS}/things.conformance.example.com")).ok()
    assert left["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert left["status"]["conditions"][-1]["reason"] == "InstanceDeletionPending"
    refused = await api.post(THINGS, thing("b", {"size": 1}))
    assert (refused.status, refused.message) == (
        405,
        "create not allowed while custom resource definition is terminating",
    )
    (await api.delete(f"{THINGS}/a")).ok()
    patch = {"metadata": {"finalizers": None}}
    (await api.patch(f"{DEFINITIONS}/things.conformance.example.com", patch)).ok()
    assert (await api.get(THINGS)).status == 404


async def test_new_schema_applies_to_stored_objects(api: Api) -> None:
    (await api.post(DEFINITIONS, full())).ok(201)
    (await api.post(THINGS, thing("a", {"size": 1, "maybe": "x"}))).ok(201)
    watch = await api.watch(THINGS)
    crd = (await api.get(f"{DEFINITIONS}/things.conformance.example.com")).ok()
    older = copy.deepcopy(crd["spec"]["versions"][0]) | {"name": "v1beta1", "storage": False}
    fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del fields["maybe"]
    fields["added"] = {"type": "string", "default": "new"}
    crd["spec"]["versions"].append(older)
    (await api.put(f"{DEFINITIONS}/things.conformance.example.com", crd)).ok()
    read = (await api.get(f"{THINGS}/a")).ok()
    assert read["spec"] == {"size": 1, "color": "red", "added": "new"}
    before = (await api.get(f"{THINGS.replace('/v1/', '/v1beta1/')}/a")).ok()
    assert (before["apiVersion"], before["spec"]["maybe"]) == ("conformance.example.com/v1beta1", "x")
    assert [kind for kind, _ in await watch.events()] == ["ADDED"]
    await watch.close()


async def test_parts_that_are_not_enforced_are_named(api: Api) -> None:
    crd = full()
    version = crd["spec"]["versions"][0]
    version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [{"rule": "self.spec.size > 0"}]
    version["additionalPrinterColumns"] = [
        {"name": "Odd", "type": "string", "jsonPath": ".spec.rows[?(@.value>3)].name"}
    ]
    crd["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": {"url": "https://x.example/c"}, "conversionReviewVersions": ["v1"]},
    }
    answer = await api.post(DEFINITIONS, crd)
    answer.ok(201)
    for words in (
        "1 CEL rule of version v1 not enforced",
        "the webhook is not called",
        "this column stays empty",
    ):
        assert words in answer.warnings
    (await api.post(THINGS, thing("a", {"size": 1}))).ok(201)
    assert (await api.get(THINGS, accept=TABLE)).ok()["rows"][0]["cells"] == ["a", None]


async def test_definition_of_a_built_in_kind_changes_nothing(api: Api) -> None:
    served = (await api.get("/apis/kubeflow.org/v1")).ok()
    texts = schema_crd.crd_texts()
    for name, text in texts.items():
        answer = await api.post(DEFINITIONS, yaml.safe_load(text))
        answer.ok(201)
        assert "itself: this definition is stored" in answer.warnings, name
    assert (await api.get("/apis/kubeflow.org/v1")).ok() == served
    assert api.server.core.kinds.current().custom == ()
    assert len((await api.get(DEFINITIONS)).ok()["items"]) == len(texts)
