"""Restarts of a JobSet in place: counters, the limit, recreation where a pod cannot restart, crashes."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from example_counts import examples
from fakeapi import Crash
from hypothesis import given, settings
from hypothesis import strategies as st
from jobset_cluster import JobSetWorld, job_set, replicated

from windlass.api import annotations as names
from windlass.api.fields import jobset
from windlass.api.resources import BATCH_JOBS, PODS

Json = dict[str, Any]


class InPlaceWorld(JobSetWorld):
    """A JobSet of three pods. The test plays the Jobs and the agents of the nodes."""

    def __init__(self, most: int = 3) -> None:
        policy = {"maxRestarts": most, "restartStrategy": "InPlaceRestart"}
        super().__init__(job_set(replicated("a", pods=2), replicated("b"), failurePolicy=policy))
        self.settle()
        self.create_pods()

    def create_pods(self) -> None:
        """Create the pods that the Jobs lack, as their controller does."""
        present = {pod["metadata"]["name"] for pod in self.api.objects(PODS)}
        for job in self.api.objects(BATCH_JOBS):
            template = job["spec"]["template"]
            for index in range(job["spec"]["parallelism"]):
                name = f"{job['metadata']['name']}-{index}"
                if name not in present:
                    metadata = {**copy.deepcopy(template["metadata"]), "name": name, "namespace": "default"}
                    spec = {"containers": [{"name": "main"}]}
                    self.api.put(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})

    def pods(self) -> dict[str, Json]:
        return {pod["metadata"]["name"]: pod for pod in self.api.objects(PODS)}

    def report(self, name: str) -> None:
        """The containers of a pod were stopped: its agent writes the next attempt."""
        pod = self.api.object(PODS, f"default/{name}")
        current = self.status.get("currentInPlaceRestartAttempt")
        attempt = 0 if current is None else current + 1
        assert pod is not None
        notes = {**(pod["metadata"].get("annotations") or {}), jobset.IN_PLACE_ATTEMPT: str(attempt)}
        self.api.change(PODS, f"default/{name}", metadata={"annotations": notes})

    def follow(self) -> None:
        """All agents do what the status of the JobSet asks for, until nothing changes."""
        for _ in range(6):
            self.settle()
            self.create_pods()
            previous = self.status.get("previousInPlaceRestartAttempt", -1)
            for name, pod in self.pods().items():
                text = pod["metadata"]["annotations"].get(jobset.IN_PLACE_ATTEMPT)
                if pod["status"]["phase"] == "Running" and (text is None or int(text) <= previous):
                    self.report(name)
            if self.condition("Failed"):
                return

    def remove_former_pods(self) -> None:
        """The pods of deleted Jobs are gone."""
        jobs = {f"js-{name}" for name in self.jobs()}
        restarts = str(self.status["restarts"])
        for name, pod in self.pods().items():
            labels = pod["metadata"]["labels"]
            if name.rpartition("-")[0] not in jobs or labels[jobset.RESTART_ATTEMPT] != restarts:
                self.api.remove(PODS, f"default/{name}")

    def counters(self) -> tuple[int | None, int | None, int]:
        status = self.status
        return (
            status.get("previousInPlaceRestartAttempt"),
            status.get("currentInPlaceRestartAttempt"),
            status["restarts"],
        )

    def attempts(self) -> set[str]:
        return {
            pod["metadata"]["annotations"].get(jobset.IN_PLACE_ATTEMPT, "") for pod in self.pods().values()
        }


def test_pods_are_told_that_they_restart_in_place_unless_it_is_disabled():
    world = InPlaceWorld()
    assert {pod["metadata"]["annotations"][names.RESTART_IN_PLACE] for pod in world.pods().values()} == {"js"}
    manifest = job_set(replicated("a"), failurePolicy={"restartStrategy": "InPlaceRestart"})
    manifest["metadata"]["annotations"] = {jobset.DISABLE_IN_PLACE: ""}
    disabled = JobSetWorld(manifest)
    disabled.settle()
    template = disabled.job("a-0")["spec"]["template"]["metadata"]
    assert names.RESTART_IN_PLACE not in template["annotations"]


def test_one_failure_restarts_all_pods_until_the_limit():
    world = InPlaceWorld(most=2)
    world.follow()
    assert world.counters() == (None, 0, 0)
    assert world.attempts() == {"0"}
    for attempt in (1, 2):
        world.report("js-a-0-1")
        world.follow()
        assert world.counters() == (attempt - 1, attempt, 0)
        assert world.attempts() == {str(attempt)}
    assert world.words.reasons()[-4:] == ["InPlaceRestart", "InPlaceRestarted"] * 2
    world.report("js-b-0-0")
    world.follow()
    assert world.condition("Failed") == "True/ReachedMaxRestarts"


def test_pod_that_its_job_replaced_restarts_the_others():
    world = InPlaceWorld()
    world.follow()
    pod = world.pods()["js-b-0-0"]
    world.api.change(PODS, "default/js-b-0-0", status={**pod["status"], "phase": "Failed"})
    world.settle()
    assert world.counters() == (None, 0, 0)
    world.api.remove(PODS, "default/js-b-0-0")
    world.follow()
    assert world.counters() == (0, 1, 0)
    assert world.attempts() == {"1"}


def test_pod_that_has_succeeded_makes_the_jobs_start_again():
    world = InPlaceWorld()
    world.follow()
    pod = world.pods()["js-b-0-0"]
    world.api.change(PODS, "default/js-b-0-0", status={**pod["status"], "phase": "Succeeded"})
    world.settle()
    world.report("js-a-0-0")
    world.settle()
    assert world.condition("RestartingJobSet") == "True/InPlaceRestartNotPossible"
    assert world.status["restarts"] == 1
    world.remove_former_pods()
    world.follow()
    assert world.counters()[1:] == (1, 1)
    assert world.attempts() == {"1"}
    assert not world.condition("Failed")


@settings(max_examples=examples(40), deadline=None)
@given(
    history=st.lists(
        st.tuples(st.integers(0, 2), st.booleans(), st.lists(st.integers(0, 4), max_size=3)), max_size=4
    )
)
def test_crashes_change_nothing(history):
    calm, stormy = InPlaceWorld(), InPlaceWorld()
    for world in (calm, stormy):
        world.follow()
    for index, replaced, crashes in history:
        for world in (calm, stormy):
            name = sorted(world.pods())[index] if len(world.pods()) == 3 else ""
            if name and replaced:
                world.api.remove(PODS, f"default/{name}")
                world.create_pods()
            if name:
                world.report(name)
        for writes in crashes:
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.reconcile()
            stormy.restart()
        calm.follow()
        stormy.follow()
        assert stormy.counters() == calm.counters()
        assert stormy.attempts() == calm.attempts()
        assert stormy.condition("Failed") == calm.condition("Failed")
