"""Every example runs as it stands, and the training in the first one is real."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from single_node import ROOT, Box

from windlass.api.resources import NODES

EXAMPLES = ROOT / "examples"
DIGITS = EXAMPLES / "01-distributed-digits"


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "simulated:4") as one:
        pack = subprocess.run(
            [sys.executable, DIGITS / "pack.py"], capture_output=True, text=True, check=True
        )
        one.windlass("apply", "-f", "-", stdin=pack.stdout)
        yield one


@pytest.fixture(autouse=True)
def clean(box: Box) -> Iterator[None]:
    yield
    box.windlass("delete", "vcjob", "--all", check=False)
    box.windlass("delete", "pods", "--all", check=False)
    box.wait_for("no pods are left", lambda: not box.items("pods"))


def submit(box: Box, manifest: Path, name: str, *extra: str) -> None:
    """Apply a job manifest under another name, with more arguments for its program."""
    job = yaml.safe_load(manifest.read_text())
    job["metadata"]["name"] = name
    for task in job["spec"]["tasks"]:
        task["template"]["spec"]["containers"][0]["command"].extend(extra)
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(job))


def test_four_ranks_train_together_and_name_their_peers(box: Box):
    submit(box, DIGITS / "job.yaml", "digits")
    done = box.windlass("logs", "digits", "-f", "--all", timeout=250)
    log = done.stdout
    ranks = re.findall(r"rank (\d) of 4 on (\S+) \(([\d.]+)\), device (\d), peers (.+)", log)
    assert sorted(rank for rank, *_ in ranks) == ["0", "1", "2", "3"], log
    addresses = {rank: address for rank, _, address, _, _ in ranks}
    assert len(set(addresses.values())) == 4
    assert sorted(device for *_, device, _ in ranks) == ["0", "1", "2", "3"]
    for rank, host, _, _, peers in ranks:
        assert host == ("digits-master-0" if rank == "0" else f"digits-worker-{int(rank) - 1}")
        assert {peer.split("=")[1] for peer in peers.split()} == set(addresses.values()) - {addresses[rank]}
    digests = re.findall(r"parameters ([0-9a-f]{12}), equal on all ranks", log)
    assert len(digests) == 4
    assert len(set(digests)) == 1
    (accuracy,) = re.findall(r"test accuracy ([\d.]+) %", log)
    assert float(accuracy) >= 95
    box.wait_for("it completes", lambda: box.job_phase("digits") == "Completed")


def test_without_the_all_reduce_the_parameters_differ(box: Box):
    # Few epochs and no goal: nothing but the difference makes it fail.
    submit(box, DIGITS / "job.yaml", "apart", "--no-all-reduce", "--engine=numpy", "--epochs=4", "--goal=0")
    box.wait_for("it fails for good", lambda: box.job_phase("apart") == "Failed")
    log = box.windlass("logs", "apart", "--all").stdout
    assert "DIFFERENT between all ranks" in log


def submit_paced(box: Box, name: str, pace: Path) -> None:
    """The first example's job; ``pace`` holds how many seconds an epoch takes of ranks that begin now."""
    job = yaml.safe_load((DIGITS / "job.yaml").read_text())
    job["metadata"]["name"] = name
    words = f"exec python /digits/train.py --engine=numpy --seconds-per-epoch=$(cat {pace})"
    for task in job["spec"]["tasks"]:
        task["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", words]
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(job))


def test_a_rank_killed_in_the_middle_restarts_the_whole_gang(box: Box, tmp_path: Path):
    pace = tmp_path / "pace"
    pace.write_text("3600")
    submit_paced(box, "hurt", pace)
    box.wait_for(
        "it trains", lambda: "epoch   0" in box.windlass("logs", "hurt-master-0", check=False).stdout
    )
    first = {pod["metadata"]["uid"] for pod in box.items("pods")}
    pace.write_text("0")
    os.kill(rank_process(box, "hurt-worker-1"), 9)
    box.wait_for("the gang is started again", lambda: box.get("vcjob/hurt")["status"].get("retryCount") == 1)
    box.wait_for("it completes after all", lambda: box.job_phase("hurt") == "Completed")
    assert not first & {pod["metadata"]["uid"] for pod in box.items("pods")}


def rank_process(box: Box, pod: str) -> int:
    """The process of this machine that trains in ``pod``."""
    mark = f"WINDLASS_ATTEMPT={box.get('pod', pod)['metadata']['uid']}/".encode()
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"/digits/train.py" in command.split(b"\0") and mark in environment:
            return int(entry.name)
    raise AssertionError(f"no process of {pod}\n{box.logs()}")


def test_a_gang_that_does_not_fit_waits_whole_and_runs_afterwards(box: Box):
    submit(box, DIGITS / "job.yaml", "first", "--seconds-per-epoch", "3600", "--engine", "numpy")
    box.wait_for("the first gang runs", lambda: box.job_phase("first") == "Running")
    box.windlass("apply", "-f", str(EXAMPLES / "02-waiting-gang/job.yaml"))

    def record() -> dict:
        done = box.windlass("explain", "waiting-gang", "-o", "json", check=False)
        return json.loads(done.stdout).get("explanation") or {} if done.returncode == 0 else {}

    def of_room() -> dict:
        told = record()  # before all of its pods were made it waited for them
        return told if told.get("code") == "InsufficientResources" else {}

    explanation = box.wait_for("it says why it waits", of_room)
    assert explanation["waitingHelps"] == "yes"
    assert explanation["position"] == 1
    assert any("first" in holder for holder in explanation["holders"])
    blockers = [b for b in explanation["blockers"] if b.get("resource") == "nvidia.com/gpu"]
    assert ("1", "0") in [(b["needed"], b.get("available", "0")) for b in blockers]
    assert "3 pods" in explanation["message"]
    held = [pod for pod in box.items("pods") if pod["metadata"]["name"].startswith("waiting-gang")]
    assert not any(pod["spec"].get("nodeName") for pod in held)
    shown = next(line for line in box.windlass("ps").stdout.splitlines() if line.startswith("waiting-gang"))
    assert "#1" in shown
    box.windlass("cancel", "first")
    box.wait_for("it ran when the first had ended", lambda: box.job_phase("waiting-gang") == "Completed")
    log = box.windlass("logs", "waiting-gang", "--all").stdout
    assert len(re.findall(r"waiting-gang-worker-\d on device \d sees(?: [\d.]+){3}", log)) == 3


def test_queues_limit_and_say_at_once_what_can_never_run(box: Box):
    box.windlass("apply", "-f", str(EXAMPLES / "03-queues/queues.yaml"))
    box.windlass("apply", "-f", str(EXAMPLES / "03-queues/jobs.yaml"))
    box.wait_for("the fitting job completes", lambda: box.job_phase("sweep") == "Completed")

    def never() -> dict:
        done = box.windlass("explain", "too-wide", "-o", "json", check=False)
        told = json.loads(done.stdout).get("explanation") or {} if done.returncode == 0 else {}
        return told if told.get("code") == "ExceedsQueueLimit" else {}

    explanation = box.wait_for("it says that it never runs", never)
    assert explanation["waitingHelps"] == "no"
    assert "4" in explanation["message"]
    assert "3" in explanation["message"]


def test_bare_pods_keep_apart_and_keep_to_their_node(box: Box):
    add = ("node", "add-simulated", "--count", "1", "--gpus", "2", "--prefix")
    box.windlass(*add, "a100", "--label", "gpu-type=A100", "--taint", "gpu-node=true:NoSchedule")
    box.windlass("apply", "-f", str(EXAMPLES / "04-bare-pods/pods.yaml"))

    def placed() -> dict[str, str]:
        return {
            p["metadata"]["name"]: p["spec"]["nodeName"]
            for p in box.items("pods")
            if p["spec"].get("nodeName")
        }

    box.wait_for("what fits is placed", lambda: len(placed()) == 2)
    (tainted,) = [
        n["metadata"]["name"] for n in box.items("nodes") if n["metadata"]["name"].startswith("a100")
    ]
    assert placed().pop("tolerant") == tainted
    box.windlass(*add, "plain")
    box.wait_for("the second replica has its own host", lambda: len(placed()) == 3)
    where = placed()
    assert where["replica-a"] != where["replica-b"]
    box.windlass("delete", "pods", "--all", "--now")
    for node in [n["metadata"]["name"] for n in box.items("nodes")]:
        if node.startswith(("a100", "plain")):
            box.windlass("delete", f"node/{node}")


@pytest.mark.parametrize(
    ("manifest", "job", "says"),
    [
        ("nfs.yaml", "storage-nfs", "notes"),
        ("block.yaml", "storage-block", "step 100"),
        ("object-cache.yaml", "storage-lake", "sees the lake"),
    ],
)
def test_each_kind_of_storage_applies_and_its_job_uses_it(box: Box, manifest: str, job: str, says: str):
    applied = box.windlass("apply", "-f", str(EXAMPLES / "06-storage" / manifest)).stdout
    assert re.findall(r"^(\w+)[./]", applied, re.MULTILINE) == [
        "persistentvolume",
        "persistentvolumeclaim",
        "job",
    ]
    box.wait_for("its job completes", lambda: box.job_phase(job) == "Completed")
    assert says in box.windlass("logs", job, "--all").stdout


def test_in_two_steps_the_gpu_is_idle_for_less_time(box: Box):
    folder = EXAMPLES / "07-progressive"
    work = ("--", "sh", str(folder / "work.sh"))
    short = ("--env", "PREPARE_SECONDS=6", "--env", "TRAIN_SECONDS=2")
    box.windlass("submit", "--wait", "--gpus", "1", "--name", "whole-1", *short, *work, "prepare", "train")
    box.windlass("submit", "--wait", "--name", "prepare-1", *short, *work, "prepare")
    box.windlass("submit", "--wait", "--gpus", "1", "--name", "steps-1", *short, *work, "train")
    environment = {
        **os.environ,
        **box.environment,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    command = [sys.executable, folder / "gpu_time.py", "whole", "steps"]
    table = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    head, *rows = [re.split(r"  +", line.strip()) for line in table.splitlines()]
    assert head == ["JOBS", "PODS", "GPU HELD", "TRAINED", "GPU IDLE", "IDLE SAVED"]
    idle = {row[0]: int(row[4].removesuffix("s")) for row in rows}
    assert idle["whole"] >= 5
    assert int(rows[1][5].removesuffix("s")) == pytest.approx(idle["whole"] - idle["steps"], abs=1)
    assert idle["steps"] < idle["whole"]


def test_members_train_one_model_and_only_weights_leave_them(box: Box, tmp_path: Path):
    labels = {"metadata": {"labels": {"federation/north": "true", "federation/south": "true"}}}
    with closing(box.client()) as client:
        for node in client.list(NODES).items:
            client.patch(NODES, node["metadata"]["name"], labels)
    program = EXAMPLES / "federated-averaging" / "federated.py"

    def federated(command: str) -> str:
        words = [sys.executable, program, command, tmp_path]
        done = subprocess.run(words, env=box.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    printed = subprocess.run([sys.executable, program, "workflow"], capture_output=True, text=True)
    assert printed.stdout == (program.parent / "workflow.yaml").read_text()
    federated("share")
    found = re.findall(r"images of the (\w+), weights of (\w+): ([\d.]+) %", federated("run"))
    accuracy = {(images, weights): float(text) for images, weights, text in found}
    for member, other in (("north", "south"), ("south", "north")):
        assert accuracy[member, other] < 20  # a model of the other member has not seen these digits
        assert accuracy[member, "all"] > 75
    passed = json.loads(
        box.windlass("workflow", "graph", "federated-averaging", "--artifacts", "-o", "json").stdout
    )["items"]
    assert {one["name"] for one in passed if one["from"] != "(workflow)"} == {"weights"}
    digests = {one["sha256"] for one in passed if one["sha256"]}
    assert len(digests) == 14
    (store,) = (box.state.path / "node/claims").glob("*windlass-artifacts")
    files = [path for path in store.iterdir() if path.is_file()]
    assert {path.name for path in files} >= digests
    data = {
        line
        for member in ("north", "south")
        for name in ("digits.csv", "test.csv")
        for line in (tmp_path / member / name).read_text().split()
    }
    pixels = {tuple(map(float, line.split(",")[:64])) for line in data}
    for path in files:
        with tarfile.open(path) as archive:
            (member,) = [one for one in archive.getmembers() if one.isfile()]
            content = archive.extractfile(member)
            assert content is not None
            text = content.read().decode()
        rows = json.loads(text)
        assert [len(row) for row in rows] == [65] * 10
        assert not any(line in text for line in data)
        assert not any(tuple(row[:64]) in pixels or tuple(16 * w for w in row[:64]) in pixels for row in rows)
    status = box.get("aigcworkflows", "federated-averaging")["status"]
    values = {
        entry["value"]
        for node in status["nodes"].values()
        for entry in (node.get("outputs") or {}).get("parameters") or ()
    }
    assert all(re.fullmatch(r"\d+(\.\d)?", value) for value in values)


def _folder_of(pid: int) -> str:
    """Return the working directory of a process; empty if it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def test_texts_of_a_shop_are_written_once_by_groups_whatever_is_killed(box: Box, tmp_path: Path):
    folder = EXAMPLES / "shop-texts"
    for path in folder.glob("*.py"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    listed = subprocess.run(
        [sys.executable, "products.py", "60"], cwd=tmp_path, capture_output=True, check=True
    )
    (tmp_path / "products.csv").write_bytes(listed.stdout)
    job = (folder / "job.yaml").read_text().replace("/tmp/shop-texts", str(tmp_path))
    job = job.replace("calls.log}", "calls.log, seconds: 0.15}")
    log, text = tmp_path / "calls.log", tmp_path / "texts.csv"
    log.touch()
    box.windlass("apply", "-f", "-", stdin=job)

    def calls() -> list[list[str]]:
        return [line.split() for line in log.read_text().splitlines()]

    box.wait_for("some texts are there", lambda: len(calls()) >= 10)
    workers = [pid for pid in box.processes() if _folder_of(pid) == str(tmp_path)]
    assert all(pid > 1 for pid in workers)
    os.kill(workers[-1], signal.SIGKILL)
    box.wait_for(
        "all texts are there", lambda: box.get("aigcjobs", "shop-texts")["status"]["phase"] == "Succeeded"
    )
    with text.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["id"] for row in rows] == [f"S{number:05}" for number in range(1, 61)]
    assert all(float(row["score"]) >= 90 or row["quality"] == "low" for row in rows)
    made = calls()
    switches = sum(int(call[2]) for call in made)
    assert switches <= 4 * len({call[1] for call in made}) + 8  # input order has about 45
    again = len(made)
    box.windlass("delete", "aigcjob", "shop-texts")
    box.wait_for("the job is gone", lambda: not box.items("aigcjobs"))
    box.windlass("apply", "-f", "-", stdin=job)
    box.wait_for(
        "the second run ends",
        lambda: (box.get("aigcjobs", "shop-texts").get("status") or {}).get("phase") == "Succeeded",
    )
    assert len(calls()) == again
    command = [sys.executable, "naive.py", "products.csv"]
    assert subprocess.run([*command, "--crash-at", "0.5"], cwd=tmp_path).returncode == 3
    assert subprocess.run(command, cwd=tmp_path, check=True).returncode == 0
    naive = [line.split() for line in (tmp_path / "naive.log").read_text().splitlines()]
    assert len(naive) > len(
        made
    )  # how often a text is redone is drawn: a quarter of them, half of them twice
    assert sum(int(call[2]) for call in naive) > 3 * switches
