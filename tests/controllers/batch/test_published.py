"""Published manifests of Jobs and CronJobs make the pods that their index names."""

from __future__ import annotations

import asyncio
import csv
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from batch_cluster import BatchWorld
from fakeapi import FakeApi

from windlass.api import defaults
from windlass.api.fields.batch import CONTROLLER_UID, JOB_NAME, OLD_CONTROLLER_UID, OLD_JOB_NAME
from windlass.api.resources import BATCH_JOBS, CRON_JOBS, PODS, Resource
from windlass.api.validation import validate
from windlass.api.wire import field_review
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.cronjob.controller import CronJobController
from windlass.kits.clock import FakeClock

FOLDER = Path(__file__).resolve().parents[4] / "shared" / "field" / "manifests"
Json = dict[str, Any]


def manifests(kind: str) -> dict[str, str]:
    """Return path → expected pods, from the index."""
    if not (FOLDER / "INDEX.tsv").exists():
        pytest.skip("needs ../shared/field/manifests")
    with (FOLDER / "INDEX.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return {row["file"]: row["expected"] for row in rows if f"batch/v1:{kind}" in row["kinds"].split(",")}


def accepted(resource: Resource, name: str) -> Json:
    """Return the object of this kind as the server stores it."""
    [obj] = [
        found
        for found in yaml.safe_load_all((FOLDER / name).read_text())
        if found and found["kind"] == resource.kind
    ]
    report = field_review.review(resource, obj)
    assert (report.unknown, report.errors, report.invalid) == ([], [], [])
    metadata = obj["metadata"]
    metadata.pop("creationTimestamp", None)
    metadata["name"] = "train"
    metadata.update(namespace="default", uid="u")
    defaults.apply(resource, obj)
    if resource is BATCH_JOBS:
        labels = {CONTROLLER_UID: "u", OLD_CONTROLLER_UID: "u", JOB_NAME: "train", OLD_JOB_NAME: "train"}
        template = obj["spec"]["template"]
        template["metadata"]["labels"] = {**(template["metadata"].get("labels") or {}), **labels}
        obj["spec"]["selector"] = {"matchLabels": {CONTROLLER_UID: "u"}}
    assert [error.field for error in validate(resource, obj, None)] == []
    return obj


def test_jobs_have_the_pods_of_the_index():
    found = manifests("Job")
    assert len(found) >= 7
    for name, expected in found.items():
        obj = accepted(BATCH_JOBS, name)
        wanted = re.search(r"(\d+) pods? at once, (\d+) completion", expected)
        assert wanted is not None, name
        obj["spec"]["suspend"] = False
        world = BatchWorld()
        world.api.remove(BATCH_JOBS, "default/train")
        world.api.put(BATCH_JOBS, obj)
        world.settle()
        pods = world.api.objects(PODS)
        assert (len(pods), obj["spec"]["completions"]) == (int(wanted[1]), int(wanted[2])), name
        if "Indexed" in expected:
            assert sorted(map(BatchWorld.index, pods)) == list(range(len(pods))), name
        queue = (obj["metadata"].get("labels") or {}).get("kueue.x-k8s.io/queue-name")
        if queue:
            notes = pods[0]["metadata"]["annotations"]
            assert notes["scheduling.volcano.sh/queue-name"] == queue, name


def test_cron_jobs_create_their_jobs():
    for name in manifests("CronJob"):
        api = FakeApi(FakeClock())
        api.put(CRON_JOBS, accepted(CRON_JOBS, name))
        api.clock.jump(40 * 86_400)
        controller = CronJobController(api, api.clock)  # type: ignore[arg-type]
        effects = asyncio.run(controller.reconcile("default/train"))
        asyncio.run(EffectExecutor(api).perform(effects))  # type: ignore[arg-type]
        [job] = api.objects(BATCH_JOBS)
        assert job["metadata"]["name"].startswith("train-")
        assert job["spec"]["template"]["spec"]["containers"]
