"""The other commands, the shape of errors, and what the group itself does."""

from __future__ import annotations

import copy
import json
import shlex
import subprocess
import sys
from importlib import import_module

import click
import clusterscenes
import pytest
from fakecluster import FakeCluster

from windlass.api import errors
from windlass.api.resources import COMMANDS as ORDERS
from windlass.api.resources import EVENTS, NODES, PODS, QUEUES, VOLCANO_JOBS
from windlass.cli.main import COMMANDS


@pytest.fixture
def cluster() -> FakeCluster:
    return clusterscenes.busy()


# The group.


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_file_and_its_summary(name: str):
    command = import_module(f"windlass.cli.commands.{name.replace('-', '_')}").command
    assert isinstance(command, click.Command)
    assert command.name == name
    summary = COMMANDS[name][1]
    assert (command.help or "").split("\n\n")[0].replace("\n", " ") == summary
    assert len(COMMANDS) <= 32


@pytest.mark.parametrize("name", [n for n in COMMANDS if n not in ("scheduler", "controller")])
def test_every_command_explains_itself(windlass, name):
    done = windlass(name, "--help")
    assert done.code == 0
    assert done.out.startswith("Usage: windlass")
    assert max(map(len, done.out.splitlines())) <= 100


def test_help_lists_every_command(windlass):
    text = windlass("--help").out
    assert all(f"  {name} " in text for name in COMMANDS)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["pss"], 'error[WL-USE-404]: there is no command "pss"\n'),
        (["queue", "lst"], 'error[WL-USE-404]: windlass queue has no command "lst"\n'),
        (["ps", "--al"], "error[WL-USE-400]: there is no option --al\n"),
        (["show"], "error[WL-USE-400]: missing argument"),
        (["ps", "-o", "xml"], "error[WL-USE-400]: -o xml is not an output format"),
        (["ps", "-o", "jsonpath={.items["], "error[WL-USE-400]: the JSONPath template is not understood"),
        (["get", "podz"], 'error[WL-KIND-404]: there is no kind "podz"'),
        (["get", "a/b", "c"], 'error[WL-USE-400]: "c" is not KIND/NAME'),
        (["delete", "pods"], "error[WL-USE-400]: say which objects"),
        (["cancel"], "error[WL-USE-400]: name jobs, or say --all"),
        (["logs", "train", "--rank", "9"], "error[WL-RANK-404]"),
        (["logs", "train", "--grep", "["], "error[WL-USE-400]: --grep '['"),
        (["logs", "train", "--since", "foo"], "error[WL-USE-400]: --since foo: 'foo' is not a duration"),
        (["submit", "--gpus", "9" * 20, "--", "true"], "error[WL-USE-400]: --gpus 99999999999999999999: "),
        (["submit", "--time", "soon", "--", "true"], "error[WL-USE-400]: --time soon: 'soon' is not a"),
        (["submit", "--time", "0s", "--", "true"], "error[WL-USE-400]: --time 0s: it is from 1s to"),
        (["submit", "--time", "99999d", "--", "true"], "error[WL-USE-400]: --time 99999d: it is from 1s to"),
        (["cancel", "--all", "-q", "reseach"], 'error[WL-QUEUE-404]: queue "reseach" does not exist'),
        (["cancel", "train", "-q", "research"], "error[WL-USE-400]: -q research goes with --all"),
        (["queue", "set", "research", "wieght=2"], "error[WL-USE-400]: the setting"),
        (["queue", "set", "research", "weight=--2"], "error[WL-USE-400]: the setting"),
        (["queue", "set", "research", "weight=²"], "error[WL-USE-400]: the setting"),
        (["queue", "set", "research", "capability.cpu=lots"], "error[WL-USE-400]: the setting"),
        (["queue", "set", "research", "capability.gpu=4"], "error[WL-USE-400]: the setting"),
        (["queue", "set", "research", "capability.tpu=4"], "error[WL-USE-400]: the setting"),
        (["node", "add-simulated", "--taint", "x"], "error[WL-USE-400]: --taint 'x'"),
        (["node", "add-simulated", "--memory", "x"], "error[WL-USE-400]: memory=x"),
        (["help", "WL-QUEUE-40"], "error[WL-USE-404]: there is no error code"),
    ],
)
def test_mistakes_are_told_in_three_parts(windlass, line, told):
    done = windlass(*line)
    assert done.err.startswith(told)
    assert done.out == ""
    assert done.code in (2, 3)
    lines = done.err.splitlines()
    assert all(part.startswith(("error[WL-", "why: ", "try: ")) for part in lines)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("queue set research capability.gpus=4", "capability.nvidia.com/gpu=4"),
        ("queue set research gpu=4", "capability.nvidia.com/gpu=4"),
        ("queue create lab nvidia.com/gpu=4", "capability.nvidia.com/gpu=4"),
        ("queue create lab guarantee.tpu=4", "one of cpu, memory, ephemeral-storage, pods, or VENDOR/tpu"),
        ("queue delete research", "windlass delete queue NAME"),
        ("queue list", "windlass queue ls"),
        ("queue tee", "windlass queue tree"),
        ("node get", "windlass node ls"),
        ("node describe box", "windlass describe node NAME"),
        ("node drian box", "windlass node drain"),
    ],
)
def test_what_was_meant_is_named_first(windlass, line, remedy):
    told = windlass(*line.split()).err.splitlines()
    assert next(text for text in told if text.startswith("try: ")) == f"try: {remedy}"


def test_near_misses_come_first(windlass):
    assert "try: windlass ps\n" in windlass("pss").err
    assert "try: did you mean --all?\n" in windlass("ps", "--al").err
    assert "try: did you mean pod?\n" in windlass("get", "podd").err


def test_a_server_that_is_away(windlass, cluster):
    cluster.down = True
    done = windlass("ps")
    assert done.code == 7
    assert done.err.startswith("error[WL-SERVER-503]")
    assert windlass("status").code == 7


@pytest.mark.parametrize(
    ("fault", "code", "exit_code"),
    [
        (errors.not_found(QUEUES, "x"), "WL-QUEUE-404", 3),
        (errors.already_exists(VOLCANO_JOBS, "x"), "WL-JOB-409", 5),
        (errors.conflict(NODES, "x"), "WL-NODE-409", 5),
        (errors.invalid(PODS, "x", []), "WL-POD-422", 2),
        (errors.forbidden(PODS, "x", "exceeded quota: q"), "WL-POD-403", 4),
        (errors.bad_request("no"), "WL-OBJECT-400", 2),
        (errors.expired(), "WL-OBJECT-410", 5),
        (errors.failure(401, "Unauthorized", "Unauthorized"), "WL-AUTH-401", 4),
        (errors.failure(413, "RequestEntityTooLarge", "x"), "WL-SERVER-413", 6),
        (errors.failure(429, "TooManyRequests", "x"), "WL-SERVER-429", 1),
        (errors.failure(500, "InternalError", "x"), "WL-SERVER-500", 1),
        (errors.failure(507, "InsufficientStorage", "x"), "WL-STATE-507", 1),
    ],
)
def test_answers_of_the_server_become_codes(fault, code, exit_code):
    from windlass.api.codes import CODES
    from windlass.cli.failures import exit_status, translate

    error = translate(fault)
    assert (error.code, exit_status(error)) == (code, exit_code)
    assert error.code in CODES
    assert CODES[error.code].exit_status == exit_code


def test_quota_names_its_remedy():
    from windlass.cli.failures import translate

    error = translate(errors.forbidden(PODS, "x", "exceeded quota: q, requested: 3, used: 2, limited: 4"))
    assert "quota" in error.message
    assert error.remedies == ("windlass get resourcequota -A",)


@pytest.mark.parametrize("line", ["help WL-GPU-413", "crds", "completion bash"])
def test_an_output_that_cannot_be_written_is_told(line):
    command = f"{shlex.quote(sys.executable)} -m windlass {line}"
    done = subprocess.run(["sh", "-c", f"{command} >/dev/full"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error[WL-OUTPUT-500]: the output cannot be written: No space left on device\n"
    )
    assert "Traceback" not in done.stderr


def test_closed_streams_are_nobodys():
    command = f"{shlex.quote(sys.executable)} -m windlass help"
    done = subprocess.run(["sh", "-c", f"{command} WL-GPU-413 >&-"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(["sh", "-c", f"{command} WL-GPU-999 2>&-"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")


def test_a_namespace_that_is_missing_may_be_made(windlass):
    from windlass.cli.failures import missing

    assert missing("namespaces", "team", ["default"]).remedies == (
        "kubectl create namespace team",
        "windlass get namespaces",
    )


def test_an_interrupt_while_the_command_is_still_read_is_no_traceback(monkeypatch):
    from windlass.__main__ import main

    class Interrupted:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "windlass.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "windlass.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    monkeypatch.setattr(sys, "argv", ["windlass", "ps"])
    assert main() == 130


def test_the_version_is_told_without_importing_the_command():
    script = "import sys; sys.argv = ['windlass', '--version']; from windlass.__main__ import main; main(); " \
             "print([m for m in ('click', 'asyncio', 'numpy', 'msgspec') if m in sys.modules])"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1] == "[]"


@pytest.mark.parametrize(
    "words",
    [
        ["ps"],
        ["status"],
        ["queue", "ls"],
        ["explain", "x"],
        ["show", "x"],
        ["logs", "x"],
        ["node", "cordon", "x"],
    ],
    ids=" ".join,
)
def test_the_hot_path_imports_no_heavy_library(words):
    script = (
        "import sys\n"
        "from windlass.cli.main import run\n"
        f"run([*{words!r}, '--state', '/nonexistent'])\n"
        "print([m for m in ('asyncio', 'numpy', 'yaml', 'ssl', 'subprocess', 'cryptography', 'http.client')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# Objects.


def test_get_shows_the_servers_table(windlass):
    lines = windlass("get", "pods").out.splitlines()
    assert lines[0].split() == ["NAME", "PHASE"]
    assert lines[1].split() == ["train-main-0", "Running"]
    assert "NODE" in windlass("get", "pods", "-o", "wide").out.splitlines()[0]
    assert windlass("get", "pods", "-A").out.splitlines()[1].split()[0] == "default"


def test_get_one_and_some(windlass):
    assert windlass("get", "pod/bare", "-o", "jsonpath={.spec.nodeName}").out == "sim-10"
    assert windlass("get", "pods", "bare", "train-main-0", "-o", "name").out == "pod/bare\npod/train-main-0\n"
    assert json.loads(windlass("get", "node", "box", "-o", "json").out)["kind"] == "Node"
    listed = json.loads(windlass("get", "pods", "-l", "volcano.sh/job-name=crash", "-o", "json").out)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["crash-main-0", "crash-main-1"]


def test_get_nothing(windlass):
    done = windlass("get", "secrets")
    assert (done.code, done.out, done.err) == (0, "", "No resources found in namespace default.\n")


def test_get_yaml_can_be_read_back(windlass):
    import yaml

    text = windlass("get", "queue/research", "-o", "yaml").out
    assert yaml.safe_load(text)["spec"]["capability"]["nvidia.com/gpu"] == "8"


def test_describe_shows_fields_and_events(windlass, cluster):
    uid = cluster.objects[(PODS, "default", "bare")]["metadata"]["uid"]
    cluster.add(
        EVENTS,
        {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "name": "bare", "uid": uid},
            "type": "Warning",
            "reason": "Placeholder",
            "message": "nothing said what to run",
            "count": 3,
            "lastTimestamp": "2026-01-01T11:59:00Z",
            "source": {"component": "windlass-node"},
        },
    )
    text = windlass("describe", "pod", "bare").out
    assert "Name:         bare\n" in text
    assert "windlass.dev/placeholder=main" in text
    assert "Node Name:  sim-10" in text
    assert "Warning  Placeholder  60s (x3)  windlass-node  nothing said what to run" in text


def test_describe_keeps_secrets(windlass, cluster):
    from windlass.api.resources import SECRETS

    cluster.add(SECRETS, {"metadata": {"name": "s"}, "data": {"password": "aGVsbG8="}})
    assert "aGVsbG8" not in windlass("describe", "secret", "s").out


def test_delete(windlass, cluster):
    done = windlass("delete", "pod", "bare", "nope")
    assert 'pod "bare" deleted\n' in done.out
    assert 'error[WL-POD-404]: pod "nope" does not exist' in done.err
    assert done.code == 3
    assert windlass("delete", "pods", "nope", "--ignore-not-found").code == 0
    assert (PODS, "default", "bare") not in cluster.objects


def test_delete_what_a_manifest_names(windlass, cluster, tmp_path):
    path = tmp_path / "m.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: bare}\n")
    assert windlass("delete", "-f", str(path)).code == 0
    assert (PODS, "default", "bare") not in cluster.objects


# Jobs.


def test_cancel_asks_the_controller_so_that_logs_stay(windlass, cluster):
    done = windlass("cancel", "train", "--reason", "too slow")
    assert (done.code, done.out) == (0, "train is being ended\n")
    (order,) = [obj for (kind, *_), obj in cluster.objects.items() if kind is ORDERS]
    assert order["action"] == "TerminateJob"
    assert order["target"]["name"] == "train"
    assert order["target"]["uid"] == cluster.objects[(VOLCANO_JOBS, "default", "train")]["metadata"]["uid"]
    assert order["message"] == "too slow"
    assert (VOLCANO_JOBS, "default", "train") in cluster.objects


def test_cancel_of_a_bare_pod_deletes_it(windlass, cluster):
    assert windlass("cancel", "bare").out == "bare deleted\n"
    assert (PODS, "default", "bare") not in cluster.objects


def test_cancel_what_has_ended(windlass):
    assert windlass("cancel", "hello").out == "hello has ended already\n"


def test_cancel_all_of_a_queue(windlass, cluster):
    done = windlass("cancel", "--all", "-q", "research")
    assert done.out == "big is being ended\nhuge is being ended\n"


def test_cancel_all_of_nothing_says_so(windlass):
    done = windlass("cancel", "--all", "-n", "empty")
    assert (done.code, done.out, done.err) == (0, "", "no job in namespace empty runs or waits\n")


def test_a_job_named_twice_is_ended_once(windlass, cluster):
    assert windlass("cancel", "train", "train").out == "train is being ended\n"
    assert len([kind for (kind, *_) in cluster.objects if kind is ORDERS]) == 1


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


# Queues and nodes.


def test_queue_create_and_set(windlass, cluster):
    done = windlass("queue", "create", "team", "weight=3", "capability.nvidia.com/gpu=8", "guarantee.cpu=2")
    assert done.out == "queue/team created\n"
    spec = cluster.objects[(QUEUES, "", "team")]["spec"]
    assert spec == {
        "weight": 3,
        "reclaimable": True,
        "capability": {"nvidia.com/gpu": "8"},
        "guarantee": {"resource": {"cpu": "2"}},
    }
    windlass("queue", "set", "team", "weight=5", "capability.nvidia.com/gpu=")
    assert spec != cluster.objects[(QUEUES, "", "team")]["spec"]
    assert cluster.objects[(QUEUES, "", "team")]["spec"]["weight"] == 5
    assert cluster.objects[(QUEUES, "", "team")]["spec"]["capability"] == {}


def test_a_mistyped_setting_of_a_queue_is_answered_with_the_nearest(windlass):
    assert "try: did you mean weight?\n" in windlass("queue", "create", "team", "wieght=3").err
    assert (
        "try: did you mean capability.RESOURCE?\n"
        in windlass("queue", "set", "research", "capablity.cpu=3").err
    )


@pytest.mark.parametrize("name", ["capability", "deserved", "guarantee"])
def test_an_amount_below_nothing_is_refused(windlass, cluster, name):
    before = copy.deepcopy(cluster.objects[(QUEUES, "", "research")])
    said = windlass("queue", "set", "research", f"{name}.nvidia.com/gpu=-1")
    assert said.code == 2
    assert f"an amount is at least 0; {name}.nvidia.com/gpu= takes it away" in said.err
    assert cluster.objects[(QUEUES, "", "research")] == before


def test_queues_are_closed_by_a_command(windlass, cluster):
    def obey(target: FakeCluster, resource, order) -> None:
        if resource is ORDERS:
            target.objects[(QUEUES, "", order["target"]["name"])]["status"]["state"] = "Closing"

    cluster.on_create.append(obey)
    assert windlass("queue", "set", "research", "state=closed").code == 0
    (order,) = [obj for (kind, *_), obj in cluster.objects.items() if kind is ORDERS]
    assert order["action"] == "CloseQueue"


def test_queue_numbers(windlass):
    items = {q["name"]: q for q in json.loads(windlass("queue", "ls", "-o", "json").out)["items"]}
    assert items["root"]["allocated"] == {"nvidia.com/gpu": "3"}
    assert items["research"]["waiting"] == {"nvidia.com/gpu": "20"}
    assert items["research"]["guarantee"] == {"nvidia.com/gpu": "2"}
    assert (items["root"]["running"], items["root"]["pending"]) == (2, 2)


def test_add_simulated_nodes(windlass, cluster):
    done = windlass(
        *("node", "add-simulated", "--count", "2", "--gpus", "8", "--product", "NVIDIA-H100-80GB-HBM3"),
        *("--label", "zone=a", "--taint", "d=x:NoSchedule", "--resource", "rdma/roce_v2=1"),
    )
    assert done.out == "added 2 simulated nodes: sim-0 … sim-1\n"
    made = cluster.objects[(NODES, "", "sim-1")]
    assert made["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert made["status"]["allocatable"]["rdma/roce_v2"] == "1"
    assert made["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3"
    assert made["metadata"]["labels"]["zone"] == "a"
    assert made["spec"]["taints"] == [{"key": "d", "value": "x", "effect": "NoSchedule"}]
    assert windlass("node", "add-simulated", "--count", "2").out.endswith("sim-3 … sim-4\n")
    # Who plays the nodes may write before their amounts are there: nothing is replaced by what was read before.
    assert not [verb for verb, plural, _ in cluster.requests if verb == "UPDATE" and plural == "nodes"]


def test_cordon_and_uncordon(windlass, cluster):
    assert windlass("node", "cordon", "box").out == "node/box cordoned\n"
    assert cluster.objects[(NODES, "", "box")]["spec"]["unschedulable"] is True
    assert windlass("node", "cordon", "box").out == "node/box already cordoned\n"
    assert "Ready,Cordoned" in windlass("node", "ls").out
    assert windlass("node", "uncordon", "box").out == "node/box uncordoned\n"
    assert windlass("node", "cordon", "bx").err.splitlines()[-2:] == [
        "try: did you mean box?",
        "try: windlass node ls",
    ]


def test_drain_evicts_and_waits(windlass, cluster):
    done = windlass("node", "drain", "box", "-y")
    assert done.code == 0
    assert "node/box drained: 2 pods evicted\n" in done.out
    assert (PODS, "default", "train-main-0") not in cluster.objects
    assert (PODS, "default", "hello-main-0") in cluster.objects


def test_drain_does_not_end_what_nobody_makes_anew_unasked(windlass, cluster):
    spec = {"nodeName": "box", "containers": [{"name": "m", "image": "x"}]}
    metadata = {"name": "alone", "namespace": "default", "uid": "alone"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    cluster.objects[(PODS, "default", "alone")] = {**pod, "status": {"phase": "Running"}}
    done = windlass("node", "drain", "box")
    assert (done.code, done.out) == (5, "")
    assert "WL-NODE-409" in done.err
    assert "default/alone" in done.err
    assert done.err.splitlines()[-1] == "try: windlass node drain box --yes"
    assert (PODS, "default", "alone") in cluster.objects
    assert not cluster.objects[(NODES, "", "box")]["spec"].get("unschedulable")
    assert windlass("node", "drain", "box", "--yes").code == 0
    assert (PODS, "default", "alone") not in cluster.objects


def test_drain_leaves_what_belongs_to_the_node(windlass, cluster):
    for kind, name in (("DaemonSet", "device-plugin"), ("Node", "etcd-box")):
        owner = {"apiVersion": "v1", "kind": kind, "name": "x", "uid": "u", "controller": True}
        spec = {"nodeName": "box", "containers": [{"name": "m", "image": "x"}]}
        metadata = {"name": name, "namespace": "kube-system", "uid": name, "ownerReferences": [owner]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        cluster.objects[(PODS, "kube-system", name)] = {**pod, "status": {"phase": "Running"}}
    done = windlass("node", "drain", "box", "-y", "--timeout", "2s")
    assert (done.code, done.err) == (0, "")
    assert "node/box drained: 2 pods evicted\n" in done.out
    assert {(PODS, "kube-system", name) for name in ("device-plugin", "etcd-box")} <= cluster.objects.keys()


def test_drain_cordons_all_nodes_before_a_pod_goes(windlass, cluster):
    other = json.loads(json.dumps(cluster.objects[(NODES, "", "box")]))
    other["metadata"] |= {"name": "box2", "uid": "box2"}
    cluster.objects[(NODES, "", "box2")] = other
    done = windlass("node", "drain", "box", "box2", "-y")
    assert done.out.splitlines()[:2] == ["node/box cordoned", "node/box2 cordoned"]
    assert done.out.splitlines()[-2:] == [
        "node/box drained: 2 pods evicted",
        "node/box2 drained: 0 pods evicted",
    ]


def test_drain_does_nothing_where_its_time_is_no_time(windlass, cluster):
    done = windlass("node", "drain", "box", "-y", "--timeout", "soon")
    assert (done.code, done.out) == (2, "")
    assert not cluster.objects[(NODES, "", "box")]["spec"].get("unschedulable")


def test_drain_tells_what_holds_out(windlass, cluster):
    cluster.refuse["train-main-0"] = errors.failure(429, "TooManyRequests", "the budget allows no disruption")
    done = windlass("node", "drain", "box", "-y", "--timeout", "2s")
    assert done.code == 7
    assert "error[WL-NODE-504]" in done.err
    assert "why: default/train-main-0: the budget allows no disruption" in done.err
    assert done.out.count("pod default/train-main-0 stays for now: the budget allows no disruption\n") == 1


def test_drain_tells_which_budget_holds_out(windlass, cluster):
    causes = [{"reason": "DisruptionBudget", "message": "The disruption budget b needs 2 healthy pods"}]
    cluster.refuse["train-main-0"] = errors.failure(429, "TooManyRequests", "no", {"causes": causes})
    done = windlass("node", "drain", "box", "-y", "--timeout", "2s")
    assert "why: default/train-main-0: The disruption budget b needs 2 healthy pods" in done.err


@pytest.mark.parametrize("code", [404, 503])
def test_drain_takes_no_word_of_a_proxy_for_an_eviction(windlass, cluster, code):
    cluster.refuse["train-main-0"] = errors.failure(code, "", "the proxy knows no way")
    done = windlass("node", "drain", "box", "-y", "--timeout", "2s")
    assert done.code == 7
    assert "why: default/train-main-0: the proxy knows no way" in done.err
    assert "evicting pod default/train-main-0" not in done.out


@pytest.mark.parametrize(
    "gone",
    [
        errors.failure(404, "NotFound", "not found", {"name": "train-main-0", "kind": "pods"}),
        errors.failure(409, "Conflict", "the UID in the precondition (a) does not match that in record (b)"),
    ],
)
def test_drain_does_not_mind_a_pod_that_is_gone(windlass, cluster, gone):
    def vanish():
        del cluster.objects[(PODS, "default", "train-main-0")]
        return gone

    cluster.refuse["train-main-0"] = vanish
    done = windlass("node", "drain", "box", "-y", "--timeout", "2s")
    assert (done.code, done.err) == (0, "")


# Help and completion.


def test_help_explains_codes_and_reasons_offline(windlass, cluster):
    cluster.down = True
    assert windlass("help", "WL-QUEUE-404").out.startswith("WL-QUEUE-404: there is no such queue\n")
    assert "Slurm:" in windlass("help", "insufficientresources").out
    assert windlass("help", "ps").out.startswith("Usage: windlass ps")
    assert json.loads(windlass("help", "WL-JOB-413", "-o", "json").out)["exitStatus"] == 6


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(windlass, shell):
    text = windlass("completion", shell).out
    assert "_WINDLASS_COMPLETE" in text
    assert json.loads(windlass("completion", shell, "-o", "json").out) == {"shell": shell, "script": text}


def test_completion_is_for_the_shell_that_one_has(windlass, monkeypatch):
    monkeypatch.setenv("SHELL", "/usr/local/bin/zsh")
    assert windlass("completion").out == windlass("completion", "zsh").out
    monkeypatch.setenv("SHELL", "/bin/dash")
    done = windlass("completion")
    assert (done.code, done.out) == (2, "")
    assert (
        done.err.splitlines()[0] == "error[WL-USE-400]: $SHELL is /bin/dash, for which there is no completion"
    )
    assert done.err.splitlines()[-1] == "try: windlass completion bash"
    monkeypatch.delenv("SHELL")
    assert "$SHELL does not say which shell is meant" in windlass("completion").err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("windlass logs tr", ["train"]),
        ("windlass run -q re", ["research"]),
        ("windlass node drain sim", ["sim-2", "sim-10"]),
        ("windlass get qu", ["queues", "quota"]),
        ("windlass get nodes b", ["box"]),
        ("windlass get node/b", ["node/box"]),
        ("windlass pu", []),
        ("windlass que", ["queue"]),
    ],
)
def test_live_names_are_completed(cluster, monkeypatch, capsys, words, expected):
    from windlass.cli import main
    from windlass.cli.invocation import Surroundings

    monkeypatch.setenv("_WINDLASS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit):
        main.run([], Surroundings(connect=cluster.client))  # type: ignore[arg-type]
    found = [line.partition(",")[2] for line in capsys.readouterr().out.splitlines() if line]
    assert found == expected


def test_completion_is_silent_when_nothing_answers(cluster, monkeypatch, capsys):
    from windlass.cli import main
    from windlass.cli.invocation import Surroundings

    cluster.down = True
    monkeypatch.setenv("_WINDLASS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "windlass logs ")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit):
        main.run([], Surroundings(connect=cluster.client))  # type: ignore[arg-type]
    assert capsys.readouterr() == ("\n", "")


def test_crds_are_yaml(windlass):
    import yaml

    found = list(yaml.safe_load_all(windlass("crds").out))
    assert {crd["kind"] for crd in found} == {"CustomResourceDefinition"}
    assert "queues.scheduling.volcano.sh" in {crd["metadata"]["name"] for crd in found}
    assert windlass("crds", "-o", "yaml").out == windlass("crds").out
    assert json.loads(windlass("crds", "-o", "json").out) == found


@pytest.mark.parametrize("words", [("crds", "-o", "wide"), ("completion", "bash", "-o", "yaml")])
def test_other_formats_are_refused(windlass, words):
    done = windlass(*words)
    assert (done.code, done.out) == (2, "")
    assert "is not an output format of this command" in done.err


@pytest.mark.parametrize("words", [("crds", "--bogus"), ("completion", "tcsh")])
def test_their_errors_are_json_for_a_program(windlass, words):
    done = windlass(*words, "-o", "json")
    assert done.code == 2
    assert json.loads(done.err)["code"] == "WL-USE-400"


def test_status(windlass, cluster):
    cluster.answers = {"/version": b'{"gitVersion": "v1.36.0"}', "/readyz": b"ok"}
    record = json.loads(windlass("status", "-o", "json").out)
    assert record["healthy"] is True
    assert record["capacity"]["gpus"] == 12
    assert record["capacity"]["gpusUsed"] == 3
    assert "GPUs:           3 of 12 in use" in windlass("status").out


def test_doctor_believes_the_agent_more_than_the_machine(windlass, cluster, tmp_path):
    node = cluster.objects[(NODES, "", "box")]
    node["metadata"].setdefault("annotations", {})["windlass.dev/isolation"] = "none"
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "state" / "supervisor.json").write_text('{"node": "box"}')
    checks = {check["check"]: check for check in json.loads(windlass("doctor", "-o", "json").out)["checks"]}
    assert {"outbound", "limits", "gpus", "capacity", "images"} <= checks.keys()
    levels = {name: check["level"] for name, check in checks.items() if name.startswith("isolation")}
    assert "warn" in levels.values()
    if "isolation.net" not in levels:
        assert "the running agent gives pods none" in checks["isolation"]["found"]


def test_doctor_says_how_to_mend(windlass, cluster):
    cluster.down = True
    done = windlass("doctor")
    assert done.code == 0
    assert "warn  control plane:" in done.out
    assert "      try: windlass up --detach\n" in done.out
    records = json.loads(windlass("doctor", "-o", "json").out)["checks"]
    assert {record["level"] for record in records} <= {"ok", "warn", "fail"}


def test_a_container_that_no_rank_has(windlass, logged):
    done = windlass("logs", "train", "-c", "zz")
    assert done.code == 3
    assert 'error[WL-RANK-404]: no rank of job "train" has a container zz\n' in done.err


@pytest.mark.parametrize("group", ["queue", "node"])
def test_a_group_without_a_command_shows_its_help(windlass, group):
    done = windlass(group)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Usage: windlass {group} ")


@pytest.mark.parametrize(
    ("days", "level", "words"),
    [(364, "ok", "good until"), (20, "warn", "good until"), (-2, "fail", "ended on")],
)
def test_doctor_looks_at_certificates(windlass, tmp_path, days, level, words):
    """A running server renews them a month before: one that is nearer to its end is told."""
    from windlass.kits.clock import FakeClock
    from windlass.kits.state import StateFolder
    from windlass.server import pki

    state = StateFolder(tmp_path / "state")
    state.prepare(allow_network=True)
    pki.ensure(state, FakeClock(FakeClock().now() - (365 - days) * 86_400))
    checks = {check["check"]: check for check in json.loads(windlass("doctor", "-o", "json").out)["checks"]}
    assert (checks["certificates"]["level"], checks["certificates"]["found"][: len(words)]) == (level, words)
    if level != "ok":
        assert "windlass up" in checks["certificates"]["remedy"]


def test_install_prints_no_objects_where_it_is_to_adopt(windlass):
    """They would be those of another command: nothing of the taking over is in them."""
    done = windlass("install", "--adopt", "kai", "-o", "yaml")
    assert (done.code, done.out) == (2, "")
    assert "try: windlass install --adopt kai --dry-run\n" in done.err


def test_install_tells_what_of_a_configuration_is_not_used(windlass, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("actions: allocate\nnonsense: 1\nplugins: [{name: gangg}]\n")
    done = windlass("install", "-o", "name", "--config", str(policy))
    assert done.code == 0
    assert f"{policy}: line 2: nonsense is not known and not used" in done.err
    assert f"{policy}: plugin 'gangg' is unknown and left out" in done.err


def test_install_takes_no_empty_image_for_the_default(windlass):
    done = windlass("install", "-o", "name", "--image", "")
    assert (done.code, done.out) == (2, "")
    assert "--image is empty" in done.err


def test_remedies_name_the_box_that_was_meant(tmp_path, capsys):
    from windlass.cli.main import run

    box = str(tmp_path / "my box")
    assert run(["--state", box, "ps"]) == 7
    told = "".join(capsys.readouterr())
    assert f"try: windlass --state '{box}' up\n" in told
    assert f"try: windlass --state '{box}' status\n" in told
    assert run(["down", "--state", box]) == 0
    assert "nothing runs on" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("remedy", "cluster", "box"),
    [
        ("windlass ps", "windlass --context lab ps", "windlass --state /s ps"),
        (
            "windlass down && windlass up --detach",
            "windlass down && windlass up --detach",
            "windlass --state /s down && windlass --state /s up --detach",
        ),
        ("kubectl get pods", "kubectl --context lab get pods", "kubectl get pods"),
        ("windlass help WL-GPU-413", "windlass help WL-GPU-413", "windlass help WL-GPU-413"),
        ("windlass up --state DIR", "windlass up --state DIR", "windlass up --state DIR"),
        ("df -h .", "df -h .", "df -h ."),
    ],
)
def test_a_remedy_is_aimed_at_the_cluster_or_the_box(remedy, cluster, box):
    from windlass.cli.failures import aimed_remedy

    assert aimed_remedy(remedy, "") == remedy
    assert aimed_remedy(remedy, "--context lab") == cluster
    assert aimed_remedy(remedy, "--state /s") == box


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("command", [["queue", "ls"], ["status"]])
def test_where_nothing_runs_on_this_box_a_cluster_may_have_been_meant(
    tmp_path, monkeypatch, capsys, command, there
):
    from windlass.cli.main import run

    file = tmp_path / "kubeconfig"
    if there:
        file.write_text("{}")
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setenv("WINDLASS_STATE", str(tmp_path / "state"))
    assert run(command) == 7
    said = "".join(capsys.readouterr())
    assert "error[WL-SERVER-502]" in said
    assert ("try: for a cluster of your kubeconfig: windlass --context NAME status" in said) == there
