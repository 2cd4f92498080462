"""Specs of pods that were seen before are judged as when they came first."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api import defaults, validation
from windlass.api.pod_requests import qos_class
from windlass.api.resources import PODS
from windlass.api.wire import decode, field_review

_KEYS = st.text(alphabet='ab":\\ ué', max_size=3)
_TREES = st.recursive(
    st.text(alphabet='ab":\\ ué{}', max_size=6) | st.integers() | st.none(),
    lambda inner: st.lists(st.tuples(_KEYS, inner), max_size=4) | st.lists(inner, max_size=2),
    max_leaves=8,
)


def _pod(**spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "train:1", "resources": {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }


def _report(pod: dict[str, Any]) -> tuple[Any, ...]:
    report = field_review.review(PODS, pod)
    return report.object, report.unknown, report.errors


def _messages(pod: dict[str, Any]) -> list[str]:
    return [str(error) for error in validation.validate(PODS, pod)]


def test_field_review_of_equal_specs_is_the_same() -> None:
    good, unknown, wrong, loose = (
        _pod(),
        _pod(gpus=1),
        _pod(priority="high"),
        _pod(nodeSelector={}, containers=[{"name": "main", "image": None}]),
    )
    for pod in (good, unknown, wrong, loose):
        first = _report(deepcopy(pod))
        assert _report(deepcopy(pod)) == first
        assert _report(deepcopy(pod)) == first
    assert _report(deepcopy(unknown))[1] == ["spec.gpus"]
    assert _report(deepcopy(wrong))[2]


def test_the_rest_of_a_pod_with_a_known_spec_is_still_reviewed() -> None:
    for _ in range(2):
        assert _report(_pod())[1:] == ([], [])
    other = _pod()
    other["metadata"]["colour"] = "red"
    other["extra"] = 1
    report = field_review.review(PODS, other)
    assert report.unknown == ["metadata.colour", "extra"]
    assert report.object["spec"] == _pod()["spec"]
    assert list(report.object)[:4] == list(_pod())


def test_validation_of_equal_specs_is_the_same() -> None:
    for pod in (_pod(), _pod(restartPolicy="Sometimes"), _pod(ephemeralContainers=[{"name": "x"}])):
        defaults.apply(PODS, pod)
        first = _messages(pod)
        assert _messages(pod) == first
        assert _messages(pod) == first


def test_known_spec_does_not_skip_metadata_and_update_validation() -> None:
    pod = _pod()
    defaults.apply(PODS, pod)
    assert _messages(pod) == []
    named = deepcopy(pod)
    named["metadata"]["name"] = "Not A Name"
    assert _messages(named)
    before = deepcopy(pod)
    before["spec"]["nodeName"] = "n1"
    assert validation.validate(PODS, pod, before)  # a node cannot be taken away


def test_qos_class_follows_the_requested_amounts() -> None:
    amounts = {"cpu": "1", "memory": "1Gi"}
    for _ in range(2):
        assert qos_class(_pod()["spec"]) == "BestEffort"
        assert qos_class({"containers": [{"resources": {"requests": amounts}}]}) == "Burstable"
        assert (
            qos_class({"containers": [{"resources": {"requests": amounts, "limits": amounts}}]})
            == "Guaranteed"
        )


def _text(tree: Any) -> str:
    """Return JSON in which a list of pairs is an object with keys that may repeat."""
    if isinstance(tree, list):
        if tree and all(isinstance(item, tuple) for item in tree):
            members = ",".join(f"{json.dumps(key)}:{_text(item)}" for key, item in tree)
            return f"{{{members}}}"
        return f"[{','.join(_text(item) for item in tree)}]"
    return json.dumps(tree, ensure_ascii=False)


@settings(max_examples=150, deadline=None)
@given(_TREES)
def test_a_key_that_occurs_twice_is_never_overlooked(tree: Any) -> None:
    body = _text(tree).encode()
    value = msgspec.json.decode(body)
    if decode.duplicate_paths(body):
        assert decode.may_repeat_keys(body, value)
