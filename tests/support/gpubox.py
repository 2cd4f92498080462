"""A whole box on cards that are scripted: the agent's NVML is a file, an MPS control daemon is a socket."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from box import Box
from scriptednvml import Script

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
    """SIGKILL the node agent; its successor is up when this returns."""
    record = box.state.read_supervisor()
    assert record is not None
    old = record["processes"]["node"]["pid"]
    os.kill(old, signal.SIGKILL)

    def again() -> bool:
        found = box.state.read_supervisor()
        return found is not None and found["processes"]["node"]["pid"] not in (None, old)

    box.wait_for("another agent", again)


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
