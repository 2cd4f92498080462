"""Streams into the containers of one box, with a stock kubectl: commands, terminals, files, ports."""

from __future__ import annotations

import json
import os
import pty
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from kubectl import find
from single_node import Box

pytestmark = pytest.mark.kubectl


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    if find() is None:
        pytest.skip("kubectl is not on the PATH")
    with Box("--gpus", "simulated:2xA100-80GB") as one:
        apply(one, pod("p"))
        one.wait_for("pod p runs", lambda: is_running(one, "p"))
        yield one


def pod(name: str, *, command: tuple[str, ...] = ("sleep", "infinity"), **container: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "python", "command": list(command), **container}
    spec: dict[str, Any] = {
        "containers": [main],
        "terminationGracePeriodSeconds": 0,
        "restartPolicy": "Never",
    }
    spec["nodeSelector"] = {"windlass.dev/box": "true"}  # a test adds a simulated node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def apply(box: Box, *objects: dict[str, Any]) -> None:
    box.windlass("apply", "-f", "-", stdin="\n---\n".join(json.dumps(one) for one in objects))


def is_running(box: Box, name: str) -> bool:
    return box.get("pods", name).get("status", {}).get("phase") == "Running"


class TestExec:
    def test_command_has_the_environment_and_directory_of_the_container(self, box: Box) -> None:
        container = {
            "name": "env",
            "image": "python",
            "command": ["sh", "-c", "env | sort > env; pwd > cwd; id -u > uid; sleep infinity"],
            "env": [{"name": "NCCL_DEBUG", "value": "INFO"}],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }
        apply(
            box,
            pod(
                "env",
                **{k: v for k, v in container.items() if k not in ("name", "command")},
                command=tuple(container["command"]),
            ),
        )
        box.wait_for("pod env runs", lambda: is_running(box, "env"))
        script = (
            "until test -s uid; do sleep 0.05; done; "
            "cat cwd; pwd; cat uid; id -u; hostname; grep -v ^_ env > a; env | sort | grep -v ^_ | diff a -"
        )
        lines = box.kubectl("exec", "env", "--", "sh", "-c", script).stdout.splitlines()
        assert lines[0] == lines[1]
        assert lines[2] == lines[3]
        assert lines[4:] == ["env"]
        values = box.kubectl("exec", "env", "--", "env").stdout
        assert "NCCL_DEBUG=INFO" in values
        assert "CUDA_VISIBLE_DEVICES=" in values

    def test_exit_code_and_both_outputs_reach_the_client(self, box: Box) -> None:
        done = box.kubectl("exec", "p", "--", "sh", "-c", "echo out; echo err >&2; exit 3", check=False)
        assert done.returncode == 3
        assert done.stdout == "out\n"
        assert done.stderr.startswith("err\n")
        killed = box.kubectl("exec", "p", "--", "sh", "-c", "kill -9 $$", check=False)
        assert killed.returncode == 137

    def test_missing_program_ends_with_127_and_names_the_next_step(self, box: Box) -> None:
        done = box.kubectl("exec", "p", "--", "no-such-tool", check=False)
        assert done.returncode == 127
        assert "windlass doctor" in done.stderr

    def test_end_of_stdin_reaches_the_command(self, box: Box) -> None:
        text = "x" * 300_000
        done = box.kubectl("exec", "-i", "p", "--", "sh", "-c", "wc -c; echo end", stdin=text)
        assert done.stdout.split() == ["300000", "end"]

    def test_command_is_hung_up_when_the_client_leaves(self, box: Box, tmp_path: Path) -> None:
        mark = tmp_path / "ended"
        script = f"trap 'touch {mark}; exit' HUP; echo ready; while :; do sleep 0.1; done"
        client = subprocess.Popen(
            ["kubectl", "exec", "p", "--", "sh", "-c", script],
            stdout=subprocess.PIPE,
            env=box.environment,
        )
        assert client.stdout is not None
        assert client.stdout.readline() == b"ready\n"
        client.kill()
        client.wait()
        client.stdout.close()
        box.wait_for("the command got SIGHUP", mark.exists)

    def test_terminal_echoes_and_has_a_size(self, box: Box) -> None:
        master, slave = pty.openpty()
        os.set_blocking(master, False)
        client = subprocess.Popen(
            ["kubectl", "exec", "-it", "p", "--", "sh", "-c", "stty size; read x; echo got-$x; tty"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=box.environment,
            start_new_session=True,
        )
        os.close(slave)
        os.write(master, b"hello\n")
        seen = read_terminal(master, client)
        assert client.returncode == 0, seen
        assert "got-hello" in seen
        assert "/dev/pts/" in seen

    @pytest.mark.parametrize(
        ("name", "why"),
        [("done", "completed pod"), ("absent", 'pods "absent" not found'), ("waits", "host assigned")],
    )
    def test_pod_without_a_process_is_refused_with_its_state(self, box: Box, name: str, why: str) -> None:
        if name == "done":
            apply(box, pod("done", command=("true",)))
            box.wait_for("it ends", lambda: box.get("pods", "done")["status"].get("phase") == "Succeeded")
        elif name == "waits":
            apply(box, pod("waits", resources={"limits": {"nvidia.com/gpu": "64"}}))
        done = box.kubectl("exec", name, "--", "true", check=False)
        assert done.returncode == 1
        assert why in done.stderr

    def test_pod_on_a_simulated_node_is_refused(self, box: Box) -> None:
        box.windlass("node", "add-simulated")
        labelled = box.items("nodes", labels="windlass.dev/simulated=true")
        far = labelled[0]["metadata"]["name"]
        manifest = pod("away")
        manifest["spec"]["nodeName"] = far
        del manifest["spec"]["nodeSelector"]
        apply(box, manifest)
        box.wait_for("it is shown as running", lambda: is_running(box, "away"))
        done = box.kubectl("exec", "away", "--", "true", check=False)
        assert "no process runs there, so no command can run in it" in done.stderr
        box.windlass("delete", "pod", "away")
        box.windlass("delete", "node", far)

    def test_client_of_spdy_is_told_what_to_use(self, box: Box) -> None:
        box_environment = {**box.environment, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false"}
        done = subprocess.run(
            ["kubectl", "exec", "p", "--", "true"],
            env=box_environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Use kubectl 1.31 or later" in done.stderr


@pytest.fixture(scope="module")
def trainer(box: Box) -> str:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    env = [{"name": "NCCL_DEBUG", "value": "INFO"}]
    script = "echo CUDA devices: $CUDA_VISIBLE_DEVICES; sleep infinity"
    apply(box, pod("trainer", command=("sh", "-c", script), resources=limits, env=env))
    box.wait_for("pod trainer runs", lambda: is_running(box, "trainer"))
    return "trainer"


class TestTroubleShooting:
    """C10: the commands of the users' guide work on a running pod with simulated GPUs."""

    def test_pod_is_described_with_its_events_and_log(self, box: Box, trainer: str) -> None:
        assert "nvidia.com/gpu:  1" in box.kubectl("describe", "pod", trainer).stdout
        events = ("get", "events", "--sort-by=.metadata.creationTimestamp")
        box.wait_for("its events are there", lambda: trainer in box.kubectl(*events).stdout)
        box.wait_for("its line is in the log", lambda: "CUDA" in box.kubectl("logs", trainer).stdout)
        assert "NCCL_DEBUG=INFO" in box.kubectl("exec", "-it", trainer, "--", "env").stdout

    def test_nvidia_smi_shows_the_gpus_of_the_pod_and_no_other(self, box: Box, trainer: str) -> None:
        table = box.kubectl("exec", "-it", trainer, "--", "nvidia-smi").stdout
        assert "SIMULATED" in table
        assert table.count("NVIDIA A100-SXM4-80GB") == 1
        listed = box.kubectl("exec", trainer, "--", "nvidia-smi", "-L").stdout
        devices = json.loads(
            box.items("nodes", labels="windlass.dev/box=true")[0]["metadata"]["annotations"][
                "windlass.dev/node-devices"
            ]
        )
        assert sum(device["uuid"] in listed for device in devices) == 1
        query = ("--query-gpu=index,memory.total", "--format=csv,noheader,nounits")
        assert box.kubectl("exec", trainer, "--", "nvidia-smi", *query).stdout == "0, 81920\n"
        none = box.kubectl("exec", "p", "--", "nvidia-smi", check=False)
        assert (none.returncode, none.stdout) == (6, "No devices were found\n")

    def test_dmon_prints_its_samples(self, box: Box, trainer: str) -> None:
        shown = box.kubectl(
            "exec", "-it", trainer, "--", "nvidia-smi", "dmon", "-s", "u", "-c", "10", "-d", "0.1"
        )
        lines = shown.stdout.splitlines()
        assert lines[0].split()[:3] == ["#", "gpu", "sm"]
        assert len(lines) == 12

    @pytest.mark.parametrize("tool", ["ibstat", "perf_query"])
    def test_missing_tool_of_the_network_is_told(self, box: Box, trainer: str, tool: str) -> None:
        done = box.kubectl("exec", "-it", trainer, "--", tool, check=False)
        assert done.returncode in (0, 127)
        assert done.returncode == 0 or "windlass doctor" in done.stderr


def test_files_are_copied_both_ways(box: Box, tmp_path: Path) -> None:
    source, back = tmp_path / "a", tmp_path / "b"
    source.write_bytes(os.urandom(2_000_000))
    box.kubectl("cp", str(source), "p:copied")
    box.kubectl("cp", "p:copied", str(back))
    assert back.read_bytes() == source.read_bytes()


class TestPortForward:
    SERVER = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000, bind='127.0.0.1')"

    @pytest.fixture
    def forwarded(self, box: Box) -> Iterator[tuple[int, subprocess.Popen[str]]]:
        if not any(found["metadata"]["name"] == "web" for found in box.items("pods")):
            apply(box, pod("web", command=("python3", "-u", "-c", self.SERVER)))
        box.wait_for("pod web runs", lambda: is_running(box, "web"))
        log = ("kubectl", "logs", "web")
        box.wait_for("it listens", lambda: "Serving" in box.run(log, check=False).stdout)
        client = subprocess.Popen(
            ["kubectl", "port-forward", "pod/web", ":8000"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=box.environment,
        )
        assert client.stdout is not None
        line = client.stdout.readline()
        assert line.startswith("Forwarding from 127.0.0.1:"), line
        yield int(line.split(":")[1].split()[0]), client
        client.kill()
        client.wait()
        client.stdout.close()

    def test_port_on_the_loopback_of_a_pod_is_reached(
        self, forwarded: tuple[int, subprocess.Popen[str]]
    ) -> None:
        port, _ = forwarded
        for _ in range(3):
            with urlopen(f"http://127.0.0.1:{port}/", timeout=30) as response:
                assert b"Directory listing" in response.read()

    def test_port_that_nothing_listens_on_is_told(self, box: Box) -> None:
        client = subprocess.Popen(
            ["kubectl", "port-forward", "pod/p", ":9"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=box.environment,
        )
        assert client.stdout is not None
        port = int(client.stdout.readline().split(":")[1].split()[0])
        with socket.create_connection(("127.0.0.1", port), 30) as connection:
            assert connection.recv(1) == b""
        client.kill()
        shown = client.communicate()[0]
        assert "port 9 of pod p does not accept a connection: Connection refused" in shown


def test_attach_shows_both_outputs_from_now_on(box: Box) -> None:
    script = "while :; do echo tick; echo tock >&2; sleep 0.1; done"
    apply(box, pod("ticker", command=("sh", "-c", script)))
    box.wait_for("pod ticker runs", lambda: is_running(box, "ticker"))
    client = subprocess.Popen(
        ["kubectl", "attach", "ticker"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=box.environment,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "tick\n"
    assert client.stderr is not None
    assert any("tock" in client.stderr.readline() for _ in range(3))
    client.kill()
    client.communicate()
    refused = box.kubectl("attach", "-i", "ticker", check=False, stdin="")
    assert "kubectl exec -it ticker -c main -- sh" in refused.stderr


def test_top_shows_what_pods_and_the_node_use(box: Box) -> None:
    apply(box, pod("burner", command=("sh", "-c", "while :; do :; done")))
    box.wait_for("pod burner runs", lambda: is_running(box, "burner"))

    def used(name: str) -> int:
        lines = box.kubectl("top", "pods", "--no-headers").stdout.splitlines()
        cores = {line.split()[0]: line.split()[1] for line in lines}
        return int(cores.get(name, "0m").removesuffix("m"))

    box.wait_for("the busy pod uses CPU", lambda: used("burner") > 20)
    assert used("p") < used("burner")
    (node,) = box.kubectl("top", "nodes", "-l", "windlass.dev/box=true", "--no-headers").stdout.splitlines()
    assert int(node.split()[1].removesuffix("m")) > 0
    box.windlass("delete", "pod", "burner")


class TestDebug:
    def test_copy_of_a_pod_runs_the_given_command(self, box: Box) -> None:
        command = (
            "debug",
            "p",
            "--copy-to",
            "copied",
            "--container",
            "main",
            "--image",
            "x",
            "--",
            "echo",
            "hi",
        )
        box.kubectl(*command)
        log = ("kubectl", "logs", "copied")
        box.wait_for("it has run", lambda: "hi" in box.run(log, check=False).stdout)


class TestWindlassExec:
    def test_command_runs_in_the_pod_of_a_job_by_its_name(self, box: Box) -> None:
        done = box.windlass(
            "exec", "-i", "p", "--", "sh", "-c", "cat; echo err >&2; exit 4", stdin="in", check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (4, "in", "err\n")

    def test_rank_chooses_the_pod(self, box: Box) -> None:
        box.windlass("submit", "--name", "pair", "--nodes", "2", "--", "sleep", "1000")
        box.wait_for(
            "both run", lambda: box.windlass("ps").stdout.count("pair") and _running(box, "pair") == 2
        )
        names = {
            box.windlass("exec", *rank, "pair", "--", "hostname").stdout.strip()
            for rank in (("--rank", "0"), ("--rank", "1"))
        }
        assert len(names) == 2
        assert box.windlass("exec", "pair", "--", "hostname").stdout.strip() in names
        box.windlass("cancel", "pair")

    def test_job_without_a_running_pod_is_refused(self, box: Box) -> None:
        apply(box, pod("over", command=("true",)))
        box.wait_for("it ends", lambda: box.get("pods", "over")["status"].get("phase") == "Succeeded")
        done = box.windlass("exec", "over", "--", "true", check=False)
        assert done.returncode != 0
        assert "WL-EXEC-409" in done.stderr
        assert 'job "over" has no running pod' in done.stderr


def _running(box: Box, job: str) -> int:
    pods = [found for found in box.items("pods") if found["metadata"]["name"].startswith(f"{job}-")]
    return sum(found.get("status", {}).get("phase") == "Running" for found in pods)


def read_terminal(master: int, client: subprocess.Popen[bytes], seconds: float = 60) -> str:
    """Return what the client shows until it ends."""
    seen = b""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended = client.poll() is not None  # asked first: what it shows before its end is read then
        if select.select([master], [], [], 0.1)[0]:
            try:
                seen += os.read(master, 65536)
            except OSError:  # all ends of the terminal are closed
                break
        elif ended:
            break
    client.wait(60)
    os.close(master)
    return seen.decode(errors="replace")
