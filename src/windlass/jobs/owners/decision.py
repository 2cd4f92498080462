"""Group of a pod, from its owners: the nearest first, the top owner last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.jobs.owners import paths
from windlass.jobs.owners.rules import LOOSE, TABLE, OwnerRule

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OwnerGroup:
    """Group that pods of one owner share.

    ``owner``: object that owns the group; ``None``: the pod is a group of its own.
    ``suffix``: part of the owner's pods, if it has several groups.
    ``problems``: what was not understood; a default is used instead.
    """

    owner: Json | None
    suffix: str = ""
    min_member: int = 1
    priority_class: str = ""
    queue: str = ""
    tier: int | None = None
    source: str = ""
    problems: tuple[str, ...] = ()


def group_of(pod: Json, owners: Sequence[Json], declared: Mapping[tuple[str, str], OwnerRule]) -> OwnerGroup:
    """Return the group of a pod.

    ``owners``: the pod's controller, the controller of that, and so on.
    ``declared``: rules of kinds that are not in the table.
    """
    for owner in reversed(owners):
        rule = rule_of(owner, declared)
        if rule.wrapper:
            continue
        return OwnerGroup(None) if rule.alone else _read(pod, owner, rule)
    return OwnerGroup(None)


def rule_of(owner: Json, declared: Mapping[tuple[str, str], OwnerRule]) -> OwnerRule:
    """Return the rule of an owner's kind. The table precedes declarations."""
    kind = (str(owner.get("apiVersion", "")).rpartition("/")[0], str(owner.get("kind", "")))
    return TABLE.get(kind) or declared.get(kind) or LOOSE


def _read(pod: Json, owner: Json, rule: OwnerRule) -> OwnerGroup:
    problems: list[str] = []
    least: int | None = None
    tier: int | None = None
    words = {"priority": "", "queue": ""}
    try:
        least = rule.minimum(owner)
        if least is None:
            problems.append(f"{rule.source} has no value: minMember is 1")
    except paths.OwnerPathError as error:
        problems.append(f"{error}: minMember is 1")
    for name, path in (("priority", rule.priority), ("queue", rule.queue)):
        try:
            words[name] = paths.word(owner, path) if path else ""
        except paths.OwnerPathError as error:
            problems.append(f"{error}: it is ignored")
    if rule.tier:
        try:
            tier = paths.total(owner, rule.tier)
        except paths.OwnerPathError as error:
            problems.append(f"{error}: it is ignored")
    labels = (pod.get("metadata") or {}).get("labels") or {}
    return OwnerGroup(
        owner,
        labels.get(rule.label, "") if rule.label else "",
        max(1, least or 1),
        words["priority"],
        words["queue"],
        tier,
        rule.source,
        tuple(problems),
    )
