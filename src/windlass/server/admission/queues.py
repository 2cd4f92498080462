"""The tree of queues: parents exist, shares fit into those above, and the root stays what it is.

Rules of Volcano's queue webhook (``pkg/webhooks/admission/queues/validate``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from windlass.api import errors, quantities
from windlass.api.defaults.volcano import HIERARCHY
from windlass.api.errors import FieldError
from windlass.api.quota_usage import shown
from windlass.api.resources import QUEUES
from windlass.server.admission.plugin import Review

ROOT = "root"
_FIXED = ("capability", "deserved", "guarantee")


def check(review: Review) -> None:
    if review.resource is not QUEUES or not review.main:
        return
    tree = _Tree(review)
    problems = [*_root(review), *_path(review, tree)]
    if not problems and review.name != ROOT:
        problems = [*_parent(review, tree), *_against_parent(review, tree), *_against_children(review, tree)]
    if problems:
        raise errors.invalid(QUEUES, review.name, problems)


class _Tree:
    """All queues as they will be after this write."""

    def __init__(self, review: Review) -> None:
        self.specs = {q["metadata"]["name"]: q.get("spec") or {} for q in review.objects.list(QUEUES)}
        self.stored = {q["metadata"]["name"]: q for q in review.objects.list(QUEUES)}
        self.specs[review.name] = review.object.get("spec") or {}
        self.stored[review.name] = review.object

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


def amounts(resource_list: Mapping[str, Any] | None) -> dict[str, Fraction]:
    return {name: quantities.parse(str(text)) for name, text in (resource_list or {}).items()}


def _share(spec: Mapping[str, Any], which: str) -> dict[str, Fraction]:
    return amounts((spec.get("guarantee") or {}).get("resource") if which == "guarantee" else spec.get(which))


def _where(which: str, name: str) -> str:
    return f"spec.guarantee.resource[{name}]" if which == "guarantee" else f"spec.{which}[{name}]"


def _root(review: Review) -> Iterable[FieldError]:
    if review.name != ROOT:
        return
    before = ((review.old or {}).get("spec")) or {}
    for which in _FIXED:
        value = (review.object.get("spec") or {}).get(which)
        if (value or None) != (before.get(which) or None):
            yield FieldError.forbidden(
                f"spec.{which}", "root is the whole cluster; set shares on the queues below it"
            )


def _path(review: Review, tree: _Tree) -> Iterable[FieldError]:
    """H-DRF paths: none may be a prefix of another queue's, since work only runs in leaves."""
    own = _hierarchy(review.object)
    if not own:
        return
    for name, queue in tree.stored.items():
        other = _hierarchy(queue)
        if (
            name != review.name
            and other
            and (f"{other}/".startswith(f"{own}/") or f"{own}/".startswith(f"{other}/"))
        ):
            yield FieldError.invalid(
                f"metadata.annotations[{HIERARCHY}]",
                own,
                f"it overlaps with {other} of queue {name}: no path may be a part of another one",
            )


def _hierarchy(queue: Mapping[str, Any]) -> str:
    return ((queue.get("metadata") or {}).get("annotations") or {}).get(HIERARCHY, "")


def _parent(review: Review, tree: _Tree) -> Iterable[FieldError]:
    name, parent = review.name, tree.parent(review.name)
    if parent == ROOT:
        return
    if parent not in tree.specs:
        known = ", ".join(sorted(tree.specs.keys() - {name})) or "none yet"
        yield FieldError(
            "spec.parent",
            f'Not found: "{parent}": the parent queue does not exist: create it first (queues: {known})',
            "FieldValueNotFound",
        )
        return
    chain = tree.ancestors(name)
    if name in chain or not chain or chain[-1] != ROOT:
        yield FieldError.invalid("spec.parent", parent, f"queue {name} would be its own ancestor")
        return
    depth = len(chain)
    if depth > review.options.max_queue_depth:
        yield FieldError.invalid(
            "spec.parent",
            parent,
            f"the queue would lie {depth} levels below root, {review.options.max_queue_depth} are allowed",
        )
    before = ((review.old or {}).get("spec") or {}).get("parent") or ROOT
    if review.old is not None and before == parent:
        return
    status = tree.stored[parent].get("status") or {}
    siblings = [child for child in tree.children(parent) if child != name]
    held = {k: v for k, v in (status.get("allocated") or {}).items() if str(v) not in ("0", "")}
    if held and not siblings:
        yield FieldError.invalid(
            "spec.parent",
            parent,
            f"queue {parent} runs work itself and can have no children: let its work end, or choose another parent",
        )


def _against_parent(review: Review, tree: _Tree) -> Iterable[FieldError]:
    spec, name = tree.specs[review.name], review.name
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


def _sum_of_siblings(tree: _Tree, parent: str, name: str, which: str) -> Iterable[FieldError]:
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


def _nearest(tree: _Tree, name: str, which: str, resource: str) -> tuple[str, Fraction] | None:
    for ancestor in tree.ancestors(name):
        value = _share(tree.specs.get(ancestor, {}), which).get(resource)
        if value is not None:
            return ancestor, value
    return None


def _against_children(review: Review, tree: _Tree) -> Iterable[FieldError]:
    children = tree.children(review.name)
    if not children:
        return
    spec = tree.specs[review.name]
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
