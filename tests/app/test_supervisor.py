"""The supervisor with stand-ins for its processes: restarts, give-ups, order of the end."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from single_node import processes_naming

from windlass.app.options import UpOptions
from windlass.app.running import resumed
from windlass.app.supervisor import Supervisor
from windlass.kits.clock import FakeClock
from windlass.kits.state import StateFolder

DRIVER = """
import os, sys
from windlass.app import __main__, supervisor

folder = sys.argv[1]

def stand_in(module, role, *arguments):
    return ["/bin/sh", os.path.join(folder, role + ".sh"), role]

def run_stand_in(arguments):
    command = stand_in("windlass.app", *arguments)
    os.execv(command[0], command)

supervisor.processes.python_module, __main__.run_role = stand_in, run_stand_in

class Ready:
    took, waits_for, done = [], "the server", os.path.exists(os.path.join(folder, "ready"))
    def __init__(self, *_): pass
    def start(self): pass

class EventPoster:
    def __init__(self, *_): pass
    def start(self): pass
    def post(self, reason, message):
        with open(os.path.join(folder, "events"), "a") as stream:
            stream.write(f"{reason}: {message}\\n")

supervisor.Readiness, supervisor.EventPoster = Ready, EventPoster
sys.exit(__main__.main(["up", "--state", os.path.join(folder, "state"), "--port", "0", "--node-name", "n"]))
"""
LASTING = """trap 'echo "$1" >> {folder}/ended; exit 0' TERM
trap 'echo "$1 in a hurry" >> {folder}/ended; exit 0' QUIT
echo "$1" $$ >> {folder}/started
while :; do sleep 0.05; done
"""


def wait(condition: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)
    return found


class Scene:
    """One supervisor with shell scripts for its three processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = StateFolder(folder / "state")
        self.process: subprocess.Popen[str] | None = None
        for role in ("server", "control", "node"):
            self.script(role, LASTING)

    def script(self, role: str, text: str) -> None:
        (self.folder / f"{role}.sh").write_text(text.replace("{folder}", str(self.folder)))

    def start(self, *, ready: bool = True) -> None:
        if ready:
            (self.folder / "ready").write_text("")
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(self.folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def started(self, role: str) -> list[int]:
        return [int(line.split()[1]) for line in self.lines("started") if line.split()[0] == role]

    def record(self) -> dict[str, Any]:
        return json.loads(self.state.supervisor.read_bytes())

    def stop(self, signum: int = signal.SIGTERM) -> tuple[int, str, str]:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signum)
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, out, err


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.communicate()
    for pid in processes_naming(tmp_path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_three_processes_start_and_end_in_order(scene: Scene):
    scene.start()
    wait(lambda: len(scene.lines("started")) == 3 and scene.record().get("ready"))
    record = scene.record()
    assert record["node"] == "n"
    assert {role: p["restarts"] for role, p in record["processes"].items()} == {
        "server": 0,
        "control": 0,
        "node": 0,
    }
    code, out, _ = scene.stop()
    assert code == 0
    assert scene.lines("ended") == ["node", "control", "server"]
    assert "is ready on https://127.0.0.1:" in out
    assert scene.record() == {
        "port": record["port"],
        "asked": {"port": 0, "nodeName": "n"},
        "stopped": scene.record()["stopped"],
    }
    assert not scene.state.socket.exists()


def test_a_process_that_dies_is_started_again_and_that_is_told(scene: Scene):
    scene.start()
    wait(lambda: len(scene.lines("started")) == 3 and scene.record().get("ready"))
    for times in (1, 2):
        os.kill(scene.started("control")[-1], signal.SIGKILL)
        wait(lambda times=times: len(scene.started("control")) == times + 1)
    assert len(scene.started("server")) == 1
    wait(lambda: scene.record()["processes"]["control"]["restarts"] == 2)
    assert scene.record()["processes"]["control"]["lastEnd"] == "was ended by SIGKILL"
    assert scene.lines("events")[0].startswith("ComponentRestarted: control was ended by SIGKILL after ")
    code, out, err = scene.stop()
    assert code == 0
    assert "control was ended by SIGKILL" in out
    assert "control was ended by SIGKILL" in err


def test_a_cause_that_trying_again_cannot_help_ends_the_start(scene: Scene):
    told = {"code": "WL-STORE-510", "message": "the database is damaged", "evidence": "e", "remedies": ["r"]}
    failure = scene.state.logs / "server.failure.json"
    others = "while [ $(cat {folder}/started | wc -l) -lt 2 ]; do sleep 0.05; done; sleep 0.1"
    scene.script("server", f"{others}\necho '{json.dumps(told)}' > {failure}\nexit 78\n")
    scene.state.prepare()
    scene.state.write_supervisor({"port": 1, "asked": {"gpus": "none"}, "stopped": "2026-01-01T00:00:00Z"})
    scene.start(ready=False)
    assert scene.process is not None
    _, err = scene.process.communicate(timeout=120)
    assert scene.process.returncode == 1
    assert "error[WL-STORE-510]: the database is damaged\nwhy: e\ntry: r\n" in err
    assert scene.record()["asked"] == {"gpus": "none"}  # what the last one that came up was started with
    # The agent has no server for reporting the end of its pods, so it does not wait for
    # that.
    assert scene.lines("ended") == ["node in a hurry", "control"]


def test_a_disk_that_fills_ends_the_control_plane_and_leaves_the_pods_alone(scene: Scene):
    told = {"code": "WL-STORE-507", "message": "no room left", "evidence": "e", "remedies": ["r"]}
    failure = scene.state.logs / "server.failure.json"
    began = 'echo "$1" $$ >> {folder}/started'
    full = "while [ ! -e {folder}/full ]; do sleep 0.05; done"
    scene.script("server", f"{began}\n{full}\necho '{json.dumps(told)}' > {failure}\nexit 78\n")
    scene.start()
    wait(lambda: len(scene.lines("started")) == 3 and scene.record().get("ready"))
    (scene.folder / "full").touch()
    assert scene.process is not None
    _, err = scene.process.communicate(timeout=120)
    assert scene.process.returncode == 1
    assert "error[WL-STORE-507]: no room left\nwhy: e\ntry: r\n" in err
    assert scene.lines("ended") == ["control"]  # the agent was killed, so that it ended nothing
    assert not Path(f"/proc/{scene.started('node')[0]}").exists()
    assert len(scene.started("server")) == 1
    # The pods that are still running hold its devices, so an explicit `up` uses them,
    # too, as after a crash.
    assert scene.record()["asked"]["nodeName"] == "n"
    assert resumed(UpOptions(scene.state))[0].node_name == "n"


@pytest.mark.parametrize("stopped", [False, True])
def test_a_start_on_a_disk_that_is_still_full_leaves_the_pods_and_what_was_chosen_alone(
    scene: Scene, stopped: bool
):
    told = {"code": "WL-STORE-507", "message": "no room left", "evidence": "e", "remedies": ["r"]}
    failure = scene.state.logs / "server.failure.json"
    others = "while [ $(cat {folder}/started | wc -l) -lt 2 ]; do sleep 0.05; done; sleep 0.1"
    scene.script("server", f"{others}\necho '{json.dumps(told)}' > {failure}\nexit 78\n")
    scene.state.prepare()
    ended = {"stopped" if stopped else "gaveUp": "2026-01-01T00:00:00Z"}
    scene.state.write_supervisor({"port": 1, "asked": {"nodeName": "b", "gpus": "none"}, **ended})
    scene.start(ready=False)
    assert scene.process is not None
    scene.process.communicate(timeout=120)
    assert scene.lines("ended") == ["control"]
    assert resumed(UpOptions(scene.state))[0].gpus == (None if stopped else "none")


def test_a_process_that_never_stays_up_ends_the_start_with_its_last_words(scene: Scene):
    scene.script("node", "echo began >> {folder}/tries; echo 'no such device' >&2; exit 1\n")
    scene.start(ready=False)
    assert scene.process is not None
    _, err = scene.process.communicate(timeout=120)
    assert scene.process.returncode == 1
    assert "error[WL-UP-500]: the node process does not stay up: it ended with exit status 1" in err
    assert "no such device" in err
    assert len(scene.lines("tries")) == 5


def test_what_does_not_end_in_time_is_killed(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    scene.script("control", 'trap "" TERM\necho "$1" $$ >> {folder}/started\nwhile :; do sleep 0.05; done\n')
    scene.start()
    wait(lambda: len(scene.lines("started")) == 3 and scene.record().get("ready"))
    begin = time.monotonic()
    code, _, err = scene.stop()
    assert code == 0
    assert time.monotonic() - begin < 40
    assert "control did not end within 5 s and is killed" in err
    assert scene.lines("ended") == ["node", "server"]


def test_logs_of_the_last_time_are_kept_aside(scene: Scene):
    scene.state.prepare()
    scene.state.log("server").write_text("old\n")
    scene.start()
    wait(lambda: len(scene.lines("started")) == 3 and scene.record().get("ready"))
    scene.stop()
    assert (scene.state.logs / "server.log.1").read_text() == "old\n"


@pytest.mark.parametrize("replaced", [False, True])
def test_a_state_folder_removed_under_it_ends_everything_in_order(scene: Scene, replaced: bool):
    scene.start()
    wait(lambda: len(scene.lines("started")) == 3 and scene.record().get("ready"))
    assert scene.process is not None
    scene.process.send_signal(signal.SIGSTOP)  # it looks before or after, not between
    shutil.rmtree(scene.state.path)
    if replaced:  # by another supervisor, with a record and socket of its own
        scene.state.path.mkdir()
        for path in (scene.state.lock, scene.state.supervisor, scene.state.socket):
            path.write_text("{}")
    scene.process.send_signal(signal.SIGCONT)
    out, err = scene.process.communicate(timeout=120)
    assert scene.process.returncode != 0
    assert "error[WL-STATE-410]" in err, out
    assert ("is another file now" if replaced else "is gone") in err
    assert scene.lines("ended") == ["node", "control", "server"]
    assert scene.state.path.exists() == replaced
    if replaced:
        assert scene.state.supervisor.read_text() == "{}"
        assert scene.state.socket.exists()


def test_a_night_for_which_the_machine_was_asleep_is_no_jump_of_its_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, said = FakeClock(), []
    unused: Any = None
    made = Supervisor(UpOptions(StateFolder(tmp_path)), unused, clock, unused)  # type: ignore[arg-type]
    monkeypatch.setattr(made._event_poster, "post", lambda reason, _: said.append(reason))
    try:
        clock.suspend(8 * 3600)
        made._notice_clock_jump()
        assert said == []
        clock._now += 3600
        made._notice_clock_jump()
        assert said == ["ClockJumped"]
    finally:
        os.close(made._wake.reader)
        os.close(made._wake.writer)
