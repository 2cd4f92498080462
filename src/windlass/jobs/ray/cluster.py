"""Definition of a RayCluster: its head, its groups of workers, its gang."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields.ray import GCS_PORT, HEAD, HEAD_GROUP, WORKER, head_service_name
from windlass.api.quantities import parse
from windlass.jobs.ray.naming import suffix_of

Json = Mapping[str, Any]
_FLAGS = {"cpu": "num-cpus", "memory": "memory"}


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Equal pods of a cluster: the head, or one group of workers.

    ``replicas``: wanted pods; ``minimum``: of them, those without which the gang doesn't start.
    """

    name: str
    type: str
    replicas: int
    minimum: int
    template: Json
    start_parameters: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the Ray nodes, which the pods have as well."""

    @property
    def pod_spec(self) -> Json:
        return self.template.get("spec") or {}

    @property
    def key(self) -> str:
        """Name of its pods in a PodGroup's ``minTaskMember``."""
        return HEAD if self.type == HEAD else self.name


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A RayCluster.

    ``origin``: kind of the object that created it (``RayCluster`` if a user did).
    ``origin_name``: its name, empty if a user created the cluster.
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    head: NodeGroup
    workers: tuple[NodeGroup, ...]
    suspend: bool
    autoscaling: bool
    priority_class: str
    origin: str
    origin_name: str
    ray_version: tuple[int, ...]
    """``rayVersion``; empty if it is not given."""
    autoscaler: Json
    """``autoscalerOptions``."""
    head_service: Json
    """``headService`` with the annotations of ``headServiceAnnotations``."""

    @property
    def groups(self) -> tuple[NodeGroup, ...]:
        return (self.head, *self.workers)

    @property
    def queue(self) -> str:
        """Queue that a label or an annotation names; that of KubeRay's option for Volcano comes first."""
        return (
            self.labels.get(names.QUEUE_NAME_LABEL)
            or self.annotations.get(names.QUEUE_NAME_VOLCANO)
            or self.labels.get(names.QUEUE_NAME_KAI)
            or "default"
        )

    @property
    def min_available(self) -> int:
        return sum(group.minimum for group in self.groups)

    @property
    def head_port(self) -> str:
        return self.head.start_parameters.get("port") or str(GCS_PORT)

    @property
    def head_address(self) -> str:
        """Name at which the workers find the head."""
        return f"{head_service_name(self.name)}.{self.namespace}.svc.cluster.local"

    def slots(self) -> Iterator[tuple[NodeGroup, int, str]]:
        """Yield group, number and pod name of every wanted pod, the head first."""
        for group in self.groups:
            for number in range(group.replicas):
                yield group, number, self.pod_name(group, number)

    def pod_name(self, group: NodeGroup, number: int) -> str:
        """Return a name like KubeRay's, with a suffix that is the same for each look at the slot."""
        middle = HEAD if group.type == HEAD else f"{group.name}-{WORKER}"
        suffix = suffix_of(f"{self.uid}/{group.name}/{number}")
        return f"{self.name}-{middle}"[:57].rstrip("-") + f"-{suffix}"


def read_cluster(obj: Json) -> RayCluster:
    """Return the definition. Raises ``ValueError``, ``TypeError`` or ``KeyError`` for what cannot be read."""
    metadata, spec = obj["metadata"], obj["spec"]
    autoscaling = bool(spec.get("enableInTreeAutoscaling"))
    head = spec["headGroupSpec"]
    labels = metadata.get("labels") or {}
    owners = metadata.get("ownerReferences") or ()
    owner: Json = next((found for found in owners if found.get("controller")), {})
    return RayCluster(
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        labels=labels,
        annotations=metadata.get("annotations") or {},
        head=NodeGroup(
            HEAD_GROUP,
            HEAD,
            1,
            1,
            head.get("template") or {},
            _start_parameters(head),
            _texts(head.get("labels")),
        ),
        workers=tuple(_workers(body, autoscaling) for body in spec.get("workerGroupSpecs") or ()),
        suspend=bool(spec.get("suspend")),
        autoscaling=autoscaling,
        priority_class=labels.get("ray.io/priority-class-name") or "",
        origin=str(owner.get("kind") or "RayCluster"),
        origin_name=str(owner.get("name") or ""),
        ray_version=_version(str(spec.get("rayVersion") or "")),
        autoscaler=spec.get("autoscalerOptions") or {},
        head_service=_head_service(head.get("headService") or {}, spec.get("headServiceAnnotations") or {}),
    )


def _version(text: str) -> tuple[int, ...]:
    """Return the numbers at the beginning of a version; empty for a text that is none, such as ``nightly``."""
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return tuple(int(number) for number in found.groups()) if found is not None else ()


def _head_service(given: Json, annotations: Json) -> Json:
    metadata = given.get("metadata") or {}
    notes = {**(metadata.get("annotations") or {}), **annotations}
    return {**given, "metadata": {**metadata, **({"annotations": notes} if notes else {})}}


def _workers(body: Json, autoscaling: bool) -> NodeGroup:
    hosts = max(1, int(body.get("numOfHosts") or 1))
    low, high = int(body.get("minReplicas") or 0), body.get("maxReplicas")
    wanted = int(body["replicas"] if body.get("replicas") is not None else low)
    wanted = max(wanted, low)
    if high is not None:
        wanted = min(wanted, int(high))
    if body.get("suspend"):
        wanted = low = 0
    minimum = low if autoscaling else wanted
    return NodeGroup(
        body["groupName"],
        WORKER,
        wanted * hosts,
        min(minimum, wanted) * hosts,
        body.get("template") or {},
        _start_parameters(body),
        _texts(body.get("labels")),
    )


def _start_parameters(group: Json) -> dict[str, str]:
    """Return the flags of ``ray start``, with the group's own ``resources`` and ``labels`` in place of its flags."""
    found = _texts(group.get("rayStartParams"))
    own: dict[str, float] = {}
    for name, text in (group.get("resources") or {}).items():
        amount = parse(str(text))
        flag = "num-gpus" if name.lower().endswith("gpu") else _FLAGS.get(name.lower())
        if flag is None:
            own[name] = float(amount)
        else:
            found[flag] = str(math.ceil(amount))
    if own:
        found["resources"] = f"'{json.dumps(own)}'"
    if labels := group.get("labels"):
        found["labels"] = ",".join(f"{key}={labels[key]}" for key in sorted(labels))
    return found


def _texts(parameters: Json | None) -> dict[str, str]:
    return {str(name): str(value) for name, value in (parameters or {}).items()}
