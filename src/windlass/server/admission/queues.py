"""Checks of the queue tree: existing parents, shares within the parent, a fixed root.

The rules are those of Volcano's queue webhook
(``pkg/webhooks/admission/queues/validate``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api import errors
from windlass.api.defaults.volcano import HIERARCHY
from windlass.api.errors import FieldError
from windlass.api.queues.tree import (
    ROOT,
    QueueSpecs,
    against_children,
    against_parent,
    root_changes,
)
from windlass.api.resources import QUEUES
from windlass.server.admission.plugin import Review

Obj = Mapping[str, Any]


def check(review: Review) -> None:
    if review.resource is not QUEUES or not review.main:
        return
    stored = _as_written(review)
    tree = QueueSpecs({name: queue.get("spec") or {} for name, queue in stored.items()})
    before, after = (review.old or {}).get("spec") or {}, tree.specs[review.name]
    problems = [*(root_changes(before, after) if review.name == ROOT else ()), *_path(review, stored)]
    if not problems and review.name != ROOT:
        problems = [*_parent(review, tree, stored), *against_parent(tree, review.name)]
        problems += against_children(tree, review.name)
    if problems:
        raise errors.invalid(QUEUES, review.name, problems)


def _as_written(review: Review) -> Mapping[str, Obj]:
    """Return all queues by name, as they will be after this write."""
    return {q["metadata"]["name"]: q for q in review.objects.list(QUEUES)} | {review.name: review.object}


def _path(review: Review, stored: Mapping[str, Obj]) -> Iterable[FieldError]:
    """Yield an error if the H-DRF path is a prefix of another queue's path, or the reverse.

    Only leaves of the tree run work.
    """
    own = _hierarchy(review.object)
    if not own:
        return
    for name, queue in stored.items():
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


def _parent(review: Review, tree: QueueSpecs, stored: Mapping[str, Obj]) -> Iterable[FieldError]:
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
    status = stored[parent].get("status") or {}
    siblings = [child for child in tree.children(parent) if child != name]
    held = {k: v for k, v in (status.get("allocated") or {}).items() if str(v) not in ("0", "")}
    if held and not siblings:
        yield FieldError.invalid(
            "spec.parent",
            parent,
            f"queue {parent} runs work itself and can have no children: let its work end, or choose another parent",
        )
