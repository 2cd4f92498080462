"""HyperNodes and Topologies: every rule refuses, names the field, and says what to do."""

from __future__ import annotations

from typing import Any

import pytest
from field_errors import complaints

from windlass.api.resources import HYPERNODES, KAI_TOPOLOGIES
from windlass.api.validation import validate


def member(kind: str = "Node", **selector: Any) -> dict[str, Any]:
    return {"type": kind, "selector": selector or {"exactMatch": {"name": "n1"}}}


def hypernode(*members: dict[str, Any], tier: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": "h"}, "spec": {"tier": tier, "members": list(members)}}


def topology(*levels: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "t"}, "spec": {"levels": list(levels)}}


def test_good_ones() -> None:
    by_labels = {"matchLabels": {"rack": "r1"}}
    good = hypernode(
        member(),
        member(regexMatch={"pattern": "^gpu-[0-9]+$"}),
        member(labelMatch=by_labels),
        member("HyperNode", exactMatch={"name": "leaf"}),
        tier=0,
    )
    assert complaints(HYPERNODES, good) == {}
    levels = [{"nodeLabel": "zone", "alias": "z"}, {"nodeLabel": "kubernetes.io/hostname"}]
    assert complaints(KAI_TOPOLOGIES, topology(*levels)) == {}


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "no members": (hypernode(), "spec.members", "at least one member"),
    "tier": (hypernode(member(), tier=-1), "spec.tier", "greater than or equal to 0"),
    "type": (hypernode(member("Rack")), "spec.members[0].type", "Unsupported value"),
    "no selector": (
        {"metadata": {"name": "h"}, "spec": {"tier": 1, "members": [{"type": "Node", "selector": {}}]}},
        "spec.members[0].selector",
        "exactly one of",
    ),
    "two selectors": (
        hypernode(member(exactMatch={"name": "a"}, regexMatch={"pattern": "b"})),
        "spec.members[0].selector",
        "exactly one of",
    ),
    "name": (
        hypernode(member(exactMatch={"name": "A b"})),
        "spec.members[0].selector.exactMatch.name",
        "RFC 1123",
    ),
    "itself": (
        hypernode(member("HyperNode", exactMatch={"name": "h"})),
        "spec.members[0].selector.exactMatch.name",
        "no member of itself",
    ),
    "pattern": (
        hypernode(member(regexMatch={"pattern": "("})),
        "spec.members[0].selector.regexMatch.pattern",
        "not a regular expression of Go",
    ),
    "no pattern": (
        hypernode(member(regexMatch={})),
        "spec.members[0].selector.regexMatch.pattern",
        "Required",
    ),
    "labels of HyperNodes": (
        hypernode(member("HyperNode", labelMatch={"matchLabels": {"a": "b"}})),
        "spec.members[0].selector.labelMatch",
        "only members of type Node",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_hypernodes(name: str) -> None:
    body, field, words = BAD[name]
    found = complaints(HYPERNODES, body)
    assert field in found, found
    assert words in found[field]


@pytest.mark.parametrize(
    ("levels", "field", "words"),
    [
        ([], "spec.levels", "at least 1"),
        ([{"nodeLabel": f"l{n}"} for n in range(17)], "spec.levels", "at most 16"),
        ([{"nodeLabel": "a"}, {"nodeLabel": "a"}], "spec.levels[1].nodeLabel", "Duplicate"),
        ([{"nodeLabel": "a b"}], "spec.levels[0].nodeLabel", "name part must consist"),
        (
            [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "a"}],
            "spec.levels[0].nodeLabel",
            "only be the last level",
        ),
        (
            [{"nodeLabel": "a", "alias": "x"}, {"nodeLabel": "b", "alias": "x"}],
            "spec.levels[1].alias",
            "Duplicate",
        ),
    ],
)
def test_bad_topologies(levels: list[dict[str, str]], field: str, words: str) -> None:
    found = complaints(KAI_TOPOLOGIES, topology(*levels))
    assert field in found, found
    assert words in found[field]


def test_labels_of_a_topology_are_immutable_and_aliases_are_not() -> None:
    old = topology({"nodeLabel": "rack", "alias": "r"})
    assert validate(KAI_TOPOLOGIES, topology({"nodeLabel": "rack", "alias": "shelf"}), old) == []
    (error,) = validate(KAI_TOPOLOGIES, topology({"nodeLabel": "row"}), old)
    assert error.field == "spec.levels"
