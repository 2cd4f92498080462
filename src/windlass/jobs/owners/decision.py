"""Group of a pod, from its owners: the nearest first, the top owner last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.api import annotations as names
from windlass.jobs.owners import paths
from windlass.jobs.owners.rules import LOOSE, TABLE, OwnerRule
from windlass.jobs.owners.subgroups import Subgroups

Json = Mapping[str, Any]
_QUEUE_LABELS = (names.QUEUE_NAME_LABEL, names.QUEUE_NAME_KAI)
_CLASS_LABELS = ("priorityClassName", "ray.io/priority-class-name")
"""Labels by which KAI and KubeRay name the PriorityClass of a workload."""


@dataclass(frozen=True, slots=True)
class OwnerGroup:
    """Group that pods of one owner share.

    ``owner``: object that owns the group; ``None``: the pod is a group of its own.
    ``suffix``: part of the owner's pods, if it has several groups.
    ``problems``: what was not understood; a default is used instead.
    ``priority_class``, ``queue``: those that the rule names in the owner. They precede the pod's.
    ``owner_class``, ``owner_queue``: those of labels and annotations of the owners, which the
    pod's precede.
    ``rule``: ``table``, ``declared`` or ``default``.
    """

    owner: Json | None
    suffix: str = ""
    min_member: int = 1
    priority_class: str = ""
    queue: str = ""
    tier: int | None = None
    source: str = ""
    problems: tuple[str, ...] = ()
    subgroups: Subgroups = ()
    owner_class: str = ""
    owner_queue: str = ""
    rule: str = "default"

    @property
    def text(self) -> str:
        """Owner, size and origin of the size, for people."""
        assert self.owner is not None
        parts = f"; sub-groups {', '.join(part.text for part in self.subgroups)}" if self.subgroups else ""
        name = f"{self.owner['kind']} {self.owner['metadata']['name']}"
        return f"{name}: minMember {self.min_member} from {self.source}{parts}"

    @property
    def record(self) -> dict[str, Any]:
        """Rule and owner, for programs."""
        assert self.owner is not None
        group = str(self.owner.get("apiVersion", "")).rpartition("/")[0]
        found: dict[str, Any] = {"rule": self.rule, "kind": f"{self.owner['kind']}.{group}".rstrip(".")}
        return {**found, "owner": self.owner["metadata"]["name"], "source": self.source}


def _labelled(owners: Sequence[Json], keys: Sequence[str], part: str) -> str:
    """Return the first of these labels or annotations of the owners, the nearest owner first."""
    for owner in owners:
        values = (owner.get("metadata") or {}).get(part) or {}
        for key in keys:
            if isinstance(values.get(key), str) and values[key]:
                return values[key]
    return ""


def group_of(pod: Json, owners: Sequence[Json], declared: Mapping[tuple[str, str], OwnerRule]) -> OwnerGroup:
    """Return the group of a pod.

    ``owners``: the pod's controller, the controller of that, and so on.
    ``declared``: rules of kinds that are not in the table.
    """
    for owner in reversed(owners):
        rule = rule_of(owner, declared)
        if rule.wrapper:
            continue
        if rule.alone:
            return OwnerGroup(None)
        return replace(
            _read(pod, owner, rule),
            owner_class=_labelled(owners, _CLASS_LABELS, "labels"),
            owner_queue=_labelled(owners, (names.QUEUE_NAME_VOLCANO,), "annotations")
            or _labelled(owners, _QUEUE_LABELS, "labels"),
            rule="declared" if rule.declared else "default" if rule is LOOSE else "table",
        )
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
        rule.subgroups(owner) if least is not None else (),
    )
