"""A machine that dies under gangs (W8): one of two node agents is killed with all its real processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from single_node import ROOT, Box, processes_naming

from windlass.kits.timestamps import parse_rfc3339

KINDS = ("pytorchjob", "jaxjob", "vcjob")


class SecondMachine:
    """Node agent ``second`` with three simulated GPUs."""

    def __init__(self, box: Box, folder: Path) -> None:
        self.folder = folder / "second"
        script = ROOT / "tests" / "support" / "node" / "second_agent.py"
        command = [
            sys.executable,
            str(script),
            str(box.state.socket),
            str(self.folder),
            "second",
            "simulated:3",
        ]
        self.log = (folder / "second.log").open("w")
        self.agent = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=box.environment)

    def die(self) -> None:
        """End the agent, its pods and their shims at once, as a power failure does."""
        self.agent.kill()
        self.agent.wait()
        for _ in range(100):
            left = processes_naming(self.folder)
            for pid in left:
                assert pid > 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            if not left:
                break
            time.sleep(0.05)
        self.log.close()


@pytest.fixture
def box() -> Iterator[Box]:
    with Box("--gpus", "simulated:6") as one:
        yield one


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_gangs_are_whole_again_within_a_minute_of_the_known_death_of_a_machine(
    box: Box, tmp_path: Path
) -> None:
    first = box.items("nodes")[0]["metadata"]["name"]
    box.windlass("submit", "--name", "blocker", "-g", "3", "--", "sleep", "1000")
    box.wait_for("it is on the first machine", lambda: box.job_phase("blocker") == "Running")
    machine = SecondMachine(box, tmp_path)
    try:
        box.wait_for("the second node is ready", lambda: _is_ready(box, "second"))
        for kind in KINDS:
            name = f"gang-{kind}"
            box.windlass(
                "submit", "--kind", kind, "--name", name, "-n", "2", "-g", "1", "--", "sleep", "1000"
            )

        def nodes() -> dict[str, str]:
            return {
                pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
                for pod in box.items("pods")
                if pod["metadata"]["name"].startswith("gang-")
                and pod["status"].get("phase") == "Running"
                and not pod["metadata"].get("deletionTimestamp")
            }

        box.wait_for("all ranks run", lambda: len(nodes()) == 2 * len(KINDS))
        before = nodes()
        assert sorted(before.values()) == sorted([first] * 3 + ["second"] * 3)
        box.windlass("cancel", "blocker", "--wait")
    finally:
        machine.die()

    def known() -> float:
        taints = box.get("nodes", "second")["spec"].get("taints") or ()
        times = [
            one["timeAdded"]
            for one in taints
            if (one["key"], one["effect"]) == ("node.kubernetes.io/unreachable", "NoExecute")
        ]
        return parse_rfc3339(times[0]) if times else 0.0

    at = box.wait_for("the death is known", known, 120)
    box.wait_for(
        "every gang is whole on the other machine", lambda: list(nodes().values()) == [first] * 6, 90
    )
    assert time.time() - at <= 60
    assert nodes().keys() == before.keys()
    assert not [pod for pod in box.items("pods") if pod["metadata"].get("deletionTimestamp")]

    def causes(name: str) -> list[Any]:
        shown = json.loads(box.windlass("show", name, "-o", "json").stdout)
        return [one["cause"] for one in shown.get("attempts") or ()]

    hit = {name.rpartition("-")[0].rpartition("-")[0] for name, node in before.items() if node == "second"}
    for name in sorted(hit):
        box.wait_for(f"{name}: the cause is told", lambda name=name: causes(name) == ["node", None])
    for kind in KINDS:
        box.windlass("cancel", f"gang-{kind}")


def _is_ready(box: Box, name: str) -> bool:
    conditions = (box.get("nodes", name).get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
