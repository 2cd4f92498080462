"""Rule of ``podGC``: which ended pods of a workflow are deleted, and when. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.api import selectors
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.nodes.retries import seconds_of

Json = Mapping[str, Any]
ON_POD = ("OnPodCompletion", "OnPodSuccess")
ON_WORKFLOW = ("OnWorkflowCompletion", "OnWorkflowSuccess")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class PodGC:
    """Rule of one workflow. A spec that cannot be read deletes nothing."""

    def __init__(self, spec: Json) -> None:
        rule = spec.get("podGC") or {}
        valid = not any(pod_gc_problems(rule))
        self.strategy = str(rule.get("strategy") or "") if valid else ""
        self.delay = seconds_of(rule.get("deleteDelayDuration") or 0) if valid else 0.0
        self._selector = selectors.from_object(rule.get("labelSelector")) if valid else None

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Return whether pods with these labels are deleted."""
        return self._selector is None or self._selector.matches(labels)


def pod_gc_problems(rule: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield what is wrong with ``podGC``: field, value, message."""
    if not isinstance(rule, Mapping):
        yield "", rule, "strategy, deleteDelayDuration and labelSelector are expected"
        return
    strategy, known = rule.get("strategy"), (*ON_POD, *ON_WORKFLOW)
    if strategy and strategy not in known:
        yield ".strategy", strategy, f"one of {', '.join(known)} is expected"
    if delay := rule.get("deleteDelayDuration"):
        try:
            if seconds_of(delay) < 0:
                yield ".deleteDelayDuration", delay, "a duration of 0 s or more is expected"
        except EvaluationError as problem:
            yield ".deleteDelayDuration", delay, str(problem)
    selector = rule.get("labelSelector")
    if selector is not None and not isinstance(selector, Mapping):
        yield ".labelSelector", selector, "matchLabels and matchExpressions are expected"
        return
    for at, one in enumerate((selector or {}).get("matchExpressions") or ()):
        if not isinstance(one, Mapping) or not one.get("key") or one.get("operator") not in _OPERATORS:
            text = f"key and operator, one of {', '.join(_OPERATORS)}, are expected"
            yield f".labelSelector.matchExpressions[{at}]", one, text
