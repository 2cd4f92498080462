"""Readers of traces: what they make of a line, and how they name what is wrong with one."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from kubeobjects import group, pod, queue
from small_traces import job, published

from windlass.api.annotations import DEVICE_COMPUTE, DEVICE_COUNT, DEVICE_MODEL
from windlass.sim.jobs import TraceJob, pod_sizes
from windlass.sim.synthetic import Profile, generate
from windlass.sim.traces import formats, kubernetes, openb, sacct, table
from windlass.sim.traces.rows import TraceError

PHILLY = "submit_s,duration_s,gpus,vc\n"
SACCT = "JobID|JobName|User|Partition|Submit|Start|End|TimelimitRaw|AllocTRES|State\n"


def read(text: str, name: str = "") -> list[TraceJob]:
    return formats.read(text.splitlines(keepends=True), "t.csv", name)


def test_philly() -> None:
    assert read(PHILLY + "45,30,8,6214e9\n") == [TraceJob("0", 45.0, 30.0, 8, queue="6214e9")]


def test_the_longer_form_of_philly_counts_from_its_first_job() -> None:
    text = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-01 00:00:10,60,2,120,a\n2017-10-01 00:00:00,5,1,5,b\n"
    assert [(j.submit_seconds, j.duration_seconds, j.gpus, j.queue) for j in read(text)] == [
        (10.0, 60.0, 2, "a"),
        (0.0, 5.0, 1, "b"),
    ]


def test_muri_is_in_milliseconds() -> None:
    text = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval\n7,4,1500,99,bert,4,2000,1\n"
    assert read(text) == [TraceJob("7", 1.5, 2.0, 4, model="bert", name="bert")]


def test_openb_leaves_out_what_never_ran_and_keeps_parts_of_cards() -> None:
    header = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time\n"
    )
    text = header + "p0,4000,1024,1,460,T4|G2,100,250,110\np1,1000,1,1,1000,,5,9,\np2,2000,64,0,0,,7,27,7\n"
    sliced, plain = read(text)
    assert (sliced.gpu_milli, sliced.gpu_models, sliced.duration_seconds) == (460, ("T4", "G2"), 140.0)
    assert (sliced.cpu_milli, sliced.memory_bytes) == (4000, 1 << 30)
    assert (plain.gpus, plain.gpu_milli, plain.duration_seconds) == (0, 1000, 20.0)
    assert [pod.demand for pod in openb.read_pods(text.splitlines(True), "t")] == [460, 1000, 0]


def test_helios_leaves_out_jobs_without_gpus() -> None:
    header = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    plain = "1,uA,vcB,0,1,1,COMPLETED,2020-06-09 18:41:00,x,x,5,0\n"
    (only,) = read(header + plain + "2,uA,vcB,4,16,1,FAILED,2020-06-09 18:41:27,x,x,249,0\n")
    assert (only.id, only.submit_seconds, only.duration_seconds, only.gpus) == ("2", 0.0, 249.0, 4)
    assert (only.user, only.queue) == ("uA", "vcB")


def test_sacct_reads_what_ran_and_leaves_out_steps() -> None:
    day = "2026-01-01T"
    ran = f"{day}10:00:00|{day}10:05:00|{day}11:05:00"
    text = (
        f"{SACCT}7|train|ann|gpu|{ran}|120|billing=8,cpu=8,gres/gpu=4,mem=32G,node=1|COMPLETED\n"
        f"7.batch|batch||gpu|{ran}|||COMPLETED\n"
        f"8|x|bob|gpu|{day}10:00:30|Unknown|Unknown|UNLIMITED||PENDING\n"
        f"9|y|bob|big|{day}10:01:00|{day}10:02:00|{day}10:03:00|UNLIMITED|"
        "cpu=2,gres/gpu:a100=2,gres/gpu:h100=1,mem=512|FAILED\n"
    )
    first, second = read(text)
    assert (first.id, first.gpus, first.cpu_milli, first.memory_bytes) == ("7", 4, 8000, 32 << 30)
    assert (first.duration_seconds, first.requested_seconds, first.queue) == (3600.0, 7200.0, "gpu")
    assert (second.gpus, second.memory_bytes, second.submit_seconds) == (3, 512 << 20, 60.0)
    assert second.requested_seconds is None


def test_sacct_as_a_real_slurm_prints_it() -> None:
    """Lines as of Slurm 22.05 with slurmdbd: a name with the delimiter, parts of a heterogeneous job, a job that was
    refused for asking too much, one that was cancelled while it waited, one that waits to run anew, no limit."""
    header = "JobID|JobName|User|Partition|Submit|Start|End|ElapsedRaw|TimelimitRaw|AllocTRES|State\n"
    lines = (
        '3|odd|na"me|root|gpu|1795365615|1795365616|1795365619|3|5|billing=1,cpu=1,gres/gpu:h100=1,gres/gpu=1|COMPLETED\n'
        "8|big|root|gpu|1795365616|1795365616|1795365616|0|10||FAILED\n"
        "9+0|het|root|gpu|1795365616|1795365764|1795365771|7|10|billing=2,cpu=2,gres/gpu:h100=1,gres/gpu=1,mem=200M,node=1"
        "|COMPLETED\n"
        "9+1|het|root|gpu|1795365616|1795365764|1795365770|6|20|billing=1,cpu=1,mem=100M,node=1|COMPLETED\n"
        "5|again|root|gpu|1795365615|1795365616|1795365622|6|10|billing=1,cpu=1,gres/gpu=1,mem=100M,node=1|REQUEUED\n"
        "12|pend|root|gpu|1795365616|None|1795365730|0|1||CANCELLED by 0\n"
        "6|free|root|urgent|1795365616|1795365616|1795365620|4|UNLIMITED|billing=2,cpu=2,mem=200M,node=1|TIMEOUT\n"
    )
    found = sacct.record((header + lines).splitlines(keepends=True), "jobs.txt")
    odd, het, free = found.jobs
    assert (odd.id, odd.name, odd.user, odd.gpus) == ("3", 'odd|na"me', "root", 1)
    assert (het.id, het.gpus, het.cpu_milli, het.memory_bytes) == ("9", 1, 3000, 300 << 20)
    assert (het.duration_seconds, het.requested_seconds) == (7.0, 1200.0)
    assert (free.gpus, free.requested_seconds) == (0, None)
    assert (found.waiting, found.running, found.never_ran) == (1, 0, 2)


@pytest.mark.parametrize("never", ["None", "Unknown"])
def test_who_was_cancelled_while_he_waited_is_left_out_whatever_columns_there_are(never: str) -> None:
    """Without ``ElapsedRaw`` a run's length is its end less its start, and he has none."""
    text = (
        "JobID|Submit|Start|End|Partition|AllocTRES|State\n"
        f"12|1795365616|{never}|1795365730|gpu||CANCELLED by 0\n"
        "13|1795365616|1795365620|1795365720|gpu|gres/gpu=2|COMPLETED\n"
    )
    found = sacct.record(text.splitlines(keepends=True), "jobs.txt")
    assert [(job.id, job.duration_seconds) for job in found.jobs] == [("13", 100.0)]
    assert found.never_ran == 1


@pytest.mark.parametrize(
    ("job", "tasks"),
    [
        ("11_[3-9%2]", 7),
        ("11_[3-9]", 7),
        ("11_[0-20:5,30]", 6),
        ("11_[1,3,5-6]", 4),
        ("11_[7]", 1),
        ("11_[1,3,5,...]", 3),
        ("11_4", 1),
        ("11", 1),
    ],
)
def test_what_waits_of_an_array_counts_by_its_tasks(job: str, tasks: int) -> None:
    text = (
        "JobID|Submit|Start|End|Partition|AllocTRES|State\n"
        f"{job}|1795365616|Unknown|Unknown|gpu||PENDING\n"
        f"9{job}|1795365616|None|1795365730|gpu||CANCELLED by 0\n"
        "13+0|1795365616|Unknown|Unknown|gpu||PENDING\n"
        "13+1|1795365616|Unknown|Unknown|gpu||PENDING\n"
    )
    found = sacct.record(text.splitlines(keepends=True), "jobs.txt")
    assert (found.waiting, found.never_ran) == (tasks + 1, tasks)


def test_what_a_name_cannot_explain_is_told() -> None:
    with pytest.raises(TraceError, match="line 2: 9 cells, the header has 10"):
        read(SACCT + "7|n|u|p|5|9|9||\n")
    with pytest.raises(TraceError, match="12 cells, the header has 11"):
        read(SACCT.replace("JobName", "Nodes|Account") + "7|n|u|a|p|x|5|9|9||cpu=1|C\n")


def test_sacct_without_gpus_is_refused_and_elapsed_time_is_believed() -> None:
    """Clocks that are changed, and suspensions, are no run time."""
    header = "JobID|Submit|Start|End|Partition|ElapsedRaw"
    row = "7|2026-03-29T00:00:00|2026-03-29T01:00:00|2026-03-29T04:00:00|gpu|7200"
    (only,) = read(f"{header}|AllocTRES\n{row}|gres/gpu=2\n")
    assert (only.duration_seconds, only.gpus) == (7200.0, 2)
    with pytest.raises(TraceError, match="column AllocTRES or ReqTRES: there is no such column"):
        read(f"{header}\n{row}\n")


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("id,submit_seconds,duration_seconds,gpu", "csv is near, but lacks column gpus"),
        ("id;submit_seconds;duration_seconds;gpus", "csv is near, but lacks ',' between columns"),
        (
            "ID,Submit_Seconds,duration_seconds,gpu",
            "lacks column gpus, id (there is ID), submit_seconds (there is",
        ),
        ("JobID,Submit,Start,End,Partition", "sacct is near, but lacks '|' between columns"),
        ("job_id|num_gpu|submit_time", "muri is near, but lacks column duration, iterations, model_name and"),
    ],
)
def test_a_header_that_is_almost_right_is_told_what_it_lacks(header: str, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(header + "\n1\n")
    assert words in str(caught.value)


def test_a_list_of_nodes_is_said_to_be_one() -> None:
    with pytest.raises(TraceError, match="line 1: that is a list of nodes \\(for --nodes\\), not of jobs"):
        read("sn,cpu_milli,memory_mib,gpu,model\nn1,64000,1024,8,G2\n")


def test_a_header_of_something_else_is_near_nothing() -> None:
    with pytest.raises(TraceError) as caught:
        read("what,ever\n1,2\n")
    assert "is near" not in str(caught.value)


def test_requests_have_the_run_time_that_is_told_or_assumed() -> None:
    genai = "gmt_create,predict_type,predict_status,exec_time_seconds,groupId,checkpoint_model_version_id\n"
    found = read(genai + "2024-11-15 16:57:50,T,SUCCEED,32.0,G0,M7\n2024-11-15 16:57:55,T,FAILED,,G0,M7\n")
    assert [(j.duration_seconds, j.model, j.user) for j in found] == [(32.0, "M7", "G0")]
    azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,5000,60\n"
    assert read(azure)[0].duration_seconds == 3.0


def ended_pod(name: str, group_name: str, created: int, started: int, ended: int | None) -> dict[str, Any]:
    """One of two GPUs; ``None``: it runs still. Seconds after midnight."""
    found = pod(name, group=group_name, requests={"nvidia.com/gpu": 2, "cpu": 4}, node="n1")
    found["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{created:02}Z"
    found["status"] = {"phase": "Running", "startTime": f"2026-01-01T00:00:{started:02}Z"}
    if ended is not None:
        state = {"terminated": {"exitCode": 0, "finishedAt": f"2026-01-01T00:00:{ended:02}Z"}}
        found["status"] |= {"phase": "Succeeded", "containerStatuses": [{"name": "main", "state": state}]}
    return found


def test_a_dump_of_pods_tells_of_the_groups_that_have_ended() -> None:
    objects = [
        group("train", 2, queue="research"),
        ended_pod("train-0", "train", 5, 10, 40),
        ended_pod("train-1", "train", 6, 12, 42),
        ended_pod("alone", "", 3, 4, 9),
        ended_pod("runs", "", 3, 4, None),
    ]
    for text in (
        yaml.safe_dump_all(objects),
        json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}),
    ):
        alone, train = read(text)
        assert (alone.id, alone.submit_seconds, alone.duration_seconds, alone.gpus) == (
            "default/alone",
            0,
            5,
            2,
        )
        assert (train.submit_seconds, train.duration_seconds, train.gpus) == (2.0, 30.0, 4)
        assert (train.cpu_milli, train.queue, train.name) == (8000, "research", "train")


def asking(notes: dict[str, str], pods: int, gpus: int | None, least: int = 0) -> list[dict[str, Any]]:
    """A group and its pods, which have ended, each of so many GPUs; ``None``: as its annotations say."""
    made = [group("train", least or pods)]
    for at in range(pods):
        one = ended_pod(f"train-{at}", "train", 5, 10, 40)
        (container,) = one["spec"]["containers"]
        container["resources"]["requests"] = {} if gpus is None else {"nvidia.com/gpu": gpus}
        one["metadata"]["annotations"].update(notes)
        made.append(one)
    return made


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        (asking({}, 1, 4), (4, 1000, (), 0, 0)),
        (asking({}, 4, 2), (8, 1000, (), 2, 0)),
        (asking({}, 4, 2, least=2), (8, 1000, (), 2, 4)),
        (asking({DEVICE_MODEL: "A100,H100"}, 2, 8), (16, 1000, ("A100", "H100"), 8, 0)),
        (asking({DEVICE_COMPUTE: "30", DEVICE_COUNT: "2"}, 1, None), (2, 300, (), 0, 0)),
        (asking({DEVICE_COMPUTE: "50"}, 4, None, least=3), (4, 500, (), 1, 3)),
    ],
    ids=["one pod", "a gang", "elastic", "of a model", "parts of two cards", "parts, elastic"],
)
def test_a_dump_tells_of_the_cards_of_pods(
    objects: list[dict[str, Any]], told: tuple[int, int, tuple[str, ...], int, int]
) -> None:
    """A gang of pods of two cards is no pod of eight; parts of several cards are not one of their sum."""
    (job,) = kubernetes.record(objects, "dump").jobs
    assert (job.gpus, job.gpu_milli, job.gpu_models, job.pod_gpus, job.min_gpus) == told


def test_where_pods_have_cards_of_several_kinds_whole_ones_are_told() -> None:
    parts = asking({DEVICE_COMPUTE: "70", DEVICE_MODEL: "A100"}, 1, None)[1]
    whole = asking({DEVICE_MODEL: "H100"}, 2, 1)[2]
    (job,) = kubernetes.record([group("train", 2), parts, whole], "dump").jobs
    assert (job.gpus, job.gpu_milli, job.gpu_models, job.pod_gpus) == (2, 1000, (), 0)


@pytest.mark.parametrize(("consent", "submit", "anew"), [("true", 0.0, 1), ("false", 3600.0, 0)])
def test_who_was_suspended_came_when_its_group_did(consent: str, submit: float, anew: int) -> None:
    """Its pods were made anew an hour later. Who shares no time was not: its group may have served earlier work."""
    train = group("train", 1)
    train["metadata"]["creationTimestamp"] = "2025-12-31T23:00:05Z"
    train["metadata"]["annotations"] = {"windlass.dev/time-share": consent}
    first = ended_pod("first", "", 5, 5, 9)
    first["metadata"]["creationTimestamp"] = "2025-12-31T23:00:05Z"
    found = kubernetes.record([train, first, ended_pod("train-0", "train", 5, 10, 40)], "dump")
    jobs = {job.name: job for job in found.jobs}
    assert (jobs["train"].submit_seconds, jobs["train"].duration_seconds) == (submit, 30.0)
    assert found.made_anew == anew
    assert jobs["first"].submit_seconds == 0.0


@pytest.mark.parametrize(
    ("notes", "seconds"),
    [
        ({}, 30.0),  # nothing is saved: its last run did it all
        ({"checkpoint-every": "0s"}, 3630.0),
        ({"checkpoint-every": "25m"}, 3030.0),
        ({"checkpoint-every": "0s", "restart-cost": "10s"}, 3620.0),
        ({"checkpoint-every": "0s", "restart-cost": "10s", "suspensions": "3"}, 3600.0),
        ({"checkpoint-every": "20m", "suspensions": "2"}, 2430.0),  # half of 20 min by each stop
        ({"checkpointed-at": "2026-01-01T00:00:00Z", "attained-at": "2026-01-01T00:00:04Z"}, 3626.0),
        ({"checkpoint-every": "0s", "attained-at": "2026-01-01T00:00:30Z"}, 3610.0),  # it went on till then
    ],
)
def test_what_a_group_ran_before_its_last_suspension_counts_as_far_as_it_was_saved(
    notes: dict[str, str], seconds: float
) -> None:
    train = group("train", 1)
    train["metadata"]["creationTimestamp"] = "2025-12-31T22:50:00Z"
    said = {"time-share": "true", "attained": "1h0m0s", "attained-at": "2026-01-01T00:00:00Z", **notes}
    train["metadata"]["annotations"] = {
        f"windlass.dev/{name}": text for name, text in {"suspensions": "1", **said}.items()
    }
    found = kubernetes.record([train, ended_pod("train-0", "train", 5, 10, 40)], "dump")
    assert [job.duration_seconds for job in found.jobs] == [seconds]
    assert found.made_anew == 0


def test_a_dump_tells_what_a_stop_of_a_group_loses_and_whether_it_shares_time() -> None:
    """By its own annotations, else by its queue's; what is not said, or cannot be read, is left open."""
    said = {
        "all": {"checkpoint-every": "30m", "restart-cost": "45s", "time-share": "true"},
        "often": {"checkpoint-every": "0s", "time-share": "false"},
        "wrong": {"checkpoint-every": "often", "restart-cost": "-"},
        "saved": {"checkpointed-at": "2026-01-01T00:00:00Z"},
        "nothing": {},
    }
    objects = [ended_pod(name, "", 3, 4, 9) for name in said]
    for found, notes in zip(objects, said.values(), strict=True):
        found["metadata"]["annotations"] = {f"windlass.dev/{name}": text for name, text in notes.items()}
    sharing = {
        **queue("parent"),
        "metadata": {"name": "parent", "annotations": {"windlass.dev/time-share": "true"}},
    }
    objects += [sharing, queue("below", parent="parent"), group("inherits", 1, queue="below")]
    objects += [group("firm", 1, queue="below")]
    objects[-1]["metadata"]["annotations"] = {"volcano.sh/preemptable": "false"}
    objects += [ended_pod("inherits-0", "inherits", 3, 4, 9), ended_pod("firm-0", "firm", 3, 4, 9)]
    jobs = {job.name: job for job in read(yaml.safe_dump_all(objects))}
    found = {
        name: (job.checkpoint_seconds, job.restart_seconds, job.time_share) for name, job in jobs.items()
    }
    assert found == {
        "all": (1800.0, 45.0, True),
        "often": (0.0, None, False),
        "wrong": (None, None, None),
        "saved": (None, None, True),
        "nothing": (None, None, None),
        "inherits": (None, None, True),
        "firm": (None, None, False),
    }


def test_a_pod_that_ended_without_a_container_neither_ran_nor_waits() -> None:
    """As a node leaves it that refused it."""
    refused = ended_pod("refused", "", 3, 4, None)
    refused["status"] = {"phase": "Failed", "reason": "OutOfcpu", "startTime": "2026-01-01T00:00:04Z"}
    found = kubernetes.record([refused, ended_pod("alone", "", 3, 4, 9)], "dump", expected=lambda _: 60.0)
    assert [job.id for job in found.jobs] == ["default/alone"]
    assert (found.never_ran, found.running, found.waiting, found.unfinished) == (1, 0, 0, 0)


# ---------------------------------------------------------------------- the own format


def test_the_own_format_has_every_field_and_defaults() -> None:
    header = "id,submit_seconds,duration_seconds,gpus,min_gpus,gpu_models,time_share,pod_gpus\n"
    first, second = read(header + "a,0,10,4,2,H100|A100,false,1\nb,1,5,1,,,,\n")
    assert (first.min_gpus, first.gpu_models, first.time_share, first.pod_gpus) == (
        2,
        ("H100", "A100"),
        False,
        1,
    )
    assert second == TraceJob("b", 1.0, 5.0, 1)


@given(
    st.lists(
        st.builds(
            TraceJob,
            id=st.text("abc-1", min_size=1),
            submit_seconds=st.floats(0, 1e7),
            duration_seconds=st.floats(0, 1e7),
            gpus=st.integers(0, 64),
            queue=st.sampled_from(("default", "a,b", 'say "x"')),
            priority=st.integers(-5, 5),
            requested_seconds=st.none() | st.floats(0, 1e6),
            checkpoint_seconds=st.none() | st.floats(0, 1e6),
            restart_seconds=st.none() | st.floats(0, 1e6),
            gpu_models=st.sampled_from(((), ("A",), ("A", "B"))),
            time_share=st.sampled_from((None, True, False)),
            pod_gpus=st.integers(0, 8),
        ),
        max_size=5,
    )
)
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_back(jobs: list[TraceJob]) -> None:
    lines = "".join(table.write(jobs)).splitlines(keepends=True)
    assert table.read(lines, "t") == jobs


# ---------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        (PHILLY + "1,2,3,a\n1,x,3,a\n", 3, "duration_s", "'x' is no number"),
        (PHILLY + "1,2,1.5,a\n", 2, "gpus", "no whole number"),
        (PHILLY + "1,2,0,a\n", 2, "gpus", "at least 1"),
        (PHILLY + "1,nan,1,a\n", 2, "duration_s", "at least 0"),
        (PHILLY + "1,2,3\n", 2, "", "3 cells, the header has 4"),
        ("a,b\n1,2\n", 1, "", "header is that of no format"),
        ("", 0, "", "empty"),
        (PHILLY, 0, "", "no job"),
        (
            SACCT + "7|n|u|p|never|2026-01-01T10:05:00|2026-01-01T10:05:01||cpu=1|C\n",
            2,
            "Submit",
            "neither seconds nor a time",
        ),
        (SACCT + "7|n|u|p|5|9|8||cpu=1|C\n", 2, "End", "ends before"),
        (SACCT + "7|n|u|p|5|9|9||cpu=1,gres/gpu=x|C\n", 2, "AllocTRES", "'x' is no count"),
        (SACCT + "7|n|u|p|5|9|9||cpu=1,gres/gpu=²|C\n", 2, "AllocTRES", "'²' is no count"),
        (SACCT + "7|n|u|p|5|9|9||cpu=1,mem=9999999P|C\n", 2, "AllocTRES", "no amount of memory"),
        (SACCT + "7|n|u|p|inf|9|9||cpu=1|C\n", 2, "Submit", "'inf' is no time"),
        (PHILLY + "1,2,1e30,a\n", 2, "gpus", "more than the 9007199254740992"),
        (PHILLY + "1,2,9999999,a\n", 2, "gpus", "more than the 1048576 GPUs"),
        (PHILLY + "1,1e300,1,a\n", 2, "duration_s", "more than the 9007199254740992"),
        ("timestamp,duration,num_gpus,cluster\nnan,1,1,a\n", 2, "timestamp", "'nan' is no time"),
        (
            "id,submit_seconds,duration_seconds,gpus,gpu_milli\na,1,1,1,1001\n",
            2,
            "gpu_milli",
            "no part of a GPU",
        ),
        (
            "id,submit_seconds,duration_seconds,gpus,min_gpus\na,1,1,2,3\n",
            2,
            "min_gpus",
            "more than the 2 GPUs",
        ),
        ("id,submit_seconds,duration_seconds,gpus,colour\na,1,1,2,3\n", 1, "colour", "no such column"),
        ("id,submit_seconds,duration_seconds,gpus,gpus\na,1,1,2,3\n", 1, "gpus", "two columns of this name"),
        ('id,submit_seconds,duration_seconds,gpus\na,1,1,2\n"b,1,1,2\nc,1,1,2\n', 3, "", "closed nowhere"),
        (
            'id,submit_seconds,duration_seconds,gpus\na,1,1,2\n"b,1,1,2\n' + 9999 * "long,1,1,2,4,5\n",
            3,
            "",
            "closed",
        ),
        (
            "id,submit_seconds,duration_seconds,gpus,time_share\na,1,1,2,maybe\n",
            2,
            "time_share",
            "neither true nor false",
        ),
    ],
)
def test_what_is_wrong_is_named_by_line_and_column(text: str, line: int, column: str, words: str) -> None:
    with pytest.raises(TraceError, match=words) as caught:
        read(text)
    assert (caught.value.file, caught.value.line, caught.value.column) == ("t.csv", line, column)


def test_a_dump_calls_a_job_as_its_owner_does() -> None:
    """Volcano names the group of a job after the job and its uid."""
    name = "train-7b79cd5b-29c2-4295-9e8a-fb39b807a4c4"
    (only,) = read(yaml.safe_dump_all([group(name, 1), ended_pod("train-main-0", name, 1, 2, 3)]))
    assert (only.id, only.name) == ("default/train", "train")


def test_a_header_too_long_for_a_table_is_refused() -> None:
    with pytest.raises(TraceError, match="field larger than field limit") as caught:
        read("x" * 200_000 + "\n1\n", "csv")
    assert caught.value.line == 1


def test_a_dump_in_which_an_end_is_no_time_is_refused_by_pod_and_field() -> None:
    ended = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
        "status": {
            "phase": "Succeeded",
            "containerStatuses": [{"name": "c", "state": {"terminated": {"finishedAt": "yesterday"}}}],
        },
    }
    with pytest.raises(
        TraceError, match=r"t.csv, field status.*finishedAt: pod default/a: 'yesterday' is no time"
    ):
        read(json.dumps(ended), "kubernetes")


def test_a_named_format_that_the_file_is_not_in_names_the_column_that_lacks() -> None:
    with pytest.raises(TraceError) as caught:
        read(PHILLY + "1,2,3,a\n", "muri")
    assert caught.value.column == "job_id"


# ---------------------------------------------------------------------- pods, and traces of our own


def test_pods_are_as_few_as_can_be() -> None:
    assert [pod_sizes(job(0, 1, gpus), 8) for gpus in (1, 8, 12, 24)] == [[1], [8], [8, 4], [8, 8, 8]]
    assert pod_sizes(job(0, 1, 3), 1) == [1, 1, 1]
    assert pod_sizes(job(0, 1, 0), 8) == [0]


def test_a_drawn_trace_is_the_same_for_a_seed_and_fits_its_profile() -> None:
    profile = Profile(jobs=2000, days=3.0)
    jobs = generate(profile, 7)
    assert jobs == generate(profile, 7)
    assert jobs != generate(profile, 8)
    assert len(jobs) == 2000
    assert all(0 <= one.submit_seconds <= 3 * 86_400 and one.duration_seconds >= 1 for one in jobs)
    assert [one.submit_seconds for one in jobs] == sorted(one.submit_seconds for one in jobs)
    assert {one.gpus for one in jobs} <= set(profile.sizes)
    by_name: dict[str, set[int]] = {}
    for one in jobs:
        by_name.setdefault(one.name, set()).add(one.gpus)
    assert all(len(sizes) == 1 for sizes in by_name.values())
    for wrong in (Profile(jobs=0), Profile(days=0.0), Profile(sizes={}), Profile(alike=2.0)):
        with pytest.raises(ValueError, match="a trace needs"):
            generate(wrong)


@pytest.mark.parametrize(
    ("name", "form", "jobs", "gpus"),
    [
        ("philly/philly_oct.csv.gz", "philly", 46_673, 52_764),
        ("muri/trace3.csv.gz", "muri", 992, 9_346),
        ("muri/trace1.csv.gz", "muri", 1494, 0),
        ("openb/pods_default.csv.gz", "openb", 7255, 0),
        ("genai/lora_requests.csv.gz", "genai", 18_453, 18_453),
        ("azure_llm/llm2023_code.csv.gz", "azure", 8819, 8819),
    ],
)
def test_published_traces_are_read_whole(name: str, form: str, jobs: int, gpus: int) -> None:
    found = published(name)
    assert len(found) == jobs
    assert not gpus or sum(one.gpus for one in found) == gpus
    assert formats.FORMATS[form].name == form
