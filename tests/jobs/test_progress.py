"""Progress records: reports that programs send, and where each kind of job keeps them."""

from __future__ import annotations

import pytest

from windlass.api import annotations as names
from windlass.jobs.progress import ProgressRecord, ReportError, parse_report, progress_patch, read_progress

NOW = "2026-03-01T10:00:00Z"
FULL = {
    "progressPercentage": 42,
    "estimatedRemainingSeconds": 90,
    "metrics": [{"name": "loss", "value": "0.25"}],
    "lastUpdatedTime": "2026-03-01T09:59:58Z",
}


def test_a_report_is_read_back_from_each_kind_of_job():
    record = parse_report({"trainerStatus": FULL}, NOW)
    assert record is not None
    assert record == ProgressRecord(42, 90, (("loss", "0.25"),), "2026-03-01T09:59:58Z")
    subresource, patch = progress_patch("TrainJob", record)
    assert subresource == "status"
    assert read_progress({"kind": "TrainJob", **patch}) == record
    subresource, patch = progress_patch("PyTorchJob", record)
    assert subresource == ""
    assert set(patch["metadata"]["annotations"]) == {names.PROGRESS}
    assert read_progress({"kind": "PyTorchJob", **patch}) == record


def test_a_later_report_replaces_all_fields_of_the_former_one():
    record = parse_report({"trainerStatus": {"progressPercentage": 50}}, NOW)
    assert record is not None
    assert record.updated == NOW
    assert record.updated_at == 1772359200.0
    _, patch = progress_patch("TrainJob", record)
    assert patch["status"]["trainerStatus"] == {
        "progressPercentage": 50,
        "estimatedRemainingSeconds": None,
        "metrics": None,
        "lastUpdatedTime": NOW,
    }


def test_jobs_without_a_readable_report_have_no_progress():
    assert parse_report({}, NOW) is None
    assert read_progress({"kind": "Job", "metadata": {}}) is None
    for text in ("{", "[]", '{"progressPercentage": 101}'):
        assert read_progress({"kind": "Job", "metadata": {"annotations": {names.PROGRESS: text}}}) is None


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"progressPercentage": 101}, "trainerStatus.progressPercentage"),
        ({"progressPercentage": True}, "trainerStatus.progressPercentage"),
        ({"estimatedRemainingSeconds": -1}, "trainerStatus.estimatedRemainingSeconds"),
        ({"metrics": [{"name": "loss", "value": 0.5}]}, "trainerStatus.metrics[0].value"),
        ({"metrics": [{"name": "m", "value": "1"}] * 257}, "trainerStatus.metrics"),
        ({"lastUpdatedTime": "today"}, "trainerStatus.lastUpdatedTime"),
        ([], "trainerStatus"),
    ],
)
def test_a_wrong_report_is_refused_with_its_field(status: object, field: str):
    with pytest.raises(ReportError) as refused:
        parse_report({"trainerStatus": status}, NOW)
    assert refused.value.field == field
