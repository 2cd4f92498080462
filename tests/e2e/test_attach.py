"""Input and terminals of containers on one box, with a stock kubectl: attach, run -it, run -i, debug -it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kubectl import find
from single_node import Box
from single_node_gpus import kill_agent

pytestmark = pytest.mark.kubectl


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    if find() is None:
        pytest.skip("kubectl is not on the PATH")
    with Box() as one:
        yield one


class Terminal:
    """kubectl in a terminal of its own."""

    def __init__(self, box: Box, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        self.resize(24, 80)
        self.client = subprocess.Popen(
            ["kubectl", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=box.environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.seen = ""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, text: str, seconds: float = 60) -> None:
        """Wait until the terminal has shown ``text``; what came before it is forgotten."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} was not shown: {self.seen!r}"
            assert self._read(0.2), f"{text!r} was not shown before the end: {self.seen!r}"
        self.seen = self.seen.partition(text)[2]

    def interrupt(self, prompt: str, seconds: float = 60) -> None:
        """Type Ctrl-C until the shell asks again: one that arrives while it starts a program is lost."""
        deadline = time.monotonic() + seconds
        while prompt not in self.seen:
            assert time.monotonic() < deadline, f"no prompt was shown: {self.seen[-500:]!r}"
            self.type("\x03")
            until = time.monotonic() + 2
            while prompt not in self.seen and time.monotonic() < until:
                assert self._read(0.2), f"no prompt was shown before the end: {self.seen[-500:]!r}"
        self.seen = self.seen.partition(prompt)[2]

    def end(self, seconds: float = 60) -> int:
        """Return kubectl's exit code at its end."""
        deadline = time.monotonic() + seconds
        while self._read(0.2) and self.client.poll() is None:
            assert time.monotonic() < deadline, self.seen
        code = self.client.wait(seconds)
        while select.select([self._master], [], [], 0)[0] and self._read(0):
            pass  # what it showed last
        os.close(self._master)
        return code

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            self.seen += os.read(self._master, 65_536).decode(errors="replace")
        except OSError:  # all ends of the terminal are closed
            return False
        return True


def apply(box: Box, name: str, script: str, **container: Any) -> None:
    main = {"name": "main", "image": "python", "command": ["sh", "-c", script], **container}
    spec = {"containers": [main], "terminationGracePeriodSeconds": 0, "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    box.windlass("apply", "-f", "-", stdin=json.dumps(pod))
    box.wait_for(f"pod {name} runs", lambda: phase(box, name) == "Running")


def phase(box: Box, name: str) -> str:
    return box.get("pods", name).get("status", {}).get("phase", "")


class TestRun:
    def test_shell_in_a_terminal_has_a_size_and_an_exit_code(self, box: Box) -> None:
        shell = Terminal(box, "run", "-it", "--rm", "--restart=Never", "sh", "--image=busybox")
        prompt = "# " if os.geteuid() == 0 else "$ "
        shell.expect(prompt)
        shell.type("tty; stty size; echo $TERM\n")
        shell.expect("/dev/pts/")
        shell.expect("24 80")
        shell.expect("xterm")
        shell.resize(50, 132)
        os.kill(shell.client.pid, signal.SIGWINCH)
        shell.type("while :; do stty size; sleep 0.3; done\n")
        shell.expect("50 132")
        shell.interrupt(prompt)
        shell.type("exit 7\n")
        assert shell.end() == 7, shell.seen
        assert 'pod "sh" deleted' in shell.seen

    def test_piped_input_reaches_the_command_and_its_end_too(self, box: Box) -> None:
        text = "x" * 300_000
        command = ("run", "-i", "--rm", "--restart=Never", "wc", "--image=busybox")
        done = box.kubectl(*command, "--", "sh", "-c", "wc -c; echo err >&2; exit 3", stdin=text, check=False)
        assert done.returncode == 3, done.stderr
        assert "300000" in done.stdout
        assert "err" in done.stderr

    def test_output_before_the_client_is_attached_is_shown(self, box: Box) -> None:
        command = ("run", "-i", "--rm", "--restart=Never", "early", "--image=busybox")
        done = box.kubectl(*command, "--", "sh", "-c", "echo early; sleep 2; echo late", stdin="")
        assert done.stdout.index("early") < done.stdout.index("late")


class TestAttach:
    def test_input_stays_open_for_the_next_client(self, box: Box) -> None:
        apply(box, "keeps", "while read x; do echo got-$x; done; echo end", stdin=True)
        box.kubectl("attach", "-i", "keeps", stdin="one\n")
        box.kubectl("attach", "-i", "keeps", stdin="two\n")
        box.wait_for("both lines were read", lambda: "got-two" in box.kubectl("logs", "keeps").stdout)
        assert box.kubectl("logs", "keeps").stdout == "got-one\ngot-two\n"
        assert phase(box, "keeps") == "Running"

    def test_input_of_stdin_once_ends_with_its_first_client(self, box: Box) -> None:
        apply(box, "once", "cat; echo end", stdin=True, stdinOnce=True)
        shown = box.kubectl("attach", "-i", "once", stdin="text\n").stdout
        assert shown.endswith("text\nend\n")
        box.wait_for("it has ended", lambda: phase(box, "once") == "Succeeded")

    def test_terminal_is_kept_over_a_restart_of_the_agent(self, box: Box) -> None:
        apply(box, "shell", "read a; echo first-$a; read b; echo second-$b", stdin=True, tty=True)
        client = Terminal(box, "attach", "-it", "shell")
        client.type("one\n")
        client.expect("first-one")
        kill_agent(box)
        client.type("two\n")
        client.expect("second-two")
        assert client.end() == 0, client.seen
        box.wait_for("it has ended", lambda: phase(box, "shell") == "Succeeded")
        assert "second-two" in box.kubectl("logs", "shell").stdout

    def test_container_without_stdin_is_refused_with_what_to_do(self, box: Box) -> None:
        apply(box, "deaf", "sleep infinity")
        refused = box.kubectl("attach", "-i", "deaf", check=False, stdin="")
        assert 'lacks "stdin: true"' in refused.stderr


class TestEphemeralContainers:
    def test_debugger_sees_the_processes_of_its_target(self, box: Box) -> None:
        apply(box, "app", "sleep infinity")
        words = ("debug", "-it", "app", "--image=busybox", "--target=main", "-c", "look")
        shell = Terminal(box, *words, "--", "sh")
        shell.expect("# ") if os.geteuid() == 0 else shell.expect("$ ")
        shell.type("cat /proc/1/comm; hostname; exit 5\n")
        shell.expect("windlass-init")
        shell.expect("app")
        shell.end()
        status = box.wait_for(
            "the debugger has ended", lambda: ephemeral_state(box, "app", "look", "terminated")
        )
        assert status["exitCode"] == 5
        assert phase(box, "app") == "Running"
        assert "windlass-init" in box.kubectl("logs", "app", "-c", "look").stdout
        assert "look" in box.kubectl("describe", "pod", "app").stdout

    def test_container_survives_a_restart_of_the_agent_and_ends_with_the_pod(self, box: Box) -> None:
        apply(box, "ends", "sleep infinity")
        box.kubectl("debug", "ends", "--image=busybox", "-c", "side", "--", "sleep", "infinity")
        first = box.wait_for("it runs", lambda: ephemeral_state(box, "ends", "side", "running"))
        kill_agent(box)
        box.kubectl("exec", "ends", "-c", "side", "--", "true")
        assert ephemeral_state(box, "ends", "side", "running") == first
        box.kubectl(
            "exec", "ends", "-c", "main", "--", "sh", "-c", "kill -9 $(pidof sleep | tr ' ' '\n' | head -1)"
        )
        box.wait_for("the pod has ended", lambda: phase(box, "ends") == "Failed")
        box.wait_for("the other one, too", lambda: ephemeral_state(box, "ends", "side", "terminated"))

    def test_what_ephemeral_containers_cannot_have_is_refused(self, box: Box) -> None:
        apply(box, "plain", "sleep infinity")
        missing = box.kubectl("debug", "plain", "--image=x", "--target=none", "--", "true", check=False)
        assert 'targetContainerName: Not found: "none"' in missing.stderr
        patch = {
            "spec": {"ephemeralContainers": [{"name": "d", "image": "x", "ports": [{"containerPort": 1}]}]}
        }
        words = ("patch", "pod", "plain", "--subresource=ephemeralcontainers", "-p", json.dumps(patch))
        refused = box.kubectl(*words, check=False)
        assert "ports: Forbidden: cannot be set for an Ephemeral Container" in refused.stderr
        apply_done = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "over"}}
        main = {"name": "main", "image": "x", "command": ["true"]}
        apply_done["spec"] = {"containers": [main], "restartPolicy": "Never"}
        box.windlass("apply", "-f", "-", stdin=json.dumps(apply_done))
        box.wait_for("it has ended", lambda: phase(box, "over") == "Succeeded")
        ended = box.kubectl("debug", "over", "--image=x", "--", "true", check=False)
        assert "kubectl debug over --copy-to over-debug" in ended.stderr

    def test_node_is_entered_by_a_pod_of_its_own(self, box: Box) -> None:
        (node,) = box.items("nodes")
        shell = Terminal(box, "debug", "-it", f"node/{node['metadata']['name']}", "--image=busybox")
        shell.expect("# ") if os.geteuid() == 0 else shell.expect("$ ")
        shell.type("ls -d /host/etc; hostname; exit\n")
        shell.expect("/host/etc")
        shell.expect(node["metadata"]["name"])
        assert shell.end() == 0


def ephemeral_state(box: Box, pod: str, name: str, state: str) -> Any:
    listed = box.get("pods", pod)["status"].get("ephemeralContainerStatuses") or ()
    return next((one["state"].get(state) for one in listed if one["name"] == name), None)
