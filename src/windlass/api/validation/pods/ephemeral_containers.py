"""Ephemeral containers, which are added to a running pod and then never changed.

As ``ValidatePodEphemeralContainersUpdate`` of Kubernetes judges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.errors import FieldError
from windlass.api.validation.collector import Collector
from windlass.api.validation.pods.containers import PodReferences, common

_PATH = "spec.ephemeralContainers"
_NOT_SERVED = ("lifecycle", "livenessProbe", "ports", "readinessProbe", "resizePolicy", "startupProbe")
Obj = Mapping[str, Any]


def added(obj: Obj, old: Obj, out: Collector) -> None:
    """Check the ephemeral containers of ``obj`` and compare them with those of ``old``."""
    spec = obj.get("spec") or {}
    listed = spec.get("ephemeralContainers") or ()
    references = PodReferences(
        frozenset(volume.get("name", "") for volume in spec.get("volumes") or ()),
        (),
        bool(spec.get("hostNetwork")),
    )
    others = [one["name"] for group in ("containers", "initContainers") for one in spec.get(group) or ()]
    seen = set(others)
    for index, one in enumerate(listed):
        _container(one, f"{_PATH}[{index}]", others, seen, references, out)
    by_name = {one.get("name"): one for one in listed}
    for index, before in enumerate((old.get("spec") or {}).get("ephemeralContainers") or ()):
        after = by_name.get(before["name"])
        if after is None:
            out.forbidden(_PATH, f'existing ephemeral containers "{before["name"]}" may not be removed')
        elif after != before:
            out.forbidden(
                f"{_PATH}[{index}]", f'existing ephemeral containers "{before["name"]}" may not be changed'
            )


def _container(
    one: Obj, where: str, others: list[str], seen: set[str], references: PodReferences, out: Collector
) -> None:
    common(one, where, references, out)
    name = one.get("name", "")
    if name in seen:
        out.duplicate(f"{where}.name", name)
    seen.add(name)
    target = one.get("targetContainerName")
    if target and target not in others:
        out.add(FieldError.not_found(f"{where}.targetContainerName", target))
    for field in _NOT_SERVED:
        if one.get(field):
            out.forbidden(f"{where}.{field}", "cannot be set for an Ephemeral Container")
    if one.get("restartPolicy") is not None:
        out.forbidden(f"{where}.restartPolicy", "cannot be set for an Ephemeral Container")
    resources = one.get("resources") or {}
    if any(resources.get(part) for part in ("claims", "limits", "requests")):
        out.forbidden(f"{where}.resources", "cannot be set for an Ephemeral Container")
    for index, mount in enumerate(one.get("volumeMounts") or ()):
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                out.forbidden(
                    f"{where}.volumeMounts[{index}].{field}", "cannot be set for an Ephemeral Container"
                )
