"""Generation jobs on one box: published manifest, dead letters, kills, suspension, a second run, commands."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import acceptance_manifests
import pytest
import yaml
from chaos_rounds import Outcome, recover, strike
from sharded_program import SHARDED
from single_node import Box

from windlass.api.resources import AIGC_JOBS
from windlass.kits.timestamps import parse_rfc3339

PROGRAM = """
import json, os, sys, time
for line in sys.stdin:
    row = json.loads(line)
    time.sleep(float(row.get("seconds", 0)))
    while row.get("hold") and not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
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
    box.wait_for(f"{name} is {phases}", lambda: status(box, name).get("phase") in phases)
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
    letters = json.loads(box.windlass("items", "dead", "letters", "-o", "json").stdout)
    dead = letters["items"]
    assert letters["reasons"] == {"ProcessExited": 2}
    assert {one["id"]: one["attempts"] for one in dead} == {"r3": 2, "r7": 2}
    assert "18 of 20 done, 2 failed, 2 dead letters" in box.windlass("show", "letters").stdout
    assert "GROUP" in box.windlass("items", "ls", "letters").stdout
    before = outputs(tmp_path / "letters.jsonl")
    (tmp_path / "mended").touch()
    assert "2 dead letters" in box.windlass("items", "retry", "letters", "--dead").stdout
    box.wait_for("all are done", lambda: status(box, "letters")["items"].get("done") == 20)
    assert wait_for_phase(box, "letters", "Succeeded")["items"]["deadLetter"] == 0
    after = {row["id"]: row for row in outputs(tmp_path / "letters.jsonl")}
    assert len(after) == 20
    assert all(after[row["id"]] == row for row in before if "error" not in row)


def processes(box: Box, pod: str) -> list[int]:
    """Return the processes of driver or worker in a pod of this box."""
    mark = f"WINDLASS_ATTEMPT={box.get(f'pod/{pod}')['metadata']['uid']}/"
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
            environment = Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        module = words[words.index(b"-m") + 1] if b"-m" in words[1:3] else b""
        if module.startswith(b"windlass.items.") and mark.encode() in environment:
            found.append(int(entry))
    return [pid for pid in found if pid > 1]


def kill(box: Box, pod: str) -> None:
    """Kill driver or worker in a pod, which may still start."""
    found = box.wait_for(f"a process of {pod}", lambda: processes(box, pod))
    os.kill(min(found), signal.SIGKILL)  # a child that has just been forked looks the same


def test_killed_processes_of_job_and_control_plane_lose_no_row(box: Box, tmp_path: Path):
    """All 50 random kills are in tests/chaos/items_box.py; these are one of each process."""
    rows = [{"id": f"r{n}", "seconds": 0.02, "hold": n >= 100} for n in range(200)]
    job = manifest("killed", rows, tmp_path, replicas=2, policy={"backoffLimit": 0})
    job["spec"]["batching"] = {"mode": "Fixed", "size": 10}
    job["spec"]["items"] = {"leaseSeconds": 5}
    apply(box, job)
    box.wait_for("rows are done", lambda: (status(box, "killed").get("items") or {}).get("done", 0) >= 10)
    pods = {"worker": "killed-worker-0", "driver": "killed-driver"}
    for part in ("worker", "driver", "server", "control", "node"):  # the pods while they surely work
        if pod := pods.get(part):
            before = box.get(f"pod/{pod}")["metadata"]["uid"]
            kill(box, pod)
            box.wait_for(f"{pod} is replaced", lambda pod=pod, uid=before: _uid(box, pod) not in ("", uid))
            box.wait_for(f"{pod} runs", lambda pod=pod: _runs(box, pod))
        else:
            outcome = Outcome(25, part, 0.0)
            strike(box, part)
            recover(box, outcome)
            assert not outcome.problems
    (tmp_path / "mended").touch()
    found = wait_for_phase(box, "killed", "Succeeded", "Failed")
    assert (found["phase"], found["items"]["done"], found["attempts"]) == ("Succeeded", 200, 1), found
    written = sorted(outputs(tmp_path / "killed.jsonl"), key=lambda row: row["id"])
    expected = [{"id": row["id"], "text": row["id"].upper(), "score": 95} for row in rows]
    assert written == sorted(expected, key=lambda row: row["id"])


def _uid(box: Box, pod: str) -> str:
    return next((one["metadata"]["uid"] for one in box.items("pods") if one["metadata"]["name"] == pod), "")


def _runs(box: Box, pod: str) -> bool:
    found = [one for one in box.items("pods") if one["metadata"]["name"] == pod]
    return bool(found) and found[0]["status"].get("phase") in ("Running", "Succeeded")


def test_killed_rank_starts_its_worker_again_and_no_row_is_blamed(box: Box, tmp_path: Path):
    rows = [{"id": f"r{n}", "numbers": list(range(n)), "hold": n >= 8} for n in range(40)]
    job = manifest("gang", rows, tmp_path, replicas=2, shards=2, policy={"backoffLimit": 0})
    job["spec"] |= {"items": {"retries": 0, "maxFailedPercent": 0}, "batching": {"mode": "Fixed", "size": 2}}
    job["spec"]["template"]["spec"]["containers"][0]["command"][2] = SHARDED
    apply(box, job)
    pods = ["gang-worker-0", "gang-worker-0-1", "gang-worker-1", "gang-worker-1-1"]
    box.wait_for("rows are held", lambda: (status(box, "gang").get("items") or {}).get("done", 0) >= 8)
    box.wait_for("both workers run", lambda: status(box, "gang")["workers"]["running"] == 2)
    before = [_uid(box, pod) for pod in pods]
    assert "2 of 2 workers of 2 pods run" in box.windlass("show", "gang").stdout
    kill(box, pods[1])
    box.wait_for(
        "both ranks are replaced", lambda: {"", *before}.isdisjoint(_uid(box, pod) for pod in pods[:2])
    )
    assert [_uid(box, pod) for pod in pods[2:]] == before[2:]
    (tmp_path / "mended").touch()
    found = wait_for_phase(box, "gang", "Succeeded", "Failed")
    assert (found["phase"], found["items"]["done"], found["attempts"]) == ("Succeeded", 40, 1), found
    written = {row["id"]: row["total"] for row in outputs(tmp_path / "gang.jsonl")}
    assert written == {row["id"]: sum(row["numbers"]) for row in rows}


def test_suspended_job_goes_on_and_a_second_run_costs_nothing(box: Box, tmp_path: Path):
    rows: list[dict[str, Any]] = [{"id": f"r{n}", "seconds": 0.03, "hold": n >= 60} for n in range(400)]
    job = manifest("halted", rows, tmp_path, resources={"limits": {"nvidia.com/gpu": 1}})
    job["spec"]["batching"] = {"mode": "Fixed", "size": 20}
    apply(box, job)
    box.wait_for("rows are done", lambda: (status(box, "halted").get("items") or {}).get("done", 0) >= 5)
    box.windlass("suspend", "halted")
    done = wait_for_phase(box, "halted", "Suspended")["items"]["done"]
    box.wait_for("no pods are left", lambda: not _pods(box, "halted"))
    assert 0 < done <= 60
    (tmp_path / "mended").touch()
    box.windlass("resume", "halted")
    found = wait_for_phase(box, "halted", "Succeeded", "Failed")
    assert (found["phase"], found["items"]["done"]) == ("Succeeded", 400)
    assert found["gpuSeconds"] > 0
    assert "s allocated" in box.windlass("show", "halted").stdout
    (tmp_path / "mended").unlink()  # a row of the second half that is done again would wait for it
    again = manifest("again", rows, tmp_path)
    again["spec"]["outputs"] = job["spec"]["outputs"]
    apply(box, again)
    found = wait_for_phase(box, "again", "Succeeded", "Failed")
    assert found["takenOver"]["rows"] == 400
    assert (found["phase"], found["items"]["done"], found["items"]["failed"]) == ("Succeeded", 400, 0)


def _pods(box: Box, job: str) -> list[str]:
    names = [pod["metadata"]["name"] for pod in box.items("pods")]
    return [name for name in names if name.startswith(f"{job}-")]


def test_outputs_that_are_not_retained_go_with_their_job(box: Box, tmp_path: Path):
    (tmp_path / "other.txt").write_text("stays")
    job = manifest("fleeting", [{"id": "a"}, {"id": "b"}], tmp_path, policy={"ttlSecondsAfterFinished": 2})
    job["spec"]["outputs"]["retain"] = False
    apply(box, job)
    box.wait_for("job is gone", lambda: "fleeting" not in str(box.items("aigcjobs")), seconds=120)
    events = {event["reason"] for event in box.items("events") if "fleeting" in str(event["involvedObject"])}
    assert "AIGCJobSucceeded" in events, events
    assert [path.name for path in tmp_path.iterdir()] == ["other.txt"]


def test_generate_shows_progress_and_names_the_outputs(box: Box, tmp_path: Path):
    table = tmp_path / "products.csv"
    table.write_text("id,name,category\n" + "".join(f"p{n},cup {n},{'xy'[n % 2]}\n" for n in range(40)))
    words = ("generate", str(table), "--prompt", "Describe {name}", "--group-by", "category")
    printed = yaml.safe_load(box.windlass(*words, "--shards", "2", "--dry-run", "-o", "yaml").stdout)
    assert printed["spec"]["shards"] == 2
    assert printed["spec"]["input"]["prompt"] == "Describe {name}"
    done = box.windlass(*words, "--workers", "2", "--name", "shop")
    assert done.stdout.strip() == str(tmp_path / "products.out.jsonl")
    assert "40 of 40 items" in done.stderr
    assert len(outputs(tmp_path / "products.out.jsonl")) == 40
    wrong = box.windlass(*words[:2], "--prompt", "{title}", check=False)
    assert "WL-GENERATE-422" in wrong.stderr
    assert "columns: category, id, name" in wrong.stderr
    (tmp_path / "file").touch()
    blocked = box.windlass(
        "generate",
        str(table),
        "--prompt",
        "{name}",
        "--output",
        str(tmp_path / "file/out.jsonl"),
        check=False,
    )
    assert "WL-GENERATE-403" in blocked.stderr
    missing = box.windlass("generate", str(tmp_path / "no.csv"), check=False)
    assert "WL-GENERATE-404" in missing.stderr


def test_generate_processes_changed_rows_again_and_tells_how_many(box: Box, tmp_path: Path):
    table, output = tmp_path / "products.csv", tmp_path / "products.out.jsonl"
    table.write_text("id,name\n" + "".join(f"p{n},cup {n}\n" for n in range(20)))
    words = ("generate", str(table), "--prompt", "Describe {name}")
    assert "changed" not in box.windlass(*words).stderr
    before = outputs(output)
    table.write_text(table.read_text().replace("cup 3\n", "pan 3\n").replace("cup 5\n", "pan 5\n"))
    done = box.windlass(*words, "--name", "edited")
    told = "2 rows of the input have changed since an earlier job: they are processed again"
    assert f"18 rows of an earlier job taken over from {output}" in done.stderr
    assert told in done.stderr
    assert told in box.windlass("show", "edited").stdout
    after = outputs(output)
    assert [row["id"] for row in after] == [row["id"] for row in before]
    assert [n for n in range(20) if after[n] != before[n]] == [3, 5]
    assert "pan 3" in after[3]["text"]
    assert "changed" not in box.windlass(*words).stderr
    assert outputs(output) == after


SUBTITLES = """
import json, sys
for line in sys.stdin:
    row = json.loads(line)
    print(json.dumps({"id": row["id"], "text": f"{row['text']} after [{row['context']['text']}]"}), flush=True)
"""


def test_segments_get_the_results_of_the_media_time_before_them(box: Box, tmp_path: Path):
    rows = [
        {"id": f"{name}{n}", "stream": name, "start": f"00:0{n // 2}:{n % 2 * 30:02}", "text": f"{name}{n}"}
        for n in range(6)
        for name in "uv"
    ]
    job = manifest("film", rows, tmp_path, replicas=2, contextCache={"mode": "Output", "window": "30s"})
    job["spec"]["template"]["spec"]["containers"][0]["command"] = [sys.executable, "-c", SUBTITLES]
    refused = yaml.safe_load(yaml.safe_dump(job))
    refused["spec"]["contextCache"]["mode"] = "Both"
    told = box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(refused), check=False).stderr
    assert "spec.contextCache.mode" in told
    assert '"Overlap", "Output"' in told
    apply(box, job)
    assert wait_for_phase(box, "film", "Succeeded", "Failed")["phase"] == "Succeeded"
    written = {row["id"]: row["text"] for row in outputs(tmp_path / "film.jsonl")}
    assert written["u2"] == "u2 after [u1 after [u0 after []]]"
    assert written["v5"].startswith("v5 after [v4 after [v3 after")
    shown = box.windlass("show", "film").stdout
    lines = [line.split() for line in shown.splitlines()]
    assert ["u4", "u", "120", "s", "150", "s", "90-120", "s", "u3", "Done"] in lines, shown
    assert "Output, 30 s before each segment, 2 streams" in shown
    (record,) = json.loads(box.windlass("items", "context", "film", "v4", "-o", "json").stdout)["items"]
    assert record["context"] == {"start": 90, "end": 120, "segments": ["v3"]}
    assert record["key"] == "film/v/v4"
    none = box.windlass("items", "context", "shop", check=False)
    assert "the rows of shop get no context" in none.stderr


STAGE = """
import json, os, sys, time
for line in sys.stdin:
    row = json.loads(line)
    time.sleep(float(sys.argv[2]))
    while int(row["id"][1:]) >= int(sys.argv[4]) and not os.path.exists(sys.argv[3]):
        time.sleep(0.05)
    print(json.dumps({"id": row["id"], sys.argv[1]: row.get("prepare", row["id"]) + sys.argv[1][0]}), flush=True)
"""


def staged(
    name: str, folder: Path, rows: int, seconds: dict[str, float], held: dict[str, int], **spec: Any
) -> dict[str, Any]:
    """Return a job with the stages prepare (cpu), infer (gpu) and write (cpu).

    ``seconds``: of a row in each. ``held``: stage → first of the rows that wait for the file ``STAGE-go``.
    """
    job = manifest(name, [{"id": f"r{n}"} for n in range(rows)], folder, **spec)
    for field in ("runtimeRef", "template"):
        del job["spec"][field]
    job["spec"]["batching"] = {"size": 2, "targetSeconds": 0.5}
    job["spec"]["stages"] = [
        {
            "name": stage,
            "kind": "gpu" if stage == "infer" else "cpu",
            "command": [
                *(sys.executable, "-c", STAGE, stage, str(each)),
                *(str(folder / f"{stage}-go"), str(held.get(stage, rows))),
            ],
        }
        for stage, each in seconds.items()
    ]
    return job


def gpu_of(box: Box, name: str) -> dict[str, str]:
    """Return the phase of each stage, and the GPUs that the job holds."""
    found = status(box, name)
    return {one["name"]: one["phase"] for one in found.get("stages") or ()} | {"gpus": str(found.get("gpus"))}


def test_gpu_stage_is_bound_late_and_given_back_before_the_cpu_tail_ends(box: Box, tmp_path: Path):
    """Requirement F11: Preprocessing, WaitingForGPU, Running; GPU seconds begin at the third phase."""
    flags = ["--gpus", "2", "--priority", "high-priority"]
    box.windlass("submit", "--name", "holder", *flags, "--", "sleep", "600")
    box.wait_for("both GPUs are held", lambda: "Running" in box.windlass("show", "holder").stdout)
    seconds = {"prepare": 0.05, "infer": 0.01, "write": 0.01}
    held = {"prepare": 0, "write": 0}
    apply(box, staged("reel", tmp_path, 16, seconds, held, progressive={"startWhen": {"readyFraction": 0.5}}))
    phases: list[str] = []

    def seen(phase: str) -> bool:
        shown = box.windlass("show", "reel").stdout
        now = next((line.split()[1] for line in shown.splitlines() if line.startswith("Phase:")), "")
        phases.append(now)
        return now == phase

    box.wait_for("rows are prepared", lambda: seen("Preprocessing"))
    (tmp_path / "prepare-go").touch()
    box.wait_for("GPUs are asked for", lambda: seen("WaitingForGPU"))
    assert "gpuSeconds" not in status(box, "reel")
    started = parse_rfc3339(status(box, "reel")["startTime"])
    box.wait_for("bound at once, they would have been held for a while", lambda: time.time() > started + 6)
    box.windlass("cancel", "holder")
    box.wait_for("the GPU stage runs", lambda: seen("Running"))
    assert [one for one in dict.fromkeys(phases) if one in ("Preprocessing", "WaitingForGPU", "Running")] == [
        "Preprocessing",
        "WaitingForGPU",
        "Running",
    ]
    box.wait_for("the GPU stage has ended", lambda: gpu_of(box, "reel")["infer"] == "Succeeded")
    box.wait_for("its GPU is free", lambda: gpu_of(box, "reel")["gpus"] == "0")
    assert gpu_of(box, "reel")["write"] in ("Starting", "Running")
    (tmp_path / "write-go").touch()
    done = wait_for_phase(box, "reel", "Succeeded", "Failed")
    assert done["phase"] == "Succeeded", done
    assert done["gpuSeconds"] < done["gpuSecondsEager"]
    assert [(one["name"], one["done"]) for one in done["stages"]] == [(name, 16) for name in seconds]
    shown = box.windlass("show", "reel").stdout
    assert "if bound at once" in shown
    assert "STAGE" in shown
    assert outputs(tmp_path / "reel.jsonl") == [{"id": f"r{n}", "write": f"r{n}pw"} for n in range(16)]


SLOW = """
import json, os, sys, time
for line in sys.stdin:
    end = time.monotonic() + 2
    while time.monotonic() < end and not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
    print(json.dumps({"id": json.loads(line)["id"], "prepare": "p"}), flush=True)
"""


def test_reserved_gpus_are_lent_to_work_that_ends_in_time(box: Box, tmp_path: Path):
    progressive = {"gpuBind": "Reserve", "startWhen": {"readyFraction": 1}}
    job = staged("later", tmp_path, 100, {"prepare": 0, "infer": 0.01}, {}, progressive=progressive)
    job["spec"]["stages"][0]["command"] = [sys.executable, "-c", SLOW, str(tmp_path / "go")]
    job["spec"]["stages"][1]["parallelism"] = 2
    apply(box, job)

    def expected() -> float:
        """Return in how many seconds the GPUs are expected to be needed."""
        stage = next((one for one in status(box, "later").get("stages") or () if one["name"] == "infer"), {})
        return parse_rfc3339(stage["expectedAt"]) - time.time() if "expectedAt" in stage else 0.0

    box.wait_for("the time of the GPUs is known", lambda: expected() > 60)
    box.wait_for("workers wait", lambda: {"later-infer-0", "later-infer-1"} <= set(_pods(box, "later")))
    gates = box.get("pod/later-infer-1")["spec"]["schedulingGates"]
    assert gates == [{"name": "aigc.kurator.dev/gpu-bind"}]
    assert "gate aigc.kurator.dev/gpu-bind" in box.windlass("show", "later").stdout
    box.windlass("submit", "--name", "short", "--gpus", "2", "--time", "20s", "--", "true")
    box.wait_for("a short job borrows", lambda: "Succeeded" in box.windlass("show", "short").stdout)
    assert gpu_of(box, "later")["infer"] == "Reserved"
    # With a stated limit: what earlier jobs of the user took would be its estimate otherwise.
    box.windlass("submit", "--name", "long", "--gpus", "1", "--time", "1h", "--", "true")
    box.wait_for(
        "another waits",
        lambda: "reserved for default/later-infer" in box.windlass("explain", "long", check=False).stdout,
    )
    (tmp_path / "go").touch()
    done = wait_for_phase(box, "later", "Succeeded", "Failed")
    assert (done["phase"], done["items"]["done"]) == ("Succeeded", 100), done
    (infer,) = [one for one in done["stages"] if one["name"] == "infer"]
    reserved = parse_rfc3339(infer["claimedAt"]) - parse_rfc3339(infer["reservedAt"])
    assert done["gpuReservedSeconds"] == 2 * reserved > 0
    assert done["gpuSeconds"] > 0
    assert "which others could borrow" in box.windlass("show", "later").stdout
    box.wait_for("the other job runs", lambda: "Succeeded" in box.windlass("show", "long").stdout)


def test_staged_job_outlives_kills_of_worker_and_driver(box: Box, tmp_path: Path):
    seconds = {"prepare": 0.05, "infer": 0.05}
    held = {"prepare": 30}
    apply(box, staged("staged", tmp_path, 60, seconds, held, progressive={"startWhen": {"readyFraction": 0}}))
    box.wait_for(
        "rows pass both stages",
        lambda: any(
            one["name"] == "infer" and one.get("done", 0) > 2
            for one in status(box, "staged").get("stages") or ()
        ),
    )
    for pod in ("staged-infer-0", "staged-driver", "staged-prepare-0"):
        kill(box, pod)
    (tmp_path / "prepare-go").touch()
    done = wait_for_phase(box, "staged", "Succeeded", "Failed")
    assert (done["phase"], done["attempts"]) == ("Succeeded", 1), done
    assert outputs(tmp_path / "staged.jsonl") == [{"id": f"r{n}", "infer": f"r{n}pi"} for n in range(60)]


SCALER = """
from kurator_sdk import AutoScaler
class Doubling(AutoScaler):
    def calculate_desired_replicas(self, metrics):
        if metrics["nvidia_gpu_utilization"] > 0.8 and metrics["pending_aigc_jobs"] > 0:
            return min(current_replicas * 2, max_replicas)
        return float("nan") if metrics["nvidia_gpu_utilization"] == 0.5 else current_replicas
"""


def _scaler_file(folder: Path) -> Path:
    """Return the class of the acceptance list, or one like it where the list is missing."""
    published = acceptance_manifests.folder() / "code" / "autoscaler_example.py"
    if published.exists():
        return published
    (folder / "scaler.py").write_text(SCALER)
    return folder / "scaler.py"


def feed(box: Box, name: str, load: float, pending: int) -> None:
    text = json.dumps({"nvidia_gpu_utilization": load, "pending_aigc_jobs": pending})
    change(box, name, {"metadata": {"annotations": {"aigc.kurator.dev/metrics": text}}})


def change(box: Box, name: str, patch: dict[str, Any]) -> None:
    with box.client() as client:
        client.patch(AIGC_JOBS, name, patch, "default")


def _events(box: Box, reason: str, words: str) -> list[dict[str, Any]]:
    return [one for one in box.items("events") if one.get("reason") == reason and words in one["message"]]


def scaling(box: Box, name: str) -> dict[str, Any]:
    return status(box, name).get("scaling") or {}


def test_class_of_a_user_scales_the_workers(box: Box, tmp_path: Path):
    rows = [{"id": f"r{n}", "hold": True} for n in range(3000)]
    scale = {"min": 1, "max": 6, "plugin": str(_scaler_file(tmp_path))}
    apply(box, manifest("scaled", rows, tmp_path, replicas=4, autoscale=scale))
    box.wait_for(
        "a decision", lambda: "nvidia_gpu_utilization" in scaling(box, "scaled").get("arithmetic", "")
    )
    assert scaling(box, "scaled")["desired"] == 4  # no value is not zero
    feed(box, "scaled", 0.81, 1)
    box.wait_for("4 became 6", lambda: scaling(box, "scaled").get("desired") == 6)
    shown = box.windlass("show", "scaled").stdout
    assert "nvidia_gpu_utilization 0.81, pending_aigc_jobs 1) of 4 replicas = 6: 4 → 6" in shown
    box.wait_for("6 workers", lambda: len(_pods(box, "scaled")) == 7)
    told = "of 4 replicas = 6: 4 → 6"
    (event,) = box.wait_for("an event", lambda: _events(box, "AIGCJobScaled", told))
    assert event["message"].endswith(told)
    assert event.get("count", 1) == 1
    assert "overridden by" not in box.windlass("explain", "scaled").stdout
    inline = {"inline": SCALER}
    change(box, "scaled", {"spec": {"autoscale": {"plugin": inline}}})
    feed(box, "scaled", 0.5, 1)
    failed = "ValueError: the result is nan"
    box.wait_for("NaN is told", lambda: failed in scaling(box, "scaled").get("arithmetic", ""))
    assert scaling(box, "scaled")["desired"] == 6
    assert failed in box.windlass("explain", "scaled").stdout
    box.wait_for("an event", lambda: _events(box, "AIGCScalerFailed", failed))
    trial = box.windlass("explain", "scaled", "--with", "nvidia_gpu_utilization=0.7").stdout
    assert "Doubling (nvidia_gpu_utilization 0.7) of 6 replicas = 6: 6 replicas stay" in trial
    box.windlass("cancel", "scaled")


def test_measured_utilisation_of_simulated_gpus_scales_by_the_rule(box: Box, tmp_path: Path):
    rows = [{"id": f"r{n}", "hold": True} for n in range(2000)]
    scale = {"min": 1, "max": 2, "metric": "gpuUtil"}
    job = manifest("ruled", rows, tmp_path, autoscale=scale, resources={"limits": {"nvidia.com/gpu": 1}})
    job["spec"]["template"]["metadata"] = {"annotations": {"windlass.dev/simulated-gpu-utilization": "90"}}
    apply(box, job)
    words = "but pending_aigc_jobs is 0"
    box.wait_for("a value", lambda: words in scaling(box, "ruled").get("arithmetic", ""))
    assert "2 with pending_aigc_jobs of at least 1" in scaling(box, "ruled")["alternatives"]
    waiting = manifest("waiting", rows, tmp_path, resources={"limits": {"nvidia.com/gpu": 8}})
    apply(box, waiting)
    box.wait_for("1 became 2", lambda: scaling(box, "ruled").get("desired") == 2)
    assert (
        "nvidia_gpu_utilization 0.9 > 0.8 and pending_aigc_jobs 1 > 0" in box.windlass("show", "ruled").stdout
    )
    for name in ("waiting", "ruled"):
        box.windlass("cancel", name)
    values = {one["metadata"]["name"]: one["value"] for one in box.items("priorityclasses")}
    order = [values[f"aigc-{level}"] for level in ("urgent", "high", "medium", "low")]
    assert order == [100000, 10000, 1000, 100]


def test_workers_on_simulated_nodes_do_every_row_once(box: Box, tmp_path: Path):
    # The last one: workers of other jobs would do nothing on the simulated nodes.
    box.windlass("node", "add-simulated", "--count", "20", "--gpus", "1")
    rows = [{"id": f"r{n}", "category": "abcde"[n % 5]} for n in range(2000)]
    job = manifest("peak", rows, tmp_path, resources={"limits": {"nvidia.com/gpu": 1}})
    simulated = {"key": "windlass.dev/simulated", "operator": "In", "values": ["true"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [simulated]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    job["spec"] |= {
        "runtimeRef": {"name": "builtin-generate"},
        "template": {
            "metadata": {"annotations": {"windlass.dev/item-seconds": "0.1"}},
            "spec": {"affinity": affinity},
        },
        "grouping": {"by": "category"},
        "batching": {"targetSeconds": 1},
        "autoscale": {"min": 1, "max": 20},
    }
    apply(box, job)
    found = wait_for_phase(box, "peak", "Succeeded", "Failed")
    assert (found["phase"], found["items"]["done"]) == ("Succeeded", 2000), found
    assert found["gpuBusySeconds"] >= 2000 * 0.1
    assert 10 < found["workers"]["peakNodes"] <= 20
    shown = box.windlass("show", "peak").stdout
    assert f"on at most {found['workers']['peakNodes']} nodes at a time" in shown
    assert {group["name"]: group["done"] for group in found["groups"]} == dict.fromkeys("abcde", 400)
    written = outputs(tmp_path / "peak.jsonl")
    assert sorted(row["id"] for row in written) == sorted(row["id"] for row in rows)
    assert all(row["simulated"] is True for row in written)
