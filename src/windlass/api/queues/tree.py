"""The tree of queues: what those above and those below leave to a queue, and that the root stays what it is.

Rules of Volcano's queue webhook (``pkg/webhooks/admission/queues/validate``), of queues by their specs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from windlass.api import quantities
from windlass.api.errors import FieldError
from windlass.api.quota_usage import shown

ROOT = "root"
_FIXED = ("capability", "deserved", "guarantee")
Spec = Mapping[str, Any]


class QueueSpecs:
    """``specs``: all queues by name."""

    def __init__(self, specs: Mapping[str, Spec]) -> None:
        self.specs = specs

    def parent(self, name: str) -> str:
        return self.specs.get(name, {}).get("parent") or ROOT

    def children(self, name: str) -> list[str]:
        return sorted(other for other in self.specs if other != ROOT and self.parent(other) == name)

    def ancestors(self, name: str) -> list[str]:
        """From the parent up to the root; stops where the chain is broken or runs in a circle."""
        found: list[str] = []
        at = self.parent(name)
        while at != ROOT and at in self.specs and at not in found:
            found.append(at)
            at = self.parent(at)
        return [*found, ROOT] if at == ROOT else found


def root_changes(before: Spec, after: Spec) -> Iterable[FieldError]:
    """The root's limits, as they were and would be."""
    for which in _FIXED:
        if (after.get(which) or None) != (before.get(which) or None):
            yield FieldError.forbidden(
                f"spec.{which}", "root is the whole cluster; set shares on the queues below it"
            )


def against_parent(tree: QueueSpecs, name: str) -> Iterable[FieldError]:
    """Yield the conflicts of a queue with the queues above it."""
    spec = tree.specs[name]
    for resource, amount in _share(spec, "capability").items():
        above = _nearest(tree, name, "capability", resource)
        if above is not None and amount > above[1]:
            yield FieldError.invalid(
                _where("capability", resource),
                shown(resource, amount),
                f"it is above the capability {shown(resource, above[1])} of {above[0]}, which lies above this queue",
            )
    parent = tree.parent(name)
    if parent == ROOT or parent not in tree.specs:
        return
    for which in ("guarantee", "deserved"):
        yield from _sum_of_siblings(tree, parent, name, which)


def against_children(tree: QueueSpecs, name: str) -> Iterable[FieldError]:
    """Yield the conflicts of a queue with the queues below it."""
    children = tree.children(name)
    if not children:
        return
    spec = tree.specs[name]
    for resource, amount in _share(spec, "capability").items():
        for child in children:
            below = _share(tree.specs[child], "capability").get(resource)
            if below is not None and below > amount:
                yield FieldError.invalid(
                    _where("capability", resource),
                    shown(resource, amount),
                    f"its child {child} may hold {shown(resource, below)}: lower that one first",
                )
    for which in ("guarantee", "deserved"):
        for resource, amount in _share(spec, which).items():
            total = sum(
                (_share(tree.specs[c], which).get(resource, Fraction(0)) for c in children), Fraction(0)
            )
            if total > amount:
                yield FieldError.invalid(
                    _where(which, resource),
                    shown(resource, amount),
                    f"its children have {shown(resource, total)} in sum: lower those first",
                )


def _sum_of_siblings(tree: QueueSpecs, parent: str, name: str, which: str) -> Iterable[FieldError]:
    limit = _share(tree.specs[parent], which)
    own = _share(tree.specs[name], which)
    for resource in own:
        if resource not in limit:
            continue
        total = sum(
            (_share(tree.specs[c], which).get(resource, Fraction(0)) for c in tree.children(parent)),
            Fraction(0),
        )
        if total > limit[resource]:
            yield FieldError.invalid(
                _where(which, resource),
                shown(resource, own[resource]),
                f"the children of {parent} would have {shown(resource, total)} in sum, it has "
                f"{shown(resource, limit[resource])} itself: lower this one or raise {parent}",
            )


def _nearest(tree: QueueSpecs, name: str, which: str, resource: str) -> tuple[str, Fraction] | None:
    for ancestor in tree.ancestors(name):
        value = _share(tree.specs.get(ancestor, {}), which).get(resource)
        if value is not None:
            return ancestor, value
    return None


def _amounts(resource_list: Mapping[str, Any] | None) -> dict[str, Fraction]:
    return {name: quantities.parse(str(text)) for name, text in (resource_list or {}).items()}


def _share(spec: Mapping[str, Any], which: str) -> dict[str, Fraction]:
    return _amounts(
        (spec.get("guarantee") or {}).get("resource") if which == "guarantee" else spec.get(which)
    )


def _where(which: str, name: str) -> str:
    return f"spec.guarantee.resource[{name}]" if which == "guarantee" else f"spec.{which}[{name}]"
