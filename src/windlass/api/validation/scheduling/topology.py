"""Validation of single HyperNodes and Topologies. Relations between them are not checked here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import patterns
from windlass.api.validation import names
from windlass.api.validation.collector import Collector
from windlass.api.validation.pods.placement import label_selector

NODE, HYPERNODE = "Node", "HyperNode"
_SELECTORS = ("exactMatch", "regexMatch", "labelMatch")
MOST_LEVELS = 16
HOSTNAME = "kubernetes.io/hostname"
Obj = Mapping[str, Any]


def hypernode(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Volcano's rules: it has members, each selected in exactly one way that can be read."""
    spec = obj.get("spec") or {}
    out.at_least("spec.tier", spec.get("tier"))
    members = spec.get("members") or ()
    if not members:
        out.required("spec.members", "a HyperNode has at least one member")
    for at, member in enumerate(members):
        _member(member, f"spec.members[{at}]", (obj.get("metadata") or {}).get("name", ""), out)


def _member(member: Obj, path: str, own: str, out: Collector) -> None:
    kind, selector = member.get("type", ""), member.get("selector") or {}
    if not out.choice(f"{path}.type", kind, (NODE, HYPERNODE)):
        return
    given = [name for name in _SELECTORS if selector.get(name) is not None]
    if len(given) != 1:
        out.invalid(
            f"{path}.selector",
            ", ".join(given) or "nothing",
            "exactly one of exactMatch, regexMatch and labelMatch says which members are meant",
        )
        return
    match given[0]:
        case "exactMatch":
            name = selector["exactMatch"].get("name", "")
            out.checked(f"{path}.selector.exactMatch.name", name, names.dns_subdomain)
            if kind == HYPERNODE and name and name == own:
                out.invalid(f"{path}.selector.exactMatch.name", name, "a HyperNode is no member of itself")
        case "regexMatch":
            pattern = selector["regexMatch"].get("pattern", "")
            if not pattern:
                out.required(f"{path}.selector.regexMatch.pattern")
                return
            try:
                patterns.compiled(pattern)
            except patterns.PatternError as error:
                out.invalid(
                    f"{path}.selector.regexMatch.pattern",
                    pattern,
                    f"is not a regular expression of Go (RE2): {error}",
                )
        case _:
            if kind != NODE:
                out.forbidden(
                    f"{path}.selector.labelMatch", "only members of type Node are selected by labels"
                )
            label_selector(selector["labelMatch"], f"{path}.selector.labelMatch", out)


def topology(obj: Obj, old: Obj | None, out: Collector) -> None:
    """KAI's rules: 1 to 16 levels of different labels that do not change; the host only as the last one."""
    levels = (obj.get("spec") or {}).get("levels") or ()
    if not 1 <= len(levels) <= MOST_LEVELS:
        out.invalid(
            "spec.levels", len(levels), f"must be from 1 to {MOST_LEVELS} levels, from coarse to fine"
        )
    labels: list[str] = []
    called: set[str] = set()
    for at, level in enumerate(levels):
        path, label, alias = f"spec.levels[{at}]", level.get("nodeLabel", ""), level.get("alias", "")
        out.checked(f"{path}.nodeLabel", label, names.qualified_name)
        if label in labels:
            out.duplicate(f"{path}.nodeLabel", label)
        if label == HOSTNAME and at + 1 < len(levels):
            out.invalid(
                f"{path}.nodeLabel", label, "nothing is finer than a node: it can only be the last level"
            )
        if alias:
            if alias in called:
                out.duplicate(f"{path}.alias", alias)
            called.add(alias)
        labels.append(label)
    before = [level.get("nodeLabel", "") for level in ((old or {}).get("spec") or {}).get("levels") or ()]
    if old is not None and before != labels:
        out.forbidden("spec.levels", "the labels of a Topology do not change (aliases may): make another one")
