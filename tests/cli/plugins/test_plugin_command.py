"""``windlass plugin ls`` and ``windlass plugin try`` (F49, P2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

LABEL = "aigc.kurator.dev/priority"
SCORER = """
import numpy as np
from windlass.spi.plugins import Footprint, Trend


class EmptiestNode:
    name, footprint, weight = "emptiest-node", Footprint.ROW, 500.0

    def trend(self, needs):
        return Trend.FALLS

    def score(self, needs, nodes):
        whole = np.maximum(nodes.allocatable("nvidia.com/gpu"), 1)
        return 100.0 * nodes.available("nvidia.com/gpu") / whole
"""
"""Scorer in fewer than fifteen lines."""


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(name: str, *, on: str = "", priority: str | None = None) -> dict[str, Any]:
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "x", "resources": resources}]}
    if on:
        spec["nodeName"] = on
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "labels": {} if priority is None else {LABEL: priority},
        },
        "spec": spec,
        "status": {"phase": "Running" if on else "Pending"},
    }


def site(path: Path, free: int, *pending: dict[str, Any]) -> str:
    """Write a site of five one-GPU nodes, of which ``free`` have their GPU free."""
    nodes = [node(f"n{number}") for number in range(5)]
    busy = [pod(f"busy-{number}", on=f"n{number}") for number in range(5 - free)]
    path.write_text(yaml.safe_dump_all([*nodes, *busy, *pending]))
    return str(path)


@pytest.mark.parametrize(
    ("priority", "free", "passes", "message"),
    [
        (None, 0, True, ""),
        ("high", 0, True, "high-priority job"),
        ("low", 0, False, "insufficient resources for low-priority"),
        ("low", 2, False, "insufficient resources for low-priority"),
        ("low", 3, True, ""),
        ("medium", 0, True, ""),
        ("urgent", 0, True, ""),
        ("Low", 0, True, ""),
    ],
)
@pytest.mark.parametrize(
    "plugin", ["low-priority-gate", "examples/05-low-priority-gate/low_priority_gate.py"]
)
def test_eight_cases_of_the_low_priority_gate(
    windlass: Any, tmp_path: Path, plugin: str, priority: str | None, free: int, passes: bool, message: str
) -> None:
    """P2: a pass is not a placement, so high priority passes without any free GPU."""
    file = site(tmp_path / "site.yaml", free, pod("job", priority=priority))
    done = windlass("plugin", "try", plugin, "-f", file, "-o", "json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    (verdict,) = record["verdicts"]
    if plugin.endswith(".py"):
        message = message.replace("high-priority job", "")  # the example has no note
    assert (verdict["passes"], verdict["message"]) == (passes, message)
    assert record["pods"] == 1
    assert [one["after"] for one in record["changed"]] == ([""] if not passes and free else [])


def test_verdicts_and_changed_pods_are_shown(windlass: Any, tmp_path: Path) -> None:
    jobs = [pod("a", priority="high"), pod("b", priority="low")]
    file = site(tmp_path / "site.yaml", 2, *jobs)
    out = windlass("plugin", "try", "low-priority-gate", "-f", file).out
    rows = [line.split("  ") for line in out.splitlines()]
    assert [cell.strip() for cell in rows[1] if cell.strip()][:3] == [
        "default/a",
        "pass",
        "high-priority job",
    ]
    assert "default/b  refuse   insufficient resources for low-priority  3/2" in out
    assert "default/b waits with it:" in out
    assert out.splitlines()[-1].startswith("low-priority-gate: 1 of 2 pending pods placed differently;")


def test_the_limit_is_an_argument(windlass: Any, tmp_path: Path) -> None:
    file = site(tmp_path / "site.yaml", 2, pod("job", priority="low"))
    command = ("plugin", "try", "low-priority-gate", "-f", file, "-o", "json")
    record = json.loads(windlass(*command, "--arg", "nodes=2").out)
    assert record["verdicts"][0]["passes"]
    assert not record["changed"]
    wrong = windlass(*command, "--arg", "nodes=none")
    assert wrong.code != 0
    assert "nodes 'none' is not a whole number of at least 1" in wrong.err


def test_scorer_of_a_file_changes_placements_on_a_trace(windlass: Any, tmp_path: Path) -> None:
    """F49: the placements without the plugin and with it are compared; nothing is switched on."""
    file = tmp_path / "mine.py"
    file.write_text(SCORER)
    trace = tmp_path / "trace.csv"
    trace.write_text(windlass("sim", "generate", "--jobs", "20", "--days", "0.1").out)
    command = ("plugin", "try", str(file), "--trace", str(trace), "--nodes", "4x8")
    record = json.loads(windlass(*command, "-o", "json").out)
    assert (record["plugin"], record["jobs"]) == ("emptiest-node", 20)
    assert record["changed"]
    for job in record["changed"]:
        assert job["before"] != job["after"]
    out = windlass(*command).out
    assert f"emptiest-node: {len(record['changed'])} of 20 jobs placed differently" in out
    assert "emptiest-node" not in windlass("plugin", "ls").out


def test_without_a_trace_a_generated_one_is_used(windlass: Any, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(SCORER.replace("500.0", "0.0"))
    done = windlass("plugin", "try", str(file))
    assert "200 generated jobs on 4x8" in done.err
    assert "0 of 200 jobs placed differently" in done.out  # weight 0 has no effect


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = (", "is not valid Python"),
        ("import nothing_of_that_name", "raised ModuleNotFoundError"),
        ("x = 1", "has no plugin class"),
        (SCORER.replace("footprint, weight = ", "weight = ").replace("Footprint.ROW, ", ""), "footprint"),
        (SCORER.replace("100.0 *", "1 // 0 *"), "mine.py:14 raised ZeroDivisionError"),
        (SCORER + SCORER.replace("EmptiestNode", "Other"), "several plugin classes: EmptiestNode, Other"),
    ],
)
def test_error_of_a_plugin_file_names_file_and_line(
    windlass: Any, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    done = windlass("plugin", "try", str(file))
    assert done.code != 0
    assert words in done.err
    assert str(file) in done.err
    assert "try: " in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("missing.py",), "there is no file missing.py"),
        (("low-priority-gat",), "try: windlass plugin try low-priority-gate"),
        (("gang",), "belongs into a tier"),
        (("low-priority-gate", "--trace", "x.csv"), "--trace needs --nodes"),
        (("low-priority-gate", "--live", "-f", "x"), "exclude each other"),
        (("low-priority-gate", "--arg", "nodes"), "is not KEY=VALUE"),
    ],
)
def test_wrong_command_lines_are_explained(windlass: Any, arguments: tuple[str, ...], words: str) -> None:
    done = windlass("plugin", "try", *arguments)
    assert done.code in (2, 3)
    assert words in done.err


def test_list_has_built_in_plugins_off_by_default(windlass: Any) -> None:
    records = {one["name"]: one for one in json.loads(windlass("plugin", "ls", "-o", "json").out)["items"]}
    gate = records["low-priority-gate"]
    assert (gate["from"], gate["on"], gate["arguments"]) == ("windlass", False, "nodes")
    assert records["gang"]["place"] == "tier"
