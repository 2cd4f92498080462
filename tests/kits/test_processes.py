"""Starting, recognising and ending processes. Real processes, short ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from windlass.kits import processes


def wait(condition, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)


def shell(script: str, log: Path, **more) -> processes.Child:
    return processes.spawn(["/bin/sh", "-c", script], log, **more)


def test_output_goes_to_the_log_and_the_status_comes_back(tmp_path: Path):
    child = shell("echo out; echo err >&2; read x || echo no input; exit 3", tmp_path / "log")
    wait(lambda: child.poll() is not None)
    assert child.code == 3
    assert (tmp_path / "log").read_text() == "out\nerr\nno input\n"
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_a_signal_is_a_negative_status(tmp_path: Path):
    child = shell("sleep 60", tmp_path / "log")
    assert child.poll() is None
    child.send(signal.SIGKILL)
    wait(lambda: child.poll() is not None)
    assert child.code == -signal.SIGKILL
    child.send(signal.SIGTERM)  # nobody is hit


def test_a_session_of_its_own_and_only_the_descriptors_that_were_given(tmp_path: Path):
    reader, writer = os.pipe()
    secret, other = os.pipe()
    script = f"import os, sys; print(os.getsid(0) == os.getpid()); os.write({writer}, b'x')\n" \
             f"try: os.fstat({secret}); print('leaked')\nexcept OSError: print('closed')"  # fmt: skip
    child = processes.spawn([sys.executable, "-c", script], tmp_path / "log", descriptors=(writer,))
    os.close(writer)
    assert os.read(reader, 5) == b"x"
    wait(lambda: child.poll() is not None)
    assert (tmp_path / "log").read_text() == "True\nclosed\n"
    for descriptor in (reader, secret, other):
        os.close(descriptor)


def test_a_process_is_its_pid_and_its_start_time(tmp_path: Path):
    child = shell("sleep 60", tmp_path / "log")
    assert processes.is_alive(child.pid, child.started)
    assert not processes.is_alive(child.pid, (child.started or 0) + 1)
    assert processes.end(child.pid, (child.started or 0) + 1, patience_seconds=0.1)
    assert child.poll() is None, "another process of the same number was hit"
    child.send(signal.SIGKILL)
    wait(lambda: child.poll() is not None)
    assert processes.start_time(child.pid) is None
    assert processes.end(child.pid, child.started, patience_seconds=1)


def test_what_does_not_hear_is_killed(tmp_path: Path):
    child = shell("trap '' TERM; echo up; while :; do sleep 0.05; done", tmp_path / "log")
    wait(lambda: (tmp_path / "log").read_text() == "up\n")
    begin = time.monotonic()
    assert processes.end(child.pid, child.started, patience_seconds=0.2)
    assert 0.2 <= time.monotonic() - begin < 30
    wait(lambda: child.poll() == -signal.SIGKILL)


def test_children_die_with_their_parent():
    inner = "import os, sys, time\nfrom windlass.kits.processes import die_with_parent\n" \
            "assert die_with_parent(int(sys.argv[1])); print(os.getpid(), flush=True); time.sleep(60)"  # fmt: skip
    outer = f"import os, subprocess, sys\nsubprocess.run([sys.executable, '-c', {inner!r}, str(os.getpid())])"
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert processes.is_alive(pid)
        parent.kill()
        wait(lambda: not processes.is_alive(pid))


def test_a_parent_that_is_gone_already_is_noticed():
    script = "from windlass.kits.processes import die_with_parent; print(die_with_parent(1 << 22))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_logs_are_rotated(tmp_path: Path):
    log = tmp_path / "x.log"
    processes.rotate(log)
    for number in range(5):
        log.write_text(str(number))
        processes.rotate(log, keep=2)
    assert not log.exists()
    assert [(tmp_path / f"x.log.{n}").read_text() for n in (1, 2)] == ["4", "3"]
    assert not (tmp_path / "x.log.3").exists()
    log.write_text("")
    processes.rotate(log, keep=2)
    assert log.exists()


def test_a_log_in_use_is_shortened_in_place(tmp_path: Path):
    log = tmp_path / "x.log"
    with open(log, "ab", buffering=0) as stream:
        stream.write(b"before\n")
        processes.copy_and_truncate(log)
        stream.write(b"after\n")
    assert log.read_text() == "after\n"
    assert (tmp_path / "x.log.1").read_text() == "before\n"


def test_a_daemon_tells_through_its_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "teller.py").write_text(
        "import os, sys\nos.write(int(sys.argv[sys.argv.index('--report-fd') + 1]), ' '.join(sys.argv[1:2]).encode())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child, reader = processes.spawn_daemon("teller", ["hello"], tmp_path / "log")
    with os.fdopen(reader, "rb") as stream:
        assert stream.read() == b"hello"
    wait(lambda: child.poll() is not None)
    assert child.code == 0, (tmp_path / "log").read_text()


COPIES = """
import os, sys, signal
from pathlib import Path
from windlass.kits import processes

folder = Path(sys.argv[1])
kept, dropped = os.pipe()
signal.signal(signal.SIGTERM, lambda *_: None)
os.set_blocking(dropped, False)
signal.set_wakeup_fd(dropped)
print("written once", end="")

def work():
    opened = [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
    print("open", sorted(opened))
    print("term", signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, os.getsid(0) == os.getpid())
    print("shown", Path("/proc/self/cmdline").read_text().rstrip("\\0"))
    return 7

def fails():
    raise ValueError("it went wrong")

def leaves():
    sys.exit(5)

codes = []
for number, action in enumerate((work, fails, leaves)):
    child = processes.fork(action, folder / f"{number}.log", title="its title", descriptors=(kept,))
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]))
print(codes, kept)
"""


def test_a_copy_of_a_process_has_its_own_session_output_and_signals(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COPIES, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    codes, _, kept = done.stdout.removeprefix("written once").rpartition("] ")
    assert done.stdout.count("written once") == 1
    assert codes == "[7, 1, 5"
    said = (tmp_path / "0.log").read_text().splitlines()
    assert said == [f"open [0, 1, 2, {kept.strip()}]", "term True True", "shown its title"]
    assert "ValueError: it went wrong" in (tmp_path / "1.log").read_text()
    assert (tmp_path / "2.log").read_text() == ""
