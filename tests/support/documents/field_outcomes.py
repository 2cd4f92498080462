"""Outcome of each published manifest: accepted, refused with the field, or not served; with its pods."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from field_pods import FieldPods, pods_of

from windlass.api import annotations, defaults
from windlass.api.batch_fields import CONTROLLER_UID, JOB_NAME, OLD_CONTROLLER_UID, OLD_JOB_NAME
from windlass.api.resources import ALIASES, BATCH_JOBS, MPI_JOBS, Resource, by_kind
from windlass.api.validation import validate
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
RUNTIMES = (
    "trainer/02-runtime-multi-step.yaml",
    "trainer/03-runtime-volcano-gang.yaml",
    "trainer/07-runtime-mpi-sft.yaml",
)
"""Files with runtimes that the TrainJobs of the folder name."""
Json = dict[str, Any]


@dataclass
class FieldObject:
    """One object of a file. ``fields``: what is refused; ``unknown``: fields that are told and dropped."""

    kind: str
    expected: str
    served: bool = True
    fields: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    pods: FieldPods | None = None

    @property
    def outcome(self) -> str:
        if not self.served:
            return "not served"
        if self.fields:
            return "refused: " + ", ".join(f"`{name}`" for name in self.fields)
        return "accepted" + "".join(f", warning: unknown field `{name}`" for name in self.unknown)


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
    runtimes = [obj for name in RUNTIMES for obj in _documents(name) if "Runtime" in obj["kind"]]
    for runtime in runtimes:
        kind = by_kind(runtime["apiVersion"], runtime["kind"])
        assert kind is not None
        defaults.apply(kind, runtime)
    found = []
    for row in sorted(rows, key=lambda row: row["file"]):
        expected = row["expected"].split(" || ")
        objects = list(_documents(row["file"]))
        assert len(expected) == len(objects), row["file"]
        judged = [_judge(obj, text, runtimes) for obj, text in zip(objects, expected, strict=True)]
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


def _judge(obj: Json, expected: str, runtimes: list[Json]) -> FieldObject:
    kind = f"{obj['apiVersion']} {obj['kind']}"
    resource = by_kind(obj["apiVersion"], obj["kind"])
    if resource is None:
        return FieldObject(kind, expected, served=False)
    stored = ALIASES.get(resource, resource)
    if stored is MPI_JOBS:  # two versions of one stored kind, as `windlass.server.verbs.create` has it
        notes = obj["metadata"].setdefault("annotations", {})
        notes[annotations.WRITTEN_AS] = resource.version
    obj["apiVersion"] = stored.api_version
    resource = stored
    report = field_review.review(resource, obj)
    fields = [*report.errors, *(error.field for error in report.invalid)] or _refused(resource, obj)
    found = FieldObject(kind, expected, True, tuple(fields), tuple(report.unknown))
    if not fields:
        found.pods = pods_of(resource, obj, runtimes)
    return found


def _refused(resource: Resource, obj: Json) -> list[str]:
    """Fill in defaults, as the server does before it validates; return the fields that are wrong."""
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        return ["metadata.resourceVersion"]  # on creation: `windlass.server.object_meta`
    metadata.setdefault("name", f"{metadata.get('generateName', '')}abcde")
    metadata.setdefault("namespace", "default")
    defaults.apply(resource, obj)
    if resource is BATCH_JOBS:
        metadata["uid"] = "u"
        template = obj["spec"]["template"]
        template["metadata"] = dict(template.get("metadata") or {})
        labels = {JOB_NAME: metadata["name"], OLD_JOB_NAME: metadata["name"]}
        labels |= {CONTROLLER_UID: "u", OLD_CONTROLLER_UID: "u"}
        template["metadata"]["labels"] = {**(template["metadata"].get("labels") or {}), **labels}
        obj["spec"]["selector"] = {"matchLabels": {CONTROLLER_UID: "u"}}
    return [error.field for error in validate(resource, obj, None)]
