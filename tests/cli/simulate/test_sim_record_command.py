"""``windlass sim record``: what a cluster or Slurm remembers becomes a trace that ``sim run`` plays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest
from fakecluster import FakeCluster
from kubeobjects import group, node, pod, queue

from windlass.api.resources import CONFIG_MAPS, NODES, POD_GROUPS, PODS, QUEUES
from windlass.predict.history import History
from windlass.predict.model import CompletedRun, Traits
from windlass.sim.traces import formats, sacct

Run_: TypeAlias = Any
"""Of the fixture ``windlass``, whose clock says 2026-01-01T12:00:00Z."""
SACCT = """\
JobID|JobName|User|Partition|Submit|Start|End|TimelimitRaw|AllocTRES|State
1|a|ann|gpu|2025-12-31T10:00:00|2025-12-31T10:01:00|2025-12-31T11:01:00|120|cpu=8,gres/gpu=4,mem=10G|COMPLETED
1.batch|batch|||2025-12-31T10:01:00|2025-12-31T10:01:00|2025-12-31T11:01:00|||COMPLETED
2|b|bob|gpu|2025-12-31T10:30:00|2025-12-31T10:30:00|Unknown|60|cpu=1,gres/gpu=1|RUNNING
3|c|bob|gpu|2025-12-31T10:40:00|Unknown|Unknown|60||PENDING
4|d|bob|gpu|2025-11-01T10:00:00|2025-11-01T10:00:00|2025-11-01T10:10:00|60|cpu=1,gres/gpu=1|COMPLETED
"""


def stamp(minutes: int) -> str:
    return f"2026-01-01T{9 + minutes // 60:02d}:{minutes % 60:02d}:00Z"


def ran(name: str, created: int, begun: int | None, ended: int | None, **more: Any) -> dict[str, Any]:
    """A pod of two GPUs; minutes after nine."""
    obj = pod(name, requests={"nvidia.com/gpu": "2"}, node="n1" if begun is not None else "", **more)
    obj["metadata"]["creationTimestamp"] = stamp(created)
    if begun is not None:
        obj["status"]["startTime"] = stamp(begun)
    if ended is not None:
        done = {"terminated": {"finishedAt": stamp(ended), "startedAt": stamp(begun or 0), "exitCode": 0}}
        obj["status"] |= {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": done}]}
    return obj


def learned(seconds: float, namespace: str = "kube-system") -> dict[str, Any]:
    """What the scheduler keeps of three runs of ``works``."""
    history = History()
    for number in range(3):
        history.observe(CompletedRun(f"w{number}", Traits("default", "default", "works"), seconds))
    text = msgspec.json.encode(history.as_record()).decode()
    return {"metadata": {"name": "windlass-run-times", "namespace": namespace}, "data": {"history": text}}


@pytest.fixture
def cluster() -> FakeCluster:
    found = FakeCluster()
    found.add(NODES, node("n1"))
    found.add(QUEUES, queue("research"))
    found.add(POD_GROUPS, group("gang", 2, queue="research"))
    for at in range(2):
        found.add(PODS, ran(f"gang-{at}", 10, 20, 50, group="gang"))
    found.add(PODS, ran("old", 0, 0, 5))
    found.add(PODS, ran("works", 100, 100, None))
    found.add(PODS, ran("waits", 120, None, None))
    return found


def test_what_ended_is_recorded_and_what_has_not_is_told(windlass: Run_) -> None:
    done = windlass("sim", "record", "-o", "json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    gang = next(job for job in found["jobs"] if job["id"] == "default/gang")
    assert gang["duration_seconds"] == 30 * 60
    assert (gang["gpus"], gang["queue"], gang["submit_seconds"]) == (4, "research", 600.0)
    assert len(found["jobs"]) == 2
    assert (found["running"], found["waiting"], found["unfinished"]) == (1, 1, 0)
    assert found["firstSubmission"] == "2026-01-01T09:00:00Z"
    assert "omitted: 1 running and 1 pending jobs (--unfinished includes them)" in done.err


def test_whose_earlier_runs_are_not_known_is_told(windlass: Run_, cluster: FakeCluster) -> None:
    """Its pods are two hours younger than its group, which shares time."""
    suspended = group("again", 1, queue="research")
    suspended["metadata"]["creationTimestamp"] = "2026-01-01T09:00:00Z"
    suspended["metadata"]["annotations"] = {"windlass.dev/time-share": "true"}
    cluster.add(POD_GROUPS, suspended)
    cluster.add(PODS, ran("again-0", 120, 121, 131, group="again"))
    done = windlass("sim", "record", "-o", "json")
    assert "1 of them have pods younger than their group, as after a suspension" in done.err
    found = json.loads(done.out)
    assert found["madeAnew"] == 1
    assert next(job for job in found["jobs"] if job["name"] == "again")["submit_seconds"] == 0.0
    assert "madeAnew" in windlass("sim", "record", "-o", "yaml").out


def test_only_what_came_since(windlass: Run_) -> None:
    done = windlass("sim", "record", "--since", "0.12d", "-o", "json")
    assert [job["id"] for job in json.loads(done.out)["jobs"]] == ["default/gang"]
    assert "omitted: 1 job submitted earlier" in done.err


def test_unfinished_work_has_the_run_time_that_is_expected(windlass: Run_, cluster: FakeCluster) -> None:
    cluster.add(CONFIG_MAPS, learned(7200.0))
    done = windlass("sim", "record", "--unfinished", "-o", "json")
    found = json.loads(done.out)
    works = next(job for job in found["jobs"] if job["name"] == "works")
    assert works["duration_seconds"] == 7200.0
    assert (found["unfinished"], found["running"], found["waiting"]) == (1, 0, 1)
    assert "1 of them have not ended: their run time is an estimate" in done.err
    assert "omitted: 1 pending job with unknown run times" in done.err


def test_on_a_cluster_what_was_learned_lies_where_windlass_is_installed(
    windlass: Run_, cluster: FakeCluster
) -> None:
    def expected(*aim: str) -> list[float]:
        found = json.loads(windlass(*aim, "sim", "record", "--unfinished", "-o", "json").out)
        return [job["duration_seconds"] for job in found["jobs"] if job["name"] == "works"]

    aimed = ("--context", "gpu")
    assert expected(*aimed) == []
    cluster.add(CONFIG_MAPS, learned(7200.0, "team-gpu"))  # as helm may have been told
    assert expected(*aimed) == [7200.0]
    cluster.add(CONFIG_MAPS, learned(9000.0, "windlass-system"))
    assert expected(*aimed) == [9000.0]
    assert expected() == []  # a box keeps it in kube-system
    cluster.hidden.add(CONFIG_MAPS)  # this user may not look through all namespaces
    assert expected(*aimed) == [9000.0]


def test_what_its_owner_allows_it_to_run_is_what_it_asks_for(windlass: Run_, cluster: FakeCluster) -> None:
    said = {"windlass.dev/run-estimate": "40m"}
    cluster.add(PODS, ran("limited", 130, 130, 131, activeDeadlineSeconds=3600))
    cluster.add(PODS, ran("estimated", 130, 130, 131, activeDeadlineSeconds=3600, annotations=said))
    cluster.add(POD_GROUPS, group("partly", 2, queue="research"))
    cluster.add(POD_GROUPS, group("both", 2, queue="research"))
    for at, limit in enumerate((600, 900)):
        cluster.add(PODS, ran(f"both-{at}", 130, 130, 131, group="both", activeDeadlineSeconds=limit))
        more = {"activeDeadlineSeconds": limit} if at else {}
        cluster.add(PODS, ran(f"partly-{at}", 130, 130, 131, group="partly", **more))
    found = json.loads(windlass("sim", "record", "-o", "json").out)
    asked = {job["name"]: job["requested_seconds"] for job in found["jobs"]}
    assert asked == {
        "old": None,
        "gang": None,
        "limited": 3600.0,
        "estimated": 2400.0,
        "both": 900.0,
        "partly": None,
    }


def test_a_gang_that_makes_do_with_fewer_stays_one(windlass: Run_, cluster: FakeCluster) -> None:
    """The second of its pods came when the first had nearly ended: their work is that of 20 minutes of both."""
    cluster.add(POD_GROUPS, group("elastic", 1, queue="research"))
    cluster.add(PODS, ran("elastic-0", 60, 60, 90, group="elastic"))
    cluster.add(PODS, ran("elastic-1", 60, 88, 98, group="elastic"))
    jobs = {job["name"]: job for job in json.loads(windlass("sim", "record", "-o", "json").out)["jobs"]}
    found = jobs["elastic"]
    assert (found["gpus"], found["min_gpus"], found["duration_seconds"]) == (4, 2, 20 * 60.0)
    assert (jobs["gang"]["min_gpus"], jobs["gang"]["duration_seconds"]) == (0, 30 * 60.0)


def test_what_is_recorded_can_be_run(windlass: Run_, tmp_path: Path) -> None:
    done = windlass("sim", "record")
    path = tmp_path / "trace.csv"
    path.write_text(done.out)
    again = formats.read(done.out.splitlines(keepends=True), "trace")
    assert [job.id for job in again] == ["default/old", "default/gang"]
    ran = windlass("sim", "run", "--trace", str(path), "--nodes", "1x8", "--policy", "fifo", "-o", "json")
    figures = json.loads(ran.out)["results"][0]
    assert (figures["jobs"], figures["unfinished_jobs"]) == (2, 0)
    assert figures["completion_seconds"]["mean"] == (5 + 30) * 60 / 2


def test_the_history_of_slurm(windlass: Run_, tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT)
    done = windlass("sim", "record", "--sacct", str(path), "--since", "30d")
    assert done.code == 0, done.err
    assert done.out.splitlines()[1].startswith("1,0,3600,4,")
    assert len(done.out.splitlines()) == 2
    assert "omitted: 1 running and 1 pending jobs" in done.err
    assert "omitted: 1 job submitted earlier" in done.err


def test_what_is_wrong_with_the_history_of_slurm_has_the_command_that_prints_it(
    windlass: Run_, tmp_path: Path
) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT.replace("|", ","))
    done = windlass("sim", "record", "--sacct", str(path))
    assert done.code == 65
    assert f"try: {sacct.COMMAND}" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--since", "-5h"), "--since -5h is in the future"),
        (("--since", "lately"), "--since lately: 'lately' is not a duration"),
        (("--sacct", "x", "--unfinished"), "jobs of sacct need an end"),
        (("--sacct", "nowhere.txt"), "nowhere.txt does not exist"),
    ],
)
def test_what_cannot_be_is_refused(windlass: Run_, arguments: tuple[str, ...], words: str) -> None:
    done = windlass("sim", "record", *arguments)
    assert done.code != 0
    assert words in done.err
