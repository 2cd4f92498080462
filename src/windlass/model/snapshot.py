"""A plain dump of a cluster → the deltas that build it. No I/O: for dry runs and explanations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api import views
from windlass.engine.deltas import Delta
from windlass.model.cluster import ClusterModel

EVERY_SCHEDULER = (*names.SCHEDULER_NAMES, views.DEFAULT_SCHEDULER)


class SnapshotError(ValueError):
    """An object of the dump is none: the message names its place and what is missing."""


@dataclass(slots=True)
class Snapshot:
    """``ignored``: kinds that say nothing to a scheduler, with their number."""

    model: ClusterModel
    deltas: list[Delta]
    ignored: dict[str, int]


def from_objects(
    objects: Iterable[Mapping[str, Any]], *, scheduler_names: Collection[str] = EVERY_SCHEDULER
) -> Snapshot:
    """``objects`` with ``apiVersion`` and ``kind``; ``List``s are opened. Raises :class:`SnapshotError`."""
    model = ClusterModel(scheduler_names)
    ignored: dict[str, int] = {}
    for place, obj in _flatten(objects):
        kind = f"{obj.get('apiVersion', '')}/{obj.get('kind', '')}"
        if not _take(model, kind, obj, place):
            ignored[kind] = ignored.get(kind, 0) + 1
    return Snapshot(model, model.take(), ignored)


def _flatten(objects: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for position, obj in enumerate(objects):
        if not isinstance(obj, Mapping):
            raise SnapshotError(f"object {position} is not an object")
        items = obj.get("items")
        if str(obj.get("kind", "")).endswith("List") and isinstance(items, list):
            for index, item in enumerate(items):
                if not isinstance(item, Mapping):
                    raise SnapshotError(f"object {position}: items[{index}] is not an object")
                if "kind" not in item and obj["kind"] != "List":  # typed lists leave it out
                    kind = str(obj["kind"]).removesuffix("List")
                    item = {"apiVersion": obj.get("apiVersion", ""), "kind": kind, **item}
                yield f"object {position}: items[{index}]", item
        else:
            yield f"object {position}", obj


def _take(model: ClusterModel, kind: str, obj: Mapping[str, Any], place: str) -> bool:
    try:
        raw = views.encode(obj)
        match kind:
            case "v1/Pod":
                model.upsert_pod(views.decode_pod(raw))
            case "v1/Node":
                model.upsert_node(views.decode_node(raw))
            case "v1/Namespace":
                model.upsert_namespace(views.decode_namespace(raw))
            case "scheduling.k8s.io/v1/PriorityClass":
                model.upsert_class(views.decode_priority_class(raw))
            case "scheduling.volcano.sh/v1beta1/Queue":
                model.upsert_queue(views.decode_queue(raw))
            case "scheduling.volcano.sh/v1beta1/PodGroup":
                model.upsert_group(views.decode_pod_group(raw))
            case "scheduling.run.ai/v2/Queue":
                model.upsert_kai_queue(views.decode_kai_queue(raw))
            case "scheduling.run.ai/v2alpha2/PodGroup":
                model.upsert_kai_group(views.decode_kai_pod_group(raw))
            case "scheduling.k8s.io/v1alpha1/Workload":
                for group in views.decode_workload(raw):
                    model.upsert_native_group(group)
            case "scheduling.k8s.io/v1alpha2/PodGroup" | "scheduling.k8s.io/v1alpha3/PodGroup":
                model.upsert_native_group(views.decode_native_group(raw))
            case _:
                return False
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise SnapshotError(f"{place} ({kind}): metadata: {error}") from error
    return True
