"""Generation jobs on one box: published manifest, dead letters, kills, suspension, a second run, commands."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import acceptance_manifests
import pytest
import yaml
from single_node import Box

PROGRAM = """
import json, os, sys, time
for line in sys.stdin:
    row = json.loads(line)
    time.sleep(float(row.get("seconds", 0)))
    if row.get("bad") and not os.path.exists(sys.argv[1]):
        sys.exit(3)
    print(json.dumps({"id": row["id"], "text": row["id"].upper(), "score": row.get("score", 95)}), flush=True)
"""


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "simulated:2") as one:
        yield one


def manifest(name: str, rows: list[dict[str, Any]], folder: Path, **spec: Any) -> dict[str, Any]:
    command = [sys.executable, "-c", PROGRAM, str(folder / "mended")]
    return {
        "apiVersion": "kurator.dev/v1alpha1",
        "kind": "AIGCJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"name": "process"},
            "template": {"spec": {"containers": [{"name": "w", "image": "python", "command": command}]}},
            "input": {
                "source": "inline",
                "format": "jsonl",
                "idField": "id",
                "inline": "".join(json.dumps(row) + "\n" for row in rows),
            },
            "outputs": {"path": str(folder / f"{name}.jsonl")},
            **spec,
        },
    }


def apply(box: Box, obj: dict[str, Any]) -> None:
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(obj))


def status(box: Box, name: str) -> dict[str, Any]:
    return box.get(f"aigcjob/{name}").get("status") or {}


def wait_for_phase(box: Box, name: str, *phases: str) -> dict[str, Any]:
    box.wait_for(f"{name} is {phases}", lambda: status(box, name).get("phase") in phases, seconds=120)
    return status(box, name)


def outputs(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_published_manifest_runs_to_completion(box: Box):
    done = box.windlass("apply", "-f", str(acceptance_manifests.manifest_path(1)))
    expected = acceptance_manifests.expected_warnings(1)
    warnings = [line.removeprefix("Warning: ") for line in done.stderr.splitlines() if "Warning: " in line]
    assert acceptance_manifests.all_there(warnings, expected), warnings
    found = wait_for_phase(box, "text-generation", "Succeeded", "Failed")
    assert found["phase"] == "Succeeded"
    assert found["priority"] == "high"
    assert found["items"]["done"] == found["items"]["total"] > 0
    (group,) = [one for one in box.items("podgroups") if one["metadata"]["name"] == "text-generation"]
    assert (group["spec"]["minMember"], group["spec"]["priorityClassName"]) == (1, "aigc-high")
    workers = [pod for pod in box.items("pods") if pod["metadata"]["name"] == "text-generation-worker-0"]
    assert workers[0]["metadata"]["labels"]["aigc.kurator.dev/priority"] == "high"
    assert workers[0]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "Succeeded" in box.windlass("get", "aigc").stdout


def test_failed_rows_are_data_and_run_again_alone(box: Box, tmp_path: Path):
    rows = [{"id": f"r{n}", "bad": n in (3, 7), "kind": "ab"[n % 2]} for n in range(20)]
    rows[5]["score"] = 40
    spec: dict[str, Any] = {
        "items": {"retries": 1, "retryBackoff": 0.1, "maxFailedPercent": 20},
        "grouping": {"by": "kind"},
    }
    job = manifest("letters", rows, tmp_path, **spec)
    job["spec"]["outputs"]["quality"] = {"min": 90}
    apply(box, job)
    found = wait_for_phase(box, "letters", "Succeeded", "Failed")
    assert found["phase"] == "Succeeded", found
    assert {name: found["items"][name] for name in ("total", "done", "failed", "deadLetter")} == {
        "total": 20,
        "done": 18,
        "failed": 2,
        "deadLetter": 2,
    }
    assert found["quality"]["below"] == 1
    assert {group["name"] for group in found["groups"]} == {"a", "b"}
    dead = json.loads(box.windlass("items", "dead", "letters", "-o", "json").stdout)["items"]
    assert {one["id"]: one["attempts"] for one in dead} == {"r3": 2, "r7": 2}
    assert "18 of 20 done, 2 failed, 2 dead letters" in box.windlass("show", "letters").stdout
    assert "GROUP" in box.windlass("items", "ls", "letters").stdout
    before = outputs(tmp_path / "letters.jsonl")
    (tmp_path / "mended").touch()
    assert "2 dead letters" in box.windlass("items", "retry", "letters").stdout
    box.wait_for("all are done", lambda: status(box, "letters")["items"].get("done") == 20, seconds=120)
    assert wait_for_phase(box, "letters", "Succeeded")["items"]["deadLetter"] == 0
    after = {row["id"]: row for row in outputs(tmp_path / "letters.jsonl")}
    assert len(after) == 20
    assert all(after[row["id"]] == row for row in before if "error" not in row)


def processes(box: Box, pod: str) -> list[int]:
    """Return the processes of driver or worker in a pod of this box."""
    uid = box.get(f"pod/{pod}")["metadata"]["uid"]
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            place = Path(f"/proc/{entry}/cgroup").read_text() + Path(f"/proc/{entry}/environ").read_text()
        except OSError:
            continue
        if words[1:2] == [b"-m"] and words[2].startswith(b"windlass.items.") and f"HOSTNAME={pod}\0" in place:
            found.append(int(entry))
    assert uid
    return [pid for pid in found if pid > 1]


def test_killed_worker_and_driver_lose_no_row(box: Box, tmp_path: Path):
    rows = [{"id": f"r{n}", "seconds": 0.03} for n in range(150)]
    job = manifest("killed", rows, tmp_path, replicas=2, policy={"backoffLimit": 0})
    job["spec"]["batching"] = {"mode": "Fixed", "size": 10}
    job["spec"]["items"] = {"leaseSeconds": 5}
    apply(box, job)
    box.wait_for("rows are done", lambda: (status(box, "killed").get("items") or {}).get("done", 0) >= 10)
    for pod in ("killed-worker-0", "killed-driver"):
        before = box.get(f"pod/{pod}")["metadata"]["uid"]
        (pid,) = processes(box, pod)
        os.kill(pid, signal.SIGKILL)
        box.wait_for(f"{pod} is replaced", lambda pod=pod, uid=before: _uid(box, pod) not in ("", uid))
        box.wait_for(f"{pod} runs", lambda pod=pod: _runs(box, pod))
    found = wait_for_phase(box, "killed", "Succeeded", "Failed")
    assert (found["phase"], found["items"]["done"], found["attempts"]) == ("Succeeded", 150, 1), found
    written = [row["id"] for row in outputs(tmp_path / "killed.jsonl")]
    assert sorted(written) == sorted(row["id"] for row in rows)


def _uid(box: Box, pod: str) -> str:
    return next((one["metadata"]["uid"] for one in box.items("pods") if one["metadata"]["name"] == pod), "")


def _runs(box: Box, pod: str) -> bool:
    found = [one for one in box.items("pods") if one["metadata"]["name"] == pod]
    return bool(found) and found[0]["status"].get("phase") in ("Running", "Succeeded")


def test_suspended_job_goes_on_and_a_second_run_costs_nothing(box: Box, tmp_path: Path):
    rows = [{"id": f"r{n}", "seconds": 0.03} for n in range(400)]
    job = manifest("halted", rows, tmp_path, resources={"limits": {"nvidia.com/gpu": 1}})
    job["spec"]["batching"] = {"mode": "Fixed", "size": 20}
    apply(box, job)
    box.wait_for("rows are done", lambda: (status(box, "halted").get("items") or {}).get("done", 0) >= 5)
    box.windlass("suspend", "halted")
    done = wait_for_phase(box, "halted", "Suspended")["items"]["done"]
    box.wait_for("no pods are left", lambda: not _pods(box, "halted"))
    assert 0 < done < 400
    box.windlass("resume", "halted")
    found = wait_for_phase(box, "halted", "Succeeded", "Failed")
    assert (found["phase"], found["items"]["done"]) == ("Succeeded", 400)
    assert found["gpuSeconds"] > 0
    assert "s allocated" in box.windlass("show", "halted").stdout
    for row in rows:
        row["bad"] = True  # a row that is done again would fail
    again = manifest("again", rows, tmp_path)
    again["spec"]["outputs"] = job["spec"]["outputs"]
    apply(box, again)
    found = wait_for_phase(box, "again", "Succeeded", "Failed")
    assert (found["phase"], found["items"]["done"], found["items"]["failed"]) == ("Succeeded", 400, 0)


def _pods(box: Box, job: str) -> list[str]:
    names = [pod["metadata"]["name"] for pod in box.items("pods")]
    return [name for name in names if name.startswith(f"{job}-")]


def test_generate_shows_progress_and_names_the_outputs(box: Box, tmp_path: Path):
    table = tmp_path / "products.csv"
    table.write_text("id,name,category\n" + "".join(f"p{n},cup {n},{'xy'[n % 2]}\n" for n in range(40)))
    words = ("generate", str(table), "--prompt", "Describe {name}", "--group-by", "category")
    printed = yaml.safe_load(box.windlass(*words, "--dry-run", "-o", "yaml").stdout)
    assert printed["spec"]["input"]["prompt"] == "Describe {name}"
    done = box.windlass(*words, "--workers", "2", "--name", "shop")
    assert done.stdout.strip() == str(tmp_path / "products.out.jsonl")
    assert "40 of 40 items" in done.stderr
    assert len(outputs(tmp_path / "products.out.jsonl")) == 40
    wrong = box.windlass(*words[:2], "--prompt", "{title}", check=False)
    assert "WL-GENERATE-422" in wrong.stderr
    assert "columns: category, id, name" in wrong.stderr
    missing = box.windlass("generate", str(tmp_path / "no.csv"), check=False)
    assert "WL-GENERATE-404" in missing.stderr
