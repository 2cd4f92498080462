"""Patches: RFC 6902, RFC 7386, and Kubernetes' strategic merge."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.errors import StatusError
from windlass.api.resources import CONFIG_MAPS, NODES, PODS, QUEUES
from windlass.api.wire import patch_types

_json = st.recursive(
    st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc~/"), inner, max_size=3),
    max_leaves=10,
)
_objects = st.dictionaries(st.sampled_from("abcd"), _json, max_size=4)


def refused(kind: str, original: dict[str, Any], patch: Any, resource: Any = CONFIG_MAPS) -> StatusError:
    with pytest.raises(StatusError) as caught:
        patch_types.apply_patch(kind, resource, original, patch)
    return caught.value


# --- merge patch --------------------------------------------------------------------------------------


def _diff(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """A merge patch from one to the other, by RFC 7386's meaning."""
    patch: dict[str, Any] = {key: None for key in before.keys() - after.keys()}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            inner = _diff(old, value)
            if inner:
                patch[key] = inner
        elif key not in before or not patch_types.same(old, value):
            patch[key] = value
    return patch


@settings(max_examples=150, deadline=None)
@given(_objects, _objects)
def test_a_difference_applied_gives_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    frozen = copy.deepcopy(before)
    result = patch_types.apply_patch("merge", CONFIG_MAPS, before, _diff(before, after))
    assert patch_types.same(result, after)
    assert before == frozen


@pytest.mark.parametrize(
    ("original", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_examples_of_the_rfc(original: Any, patch: Any, result: Any) -> None:
    assert patch_types.apply_patch("merge", CONFIG_MAPS, original, patch) == result


# --- JSON patch ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("original", "operations", "result"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": None}], {"a": None}),
        ({"a": {"b": 1}}, [{"op": "move", "from": "/a/b", "path": "/c"}], {"a": {}, "c": 1}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a~b": 1, "c/d": 2}, [{"op": "remove", "path": "/a~0b"}, {"op": "remove", "path": "/c~1d"}], {}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1.0}], {"a": 1}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 1}}], {"b": 1}),
        ({"": 1}, [{"op": "replace", "path": "/", "value": 2}], {"": 2}),
        ({"a": 1}, [{"op": "replace", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
    ],
)
def test_operations(original: Any, operations: Any, result: Any) -> None:
    frozen = copy.deepcopy(original)
    assert patch_types.apply_patch("json", CONFIG_MAPS, original, operations) == result
    assert original == frozen


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/x"},
        {"op": "replace", "path": "/x/y", "value": 1},
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "add", "path": "/list/01", "value": 1},
        {"op": "add", "path": "/list/x", "value": 1},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "test", "path": "/a", "value": True},
        {"op": "move", "from": "/x", "path": "/y"},
        {"op": "move", "from": "/o", "path": "/o/inner"},
        {"op": "copy", "path": "/y"},
        {"op": "add", "path": "/y"},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "", "value": 5},
        {"op": "add", "path": "no-slash", "value": 5},
    ],
)
def test_inapplicable_patch_gets_422(operation: dict[str, Any]) -> None:
    error = refused("json", {"a": 1, "list": [1], "o": {}}, [operation])
    assert (error.code, error.details) == (422, {})
    assert error.message == "the server rejected our request due to an error in our request"


def test_a_failed_test_leaves_nothing_behind() -> None:
    original = {"a": 1}
    refused(
        "json", original, [{"op": "add", "path": "/b", "value": 2}, {"op": "test", "path": "/a", "value": 9}]
    )
    assert original == {"a": 1}


def test_an_unknown_operation_is_a_400() -> None:
    assert refused("json", {}, [{"op": "frob", "path": "/a"}]).code == 400


@settings(max_examples=100, deadline=None)
@given(_objects, _objects)
def test_add_then_remove_is_nothing(original: dict[str, Any], value: dict[str, Any]) -> None:
    operations = [
        {"op": "add", "path": "/zz", "value": value},
        {"op": "test", "path": "/zz", "value": value},
        {"op": "remove", "path": "/zz"},
    ]
    assert patch_types.apply_patch("json", CONFIG_MAPS, original, operations) == original


# --- bodies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (
            "json",
            b"{}",
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        ("json", b"[5]", "cannot unmarshal array"),
        ("json", b"[", "error decoding patch: unexpected end of JSON input"),
        (
            "merge",
            b"[]",
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        ("merge", b"\xff", "invalid character"),
        ("strategic", b"[]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ],
)
def test_invalid_patch_bodies(kind: str, body: bytes, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        patch_types.parse_patch(kind, PODS, body)
    assert caught.value.code == 400
    assert message in caught.value.message


def test_too_many_operations() -> None:
    body = b"[" + b",".join([b'{"op":"test","path":"/a"}'] * 10_001) + b"]"
    with pytest.raises(StatusError) as caught:
        patch_types.parse_patch("json", PODS, body)
    assert caught.value.code == 413


def test_duplicate_keys_of_a_patch_are_remembered() -> None:
    patch = patch_types.parse_patch("merge", CONFIG_MAPS, b'{"data":{"a":"1","a":"2"}}')
    result = patch_types.apply_patch("merge", CONFIG_MAPS, {}, patch)
    assert getattr(result, "duplicates", ()) == ("data.a",)
    assert result == {"data": {"a": "2"}}


@pytest.mark.parametrize(
    ("resource", "media", "code"),
    [
        (PODS, "application/strategic-merge-patch+json", 0),
        (QUEUES, "application/merge-patch+json", 0),
        (QUEUES, "application/strategic-merge-patch+json", 415),
        (PODS, "application/json", 415),
        (PODS, "text/plain", 415),
    ],
)
def test_kinds_by_media_type(resource: Any, media: str, code: int) -> None:
    if not code:
        assert patch_types.kind_of(resource, f"{media}; charset=utf-8") in ("strategic", "merge")
        return
    with pytest.raises(StatusError) as caught:
        patch_types.kind_of(resource, media)
    assert caught.value.code == code


# --- strategic merge ----------------------------------------------------------------------------------


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": list(containers), **spec}}


def merged(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    before = copy.deepcopy(original), copy.deepcopy(patch)
    result = patch_types.apply_patch("strategic", PODS, original, patch)
    assert (original, patch) == before
    return result


A, B, C = ({"name": name, "image": "1"} for name in "abc")


@pytest.mark.parametrize(
    ("patch", "containers"),
    [
        ([{"name": "b", "image": "2"}], [A, {"name": "b", "image": "2"}]),
        ([{"name": "c", "image": "1"}], [C, A, B]),
        ([{"name": "a", "$patch": "delete"}], [B]),
        ([{"$patch": "replace"}, C], [C]),
        ([{"name": "a", "image": None}], [{"name": "a"}, B]),
    ],
)
def test_lists_merge_by_key(patch: list[Any], containers: list[Any]) -> None:
    result = merged(pod(A, B), {"spec": {"containers": patch}})["spec"]["containers"]
    assert sorted(result, key=lambda c: c["name"]) == sorted(containers, key=lambda c: c["name"])


def test_the_element_order_is_the_patchs() -> None:
    patch = {
        "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
        "containers": [{"name": "b", "image": "2"}],
    }
    result = merged(pod(A, B, C), {"spec": patch})["spec"]["containers"]
    assert [c["name"] for c in result] == ["c", "b", "a"]
    assert result[1]["image"] == "2"


def test_elements_added_by_the_server_keep_their_position() -> None:
    patch = {"$setElementOrder/containers": [{"name": "a"}, {"name": "c"}]}
    result = merged(pod(A, B, C), {"spec": patch})["spec"]["containers"]
    assert [c["name"] for c in result] == ["a", "b", "c"]


def test_primitive_lists() -> None:
    original = {"metadata": {"finalizers": ["x/a", "x/b"]}}
    longer = merged(original, {"metadata": {"finalizers": ["x/c", "x/a"]}})
    assert longer["metadata"]["finalizers"] == ["x/c", "x/a", "x/b"]
    gone = merged(original, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"]}})
    assert gone["metadata"]["finalizers"] == ["x/b"]
    absent = merged({"metadata": {}}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"]}})
    assert absent == {"metadata": {}}


def test_maps_and_directives() -> None:
    original = {"metadata": {"labels": {"a": "1", "b": "2"}}}
    labels = {
        "merge": ({"b": None, "c": "3"}, {"a": "1", "c": "3"}),
        "replace": ({"$patch": "replace", "z": "1"}, {"z": "1"}),
        "delete": ({"$patch": "delete"}, {}),
    }
    for patch, expected in labels.values():
        assert merged(original, {"metadata": {"labels": patch}})["metadata"]["labels"] == expected


def test_retained_keys() -> None:
    volume = {"name": "v", "emptyDir": {}}
    patch = {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}
    result = merged(pod(A, volumes=[volume]), {"spec": patch})
    assert result["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]


def test_atomic_lists_are_replaced() -> None:
    tolerations = [{"key": "a"}, {"key": "b"}]
    result = merged(pod(A, tolerations=tolerations), {"spec": {"tolerations": [{"key": "c"}]}})
    assert result["spec"]["tolerations"] == [{"key": "c"}]


def test_taints_of_a_node_are_replaced_by_key() -> None:
    """Patches of ``kubectl taint`` and ``kubectl cordon``."""
    node = {"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    patch = {"spec": {"unschedulable": True, "taints": [{"key": "b", "effect": "NoExecute"}]}}
    result = patch_types.apply_patch("strategic", NODES, node, patch)
    assert result["spec"]["unschedulable"] is True
    assert {"key": "b", "effect": "NoExecute"} in result["spec"]["taints"]


@pytest.mark.parametrize(
    ("patch", "code", "words"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, 422, "does not contain declared merge key: name"),
        ({"spec": {"containers": [{"name": "a", "$patch": "x"}]}}, 422, "unknown patch type: x in map: map["),
        ({"spec": {"containers": [{"name": "a", "$patch": "merge"}]}}, 422, "merging lists cannot yet"),
        ({"metadata": {"labels": {"$patch": "x"}}}, 422, "unknown patch type"),
        ({"spec": {"containers": ["x"]}}, 422, "list element types are not identical"),
        ({"spec": {"containers": [[1]]}}, 400, "lists of lists are not supported"),
        ({"spec": {"$setElementOrder/containers": "x"}}, 422, "expected a []interface {}"),
        (
            {"spec": {"$setElementOrder/containers": [{"name": "z"}], "containers": [{"name": "a"}]}},
            422,
            "doesn't match $setElementOrder list",
        ),
        ({"spec": {"$setElementOrder/containers": [], "containers": {}}}, 400, "setElementOrder"),
        ({"spec": {"$retainKeys": ["nodeName"], "containers": []}}, 400, "retainKeys"),
        ({"spec": {"$retainKeys": "x"}}, 400, "retainKeys"),
    ],
)
def test_shapes_that_do_not_fit(patch: dict[str, Any], code: int, words: str) -> None:
    original = {"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {"containers": [dict(A)]}}
    error = refused("strategic", original, patch, PODS)
    assert error.code == code
    assert words in error.message


def test_custom_kinds_take_none() -> None:
    assert refused("strategic", {}, {}, QUEUES).code == 415


_names = st.sampled_from("abcd")
_containers = st.lists(
    st.fixed_dictionaries({"name": _names, "image": st.sampled_from("12")}),
    max_size=4,
    unique_by=lambda c: c["name"],
)


@settings(max_examples=150, deadline=None)
@given(_containers, _containers)
def test_a_merge_is_idempotent_and_keeps_names_unique(have: list[Any], want: list[Any]) -> None:
    patch = {
        "spec": {
            "containers": want,
            "$setElementOrder/containers": [{"name": c["name"]} for c in want],
        }
    }
    once = merged(pod(*have), patch)
    names = [c["name"] for c in once["spec"]["containers"]]
    assert len(set(names)) == len(names)
    assert set(names) == {c["name"] for c in (*have, *want)}
    images = {c["name"]: c["image"] for c in once["spec"]["containers"]}
    assert all(images[c["name"]] == c["image"] for c in want)
    assert [n for n in names if n in {c["name"] for c in want}] == [c["name"] for c in want]
    assert merged(once, patch) == once


@settings(max_examples=100, deadline=None)
@given(_containers, st.sets(_names))
def test_deleted_elements_are_gone(have: list[Any], gone: set[str]) -> None:
    patch = {"spec": {"containers": [{"name": name, "$patch": "delete"} for name in sorted(gone)]}}
    result = merged(pod(*have), patch)["spec"]["containers"]
    assert result == [c for c in have if c["name"] not in gone]
