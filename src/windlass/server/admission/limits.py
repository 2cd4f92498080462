"""LimitRanges: default requests and limits, and bounds per container, pod and claim.

Rules and messages are those of kube-apiserver's LimitRanger.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from windlass.api import errors, quantities
from windlass.api.quota_usage import exact_amounts
from windlass.api.resources import LIMIT_RANGES, PERSISTENT_VOLUME_CLAIMS, PODS
from windlass.server.admission.plugin import Review

_NOTICE = "kubernetes.io/limit-ranger"
_LIMITED = frozenset((PODS, PERSISTENT_VOLUME_CLAIMS))


def apply(review: Review) -> None:
    if not review.creating or not review.main or review.resource not in _LIMITED:
        return
    ranges = review.objects.list(LIMIT_RANGES, review.namespace)
    if not ranges:
        return
    items = [item for limit_range in ranges for item in (limit_range.get("spec") or {}).get("limits") or ()]
    try:
        if review.resource is PODS:
            for limit_range in ranges:
                _fill_pod(review.object, (limit_range.get("spec") or {}).get("limits") or ())
            problems = _pod_problems(review.object["spec"], items)
        else:
            problems = _claim_problems(review.object.get("spec") or {}, items)
    except quantities.QuantityError:
        return  # reported by validation
    if problems:
        shown = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise errors.forbidden(review.resource, review.name, shown)


def _fill_pod(pod: dict[str, Any], items: Any) -> None:
    defaults: dict[str, str] = {}
    requests: dict[str, str] = {}
    for item in items:
        if item.get("type") == "Container":
            for target, source in ((defaults, "default"), (requests, "defaultRequest")):
                for name, quantity in (item.get(source) or {}).items():
                    target.setdefault(name, quantity)
    if not defaults and not requests:
        return
    changes = []
    for group, label in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(group) or ():
            changes += _fill_container(container, label, defaults, requests)
    if changes:
        annotations = pod.setdefault("metadata", {}).setdefault("annotations", {})
        annotations[_NOTICE] = f"LimitRanger plugin set: {'; '.join(changes)}"


def _fill_container(
    container: dict[str, Any], label: str, defaults: Mapping[str, str], requests: Mapping[str, str]
) -> list[str]:
    changes = []
    amounts = container.setdefault("resources", {})
    for which, source in (("requests", requests), ("limits", defaults)):
        added = sorted(name for name in source if name not in (amounts.get(which) or {}))
        for name in added:
            amounts.setdefault(which, {})[name] = source[name]
        if added:
            kind = "request" if which == "requests" else "limit"
            changes.append(f"{', '.join(added)} {kind} for {label} {container.get('name', '')}")
    return changes


def _pod_problems(spec: Mapping[str, Any], items: list[dict[str, Any]]) -> list[str]:
    problems = []
    for item in items:
        if item.get("type") == "Container":
            for group in ("containers", "initContainers"):
                for container in spec.get(group) or ():
                    amounts = container.get("resources") or {}
                    problems += _bounds(
                        item, _parsed(amounts.get("requests")), _parsed(amounts.get("limits"))
                    )
        elif item.get("type") == "Pod":
            problems += _bounds(item, exact_amounts(spec, "requests"), exact_amounts(spec, "limits"))
    return problems


def _claim_problems(spec: Mapping[str, Any], items: list[dict[str, Any]]) -> list[str]:
    requests = _parsed((spec.get("resources") or {}).get("requests"))
    return [
        problem
        for item in items
        if item.get("type") == "PersistentVolumeClaim"
        for problem in _bounds(item, requests, {}, claim=True)
    ]


def _parsed(amounts: Mapping[str, Any] | None) -> dict[str, Fraction]:
    return {name: quantities.parse(str(text)) for name, text in (amounts or {}).items()}


def _bounds(
    item: Mapping[str, Any],
    requests: Mapping[str, Fraction],
    limits: Mapping[str, Fraction],
    *,
    claim: bool = False,
) -> list[str]:
    problems = []
    kind = item["type"]
    for name, text in sorted((item.get("min") or {}).items()):
        problems.append(_minimum(kind, name, text, requests.get(name), limits.get(name)))
    for name, text in sorted((item.get("max") or {}).items()):
        problems.append(_maximum(kind, name, text, requests.get(name), limits.get(name), claim=claim))
    for name, text in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        problems.append(_ratio(kind, name, text, requests.get(name), limits.get(name)))
    return [problem for problem in problems if problem]


def _minimum(kind: str, name: str, text: str, request: Fraction | None, limit: Fraction | None) -> str:
    bound = quantities.parse(str(text))
    if request is None:
        return f"minimum {name} usage per {kind} is {text}.  No request is specified"
    if request < bound:
        return f"minimum {name} usage per {kind} is {text}, but request is {_shown(name, request)}"
    if limit is not None and limit < bound:
        return f"minimum {name} usage per {kind} is {text}, but limit is {_shown(name, limit)}"
    return ""


def _maximum(
    kind: str, name: str, text: str, request: Fraction | None, limit: Fraction | None, *, claim: bool
) -> str:
    bound = quantities.parse(str(text))
    if claim:
        if request is not None and request > bound:
            return f"maximum {name} usage per {kind} is {text}, but request is {_shown(name, request)}"
        return ""
    if limit is None:
        return f"maximum {name} usage per {kind} is {text}.  No limit is specified"
    if limit > bound:
        return f"maximum {name} usage per {kind} is {text}, but limit is {_shown(name, limit)}"
    if request is not None and request > bound:
        return f"maximum {name} usage per {kind} is {text}, but request is {_shown(name, request)}"
    return ""


def _ratio(kind: str, name: str, text: str, request: Fraction | None, limit: Fraction | None) -> str:
    head = f"{name} max limit to request ratio per {kind} is {text}"
    if not request:
        return f"{head}, but no request is specified or request is 0"
    if not limit:
        return f"{head}, but no limit is specified or limit is 0"
    ratio = limit / request
    return f"{head}, but provided ratio is {float(ratio):.6f}" if ratio > quantities.parse(str(text)) else ""


def _shown(name: str, amount: Fraction) -> str:
    from windlass.api.quota_usage import shown

    return shown(name, amount)
