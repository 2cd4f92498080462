"""Pod labels that matter to placement: pod affinity, spread or a policy reads them.

Two pods are in one task class only if no affinity can distinguish them. Most clusters
have no pod affinity at all. Then neither labels nor namespaces split classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from windlass.api.views import PodShape
from windlass.api.views.podshape import LabelSelector, PodAffinityTerm


class Vocabulary:
    """Label keys that were ever selected on or read. Grows only; ``version`` counts its growth."""

    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ()
        self.active = False
        self.version = 0

    def read(self, keys: Iterable[str]) -> None:
        """Add label keys that policies read."""
        known = {*self.keys, *keys}
        if len(known) != len(self.keys):
            self.keys = tuple(sorted(known))
            self.version += 1

    def learn(self, shape: PodShape) -> None:
        """Add the label keys in the terms of a shape."""
        if shape.affinity is None and not shape.spread:
            return
        known = set(self.keys)
        active = self.active
        for term in terms(shape):
            active = True
            known.update(term.mismatch_label_keys or ())
            known.update(_keys(term.label_selector, term.match_label_keys))
        for constraint in shape.spread:
            active = True
            known.update(_keys(constraint.label_selector, constraint.match_label_keys))
        if active != self.active or len(known) != len(self.keys):
            self.keys = tuple(sorted(known))
            self.active = active
            self.version += 1


def terms(shape: PodShape) -> Iterator[PodAffinityTerm]:
    """Yield all pod affinity and anti-affinity terms, required and preferred."""
    if shape.affinity is None:
        return
    for side in (shape.affinity.pod_affinity, shape.affinity.pod_anti_affinity):
        if side is not None:
            yield from side.required or ()
            for preference in side.preferred or ():
                yield preference.pod_affinity_term


def selects_namespaces(shape: PodShape) -> bool:
    """Return whether a term selects namespaces by their labels."""
    return any(term.namespace_selector is not None for term in terms(shape))


def _keys(selector: LabelSelector | None, own: Sequence[str] | None) -> Iterator[str]:
    yield from own or ()
    if selector is not None:
        yield from selector.match_labels or ()
        for expression in selector.match_expressions or ():
            yield expression.key
