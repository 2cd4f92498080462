"""Published manifests of JobSet and Trainer make the pods that their index names, or are refused by field."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jobset_cluster import JobSetWorld
from trainer_cluster import TrainWorld

from windlass.api import defaults
from windlass.api.fields import jobset
from windlass.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    JOB_SETS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    by_kind,
)
from windlass.api.validation import validate
from windlass.api.wire import field_review

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "field" / "manifests"
RUNTIME = "07-runtime-mpi-sft.yaml"
"""Runtime of a TrainJob in another file."""
ABSENT = {"torch-slurm"}
"""Runtimes that no published file has."""
Json = dict[str, Any]


def manifests() -> dict[str, str]:
    """Return path → expected pods, from the index."""
    if not (FOLDER / "INDEX.tsv").exists():
        pytest.skip("needs ../shared/field/manifests")
    with (FOLDER / "INDEX.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return {
        row["file"]: row["expected"]
        for row in rows
        if re.search(r"jobset\.x-k8s\.io|trainer\.kubeflow\.org", row["kinds"])
    }


def documents(name: str) -> list[Json]:
    return [found for found in yaml.safe_load_all((FOLDER / name).read_text()) if found]


def checked(obj: Json) -> tuple[Any, list[str]]:
    """Return the kind of an object, filled in with defaults, and the fields that are wrong."""
    resource = by_kind(obj["apiVersion"], obj["kind"])
    assert resource is not None
    report = field_review.review(resource, obj)
    assert report.unknown == []
    assert report.errors == []
    wrong = [error.field for error in report.invalid]
    if not wrong:
        defaults.apply(resource, obj)
        metadata = obj["metadata"]
        metadata.setdefault("name", f"{metadata.get('generateName', '')}abcde")
        wrong = [error.field for error in validate(resource, obj, None)]
    return resource, wrong


def pods_of(job_set: Json) -> int:
    """Return the number of pods when all replicated jobs run."""
    world = JobSetWorld(
        {**job_set, "metadata": {**job_set["metadata"], "name": "js", "namespace": "default"}}
    )
    pods: dict[str, int] = {}
    gangs: dict[str, int] = {}
    for _ in range(5):
        world.settle()
        gangs |= world.groups()
        for name in world.jobs():
            pods[name] = world.job(name)["spec"].get("parallelism", 1)
            world.run(name)
        for name in world.jobs():
            world.end(name)
    assert sum(gangs.values()) == sum(pods.values())
    assert world.status["terminalState"] == "Completed"
    return sum(pods.values())


def test_job_sets_make_the_pods_of_the_index():
    seen = 0
    for name, expected in manifests().items():
        for obj in documents(name):
            resource, wrong = checked(obj)
            if resource is not JOB_SETS:
                continue
            if "${" in str(obj["metadata"]):
                assert "spec.replicatedJobs[0].template.spec.parallelism" in wrong, name
                continue
            assert wrong == [], name
            count = re.match(r"(\d+) pods?", expected)
            assert count is not None
            assert pods_of(obj) == int(count[1]), name
            seen += 1
    assert seen >= 7


def test_train_jobs_make_the_nodes_of_the_index():
    found = manifests()
    runtimes = [*documents(f"trainer/{RUNTIME}")]
    for name in found:
        runtimes += [obj for obj in documents(name) if obj["kind"].endswith("TrainingRuntime")]
    seen = 0
    for name, expected in found.items():
        for obj in documents(name):
            resource, wrong = checked(obj)
            if resource is not TRAIN_JOBS:
                continue
            assert wrong == [], name
            world = TrainWorld({**obj, "metadata": {"name": "t", "namespace": "default"}})
            for runtime in runtimes:
                kind, errors = checked(yaml.safe_load(yaml.safe_dump(runtime)))
                assert errors == [], runtime["metadata"]["name"]
                space = {"namespace": "default"} if kind is TRAINING_RUNTIMES else {}
                named = {**runtime, "metadata": {**runtime["metadata"], **space}}
                if kind is TRAINING_RUNTIMES or kind is CLUSTER_TRAINING_RUNTIMES:
                    world.api.put(kind, named)
            if obj["spec"]["runtimeRef"]["name"] in ABSENT:
                world.reconcile()
                assert world.state == "CreationFailed"
                continue
            world.settle()
            assert world.job_set is not None, (name, world.status)
            nodes = re.search(r"(\d+) node pods", expected)
            assert nodes is not None, expected
            jobs = {job["name"]: job for job in world.job_set["spec"]["replicatedJobs"]}
            count = jobset.pods_of_job(jobset.job_spec(jobs["node"]))
            if "launcher" in jobs:
                count += 1  # it is a node, too
            assert count == int(nodes[1]), name
            seen += 1
    assert seen >= 4
