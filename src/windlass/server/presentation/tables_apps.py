"""Tables of ``apps/v1`` and of scales, with kubectl's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api import selectors
from windlass.server.presentation.tables_common import (
    AGE,
    NAME,
    NONE,
    Obj,
    TableColumn,
    TableOf,
    age_of,
    name_of,
    selector_text,
)

_CONTAINERS = TableColumn("Containers", wide=True, description="Names of the containers of the template.")
_IMAGES = TableColumn("Images", wide=True, description="Images of the containers of the template.")
_SELECTOR = TableColumn("Selector", wide=True, description="Selector of the pods.")


def _spec(obj: Obj) -> Obj:
    return obj.get("spec") or {}


def _status(obj: Obj) -> Obj:
    return obj.get("status") or {}


def _count(obj: Obj, field: str) -> int:
    return int(_status(obj).get(field) or 0)


def _wanted(obj: Obj) -> int:
    replicas = _spec(obj).get("replicas")
    return 1 if replicas is None else int(replicas)


def _template(obj: Obj) -> list[str]:
    """Return names and images of the containers of the pod template."""
    containers: Sequence[Mapping[str, Any]] = ((_spec(obj).get("template") or {}).get("spec") or {}).get(
        "containers"
    ) or ()
    return [",".join(str(one.get(field) or "") for one in containers) for field in ("name", "image")]


def _selector(obj: Obj) -> str:
    found = selectors.from_object(_spec(obj).get("selector"))
    return found.text if found else NONE


def _integer(name: str, description: str) -> TableColumn:
    return TableColumn(name, "integer", description=description)


DEPLOYMENTS = TableOf(
    (
        NAME,
        TableColumn("Ready", description="Number of ready pods of the wanted ones."),
        TableColumn("Up-to-date", description="Number of pods with the current template."),
        TableColumn("Available", description="Number of pods that are ready for minReadySeconds."),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    lambda obj, now: [
        name_of(obj),
        f"{_count(obj, 'readyReplicas')}/{_wanted(obj)}",
        _count(obj, "updatedReplicas"),
        _count(obj, "availableReplicas"),
        age_of(obj, now),
        *_template(obj),
        _selector(obj),
    ],
)
REPLICA_SETS = TableOf(
    (
        NAME,
        _integer("Desired", "Number of wanted pods."),
        _integer("Current", "Number of pods."),
        _integer("Ready", "Number of ready pods."),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    lambda obj, now: [
        name_of(obj),
        _wanted(obj),
        _count(obj, "replicas"),
        _count(obj, "readyReplicas"),
        age_of(obj, now),
        *_template(obj),
        _selector(obj),
    ],
)
STATEFUL_SETS = TableOf(
    (
        NAME,
        TableColumn("Ready", description="Number of ready pods of the wanted ones."),
        AGE,
        _CONTAINERS,
        _IMAGES,
    ),
    lambda obj, now: [
        name_of(obj),
        f"{_count(obj, 'readyReplicas')}/{_wanted(obj)}",
        age_of(obj, now),
        *_template(obj),
    ],
)
DAEMON_SETS = TableOf(
    (
        NAME,
        _integer("Desired", "Number of nodes that should run the pod."),
        _integer("Current", "Number of nodes that run the pod."),
        _integer("Ready", "Number of nodes on which the pod is ready."),
        _integer("Up-to-date", "Number of nodes on which the pod has the current template."),
        _integer("Available", "Number of nodes on which the pod is ready for minReadySeconds."),
        TableColumn("Node Selector", description="Labels of the nodes that run the pod."),
        AGE,
        _CONTAINERS,
        _IMAGES,
        _SELECTOR,
    ),
    lambda obj, now: [
        name_of(obj),
        _count(obj, "desiredNumberScheduled"),
        _count(obj, "currentNumberScheduled"),
        _count(obj, "numberReady"),
        _count(obj, "updatedNumberScheduled"),
        _count(obj, "numberAvailable"),
        selector_text(((_spec(obj).get("template") or {}).get("spec") or {}).get("nodeSelector")),
        age_of(obj, now),
        *_template(obj),
        _selector(obj),
    ],
)


def _controller(obj: Obj) -> str:
    for owner in (obj.get("metadata") or {}).get("ownerReferences") or ():
        if owner.get("controller"):
            group = str(owner.get("apiVersion") or "").rpartition("/")[0]
            kind = str(owner.get("kind") or "").lower()
            return f"{kind}.{group}/{owner.get('name')}" if group else f"{kind}/{owner.get('name')}"
    return NONE


CONTROLLER_REVISIONS = TableOf(
    (
        NAME,
        TableColumn("Controller", description="Object that the revision belongs to."),
        TableColumn("Revision", "integer", description="Number of the revision."),
        AGE,
    ),
    lambda obj, now: [name_of(obj), _controller(obj), obj.get("revision") or 0, age_of(obj, now)],
)
SCALES = TableOf(
    (
        NAME,
        _integer("Desired", "Number of wanted pods."),
        _integer("Available", "Number of pods."),
        AGE,
    ),
    lambda obj, now: [
        name_of(obj),
        _spec(obj).get("replicas") or 0,
        _count(obj, "replicas"),
        age_of(obj, now),
    ],
)
