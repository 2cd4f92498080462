"""Interruptions of jobs of every kind on one box: preemption of the gang, suspension, failing ranks.

All jobs of :mod:`job_matrix` run at the same time and go through the same stages. The
tests depend on each other in their order.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from job_matrix import CONNECT, FAMILIES, MPI, OBJECTS, Family
from single_node import Box

from windlass.api.annotations import JOB_ATTEMPTS, QUEUED_SINCE
from windlass.api.resources import BATCH_JOBS
from windlass.jobs.attempt_records import read_ledger

Json = dict[str, Any]
SECONDS = 120.0
"""Limit of each stage. Kubernetes delays new pods of a Job, so some stages take half a minute."""
pytestmark = pytest.mark.timeout(400)


class Matrix:
    """The jobs on a box, and the lines that their ranks write."""

    def __init__(self, box: Box, folder: Path, families: tuple[Family, ...]) -> None:
        self.box, self.folder, self.families = box, folder, families
        self.gpus = 2 * len(families)
        self._marks: dict[str, int] = {}

    def apply(self, *objects: Json) -> None:
        self.box.windlass("apply", "-f", "-", stdin="\n---\n".join(map(json.dumps, objects)))

    def _lines(self, family: Family) -> list[str]:
        path = self.folder / f"{family.name}.log"
        return path.read_text().splitlines() if path.exists() else []

    def mark(self) -> None:
        """Count only later lines as a world."""
        self._marks = {family.name: len(self._lines(family)) for family in self.families}

    def worlds(self) -> dict[str, set[str]]:
        """Return family → rank, size and host of each rank since the mark."""
        return {
            family.name: set(self._lines(family)[self._marks.get(family.name, 0) :])
            for family in self.families
        }

    def wait_for_worlds(self, what: str, families: tuple[Family, ...] | None = None) -> dict[str, set[str]]:
        """Wait until both ranks of each family have joined since the mark."""
        names = [family.name for family in families or self.families]

        def whole() -> bool:
            worlds = self.worlds()
            return all(len({line.split()[0] for line in worlds[name]}) == 2 for name in names)

        try:
            self.box.wait_for(what, whole, SECONDS)
        except AssertionError as error:
            late = {name: sorted(world) for name, world in self.worlds().items() if len(world) < 2}
            raise AssertionError(f"{what}: ranks that joined: {late}\n{error}") from error
        return self.worlds()

    def pods(self, family: Family) -> list[Json]:
        return [
            pod for pod in self.box.items("pods") if pod["metadata"]["name"].startswith(f"{family.name}-")
        ]

    def job(self, family: Family) -> Json:
        resource = family.resource
        return self.box.get("job.batch" if resource is BATCH_JOBS else resource.plural, family.name)

    def since(self) -> dict[str, str]:
        """Return family → time from which its PodGroup counts in the order of its queue."""
        found = {}
        groups = self.box.items("podgroups") + self.box.items("podgroups.v1alpha2.scheduling.k8s.io")
        for group in groups:
            metadata = group["metadata"]
            queued = (metadata.get("annotations") or {}).get(QUEUED_SINCE)
            since = min(filter(None, (queued, metadata["creationTimestamp"])))
            for family in self.families:
                if metadata["name"].startswith(family.name):
                    found[family.name] = since
        return found

    def causes(self, family: Family) -> list[str]:
        """Return the cause of the end of each attempt; empty for one that has not ended."""
        annotations = self.job(family)["metadata"].get("annotations") or {}
        return [one.cause for one in read_ledger(annotations.get(JOB_ATTEMPTS)).attempts]

    def wait_for_causes(self, families: tuple[Family, ...], wanted: list[str]) -> None:
        """Wait until the attempts of each family are recorded, which is later than its ranks run."""

        def recorded() -> bool:
            found = {family.name: self.causes(family) for family in families}
            return all(causes == wanted for causes in found.values())

        try:
            self.box.wait_for(f"attempts end by {wanted}", recorded)
        except AssertionError as error:
            found = {family.name: self.causes(family) for family in families}
            raise AssertionError(f"{found}\n{error}") from error

    def fail(self, code: str) -> None:
        """Let rank 1 of each job end with its exit code."""
        for family in self.families:
            path = self.folder / f"{family.name}.fail-1"
            path.with_suffix(".new").write_text(str(getattr(family, code)))
            path.with_suffix(".new").rename(path)

    def condition(self, family: Family) -> str:
        """Return the type of the last true condition; the phase of a Volcano Job."""
        status = self.job(family).get("status") or {}
        if "state" in status:
            return status["state"].get("phase", "")
        true = [one["type"] for one in status.get("conditions") or () if one["status"] == "True"]
        return true[-1] if true else ""


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    folder = tmp_path_factory.mktemp("matrix")
    (folder / "connect.py").write_text(CONNECT)
    (folder / "mpi.py").write_text(MPI)
    families = tuple(one for one in FAMILIES if not one.mpi or shutil.which("mpirun"))
    with Box("--gpus", f"simulated:{2 * len(families)}") as box:
        yield Matrix(box, folder, families)


def test_the_ranks_of_every_kind_meet(matrix: Matrix) -> None:
    matrix.apply(*OBJECTS, *(family.manifest(matrix.folder) for family in matrix.families))
    for name, world in matrix.wait_for_worlds("all ranks meet").items():
        assert {line.split()[1] for line in world} == {"2"}, name


def test_preempted_gangs_come_back_whole_with_their_ranks_and_their_age(matrix: Matrix) -> None:
    before, since = matrix.worlds(), matrix.since()
    jobs = {family.name: matrix.job(family)["metadata"]["uid"] for family in matrix.families}
    assert since.keys() == jobs.keys()
    matrix.mark()
    flags = ["--gpus", str(matrix.gpus), "--name", "urgent", "--priority", "high-priority"]
    matrix.box.windlass("submit", *flags, "--", "sleep", "600")
    matrix.box.wait_for(
        "the urgent job runs",
        lambda: any(
            pod["metadata"]["name"] == "urgent-main-0" and pod["status"].get("phase") == "Running"
            for pod in matrix.box.items("pods")
        ),
    )
    matrix.box.windlass("cancel", "urgent")
    assert matrix.wait_for_worlds("all gangs come back") == before
    later = {name: (time, since[name]) for name, time in matrix.since().items() if time > since[name]}
    assert not later, "gangs that lost their place in the queue"
    assert {family.name: matrix.job(family)["metadata"]["uid"] for family in matrix.families} == jobs
    families = tuple(family for family in matrix.families if family.failed)
    matrix.wait_for_causes(families, ["preemption", ""])


def test_suspended_jobs_give_their_gpus_back_and_come_back_after_the_resume(matrix: Matrix) -> None:
    before = matrix.worlds()
    families = tuple(family for family in matrix.families if family.failed)
    names = [family.name for family in families]
    endless = [family.name for family in matrix.families if not family.failed]
    for name in endless:
        refused = matrix.box.windlass("suspend", name, check=False)
        assert refused.returncode != 0
        assert f"windlass scale {name} 0" in refused.stderr
    matrix.mark()
    matrix.box.windlass("suspend", *names)
    matrix.box.wait_for("no pod is left", lambda: not any(map(matrix.pods, families)))
    for name in endless:
        matrix.box.windlass("scale", name, "0")
    flags = ["--gpus", str(matrix.gpus), "--name", "all-gpus"]
    matrix.box.windlass("run", *flags, "--", "true")

    def stopped() -> bool:
        shown = json.loads(matrix.box.windlass("ps", "-o", "json").stdout)["items"]
        states = {one["name"]: one["state"] for one in shown}
        return {states[name] for name in names} <= {"Suspended", "Aborted"}

    matrix.box.wait_for("all are shown as suspended", stopped)
    for name in endless:
        matrix.box.windlass("scale", name, "1")
    matrix.box.windlass("resume", *names)
    assert matrix.wait_for_worlds("all jobs come back") == before
    matrix.wait_for_causes(families, ["preemption", "user", ""])


def test_a_failing_rank_is_restarted_by_the_policy_of_its_kind(matrix: Matrix) -> None:
    before = matrix.worlds()
    again = [family for family in matrix.families if family.anew]
    matrix.mark()
    for family in again:
        matrix.box.windlass("cancel", family.name)
    matrix.box.wait_for("their pods are gone", lambda: not any(map(matrix.pods, again)))
    matrix.apply(*OBJECTS, *(family.manifest(matrix.folder) for family in again))
    matrix.wait_for_worlds("new jobs start", tuple(again))
    matrix.mark()
    matrix.fail("first")
    assert matrix.wait_for_worlds("failed ranks come back") == before
    matrix.box.wait_for(
        "all jobs run",
        lambda: {matrix.condition(family) for family in matrix.families} <= {"Running", "Available", ""},
    )


def test_a_rank_that_fails_again_ends_each_job_with_its_cause(matrix: Matrix) -> None:
    matrix.fail("last")

    def ended() -> bool:
        return all(matrix.condition(family) == family.failed for family in matrix.families if family.failed)

    try:
        matrix.box.wait_for("the jobs fail", ended, SECONDS)
    except AssertionError as error:
        states = {family.name: matrix.condition(family) for family in matrix.families}
        raise AssertionError(f"{states}\n{error}") from error

    def causes() -> dict[str, str]:
        return {one.name: matrix.causes(one)[-1] for one in matrix.families if one.failed}

    matrix.box.wait_for("the cause is recorded", lambda: set(causes().values()) == {"program"})
    for family in matrix.families:
        if family.failed:
            assert "program: " in matrix.box.windlass("show", family.name).stdout, family.name
    for one in matrix.families:
        if not one.failed:
            matrix.box.wait_for("the group is whole", lambda one=one: matrix.condition(one) == "Available")
