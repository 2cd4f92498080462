"""What the machine does to a box that runs: its disk fills, its clock is set."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from single_node import Box, left_of, processes_naming

from windlass.api.views.wire import moment

CLOCK_JUMP = Path(__file__).parent.parent / "support" / "live" / "clockjump"
DAY = 86_400


@pytest.fixture
def small_disk() -> Iterator[Box]:
    """A box, not started, whose state folder is a file system of 24 MiB of its own."""
    box = Box("--gpus", "simulated:2")
    box.state.path.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=0700", "windlass-test", str(box.state.path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        os.rmdir(box.state.path)
        os.rmdir(box.folder)
        pytest.skip("a small file system cannot be mounted here: that needs root")
    try:
        with box:
            yield box
    finally:
        subprocess.run(["umount", "--lazy", str(box.state.path)], check=True)
        box.close()


def fill(folder: Path) -> Path:
    """Leave no byte on the file system; what to remove to make room again."""
    path = folder / "fill"
    with open(path, "wb", buffering=0) as stream:
        for size in (65_536, 512, 1):
            try:
                while stream.write(b"x" * size):
                    pass
            except OSError:
                continue
    return path


def marker(box: Box, number: int) -> str:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"kept-{number}"}}
    return json.dumps({**body, "data": {"text": "y" * 20_000}})


def fill_database(box: Box) -> list[str]:
    """Write until that is refused (the database has some pages to spare) and the control plane has stopped;
    what was acknowledged."""
    acknowledged = []
    for number in range(100, 600):
        done = box.windlass("apply", "-f", "-", stdin=marker(box, number), check=False)
        if done.returncode != 0:
            break
        acknowledged.append(f"kept-{number}")
    # Unless another writer met the full disk first, and the control plane has stopped, or stops in this moment.
    if not done.stderr.startswith(("error[WL-SERVER-502]: ", "error[WL-SERVER-503]: ")):
        assert done.stderr.startswith("error[WL-STATE-507]: ")
        assert "the control plane's disk is full; nothing was written\n" in done.stderr
        assert "try: free disk space, then: windlass up\n" in done.stderr
    box.wait_for("it stops", lambda: box.windlass("status", check=False).returncode == 7)
    return acknowledged


def test_a_disk_that_fills_is_told_and_nothing_acknowledged_is_lost(small_disk: Box, tmp_path: Path):
    box, acknowledged = small_disk, []
    box.windlass("submit", "--name", "long", "--", "sh", "-c", f"echo $$ >> {tmp_path}/starts; sleep 1000; :")
    box.wait_for("it runs", lambda: (tmp_path / "starts").exists() and box.job_phase("long") == "Running")
    for number in range(3):
        box.windlass("apply", "-f", "-", stdin=marker(box, number))
        acknowledged.append(f"kept-{number}")
    filling = fill(box.state.path)

    acknowledged += fill_database(box)
    told = box.windlass("up", *box.options, "--detach", check=False).stderr
    assert told.startswith("error[WL-STATE-507]: ")
    assert "on a full disk" in told
    assert f"try: df -h {box.state.path}\n" in told
    assert processes_naming(tmp_path / "starts"), "the job was ended"

    filling.unlink()
    box.windlass("up", *box.options, "--detach")
    assert {item["metadata"]["name"] for item in box.items("configmaps")} >= set(acknowledged)
    box.wait_for("the job is known to run", lambda: box.job_phase("long") == "Running")
    (pod,) = box.items("pods")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert len((tmp_path / "starts").read_text().splitlines()) == 1
    box.windlass("run", "--", "true")
    assert "Traceback" not in box.logs(lines=10_000)


def test_down_ends_everything_on_a_full_disk(small_disk: Box, tmp_path: Path):
    box = small_disk
    box.windlass("submit", "--name", "long", "--", "sh", "-c", f"echo $$ > {tmp_path}/starts; sleep 1000; :")
    box.wait_for("it runs", (tmp_path / "starts").exists)
    fill(box.state.path)
    fill_database(box)
    assert processes_naming(tmp_path / "starts")
    done = box.windlass("down")
    assert done.stdout.startswith("ended ")
    assert box.left() == left_of(tmp_path / "starts") == {}


@pytest.mark.timeout(400)
def test_a_clock_that_jumps_breaks_nothing(tmp_path: Path):
    """The processes' wall clock is moved while they run; their monotonic clock goes on, as on a machine."""
    clock, go, starts = tmp_path / "clock", tmp_path / "go", tmp_path / "starts"
    clock.write_text("0")
    environment = {"PYTHONPATH": str(CLOCK_JUMP), "WINDLASS_TEST_CLOCK": str(clock)}
    with Box("--gpus", "simulated:1", environment=environment) as box:
        words = f"echo $$ >> {starts}; until [ -e {go} ]; do sleep 0.1; done"
        box.windlass("submit", "--name", "across", "--", "sh", "-c", words)
        box.wait_for("it runs", lambda: starts.exists() and box.job_phase("across") == "Running")
        box.windlass("node", "add-simulated", "--count", "2", "--gpus", "1")
        box.wait_for("the nodes are ready", lambda: len(box.items("nodes")) == 3 and not _unready(box))
        for number, days in enumerate((1, -400, 400)):
            before = time.time()
            next_clock = clock.with_suffix(".next")
            next_clock.write_text(str(days * DAY))
            next_clock.rename(clock)  # or for a moment an empty file would tell the true time
            name = f"after-{number}"
            box.windlass("run", "--gpus", "1", "--name", name, "--", "true")
            created = moment(box.get("vcjob", name)["metadata"]["creationTimestamp"])
            assert 0 <= created - before - days * DAY + 1 < 120, "the processes did not see the jump"
            for _ in range(12):
                assert box.job_phase("across") == "Running"
                assert _unready(box) == []
                time.sleep(0.25)
            ages = [line.split() for line in box.windlass("ps", "--all").stdout.splitlines()]
            assert {line[0] for line in ages} >= {"across", name}
            assert not [word for line in ages for word in line if re.fullmatch(r"-\d+\w+", word)], ages
        go.touch()
        box.wait_for("it ends", lambda: box.job_phase("across") == "Completed")
        assert len(starts.read_text().splitlines()) == 1
        assert "Traceback" not in box.logs(lines=10_000)


def _unready(box: Box) -> list[str]:
    return [
        node["metadata"]["name"]
        for node in box.items("nodes")
        if not any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
    ]
