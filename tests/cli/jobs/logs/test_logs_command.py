"""``windlass logs``: one rank or all, merged, collapsed, searched."""

from __future__ import annotations

import shlex

import example_cluster
import pytest
from fakecluster import FakeClient, FakeCluster

from windlass.api.errors import not_found
from windlass.api.resources import PODS, TRAIN_JOBS


@pytest.fixture
def cluster() -> FakeCluster:
    return example_cluster.busy()


def stamp(second: int, text: str) -> bytes:
    return f"2026-01-01T11:30:{second:02d}.000000000Z {text}\n".encode()


@pytest.fixture
def logged(cluster: FakeCluster) -> FakeCluster:
    cluster.logs[("default", "train-main-0")] = stamp(1, "loading") + stamp(3, "epoch 1") + stamp(5, "a")
    cluster.logs[("default", "train-main-1")] = stamp(2, "loading") + stamp(4, "epoch 1") + stamp(6, "b")
    return cluster


def test_ranks_are_merged_by_time(windlass, logged):
    done = windlass("logs", "train")
    assert done.out.splitlines() == [
        "[0] loading",
        "[1] loading",
        "[0] epoch 1",
        "[1] epoch 1",
        "[0] a",
        "[1] b",
    ]


def test_one_rank_has_no_prefix(windlass, logged):
    assert windlass("logs", "train", "--rank", "1").out == "loading\nepoch 1\nb\n"
    assert windlass("logs", "train-main-1").out == "loading\nepoch 1\nb\n"
    assert windlass("logs", "train", "--rank", "1", "-n", "1").out == "b\n"


class TestPodDeletedAfterTheList:
    """The end of a job deletes its unfinished pods, perhaps between the list and the read."""

    @pytest.fixture(autouse=True)
    def deleted(self, logged, monkeypatch):
        def logs(client, namespace, name, **options):
            if name == "train-main-1":
                raise not_found(PODS, name)
            yield from unchanged(client, namespace, name, **options)

        unchanged = FakeClient.logs
        monkeypatch.setattr(FakeClient, "logs", logs)

    def test_retained_log_is_read(self, windlass, logged, tmp_path):
        uid = logged.objects[PODS, "default", "train-main-1"]["metadata"]["uid"]
        directory = tmp_path / "state" / "node" / "logs" / f"default_train-main-1_{uid}" / "main"
        directory.mkdir(parents=True)
        (directory / "0.log").write_bytes(
            b"2026-01-01T11:30:02.000000000Z stdout F loading\n2026-01-01T11:30:06.000000000Z stdout F kept\n"
        )
        done = windlass("logs", "train", "--all")
        assert done.code == 0
        assert done.out.splitlines()[1:] == ["[1] loading", "[0] epoch 1", "[0] a", "[1] kept"]

    def test_log_that_is_gone_does_not_end_the_others(self, windlass):
        done = windlass("logs", "train", "--all")
        assert (done.code, done.out.splitlines()) == (0, ["[0] loading", "[0] epoch 1", "[0] a"])
        assert "train-main-1 was deleted, and its log with it" in done.err


def test_lines_that_ranks_share_are_collapsed(windlass, logged):
    done = windlass("logs", "train", "--collapse")
    assert done.out.splitlines() == ["[0-1 ×2] loading", "[0-1 ×2] epoch 1", "[0] a", "[1] b"]


def test_grep_and_timestamps(windlass, logged):
    assert windlass("logs", "train", "--grep", "^epoch").out == "[0] epoch 1\n[1] epoch 1\n"
    first = windlass("logs", "train", "--rank", "0", "--timestamps").out.splitlines()[0]
    assert first == "2026-01-01T11:30:01.000000000Z loading"


def test_a_pending_job_never_blocks(windlass):
    done = windlass("logs", "big")
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith("big has written nothing yet: Pending, needs 4 GPUs, 2 free")


def test_following_a_job_that_has_ended_gives_its_exit_status(windlass, cluster):
    cluster.logs[("default", "crash-main-1")] = stamp(1, "boom")
    done = windlass("logs", "-f", "crash")
    assert done.code == 3
    assert "[1] boom\n" in done.out


def test_a_container_that_no_rank_has(windlass, logged):
    done = windlass("logs", "train", "-c", "zz")
    assert done.code == 3
    assert 'error[WL-RANK-404]: job "train" has no container zz\n' in done.err


@pytest.mark.parametrize("follow", [(), ("-f",)])
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("--rank", "7"), ["has no rank 7", "why: its ranks: 0, 1", "try: windlass logs train --rank 0"]),
        (
            ("--task", "zz"),
            ["has no task zz", "why: its tasks: main", "try: windlass logs train --task main"],
        ),
        (("--task", "main", "--rank", "7"), ["has no rank 7"]),
        (("-c", "zz"), ["why: existing containers: main"]),
    ],
)
def test_what_the_job_does_not_have_is_told_also_to_who_follows(windlass, logged, follow, asked, told):
    done = windlass("logs", "train", *follow, *asked)
    assert done.code == 3
    assert not [words for words in told if words not in done.err]


@pytest.mark.parametrize("text", ["[", "(", "*x", "a'[", "\\", "a{99999999999}", "-["])
def test_remedy_for_a_wrong_pattern_is_accepted(windlass, logged, text):
    refused = windlass("logs", "train", f"--grep={text}")
    assert refused.code == 2
    (remedy,) = [line.removeprefix("try: ") for line in refused.err.splitlines() if line.startswith("try:")]
    assert windlass(*shlex.split(remedy)[1:]).code == 0
    assert shlex.split(remedy)[1:3] == ["logs", "train"]


def test_a_failed_job_without_pods_tells_why_it_failed(windlass, cluster):
    why = "jobset failed due to one or more job failures"
    failed = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": why}
    cluster.add(TRAIN_JOBS, {"metadata": {"name": "multi"}, "spec": {}, "status": {"conditions": [failed]}})
    done = windlass("logs", "multi")
    assert (done.code, done.out) == (0, "")
    assert done.err == f"the pods of multi and their logs are deleted: Failed, {why}\n"
    assert f"multi default Failed - 60m {why}" in " ".join(windlass("ps", "-a").out.split())
