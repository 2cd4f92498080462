"""CustomResourceDefinitions and their objects: a real kube-apiserver answers alike."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from clusters import MERGE, Cluster, eventually
from definitions import FULL_SCHEMA, definition, thing
from server_pair import Pair, same, verdict, warnings

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/conformance.example.com/v1/namespaces/default/things"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def established(api: Cluster, name: str) -> bool:
    conditions = (api.get(f"{DEFINITIONS}/{name}").json.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


@pytest.fixture(scope="module")
def things(both: Pair) -> Iterator[Pair]:
    """Both servers, with the kind ``Thing`` in versions v1 and v1beta1."""
    crd = definition("things", "Thing", schema=FULL_SCHEMA, scale=True)
    older = copy.deepcopy(crd["spec"]["versions"][0])
    older |= {
        "name": "v1beta1",
        "storage": False,
        "deprecated": True,
        "additionalPrinterColumns": [],
        "selectableFields": [],
    }
    older["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop("size")
    crd["spec"]["versions"].append(older)
    for api in both:
        api.post(DEFINITIONS, crd).ok(201)
        eventually(lambda api=api: established(api, crd["metadata"]["name"]))
        eventually(lambda api=api: api.get(THINGS).status == 200)
    yield both
    for api in both:
        api.delete(f"{DEFINITIONS}/{crd['metadata']['name']}")


VALID: dict[str, dict[str, Any]] = {
    "minimal": {"size": 1},
    "defaults": {"size": 2, "nested": {}, "rows": [{"name": "a"}]},
    "unknown-fields": {"size": 1, "no": 1, "nested": {"no": 2}, "rows": [{"name": "a", "no": 3}]},
    "free-form": {"size": 1, "free": {"any": {"thing": [1, {"x": None}]}, "known": {"a": "b", "gone": 1}}},
    "int-or-string": {"size": 1, "port": "http", "limits": {"cpu": "1", "memory": 5}},
    "nulls": {"size": 1, "color": None, "maybe": None, "nested": {"level": None}},
    "whole-numbers": {"size": 3.0, "ratio": 0.5},
    "alternatives": {"size": 1, "source": {"url": "http://x"}},
    "embedded": {
        "size": 1,
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "x": 1},
    },
    "status-is-dropped": {"size": 1},
}
INVALID: dict[str, dict[str, Any]] = {
    "required": {},
    "wrong-type": {"size": "big"},
    "wrong-types": {"size": 1, "color": 5, "flags": "a", "nested": [], "limits": 3},
    "null-in-list": {"size": 1, "flags": [None]},
    "minimum": {"size": 0},
    "maximum": {"size": 101},
    "exclusive": {"size": 1, "ratio": 1},
    "multiple": {"size": 1, "even": 3},
    "enum": {"size": 1, "color": "green"},
    "pattern": {"size": 1, "code": "abc"},
    "too-short": {"size": 1, "code": ""},
    "too-long": {"size": 1, "code": "1" * 20},
    "format": {"size": 1, "when": "yesterday"},
    "int32": {"size": 1, "small": 1 << 40},
    "too-many-items": {"size": 1, "flags": ["a", "b", "c", "d"]},
    "too-few-items": {"size": 1, "flags": []},
    "set-duplicates": {"size": 1, "flags": ["a", "a"]},
    "map-duplicates": {"size": 1, "rows": [{"name": "a"}, {"name": "a"}]},
    "map-key-absent": {"size": 1, "rows": [{}]},
    "too-many-properties": {"size": 1, "limits": {"a": 1, "b": 2, "c": 3}},
    "too-few-properties": {"size": 1, "limits": {}},
    "one-of-none": {"size": 1, "source": {}},
    "one-of-two": {"size": 1, "source": {"url": "http://x", "path": "/x"}},
    "any-of": {"size": 1, "either": {"c": 1}},
    "all-of": {"size": 1, "both": 3},
    "not": {"size": 1, "never": "root"},
    "int-or-string": {"size": 1, "port": True},
    "embedded-kind": {"size": 1, "template": {"metadata": {"name": "p"}}},
    "negative-replicas": {"size": 1, "replicas": -1},
}


def test_valid_objects_are_stored_alike(things: Pair) -> None:
    differing = []
    for name, spec in VALID.items():
        body = thing(name, spec)
        if name == "status-is-dropped":
            body["status"] = {"phase": "Done"}
        answers = [api.post(THINGS, body) for api in things]
        left, right = ((verdict(answer), warnings(answer)) for answer in answers)
        if left != right or left[0][0] != 201:
            differing.append((name, left, right))
        older = f"/apis/conformance.example.com/v1beta1/namespaces/default/things/{name}"
        left, right = (verdict(api.get(older)) for api in things)
        if left != right:
            differing.append((name, left, right))
    assert not differing, json.dumps(differing, indent=1)


def test_invalid_objects_are_refused_alike(things: Pair) -> None:
    differing = []
    for name, spec in INVALID.items():
        left, right = (verdict(api.post(THINGS, thing("bad", spec))) for api in things)
        if left != right or left[0] != 422:
            differing.append((name, left, right))
    assert not differing, json.dumps(differing, indent=1)


def test_field_validation(things: Pair) -> None:
    body = thing("strict", {"size": 1, "no": 1, "nested": {"neither": 2}})
    body["metadata"]["wrong"] = 1
    body["also"] = 2
    for mode in ("Strict", "Warn", "Ignore"):
        embedded, real = same(things, "POST", THINGS, body, query=f"fieldValidation={mode}&dryRun=All")
        assert warnings(embedded) == warnings(real), mode


def test_update_generation_and_status(things: Pair) -> None:
    same(things, "POST", THINGS, thing("life", {"size": 1}))
    path = f"{THINGS}/life"
    for change, subresource in (
        ({"spec": {"size": 2}}, ""),
        ({"metadata": {"labels": {"a": "b"}}}, ""),
        ({"status": {"phase": "Done"}}, ""),
        ({"status": {"phase": "Done", "no": 1}}, "/status"),
        ({"status": {"phase": 3}}, "/status"),
        ({"spec": {"size": "x"}}, ""),
        ({"spec": {"size": 3}}, "/status"),
    ):
        same(things, "PATCH", f"{path}{subresource}", change, content=MERGE)
    for api in things:
        assert api.get(path).json["metadata"]["generation"] == 2


def test_unchanged_parts_are_not_checked_again(things: Pair) -> None:
    """A stricter schema does not hold up changes of other fields."""
    crd = definition("ratchets", "Ratchet", schema={"type": "object", "properties": {"spec": FREE}})
    objects = "/apis/conformance.example.com/v1/namespaces/default/ratchets"
    name = crd["metadata"]["name"]
    stricter = {
        "type": "object",
        "properties": {"a": {"type": "string", "enum": ["x"]}, "b": {"type": "string"}},
    }
    body = {**thing("r", {"a": "old", "b": "1"}), "kind": "Ratchet"}
    answers: list[list[Any]] = []
    for api in things:
        api.post(DEFINITIONS, crd).ok(201)
        eventually(lambda api=api: api.get(objects).status == 200)
        eventually(lambda api=api: api.post(objects, body).status in (201, 409))
        change = {"spec": {"versions": copy.deepcopy(crd["spec"]["versions"])}}
        change["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = stricter
        api.send("PATCH", f"{DEFINITIONS}/{name}", change, content=MERGE).ok()
        eventually(lambda api=api: api.post(objects, body | {"metadata": {"name": "q"}}).status == 422)
        patches = ({"spec": {"b": "2"}}, {"spec": {"a": "other"}}, {"spec": {"a": "x"}})
        answers.append(
            [verdict(api.send("PATCH", f"{objects}/r", patch, content=MERGE)) for patch in patches]
        )
        api.delete(f"{DEFINITIONS}/{name}")
    assert answers[0] == answers[1]


def test_columns_and_discovery(things: Pair) -> None:
    same(things, "POST", THINGS, thing("shown", {"size": 4, "color": "blue"}))
    for api in things:
        status = {"status": {"conditions": [{"type": "Ready", "status": "True"}], "replicas": 2}}
        api.send(
            "PATCH",
            f"{THINGS}/shown/status",
            status,
            content=MERGE,
        ).ok()
    tables = [api.get(f"{THINGS}/shown", accept=TABLE).ok() for api in things]
    assert tables[0]["columnDefinitions"][1:] == tables[1]["columnDefinitions"][1:]
    assert tables[0]["rows"][0]["cells"] == tables[1]["rows"][0]["cells"]
    for path in ("/apis/conformance.example.com", "/apis/conformance.example.com/v1"):
        left, right = (api.get(path).ok() for api in things)
        left, right = _of_things(left), _of_things(right)
        assert left == right, json.dumps([left, right])


def _of_things(answer: Any) -> Any:
    """Without what only a real server says, and without kinds of other tests."""
    if "resources" in answer:
        found = [
            entry
            for entry in answer["resources"]
            if entry["name"] in ("things", "things/scale", "things/status")
        ]
        answer["resources"] = sorted(found, key=lambda entry: entry["name"])
        for entry in found:
            entry.pop("storageVersionHash", None)
            entry["verbs"].sort()
    return answer


def test_selectable_fields(things: Pair) -> None:
    for color in ("red", "blue"):
        same(things, "POST", THINGS, thing(f"select-{color}", {"size": 77, "color": color}))
    for query in ("fieldSelector=spec.color%3Dblue,spec.size%3D77", "fieldSelector=spec.size%21%3D77"):
        names = [
            sorted(item["metadata"]["name"] for item in api.get(THINGS, query=query).ok()["items"])
            for api in things
        ]
        assert names[0] == names[1]
    same(things, "GET", THINGS, None, query="fieldSelector=spec.nested%3Dx")


FREE: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
ROOT = "openAPIV3Schema"
BAD_SCHEMAS: dict[str, Any] = {
    "no-type": {"properties": {"a": {"type": "string"}}},
    "not-an-object": {"type": "string"},
    "field-without-type": {"type": "object", "properties": {"a": {"minimum": 1}}},
    "item-without-type": {"type": "object", "properties": {"a": {"type": "array", "items": {}}}},
    "array-without-items": {"type": "object", "properties": {"a": {"type": "array"}}},
    "wrong-type": {"type": "object", "properties": {"a": {"type": "text"}}},
    "unique-items": {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}},
    },
    "nested-type": {"type": "object", "properties": {"a": {"type": "string", "anyOf": [{"type": "string"}]}}},
    "not-specified": {"type": "object", "anyOf": [{"properties": {"b": {"minimum": 1}}}]},
    "both-properties": {
        "type": "object",
        "properties": {
            "a": {
                "type": "object",
                "properties": {"b": {"type": "string"}},
                "additionalProperties": {"type": "string"},
            }
        },
    },
    "root-additional": {"type": "object", "additionalProperties": {"type": "string"}},
    "metadata": {
        "type": "object",
        "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
    },
    "bad-default": {"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}},
    "unpruned-default": {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}, "default": {"c": 1}}},
    },
    "list-map-without-keys": {
        "type": "object",
        "properties": {"a": {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}},
    },
    "list-map-key-optional": {
        "type": "object",
        "properties": {
            "a": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            }
        },
    },
    "wrong-list-type": {
        "type": "object",
        "properties": {"a": {"type": "array", "x-kubernetes-list-type": "bag", "items": {"type": "string"}}},
    },
    "ref": {"type": "object", "properties": {"a": {"type": "object", "$ref": "#/x"}}},
    "bad-pattern": {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
    "embedded-empty": {
        "type": "object",
        "properties": {"a": {"type": "object", "x-kubernetes-embedded-resource": True}},
    },
    "nullable-root": {"type": "object", "nullable": True},
    "preserve-false": {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
}


def test_schemas_that_are_not_structural(both: Pair) -> None:
    differing = []
    for name, schema in BAD_SCHEMAS.items():
        crd = definition("bads", "Bad", schema=schema)
        left, right = (verdict(api.post(DEFINITIONS, crd)) for api in both)
        if name == "bad-pattern":  # RE2 for Python words it in its own way
            left[1]["details"]["causes"] = [cause["field"] for cause in left[1]["details"]["causes"]]
            right[1]["details"]["causes"] = [cause["field"] for cause in right[1]["details"]["causes"]]
            left[1]["message"] = right[1]["message"] = ""
        if _as_written(left) != _as_written(right) or left[0] != 422:
            differing.append((name, left, right))
    assert not differing, json.dumps(differing, indent=1)


def _as_written(answer: Any) -> Any:
    """With the path that the file has: a real server moves the schema of a single version to spec.validation."""
    text = repr(answer).replace("spec.versions[0].schema.", "spec.validation.")
    return text.replace("spec.versions[0].", "spec.")


BAD_DEFINITIONS: dict[str, dict[str, Any]] = {
    "name": {"metadata": {"name": "wrong.conformance.example.com"}},
    "group": {"spec": {"group": "nodots"}, "metadata": {"name": "bads.nodots"}},
    "scope": {"spec": {"scope": "Everywhere"}},
    "kind": {"spec": {"names": {"kind": "bad_kind"}}},
    "same-list-kind": {"spec": {"names": {"listKind": "Bad"}}},
    "short-name": {"spec": {"names": {"shortNames": ["B_D"]}}},
    "conversion": {"spec": {"conversion": {"strategy": "Magic"}}},
    "webhook": {"spec": {"conversion": {"strategy": "Webhook"}}},
    "preserve": {"spec": {"preserveUnknownFields": True}},
}


def _merged(target: Any, change: Any) -> Any:
    if isinstance(change, dict) and isinstance(target, dict):
        return {**target, **{key: _merged(target.get(key), value) for key, value in change.items()}}
    return change


def test_definitions_that_are_not_valid(both: Pair) -> None:
    differing = []
    for name, change in BAD_DEFINITIONS.items():
        crd = _merged(definition("bads", "Bad", schema={"type": "object"}), change)
        left, right = (verdict(api.post(DEFINITIONS, crd)) for api in both)
        if _as_written(left) != _as_written(right) or left[0] != 422:
            differing.append((name, left, right))
    assert not differing, json.dumps(differing, indent=1)


def test_status_of_a_definition(both: Pair) -> None:
    first = definition("firsts", "First", schema={"type": "object"}, shortNames=["fst"], categories=["all"])
    second = definition("seconds", "Second", schema={"type": "object"}, shortNames=["fst"])
    states: list[list[Any]] = []
    for api in both:
        found = []
        for crd in (first, second):
            name = crd["metadata"]["name"]
            api.post(DEFINITIONS, crd).ok(201)
            eventually(
                lambda api=api, name=name: (
                    len(api.get(f"{DEFINITIONS}/{name}").json["status"].get("conditions") or ()) == 2
                )
            )
            if crd is first:
                eventually(lambda api=api, name=name: established(api, name))
            status = api.get(f"{DEFINITIONS}/{name}").json["status"]
            for condition in status["conditions"]:
                del condition["lastTransitionTime"]
            found.append(status)
        for crd in (first, second):
            api.delete(f"{DEFINITIONS}/{crd['metadata']['name']}")
        states.append(found)
    assert states[0] == states[1]
