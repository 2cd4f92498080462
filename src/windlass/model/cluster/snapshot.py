"""A plain dump of a cluster → the model that holds it, and the deltas that build it. No I/O: for dry runs
and explanations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.errors import FieldError
from windlass.engine.deltas import Delta
from windlass.model.cluster.cluster_model import ClusterModel

EVERY_SCHEDULER = (*names.SCHEDULER_NAMES, views.DEFAULT_SCHEDULER)

_Reader = tuple[Callable[[bytes], Any], Callable[[ClusterModel, Any], None]]


def _workload(model: ClusterModel, groups: tuple[views.NativeGroup, ...]) -> None:
    for group in groups:
        model.upsert_native_group(group)


_READERS: Mapping[str, _Reader] = {
    "v1/Pod": (views.decode_pod, ClusterModel.upsert_pod),
    "v1/Node": (views.decode_node, ClusterModel.upsert_node),
    "v1/Namespace": (views.decode_namespace, ClusterModel.upsert_namespace),
    "v1/PersistentVolume": (views.decode_volume, ClusterModel.upsert_storage),
    "v1/PersistentVolumeClaim": (views.decode_persistent_volume_claim, ClusterModel.upsert_storage),
    "storage.k8s.io/v1/StorageClass": (views.decode_storage_class, ClusterModel.upsert_storage),
    "storage.k8s.io/v1/CSINode": (views.decode_csi_node, ClusterModel.upsert_storage),
    "storage.k8s.io/v1/CSIDriver": (views.decode_csi_driver, ClusterModel.upsert_storage),
    "storage.k8s.io/v1/CSIStorageCapacity": (views.decode_storage_capacity, ClusterModel.upsert_storage),
    "resource.k8s.io/v1/DeviceClass": (views.decode_device_class, ClusterModel.upsert_claim),
    "resource.k8s.io/v1/ResourceClaim": (views.decode_device_claim, ClusterModel.upsert_claim),
    "resource.k8s.io/v1/ResourceClaimTemplate": (views.decode_claim_template, ClusterModel.upsert_claim),
    "resource.k8s.io/v1/ResourceSlice": (views.decode_resource_slice, ClusterModel.upsert_claim),
    "policy/v1/PodDisruptionBudget": (views.decode_disruption_budget, ClusterModel.upsert_budget),
    "v1/ResourceQuota": (views.decode_resource_quota, ClusterModel.upsert_quota),
    "scheduling.k8s.io/v1/PriorityClass": (views.decode_priority_class, ClusterModel.upsert_class),
    "scheduling.volcano.sh/v1beta1/Queue": (views.decode_queue, ClusterModel.upsert_queue),
    "scheduling.volcano.sh/v1beta1/PodGroup": (views.decode_pod_group, ClusterModel.upsert_group),
    "scheduling.run.ai/v2/Queue": (views.decode_kai_queue, ClusterModel.upsert_kai_queue),
    "scheduling.run.ai/v2alpha2/PodGroup": (views.decode_kai_pod_group, ClusterModel.upsert_kai_group),
    "scheduling.x-k8s.io/v1alpha1/PodGroup": (
        views.decode_coscheduling_group,
        ClusterModel.upsert_coscheduling_group,
    ),
    "topology.volcano.sh/v1alpha1/HyperNode": (views.decode_hypernode, ClusterModel.upsert_topology),
    "kai.scheduler/v1alpha1/Topology": (views.decode_topology, ClusterModel.upsert_topology),
    "nodeinfo.volcano.sh/v1alpha1/Numatopology": (views.decode_numatopology, ClusterModel.upsert_zones),
    "topology.node.k8s.io/v1alpha1/NodeResourceTopology": (
        views.decode_node_resource_topology,
        ClusterModel.upsert_zones,
    ),
    "topology.node.k8s.io/v1alpha2/NodeResourceTopology": (
        views.decode_node_resource_topology,
        ClusterModel.upsert_zones,
    ),
    "scheduling.k8s.io/v1alpha1/Workload": (views.decode_workload, _workload),
    "scheduling.k8s.io/v1alpha2/PodGroup": (views.decode_native_group, ClusterModel.upsert_native_group),
    "scheduling.k8s.io/v1alpha3/PodGroup": (views.decode_native_group, ClusterModel.upsert_native_group),
}
KINDS = tuple(_READERS)
"""``apiVersion/kind`` of all that is read."""
_POD, _QUOTA, _JOB = "v1/Pod", "v1/ResourceQuota", "batch.volcano.sh/v1alpha1/Job"
_QUIET = (_QUOTA, "v1/LimitRange", _JOB)
"""Known kinds that say nothing about what is placed: defaults were filled in when the work was made, its pods are what
there is of a Job."""


class SnapshotError(ValueError):
    """An object of the dump is none: ``place`` says which, ``field`` where in it."""

    def __init__(self, place: str, problem: str, field: str = "") -> None:
        super().__init__(f"{place}: {field}: {problem}" if field else f"{place}: {problem}")
        self.place = place
        self.problem = problem
        self.field = field


@dataclass(slots=True)
class Snapshot:
    """``ignored``: kinds that say nothing to a scheduler, with their number."""

    model: ClusterModel
    deltas: list[Delta] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)


def from_objects(objects: Iterable[Mapping[str, Any]]) -> Snapshot:
    """``objects`` with ``apiVersion`` and ``kind``; ``List``s are opened. Raises :class:`SnapshotError`."""
    model = ClusterModel(EVERY_SCHEDULER)
    placed = ((f"object {position}", obj) for position, obj in enumerate(objects))
    ignored = load(model, placed)
    return Snapshot(model, model.take(), ignored)


@dataclass(slots=True)
class Counted:
    """Raw objects that quotas are counted by, and the Volcano Jobs."""

    quotas: list[Mapping[str, Any]] = field(default_factory=list)
    pods: list[Mapping[str, Any]] = field(default_factory=list)
    jobs: list[Mapping[str, Any]] = field(default_factory=list)

    def note(self, kind: str, obj: Mapping[str, Any]) -> None:
        if kind == _QUOTA:
            self.quotas.append(obj)
        elif kind == _POD:
            self.pods.append(obj)
        elif kind == _JOB:
            self.jobs.append(obj)


def load(
    model: ClusterModel,
    objects: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    strict: bool = False,
    counted: Counted | None = None,
) -> dict[str, int]:
    """Enter objects, each with the words for its place, into ``model``; returns the kinds that were ignored.

    ``strict``: a field that cannot be read is an error; otherwise what it says is unknown, and whatever
    waits because of that says so. ``counted`` collects what quotas are counted by, and Jobs. Raises
    :class:`SnapshotError`.
    """
    ignored: dict[str, int] = {}
    for place, obj in _flatten(objects):
        kind = f"{obj.get('apiVersion', '')}/{obj.get('kind', '')}"
        reader = _READERS.get(kind)
        if counted is not None:
            counted.note(kind, obj)
        if reader is not None:
            _take(model, reader, obj, f"{place} ({kind})", strict)
        elif kind not in _QUIET:
            ignored[kind] = ignored.get(kind, 0) + 1
    return ignored


def _flatten(objects: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for place, obj in objects:
        if not isinstance(obj, Mapping):
            raise SnapshotError(place, "is not an object")
        items = obj.get("items")
        if str(obj.get("kind", "")).endswith("List") and isinstance(items, list):
            for index, item in enumerate(items):
                if not isinstance(item, Mapping):
                    raise SnapshotError(f"{place}: items[{index}]", "is not an object")
                if "kind" not in item and obj["kind"] != "List":  # typed lists leave it out
                    kind = str(obj["kind"]).removesuffix("List")
                    item = {"apiVersion": obj.get("apiVersion", ""), "kind": kind, **item}
                yield f"{place}: items[{index}]", item
        else:
            yield place, obj


def _take(model: ClusterModel, reader: _Reader, obj: Mapping[str, Any], place: str, strict: bool) -> None:
    decode, enter = reader
    try:
        view = decode(views.encode(obj))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise SnapshotError(place, str(error), "metadata") from error
    problems = _problems(view) if strict else ()
    if problems:
        metadata = obj["metadata"]
        name = "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
        raise SnapshotError(f"{place} {name}", problems[0].message, problems[0].field)
    enter(model, view)


def _problems(view: Any) -> tuple[FieldError, ...]:
    if isinstance(view, tuple):
        return tuple(problem for part in view for problem in part.problems)
    return getattr(view, "problems", ())
