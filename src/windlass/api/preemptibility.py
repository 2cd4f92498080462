"""Statements of an object that its pods may, or may not, be evicted for other groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from windlass.api.annotations import PREEMPTABLE

PREEMPTIBILITY_KAI = "kai.scheduler/preemptibility"
TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
"""Texts that Go parses as true."""


class PreemptibilityStatement(NamedTuple):
    """PreemptibilityStatement of one object.

    ``text``: as written, such as ``volcano.sh/preemptable=false``.
    """

    preemptible: bool
    text: str


def statement(labels: Mapping[str, str], annotations: Mapping[str, str]) -> PreemptibilityStatement | None:
    """Return what labels and annotations state; ``None`` if they state nothing.

    Volcano's annotation takes precedence over its label. An unparsable text means
    false. KAI's label can only exclude eviction here.
    """
    text = annotations.get(PREEMPTABLE, labels.get(PREEMPTABLE))
    if text is not None and text not in TRUE:
        return PreemptibilityStatement(False, f"{PREEMPTABLE}={text}")
    if labels.get(PREEMPTIBILITY_KAI) == "non-preemptible":
        return PreemptibilityStatement(False, f"{PREEMPTIBILITY_KAI}=non-preemptible")
    return None if text is None else PreemptibilityStatement(True, f"{PREEMPTABLE}={text}")


class EvictionRule(NamedTuple):
    """Rule that decides whether pods may be evicted for other groups."""

    preemptible: bool
    text: str


Source = tuple[str, Mapping[str, str], Mapping[str, str]]
"""Name, labels and annotations of an object."""


def rule_of(
    pods: Iterable[Source], group: Source | None, priority_class: Source | None
) -> EvictionRule | None:
    """Return the rule for a group's pods; ``None`` if no object states anything.

    A refusal of the pod or of its group protects. Without a statement of either, that
    of the PriorityClass applies.
    """
    own = [*pods, *([group] if group is not None else [])]
    stated = [(name, found) for name, labels, notes in own if (found := statement(labels, notes)) is not None]
    refusals = [entry for entry in stated if not entry[1].preemptible]
    if not stated and priority_class is not None:
        name, labels, notes = priority_class
        found = statement({key: text for key, text in labels.items() if key == PREEMPTABLE}, notes)
        refusals = [(name, found)] if found is not None and not found.preemptible else []
    for name, found in (*refusals, *stated):
        return EvictionRule(found.preemptible, f"{found.text} on {name}")
    return None
