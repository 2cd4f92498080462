"""One round: load, a fault at a random moment, recovery, and what has to hold afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from chaos_load import Writer, connect, phases, submit
from single_node import Box

from windlass.api.errors import StatusError
from windlass.api.resources import CONFIG_MAPS, PODS
from windlass.client.errors import Unreachable

FAULTS = ("server", "control", "node", "supervisor", "all")
GANGS = 6
FINAL = {"Completed"}


@dataclass
class Outcome:
    """What a round measured. ``problems`` empty means that everything held."""

    seed: int
    fault: str
    after_seconds: float
    recovered_seconds: float = 0.0
    settled_seconds: float = 0.0
    acknowledged: int = 0
    gangs: int = GANGS
    restarts: int = 0
    problems: list[str] = field(default_factory=list)


def run_round(seed: int, fault: str | None = None) -> Outcome:
    """Start a box with 8 simulated GPUs, load it, kill ``fault`` (drawn from the seed if not named), check."""
    rng = random.Random(seed)
    drawn = rng.choice(FAULTS)
    outcome = Outcome(seed, fault or drawn, round(rng.uniform(0.2, 3.0), 2))
    with Box("--gpus", "simulated:8") as box, tempfile.TemporaryDirectory(prefix="windlass-chaos-") as folder:
        evidence = Path(folder)
        writer = Writer(box)
        writer.start()
        submit(box, rng, GANGS, evidence, "gang")
        time.sleep(outcome.after_seconds)
        began = time.monotonic()
        strike(box, outcome.fault)
        recover(box, outcome)
        outcome.recovered_seconds = round(time.monotonic() - began, 2)
        settle(box, outcome)
        writer.stop()
        outcome.settled_seconds = round(time.monotonic() - began, 2)
        check(box, writer, evidence, outcome)
    return outcome


def pids(box: Box) -> dict[str, int]:
    record = json.loads(box.state.supervisor.read_text())
    children = {name: child["pid"] for name, child in record["processes"].items() if child["pid"]}
    return {"supervisor": record["pid"], **children}


def strike(box: Box, fault: str) -> None:
    """SIGKILL the process that ``fault`` names; ``all`` means the supervisor and its three children at once."""
    running = pids(box)
    for name in running if fault == "all" else (fault,):
        try:
            os.kill(running[name], signal.SIGKILL)
        except ProcessLookupError:  # the supervisor's death took it along
            continue


def recover(box: Box, outcome: Outcome) -> None:
    """The supervisor restarts what died; who killed the supervisor starts it again as a user would."""
    if outcome.fault in ("supervisor", "all"):
        box.windlass("up", *box.options, "--detach")
    deadline = time.monotonic() + 60
    while box.windlass("status", "-o", "json", check=False).returncode != 0:
        if time.monotonic() > deadline:
            outcome.problems.append("not ready within 60 s")
            return
        time.sleep(0.1)


def settle(box: Box, outcome: Outcome) -> None:
    """Wait until every gang has ended well."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        now = phases(box)
        if len(now) == GANGS and set(now.values()) <= FINAL:
            return
        partial = partly_placed(box)
        if partial and time.monotonic() + 30 > deadline:
            outcome.problems.append(f"gangs held in part: {partial}")
        time.sleep(0.2)
    outcome.problems.append(f"not settled within 120 s: {phases(box)}\n{box.logs()}")


def partly_placed(box: Box) -> dict[str, str]:
    """Gangs of which some pods have a node and some wait."""
    try:
        with box.client() as client:
            pods = client.list(PODS, "default").items
    except (StatusError, Unreachable):
        return {}
    placed: dict[str, list[bool]] = {}
    for pod in pods:
        job = pod["metadata"].get("labels", {}).get("volcano.sh/job-name")
        if job and pod["status"].get("phase") in ("Pending", "Running"):
            placed.setdefault(job, []).append(bool(pod["spec"].get("nodeName")))
    return {
        job: f"{sum(nodes)} of {len(nodes)}" for job, nodes in placed.items() if any(nodes) and not all(nodes)
    }


def check(box: Box, writer: Writer, evidence: Path, outcome: Outcome) -> None:
    """Nothing acknowledged is lost, versions never ran backwards, nothing was started or given twice."""
    outcome.acknowledged = len(writer.acknowledged)
    with contextlib.closing(connect(box)) as client:
        maps = client.list(CONFIG_MAPS, "default").items
    there = {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in maps}
    lost = {name: version for name, version in writer.acknowledged.items() if there.get(name) != version}
    if lost:
        outcome.problems.append(
            f"acknowledged and lost or changed: {dict(list(lost.items())[:5])} ({len(lost)})"
        )
    versions = list(writer.acknowledged.values())
    if versions != sorted(set(versions)):
        outcome.problems.append("the resourceVersion ran backwards or repeated")
    violations = evidence / "violations"
    if violations.exists():
        outcome.problems.append(f"held twice: {violations.read_text()}")
    starts = (evidence / "starts").read_text().split("\n") if (evidence / "starts").exists() else []
    uids = [line.split()[0] for line in starts if line]
    if len(uids) != len(set(uids)):
        outcome.problems.append("a pod that is never restarted was started twice")
    outcome.restarts = sum(job["status"].get("retryCount", 0) for job in box.items("vcjob"))
    if outcome.restarts:
        outcome.problems.append(
            f"{outcome.restarts} gangs were restarted although no process of theirs was killed"
        )
    if outcome.acknowledged == 0:
        outcome.problems.append("no load: nothing was acknowledged")
