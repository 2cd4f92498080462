"""Scale of an object: where a kind holds its replicas and its pods' selector.

Built-in kinds hold them at fixed paths. A CustomResourceDefinition declares its own
under ``subresources.scale``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from windlass.api import selectors
from windlass.api.resources import Resource
from windlass.api.wire import schema_crd

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Field names from the object to its replicas.

    ``wanted``: path of the replicas in ``spec``; ``present``: of those in ``status``.
    ``selector``: path of the pods' selector, as a text, or as an object of built-in
    kinds; empty if the kind has none.
    """

    wanted: tuple[str, ...]
    present: tuple[str, ...]
    selector: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        """Return the path of the wanted replicas as ``.spec.replicas``."""
        return "".join(f".{name}" for name in self.wanted)


_BUILT_IN = ScalePaths(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))


@lru_cache(maxsize=1024)
def scale_paths(resource: Resource) -> ScalePaths | None:
    """Return the paths of a kind; ``None`` if it has no scale."""
    if "scale" not in resource.subresources:
        return None
    if not resource.custom:
        return _BUILT_IN
    if resource.definition is not None:
        return resource.definition.scale
    declared = schema_crd.subresources(resource.group, resource.version, resource.kind).get("scale")
    return paths_of(declared) if declared else None


def paths_of(declared: Mapping[str, Any]) -> ScalePaths:
    """Return the paths that ``subresources.scale`` of a CustomResourceDefinition declares."""
    wanted, present, selector = (
        tuple(name for name in str(declared.get(field) or "").split(".") if name)
        for field in ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
    )
    return ScalePaths(wanted, present, selector)


def lookup(obj: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value at a path; ``None`` if there is none."""
    value: Any = obj
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if path else None


def replicas_of(obj: Mapping[str, Any], paths: ScalePaths) -> int | None:
    """Return the wanted replicas; ``None`` if the object has no such field."""
    value = lookup(obj, paths.wanted)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def with_replicas(obj: Json, paths: ScalePaths, replicas: int) -> Json:
    """Return a copy of the object with other wanted replicas. Missing parents are created."""
    changed: Json = {**obj}
    inner = changed
    for name in paths.wanted[:-1]:
        present = inner.get(name)
        inner[name] = {**present} if isinstance(present, Mapping) else {}
        inner = inner[name]
    inner[paths.wanted[-1]] = replicas
    return changed


def scale_of(obj: Mapping[str, Any], paths: ScalePaths) -> Json:
    """Return the ``autoscaling/v1`` Scale of an object."""
    metadata = obj["metadata"]
    status: Json = {"replicas": lookup(obj, paths.present) or 0}
    selector = selector_text(lookup(obj, paths.selector))
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            name: metadata[name]
            for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if metadata.get(name)
        },
        "spec": {"replicas": replicas_of(obj, paths) or 0},
        "status": status,
    }


def selector_text(selector: Any) -> str:
    """Return a selector as the text of a list request: ``app=web,tier in (a,b)``."""
    if isinstance(selector, str):
        return selector
    found = selectors.from_object(selector) if isinstance(selector, Mapping) else None
    return found.text if found else ""
