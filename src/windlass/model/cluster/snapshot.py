"""Model and deltas from a dump of a cluster, for dry runs and explanations. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.errors import FieldError
from windlass.engine.deltas import Delta
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.kinds import BY_NAME, Kind

EVERY_SCHEDULER = (*names.SCHEDULER_NAMES, views.DEFAULT_SCHEDULER)

KINDS = tuple(BY_NAME)
"""``apiVersion/kind`` of all kinds that are read."""
_POD, _QUOTA, _JOB = "v1/Pod", "v1/ResourceQuota", "batch.volcano.sh/v1alpha1/Job"
_QUIET = (_QUOTA, "v1/LimitRange", _JOB)
"""Known kinds without influence on placement.

Defaults were filled in when the workload was created. A Job is represented by its pods.
"""


class SnapshotError(ValueError):
    """Invalid object in the dump. ``place``: its position. ``field``: the field in it."""

    def __init__(self, place: str, problem: str, field: str = "") -> None:
        super().__init__(f"{place}: {field}: {problem}" if field else f"{place}: {problem}")
        self.place = place
        self.problem = problem
        self.field = field


@dataclass(slots=True)
class Snapshot:
    """Model of a dump. ``ignored``: kinds that are not read, with the number of their objects."""

    model: ClusterModel
    deltas: list[Delta] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)


def from_objects(objects: Iterable[Mapping[str, Any]]) -> Snapshot:
    """Return the snapshot of ``objects`` with ``apiVersion`` and ``kind``.

    ``List``s are expanded.

    Raises :class:`SnapshotError`.
    """
    model = ClusterModel(EVERY_SCHEDULER)
    placed = ((f"object {position}", obj) for position, obj in enumerate(objects))
    ignored = load(model, placed)
    return Snapshot(model, model.take(), ignored)


@dataclass(slots=True)
class Counted:
    """Raw objects that quotas count, and the Volcano Jobs.

    ``repeated``: a sentence for each object that occurs again with other content. The last
    one counts, as after ``kubectl apply`` of the file.
    """

    repeated: list[str] = field(default_factory=list)
    _last: dict[tuple[str, ...], tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Object → its last place and content."""

    @property
    def quotas(self) -> list[Mapping[str, Any]]:
        return self._of(_QUOTA)

    @property
    def pods(self) -> list[Mapping[str, Any]]:
        return self._of(_POD)

    @property
    def jobs(self) -> list[Mapping[str, Any]]:
        return self._of(_JOB)

    def note(self, kind: str, place: str, obj: Mapping[str, Any]) -> None:
        metadata = obj.get("metadata")
        if not isinstance(metadata, Mapping):
            return
        key = (kind, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
        before = self._last.get(key)
        if before is not None and before[1] != obj:
            name = "/".join(filter(None, key[1:]))
            self.repeated.append(f"{place} ({kind}) {name} replaces {before[0]}: the last one counts")
        self._last[key] = (place, obj)

    def _of(self, kind: str) -> list[Mapping[str, Any]]:
        return [obj for key, (_, obj) in self._last.items() if key[0] == kind]


def load(
    model: ClusterModel,
    objects: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    strict: bool = False,
    counted: Counted | None = None,
) -> dict[str, int]:
    """Add objects to ``model``, each with a text for its position. Return the ignored kinds.

    ``strict``: an unreadable field is an error. Otherwise its value is unknown, and
        whatever waits because of that is explained.
    ``counted``: collects the objects that quotas count, and Jobs.

    Raises :class:`SnapshotError`.
    """
    ignored: dict[str, int] = {}
    for place, obj in _flatten(objects):
        kind = f"{obj.get('apiVersion', '')}/{obj.get('kind', '')}"
        reader = BY_NAME.get(kind)
        if counted is not None:
            counted.note(kind, place, obj)
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
                if "kind" not in item and obj["kind"] != "List":  # items of typed lists lack it
                    kind = str(obj["kind"]).removesuffix("List")
                    item = {"apiVersion": obj.get("apiVersion", ""), "kind": kind, **item}
                yield f"{place}: items[{index}]", item
        else:
            yield place, obj


def _take(model: ClusterModel, reader: Kind, obj: Mapping[str, Any], place: str, strict: bool) -> None:
    try:
        view = reader.decode(views.encode(obj))
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise SnapshotError(place, str(error), "metadata") from error
    problems = _problems(view) if strict else ()
    if problems:
        metadata = obj["metadata"]
        name = "/".join(filter(None, (metadata.get("namespace"), metadata.get("name"))))
        raise SnapshotError(f"{place} {name}", problems[0].message, problems[0].field)
    reader.upsert(model, view)


def _problems(view: Any) -> tuple[FieldError, ...]:
    if isinstance(view, tuple):
        return tuple(problem for part in view for problem in part.problems)
    return getattr(view, "problems", ())
