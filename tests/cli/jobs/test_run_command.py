"""``windlass run`` and ``submit``: what is told before anything is submitted, and what is submitted."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import example_cluster
import pytest
from fakecluster import FakeCluster, box, node, queue

from windlass.api.resources import NODES, PODS, PRIORITY_CLASSES, QUEUES, VOLCANO_JOBS
from windlass.cli import bootstrap
from windlass.cli.jobs.job_index import refresh
from windlass.cli.jobs.logs import follow
from windlass.cli.jobs.requests.job_builder import JobRequest, build_job
from windlass.kits.state import StateFolder
from windlass.node.devices import discovery


@pytest.fixture(autouse=True)
def running(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bootstrap, "is_running", lambda _state: True)
    monkeypatch.setattr(bootstrap, "is_ready", lambda _state: True)


H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
T4 = {"nvidia.com/gpu.product": "Tesla-T4"}


def ends(code: int, *, lines: bytes = b"") -> Any:
    """What the control plane does with a new job: it runs at once and ends with ``code``."""

    def hook(cluster: FakeCluster, resource: Any, job: dict[str, Any]) -> None:
        if resource is not VOLCANO_JOBS:
            return
        name = job["metadata"]["name"]
        job["status"] = {"state": {"phase": "Completed" if code == 0 else "Failed"}}
        phase = "Succeeded" if code == 0 else "Failed"
        for index in range(job["spec"]["tasks"][0]["replicas"]):
            pod = example_cluster.pod(cluster, name, index, node="box", phase=phase, exit_code=code)
            cluster.logs[("default", pod["metadata"]["name"])] = lines

    return hook


def created(cluster: FakeCluster) -> dict[str, Any]:
    return next(body for verb, what, body in cluster.requests if verb == "CREATE" and what == "jobs")


def created_pod(cluster: FakeCluster) -> dict[str, Any]:
    return created(cluster)["spec"]["tasks"][0]["template"]["spec"]


@pytest.mark.parametrize("code", [0, 1, 7, 137])
def test_the_exit_status_is_the_jobs_own(windlass, cluster, code):
    cluster.on_create.append(ends(code, lines=b"2026-01-01T12:00:00Z hi\n"))
    done = windlass("run", "--quiet", "--", "true")
    assert (done.code, done.out, done.err) == (code, "hi\n", "")


def test_how_it_ended_is_told_on_standard_error(windlass, cluster):
    cluster.on_create.append(ends(137))
    done = windlass("run", "--name", "j", "--", "true")
    assert done.err == "j: failed, exit 137 (SIGKILL)\n"
    assert done.out == ""


@pytest.mark.parametrize(
    ("code", "pod_says", "container_says", "told"),
    [
        (137, None, "OOMKilled", "exit 137 (OOMKilled)"),
        (143, "DeadlineExceeded", "Error", "exit 143 (DeadlineExceeded)"),
        (3, None, "Error", "exit 3"),
    ],
)
def test_what_ended_it_is_told_where_it_was_not_its_own_doing(
    windlass, cluster, code, pod_says, container_says, told
):
    def hook(cluster: FakeCluster, resource: Any, job: dict[str, Any]) -> None:
        ends(code)(cluster, resource, job)
        if resource is VOLCANO_JOBS:
            status = cluster.objects[PODS, "default", "j-main-0"]["status"]
            status["containerStatuses"][0]["state"]["terminated"]["reason"] = container_says
            status |= {"reason": pod_says} if pod_says else {}

    cluster.on_create.append(hook)
    assert windlass("run", "--name", "j", "--", "true").err == f"j: failed, {told}\n"
    assert windlass("ps").out.splitlines()[1].endswith(told)
    assert told in windlass("show", "j").out


def test_who_saves_its_work_at_the_time_limit_and_leaves_in_peace_was_ended_by_the_limit(windlass, cluster):
    """And not by anything that counts pods: the container ended with 0, the pod failed, and so did the job."""

    def hook(cluster: FakeCluster, resource: Any, job: dict[str, Any]) -> None:
        if resource is VOLCANO_JOBS:
            job["status"] = {"state": {"phase": "Failed", "message": "task main: 0 of 1 pods succeeded"}}
            pod = example_cluster.pod(cluster, "j", 0, node="box", phase="Failed", exit_code=0)
            pod["status"]["reason"] = "DeadlineExceeded"

    cluster.on_create.append(hook)
    done = windlass("run", "--name", "j", "--", "true")
    assert (done.code, done.err) == (1, "j: failed, DeadlineExceeded, exit 0\n")
    assert windlass("ps").out.splitlines()[1].endswith("DeadlineExceeded, exit 0")
    shown = windlass("show", "j").out
    assert "Failed (DeadlineExceeded, exit 0)" in shown
    assert shown.split("RANK")[1].splitlines()[1].endswith("DeadlineExceeded, exit 0")
    assert json.loads(windlass("ps", "-o", "json").out)["items"][0]["exitCode"] == 1


@pytest.mark.parametrize("ends_first", ["job", "pod"])
def test_where_it_ran_is_told_also_of_what_ends_between_two_looks(
    windlass, cluster, monkeypatch, ends_first: str
):
    """Else a short job on a busy machine would be told to start and never to run."""

    def starts(target: FakeCluster, resource: Any, job: dict[str, Any]) -> None:
        if resource is VOLCANO_JOBS:
            job["status"] = {"state": {"phase": "Running"}}
            example_cluster.pod(target, "j", 0, node="box")

    looks = []

    def looked(invocation: Any, job: Any) -> Any:
        looks.append(job)
        if len(looks) == 2:
            example_cluster.pod(cluster, "j", 0, node="box", phase="Succeeded", exit_code=0)
        if len(looks) > (1 if ends_first == "job" else 2):
            cluster.objects[VOLCANO_JOBS, "default", "j"]["status"]["state"]["phase"] = "Completed"
        return refresh(invocation, job)

    cluster.on_create.append(starts)
    monkeypatch.setattr(follow, "refresh", looked)
    done = windlass("run", "--name", "j", "--", "true")
    assert done.err.splitlines() == ["j: starting on box", "j: running on box"]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("command", [("submit",), ("run", "--quiet")])
def test_data_piped_to_a_job_is_told_once_though_it_comes_late(windlass, cluster, monkeypatch, command, late):
    reader, writer = os.pipe()

    def looked(*given: Any) -> Any:
        os.write(writer, b"late")
        return refresh(*given)

    monkeypatch.setattr(follow, "refresh", looked)
    if not late:
        os.write(writer, b"x")
    cluster.on_create.append(ends(0))
    with os.fdopen(reader) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        done = windlass(*command, "--", "true")
    os.close(writer)
    assert done.code == 0
    assert done.err.count("Warning: a job has no standard input") == (not late or command[0] == "run")


def test_several_ranks_have_their_rank_in_front(windlass, cluster):
    cluster.on_create.append(ends(0, lines=b"2026-01-01T12:00:00Z x\n"))
    done = windlass("run", "--nodes", "2", "--", "true")
    assert sorted(done.out.splitlines()) == ["[0] x", "[1] x"]


def test_everything_after_the_dashes_is_the_command(windlass, cluster):
    cluster.on_create.append(ends(0))
    windlass("run", "--", "true", "--gpus", "9", "-o", "json", "$HOME $$")
    container = created(cluster)["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    assert container["command"] == ["true", "--gpus", "9", "-o", "json", "$$HOME $$$$"]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--gpus", "5"], 6, "error[WL-JOB-413]: no node has 5 GPUs"),
        (["--gpus", "2", "--nodes", "3"], 6, "3 ranks of this size do not fit"),
        (["--cpus", "64"], 6, "no node has 64 CPUs"),
        (["--memory", "1Ti"], 6, "no node has 1Ti memory"),
        (["--queue", "defualt"], 3, 'error[WL-QUEUE-404]: queue "defualt" does not exist'),
        (["--queue", "shut"], 6, 'error[WL-QUEUE-423]: queue "shut" is closed'),
        (["--queue", "small", "--gpus", "1", "--nodes", "2"], 6, "error[WL-QUEUE-413]"),
        (["--memory", "much"], 2, "--memory much"),
        (["--time", "soon"], 2, "'soon' is not a duration"),
        (["--time", "30"], 2, "try: --time 30m\ntry: --time 30s\n"),
        (["--time", "01:30:00"], 2, "try: --time 1h30m\n"),
        (["--memory", "4GB"], 2, "try: --memory 4G\n"),
        (["--memory", "2.5 gib"], 2, "try: --memory 2.5Gi\n"),
        (
            ["--memory", "16"],
            2,
            "--memory 16 is 16 bytes\nwhy: an amount of memory needs a unit: 512Mi, 16Gi\n",
        ),
        (["--gpu-memory", "500k"], 2, "--gpu-memory 500k is less than 1Mi"),
        (["--env", "9=x"], 2, "does not begin with the name of a variable"),
        (["--env", "SURELY_NOT_SET"], 2, "this variable is not set"),
        (["--workdir", "/nowhere"], 3, "the working directory /nowhere does not exist"),
        (["--nodes", "0"], 2, "error[WL-USE-400]"),
        (["--gpus", "abc"], 2, "'abc' is not a whole number\n"),
        (["-n", "lab"], 2, "try: --namespace NAME   (-n means --nodes in this command)\n"),
        (["--name", "My Job"], 2, "try: --name my-job\n"),
        (["--name", "My_Job"], 2, "error[WL-USE-400]: --name My_Job: a lowercase RFC 1123 subdomain"),
    ],
)
def test_what_cannot_run_is_told_before_it_is_submitted(windlass, cluster, arguments, code, told):
    cluster.add(QUEUES, queue("shut", state="Closed"))
    cluster.add(QUEUES, queue("small", capability={"nvidia.com/gpu": "1"}))
    done = windlass("run", *arguments, "--", "true")
    assert done.code == code
    assert told in done.err
    assert not [verb for verb, *_ in cluster.requests if verb == "CREATE"]
    if code == 2:
        assert not cluster.requests, "what was typed wrong waits for nobody"


def test_a_name_that_is_taken_is_told_with_both_ways_out(windlass, cluster):
    assert windlass("submit", "--name", "mine", "--", "true").code == 0
    done = windlass("submit", "--name", "mine", "--", "python3", "train.py")
    assert (done.code, done.out) == (5, "")
    assert 'error[WL-JOB-409]: job "mine" already exists\n' in done.err
    assert "try: windlass delete vcjob mine\n" in done.err
    assert "try: omit --name: each job then gets a new name, train-…\n" in done.err


def test_lines_for_sbatch_are_not_passed_over_in_silence(windlass, cluster, tmp_path):
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --gres=gpu:2\n#SBATCH --time=10\ntrue\n")
    done = windlass("submit", "--workdir", str(tmp_path), "--", "sh", "job.sh")
    assert done.code == 0
    assert done.err == (
        "note: the #SBATCH lines of job.sh are ignored; use these options instead: --gres (--gpus), --time\n"
    )


def test_nearest_queue_first(windlass):
    assert "try: did you mean default?\n" in windlass("run", "-q", "defualt", "--", "true").err


def test_no_node_has_both(windlass, cluster):
    cluster.add(NODES, node("fat", gpus=0, cpu="128"))
    done = windlass("run", "--gpus", "1", "--cpus", "100", "--", "true")
    assert done.code == 6
    assert "no node is large enough for one rank" in done.err


class TestWithoutGpus:
    @pytest.fixture
    def cluster(self) -> FakeCluster:
        return box(gpus=0)

    def test_the_remedy_is_told(self, windlass, cluster):
        done = windlass("run", "--gpus", "2", "--", "true")
        assert done.code == 6
        assert done.err.startswith(
            "error[WL-GPU-413]: 2 GPUs were requested, and this machine has none\nwhy: "
        )
        assert "windlass up --detach --gpus simulated:2\n" in done.err
        assert not cluster.requests

    def test_a_part_of_a_gpu_is_no_other(self, windlass):
        done = windlass("submit", "--gpu-memory", "10Gi", "--", "true")
        assert done.code == 6
        assert "1 GPU was requested, and this machine has none" in done.err

    def test_nothing_is_started_for_it(self, windlass, monkeypatch):
        monkeypatch.setattr(bootstrap, "is_running", lambda _state: False)
        monkeypatch.setattr(discovery, "has_device_files", lambda: False)
        monkeypatch.setattr(bootstrap, "start", lambda *_, **__: pytest.fail("it was started"))
        done = windlass("run", "--gpus", "1", "--", "true")
        assert done.code == 6
        assert "try: windlass up --detach --gpus simulated:2\n" in done.err


@pytest.mark.parametrize(
    ("chosen", "flags"),
    [({}, []), ({"allowNetwork": True}, ["--allow-network-filesystem"]), ({"allowNetwork": "no"}, [])],
)
def test_a_box_that_pretended_gpus_is_brought_back_where_it_lay(
    windlass, monkeypatch, tmp_path, chosen, flags
):
    state, started = StateFolder(tmp_path / "state"), []
    state.prepare()
    state.write_supervisor({"asked": {"gpus": "simulated:4", **chosen}, "stopped": "2026-01-01T00:00:00Z"})
    monkeypatch.setattr(bootstrap, "is_running", lambda _state: False)
    monkeypatch.setattr(discovery, "has_device_files", lambda: False)
    monkeypatch.setattr(bootstrap, "start", lambda *told, **_: started.append(told))
    assert windlass("submit", "--gpus", "1", "--", "true").code == 0
    assert started == [(state, ["--implicit", *flags])]


def test_submit_prints_the_name_and_returns(windlass, cluster):
    done = windlass("submit", "--name", "night", "-q", "default", "--", "true")
    assert (done.code, done.out, done.err) == (0, "night\n", "")
    assert created(cluster)["metadata"]["name"] == "night"


def test_submit_as_json(windlass):
    job = json.loads(windlass("submit", "--gpus", "2", "-o", "json", "--", "true").out)
    container = job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}


def test_submit_and_wait_gives_the_exit_status(windlass, cluster):
    cluster.on_create.append(ends(4))
    done = windlass("submit", "--wait", "--name", "n", "--", "true")
    assert done.code == 4
    assert done.out == "n\n"


def test_a_name_that_is_taken(windlass, cluster):
    windlass("submit", "--name", "n", "--", "true")
    done = windlass("submit", "--name", "n", "--", "true")
    assert done.code == 5
    assert 'error[WL-JOB-409]: job "n" already exists' in done.err


def test_a_job_that_waiting_cannot_help_is_given_up(windlass, cluster):
    def never(target: FakeCluster, resource: Any, job: dict[str, Any]) -> None:
        if resource is VOLCANO_JOBS:
            job["status"] = {"state": {"phase": "Pending"}}
            job["metadata"]["annotations"] = {
                "windlass.dev/explanation": json.dumps(example_cluster.NEVER.as_dict())
            }

    cluster.on_create.append(never)

    class Hurried:
        """The clock moves whenever it is asked."""

        def __init__(self) -> None:
            self.time = 0.0

        def now(self) -> float:
            return 1_767_268_800.0

        def monotonic(self) -> float:
            self.time += 1.0
            return self.time

        def pause(self, seconds: float) -> None:
            self.time += seconds

    from windlass.cli import main
    from windlass.cli.invocation import InvocationContext

    context = InvocationContext(connect=cluster.client, clock=Hurried())  # type: ignore[arg-type]
    assert main.run(["run", "--name", "n", "--", "true"], context) == 6
    assert (VOLCANO_JOBS, "default", "n") in cluster.objects


def test_a_class_that_is_not_there_is_told_before(windlass, cluster):
    cluster.add(PRIORITY_CLASSES, {"metadata": {"name": "high-priority"}, "value": 1})
    done = windlass("run", "--priority", "high-prio", "--", "true")
    assert done.code == 3
    assert done.err.startswith('error[WL-PRIORITY-404]: priority class "high-prio" does not exist\n')
    assert "try: did you mean high-priority?\n" in done.err
    assert not cluster.requests


def test_more_ranks_than_all_nodes_have_places_for(windlass):
    done = windlass("run", "--nodes", "251", "--", "true")
    assert done.code == 6
    assert "251 ranks of this size do not fit in the cluster, even if it is empty" in done.err
    assert "all nodes together can hold 250 ranks" in done.err


def nodes_of(cluster: FakeCluster) -> list[dict[str, Any]]:
    return [obj for (resource, _, _), obj in cluster.objects.items() if resource == NODES]


class TestSimulatedNodes:
    """They run no process, so a command that is followed does not go there."""

    def add(self, cluster: FakeCluster, name: str) -> None:
        made = node(name, gpus=8)
        made["metadata"]["labels"]["windlass.dev/simulated"] = "true"
        cluster.add(NODES, made)

    def test_run_keeps_away(self, windlass, cluster):
        self.add(cluster, "sim-0")
        done = windlass("run", "--gpus", "8", "--", "true")
        assert (done.code, "no node has 8 GPUs" in done.err) == (6, True)
        cluster.on_create.append(ends(0))
        assert windlass("run", "--gpus", "1", "--", "true").code == 0
        terms = created_pod(cluster)["affinity"]["nodeAffinity"]
        assert terms == {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "windlass.dev/simulated", "operator": "NotIn", "values": ["true"]}
                        ]
                    }
                ]
            }
        }

    def test_submit_may_go_there(self, windlass, cluster):
        self.add(cluster, "sim-0")
        assert windlass("submit", "--gpus", "8", "--", "true").code == 0
        assert "affinity" not in created_pod(cluster)

    def test_note_says_that_only_simulated_nodes_fit(self, windlass, cluster):
        self.add(cluster, "sim-0")
        note = "note: only simulated nodes have what this job requests"
        assert note in windlass("submit", "--gpus", "8", "--", "true").err
        assert note not in windlass("submit", "--gpus", "1", "--", "true").err

    def test_gpus_of_simulated_nodes_alone_are_named(self, windlass, cluster):
        for obj in nodes_of(cluster):
            obj["status"]["allocatable"].pop("nvidia.com/gpu", None)
        self.add(cluster, "sim-0")
        done = windlass("run", "--gpus", "1", "--", "true")
        assert done.code == 6
        assert "1 GPU requested, and only simulated nodes may have them" in done.err
        assert "sim-0 is simulated: nothing runs there" in done.err
        assert "try: omit --gpus\n" in done.err

    def test_nothing_but_simulated_nodes(self, windlass, cluster):
        for name in [name for _, _, name in cluster.objects if (NODES, "", name) in cluster.objects]:
            del cluster.objects[NODES, "", name]
        self.add(cluster, "sim-0")
        done = windlass("run", "--", "true")
        assert (done.code, done.err.splitlines()[0]) == (6, "error[WL-JOB-413]: no node runs processes")


@pytest.mark.parametrize("verb", ["run", "submit"])
def test_an_unknown_option_is_no_program(windlass, verb):
    done = windlass(verb, "--gpu", "1", "--", "true")
    assert done.code == 2
    assert done.err.startswith("error[WL-USE-400]: there is no option --gpu\n")
    assert "try: did you mean --gpus?\n" in done.err


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("-gpus", "2"), "did you mean --gpus?"),
        (("-memory", "2Gi"), "did you mean --memory?"),
        (("-nodes=2",), "did you mean --nodes?"),
        (("--gpus", "0.5"), "--gpu-memory 10Gi   (a share of one GPU: windlass docs share-a-gpu)"),
    ],
)
def test_option_that_was_almost_right_is_named(windlass, words, remedy):
    done = windlass("run", *words, "--", "true")
    assert done.code == 2
    assert f"try: {remedy}\n" in done.err
    assert "why:" not in done.err


def test_unknown_command_does_not_list_all(windlass):
    done = windlass("frobnicate")
    assert done.err == 'error[WL-USE-404]: there is no command "frobnicate"\ntry: windlass --help\n'


def test_queue_with_children_names_them(windlass, cluster):
    for name, parent in (("org", ""), ("team-2", "org"), ("team-10", "org")):
        spec = {"weight": 1, **({"parent": parent} if parent else {})}
        cluster.add(QUEUES, {"metadata": {"name": name}, "spec": spec, "status": {"state": "Open"}})
    done = windlass("submit", "-q", "org", "--", "true")
    assert done.code == 2
    assert 'error[WL-QUEUE-422]: queue "org" has child queues and accepts no jobs itself' in done.err
    assert "try: windlass submit --queue team-2 -- …\ntry: windlass submit --queue team-10 -- …\n" in done.err
    assert windlass("submit", "-q", "team-2", "--", "true").code == 0


def test_amounts_of_memory_are_short(windlass, cluster):
    nodes_of(cluster)[0]["status"]["allocatable"]["memory"] = "23449469123Ki"
    done = windlass("submit", "--memory", "100P", "--", "true")
    assert "has 21.8Ti" in done.err
    assert "try: request at most 21.8Ti memory per rank" in done.err
    assert windlass("submit", "--memory", "21.8Ti", "--", "true").code == 0


def test_image_that_is_not_used_is_noted(windlass, cluster):
    done = windlass("submit", "--image", "ubuntu", "--", "true")
    assert "note: --image ubuntu is not used on this machine" in done.err
    assert "--image" not in windlass("submit", "--", "true").err


def test_options_of_the_program_are_its_own(windlass, cluster):
    cluster.on_create.append(ends(0))
    assert windlass("run", "true", "--lr", "3", "-x").code == 0
    assert created_pod(cluster)["containers"][0]["command"] == ["true", "--lr", "3", "-x"]


def test_json_lines_and_the_end(windlass, cluster):
    cluster.on_create.append(ends(3, lines=b"2026-01-01T12:00:00Z hi\n"))
    done = windlass("run", "--name", "j", "-o", "json", "--quiet", "--", "true")
    assert done.code == 3
    assert [json.loads(line) for line in done.out.splitlines()] == [
        {"rank": "0", "time": "2026-01-01T12:00:00Z", "text": "hi"},
        {"job": "j", "namespace": "default", "phase": "Failed", "exitCode": 3},
    ]


def test_json_is_the_only_other_format(windlass):
    done = windlass("run", "-o", "yaml", "--", "true")
    assert done.code == 2
    assert "-o yaml is not an output format of this command" in done.err
    assert "formats: json" in done.err


@pytest.mark.parametrize("words", [("run", "--name", "j", "--", "true"), ("logs", "-f", "train")])
def test_control_c_lets_go_and_says_how_to_come_back(windlass, cluster, monkeypatch, words):
    example_cluster.pod(cluster, "train", 0, node="box", phase="Running")

    def interrupt(_self: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("windlass.cli.jobs.logs.follow.Follower.run", interrupt)
    name = "j" if words[0] == "run" else "train"
    if words[0] == "logs":
        request = JobRequest(("true",), time_seconds=0)
        made = build_job(request, "train", namespace="default", embedded=True, environ={})
        cluster.add(VOLCANO_JOBS, made)
    done = windlass(*words)
    assert done.code == 130
    assert f"detached; {name} keeps running\ncome back: windlass logs -f {name}\n" in done.err


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (
            ("--gpus", "1", "--gpu-model", "A100"),
            [
                "error[WL-GPU-413]: no node has a GPU of model A100",
                "why: existing GPUs: Tesla-T4 (8), NVIDIA-H100-80GB-HBM3 (4); part of a name is sufficient; "
                "the job was not submitted",
                "try: windlass gpu",
            ],
        ),
        (
            ("--gpu-memory", "4Gi", "--gpu-model", "H10O"),
            ["error[WL-GPU-413]: no node has a GPU of model H10O", "try: --gpu-model NVIDIA-H100-80GB-HBM3"],
        ),
        (
            ("--gpus", "8", "--gpu-model", "h100"),
            [
                "error[WL-JOB-413]: no node has 8 GPUs of model h100",
                "try: request at most 4 GPUs of model h100 per rank",
            ],
        ),
        (
            ("--gpus", "3", "--nodes", "2", "--gpu-model", "H100"),
            [
                "error[WL-JOB-413]: 2 ranks of this size do not fit in the cluster, even if it is empty",
                "why: each rank needs 3 GPUs of model H100; all nodes together can hold 1 rank",
                "try: windlass COMMAND --nodes 1 …",
            ],
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "submit"])
def test_models_that_no_node_has_are_refused_before(windlass, cluster, command, flags, told):
    cluster.objects.pop((NODES, "", "box"), None)
    cluster.add(NODES, node("a", 4, **H100))
    cluster.add(NODES, node("b", 8, **T4))
    done = windlass(command, *flags, "--", "true")
    assert done.code == 6
    assert (
        set(told)
        - {one.replace(f"windlass {command} ", "windlass COMMAND ") for one in done.err.splitlines()}
        == set()
    )
    assert not [one for one in cluster.requests if one[0] == "CREATE"]


@pytest.mark.parametrize(
    ("model", "labels"),
    [("h100", H100), ("A100,H100", H100), ("TESLA-T4", T4), ("A100", {})],
    ids=["a part, in any case", "one of several", "all of it", "nobody tells what it is"],
)
def test_models_that_some_node_may_have_are_submitted(windlass, cluster, model, labels):
    cluster.objects.pop((NODES, "", "box"), None)
    cluster.add(NODES, node("a", 4, **labels))
    assert windlass("submit", "--gpus", "4", "--gpu-model", model, "--", "true").code == 0
    assert created(cluster)["spec"]["tasks"][0]["template"]["metadata"]["annotations"] == {
        "windlass.dev/gpu-model": model
    }


def test_a_cluster_may_get_cards_of_a_model_that_it_does_not_have_yet(windlass, cluster):
    words = ("--context", "lab", "--image", "i", "--gpus", "1", "--gpu-model", "A100", "--", "true")
    cluster.objects.pop((NODES, "", "box"), None)
    cluster.add(NODES, node("a", 4, **H100))
    done = windlass("submit", *words)
    assert (done.code, done.err) == (
        0,
        "note: no node has a GPU of model A100; the job waits for such nodes\n",
    )


@pytest.mark.parametrize(
    ("near", "told"),
    [
        (
            "rak",
            ["error[WL-JOB-413]: no node has the label rak,", "try: --near topology.example.com/rack\n"],
        ),
        ("topology.example.com/rock", ["try: --near topology.example.com/rack\n"]),
        ("shelf", ["try: kubectl label node NODE shelf=VALUE\n"]),
        ("a b", ["error[WL-USE-400]: --near 'a b' is not a valid label: name part must consist of"]),
    ],
)
def test_a_domain_that_no_node_tells_of_is_refused_before(windlass, cluster, near, told):
    cluster.add(NODES, node("a", 4, **{"topology.example.com/rack": "r1"}))
    done = windlass("submit", "--near", near, "--", "true")
    assert done.code == (2 if " " in near else 6)
    assert not [words for words in told if words not in done.err]
    assert not [one for one in cluster.requests if one[0] == "CREATE"]
    assert windlass("submit", "--near", "topology.example.com/rack", "--", "true").code == 0


def test_ranks_on_their_nodes_network_know_the_names_of_one_another(windlass, cluster):
    assert windlass("submit", "--host-network", "--nodes", "2", "--", "true").code == 0
    pod = created(cluster)["spec"]["tasks"][0]["template"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    windlass("submit", "--name", "own", "--", "true")
    assert (
        "hostNetwork"
        not in cluster.objects[VOLCANO_JOBS, "default", "own"]["spec"]["tasks"][0]["template"]["spec"]
    )


@pytest.mark.parametrize("text", ["99999999999999999999Gi", "1Q"])
def test_a_remedy_is_not_what_was_refused(windlass, text):
    done = windlass("submit", "--memory", text, "--", "true")
    assert (done.code, f"try: --memory {text}" in done.err) == (2, False)


@pytest.mark.parametrize("command", ["run", "submit"])
def test_remedies_name_the_command_that_was_given(windlass, command):
    done = windlass(command, "--context", "lab", "--", "true")
    assert f"try: windlass --context lab {command} --image IMAGE -- …" in done.err
    assert (
        f"try: windlass {command} --workdir DIR -- …"
        in windlass(command, "--workdir", "/no", "--", "true").err
    )


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (("--gpu-memory", "many"), "--gpu-memory many"),
        (("--gpu-memory", "0"), "not greater than 0"),
        (("--gpu-model", "H100"), "--gpu-model H100 needs --gpus or --gpu-memory"),
    ],
)
def test_parts_of_gpus_that_cannot_be_meant_are_refused(windlass, flags, word):
    done = windlass("submit", *flags, "--", "true")
    assert done.code != 0
    assert word in done.err


@pytest.mark.parametrize(
    ("words", "told", "remedy"),
    [
        (
            ("run", "--state", "--", "true"),
            '--state is given "--" as its DIR',
            "windlass run --state DIR -- COMMAND...",
        ),
        (("--state", "--", "ps"), '--state is given "--" as its DIR', "windlass --state DIR"),
        (
            ("submit", "--priority", "--", "true"),
            '"--" as its CLASS',
            "windlass submit --priority CLASS -- COMMAND...",
        ),
        (
            ("run", "-e", "--", "true"),
            '"--" as its NAME[=VALUE]',
            "windlass run --env NAME[=VALUE] -- COMMAND...",
        ),
    ],
)
def test_two_dashes_are_no_value(windlass, cluster, words, told, remedy):
    done = windlass(*words)
    assert done.code == 2
    assert told in done.err
    assert f"try: {remedy}\n" in done.err
    assert not cluster.requests
    assert windlass("submit", "--name", "x", "--", "sh", "-c", "exit", "--", "a").code == 0


def test_gangs_on_the_machines_network_have_ports_of_their_own(windlass, cluster):
    def told(name: str, *words: str) -> dict[str, str]:
        done = windlass("submit", "--name", name, "--nodes", "2", *words, "--", "true")
        assert done.code == 0, done.err
        spec = cluster.objects[(VOLCANO_JOBS, "default", name)]["spec"]["tasks"][0]["template"]["spec"]
        env = spec["containers"][0]["env"]
        assert len({each["name"] for each in env}) == len(env)
        return {each["name"]: each.get("value", "") for each in env}

    one, other = told("one", "--host-network"), told("other", "--host-network")
    ports = {int(one["MASTER_PORT"]), int(other["MASTER_PORT"])}
    assert len(ports) == 2
    assert all(20_000 <= port < 30_000 for port in ports)
    assert one["PET_MASTER_PORT"] == one["MASTER_PORT"]
    assert told("own")["MASTER_PORT"] == "29500"
    mine = told("mine", "--host-network", "-e", "MASTER_PORT=23456", "-e", "MASTER_ADDR=10.0.0.1")
    assert (mine["MASTER_PORT"], mine["PET_MASTER_PORT"]) == ("23456", "23456")
    assert (mine["MASTER_ADDR"], mine["PET_MASTER_ADDR"]) == ("10.0.0.1", "10.0.0.1")
