"""Client-side apply: the patch brings the live object to what the manifest says, and touches nothing else."""

from __future__ import annotations

import copy
from typing import Any

from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.resources import PODS, QUEUES
from windlass.api.wire import patch_types, schema
from windlass.cli.manifests.three_way import merge_patch, strategic_patch

KEYS = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.recursive(
    st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


def merged(target: Any, patch: Any) -> Any:
    """RFC 7396, written down a second time."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def contains(live: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(k in live and contains(live[k], v) for k, v in wanted.items())
    return live == wanted


@settings(max_examples=examples(150), deadline=None)
@given(OBJECTS, OBJECTS, OBJECTS)
def test_after_the_patch_everything_in_the_manifest_is_so(original, modified, live):
    result = merged(live, merge_patch(original, modified, live))
    assert contains(result, modified)
    for key in live:
        if key not in original and key not in modified:
            assert result[key] == live[key]
    for key in original:
        if key not in modified:
            assert key not in result


@settings(max_examples=80, deadline=None)
@given(OBJECTS, OBJECTS)
def test_applying_the_same_again_does_nothing(modified, live):
    result = merged(live, merge_patch({}, modified, live))
    assert merge_patch(modified, modified, result) == {}


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": spec}


def strategic(original: Any, modified: Any, live: Any) -> tuple[Any, Any]:
    struct = schema.for_kind("", "v1", "Pod")
    assert struct is not None
    patch = strategic_patch(struct, original, modified, live)
    return patch, patch_types.apply_patch("strategic", PODS, copy.deepcopy(live), patch)


def test_lists_of_built_in_kinds_are_merged_by_their_key():
    before = pod(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "1"}])
    live = pod(containers=[{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]},
                           {"name": "b", "image": "1"}, {"name": "injected", "image": "9"}])  # fmt: skip
    now = pod(containers=[{"name": "a", "image": "2"}])
    patch, result = strategic(before, now, live)
    assert patch["spec"]["containers"] == [{"name": "a", "image": "2"}, {"name": "b", "$patch": "delete"}]
    assert {c["name"]: c["image"] for c in result["spec"]["containers"]} == {"a": "2", "injected": "9"}
    assert result["spec"]["containers"][0]["env"] == [{"name": "X", "value": "1"}]


def test_lists_of_plain_values_lose_only_what_the_manifest_dropped():
    meta = {"metadata": {"name": "p", "finalizers": ["a", "b"]}}
    live = {"metadata": {"name": "p", "finalizers": ["a", "b", "other"]}}
    _, result = strategic(meta, {"metadata": {"name": "p", "finalizers": ["b"]}}, live)
    assert result["metadata"]["finalizers"] == ["b", "other"]


def test_two_items_with_one_merge_key_replace_the_list():
    live = pod(containers=[{"name": "a", "ports": [{"containerPort": 53, "protocol": "UDP"}]}])
    now = pod(
        containers=[
            {
                "name": "a",
                "ports": [
                    {"containerPort": 53, "protocol": "UDP"},
                    {"containerPort": 53, "protocol": "TCP"},
                ],
            }
        ]
    )
    _, result = strategic({}, now, live)
    assert len(result["spec"]["containers"][0]["ports"]) == 2


def test_null_removes():
    assert merge_patch({}, {"spec": {"weight": None}}, {"spec": {"weight": 2}}) == {"spec": {"weight": None}}
    assert merge_patch({}, {"spec": {"weight": None}}, {"spec": {}}) == {}


def test_lists_of_custom_kinds_are_whole():
    patch = merge_patch({}, {"spec": {"x": [1]}}, {"spec": {"x": [1, 2]}})
    assert patch == {"spec": {"x": [1]}}
    assert QUEUES.custom
