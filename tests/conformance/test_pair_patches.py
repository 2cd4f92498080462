"""Both servers are sent the same patches, and what the real one sends as protobuf is its JSON.

The real kube-apiserver is the oracle here; what the embedded server may do otherwise is said at the case.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from clusters import JSON_PATCH, MERGE, STRATEGIC, Answer
from server_pair import PODS, Pair, same, verdict

from windlass.api.wire import protobuf, schema

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

BASE: dict[str, Any] = {
    "metadata": {"name": "smp", "labels": {"a": "1", "b": "2"}, "finalizers": ["ex.io/a", "ex.io/b"]},
    "spec": {
        "containers": [
            {
                "name": "a",
                "image": "1",
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "value": "2"},
                    {"name": "C", "value": "3"},
                ],
                "ports": [{"containerPort": 80}, {"containerPort": 81}],
                "command": ["x"],
            },
            {"name": "b", "image": "2"},
        ],
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "imagePullSecrets": [{"name": "one"}, {"name": "two"}],
    },
}

STRATEGIC_PATCHES: dict[str, Any] = {
    "image by name": {"spec": {"containers": [{"name": "b", "image": "3"}]}},
    "with order": {
        "spec": {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
            "containers": [{"name": "b", "image": "9"}],
        }
    },
    "labels": {"metadata": {"labels": {"a": None, "c": "3"}}},
    "replace labels": {"metadata": {"labels": {"$patch": "replace", "z": "1"}}},
    "delete labels": {"metadata": {"labels": {"$patch": "delete"}}},
    "finalizers add": {"metadata": {"finalizers": ["ex.io/c", "ex.io/a"]}},
    "finalizers delete": {"metadata": {"$deleteFromPrimitiveList/finalizers": ["ex.io/a"]}},
    "finalizers order": {"metadata": {"$setElementOrder/finalizers": ["ex.io/b", "ex.io/a"]}},
    "atomic list": {
        "spec": {"tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]}
    },
    "no merge key": {"spec": {"containers": [{"image": "x"}]}},
    "wrong directive": {"spec": {"containers": [{"name": "a", "$patch": "bogus"}]}},
    "wrong directive in a map": {"metadata": {"labels": {"$patch": "bogus"}}},
    "order does not fit": {
        "spec": {"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b", "image": "9"}]}
    },
    "annotations from nothing": {"metadata": {"annotations": {"x": "y", "n": None}}},
    "unknown field": {"spec": {"zz": 1}},
    "retain keys": {
        "spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}]}
    },
    "retain keys that do not fit": {
        "spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "emptyDir": {}}]}
    },
}


@pytest.fixture(scope="module")
def patched(both: Pair) -> str:
    """The path of the same pod on both servers."""
    name = f"smp-{os.getpid()}"
    body = json.loads(json.dumps(BASE))
    body["metadata"]["name"] = name
    for cluster in both:
        cluster.post(PODS, body).ok(201)
    return f"{PODS}/{name}"


def _told(answer: Answer) -> Any:
    """Of a refusal only the class: a strategic patch's text quotes the patch in Go's form."""
    if answer.status < 400:
        return verdict(answer)
    return answer.status // 100, answer.json.get("reason", "")


@pytest.mark.parametrize("patch", STRATEGIC_PATCHES.values(), ids=STRATEGIC_PATCHES.keys())
def test_strategic_merge(both: Pair, patched: str, patch: dict[str, Any]) -> None:
    answers = [c.patch(patched, patch, STRATEGIC, "dryRun=All&fieldValidation=Strict") for c in both]
    embedded, real = map(_told, answers)
    if real == (5, ""):  # the real server answers an accidental 500 to some shapes
        assert embedded[0] == 4
    else:
        assert embedded == real


OTHER_PATCHES: list[tuple[str, Any]] = [
    (MERGE, {"metadata": {"labels": {"a": None, "x": "y"}}}),
    (MERGE, {"metadata": {"labels": None}}),
    (MERGE, {"spec": {"containers": [{"name": "a", "image": "7"}]}}),
    (MERGE, {"spec": {"foo": 1}}),
    (MERGE, {"spec": {"nodeSelector": {"a": "b"}}}),
    (MERGE, []),
    (MERGE, 5),
    (MERGE, b"{"),
    (JSON_PATCH, [{"op": "add", "path": "/metadata/labels/x", "value": "y"}]),
    (JSON_PATCH, [{"op": "remove", "path": "/metadata/labels/a"}]),
    (JSON_PATCH, [{"op": "remove", "path": "/metadata/labels/zz"}]),
    (JSON_PATCH, [{"op": "test", "path": "/metadata/labels/a", "value": "2"}]),
    (JSON_PATCH, [{"op": "test", "path": "/metadata/labels/a", "value": "1"}]),
    (JSON_PATCH, [{"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/q"}]),
    (JSON_PATCH, [{"op": "copy", "from": "/metadata/labels/a", "path": "/metadata/labels/q"}]),
    (JSON_PATCH, [{"op": "replace", "path": "/spec/containers/0/image", "value": "8"}]),
    (JSON_PATCH, [{"op": "replace", "path": "/spec/containers/9/image", "value": "8"}]),
    (JSON_PATCH, [{"op": "add", "path": "/spec/tolerations/-", "value": {"key": "n", "operator": "Exists"}}]),
    (JSON_PATCH, [{"op": "add", "path": "/metadata/annotations", "value": {"a~b": "c", "d/e": "f"}}]),
    (JSON_PATCH, {"op": "add"}),
    (JSON_PATCH, b'{"op"'),
]


@pytest.mark.parametrize(("content", "patch"), OTHER_PATCHES)
def test_other_patches(both: Pair, patched: str, content: str, patch: Any) -> None:
    answers = [c.patch(patched, patch, content, "dryRun=All&fieldValidation=Strict") for c in both]
    embedded, real = map(_told, answers)
    assert embedded == real


# --- protobuf -----------------------------------------------------------------------------------------


def test_protobuf_means_the_same(both: Pair, patched: str) -> None:
    """The real server's own protobuf, decoded here, is its JSON."""
    _, real = both
    paths = {
        patched: ("", "v1", "Pod"),
        "/api/v1/namespaces/default": ("", "v1", "Namespace"),
        "/api/v1/namespaces/default/services/kubernetes": ("", "v1", "Service"),
        "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical": (
            "scheduling.k8s.io",
            "v1",
            "PriorityClass",
        ),
    }
    for path, kind in paths.items():
        struct = schema.for_kind(*kind)
        assert struct is not None
        expected = real.get(path).ok()
        answer = real.get(path, accept="application/vnd.kubernetes.protobuf")
        assert answer.headers["content-type"].startswith("application/vnd.kubernetes.protobuf")
        assert _without_empties(protobuf.decode(struct, answer.body)) == _without_empties(expected), path


def _without_empties(value: Any) -> Any:
    """JSON writes some empties that protobuf does not carry, and the other way round."""
    if isinstance(value, dict):
        kept = {key: _without_empties(item) for key, item in value.items()}
        return {
            key: item
            for key, item in kept.items()
            if item not in (None, "", 0, False) and item != {} and item != []
        }
    if isinstance(value, list):
        return [_without_empties(item) for item in value]
    return value


def test_not_protobuf(both: Pair) -> None:
    for body in (b"garbage", b"k8s\0garbage"):
        same(both, "POST", PODS, body, "dryRun=All", content="application/vnd.kubernetes.protobuf")
