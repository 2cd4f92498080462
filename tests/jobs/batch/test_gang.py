"""Gang of a Job that a Workload names."""

from __future__ import annotations

from typing import Any

import pytest
from batch_cluster import batch_object

from windlass.jobs.batch.gang import BatchGang, gang_of, group_name
from windlass.jobs.batch.spec import parse_indexes, read_batch_job

INDEXED = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}


def workload(name: str = "w", templates: int = 1) -> dict[str, Any]:
    policy = {"gang": {"minCount": 2}}
    found = [{"name": f"t{index}", "schedulingPolicy": policy} for index in range(templates)]
    return {"metadata": {"name": name, "uid": "uid-w"}, "spec": {"podGroupTemplates": found}}


def gang(*workloads: dict[str, Any], **spec: Any) -> BatchGang | None:
    return gang_of(read_batch_job(batch_object(**spec)), workloads)


def test_group_is_of_the_template():
    found = gang(workload(), **INDEXED)
    assert found is not None
    assert found.group["metadata"]["name"] == found.name == group_name("w", "t0")
    assert found.group["spec"] == {
        "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t0"}},
        "schedulingPolicy": {"gang": {"minCount": 2}},
    }
    assert [owner["kind"] for owner in found.group["metadata"]["ownerReferences"]] == ["Job"]
    assert gang(**INDEXED) is None


def test_job_that_cannot_be_a_gang_is_named():
    for workloads, spec, words in (
        ([workload()], {"parallelism": 3}, "Indexed"),
        ([workload()], {**INDEXED, "parallelism": 2}, "equal completions and parallelism"),
        ([workload(templates=2)], INDEXED, "2 podGroupTemplates"),
        ([workload(), workload("v")], INDEXED, "Workloads w, v"),
    ):
        with pytest.raises(ValueError, match=words):
            gang(*workloads, **spec)


def test_names_are_those_of_kubernetes():
    """FNV-1a of both names, in the letters of generated names."""
    assert group_name("train", "workers").startswith("train-workers-")
    assert len(group_name("a" * 250, "b" * 250)) == 253
    assert group_name("a" * 250, "b").split("-")[1] == "b"


def test_indexes_are_read():
    assert parse_indexes("0,2-4") == [0, 2, 3, 4]
    assert parse_indexes("") == []
