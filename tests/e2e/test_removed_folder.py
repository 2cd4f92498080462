"""A state folder that is deleted under a running box: nothing of the box may live on."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from single_node import Box

from windlass.node.runtime import attempt_files
from windlass.node.sandbox.pod_network import Capabilities, Network

PATIENCE_SECONDS = 120.0


@pytest.fixture
def box() -> Iterator[Box]:
    made = Box("--gpus", "none")
    with made:
        made.windlass("submit", "--name", "sleeper", "--", "sleep", "600")
        made.wait_for("the job to run", lambda: made.job_phase("sleeper") == "Running")
        yield made


def uplink(box: Box) -> Path:
    """The machine's end of the cable into the box, where there is one (root only)."""
    name = Network(box.state.node, Capabilities(user=False, namespaces=("net",), pid=False)).uplink
    return Path("/sys/class/net") / name


def left_after_removal(box: Box) -> list[str]:
    """Remove the folder; what is still there when patience is over, by names."""
    way_out = attempt_files.read(str(box.state.node), "outbound.json")
    cable = uplink(box)
    assert box.processes()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        shutil.rmtree(box.state.path, ignore_errors=True)  # again where somebody wrote into it meanwhile
        found = [f"process {pid}" for pid in box.processes()]
        if box.state.path.exists():
            found.append(str(box.state.path))
        if attempt_files.is_running(way_out):
            found.append("the way out of the box")
        if cable.exists():
            found.append(cable.name)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


@pytest.mark.timeout(400)
def test_a_box_ends_when_its_folder_is_removed(box: Box):
    assert left_after_removal(box) == []
    assert not box.state.path.exists()


@pytest.mark.timeout(400)
def test_pods_of_a_killed_control_plane_end_when_the_folder_is_removed(box: Box):
    supervisor = (box.state.read_supervisor() or {})["pid"]
    os.kill(supervisor, signal.SIGKILL)
    time.sleep(8.0)  # longer than shims and holders take to look whether their folder is there
    assert box.processes(), "pods outlive their control plane as long as the folder is there"
    assert left_after_removal(box) == []
