"""The other commands, the shape of errors, and what the group itself does."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import click
import example_cluster
import pytest
from fakecluster import FakeCluster

from windlass.api import errors
from windlass.api.resources import COMMANDS as ORDERS
from windlass.api.resources import EVENTS, NODES, PODS, QUEUES, VOLCANO_JOBS
from windlass.cli.main import COMMANDS, command_of


@pytest.fixture
def cluster() -> FakeCluster:
    return example_cluster.busy()


# The group.


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_file_and_its_summary(name: str):
    command = command_of(name)
    assert isinstance(command, click.Command)
    assert command.name == name
    summary = COMMANDS[name][1]
    assert (command.help or "").split("\n\n")[0].replace("\n", " ") == summary
    assert len(COMMANDS) <= 48


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("--state",), "windlass"),
        (("what-if", "--drain"), "windlass what-if"),
        (("sim", "run", "--nodes", "1x8", "--trace"), "windlass sim run"),
    ],
)
def test_an_option_without_its_value_points_to_the_help_of_its_command(
    windlass: Any, words: tuple[str, ...], where: str
) -> None:
    done = windlass(*words)
    assert done.code == 2
    assert f"option '{words[-1]}' requires an argument" in done.err
    assert f"try: {where} --help" in done.err


@pytest.mark.parametrize("name", [n for n in COMMANDS if n not in ("scheduler", "controller", "batch-api")])
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
        (["ps", "-o", "jsonpath={.items["], "error[WL-USE-400]: the JSONPath template is not valid"),
        (["get", "podz"], 'error[WL-KIND-404]: kind "podz" does not exist'),
        (["get", "a/b", "c"], 'error[WL-USE-400]: "c" is not KIND/NAME'),
        (["delete", "pods"], "error[WL-USE-400]: give names of objects"),
        (["cancel"], "error[WL-USE-400]: give names of jobs, or --all"),
        (["logs", "train", "--rank", "9"], "error[WL-RANK-404]"),
        (["logs", "train", "--grep", "["], "error[WL-USE-400]: --grep '['"),
        (["logs", "train", "--since", "foo"], "error[WL-USE-400]: --since foo: 'foo' is not a duration"),
        (["submit", "--gpus", "9" * 20, "--", "true"], "error[WL-USE-400]: --gpus 99999999999999999999: "),
        (["submit", "--time", "soon", "--", "true"], "error[WL-USE-400]: --time soon: 'soon' is not a"),
        (["submit", "--time", "0s", "--", "true"], "error[WL-USE-400]: --time 0s is not between 1s and"),
        (
            ["submit", "--time", "99999d", "--", "true"],
            "error[WL-USE-400]: --time 99999d is not between 1s and",
        ),
        (["cancel", "--all", "-q", "reseach"], 'error[WL-QUEUE-404]: queue "reseach" does not exist'),
        (["cancel", "train", "-q", "research"], "error[WL-USE-400]: -q research works only with --all"),
        (["queue", "set", "research", "wieght=2"], 'error[WL-USE-400]: "wieght=2" is not a valid setting'),
        (
            ["queue", "set", "research", "weight=--2"],
            'error[WL-USE-400]: "weight=--2" is not a valid setting',
        ),
        (["queue", "set", "research", "weight=²"], 'error[WL-USE-400]: "weight=²" is not a valid setting'),
        (
            ["queue", "set", "research", "capability.cpu=lots"],
            'error[WL-USE-400]: "capability.cpu=lots" is not a valid setting',
        ),
        (
            ["queue", "set", "research", "capability.gpu=4"],
            'error[WL-USE-400]: "capability.gpu=4" is not a valid setting',
        ),
        (
            ["queue", "set", "research", "capability.tpu=4"],
            'error[WL-USE-400]: "capability.tpu=4" is not a valid setting',
        ),
        (["node", "add-simulated", "--taint", "x"], "error[WL-USE-400]: --taint 'x'"),
        (["node", "add-simulated", "--memory", "x"], "error[WL-USE-400]: memory=x"),
        (["help", "WL-QUEUE-40"], 'error[WL-USE-404]: "WL-QUEUE-40" is not an error code'),
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
    from windlass.api.error_codes import CODES
    from windlass.cli.errors import exit_status, translate

    error = translate(fault)
    assert (error.code, exit_status(error)) == (code, exit_code)
    assert error.code in CODES
    assert CODES[error.code].exit_status == exit_code


def test_quota_names_its_remedy():
    from windlass.cli.errors import translate

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
    from windlass.cli.errors import missing

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


@pytest.mark.parametrize("group", ["queue", "node"])
def test_a_group_without_a_command_shows_its_help(windlass, group):
    done = windlass(group)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Usage: windlass {group} ")


# Remedies.


def test_remedies_name_the_box_that_was_meant(tmp_path, capsys):
    from windlass.cli.main import run

    box = str(tmp_path / "my box")
    assert run(["--state", box, "ps"]) == 7
    told = "".join(capsys.readouterr())
    assert f"try: windlass --state '{box}' up\n" in told
    assert f"try: windlass --state '{box}' status\n" in told
    assert run(["down", "--state", box]) == 0
    assert "no control plane runs on" in capsys.readouterr().out


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
        ("kubectl config get-contexts", "kubectl config get-contexts", "kubectl config get-contexts"),
        ("windlass help WL-GPU-413", "windlass help WL-GPU-413", "windlass help WL-GPU-413"),
        ("windlass up --state DIR", "windlass up --state DIR", "windlass up --state DIR"),
        ("df -h .", "df -h .", "df -h ."),
        ("windlass --kubeconfig PATH …", "windlass --kubeconfig PATH …", "windlass --kubeconfig PATH …"),
        ("windlass --context NAME ps", "windlass --context NAME ps", "windlass --context NAME ps"),
        (
            "windlass run -- train --state x",
            "windlass --context lab run -- train --state x",
            "windlass --state /s run -- train --state x",
        ),
    ],
)
def test_a_remedy_is_aimed_at_the_cluster_or_the_box(remedy, cluster, box):
    from windlass.cli.errors import remedy_with_target

    assert remedy_with_target(remedy, "") == remedy
    assert remedy_with_target(remedy, "--context lab") == cluster
    assert remedy_with_target(remedy, "--state /s") == box


def test_another_context_is_looked_up_in_the_same_file():
    from windlass.cli.errors import remedy_with_target

    remedy = remedy_with_target("windlass --context NAME ps", "--kubeconfig /k --context lab")
    assert remedy == "windlass --kubeconfig /k --context NAME ps"


@pytest.mark.parametrize("words", [["--kubeconfig=~/no.yaml", "ps"], ["ps", "--kubeconfig=~/no.yaml"]])
def test_home_directory_in_a_path_is_expanded(tmp_path, monkeypatch, capsys, words):
    from windlass.cli.main import run

    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(words) != 0
    told = capsys.readouterr().err
    assert f"there is no kubeconfig {tmp_path}/no.yaml" in told
    assert "try: windlass --kubeconfig PATH …\n" in told


def test_commands_after_the_start_name_the_state_directory():
    from windlass.cli.commands.daemon.up import announcement

    record = {"version": "1", "pid": 1, "node": "n", "url": "u", "kubeconfig": "/my box/kubeconfig"}
    told = announcement(record, flags="--state '/my box'")
    assert "windlass --state '/my box' run -- echo hello\n" in told
    assert "kubectl --kubeconfig '/my box/kubeconfig' get nodes\n" in told
    assert "try:        windlass run -- echo hello\n" in announcement(record)


@pytest.mark.parametrize(("command", "instead"), [("up", "install"), ("down", "uninstall")])
@pytest.mark.parametrize("first", [True, False])
def test_the_control_plane_of_this_box_is_not_a_clusters(windlass, monkeypatch, command, instead, first):
    from windlass.cli import bootstrap

    monkeypatch.setattr(bootstrap, "start", lambda *_, **__: pytest.fail("nothing may be started"))
    done = windlass("--context", "lab", command) if first else windlass(command, "--context", "lab")
    assert done.code == 2
    assert f"windlass {command} works only on the control plane of this machine" in done.err
    assert done.err.splitlines()[2:] == [f"try: windlass {command}", f"try: windlass --context lab {instead}"]


def test_contexts_are_looked_up_in_the_file_that_was_named():
    from windlass.cli.errors import remedy_with_target

    wanted = "kubectl --kubeconfig /k config get-contexts"
    for flags in ("--kubeconfig /k", "--kubeconfig /k --context nosuch"):
        assert remedy_with_target("kubectl config get-contexts", flags) == wanted


SAID = "2026-11-23T08:40:15Z supervisor: "


@pytest.mark.parametrize("command", [["ps"], ["status"]])
@pytest.mark.parametrize(
    ("log", "record", "why"),
    [
        ("ready on https://x\n", {"pid": 0}, "No such file or directory"),
        (f"{SAID}stopped\n", {"port": 1, "stopped": "2026-11-23T08:40:15Z"}, "No such file or directory"),
        (
            f"{SAID}stopped\n{SAID}giving up: /s is on a full disk: No space left on device\n",
            {"pid": 1 << 22},
            "why: it gave up at 2026-11-23T08:40:15Z: /s is on a full disk: No space left on device\n",
        ),
        (
            f"{SAID}ready on https://x\n",
            {"pid": 1 << 22, "startTicks": 1},
            f"why: its process {1 << 22} ended without a message: it was killed, or the machine went down\n",
        ),
    ],
    ids=["never ran", "was ended", "gave up", "was killed"],
)
def test_why_nothing_runs_on_this_box_is_told(tmp_path, monkeypatch, capsys, command, log, record, why):
    from windlass.cli.main import run

    monkeypatch.setenv("WINDLASS_STATE", str(tmp_path))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "supervisor.log").write_text(log)
    (tmp_path / "supervisor.json").write_text(json.dumps(record))
    assert run(command) == 7
    said = "".join(capsys.readouterr())
    assert why in said
    assert ("try: windlass status" in said) == (command == ["ps"])


def test_a_disk_that_is_full_is_told_though_nothing_of_it_could_be_written(tmp_path, monkeypatch, capsys):
    from windlass.cli.main import run

    monkeypatch.setenv("WINDLASS_STATE", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=2, f_frsize=4096))
    assert run(["status"]) == 7
    said = "".join(capsys.readouterr())
    assert f"why: the disk of {tmp_path} is full\n" in said
    assert [line for line in said.splitlines() if line.startswith("try: ")] == [
        f"try: df -h {tmp_path}",
        "try: free disk space there first",
        "try: windlass up",
    ]


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
    assert ("try: windlass --context NAME status   (for a cluster of your kubeconfig)" in said) == there


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


def test_delete_of_the_name_of_a_job_proposes_cancel(windlass):
    done = windlass("delete", "train")
    assert (done.code, done.err.splitlines()[1:]) == (
        windlass("delete", "nope").code,
        ["why: train is a job: windlass delete needs the kind before the name", "try: windlass cancel train"],
    )
    assert "why: kinds: " in windlass("delete", "nope").err


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
    assert windlass("cancel", "hello").out == "hello has already ended\n"


def test_cancel_all_of_a_queue(windlass, cluster):
    done = windlass("cancel", "--all", "-q", "research")
    assert done.out == "big is being ended\nhuge is being ended\n"


def test_cancel_all_of_nothing_says_so(windlass):
    done = windlass("cancel", "--all", "-n", "empty")
    assert (done.code, done.out, done.err) == (
        0,
        "",
        "there are no running or pending jobs in namespace empty\n",
    )


def test_a_job_named_twice_is_ended_once(windlass, cluster):
    assert windlass("cancel", "train", "train").out == "train is being ended\n"
    assert len([kind for (kind, *_) in cluster.objects if kind is ORDERS]) == 1
