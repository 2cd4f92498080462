"""Generation jobs on one box: claims or ConfigMaps that come later, and rows that a cancelled job leaves."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from single_node import Box

ROWS = "".join(json.dumps({"id": f"r{n}"}) + "\n" for n in range(4))
PROGRAM = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"id": json.loads(line)["id"], "text": "x"}), flush=True)
"""
COMMAND = [sys.executable, "-c", PROGRAM]
GPU = {"limits": {"nvidia.com/gpu": "1"}}


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "simulated:2") as one:
        yield one


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    """Return a job that binds its GPUs at once. Its outputs go to the claim with its name."""
    return {
        "apiVersion": "kurator.dev/v1alpha1",
        "kind": "AIGCJob",
        "metadata": {"name": name},
        "spec": {
            "progressive": {"gpuBind": "Eager"},
            "input": {"source": "inline", "format": "jsonl", "idField": "id", "inline": ROWS},
            "outputs": {"pvc": {"claimName": name}},
            **spec,
        },
    }


def plain(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "w", "image": "python", "command": COMMAND, "resources": GPU}
    template = {"spec": {"containers": [container]}}
    return manifest(name, runtimeRef={"name": "process"}, template=template, **spec)


def staged(name: str) -> dict[str, Any]:
    stages = [
        {"name": "prepare", "kind": "cpu", "command": COMMAND},
        {"name": "infer", "kind": "gpu", "resources": GPU, "command": COMMAND},
    ]
    return manifest(name, stages=stages)


def condition(box: Box, name: str) -> dict[str, Any]:
    status = box.get(f"aigcjob/{name}").get("status") or {}
    found = [one for one in status.get("conditions") or () if one["type"] == "VolumesReady"]
    return found[0] if found else {}


def pods(box: Box, name: str) -> list[dict[str, Any]]:
    return box.items("pods", labels=f"aigc.kurator.dev/job-name={name}")


def remedy(message: str) -> str:
    """Return the command that the message tells."""
    found = re.findall(r"`(.*?)`", message)
    assert len(found) == 1, message
    return found[0]


def groups(box: Box, name: str) -> list[dict[str, Any]]:
    return [one for one in box.items("podgroups") if one["metadata"]["name"].startswith(name)]


def wait_for_the_end(box: Box, name: str) -> dict[str, Any]:
    def ended() -> dict[str, Any] | None:
        status = box.get(f"aigcjob/{name}").get("status") or {}
        return status if status.get("phase") in ("Succeeded", "Failed") else None

    found = box.wait_for(f"{name} has ended", ended)
    assert found is not None
    return found


@pytest.mark.parametrize("form", [plain, staged])
def test_job_before_its_claim_holds_no_gpu_and_goes_on_by_itself(box: Box, form):
    name = f"early-{form.__name__}"
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(form(name)))
    box.wait_for("the claim is missed", lambda: condition(box, name).get("status") == "False")
    found = condition(box, name)
    assert found["reason"] == "VolumeClaimUnavailable"
    words = f"PersistentVolumeClaim {name} (spec.outputs.pvc.claimName) does not exist in namespace default"
    for command in ("show", "explain"):
        shown = " ".join(box.windlass(command, name).stdout.split())
        assert words in shown, shown
    assert (pods(box, name), groups(box, name)) == ([], [])
    document, creation = re.fullmatch(r"echo '(.*)' \| kubectl (.*)", remedy(found["message"])).groups()  # type: ignore[union-attr]
    box.kubectl(*shlex.split(creation), stdin=document)
    created = box.get(f"pvc/{name}")["metadata"]["creationTimestamp"]
    status = wait_for_the_end(box, name)
    assert status["phase"] == "Succeeded", status
    assert status["items"]["done"] == 4
    assert condition(box, name)["status"] == "True"
    assert pods(box, name), "the pods are kept"
    assert all(pod["metadata"]["creationTimestamp"] >= created for pod in pods(box, name))


def test_job_before_the_config_map_of_its_rows_goes_on_by_itself(box: Box, tmp_path: Path):
    given = {"source": "configMap", "idField": "id", "configMap": {"name": "rows", "key": "rows.jsonl"}}
    job = plain("rows-late", input=given, outputs={"path": str(tmp_path / "rows-late.jsonl")})
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(job))
    box.wait_for("the rows are missed", lambda: condition(box, "rows-late").get("status") == "False")
    found = condition(box, "rows-late")
    assert found["reason"] == "Misconfigured"
    assert pods(box, "rows-late") == []
    (tmp_path / "rows.jsonl").write_text(ROWS)
    command = remedy(found["message"]).replace("=FILE", f"={tmp_path / 'rows.jsonl'}")
    box.kubectl(*shlex.split(command)[1:])
    status = wait_for_the_end(box, "rows-late")
    assert (status["phase"], status["items"]["done"]) == ("Succeeded", 4), status


def test_suspended_job_takes_another_claim(box: Box):
    """The other remedy of the message: suspend, change the field, resume."""
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(plain("renamed")))
    box.wait_for("the claim is missed", lambda: condition(box, "renamed").get("status") == "False")
    message = condition(box, "renamed")["message"]
    document = re.search(r"echo '(.*)' \|", message)
    assert document is not None
    claim = json.loads(document[1])
    claim["metadata"]["name"] = "spare"
    box.kubectl("create", "-f", "-", stdin=json.dumps(claim))
    suspend, resume = re.findall(r"windlass ((?:suspend|resume) renamed -n default)", message)
    box.windlass(*suspend.split())
    box.wait_for("the job is suspended", lambda: box.get("aigcjob/renamed")["status"]["phase"] == "Suspended")
    change = json.dumps({"spec": {"outputs": {"pvc": {"claimName": "spare"}}}})
    box.kubectl("patch", "aigcjob", "renamed", "--type", "merge", "-p", change)
    box.windlass(*resume.split())
    assert wait_for_the_end(box, "renamed")["phase"] == "Succeeded"


WAITS_AT_20 = """
import json, os, sys, time
for line in sys.stdin:
    row = json.loads(line)
    while row["id"] >= 20 and not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
    print(json.dumps({"id": row["id"], "text": f"made by {os.getpid()}"}), flush=True)
"""


def test_cancelled_generation_job_keeps_the_rows_that_it_finished(box: Box, tmp_path: Path):
    table, gate = tmp_path / "rows.jsonl", tmp_path / "go"
    table.write_text("".join(f'{{"id": {n}}}\n' for n in range(40)))
    words = ("generate", str(table), "--", sys.executable, "-c", WAITS_AT_20, str(gate))
    box.windlass("generate", "--name", "first", "--detach", *words[1:])
    box.wait_for(
        "rows are done", lambda: (box.get("aigcjob/first").get("status") or {})["items"].get("done", 0) > 0
    )
    done = box.get("aigcjob/first")["status"]["items"]["done"]
    said = box.windlass("cancel", "first").stdout
    assert "finished row" in said
    assert f"kept next to {tmp_path / 'rows.out.jsonl'} for the next job with these outputs" in said
    gate.touch()
    box.wait_for("the job is gone", lambda: box.kubectl("get", "aigcjob", "first", check=False).returncode)
    again = box.windlass(*words)
    taken = next(line for line in again.stderr.splitlines() if "taken over" in line)
    assert int(taken.split()[0]) >= done
    rows = [json.loads(line) for line in (tmp_path / "rows.out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == list(range(40))


def test_program_that_is_not_there_is_refused_before_a_job_exists(box: Box, tmp_path: Path):
    (tmp_path / "rows.jsonl").write_text(ROWS)
    refused = box.windlass(
        "generate", str(tmp_path / "rows.jsonl"), "--name", "none", "--", "nosuchprogram", check=False
    )
    assert 'error[WL-RUN-404]: program "nosuchprogram" was not found' in refused.stderr
    assert "which nosuchprogram" in refused.stderr
    assert not [one for one in box.items("aigcjobs") if one["metadata"]["name"] == "none"]
