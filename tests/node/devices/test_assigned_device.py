"""Device that the kubelet has assigned to a container, in every form in which a plugin reports it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from windlass.api.errors import WindlassError
from windlass.cli.commands.cluster.reserve_device import command
from windlass.node.devices import assigned_device
from windlass.node.devices.assigned_device import find_assigned_device
from windlass.node.devices.nvml import Nvml

UUID = "GPU-8f5f5e3a-0d7c-4f0a-9c36-0123456789ab"


class Refused(Exception):
    value = 9


class Library:
    """NVML that shows devices, or does not respond (``None``)."""

    NVMLError = Refused

    def __init__(self, cards: list[str] | None) -> None:
        self.cards = cards
        self.open = 0

    def nvmlInit(self) -> None:
        if self.cards is None:
            raise Refused("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards or ())

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return (self.cards or [])[index]

    def nvmlDeviceGetUUID(self, handle: str) -> bytes:
        return handle.encode()


def missing() -> Nvml:
    raise ImportError("no pynvml")


@pytest.mark.parametrize(
    ("seen", "mounted", "told", "card"),
    [
        pytest.param([UUID], [], "all", UUID, id="NVML sees more than the words say"),
        pytest.param(None, [], UUID, UUID, id="by the environment"),
        pytest.param(None, [], "3", "3", id="counted by index"),
        pytest.param(None, [UUID], "/var/run/nvidia-container-devices", UUID, id="by mounts"),
        pytest.param(None, [], f"k8s.device-plugin.nvidia.com/gpu={UUID}", UUID, id="by CDI names"),
        pytest.param([UUID, "GPU-2"], [], UUID, "", id="several devices"),
        pytest.param([], [], UUID, "", id="no device in NVML, though a variable names one"),
        pytest.param(None, [], "void", "", id="nothing"),
        pytest.param(None, [], f"{UUID}::1", "", id="a replica"),
        pytest.param(None, [], "MIG-8f5f5e3a-0d7c-4f0a-9c36-0123456789ab", "", id="a slice"),
    ],
)
def test_one_whole_card_is_named(
    seen: list[str] | None, mounted: list[str], told: str, card: str, tmp_path: Path
) -> None:
    library = Library(seen)
    for name in mounted:
        (tmp_path / name).touch()
    folder = tmp_path if mounted else tmp_path / "none"
    environment = {assigned_device.VARIABLE: told}
    if card:
        assert find_assigned_device(environment, mounts=folder, load=lambda: Nvml(library)) == card
    else:
        with pytest.raises(WindlassError) as caught:
            find_assigned_device(environment, mounts=folder, load=lambda: Nvml(library))
        assert caught.value.code == assigned_device.NOT_NAMED
    assert library.open == 0


def test_without_the_binding_the_words_count(tmp_path: Path) -> None:
    assert (
        find_assigned_device({assigned_device.VARIABLE: UUID}, mounts=tmp_path / "none", load=missing) == UUID
    )


def test_what_it_tells_stands_where_the_kubelet_reads(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(assigned_device.library, "load", missing)
    monkeypatch.setattr(
        find_assigned_device, "__kwdefaults__", {"mounts": tmp_path / "none", "load": missing}
    )
    log = tmp_path / "termination-log"
    done = CliRunner().invoke(command, ["--tell", "--to", str(log)], env={assigned_device.VARIABLE: UUID})
    assert (done.exit_code, log.read_text()) == (0, f"{UUID}\n")
    done = CliRunner().invoke(command, ["--tell", "--to", str(log)], env={assigned_device.VARIABLE: "all"})
    assert isinstance(done.exception, WindlassError)
    assert "sees all" in log.read_text()
    assert isinstance(CliRunner().invoke(command, []).exception, WindlassError)


@pytest.mark.parametrize("name", ["reserve-device", "reserve-card"])
def test_it_keeps_the_card_until_it_is_told_to_end(name: str) -> None:
    """As the first process of a container, which no signal ends that it does not wait for."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from windlass.cli.main import run; run()", name, "--hold"],
        env={**os.environ, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"the GPU is held\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
