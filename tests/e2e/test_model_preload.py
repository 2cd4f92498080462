"""A model on a box: fetched while its job waits, shared in memory by the workers, found by the next job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from single_node import Box

PROGRAM = """
import os, pathlib, time

class Answer:
    def __init__(self, go):
        self.go = pathlib.Path(go)

    def setup(self):
        self.path = pathlib.Path(os.environ["WINDLASS_MODEL_PATH"])
        self.size = (self.path / "weights").stat().st_size

    def process(self, rows):
        while not self.go.exists():
            time.sleep(0.05)
        return [{"id": row["id"], "text": str(self.size), "place": str(self.path)} for row in rows]
"""


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "simulated:4") as found:
        yield found


def job(name: str, folder: Path, workers: int, **model: Any) -> str:
    rows = "".join(f'{{"id": "{number}"}}\n' for number in range(60))
    container = {"name": "worker", "workingDir": str(folder)}
    return yaml.safe_dump(
        {
            "apiVersion": "kurator.dev/v1alpha1",
            "kind": "AIGCJob",
            "metadata": {"name": name},
            "spec": {
                "replicas": workers,
                "resources": {"limits": {"nvidia.com/gpu": 1}},
                "runtimeRef": {
                    "name": "python",
                    "function": "answer:Answer",
                    "parameters": {"go": f"{folder}/go"},
                },
                "template": {"spec": {"containers": [container]}},
                "model": {"name": "tiny", "source": (folder / "tiny").as_uri(), **model},
                "batching": {"mode": "Fixed", "size": 1},
                "input": {"source": "inline", "inline": rows},
                "outputs": {"path": f"{folder}/{name}/"},
            },
        }
    )


def test_a_waiting_job_has_its_model_and_four_workers_load_it_once(box: Box, tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "weights").write_bytes(b"x" * 100_000)
    (tmp_path / "answer.py").write_text(PROGRAM)
    box.windlass("submit", "--gpus", "4", "--name", "holder", "--", "sleep", "600")
    box.wait_for("the holder runs", lambda: box.job_phase("holder") == "Running")
    box.kubectl("apply", "-f", "-", stdin=job("shared", tmp_path, 4, sharing={"mode": "SharedMemory"}))

    def ready() -> dict[str, Any] | None:
        caches = box.items("modelcaches")
        return next((each for each in caches if (each.get("status") or {}).get("state") == "Ready"), None)

    cache = box.wait_for("the model is on the node", ready)
    assert (cache["spec"]["model"]["name"], cache["status"]["bytes"]) == ("tiny", 100_000)
    phase = (box.get("aigcjobs", "shared").get("status") or {}).get("phase")
    assert phase in (None, "Pending", "Queued", "Preloading", "Preprocessing", "WaitingForGPU")
    box.windlass("cancel", "holder")
    # A worker that begins late would find no rows otherwise, and use no model.
    told = box.wait_for(
        "four workers have the model",
        lambda: (
            sum((model := box.get("aigcjobs", "shared")["status"].get("model") or {}).values()) == 4 and model
        ),
    )
    assert told == {"loaded": 1, "attached": 3}
    (tmp_path / "go").touch()

    def status() -> dict[str, Any] | None:
        found = box.get("aigcjobs", "shared").get("status") or {}
        assert found.get("phase") != "Failed", found
        return found if found.get("phase") == "Succeeded" else None

    found = box.wait_for("the job succeeds", status)
    assert found["model"] == {"loaded": 1, "attached": 3}
    text = (tmp_path / "shared" / "outputs.jsonl").read_text()
    assert text.count('"text":"100000"') == 60
    assert "/dev/shm/windlass-models-" in text

    box.kubectl("apply", "-f", "-", stdin=job("next", tmp_path, 1))
    found = box.wait_for(
        "the next job succeeds",
        lambda: (box.get("aigcjobs", "next").get("status") or {}).get("phase") == "Succeeded",
    )
    assert box.get("aigcjobs", "next")["status"]["model"] == {"found": 1}
    assert [each["metadata"]["uid"] for each in box.items("modelcaches")] == [cache["metadata"]["uid"]]

    assert "ModelReady" in {one["type"] for one in found_conditions(box, "next")}
    box.windlass("submit", "--gpus", "4", "--name", "full", "--", "sleep", "600")
    box.wait_for("the node with the model is full", lambda: box.job_phase("full") == "Running")
    box.windlass("node", "add-simulated", "--count", "1", "--gpus", "1")
    elsewhere = yaml.safe_load(job("elsewhere", tmp_path, 1))
    elsewhere["spec"]["template"]["metadata"] = {"annotations": {"windlass.dev/item-seconds": "0.01"}}
    box.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(elsewhere))

    def bound() -> str:
        pods = [pod for pod in box.items("pods") if pod["metadata"]["name"] == "elsewhere-worker-0"]
        return pods[0]["spec"].get("nodeName", "") if pods else ""

    assert box.wait_for("a node without the model is taken", bound) == "sim-0"


def found_conditions(box: Box, name: str) -> list[dict[str, Any]]:
    return box.get("aigcjobs", name)["status"]["conditions"]
