"""Validation of Kubernetes' own PodGroup and Workload (``scheduling.k8s.io``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.validation import names
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.metadata import IMMUTABLE

Obj = Mapping[str, Any]
_MAX_TEMPLATES = 8


def pod_group(obj: Obj, old: Obj | None, out: Collector) -> None:
    _policy(part(part(obj, "spec"), "schedulingPolicy"), "spec.schedulingPolicy", out)
    if old is not None and part(old, "spec") != part(obj, "spec"):
        out.invalid("spec", part(obj, "spec"), IMMUTABLE)


def workload(obj: Obj, old: Obj | None, out: Collector) -> None:
    templates = part(obj, "spec").get("podGroupTemplates") or []
    if not templates:
        out.required("spec.podGroupTemplates", "must have at least one item")
    if len(templates) > _MAX_TEMPLATES:
        out.too_many("spec.podGroupTemplates", len(templates), _MAX_TEMPLATES)
    seen: set[str] = set()
    for index, template in enumerate(templates):
        path, name = f"spec.podGroupTemplates[{index}]", template.get("name") or ""
        out.checked(f"{path}.name", name, names.dns_label)
        if name in seen:
            out.duplicate(path, name)
        seen.add(name)
        _policy(part(template, "schedulingPolicy"), f"{path}.schedulingPolicy", out)
    if old is not None and part(old, "spec").get("podGroupTemplates") != templates:
        out.invalid("spec.podGroupTemplates", templates, IMMUTABLE)


def _policy(policy: Obj, path: str, out: Collector) -> None:
    chosen = [name for name in ("basic", "gang") if policy.get(name) is not None]
    if len(chosen) != 1:
        out.invalid(path, dict(policy), "must specify exactly one of: `basic`, `gang`")
    elif chosen == ["gang"]:
        count = policy["gang"].get("minCount")
        if not isinstance(count, int) or count < 1:
            out.invalid(f"{path}.gang.minCount", count, "must be greater than or equal to 1")
