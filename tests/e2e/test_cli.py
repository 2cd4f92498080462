"""A control plane on one box, driven as a person drives it: start, run, follow, stop, and what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from realkube import free_ports
from single_node import WINDLASS, Box

from windlass.api.annotations import EXPLANATION
from windlass.client.transport import Request
from windlass.controllers.vcjob.reconcile import BATCH


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "simulated:4", "--node-name", "box") as one:
        yield one


def record(box: Box) -> dict:
    return json.loads(box.state.supervisor.read_bytes())


def supervisor(box: Box) -> int:
    return record(box)["pid"]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def command_line(pid: int) -> list[str]:
    """Of a process that may have ended since."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def title(pid: int) -> str:
    """What a process calls itself, if it is there."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


# Running.


def test_the_output_and_the_exit_status_are_the_jobs(box: Box):
    done = box.windlass("run", "--quiet", "--", "sh", "-c", "echo hi; echo $((1+2)) $HOME")
    assert done.stdout == f"hi\n3 {box.folder}\n"
    assert done.stderr == ""


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)])
def test_exit_statuses(box: Box, command: str, code: int):
    assert box.windlass("run", "--", "sh", "-c", command, check=False).returncode == code


def test_it_runs_where_it_was_called_with_the_callers_environment(box: Box):
    (box.folder / "here").write_text("found")
    done = box.windlass("run", "--env", "X=1", "--", "sh", "-c", "cat here; echo $X $PATH")
    assert done.stdout.startswith("found1 ")
    assert str(Path(WINDLASS).parent) in done.stdout


def test_a_gang_of_four_meets(box: Box):
    script = (
        "import os, socket, time\n"
        "rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
        "address = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))\n"
        "if rank == 0:\n"
        "    server = socket.create_server(address)\n"
        "    said = sorted(server.accept()[0].recv(9).decode() for _ in range(world - 1))\n"
        "    print('heard', *said)\n"
        "else:\n"
        "    while True:\n"  # as long as the first one takes to begin
        "        try:\n"
        "            link = socket.create_connection(address, 1); break\n"
        "        except OSError: time.sleep(0.05)\n"
        "    link.sendall(str(rank).encode())\n"
        "print('gpu', os.environ['CUDA_VISIBLE_DEVICES'])\n"
    )
    done = box.windlass("run", "--nodes", "4", "--gpus", "1", "--", "python3", "-c", script)
    lines = done.stdout.splitlines()
    assert "[0] heard 1 2 3" in lines
    gpus = sorted(line.split()[-1] for line in lines if " gpu " in line)
    assert gpus == ["0", "1", "2", "3"]


def test_a_failing_rank_ends_the_gang_and_gives_its_status(box: Box):
    begin = time.monotonic()
    done = box.windlass(
        "run", "--nodes", "2", "--", "sh", "-c", "[ $RANK = 1 ] && exit 9; sleep 600", check=False
    )
    assert done.returncode == 9
    assert time.monotonic() - begin < 120


def test_more_than_the_box_has_is_told_at_once(box: Box):
    done = box.windlass("run", "--gpus", "5", "--", "true", check=False)
    assert done.returncode == 6
    assert done.stderr.startswith("error[WL-JOB-413]: no node has 5 GPUs\n")


def test_a_waiting_job_is_explained_and_followed_from_its_wait_to_its_end(box: Box):
    box.windlass("submit", "--name", "holder", "--gpus", "3", "--", "sleep", "300")
    box.wait_for("it runs", lambda: box.job_phase("holder") == "Running")
    box.windlass("submit", "--name", "waiter", "--gpus", "2", "--", "sh", "-c", "echo started; exit 5")
    said = box.folder / "said"
    with (
        said.open("w") as stderr,
        subprocess.Popen(
            [WINDLASS, "logs", "-f", "waiter"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=box.environment,
        ) as follower,
    ):
        line = box.wait_for("a reason in ps", lambda: _line(box, "waiter", "#1", "GPU"))
        assert "Pending" in line
        explained = box.wait_for("it lacks room", lambda: _lacks_room(box, "waiter"))
        assert explained["willItRun"] == "yes"
        assert any("holder" in holder for holder in explained["explanation"]["holders"])
        done = box.windlass("logs", "waiter")
        assert "has written nothing yet: Pending" in done.stderr
        box.wait_for("its wait is followed", lambda: "waiter: queued in default: " in said.read_text())
        box.windlass("cancel", "holder", "--wait")
        out, _ = follower.communicate(timeout=90)
    assert out == "started\n"
    assert follower.returncode == 5
    assert "error" not in said.read_text()


def _lacks_room(box: Box, job: str) -> dict[str, Any] | None:
    """What is explained of it, once it does not wait for its pods to be made."""
    told = json.loads(box.windlass("explain", job, "-o", "json").stdout)
    return told if (told.get("explanation") or {}).get("code") == "InsufficientResources" else None


def _line(box: Box, job: str, *words: str) -> str:
    lines = [line for line in box.windlass("ps").stdout.splitlines() if line.startswith(f"{job} ")]
    return lines[0] if lines and all(word in lines[0] for word in words) else ""


def test_what_was_cancelled_keeps_its_log(box: Box):
    box.windlass("submit", "--name", "long", "--", "sh", "-c", "echo begun; sleep 300")
    box.wait_for("it writes", lambda: box.windlass("logs", "long", check=False).stdout == "begun\n")
    box.windlass("cancel", "long", "--wait")
    assert box.job_phase("long") == "Terminated"
    assert box.windlass("logs", "long").stdout == "begun\n"


def test_a_job_of_very_many_pods_that_fit_nowhere_keeps_nobody_waiting(box: Box):
    container = {
        "name": "main",
        "image": "i",
        "command": ["true"],
        "resources": {"limits": {"nvidia.com/gpu": 9}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    task = {"name": "worker", "replicas": 100_000, "template": template}
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "huge"}}
    manifest = json.dumps(
        {**job, "spec": {"schedulerName": "volcano", "minAvailable": 100_000, "tasks": [task]}}
    )
    box.windlass("apply", "-f", "-", stdin=manifest)
    try:
        box.windlass("run", "--name", "small", "--", "true", timeout=90)
        told = box.wait_for("it is judged, by its pods too", lambda: _judged(box, "huge"))
        assert told["code"] in ("ExceedsCluster", "ExceedsEveryNode")
        made = box.wait_for("no more pods are made", lambda: _settled(box, "huge"))
        assert 0 < made <= 20 * BATCH  # a tenth at most: batches go on until it is judged
        assert "never" in box.windlass("ps").stdout
    finally:
        box.windlass("delete", "vcjob/huge")


def _judged(box: Box, job: str) -> dict[str, Any] | None:
    for group in box.items("podgroups"):
        said = json.loads(group["metadata"].get("annotations", {}).get(EXPLANATION) or "{}")
        blockers = {blocker["code"] for blocker in said.get("blockers", ())}
        if group["metadata"]["name"].startswith(f"{job}-") and "ExceedsEveryNode" in blockers:
            return said
    return None


def _settled(box: Box, job: str) -> int:
    before = len(box.items("pods", labels=f"volcano.sh/job-name={job}"))
    time.sleep(1.5)
    return before if before == len(box.items("pods", labels=f"volcano.sh/job-name={job}")) else 0


def _heed_interrupts() -> None:
    """As in a terminal, also when these tests run in the background of a shell, which ignores SIGINT there."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interrupting_detaches_and_the_job_goes_on(box: Box, tmp_path: Path):
    go = tmp_path / "go"
    words = f"echo begun; until [ -e {go} ]; do sleep 0.1; done; echo ended"
    with subprocess.Popen(
        [WINDLASS, "run", "--name", "detached", "--", "sh", "-c", words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=box.environment,
        preexec_fn=_heed_interrupts,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=90)
    assert process.returncode == 130
    assert "come back: windlass logs -f detached\n" in err
    go.touch()
    assert box.windlass("logs", "-f", "detached").stdout == "begun\nended\n"


def test_names_complete_quickly(box: Box):
    environment = {
        "_WINDLASS_COMPLETE": "bash_complete",
        "COMP_WORDS": "windlass run -q de",
        "COMP_CWORD": "3",
    }
    seconds, working = [], []
    for _ in range(3):
        begin, used = time.monotonic(), os.times()
        done = subprocess.run(
            [WINDLASS], env={**box.environment, **environment}, capture_output=True, text=True, check=True
        )
        seconds.append(time.monotonic() - begin)
        now = os.times()
        working.append(now.children_user + now.children_system - used.children_user - used.children_system)
    assert done.stdout == "plain,default\n"
    # The budget of 100 ms is for an idle machine; benchmarks/ holds it. Here others work, too.
    assert min(working) < 2.0
    assert min(seconds) < 10.0


def test_strict_writes_nothing_at_all(box: Box):
    text = (
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: good}\nspec: {weight: 1}\n"
        "---\n"
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: bad}\n"
        "spec: {weight: 1, wieght: 2}\n"
    )
    done = box.windlass("apply", "--strict", "-f", "-", stdin=text, check=False)
    assert done.returncode == 2
    assert 'standard input:6 Queue/bad: unknown field "spec.wieght"' in done.stderr
    names = {queue["metadata"]["name"] for queue in box.items("queues")}
    assert "good" not in names
    loose = box.windlass("apply", "-f", "-", stdin=text)
    assert 'Warning: unknown field "spec.wieght"' in loose.stderr
    assert "queue.scheduling.volcano.sh/bad created" in loose.stdout


def test_a_closed_queue_is_told_and_opens_again(box: Box):
    box.windlass("queue", "create", "shut")
    box.windlass("queue", "set", "shut", "state=Closed")
    done = box.windlass("run", "-q", "shut", "--", "true", check=False)
    assert done.returncode == 6
    assert "error[WL-QUEUE-423]" in done.stderr
    box.windlass("queue", "set", "shut", "state=Open")
    assert box.windlass("run", "-q", "shut", "--", "true").returncode == 0


def test_draining_a_simulated_node_moves_its_pods(box: Box):
    box.windlass("node", "add-simulated", "--gpus", "8", "--prefix", "drained")
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: mover}\nspec:\n  containers:\n  - name: c\n    image: x\n"
        "    resources: {limits: {nvidia.com/gpu: '8'}}\n"
    )
    box.windlass("apply", "-f", "-", stdin=text)
    box.wait_for("it runs", lambda: box.get("pod/mover").get("status", {}).get("phase") == "Running")
    done = box.windlass("node", "drain", "drained-0", "-y", "--grace-period", "0")
    assert "evicting pod default/mover" in done.stdout
    assert box.get("node/drained-0")["spec"]["unschedulable"] is True
    box.windlass("delete", "node", "drained-0")


# The control plane.


def test_status_and_doctor(box: Box):
    found = json.loads(box.windlass("status", "-o", "json").stdout)
    assert found["healthy"] is True
    assert found["capacity"]["gpus"] == 4
    assert {p["restarts"] for p in found["server"]["processes"].values()} == {0}
    assert box.windlass("doctor").returncode == 0


def test_up_again_is_no_fault_and_other_options_are(box: Box):
    before = supervisor(box)
    done = box.windlass("up", "--detach", "--gpus", "simulated:4")
    assert f"already running (pid {before}," in done.stdout
    done = box.windlass("up", "--detach", "--gpus", "simulated:2", check=False)
    assert done.returncode == 5
    assert "error[WL-UP-409]" in done.stderr
    assert "--gpus simulated:2 was asked for, it runs with --gpus simulated:4" in done.stderr
    assert supervisor(box) == before


@pytest.mark.parametrize("role", ["server", "control", "node"])
def test_a_killed_process_comes_back_and_nothing_is_lost(box: Box, role: str, tmp_path: Path):
    name, go = f"through-{role}", tmp_path / "go"
    words = f"until [ -e {go} ]; do sleep 0.1; done; echo survived"
    box.windlass("submit", "--name", name, "--", "sh", "-c", words)
    box.wait_for("it runs", lambda: box.job_phase(name) == "Running")
    (pod,) = box.items("pods", labels=f"volcano.sh/job-name={name}")
    old = record(box)["processes"][role]["pid"]
    os.kill(old, signal.SIGKILL)
    box.wait_for("another one", lambda: record(box)["processes"][role]["pid"] not in (None, old))
    assert record(box)["processes"][role]["restarts"] >= 1
    go.touch()
    assert box.windlass("logs", "-f", name).stdout == "survived\n"
    box.wait_for("it completed", lambda: box.job_phase(name) == "Completed")
    (same,) = box.items("pods", labels=f"volcano.sh/job-name={name}")
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]
    assert same["status"]["containerStatuses"][0]["restartCount"] == 0
    events = box.wait_for("an event", lambda: [e for e in box.items("events") if role in e.get("message", "")
                                               and e.get("reason") == "ComponentRestarted"])  # fmt: skip
    assert "was ended by SIGKILL" in events[0]["message"]


def test_following_goes_on_when_the_server_ends_in_the_middle(box: Box, tmp_path: Path):
    """The last lines come when the server has ended twice."""
    go = tmp_path / "go"
    script = (
        "for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.2; "
        f"until [ $i -lt 9 ] || [ -e {go} ]; do sleep 0.1; done; done; exit 3"
    )
    command = [WINDLASS, "run", "--quiet", "--name", "lines", "--", "sh", "-c", script]
    with subprocess.Popen(command, env=box.environment, stdout=subprocess.PIPE, text=True) as following:
        box.wait_for("its pod", lambda: box.items("pods", labels="volcano.sh/job-name=lines"))
        box.wait_for("it runs", lambda: box.job_phase("lines") == "Running")
        for number in (signal.SIGKILL, signal.SIGTERM):
            old = record(box)["processes"]["server"]["pid"]
            os.kill(old, number)
            box.wait_for(
                "another", lambda old=old: record(box)["processes"]["server"]["pid"] not in (None, old)
            )
        go.touch()
        out, _ = following.communicate(timeout=120)
    assert out.splitlines() == [f"line {number}" for number in range(1, 11)]
    assert following.returncode == 3


def test_a_killed_supervisor_leaves_only_the_pods_which_are_taken_up_again():
    (port,) = free_ports(1)  # the usual one may be another box's by the time this one begins anew
    with Box("--gpus", "simulated:2", "--port", str(port)) as box:
        box.windlass("submit", "--name", "tough", "--", "sh", "-c", "echo $$ > pid; sleep 300")
        box.wait_for("it runs", lambda: (box.folder / "pid").exists() and box.job_phase("tough") == "Running")
        old = record(box)
        os.kill(old["pid"], signal.SIGKILL)
        roles = [process["pid"] for process in old["processes"].values()]
        box.wait_for("the others went too", lambda: not any(map(alive, roles)))
        box.wait_for("and the agent's nursery", lambda: "windlass-birth" not in map(title, box.processes()))
        shims = box.processes()
        assert shims, "the pod is gone"
        box.windlass("up", "--detach")
        (pod,) = box.items("pods")
        assert pod["status"]["phase"] == "Running"
        (node,) = box.items("nodes")
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "2", "the choices of the start are lost"
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
        assert set(shims) <= set(box.processes())
        assert record(box)["port"] == old["port"] == port
        os.kill(supervisor(box), signal.SIGKILL)
        box.wait_for("gone", lambda: not alive(record(box)["processes"]["node"]["pid"]))
        done = box.windlass("down")
        assert "that a killed control plane had left" in done.stdout
        assert box.left() == {}


def test_down_ends_what_runs_even_what_will_not_hear(tmp_path: Path):
    with Box() as box:
        script = "trap '' TERM; echo deaf; while :; do sleep 1; done"
        container = {"name": "main", "image": "i", "command": ["sh", "-c", script]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "deaf"}}
        spec = {"terminationGracePeriodSeconds": 3600, "containers": [container]}
        box.windlass("apply", "-f", "-", stdin=json.dumps({**pod, "spec": spec}))
        box.wait_for("it runs", lambda: box.windlass("logs", "deaf", check=False).stdout == "deaf\n")
        done = box.windlass("down", "--now")  # sooner than in the hour of its grace
        assert "stopped the control plane and all that it ran" in done.stdout
        assert box.left() == {}
        assert box.windlass("ps", check=False).returncode == 7
        assert box.state.database.exists()
        box.windlass("down", "--purge", "-y")
        assert not box.state.path.exists()


def test_run_starts_the_control_plane_and_two_at_once_start_one():
    box = Box()
    try:
        processes = [
            subprocess.Popen(
                [WINDLASS, "run", "--quiet", "--", "echo", f"{number}"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=box.environment,
                cwd=box.folder,
            )
            for number in range(3)
        ]
        results = [process.communicate(timeout=200) for process in processes]
        assert [out for out, _ in results] == ["0\n", "1\n", "2\n"], results
        assert [process.returncode for process in processes] == [0, 0, 0]
        box.wait_for(
            "one control plane runs",
            lambda: [pid for pid in box.processes() if "up" in command_line(pid)] == [supervisor(box)],
        )
    finally:
        box.close()


def test_run_after_down_brings_the_box_back_as_it_was():
    (port,) = free_ports(1)
    with Box("--gpus", "simulated:3", "--node-name", "kept", "--port", str(port)) as box:
        box.windlass("down")
        count = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES | tr , '\\n' | wc -l")
        done = box.windlass("run", "--gpus", "3", "--", *count)
        assert done.stdout == "3\n"
        flags = "--gpus simulated:3 --node-name kept"
        opening = f"starting the control plane with the flags of the last windlass up: {flags}\n"
        assert done.stderr.startswith(f"starting the control plane\n{opening}")
        (node,) = box.items("nodes")
        assert node["metadata"]["name"] == record(box)["node"] == "kept"
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "3"
        assert record(box)["port"] == port
        box.windlass("down")
        box.windlass("up", "--gpus", "simulated:1", "--detach")  # stays as typed, and replaces what was kept
        assert record(box)["asked"] == {"gpus": "simulated:1"}
        assert record(box)["node"] != "kept"


def test_gpus_on_a_box_without_any_start_nothing():
    box = Box()
    try:
        done = box.windlass("run", "--gpus", "1", "--", "true", check=False)
        if done.returncode == 0:
            pytest.skip("this machine has GPUs")
        assert done.returncode == 6
        assert "try: windlass up --detach --gpus simulated:2\n" in done.stderr
        assert not box.state.path.exists()
    finally:
        box.close()


def test_a_port_in_use_is_told_with_its_holder():
    box = Box()
    try:
        with socket.create_server(("127.0.0.1", 0)) as holder:
            port = holder.getsockname()[1]
            done = box.windlass("up", "--detach", "--port", str(port), check=False)
            assert done.returncode == 5
            assert done.stderr.startswith(f"error[WL-PORT-409]: port {port} is in use\n")
            assert f"(pid {os.getpid()})" in done.stderr
            assert box.left() == {}
    finally:
        box.close()


@pytest.mark.parametrize(("place", "code"), [("/proc/windlass", "WL-STATE-"), ("FILE", "WL-STATE-409")])
def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path, place: str, code: str):
    if place == "FILE":
        (tmp_path / "file").write_text("")
        place = str(tmp_path / "file")
    done = subprocess.run(
        [WINDLASS, "up", "--detach", "--state", place],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert done.stderr.startswith(f"error[{code}")
    assert "try: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stale_socket_and_a_stale_record_are_no_obstacle():
    box = Box()
    try:
        box.state.prepare()
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(box.state.socket))
        box.state.write_supervisor({"pid": 1, "ready": True, "port": 1})
        assert box.windlass("status", check=False).returncode == 7
        box.windlass("up", "--detach")
        assert box.windlass("status").returncode == 0
    finally:
        box.close()


def test_a_damaged_database_is_told_and_nothing_keeps_running():
    box = Box()
    try:
        box.state.prepare()
        box.state.database.write_bytes(b"this is no database" * 1000)
        done = box.windlass("up", "--detach", check=False)
        assert done.returncode != 0
        assert done.stderr.startswith("error[WL-STORE-")
        assert "try: " in done.stderr
        box.wait_for("the last to see that its starter is gone", lambda: not box.processes())
    finally:
        box.close()


def test_a_database_that_lost_everything_is_told_and_a_new_folder_starts():
    box = Box()
    try:
        box.windlass("up", "--detach")
        box.windlass("down")
        os.truncate(box.state.database, 0)
        done = box.windlass("up", "--detach", check=False)
        assert done.returncode == 1
        assert done.stderr.startswith(f"error[WL-STORE-510]: the database {box.state.database} is empty\n")
        assert "backup" in done.stderr
        box.wait_for("the last to see that its starter is gone", lambda: not box.processes())
        folder = box.state.database.parent
        assert f"mv {folder} {folder}.damaged" in done.stderr
        folder.rename(f"{folder}.damaged")  # the second remedy
        box.windlass("up", "--detach")
    finally:
        box.close()


class TestMirrorPods:
    """C6: what plays the parts of Volcano and of the GPU operator."""

    def test_c6_pods_of_volcano_system_run_although_nothing_was_installed(self, box: Box) -> None:
        def ready() -> dict[str, dict[str, Any]]:
            pods = {pod["metadata"]["name"]: pod for pod in box.items("pods", namespace="volcano-system")}
            statuses = [s for pod in pods.values() for s in pod["status"].get("containerStatuses") or ()]
            return pods if len(statuses) == 3 and all(s["ready"] for s in statuses) else {}

        pods = box.wait_for("the mirror pods are ready", ready)
        assert sorted(pods) == ["volcano-admission-box", "volcano-controllers-box", "volcano-scheduler-box"]

        def processes() -> dict[str, str]:
            return {
                name.split("-")[1]: pod["status"]["containerStatuses"][0]["containerID"]
                for name, pod in ready().items()
            }

        roles = {"admission": "server", "scheduler": "control", "controllers": "control"}
        now = {name: record(box)["processes"][role]["pid"] for name, role in roles.items()}
        wanted = {name: f"windlass://process/{pid}" for name, pid in now.items()}
        box.wait_for("their containers are the processes", lambda: processes() == wanted)
        (operator,) = box.items("pods", namespace="kubeflow")
        assert operator["metadata"]["name"] == "training-operator-box"
        assert box.items("pods", namespace="kurator-system") == []
        assert "volcano-" not in box.windlass("ps", "-A").stdout
        assert box.items("podgroups", namespace="volcano-system") == []
        with box.client() as client:
            log = client.call(
                Request("GET", "/api/v1/namespaces/volcano-system/pods/volcano-scheduler-box/log")
            )
        assert b"scheduler synced" in log
