"""The shim with real processes: claims, exit status, signals, reaping, logs."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shim_attempt import Attempt

from windlass.node.runtime import attempt_files, shim, syscalls
from windlass.node.runtime.helpers import start_helper
from windlass.node.runtime.log_file import record
from windlass.node.sandbox.namespaces import permitted_namespaces
from windlass.node.sandbox.pod_network import Capabilities


@pytest.fixture(scope="module")
def capabilities() -> Capabilities:
    found: Any = permitted_namespaces()
    return Capabilities(found["user"], tuple(found["namespaces"]), found["pid"], found["refused"])


@pytest.fixture(params=["namespaces", "plain"])
def isolation(request: pytest.FixtureRequest, capabilities: Capabilities) -> dict[str, Any]:
    """Both ways in which a container's init can be: pid 1 of a namespace, or a subreaper."""
    if request.param == "plain":
        return {}
    if os.geteuid() != 0 or not capabilities.pid:
        pytest.skip("a pid namespace without a user namespace needs root")
    return {"mount_namespace": True, "pid_namespace": True}


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Any]:
    made: list[Attempt] = []

    def make(*argv: str, **more: Any) -> Attempt:
        made.append(Attempt(tmp_path / f"a{len(made)}", *argv, **more))
        return made[-1]

    yield make
    for attempt in made:
        attempt.close()


@pytest.mark.parametrize(
    ("command", "code", "number"),
    [
        ("exit 0", 0, 0),
        ("exit 7", 7, 0),
        ("kill -9 $$", 137, 9),
        ("kill -SEGV $$", 139, 11),
        ("kill -TERM $$", 143, 15),
        ("trap 'exit 3' TERM; kill -TERM $$", 3, 0),
    ],
)
def test_exit_codes_and_signals_are_true(
    attempts: Any, isolation: dict[str, Any], command: str, code: int, number: int
) -> None:
    attempt = attempts("sh", "-c", command, **isolation)
    assert attempt.start() == "s"
    found = attempt.wait()
    assert (found["code"], found["signal"], found["oom"], found["stopped"]) == (code, number, False, False)


def test_an_attempt_is_never_started_twice(attempts: Any) -> None:
    attempt = attempts("true")
    marker = attempt.folder / "ran"
    attempt.record["argv"] = ["sh", "-c", f"echo ran >> {marker}; sleep 0.3"]
    (attempt.folder / attempt_files.SPEC).write_text(json.dumps(attempt.record))
    assert attempt.start() == "s"
    assert attempt.start() == ""
    status = os.waitpid(attempt.shims.pop(), 0)[1]
    assert os.waitstatus_to_exitcode(status) == attempt_files.ALREADY_CLAIMED
    attempt.wait()
    assert marker.read_text() == "ran\n"


def test_claim_and_process_are_written_before_exec(attempts: Any) -> None:
    attempt = attempts("cat", "placeholder")
    attempt.record["argv"] = [
        "cat",
        *(str(attempt.folder / n) for n in (attempt_files.CLAIM, attempt_files.PROCESS)),
    ]
    (attempt.folder / attempt_files.SPEC).write_text(json.dumps(attempt.record))
    attempt.start()
    assert attempt.wait()["code"] == 0
    claim, process = (json.loads(part + "}") for part in attempt.text().split("}")[:2])
    assert claim["pid"] == attempt.shims[0]
    assert claim["attempt"] == 0
    assert process["pid"] > 0
    assert claim["start_time"] > 0


def test_output_is_told_by_stream_and_in_time(
    attempts: Any, isolation: dict[str, Any], tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    attempt = attempts(
        "sh",
        "-c",
        f"printf 'no newline'; until test -e {seen}; do sleep 0.02; done; echo; echo e >&2; "
        "head -c 40000 /dev/zero | tr '\\0' x",
        **isolation,
    )
    attempt.start()
    attempt.until(lambda: "no newline" in attempt.text())  # seen while the line stands unfinished
    assert not (attempt.folder / attempt_files.EXIT).exists()
    seen.touch()
    attempt.wait()
    stored = (attempt.folder / "0.log").read_text().splitlines()
    assert any(" stderr F e" in line for line in stored)
    assert attempt.text().count("x") == 40000
    assert attempt.text().endswith("x")  # no newline is invented
    assert max(len(line) for line in stored) < 17 * 1024


def test_stop_gives_grace_then_kills_the_whole_group(attempts: Any, isolation: dict[str, Any]) -> None:
    script = (
        "trap '' TERM; (trap '' TERM; sleep 1000) & setsid sleep 1000 & echo up; while :; do sleep 0.05; done"
    )
    attempt = attempts("sh", "-c", script, **isolation)
    attempt.start()
    attempt.until(lambda: "up" in attempt.text())
    below = syscalls.descendants(attempt.shims[0])
    assert len(below) >= 4
    begin = time.monotonic()
    (attempt.folder / attempt_files.STOP).write_text("0.5")
    os.kill(attempt.shims[0], signal.SIGTERM)
    found = attempt.wait()
    assert 0.45 <= time.monotonic() - begin < 30
    assert (found["code"], found["signal"], found["stopped"]) == (137, 9, True)
    assert [pid for pid in below if syscalls.start_time(pid) is not None] == []


def test_stop_lets_a_process_end_well(attempts: Any, isolation: dict[str, Any]) -> None:
    attempt = attempts(
        "sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done", **isolation
    )
    attempt.start()
    attempt.until(lambda: "up" in attempt.text())
    os.kill(attempt.shims[0], signal.SIGTERM)
    found = attempt.wait()
    assert (found["code"], found["stopped"]) == (0, True)
    # A command that the shell is just starting gets the signal too, and the shell may tell that it ended.
    assert attempt.text().replace("Terminated\n", "") == "up\nbye\n"


def test_a_stop_that_comes_with_the_end_does_not_hide_how_it_ended(attempts: Any, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    attempt = attempts("sh", "-c", f"read line < {gate}; exit 5")
    assert attempt.start() == "s"
    shim, init = attempt.shims[0], attempt_files.read(str(attempt.folder), attempt_files.PROCESS) or {}
    os.kill(shim, signal.SIGSTOP)
    gate.write_text("go\n")
    attempt.until(lambda: syscalls.start_time(init["pid"]) is None)
    os.kill(shim, signal.SIGTERM)  # both are there when the shim looks next
    os.kill(shim, signal.SIGCONT)
    assert attempt.wait()["code"] == 5


def test_helpers_of_a_process_that_catches_the_signal_are_left_to_it(
    attempts: Any, isolation: dict[str, Any]
) -> None:
    script = (
        "import signal, subprocess, sys, time\n"
        "helper = subprocess.Popen(['sleep', '1000'])\n"
        "def save(*_):\n"
        "    time.sleep(0.3)\n"
        "    print('helper', helper.poll(), flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save); print('up', flush=True); time.sleep(1000)\n"
    )
    attempt = attempts(sys.executable, "-c", script, **isolation)
    attempt.start()
    attempt.until(lambda: "up" in attempt.text())
    os.kill(attempt.shims[0], signal.SIGTERM)
    assert attempt.wait()["code"] == 0
    assert attempt.text() == "up\nhelper None\n"


TRAINER = """
import os, signal, sys, time
def save(*_):
    os.write(1, b"saving\\n")
    time.sleep(0.5)
    os.write(1, b"saved\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
os.write(1, b"up\\n")
time.sleep(1000)
"""
LAUNCHER = """
import subprocess, sys
sys.exit(subprocess.call([sys.executable, sys.argv[1]]))
"""


@pytest.mark.parametrize(
    "script",
    [
        "$PYTHON trainer.py; echo next",
        "$PYTHON trainer.py | tee copy",
        "$PYTHON trainer.py 2>&1 | (while read line; do echo $line; done)",
        "($PYTHON trainer.py)& wait",
        "trap 'echo cleared' EXIT; $PYTHON trainer.py",
        "trap : TERM; $PYTHON trainer.py",
        "trap 'kill $child; wait $child' TERM; $PYTHON trainer.py & child=$!; wait $child",
        "sleep 1000 & $PYTHON trainer.py",
        "setsid $PYTHON trainer.py & wait",
        "timeout 1000 $PYTHON trainer.py",
        "exec $PYTHON launcher.py trainer.py",
        "$PYTHON launcher.py trainer.py | cat",
    ],
)
def test_grace_belongs_to_what_a_shell_or_a_launcher_runs(attempts: Any, script: str) -> None:
    attempt = attempts("bash" if "trap" in script else "sh", "-c", script)
    attempt.record |= {"cwd": str(attempt.folder), "env": {**attempt.record["env"], "PYTHON": sys.executable}}
    (attempt.folder / attempt_files.SPEC).write_text(json.dumps(attempt.record))
    (attempt.folder / "trainer.py").write_text(TRAINER)
    (attempt.folder / "launcher.py").write_text(LAUNCHER)
    attempt.start()
    attempt.until(lambda: "up" in attempt.text())
    os.kill(attempt.shims[0], signal.SIGTERM)
    attempt.wait()
    output = attempt.text()
    assert [output.count(word) for word in ("saving", "saved", "next")] == [1, 1, 0]


def test_a_shell_without_a_trap_does_not_shield_what_it_runs(
    attempts: Any, isolation: dict[str, Any]
) -> None:
    attempt = attempts("sh", "-c", "sleep 1000; echo never", **isolation)
    attempt.start()
    os.kill(attempt.shims[0], signal.SIGTERM)
    found = attempt.wait()
    assert found["code"] == 143  # not 137, as after its grace
    assert "never" not in attempt.text()


def test_a_process_without_a_handler_is_ended_by_term_also_as_first_of_its_namespace(
    attempts: Any, isolation: dict[str, Any]
) -> None:
    attempt = attempts("sleep", "1000", **isolation)
    attempt.start()
    os.kill(attempt.shims[0], signal.SIGTERM)
    assert attempt.wait()["signal"] == signal.SIGTERM


def states(pids: list[int]) -> list[str]:
    """Return the states (``S``, ``R``, ``Z`` …) of the processes that still exist."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
    return found


def test_orphans_are_reaped_and_nothing_outlives_the_main_process(
    attempts: Any, isolation: dict[str, Any]
) -> None:
    script = (
        "for i in 1 2 3; do (setsid sh -c 'sleep 0.05' &) ; done; "
        "(setsid sleep 1000 &); sleep 0.3; echo ready; sleep 2; exit 4"
    )
    attempt = attempts("sh", "-c", script, **isolation)
    attempt.start()
    attempt.until(lambda: "ready" in attempt.text())
    init = attempt_files.read(str(attempt.folder), attempt_files.PROCESS)
    assert init is not None
    attempt.until(lambda: "Z" not in states(syscalls.descendants(init["pid"])))
    below = syscalls.descendants(init["pid"])
    assert attempt.wait()["code"] == 4
    assert [pid for pid in below if syscalls.start_time(pid) is not None] == []


def test_killing_the_shim_ends_the_main_process_also_without_a_namespace(
    attempts: Any, tmp_path: Path
) -> None:
    mark = str(tmp_path)  # of processes on this machine, on which these tests may run twice
    attempt = attempts(
        "sh", "-c", "sleep 1000 & echo up; exec sleep 1000", env={"PATH": os.environ["PATH"], "MARK_T": mark}
    )
    attempt.start()
    attempt.until(lambda: "up" in attempt.text())
    init, main, *helpers = syscalls.descendants(attempt.shims[0])
    os.kill(attempt.shims[0], signal.SIGKILL)
    attempt.until(lambda: syscalls.start_time(init) is None and syscalls.start_time(main) is None)
    assert sorted(syscalls.kill_marked(f"MARK_T={mark}")) == sorted(
        helpers
    )  # what the runner then does for the rest


def test_killing_the_shim_kills_the_container_and_leaves_no_exit_record(
    attempts: Any, capabilities: Capabilities
) -> None:
    if os.geteuid() != 0 or not capabilities.pid:
        pytest.skip("a pid namespace without a user namespace needs root")
    attempt = attempts(
        "sh", "-c", "setsid sleep 1000 & echo up; sleep 1000", mount_namespace=True, pid_namespace=True
    )
    attempt.start()
    attempt.until(lambda: "up" in attempt.text())
    below = syscalls.descendants(attempt.shims[0])
    os.kill(attempt.shims[0], signal.SIGKILL)
    attempt.until(lambda: all(syscalls.start_time(pid) is None for pid in below))
    assert not (attempt.folder / attempt_files.EXIT).exists()
    assert not attempt_files.is_running(attempt.claim)


@pytest.mark.parametrize(
    ("argv", "more", "stage", "number"),
    [
        (["no-such-command"], {}, "exec", 2),
        (["/etc/passwd"], {}, "exec", 13),
        (["true"], {"cwd": "/no/such/folder"}, "cwd", 2),
        (["true"], {"env": {"PATH": os.environ["PATH"], "DATA": "a\0b"}}, "exec", errno.EINVAL),
        (["true"], {"join": {"pid": os.getpid(), "start_time": 5, "namespaces": ["net"]}}, "isolate", 3),
    ],
)
def test_what_fails_before_exec_is_told_with_its_stage(
    attempts: Any, argv: list[str], more: dict[str, Any], stage: str, number: int
) -> None:
    attempt = attempts(*argv, **more)
    assert attempt.start() == "f"
    refusal = attempt.wait()["start_error"]
    assert (refusal["stage"], refusal["errno"]) == (stage, number)


def test_memory_above_the_limit_is_killed_and_told(attempts: Any, isolation: dict[str, Any]) -> None:
    grow = "import time; b = bytearray(120 * 2**20); b[::4096] = b'x' * len(b[::4096]); time.sleep(30)"
    attempt = attempts(sys.executable, "-S", "-c", grow, memory_watch_bytes=60 * 2**20, **isolation)
    attempt.start()
    found = attempt.wait()
    assert (found["oom"], found["code"]) == (True, 137)


def test_what_a_full_disk_took_of_the_log_is_told_before_the_end_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that ends before there is room again writes nothing more that could carry the note."""
    attempt = Attempt(tmp_path / "a")
    one = shim._Shim(str(attempt.folder), attempt.record)
    one.log.write(record("stdout", True, b"kept"))

    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(attempt_files, "write", full)
    one.log.write(record("stdout", True, b"lost"))
    monkeypatch.setattr(shim.monotonic, "pause", lambda _: monkeypatch.undo())
    one._finish({"code": 0})
    assert attempt.text() == f"kept\n[windlass: {one.log.lost_bytes} bytes of log were lost]\n"
    assert attempt.wait()["lost_log_bytes"] == one.log.lost_bytes > 0


def test_the_agent_may_be_gone_when_the_shim_reports(tmp_path: Path) -> None:
    attempt = Attempt(tmp_path / "a", "sh", "-c", "echo hi")
    pid, reader = start_helper("windlass.node.runtime.shim", str(attempt.folder))
    os.close(reader)
    attempt.shims.append(pid)
    assert attempt.wait()["code"] == 0
    attempt.close()


def test_signal_masks_and_dispositions_are_plain(attempts: Any) -> None:
    attempt = attempts("grep", "^Sig", "/proc/self/status")
    attempt.start()
    attempt.wait()
    masks = dict(line.split(":\t") for line in attempt.text().splitlines())
    assert int(masks["SigBlk"], 16) == 0
    assert int(masks["SigIgn"], 16) & ~(3 << 31) == 0  # but for the C library's own two


def test_only_the_standard_descriptors_are_inherited(attempts: Any) -> None:
    attempt = attempts("ls", "/proc/self/fd")
    attempt.start()
    attempt.wait()
    assert attempt.text().split() == ["0", "1", "2", "3"]  # 3 is what ls itself opened


@pytest.mark.parametrize("deaf", [False, True])
def test_a_container_whose_folder_was_removed_is_ended_by_its_shim(tmp_path: Path, deaf: bool):
    told = tmp_path / "told"
    answer = f"echo term >> {told}" if deaf else f"echo term >> {told}; exit 0"
    script = f"trap '{answer}' TERM; touch {told}; while :; do sleep 0.1; done"
    one = Attempt(tmp_path / "a", "/bin/sh", "-c", script, grace_seconds=1 if deaf else 600)
    assert one.start() == "s"
    init = attempt_files.read(str(one.folder), attempt_files.PROCESS)
    one.until(told.exists)  # it hears
    shutil.rmtree(one.folder)
    one.until(lambda: os.waitpid(one.shims[0], os.WNOHANG)[0])
    assert not attempt_files.is_running(init)
    assert told.read_text().startswith("term")
    assert not one.folder.exists()
