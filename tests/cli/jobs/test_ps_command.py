"""``windlass ps``, ``show`` and ``explain``: columns, order, words."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import example_cluster
import pytest
from fakecluster import FakeCluster

from windlass.api.reasons import Blocker, Explanation, NodesRequested, Reason
from windlass.api.resources import EVENTS, NAMESPACES, PODS, VOLCANO_JOBS, WORKFLOWS
from windlass.cli import tables, terminal
from windlass.cli.commands.jobs.ps import shorten_last
from windlass.cli.jobs.logs import watch
from windlass.cli.jobs.reasons import short_names
from windlass.kits.clock import FakeClock


@pytest.fixture
def cluster() -> FakeCluster:
    return example_cluster.busy()


def test_transcripts(transcript):
    transcript("ps", "ps", "ps -o wide", "ps -q research", "ps -A --utc", "ps -o name")
    transcript("explain", "explain big", "explain huge", "explain train", "explain crash")
    transcript("show", "show train", "show big")
    transcript("queues", "queue ls", "queue tree", "queue ls -o wide")
    transcript("nodes", "node ls", "node ls -o wide")


def test_no_line_is_wider_than_80_cells(windlass):
    assert max(map(len, windlass("ps").out.splitlines())) <= 80


def test_the_time_to_the_start_is_not_what_gives_way():
    words = "needs 8 GPUs, 0 free, #1, ~4m"
    assert shorten_last(words, 40) == words
    assert tables.cells(shorten_last(words, 20)) == 20
    assert shorten_last(words, 20).endswith(", #1, ~4m")
    assert tables.cells(shorten_last(words, 5)) <= 5
    assert shorten_last("sim-0 sim-1 sim-2", 8) == "sim-0 s…"


def test_in_a_sentence_pods_without_a_group_have_their_own_names():
    text = "when default/pod:a, lab/pod:b and 2 more end, as learned (of default/pod:a by 3 earlier runs)"
    assert short_names(text).startswith("when a, lab/b and 2 more end")


def test_running_come_first_then_waiting_by_position_then_finished(windlass):
    names = [line.split()[0] for line in windlass("ps").out.splitlines()[1:]]
    assert names == ["bare", "train", "big", "huge", "crash", "hello"]


def test_a_task_that_failed_at_its_outputs_is_not_completed(windlass, cluster):
    node = {"id": "sends", "name": "sends", "displayName": "sends", "type": "Pod", "startedAt": None}
    node |= {"phase": "Error", "message": "artifact out: HTTP Error 403: Forbidden"}
    owner = {
        "apiVersion": WORKFLOWS.api_version,
        "kind": "Workflow",
        "name": "sends",
        "uid": "w",
        "controller": True,
    }
    notes = {"workflows.argoproj.io/node-id": "sends", "workflows.windlass.dev/outputs": "{}"}
    ended = [{"name": "main", "state": {"terminated": {"exitCode": 0}}}]
    pod = {
        "metadata": {
            "name": "sends",
            "namespace": "default",
            "annotations": notes,
            "ownerReferences": [owner],
        },
        "spec": {"containers": []},
        "status": {"phase": "Succeeded", "containerStatuses": ended},
    }
    cluster.add(PODS, pod)
    status = {"phase": "Error", "nodes": {"sends": node}}
    cluster.add(WORKFLOWS, {"metadata": {"name": "sends", "namespace": "default"}, "status": status})
    (row,) = [
        line.split() for line in windlass("ps", "-o", "wide").out.splitlines() if line.startswith("sends")
    ]
    assert "Failed" in row
    assert row[row.index("Error:") :][:3] == ["Error:", "artifact", "out:"]
    status["nodes"]["sends"] = {**node, "phase": "Succeeded", "message": ""}
    cluster.add(WORKFLOWS, {"metadata": {"name": "sends", "namespace": "default"}, "status": status})
    assert "Completed" in next(line for line in windlass("ps").out.splitlines() if line.startswith("sends"))


@pytest.mark.parametrize("command", [("ps",), ("explain", "big"), ("logs", "big")])
def test_a_namespace_that_is_not_there_is_told(windlass, cluster, command):
    for name in ("default", "lab"):
        cluster.add(NAMESPACES, {"metadata": {"name": name}})
    done = windlass(*command, "-n" if command[0] != "logs" else "--namespace", "lub")
    assert done.code == 3
    assert done.err.splitlines()[:3] == [
        'error[WL-NAMESPACE-404]: namespace "lub" does not exist',
        "why: existing namespaces: default, lab",
        "try: did you mean lab?",
    ]
    assert windlass("ps", "-n", "lab").code == 0


def test_commands_without_a_namespace_use_that_of_the_context_as_kubectl_does(windlass, cluster, tmp_path):
    for name in ("lab", "empty"):
        cluster.add(NAMESPACES, {"metadata": {"name": name}})
    state = tmp_path / "state"
    state.mkdir()
    place = {"name": "windlass", "cluster": {"server": "https://127.0.0.1:6443"}}
    context = {"cluster": "windlass", "user": "windlass", "namespace": "lab"}
    config = {
        "clusters": [place],
        "contexts": [{"name": "box", "context": context}],
        "current-context": "box",
    }
    (state / "kubeconfig").write_text(json.dumps(config))
    in_lab, in_default = (
        windlass("ps", "-n", "lab", "-o", "name"),
        windlass("ps", "-n", "default", "-o", "name"),
    )
    assert in_lab.out != in_default.out
    assert windlass("ps", "-o", "name").out == in_lab.out
    assert 'job "train" does not exist in namespace lab\n' in windlass("show", "train").err
    assert windlass("show", "default/train").code == 0
    context["namespace"] = "empty"
    (state / "kubeconfig").write_text(json.dumps(config))
    assert "No jobs in namespace empty" in windlass("ps").err


def test_a_watched_table_shows_what_its_terminal_has_lines_for(windlass, cluster, monkeypatch):
    monkeypatch.setattr(watch, "changes", lambda *_: [None])
    assert len(windlass("ps", "--watch").out.splitlines()) == 8, "a header, six jobs and an empty line"
    monkeypatch.setattr(terminal.Terminal, "of", staticmethod(lambda stream: Seen(stream, True, 80, False)))
    done = windlass("ps", "--watch")
    assert [line.split()[0] for line in done.out.splitlines()] == ["\x1b[H\x1b[2JJOB", "bare", "train", "big"]
    assert done.err == "3 more jobs not shown; all jobs: windlass ps\n"
    monkeypatch.setattr(Seen, "height", 10)
    assert (len(windlass("ps", "--watch").out.splitlines()), windlass("ps", "--watch").err) == (7, "")


class Seen(terminal.Terminal):
    """A terminal of seven lines."""

    height = 7  # type: ignore[assignment]


def test_json_is_for_programs(windlass):
    items = {item["name"]: item for item in json.loads(windlass("ps", "-o", "json").out)["items"]}
    assert items["train"]["nodes"] == {"box": 2}
    assert items["train"]["gpus"] == 2
    assert items["big"]["explanation"]["code"] == "InsufficientResources"
    assert items["crash"]["exitCode"] == 3
    assert items["hello"]["exitCode"] == 0
    assert items["bare"]["placeholder"] is True


def test_no_colour_and_no_control_characters_when_piped(windlass):
    assert "\x1b" not in windlass("ps").out


def test_every_reason_has_short_words():
    from windlass.cli.jobs.reasons import SHORT

    assert set(SHORT) == set(Reason)
    assert all(len(text) <= 28 for text in SHORT.values())


def test_a_missing_job_is_told_with_the_nearest_name(windlass):
    done = windlass("explain", "trian")
    assert done.code == 3
    assert done.err.startswith(
        'error[WL-JOB-404]: job "trian" does not exist in namespace default\nwhy: existing jobs: '
    )
    assert "try: did you mean train?\n" in done.err


def test_pods_of_what_is_no_job_are_told(windlass, cluster):
    """A Deployment is no job: each of its pods is one."""
    for name in ("web-5dff-a", "web-5dff-b"):
        cluster.add(PODS, {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": []}})
    done = windlass("explain", "web")
    assert (
        'job "web" does not exist in namespace default\n'
        "why: jobs that begin with this name: web-5dff-a, web-5dff-b\n" in done.err
    )


def test_errors_as_json(windlass):
    done = windlass("show", "trian", "-o", "json")
    record = json.loads(done.err)
    assert record["code"] == "WL-JOB-404"
    assert record["remedies"][0] == "did you mean train?"
    assert done.out == ""


def test_a_record_that_cannot_be_read_is_passed_over(cluster, windlass):
    for (_, _, name), obj in cluster.objects.items():
        if name.startswith("big-uid"):
            obj["metadata"]["annotations"] = {"windlass.dev/explanation": "{"}
            obj["status"]["conditions"] = [
                {"type": "Unschedulable", "status": "True", "message": "2/3 nodes are full"}
            ]
    assert "2/3 nodes are full" in windlass("ps").out


def test_the_explanation_travels_unchanged(windlass):
    record = json.loads(windlass("explain", "big", "-o", "json").out)
    assert Explanation.from_dict(record["explanation"]) == example_cluster.WAITING
    assert record["willItRun"] == "yes"


def test_the_time_to_the_start_counts_from_now_and_not_from_when_it_was_written(cluster, windlass):
    """The clock of these tests says 2026-01-01T12:00:00Z."""
    now = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
    told = Explanation(
        Reason.INSUFFICIENT_RESOURCES,
        "m",
        estimate_seconds=3600.0,
        estimate_at=now - 1800,
        estimate_band=(3000.0, 4200.0),
        estimate_basis="by 9 simulated courses",
    )
    example_cluster.explain(cluster, "big", told)
    assert "~30m" in windlass("ps").out
    assert "starts in ~30m (20m0s to 40m0s by 9 simulated courses)" in windlass("explain", "big").out
    example_cluster.explain(cluster, "big", replace(told, estimate_at=now - 5000))
    assert ", due" in windlass("ps").out
    assert "starts soon (by 9 simulated courses)" in windlass("explain", "big").out


def test_nodes_that_are_asked_for_are_told_with_how_that_stands_now(cluster, windlass):
    now = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
    asked = NodesRequested("4 x 8 GPUs", "accepted", now - 12, "not found yet", "windlass-big-1", "atomic", 1)
    told = Explanation(Reason.INSUFFICIENT_RESOURCES, "m", position=2, asked=asked)
    example_cluster.explain(cluster, "big", told)
    assert "nodes requested: 4 x 8 GPUs, accepted 12s ago, #2" in windlass("ps", "-o", "wide").out
    text = " ".join(windlass("explain", "big").out.split())
    assert "4 x 8 GPUs, accepted 12s ago not found yet by ProvisioningRequest windlass-big-1, atomic" in text
    record = json.loads(windlass("explain", "big", "-o", "json").out)["explanation"]
    assert Explanation.from_dict(record) == told
    failed = replace(asked, state="failed", attempt=2, retry_at=now + 90)
    example_cluster.explain(cluster, "big", replace(told, asked=failed))
    text = " ".join(windlass("explain", "big").out.split())
    assert "windlass-big-1, attempt 2, atomic next request in 1m30s" in text
    refused = NodesRequested("4 x 8 GPUs", "not asked", detail="the cluster has none")
    example_cluster.explain(cluster, "big", replace(told, asked=refused))
    assert "4 x 8 GPUs, not asked the cluster has none" in " ".join(windlass("explain", "big").out.split())


@pytest.mark.parametrize(
    ("blockers", "words"),
    [
        ((Blocker(Reason.INSUFFICIENT_RESOURCES, 3, "tasks", "4", "2"),), "2 of 4 pods fit"),
        ((Blocker(Reason.INSUFFICIENT_RESOURCES, 3, "pods", "4"),), "0 of 4 pods fit"),
        (
            (
                Blocker(Reason.INSUFFICIENT_RESOURCES, 1, "tasks", "1", "0"),
                Blocker(Reason.INSUFFICIENT_RESOURCES, 1, "cpu", "4", "2"),
                Blocker(Reason.INSUFFICIENT_RESOURCES, 1, "nvidia.com/gpu", "2", "1"),
            ),
            "needs 2 GPUs, 1 free",
        ),
        ((Blocker(Reason.INSUFFICIENT_RESOURCES, 1, "cpu", "4", "2"),), "needs 4 CPUs, 2 free"),
        ((), "nodes in use"),
    ],
)
def test_what_is_short_comes_first(cluster, windlass, blockers, words):
    record = Explanation(Reason.INSUFFICIENT_RESOURCES, "m", blockers=blockers)
    example_cluster.explain(cluster, "big", record)
    assert words in windlass("ps").out


def test_a_jobs_group_is_called_after_the_job():
    from windlass.cli.jobs.reasons import group_title

    assert group_title("default/train-b3bbfd3f-0f22-4bab-8d33-164338d08547") == "train"
    assert group_title("lab/train-b3bbfd3f-0f22-4bab-8d33-164338d08547") == "lab/train"
    assert group_title("default/my-group") == "my-group"
    assert group_title("default/pod:bare") == "bare"


def test_a_queue_that_is_not_there_is_no_empty_list(windlass):
    done = windlass("ps", "-q", "reseach")
    assert done.code == 3
    assert done.err.startswith('error[WL-QUEUE-404]: queue "reseach" does not exist\n')


@pytest.mark.parametrize(
    ("created", "told"), [("11:59:55", "InsufficientResources: No room."), ("11:30:00", "WaitingForMembers")]
)
def test_of_a_job_that_has_just_been_submitted_the_word_on_all_of_its_pods_is_waited_for(
    cluster, windlass, monkeypatch, created, told
):
    def passes(clock, seconds):
        clock.jump(seconds)
        example_cluster.explain(cluster, "big", Explanation(Reason.INSUFFICIENT_RESOURCES, "No room."))

    monkeypatch.setattr(FakeClock, "pause", passes)
    example_cluster.explain(
        cluster, "big", Explanation(Reason.WAITING_FOR_MEMBERS, "It has 2 of the 4 pods.")
    )
    for obj in cluster.objects.values():
        if obj["metadata"]["name"] == "big":
            obj["metadata"]["creationTimestamp"] = f"2026-01-01T{created}Z"
    assert told in windlass("explain", "big").out


def test_why_pods_that_a_gang_lacks_were_not_made(cluster, windlass):
    """ "Create the missing pods" helps nobody whose quota refuses them."""
    example_cluster.explain(
        cluster, "big", Explanation(Reason.WAITING_FOR_MEMBERS, "It has 2 of the 4 pods.")
    )
    assert "not created" not in windlass("explain", "big").out
    uid = windlass("get", "vcjob", "big", "-o", "jsonpath={.metadata.uid}").out.strip()
    told = 'pods "big-w-3" is forbidden: exceeded quota: rq'
    for reason, message in (("FailedCreate", told), ("Created", "something else")):
        cluster.add(
            EVENTS,
            {
                "metadata": {"name": reason.lower(), "namespace": "default"},
                "involvedObject": {"kind": "Job", "name": "big", "namespace": "default", "uid": uid},
                "reason": reason,
                "message": message,
                "type": "Warning",
            },
        )
    explained = windlass("explain", "big").out
    assert f"not created:  {told}" in explained
    assert "Create the" not in explained
    assert json.loads(windlass("explain", "big", "-o", "json").out)["notMade"] == told


def test_objects_of_a_job_that_could_not_be_created_are_told(cluster, windlass):
    """Without its Service or pod group, a gang has no pods and no explanation."""
    job = {
        "metadata": {"name": "7b", "namespace": "default", "uid": "u-7b"},
        "spec": {"minAvailable": 2, "tasks": [{"name": "main", "replicas": 2, "template": {}}]},
        "status": {"state": {"phase": "Pending"}},
    }
    cluster.add(VOLCANO_JOBS, job)
    assert "not created" not in windlass("ps").out
    told = 'services "7b" is forbidden: exceeded quota: rq'
    event = {
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Job", "name": "7b", "namespace": "default", "uid": "u-7b"},
        "reason": "FailedCreate",
        "message": f"Error: {told}",
        "type": "Warning",
    }
    cluster.add(EVENTS, event)
    assert "not created: services" in windlass("ps").out
    (record,) = [r for r in json.loads(windlass("ps", "-o", "json").out)["items"] if r["name"] == "7b"]
    assert record["summary"] == f"not created: {told}"
    explained = windlass("explain", "7b").out
    assert f"not created:  {told}" in explained
    assert "could not be created" in explained
    assert told in windlass("show", "7b").out
    assert told in windlass("logs", "7b").err


def test_the_progress_that_a_program_reported_is_shown(windlass, cluster):
    report = (
        '{"progressPercentage":42,"estimatedRemainingSeconds":330,"lastUpdatedTime":"2000-01-01T00:00:00Z"}'
    )
    found = cluster.client().find(VOLCANO_JOBS, "train", "default")
    found["metadata"].setdefault("annotations", {})["windlass.dev/progress"] = report
    cluster.add(VOLCANO_JOBS, found)
    line = next(line for line in windlass("ps").out.splitlines() if line.startswith("train"))
    assert "42%, 0s left" in line
    records = json.loads(windlass("ps", "-o", "json").out)["items"]
    assert next(one for one in records if one["name"] == "train")["progress"]["progressPercentage"] == 42
