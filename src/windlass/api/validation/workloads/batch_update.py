"""Fields of a ``batch/v1`` Job that may change, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.validation.collector import Collector, part
from windlass.api.validation.metadata import IMMUTABLE
from windlass.api.wire import patch_types

Obj = Mapping[str, Any]
_IMMUTABLE = (
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)
_DIRECTIVES = ("nodeSelector", "tolerations", "schedulingGates")


def job_update(spec: Obj, old: Obj, out: Collector) -> None:
    """Check an update. The template may change in part while the Job is suspended without pods."""
    before = part(old, "spec")
    _completions(spec, before, out)
    _same("spec.selector", spec.get("selector"), before.get("selector"), out)
    _template(part(spec, "template"), old, out)
    for field in _IMMUTABLE:
        _same(f"spec.{field}", spec.get(field), before.get(field), out)


def _same(path: str, new: Any, old: Any, out: Collector) -> None:
    if _bare(new) != _bare(old):
        out.invalid(path, new, IMMUTABLE)


def _bare(value: Any) -> Any:
    """Return a value without empty fields, which mean the same as absent ones."""
    if isinstance(value, Mapping):
        found = {name: _bare(inner) for name, inner in value.items()}
        return {name: inner for name, inner in found.items() if inner not in (None, {}, [])} or None
    if isinstance(value, list):
        return [_bare(inner) for inner in value]
    return value


def _completions(spec: Obj, before: Obj, out: Collector) -> None:
    if spec.get("completionMode") != "Indexed":
        _same("spec.completions", spec.get("completions"), before.get("completions"), out)
        return
    wanted = spec.get("completions")
    if wanted is None or wanted == before.get("completions") or wanted == spec.get("parallelism"):
        return
    out.invalid("spec.completions", wanted, "can only be modified in tandem with spec.parallelism")


def _template(template: Obj, old: Obj, out: Collector) -> None:
    before = part(part(old, "spec"), "template")
    if not _may_change(old):
        _same("spec.template", template, before, out)
        return
    allowed = patch_types.copy(dict(before))
    _allow_directives(template, allowed)
    _allow_resources(template, allowed)
    _same("spec.template.spec", template.get("spec"), allowed.get("spec"), out)


def _may_change(old: Obj) -> bool:
    """Return whether the Job is suspended, and was never started or has no pods any more."""
    status = part(old, "status")
    conditions = status.get("conditions") or ()
    suspended = any(
        found.get("type") == "Suspended" and found.get("status") == "True" for found in conditions
    )
    idle = not status.get("active") and (not status.get("startTime") or suspended)
    return bool(part(old, "spec").get("suspend")) and idle


def _allow_directives(template: Obj, allowed: dict[str, Any]) -> None:
    """Take over what decides where pods run."""
    spec, target = part(template, "spec"), allowed.setdefault("spec", {})
    for field in _DIRECTIVES:
        target[field] = spec.get(field)
    affinity = {**(target.get("affinity") or {}), "nodeAffinity": part(spec, "affinity").get("nodeAffinity")}
    target["affinity"] = affinity


def _allow_resources(template: Obj, allowed: dict[str, Any]) -> None:
    for field in ("containers", "initContainers"):
        new, old = part(template, "spec").get(field) or [], allowed["spec"].get(field) or []
        if len(new) != len(old):
            continue
        for mine, theirs in zip(new, old, strict=True):
            if mine.get("name") == theirs.get("name"):
                theirs["resources"] = mine.get("resources")
