"""Expansion, environment sources, command lines."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.node.pods.environment import (
    ContainerConfigError,
    PodFacts,
    base_environment,
    command_line,
    environment,
    expand,
    field_value,
    references,
)

POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u-1",
        "labels": {"app": "a", "volcano.sh/task-index": "3"},
        "annotations": {"note": 'say "hi"'},
    },
    "spec": {"nodeName": "box", "containers": []},
}
FACTS = PodFacts(POD, "10.1.2.3", "192.0.2.1", {"cpu": "8", "memory": "16Gi"})


# The cases of Kubernetes' own expansion_test.go.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(VAR_A)", "A"),
        ("___$(VAR_B)___", "___B___"),
        ("$(VAR_A)$(VAR_B)", "AB"),
        ("$(VAR_A)-$(VAR_A)", "A-A"),
        ("$$(VAR_A)", "$(VAR_A)"),
        ("$$$(VAR_A)", "$A"),
        ("$$$$(VAR_A)", "$$(VAR_A)"),
        ("foo$$(VAR_A)", "foo$(VAR_A)"),
        ("$(VAR_DNE)", "$(VAR_DNE)"),
        ("$(VAR_EMPTY)", ""),
        ("$$(VAR_A)$(VAR_B)", "$(VAR_A)B"),
        ("$VAR_A", "$VAR_A"),
        ("foo\\$(VAR_A)", "foo\\A"),
        ("$(VAR_A", "$(VAR_A"),
        ("$", "$"),
        ("a$", "a$"),
        ("$$", "$"),
        ("\n$(VAR_A)\n", "\nA\n"),
        ("$((VAR_A))", "$((VAR_A))"),
        ("$()", "$()"),
        ("${VAR_A}", "${VAR_A}"),
    ],
)
def test_expand_is_that_of_kubernetes(text: str, expected: str) -> None:
    assert expand(text, {"VAR_A": "A", "VAR_B": "B", "VAR_EMPTY": ""}) == expected


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="$(){}AB x", max_size=20))
def test_expanding_an_escaped_text_gives_it_back(text: str) -> None:
    assert expand(text.replace("$", "$$"), {"A": "1", "B": "2"}) == text


def test_braces_are_expanded_in_command_and_args_but_not_for_a_shell() -> None:
    values = {"RANK": "2", "ADDR": "m-0"}
    container = {"command": ["python", "t.py"], "args": ["--rank=${RANK}", "$(ADDR):${PORT}", "${RANK:-0}"]}
    assert command_line(container, values) == ["python", "t.py", "--rank=2", "m-0:${PORT}", "${RANK:-0}"]
    shell = {"command": ["/bin/bash", "-c", "RANK=7; echo ${RANK} $(ADDR)"]}
    assert command_line(shell, values) == ["/bin/bash", "-c", "RANK=7; echo ${RANK} m-0"]


def test_no_command_is_an_empty_line() -> None:
    assert command_line({"name": "c"}, {}) == []


def _lookup(objects: dict[tuple[str, str], Any]) -> Any:
    return lambda kind, name: objects.get((kind, name))


def test_sources_in_order_with_later_ones_seeing_earlier_ones() -> None:
    objects = {
        ("ConfigMap", "cm"): {"kind": "ConfigMap", "data": {"A": "from-map", "B": "b"}},
        ("Secret", "s"): {"kind": "Secret", "data": {"K": base64.b64encode(b"x y").decode()}},
    }
    container = {
        "name": "c",
        "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}},
        "envFrom": [{"configMapRef": {"name": "cm"}}, {"secretRef": {"name": "s"}, "prefix": "S_"}],
        "env": [
            {"name": "A", "value": "own"},
            {"name": "URL", "value": "tcp://$(A)/$(S_K)/$(LATER)/$$(A)"},
            {"name": "LATER", "value": "late"},
            {
                "name": "IDX",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['volcano.sh/task-index']"}},
            },
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "CPU_M", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
            {
                "name": "MIB",
                "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}},
            },
            {"name": "ONE", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "B"}}},
            {"name": "GONE", "valueFrom": {"secretKeyRef": {"name": "no", "key": "k", "optional": True}}},
        ],
    }
    values = environment(container, FACTS, _lookup(objects), {"PATH": "/bin"})
    assert values == {
        "PATH": "/bin",
        "A": "own",
        "B": "b",
        "S_K": "x y",
        "URL": "tcp://own/x y/$(LATER)/$(A)",
        "LATER": "late",
        "IDX": "3",
        "IP": "10.1.2.3",
        "CPU": "2",
        "CPU_M": "1500",
        "MIB": "1024",
        "ONE": "b",
    }
    assert {(r.kind, r.name, r.optional) for r in references(container)} == {
        ("ConfigMap", "cm", False),
        ("Secret", "s", False),
        ("Secret", "no", True),
    }


def test_an_unset_limit_is_what_the_node_has() -> None:
    ref = {"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}
    assert environment({"env": [ref]}, FACTS, _lookup({}), {}) == {"X": "8"}


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ({"configMapKeyRef": {"name": "no", "key": "k"}}, 'configmap "no" not found'),
        ({"secretKeyRef": {"name": "s", "key": "k"}}, "couldn't find key k in Secret ns/s"),
        ({"fieldRef": {"fieldPath": "spec.nope"}}, "spec.nope"),
    ],
)
def test_references_that_lead_nowhere_name_themselves(variable: dict[str, Any], message: str) -> None:
    objects = {("Secret", "s"): {"kind": "Secret", "data": {}}}
    with pytest.raises(ContainerConfigError, match=message) as caught:
        environment({"env": [{"name": "X", "valueFrom": variable}]}, FACTS, _lookup(objects), {})
    assert caught.value.reason == "CreateContainerConfigError"


def test_env_from_leaves_out_names_that_are_none_and_honours_optional() -> None:
    objects = {("ConfigMap", "cm"): {"kind": "ConfigMap", "data": {"ok": "1", "1bad": "2", "a b": "3"}}}
    sources = [{"configMapRef": {"name": "cm"}}, {"configMapRef": {"name": "no", "optional": True}}]
    assert environment({"envFrom": sources}, FACTS, _lookup(objects), {}) == {"ok": "1"}
    with pytest.raises(ContainerConfigError, match='configmap "no" not found'):
        environment({"envFrom": [{"configMapRef": {"name": "no"}}]}, FACTS, _lookup({}), {})


def test_all_labels_and_annotations_as_the_downward_api_writes_them() -> None:
    assert field_value("metadata.labels", FACTS) == 'app="a"\nvolcano.sh/task-index="3"'
    assert field_value("metadata.annotations", FACTS) == 'note="say \\"hi\\""'


def test_the_base_environment_is_small_and_has_no_secrets_of_the_agent() -> None:
    values = base_environment({"PATH": "/x", "AWS_SECRET_ACCESS_KEY": "s", "LANG": "C"}, "pod-1")
    assert values == {
        "PATH": "/x",
        "LANG": "C",
        "HOME": "/",
        "TERM": "xterm",
        "HOSTNAME": "pod-1",
        "PYTHONUNBUFFERED": "1",
    }
