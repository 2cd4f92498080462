"""``windlass what-if``: who would start sooner or later, by how much, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest
import yaml
from fakecluster import FakeCluster
from kubeobjects import node, pod, queue

from windlass.api.resources import CONFIG_MAPS, NODES, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS
from windlass.cli.simulate.what_if import NAMED
from windlass.predict.history import History
from windlass.predict.model import CompletedRun, Traits

Run_: TypeAlias = Any
"""Of the fixture ``windlass``, whose clock says 2026-01-01T12:00:00Z."""


def work(name: str, gpus: int, said: str = "", where: str = "", **more: Any) -> dict[str, Any]:
    """A pod that has run for an hour on ``where``, or waits."""
    notes = {"windlass.dev/run-estimate": said} if said else {}
    obj = pod(name, requests={"nvidia.com/gpu": str(gpus)}, node=where, annotations=notes, **more)
    obj["metadata"]["creationTimestamp"] = "2026-01-01T10:00:00Z" if where else "2026-01-01T11:59:00Z"
    if where:
        obj["status"]["startTime"] = "2026-01-01T11:00:00Z"
    return obj


@pytest.fixture
def cluster() -> FakeCluster:
    found = FakeCluster()
    for name in ("n1", "n2"):
        found.add(NODES, node(name))
    for name in ("root", "default", "research"):
        found.add(QUEUES, queue(name))
    found.add(PODS, work("a", 8, "2h", "n1"))
    found.add(PODS, work("b", 8, "5h", "n2"))
    found.add(PODS, work("c", 8, "1h"))
    return found


def asked(windlass: Run_, *arguments: str) -> dict[str, dict[str, Any]]:
    few = () if "--samples" in arguments else ("--samples", "2")
    done = windlass("what-if", *arguments, *few, "-o", "json")
    assert done.code == 0, done.err
    return {job["job"]: job for job in json.loads(done.out)["jobs"]}


def middle(job: dict[str, Any], when: str) -> float | None:
    return job[when]["p50"]


def test_more_nodes_start_what_waits_at_once(windlass: Run_) -> None:
    jobs = asked(windlass, "--add", "1x8")
    assert list(jobs) == ["c"]
    assert (middle(jobs["c"], "before"), middle(jobs["c"], "after")) == (3600.0, 0.0)
    assert jobs["c"]["laterSeconds"]["p50"] == -3600.0
    assert jobs["c"]["change"] == "sooner"


def test_a_node_that_is_drained_makes_its_work_wait_behind_the_rest(windlass: Run_) -> None:
    """The pod that is made in place of a is younger than c, which begins where b was."""
    jobs = asked(windlass, "--drain", "n1")
    assert (middle(jobs["c"], "before"), middle(jobs["c"], "after")) == (3600.0, 4 * 3600.0)
    assert (middle(jobs["a"], "before"), middle(jobs["a"], "after")) == (0.0, 5 * 3600.0)


GANG = "g-0a52c1f0-29c2-4295-9e8a-fb39b807a4c4"


def with_gang(cluster: FakeCluster, *policies: dict[str, str], size: int = 2) -> None:
    """A gang of a Volcano Job in place of a and b, and ``d`` of 8 GPUs beside c."""
    for name in "ab":
        del cluster.objects[(PODS, "default", name)]
    tasks = [{"name": "w", "replicas": size, "template": {"spec": {}}}]
    metadata = {"name": "g", "uid": GANG.removeprefix("g-")}
    spec = {"minAvailable": size, "tasks": tasks, "policies": list(policies)}
    cluster.add(VOLCANO_JOBS, {"metadata": metadata, "spec": spec})
    notes = {"windlass.dev/run-estimate": "2h"}
    metadata = {"name": GANG, "creationTimestamp": "2026-01-01T10:00:00Z", "annotations": notes}
    status = {"phase": "Running"}
    cluster.add(POD_GROUPS, {"metadata": metadata, "spec": {"minMember": size}, "status": status})
    for number in range(size):
        rank = work(f"g-w-{number}", 8, "2h", f"n{number + 1}")
        notes = rank["metadata"]["annotations"]
        notes |= {"scheduling.k8s.io/group-name": GANG, "volcano.sh/task-spec": "w"}
        cluster.add(PODS, rank)
    cluster.add(NODES, node("n3"))
    cluster.add(PODS, work("x", 8, "2h", "n3"))


def test_a_gang_that_its_owner_starts_over_gives_up_all_its_places_and_its_turn(
    windlass: Run_, cluster: FakeCluster
) -> None:
    """As a job of ``windlass submit``: c begins at once on the node that the rest of the gang leaves, where it stays
    for an hour; x ends in an hour."""
    with_gang(cluster, {"event": "PodEvicted", "action": "RestartJob"})
    jobs = asked(windlass, "--drain", "n1")
    assert middle(jobs["c"], "after") == 0.0
    assert middle(jobs["g"], "after") == 3600.0
    assert jobs["g"]["moreStops"] == 1.0


@pytest.mark.parametrize("policies", [(), ({"event": "PodFailed", "action": "RestartJob"},)])
def test_the_other_pods_of_any_other_gang_stay_where_they_are(
    windlass: Run_, cluster: FakeCluster, policies: tuple[dict[str, str], ...]
) -> None:
    """It is the oldest, and waits for the place of x."""
    with_gang(cluster, *policies)
    jobs = asked(windlass, "--drain", "n1")
    assert (middle(jobs["g"], "after"), middle(jobs["c"], "after")) == (3600.0, 3 * 3600.0)


def test_what_may_not_be_read_of_jobs_is_told(windlass: Run_, cluster: FakeCluster) -> None:
    cluster.hidden.add(VOLCANO_JOBS)
    done = windlass("what-if", "--drain", "n1", "--samples", "1")
    assert (done.code, "you may not read jobs.batch.volcano.sh" in done.err) == (0, True)


def test_the_jobs_of_a_dump_count(windlass: Run_, cluster: FakeCluster, tmp_path: Path) -> None:
    with_gang(cluster, {"event": "*", "action": "RestartJob"})
    objects = [
        {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        for (resource, _, _), obj in cluster.objects.items()
    ]
    path = tmp_path / "dump.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    done = windlass("what-if", "-f", str(path), "--drain", "n1", "--samples", "1", "-o", "json")
    assert "ignored" not in done.err
    assert {job["job"]: middle(job, "after") for job in json.loads(done.out)["jobs"]}["c"] == 0.0


def test_what_a_drain_stops_is_told_though_it_begins_anew_at_once(
    windlass: Run_, cluster: FakeCluster
) -> None:
    cluster.add(NODES, node("n3"))
    del cluster.objects[(PODS, "default", "c")]
    found = json.loads(windlass("what-if", "--drain", "n1", "--samples", "2", "-o", "json").out)
    assert found["totals"] == {"sooner": 0, "later": 0, "same": 0, "stopped": 1}
    (a,) = found["jobs"]
    assert (a["job"], a["moreStops"], middle(a, "after")) == ("a", 1.0, 0.0)
    told = windlass("what-if", "--drain", "n1", "--samples", "2").out
    assert "now         stopped, restarted at once" in told
    assert "0 sooner, 0 later, 0 as before\n1 running job would be stopped" in told


def test_jobs_have_the_names_that_their_owners_gave_them(windlass: Run_, cluster: FakeCluster) -> None:
    group = "train-7b79cd5b-29c2-4295-9e8a-fb39b807a4c4"
    cluster.add(POD_GROUPS, {"metadata": {"name": group}, "spec": {"minMember": 1}})
    ranks = work("train-0", 4, "1h")
    ranks["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = group
    cluster.add(PODS, ranks)
    assert "train" in asked(windlass, "--add", "1x8")
    for name in ("train", "default/train", group):
        assert "train" not in asked(windlass, "--remove-job", name)


def test_who_would_be_stopped_is_told(windlass: Run_, cluster: FakeCluster) -> None:
    """A queue that may hold more takes what it is due from another: that its job starts nowhere new is no reason to be
    silent of it. b, the younger, begins anew when a has ended, in an hour."""
    cluster.add(QUEUES, queue("research", capability={"nvidia.com/gpu": "4"}))
    owner = work("due", 8, "9h")
    owner["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] = "research"
    cluster.add(PODS, owner)
    jobs = asked(windlass, "--set-quota", "research.gpu=8", "--remove-job", "c")
    assert (middle(jobs["due"], "before"), middle(jobs["due"], "after")) == (None, 0.0)
    (stopped,) = [job for name, job in jobs.items() if name != "due"]
    assert (stopped["running"], stopped["moreStops"], stopped["change"]) == (True, 1.0, "later")
    assert middle(stopped, "after") == middle(stopped, "laterSeconds") > 0
    told = windlass("what-if", "--set-quota", "research.gpu=8", "--remove-job", "c", "--samples", "2").out
    assert "runs" in told
    assert "stopped, ~" in told
    assert "1 running job would be stopped" in told


def test_a_job_that_goes_makes_room(windlass: Run_) -> None:
    jobs = asked(windlass, "--remove-job", "default/b")
    assert middle(jobs["c"], "after") == 0.0


def test_a_job_may_be_named_without_its_namespace_where_that_is_clear(
    windlass: Run_, cluster: FakeCluster
) -> None:
    assert middle(asked(windlass, "--remove-job", "b")["c"], "after") == 0.0
    cluster.add(PODS, work("b", 1, "5h", "n2", namespace="other"))
    done = windlass("what-if", "--remove-job", "b")
    assert done.code == 3
    assert "default/b, other/b" in done.err


def test_what_has_ended_is_no_part_of_it(windlass: Run_, cluster: FakeCluster) -> None:
    over = work("over", 8, "2h", "n1")
    over["status"]["phase"] = "Succeeded"
    cluster.add(PODS, over)
    done = windlass("what-if", "--add", "1x8", "-o", "json", "--samples", "2")
    found = json.loads(done.out)
    assert [job["job"] for job in found["jobs"]] == ["c"]
    assert found["totals"] == {"sooner": 1, "later": 0, "same": 0, "stopped": 0}
    assert windlass("what-if", "--remove-job", "default/over").code == 3


def test_a_quota_keeps_work_waiting(windlass: Run_, cluster: FakeCluster) -> None:
    jobs = asked(windlass, "--set-quota", "default.gpu=12")
    assert middle(jobs["c"], "after") == 4 * 3600.0, "a and b hold 16"
    jobs = asked(windlass, "--set-quota", "default.gpu=6")
    assert middle(jobs["c"], "after") is None
    assert jobs["c"]["change"] == "later"


def test_quotas_that_have_to_change_together_may(windlass: Run_, cluster: FakeCluster) -> None:
    cluster.add(QUEUES, queue("default", capability={"nvidia.com/gpu": "16"}))
    both = ("--set-quota", "default.deserved.gpu=24", "--set-quota", "default.gpu=24")
    assert asked(windlass, *both, "--remove-job", "a")["c"]["change"] == "sooner"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (("root.gpu=8",), "spec.capability: Forbidden: root is the whole cluster"),
        (("team.gpu=17",), "it is above the capability 16 of lab, which lies above this queue"),
        (("lab.gpu=7", "lab.deserved.gpu=7"), "its child team may hold 8: lower that one first"),
        (("team.deserved.gpu=7",), "the children of lab would have 13 in sum, it has 12 itself"),
        (("lab.deserved.gpu=9",), "its children have 10 in sum: lower those first"),
        (("lab.gpu=4", "team.gpu=4", "lab.deserved.gpu=4", "other.deserved.gpu=0"), ""),
        (("lab.gpu=32", "team.gpu=32"), ""),
        (("odd.deserved.gpu=2",), ""),
    ],
)
def test_a_limit_that_a_server_would_refuse_is_refused_for_the_same_reason(
    windlass: Run_, cluster: FakeCluster, limits: tuple[str, ...], words: str
) -> None:
    """Beside the queues above and below it; what was wrong before may stay."""

    def gpus(number: int) -> dict[str, str]:
        return {"nvidia.com/gpu": str(number)}

    for found in (
        queue("lab", capability=gpus(16), deserved=gpus(12)),
        queue("team", parent="lab", capability=gpus(8), deserved=gpus(4)),
        queue("other", parent="lab", deserved=gpus(6)),
        queue("small", capability=gpus(4)),
        queue("odd", parent="small", capability=gpus(8)),
        queue("old", parent="odd"),
    ):
        cluster.add(QUEUES, found)
    options = [word for limit in limits for word in ("--set-quota", limit)]
    done = windlass("what-if", *options, "--samples", "1")
    assert words in done.err
    assert done.code == 0 or "would not be valid" in done.err
    assert (done.code == 0) == (not words), done.err


def test_another_policy(windlass: Run_, cluster: FakeCluster) -> None:
    """Two GPUs are idle, the first that waits wants eight; the second two, for less than the first has to wait."""
    del cluster.objects[(PODS, "default", "a")]
    cluster.add(PODS, work("a", 6, "2h", "n1"))
    late = work("d", 2, "30m")
    late["metadata"]["creationTimestamp"] = "2026-01-01T11:59:30Z"
    cluster.add(PODS, late)
    jobs = asked(windlass, "--policy", "strict")
    assert (middle(jobs["d"], "before"), middle(jobs["d"], "after")) == (0.0, 2 * 3600.0)
    assert middle(jobs["c"], "before") == middle(jobs["c"], "after") == 3600.0


@pytest.mark.parametrize("name", list(NAMED))
def test_every_configuration_that_has_a_name_can_be_asked_for(windlass: Run_, name: str) -> None:
    jobs = asked(windlass, "--policy", name)
    assert middle(jobs["c"], "before") == 3600.0


def test_run_times_are_drawn_from_earlier_runs(windlass: Run_, cluster: FakeCluster) -> None:
    del cluster.objects[(PODS, "default", "a")]
    cluster.add(PODS, work("a", 8, "", "n1"))
    history = History()
    for number in range(10):
        history.observe(CompletedRun(f"w{number}", Traits("default", "default", "a"), 3600.0 + 600 * number))
    text = msgspec.json.encode(history.as_record()).decode()
    kept = {"metadata": {"name": "windlass-run-times", "namespace": "kube-system"}, "data": {"history": text}}
    cluster.add(CONFIG_MAPS, kept)
    jobs = asked(windlass, "--add", "1x8", "--samples", "60")
    before = jobs["c"]["before"]
    assert before["p10"] < before["p50"] < before["p90"]
    assert before["p10"] >= 600
    assert before["p90"] <= 5400
    assert asked(windlass, "--add", "1x8", "--samples", "60") == jobs
    drawn = [asked(windlass, "--add", "1x8", "--samples", "1", "--seed", str(n))["c"] for n in range(6)]
    assert len({middle(one, "before") for one in drawn}) > 1


def test_what_is_learned_decides_who_passes_as_on_the_cluster(windlass: Run_, cluster: FakeCluster) -> None:
    """``c`` waits for the whole node until ``a`` ends in an hour; ``d`` may pass as its like run for ten minutes."""
    for kind, namespace, name in ((NODES, "", "n2"), (PODS, "default", "a"), (PODS, "default", "b")):
        del cluster.objects[(kind, namespace, name)]
    cluster.add(PODS, work("a", 4, "2h", "n1"))
    late = work("d", 4)
    late["metadata"]["creationTimestamp"] = "2026-01-01T11:59:30Z"
    cluster.add(PODS, late)
    assert middle(asked(windlass, "--add", "1x1", "--run-time", "10m")["d"], "before") == 7200.0
    history = History()
    for number in range(10):
        history.observe(CompletedRun(f"w{number}", Traits("default", "default", "d"), 600.0))
    text = msgspec.json.encode(history.as_record()).decode()
    kept = {"metadata": {"name": "windlass-run-times", "namespace": "kube-system"}, "data": {"history": text}}
    cluster.add(CONFIG_MAPS, kept)
    jobs = asked(windlass, "--add", "1x1")
    assert "d" not in jobs  # it starts at once, with the other node and without
    assert middle(jobs["c"], "before") == 3600.0


def test_of_what_nobody_knows_an_end_of(windlass: Run_, cluster: FakeCluster) -> None:
    for name in ("a", "b"):
        del cluster.objects[(PODS, "default", name)]
        cluster.add(PODS, work(name, 8, "", f"n{1 + (name == 'b')}"))
    done = windlass("what-if", "--add", "1x8")
    assert "never" in done.out
    assert "only then" in done.out
    assert "2 of 2 running jobs have no known run time and never end in the simulation" in done.out
    assert "pending job" not in done.out
    jobs = asked(windlass, "--add", "1x8", "--run-time", "3h")
    assert middle(jobs["c"], "before") == 2 * 3600.0


def test_of_what_waits_and_nobody_knows_an_end_of(windlass: Run_, cluster: FakeCluster) -> None:
    """It may be why what comes behind it never starts."""
    del cluster.objects[(PODS, "default", "c")]
    cluster.add(PODS, work("c", 8))
    told = "1 of 1 pending job has no known run time and never ends in the simulation; to assume one: --run-time 2h"
    assert told in windlass("what-if", "--remove-job", "b").out
    found = json.loads(windlass("what-if", "--remove-job", "b", "-o", "json").out)
    assert (found["waiting"], found["waitingWithoutKnownEnd"], found["running"]) == (1, 1, 2)
    assert told not in windlass("what-if", "--remove-job", "b", "--run-time", "1h").out


def test_of_an_empty_cluster_it_is_said_that_nothing_is_there(windlass: Run_, cluster: FakeCluster) -> None:
    for name in "abcd":
        cluster.objects.pop((PODS, "default", name), None)
    assert "there are no running or pending jobs" in windlass("what-if", "--add", "1x8").out
    gone = windlass("what-if", "--remove-job", "a")
    assert (gone.code, "there are no running or pending jobs" in gone.err) == (3, True)


def test_for_people(windlass: Run_) -> None:
    done = windlass("what-if", "--drain", "n1", "--samples", "3")
    assert "without node n1: 3 samples of run times" in done.out
    lines = [line.split() for line in done.out.splitlines() if line.startswith("default/")]
    assert [line[0] for line in lines] == ["default/a", "default/c"]
    assert "~5h" in lines[0]
    assert "runs" in lines[0]
    assert "0 sooner, 2 later, 0 as before" in done.out


def test_pods_of_other_schedulers_are_told_of_since_they_never_end(
    windlass: Run_, cluster: FakeCluster
) -> None:
    for name, where in (("a", "n1"), ("b", "n2")):
        obj = work(name, 8, "2h", where)
        obj["spec"]["schedulerName"] = "another"
        cluster.add(PODS, obj)
    told = windlass("what-if", "--add", "1x8", "--samples", "1").out
    assert "\n2 pods of other schedulers hold 16 GPUs and never end in the simulation\n" in told
    told = windlass("what-if", "--drain", "n1", "--samples", "1").out
    assert (
        "never end in the simulation; 1 of them is removed with its node and not placed elsewhere\n" in told
    )
    found = json.loads(windlass("what-if", "--drain", "n1", "--samples", "1", "-o", "json").out)
    assert (found["podsOfOthers"], found["gpusOfOthers"]) == (2, 16.0)


def test_what_is_said_twice_goes_once(windlass: Run_) -> None:
    for option, name in (("--drain", "n1"), ("--remove-job", "default/a")):
        assert asked(windlass, option, name, option, name) == asked(windlass, option, name)


def test_a_dump_is_read_as_plan_reads_it(windlass: Run_, tmp_path: Path) -> None:
    objects = [node("n1"), work("a", 8, "2h", "n1"), work("c", 8, "1h")]
    path = tmp_path / "dump.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    jobs = asked(windlass, "-f", str(path), "--remove-job", "default/a")
    assert (middle(jobs["c"], "before"), middle(jobs["c"], "after")) == (3600.0, 0.0)
    assert list(jobs) == ["c"]


def test_pods_of_a_daemon_set_go_with_their_node(windlass: Run_, tmp_path: Path) -> None:
    owner = {
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
        ]
    }
    daemon = pod("daemon", requests={"cpu": "1"}, node="n1", metadata=owner)
    path = tmp_path / "dump.yaml"
    path.write_text(yaml.safe_dump_all([node("n1"), daemon, work("c", 8, "1h")]))
    assert list(asked(windlass, "-f", str(path), "--drain", "n1")) == ["c"]


def test_nothing_is_changed_in_the_cluster(windlass: Run_, cluster: FakeCluster) -> None:
    asked(windlass, "--drain", "n1", "--add", "2x8")
    assert cluster.requests == []


def test_nodes_that_come_may_be_like_one_that_goes(windlass: Run_, cluster: FakeCluster) -> None:
    for name in ("n1", "n2"):
        cluster.add(NODES, node(name, labels={"pool": name}))
    cluster.add(PODS, work("c", 8, "1h", nodeSelector={"pool": "n1"}))
    del cluster.objects[(NODES, "", "n2")], cluster.objects[(PODS, "default", "b")]
    done = windlass("what-if", "--drain", "n1", "--add", "1x8", "--samples", "1", "-o", "json")
    assert "no node resembles" not in done.err
    jobs = {job["job"]: job for job in json.loads(done.out)["jobs"]}
    assert (middle(jobs["c"], "before"), middle(jobs["c"], "after")) == (3600.0, 0.0)


@pytest.mark.parametrize(
    ("text", "like"),
    [
        ("1xh100:8", True),
        ("1xH100-80GB:8", True),
        ("1xNVIDIA-H100-80GB-HBM3:8", True),
        ("1xH100_80GB:8", True),
        ("1xH10:8", False),
        ("1xH100-HBM3:8", False),
    ],
)
def test_a_model_is_meant_by_words_of_its_name(
    windlass: Run_, cluster: FakeCluster, text: str, like: bool
) -> None:
    for name in ("n1", "n2"):
        cluster.add(NODES, node(name, labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}))
    done = windlass("what-if", "--add", text, "--samples", "1")
    assert (done.code, "no node resembles" in done.err) == (0, not like)


def test_a_node_that_comes_is_ready_though_the_one_like_it_is_not(
    windlass: Run_, cluster: FakeCluster
) -> None:
    for name in ("n1", "n2"):
        cluster.add(NODES, node(name, ready="False", unschedulable=True))
    assert middle(asked(windlass, "--add", "1x8")["c"], "after") == 0.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "no change is given"),
        (("--drain", "n9"), 'node "n9" does not exist'),
        (("--set-quota", "sales.gpu=4"), 'queue "sales" does not exist'),
        (("--set-quota", "default.tpu=4"), 'resource "tpu" does not exist'),
        (("--set-quota", "default.gpu"), "is not QUEUE.RESOURCE=AMOUNT"),
        (("--set-quota", "default.gpu=lots"), "lots"),
        (("--set-quota", "default.gpu=-4"), "less than nothing"),
        (("--set-quota", "default.gpus=4"), "did you mean gpu?"),
        (("--set-quota", "default.gpu=1.5"), 'Invalid value: "1500m": must be an integer'),
        (("--set-quota", "default.guarantee.gpu=4"), "deserved does not name nvidia.com/gpu"),
        (
            ("--set-quota", "default.deserved.gpu=8", "--set-quota", "default.gpu=4"),
            "it is above capability 4: lower it or raise spec.capability[nvidia.com/gpu]",
        ),
        (("--add", "1x8", "--horizon", "0s"), "--horizon: 0s is not greater than 0s"),
        (("--add", "1x8", "--run-time", "2"), "--run-time: '2' is not a duration"),
        (("--policy", "nonsense"), 'policy "nonsense" does not exist'),
        (("--policy", "/"), "--policy / is a directory"),
        (("--remove-job", "default/x"), 'there is no running or pending job "default/x"'),
        (("--remove-job", "default/bb"), "did you mean default/b?"),
        (("--drain", "n11"), "did you mean n1?"),
        (("--add", "many"), "not COUNTxGPUS"),
        (("--drain", "n1", "--run-time", "0s"), "0s is not greater than 0s"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(
    windlass: Run_, arguments: tuple[str, ...], words: str
) -> None:
    done = windlass("what-if", *arguments)
    assert done.code != 0
    assert words in done.err
    assert "windlass" in done.err
