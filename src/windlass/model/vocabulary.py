"""Which pod labels matter to placement: those that some pod's affinity selects on.

Two pods are of one task class only if no affinity can tell them apart. Most clusters have no pod
affinity at all; then neither labels nor namespaces split classes.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.api.views import PodShape
from windlass.api.views.podshape import PodAffinityTerm


class Vocabulary:
    """The label keys that were ever selected on. Grows only; ``version`` counts its growth."""

    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ()
        self.active = False
        self.version = 0

    def learn(self, shape: PodShape) -> None:
        """Take in the terms of a shape."""
        if shape.affinity is None:
            return
        known = set(self.keys)
        active = self.active
        for term in terms(shape):
            active = True
            known.update(_keys(term))
        if active != self.active or len(known) != len(self.keys):
            self.keys = tuple(sorted(known))
            self.active = active
            self.version += 1


def terms(shape: PodShape) -> Iterator[PodAffinityTerm]:
    """All required pod affinity and anti-affinity terms."""
    if shape.affinity is None:
        return
    for side in (shape.affinity.pod_affinity, shape.affinity.pod_anti_affinity):
        if side is not None and side.required:
            yield from side.required


def selects_namespaces(shape: PodShape) -> bool:
    """Whether a term chooses namespaces by their labels."""
    return any(term.namespace_selector is not None for term in terms(shape))


def _keys(term: PodAffinityTerm) -> Iterator[str]:
    yield from term.match_label_keys or ()
    yield from term.mismatch_label_keys or ()
    selector = term.label_selector
    if selector is not None:
        yield from selector.match_labels or ()
        for expression in selector.match_expressions or ():
            yield expression.key
