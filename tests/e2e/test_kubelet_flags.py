"""Y23: a control plane with a node agent that was started with flags of a kubelet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from single_node import Box

LINES = (
    "|\n  --pod-max-pids=1000000\n  --max-pods=500\n  --cpu-manager-policy=static\n"
    "  --topology-manager-policy=best-effort\n  --kube-reserved=cpu=4,memory=8Gi\n"
    "  --system-reserved=cpu=2,memory=4Gi\n"
)
CPUS = sorted(os.sched_getaffinity(0))
WATCH = "while :; do grep Cpus_allowed_list /proc/self/status; sleep 0.2; done"


def pod(name: str, node: str, command: str, **limits: str) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "command": ["sh", "-c", command]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "windlass",
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 0,
            "containers": [{**container, "resources": {"limits": limits}}],
        },
    }


def cpus_seen(box: Box, name: str) -> str:
    lines = box.windlass("logs", name, check=False).stdout.split()
    return lines[-1] if lines else ""


def test_y23_simulated_node_of_16_cpus_has_what_the_flags_leave(tmp_path: Path) -> None:
    flags = tmp_path / "kubelet"
    flags.write_text(LINES)
    with Box("--gpus", "none") as box:
        size = ("--cpu", "16", "--memory", "32Gi", "--kubelet-flags", str(flags))
        done = box.windlass("node", "add-simulated", "--prefix", "big", *size)
        assert "best-effort only prefers one NUMA node" in done.stderr
        allocatable = box.get("node", "big-0")["status"]["allocatable"]
        assert (allocatable["cpu"], allocatable["memory"], allocatable["pods"]) == ("10", "20Gi", "500")


@pytest.mark.skipif(len(CPUS) < 2, reason="one CPU cannot be shared and exclusive")
def test_y23_whole_cpus_are_pinned_and_others_leave_them() -> None:
    flags = ("--cpu-manager-policy=static", "--system-reserved=cpu=1,memory=1Gi", "--max-pods=7")
    with Box("--gpus", "none", *flags) as box:
        (node,) = box.items("nodes")
        status, name = node["status"], node["metadata"]["name"]
        assert status["allocatable"]["cpu"] == str(len(CPUS) - 1)
        assert (status["allocatable"]["pods"], status["capacity"]["pods"]) == ("7", "7")
        box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(pod("shared", name, WATCH)))
        box.wait_for("it has all CPUs", lambda: cpus_seen(box, "shared") not in ("", str(CPUS[0])))
        own = pod("own", name, WATCH, cpu="1", memory="64Mi")
        box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(own))
        pinned = box.wait_for("it runs", lambda: cpus_seen(box, "own"))
        assert pinned == str(CPUS[1])  # the first CPU is reserved
        box.wait_for("the other has left", lambda: pinned not in _listed(cpus_seen(box, "shared")))
        box.windlass("delete", "pod", "own")
        box.wait_for("the other is back", lambda: pinned in _listed(cpus_seen(box, "shared")))
        same = box.windlass("up", "--detach", "--gpus", "none", *flags).stdout
        assert "already running" in same
        other = box.windlass("up", "--detach", "--max-pods=8", check=False)
        assert other.returncode != 0
        assert "it runs with other kubelet flags" in other.stderr


def _listed(text: str) -> set[str]:
    found: set[str] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(str(cpu) for cpu in range(int(first), int(last or first) + 1))
    return found
