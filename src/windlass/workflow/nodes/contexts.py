"""Contexts of the items of a loop over segments of media (``contextCache`` of a step or task)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.media.assembly import assemble, cut
from windlass.api.media.segments import MediaTimeError, Segment, SegmentIndex, times_of
from windlass.kits import durations
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.nodes import loops

FIELD = "contextCache"
FIELDS = frozenset(("enabled", "mode", "window", "key"))
DEFAULT_WINDOW = 30.0
"""Default of ``window``: media time before the start of a segment (seconds)."""
DEFAULT_KEY = "stream"
OVERLAP, OUTPUT = "Overlap", "Output"
Json = Mapping[str, Any]


class SegmentItem(dict[str, Any]):
    """Item of a loop with its place in it. Its context is no part of it, nor of its node's name."""

    def __init__(self, place: int, item: Json) -> None:
        super().__init__(item)
        self.place = place


@dataclass(frozen=True, slots=True)
class LoopContexts:
    """Contexts of the items of one loop."""

    index: SegmentIndex
    items: Sequence[Json]

    def values_of(self, item: SegmentItem) -> dict[str, Any]:
        """Return what ``{{item.context}}`` and ``{{item.context.KEY}}`` stand for."""
        index, place = self.index, item.place
        low = index.range(place)[0]
        rows = [
            cut(self.items[one], low, index.segment(one).start, index.end(one)) for one in index.before(place)
        ]
        context = assemble(index.segment(place).stream, OVERLAP, index.range(place), rows)
        return {
            "item.context": context,
            **{f"item.context.{name}": value for name, value in context.items()},
        }


def rule_of(task: Json) -> Json | None:
    """Return the rule of a step or task; ``None`` if its items get no context."""
    rule = task.get(FIELD)
    return rule if isinstance(rule, Mapping) and rule.get("enabled", True) is not False else None


def window_of(rule: Json) -> float:
    """Return the window in seconds. Raises ``ValueError``."""
    value = rule.get("window", DEFAULT_WINDOW)
    seconds = durations.parse(value) if isinstance(value, str) else float(value)
    if seconds <= 0:
        raise ValueError("it must be more than 0 s of media time")
    return seconds


def contexts_of(task: Json, items: Sequence[Any]) -> LoopContexts | None:
    """Return the contexts of a loop. Raises :class:`EvaluationError` for items that are no segments."""
    rule = rule_of(task)
    if rule is None:
        return None
    key = str(rule.get("key") or DEFAULT_KEY)
    segments = [_segment(place, item, key) for place, item in enumerate(items)]
    return LoopContexts(SegmentIndex(segments, window_of(rule)), items)


def _segment(place: int, item: Any, key: str) -> Segment:
    if not isinstance(item, Mapping):
        raise EvaluationError(
            f"contextCache: item {place} is {str(item)[:40]!r}: each item must be an object with start and end"
        )
    try:
        start, end = times_of(item)
    except MediaTimeError as problem:
        raise EvaluationError(f"contextCache: item {place}: {problem}") from None
    if key != DEFAULT_KEY and key not in item:
        raise EvaluationError(
            f"contextCache: item {place} has no field {key!r}, which contextCache.key names"
        )
    return Segment(place, str(item.get("id", place)), str(item.get(key, "default")), start, end)


def problems(task: Json) -> Iterator[tuple[str, Any, str]]:
    """Yield field, value and message of what is wrong with the rule of a step or task."""
    rule = task.get(FIELD)
    if rule is None:
        return
    if not isinstance(rule, Mapping):
        yield FIELD, rule, "an object is needed, for example {window: 30s}"
        return
    if not loops.is_loop(task):
        yield FIELD, dict(rule), "the task has no loop over segments: add withParam"
    mode = rule.get("mode", OVERLAP)
    if mode == OUTPUT:
        why = "items of a loop run in parallel: for a chain of results use an AIGCJob in a job template"
        yield f"{FIELD}.mode", mode, why
    elif mode != OVERLAP:
        yield f"{FIELD}.mode", mode, "Overlap is needed"
    try:
        window_of(rule)
    except (TypeError, ValueError) as problem:
        yield f"{FIELD}.window", rule.get("window"), f"a duration such as 30s is needed: {problem}"
    for name in sorted(set(rule) - FIELDS):
        yield f"{FIELD}.{name}", rule[name], f"the fields are {', '.join(sorted(FIELDS))}"
