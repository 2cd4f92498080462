"""AIGCJob of a batch, and what its end means for the batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from windlass.batchapi.jobs import advance, end, job_of
from windlass.batchapi.objects import WINDOW_SECONDS, StoredBatch

BATCH = StoredBatch(
    "batch_1", "/v1/chat/completions", "file-1", 1000, job="ns/batch-1", status="in_progress", total=10
)


def test_workers_reach_a_server_on_the_loopback_of_their_node() -> None:
    def template(url: str) -> object:
        return job_of(BATCH, "ns", "/in", "/out/rows.jsonl", url, {})["spec"].get("template")

    for url in ("http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]:1/v1"):
        assert template(url)["spec"]["hostNetwork"] is True  # type: ignore[index]
    assert template("http://models.example:8000/v1") is None


def test_settings_choose_queue_and_priority() -> None:
    spec = job_of(BATCH, "ns", "/in", "/out", "http://m/v1", {"queue": "night", "priorityClass": "high"})[
        "spec"
    ]
    assert (spec["queue"], spec["priorityClass"], spec["input"]["idField"]) == ("night", "high", "custom_id")
    assert job_of(BATCH, "ns", "/in", "/out", "http://m/v1", {})["spec"]["priorityClass"] == "low"


@pytest.mark.parametrize(
    ("status", "job", "after"),
    [
        ("in_progress", {"status": {"phase": "Running", "items": {"total": 10, "done": 4}}}, "in_progress"),
        ("in_progress", {"status": {"phase": "Succeeded"}}, "finalizing"),
        ("in_progress", {"status": {"phase": "Failed"}}, "finalizing"),
        ("in_progress", None, "failed"),
        ("cancelling", {"status": {"phase": "Running"}}, "cancelling"),
        ("cancelling", None, "finalizing"),
        ("completed", None, "completed"),
    ],
)
def test_a_batch_follows_its_job(status: str, job: dict[str, object] | None, after: str) -> None:
    assert advance(replace(BATCH, status=status), job, 2000).status == after


def test_the_end_counts_what_the_files_have() -> None:
    late = BATCH.created_at + WINDOW_SECONDS
    assert end(BATCH, 9, 1, 2000).status == "completed"
    assert end(BATCH, 5, 0, late).status == "expired"
    assert end(BATCH, 0, 0, 2000).status == "failed"
    assert end(replace(BATCH, cancelling_at=1500), 5, 0, 2000).status == "cancelled"
