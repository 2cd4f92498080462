"""Outcome of each published manifest: accepted, refused with the field, or not served; with its pods."""

from __future__ import annotations

import copy
import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from field_pods import FieldPods, pods_of
from memory_admission import Caller, World
from trainer_cluster import BUILT_IN

from windlass.api import annotations, defaults
from windlass.api.errors import StatusError
from windlass.api.resources import (
    ALIASES,
    CLUSTER_TRAINING_RUNTIMES,
    MPI_JOBS,
    NAMESPACES,
    QUEUES,
    TRAINING_RUNTIMES,
    Resource,
    by_kind,
)
from windlass.api.wire import field_review, yaml_text

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "field" / "manifests"
FAMILIES = ("kubeflow", "trainer", "jobset", "leaderworkerset", "ray", "volcano", "kubernetes")
OTHERS = ("kueue", "keda", "kai", "karmada-kurator")
"""Folders of which only the files with a kind of ``EXTRA`` count."""
EXTRA = (
    "batch/v1",
    "apps/v1",
    "kubeflow.org/",
    "jobset.x-k8s.io/",
    "ray.io/",
    "trainer.kubeflow.org/",
    "batch.volcano.sh/",
)
RUNTIME = "trainer/07-runtime-mpi-sft.yaml"
"""Runtime of a TrainJob in another file."""
QUEUES_NAMED = ("test", "test-queue")
"""Queues that Volcano Jobs name and no file has."""
Json = dict[str, Any]


@dataclass
class FieldObject:
    """One object of a file. ``fields``: what is refused; ``unknown``: fields that are told and dropped."""

    kind: str
    expected: str
    served: bool = True
    fields: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)
    pods: FieldPods | None = None

    @property
    def outcome(self) -> str:
        if not self.served:
            return "not served"
        if self.fields:
            return "refused: " + ", ".join(f"`{name}`" for name in self.fields)
        count = len(self.unknown) + len(self.warnings)
        return "accepted" + (f", {count} warning{'s' if count > 1 else ''}" if count else "")


@dataclass
class FieldManifest:
    """One published file, with its row in the index."""

    name: str
    repository: str
    path: str
    commit: str
    edited: bool
    objects: list[FieldObject]


def manifests() -> list[FieldManifest]:
    """Return the files of the job kinds; skips the test by name where the folder is not there."""
    if not (FOLDER / "INDEX.tsv").exists():
        pytest.skip("needs ../shared/field/manifests")
    with (FOLDER / "INDEX.tsv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if _counts(row["file"], row["kinds"])]
    world = _surroundings()
    found = []
    for row in sorted(rows, key=lambda row: row["file"]):
        expected = row["expected"].split(" || ")
        objects = list(_documents(row["file"]))
        assert len(expected) == len(objects), row["file"]
        judged = [_judge(world, obj, text) for obj, text in zip(objects, expected, strict=True)]
        found.append(
            FieldManifest(
                row["file"].removesuffix(".yaml"),
                row["source_repo"],
                row["path"],
                row["commit"],
                row["edited"] == "yes",
                judged,
            )
        )
    return found


def _counts(file: str, kinds: str) -> bool:
    folder = file.split("/")[0]
    return folder in FAMILIES or (
        folder in OTHERS and any(kind.startswith(EXTRA) for kind in kinds.split(","))
    )


def _documents(name: str) -> Iterator[Json]:
    for document, duplicates in yaml_text.load_all((FOLDER / name).read_bytes()):
        if document:
            assert not duplicates, name
            yield document


def _surroundings() -> World:
    """Return the admission of an API server with the queues and runtimes that the manifests name."""
    world = World()
    for name in QUEUES_NAMED:
        queue = {"metadata": {"name": name}, "spec": {}, "status": {"state": "Open"}}
        world.objects.put(QUEUES, queue)
    runtimes = [*copy.deepcopy(list(BUILT_IN.values())), *_documents(RUNTIME)]
    for runtime in runtimes:
        defaults.apply(CLUSTER_TRAINING_RUNTIMES, runtime)
        world.objects.put(CLUSTER_TRAINING_RUNTIMES, runtime)
    return world


def _judge(world: World, obj: Json, expected: str) -> FieldObject:
    kind = f"{obj['apiVersion']} {obj['kind']}"
    shape = by_kind(obj["apiVersion"], obj["kind"])
    if shape is None:
        return FieldObject(kind, expected, served=False)
    resource = ALIASES.get(shape, shape)
    obj["apiVersion"] = resource.api_version
    if resource is MPI_JOBS:  # two versions of one stored kind, as `windlass.server.verbs.create` has it
        notes = obj["metadata"].setdefault("annotations", {})
        notes[annotations.WRITTEN_AS] = shape.version
    report = field_review.review(resource, obj)
    fields = [*report.errors, *(error.field for error in report.invalid)]
    found = FieldObject(kind, expected, True, tuple(fields), tuple(report.unknown))
    if not fields:
        _admit(world, resource, obj, found)
    return found


def _admit(world: World, resource: Resource, obj: Json, found: FieldObject) -> None:
    """Let admission review the object, and derive the pods of an accepted one."""
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        found.fields = ("metadata.resourceVersion",)  # on creation: `windlass.server.object_meta`
        return
    metadata.setdefault("name", f"{metadata.get('generateName', '')}abcde")
    metadata["uid"] = "u"
    namespace = metadata.setdefault("namespace", "default") if resource.namespaced else ""
    if namespace:
        world.objects.put(NAMESPACES, {"metadata": {"name": namespace}})
    try:
        caller = Caller(namespace, metadata["name"])
        reviewed = world.admission.review("CREATE", resource, obj, None, caller)
    except StatusError as error:
        causes = (error.details or {}).get("causes") or [{"field": str(error)}]
        found.fields = tuple(cause["field"] for cause in causes)
        return
    world.objects.put(resource, reviewed.object)
    runtimes = [
        {"apiVersion": kind.api_version, "kind": kind.kind, **runtime}
        for kind in (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES)
        for runtime in world.objects.list(kind)
    ]
    found.warnings = list(reviewed.warnings)
    found.pods = pods_of(resource, reviewed.object, runtimes)
