"""A whole box on cards that are scripted: the agent's NVML is a file, an MPS control daemon is a socket."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripted_nvml import Script
from single_node import Box

from windlass.api.resources import LEASE_NAMESPACE
from windlass.kits.timestamps import parse_rfc3339

SHADOW = Path(__file__).resolve().parent / "nvmlshadow"


@contextlib.contextmanager
def gpu_box(
    folder: Path, cards: list[dict[str, Any]], *, gpus: str = "auto", **more: Any
) -> Iterator[tuple[Box, Script]]:
    """``windlass up`` on these cards; the box and the script that its agent's NVML answers from."""
    script = Script.write(folder / "nvml.json", cards, **more)
    with Box("--gpus", gpus, environment=gpu_environment(folder, script)) as box:
        yield box, script


def gpu_environment(folder: Path, script: Script) -> dict[str, str]:
    """What makes processes see the script, and the MPS daemon of ``folder`` if there is one."""
    return {
        "PYTHONPATH": str(SHADOW),
        "SCRIPTED_NVML": str(script.path),
        "CUDA_MPS_PIPE_DIRECTORY": str(folder / "mps"),
    }


@contextlib.contextmanager
def mps_daemon(folder: Path) -> Iterator[Path]:
    """Somebody listens where the control daemon's clients connect."""
    pipe = folder / "mps"
    pipe.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(pipe / "control"))
        listening.listen()
        ended = threading.Event()

        def accept() -> None:
            while not ended.is_set():
                with contextlib.suppress(OSError):
                    listening.accept()[0].close()

        thread = threading.Thread(target=accept, daemon=True)
        listening.settimeout(0.2)
        thread.start()
        try:
            yield pipe
        finally:
            ended.set()
            thread.join()


def kill_agent(box: Box) -> None:
    """SIGKILL the node agent. When this returns its successor has told what it knows of the node: what stands
    there is its own word, not the other's."""
    record = box.state.read_supervisor()
    assert record is not None
    old = record["processes"]["node"]["pid"]
    os.kill(old, signal.SIGKILL)

    def ended() -> bool:
        found = box.state.read_supervisor()
        return found is not None and found["processes"]["node"]["pid"] != old

    box.wait_for("the agent's end", ended)
    (node,) = box.items("nodes")
    moment = time.time()

    def told() -> bool:  # an agent renews its lease after it has written its node
        (lease,) = box.items("leases", namespace=LEASE_NAMESPACE)
        renewed = lease["spec"]["renewTime"]
        return lease["metadata"]["name"] == node["metadata"]["name"] and parse_rfc3339(renewed) > moment

    box.wait_for("another agent's word", told)


def gpu_pod(name: str, limits: dict[str, str], command: str, **changes: Any) -> dict[str, Any]:
    """A pod of one container that asks for cards."""
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", command],
        "resources": {"limits": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **changes.pop("metadata", {})},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "containers": [container],
            **changes,
        },
    }
