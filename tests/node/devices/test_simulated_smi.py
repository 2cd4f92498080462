"""nvidia-smi of simulated GPUs: formats as users call them, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from windlass.node.devices import simulated_smi
from windlass.node.devices.simulated_smi import main


def gpu(uuid: str, **changed: Any) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "name": "NVIDIA A100-SXM4-80GB",
        "memory_mib": 81920,
        "used_mib": 1024,
        "compute": "8.0",
        "link_group": 0,
        "mig": False,
        "profile": "",
        "identifier": uuid,
        "whole": True,
        "held": "GPU 3",
        **changed,
    }


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "gpus.json"
    path.write_text(json.dumps({"gpus": [gpu("GPU-a"), gpu("GPU-b", mig=True, profile="1g.10gb")]}))
    return {simulated_smi.VARIABLE: str(path)}


def test_gpus_are_numbered_as_the_container_sees_them(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-L"], environment) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-a)",
        "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-b)",
        "  MIG 1g.10gb      Device  0: (UUID: GPU-b)",
    ]
    assert "simulated by windlass" in shown.err


def test_query_prints_csv_that_programs_parse(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    query = "--query-gpu=index,uuid,memory.used,memory.total,utilization.gpu,temperature.gpu"
    assert main([query, "--format=csv"], environment) == 0
    assert capsys.readouterr().out.splitlines() == [
        "index, uuid, memory.used [MiB], memory.total [MiB], utilization.gpu [%], temperature.gpu",
        "0, GPU-a, 1024 MiB, 81920 MiB, 0 %, [N/A]",
        "1, GPU-b, 1024 MiB, 81920 MiB, 0 %, [N/A]",
    ]
    assert main([query, "--format=csv,noheader,nounits", "-i", "1"], environment) == 0
    assert capsys.readouterr().out == "1, GPU-b, 1024, 81920, 0, [N/A]\n"


def test_table_marks_the_gpus_and_names_shares(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(environment[simulated_smi.VARIABLE])
    path.write_text(json.dumps({"gpus": [gpu("GPU-a", whole=False, held="GPU 3: 50 % of its compute")]}))
    assert main([], environment) == 0
    shown = capsys.readouterr().out
    assert "SIMULATED" in shown
    assert "GPU 3: 50 % of its compute" in shown
    assert "1024MiB / 81920MiB" in shown
    assert len({len(line) for line in shown.splitlines() if line[:1] in ("|", "+")}) == 1


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["-pm", "1"], 3, "-pm is not supported for simulated GPUs"),
        (["--query-gpu=nosuch", "--format=csv"], 2, 'Field "nosuch" is not a valid field to query.'),
        (["--query-gpu=index"], 2, "--format="),
        (["-i", "7"], 6, "No devices were found"),
        (["dmon", "-s", "z"], 2, "dmon: metric z"),
        (["dmon", "-c", "many"], 2, '"many" is not a number'),
    ],
)
def test_what_is_not_served_is_refused_with_words(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str], argv: list[str], code: int, words: str
) -> None:
    assert main(argv, environment) == code
    assert words in capsys.readouterr().out


def test_container_without_gpus_has_no_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], {}) == 6
    assert capsys.readouterr().out == "No devices were found\n"


def test_every_sample_of_dmon_is_printed(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dmon", "-s", "um", "-c", "3", "-d", "0"], environment) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 2 * 3
    assert lines[2].split() == ["0", "0", "0", "0", "0", "0", "0", "1024", "0", "0"]
