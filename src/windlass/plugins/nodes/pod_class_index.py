"""Index that finds the task classes which meet a condition on pods, and the reverse.

A condition is a selector with its namespaces. A thousand gangs with anti-affinity to
their own pods are a thousand conditions. So a new class is compared only with
conditions that name one of its labels, and a new condition only with classes that have
one of its values.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from windlass.plugins.nodes.label_masks import describe
from windlass.spi.label_match import labels_match
from windlass.spi.nodes import BoolArray, NodeView
from windlass.spi.objects import Expression, Needs, PodTerm

Condition = tuple[tuple[Expression, ...] | None, tuple[str, ...]]
"""(selector, namespaces). No selector selects no pod."""
Hook = tuple[str, str, str]
"""(namespace, label, value). An empty label stands for any pod of the namespace."""
Item = TypeVar("Item", bound=Hashable)
_FEW = 64


def condition_of(term: PodTerm, needs: Needs) -> Condition:
    return (term.selector, term.namespaces or (needs.namespace,))


def meets(needs: Needs, labels: Mapping[str, str], conditions: Iterable[Condition]) -> bool:
    """Return whether pods of these needs meet all conditions."""
    return all(
        selector is not None and needs.namespace in namespaces and labels_match(selector, labels)
        for selector, namespaces in conditions
    )


def hooks_of(condition: Condition) -> list[Hook]:
    """Return hooks of which every pod that meets the condition has at least one."""
    selector, namespaces = condition
    if selector is None:
        return []
    named = [e for e in selector if e.operator == "In" and e.values]
    if not named:
        return [(namespace, "", "") for namespace in namespaces]
    rarest = min(named, key=lambda e: len(e.values))
    return [(namespace, rarest.key, value) for namespace in namespaces for value in set(rarest.values)]


def carried(needs: Needs) -> list[Hook]:
    """Return the hooks of pods with these needs."""
    return [(needs.namespace, "", ""), *((needs.namespace, key, value) for key, value in needs.labels)]


class HookIndex(Generic[Item]):
    """Items indexed by hook, in the order of insertion."""

    def __init__(self) -> None:
        self._by_hook: dict[Hook, dict[Item, None]] = {}

    def put(self, item: Item, hooks: Iterable[Hook]) -> None:
        for hook in hooks:
            self._by_hook.setdefault(hook, {})[item] = None

    def drop(self, item: Item, hooks: Iterable[Hook]) -> None:
        for hook in hooks:
            items = self._by_hook[hook]
            del items[item]
            if not items:
                del self._by_hook[hook]

    def find(self, hooks: Iterable[Hook]) -> Iterator[Item]:
        """Yield each item with one of the hooks once."""
        items: dict[Item, None] = {}
        for hook in hooks:
            items.update(self._by_hook.get(hook, {}))
        return iter(items)


class ClassLocations:
    """Placed tasks of each class by row, read only when a class that may have any is queried."""

    def __init__(self, newcomer: int, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        self._newcomer = newcomer
        self._placed = placed
        self._known: Mapping[int, Mapping[int, int]] | None = None

    def of(self, number: int) -> Mapping[int, int]:
        """Return row → number of tasks. The class that is just being learned has none."""
        if number == self._newcomer:
            return {}
        if self._known is None:
            self._known = dict(self._placed)
        return self._known.get(number, {})


@dataclass(eq=False, slots=True)
class DomainTally:
    """Number of pods by domain of one topology key. A node without the key is in no domain."""

    key: str
    by_domain: dict[int, int] = field(default_factory=dict)

    def add(self, domain: int, count: int) -> None:
        if not domain:
            return
        left = self.by_domain.get(domain, 0) + count
        if left:
            self.by_domain[domain] = left
        else:
            self.by_domain.pop(domain, None)

    def occupied(self, nodes: NodeView) -> BoolArray | None:
        """Return a mask of the nodes in domains that have such a pod; ``None`` for no node."""
        if not self.by_domain:
            return None
        codes = nodes.label(self.key)
        if len(codes) <= _FEW:
            by_domain = self.by_domain
            return np.array([code in by_domain for code in codes.tolist()], dtype=np.bool_)
        flags = np.zeros(len(nodes.label_values(self.key)), dtype=np.bool_)
        flags[list(self.by_domain)] = True
        return flags[codes]


def selector_text(selector: tuple[Expression, ...] | None) -> str:
    if selector is None:
        return "no pod"
    return ", ".join(describe(expression) for expression in selector) or "any pod"
