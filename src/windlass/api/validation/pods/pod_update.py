"""Allowed changes in an update of a pod: images, a few numbers, additions of tolerations, fewer gates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.validation.collector import Collector

_WORDS = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_FREE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
Obj = Mapping[str, Any]


def pod_update(obj: Obj, old: Obj, out: Collector) -> None:
    new_spec, old_spec = obj.get("spec") or {}, old.get("spec") or {}
    for group in ("containers", "initContainers"):
        if len(new_spec.get(group) or ()) != len(old_spec.get(group) or ()):
            out.forbidden(f"spec.{group}", "pod updates may not add or remove containers")
            return
    _deadline(new_spec, old_spec, out)
    _tolerations(new_spec.get("tolerations") or [], old_spec.get("tolerations") or [], out)
    gated = bool(old_spec.get("schedulingGates"))
    _gates(new_spec, old_spec, out)
    changed = _changed(new_spec, old_spec, gated=gated)
    if changed:
        shown = ", ".join(f"spec.{name}" for name in changed)
        out.forbidden("spec", f"{_WORDS}\nchanged: {shown}")
    if gated:
        _tightened(new_spec, old_spec, out)


def _changed(new: Obj, old: Obj, *, gated: bool) -> list[str]:
    free = (*_FREE, "nodeSelector", "affinity") if gated else _FREE
    found = []
    for name in sorted({*new, *old}):
        if name in free:
            continue
        before: Any = old.get(name)
        after: Any = new.get(name)
        if name in ("containers", "initContainers", "ephemeralContainers"):
            before, after = _without_images(before), _without_images(after)
        if name == "terminationGracePeriodSeconds" and after == 1 and (before or 0) < 0:
            continue
        if before != after:
            found.append(name)
    return found


def _without_images(containers: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in one.items() if k != "image"} for one in containers or ()]


def _deadline(new: Obj, old: Obj, out: Collector) -> None:
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    where = "spec.activeDeadlineSeconds"
    if before is None or before == after:
        return
    if after is None:
        out.invalid(where, None, "must not update from a positive integer to nil value")
    elif after > before:
        out.invalid(where, after, "must be less than or equal to previous value")


def _tolerations(new: list[Obj], old: list[Obj], out: Collector) -> None:
    for before in old:
        same = {k: v for k, v in before.items() if k != "tolerationSeconds"}
        if not any({k: v for k, v in t.items() if k != "tolerationSeconds"} == same for t in new):
            out.forbidden(
                "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
            )
            return


def _gates(new: Obj, old: Obj, out: Collector) -> None:
    known = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        name = gate.get("name")
        if name not in known:
            out.forbidden(
                f"spec.schedulingGates[{index}].name",
                f"only deletion is allowed, but found new scheduling gate '{name}'",
            )


def _tightened(new: Obj, old: Obj, out: Collector) -> None:
    """While gated, node selectors may be added to, not changed."""
    selector = new.get("nodeSelector") or {}
    for key, value in (old.get("nodeSelector") or {}).items():
        if selector.get(key) != value:
            out.invalid(
                "spec.nodeSelector",
                key,
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            )
            return
    old_affinity, affinity = old.get("affinity") or {}, new.get("affinity") or {}
    for side in ("podAffinity", "podAntiAffinity"):
        if old_affinity.get(side) != affinity.get(side):
            out.forbidden(f"spec.affinity.{side}", "field is immutable")
