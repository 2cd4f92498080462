"""A ``batch/v1`` Job in a :class:`fakeapi.FakeApi`, reconciled step by step."""

from __future__ import annotations

from typing import Any

from fakeapi import FakeApi, Words
from vcjob_cluster import KEY, World

from windlass.api import defaults
from windlass.api.fields.batch import COMPLETION_INDEX
from windlass.api.resources import BATCH_JOBS, PODS
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.batch.controller import BatchJobController
from windlass.controllers.effects import Effects
from windlass.kits.clock import FakeClock
from windlass.kits.rng import seeded

Json = dict[str, Any]


def batch_job(restart: str = "Never", **spec: Any) -> Json:
    pod = {"restartPolicy": restart, "containers": [{"name": "main", "image": "i"}]}
    return {"metadata": {"name": "train"}, "spec": {"template": {"spec": pod}, **spec}}


def batch_object(restart: str = "Never", **spec: Any) -> Json:
    """Return a Job as the server stores it."""
    obj = batch_job(restart, **spec)
    obj["metadata"].update(namespace="default", uid="u")
    defaults.apply(BATCH_JOBS, obj)
    return obj


class BatchWorld(World):
    """One Job, its controller and everything else around it, played by the test."""

    def __init__(self, restart: str = "Never", **spec: Any) -> None:
        self.api = FakeApi(FakeClock())
        self.words = Words()
        self.last = Effects()
        self.restart()
        self.api.put(BATCH_JOBS, batch_object(restart, **spec))

    def restart(self) -> None:
        """The process died; a new one starts from what is stored."""
        self.api.crash_after = None
        self.controller = BatchJobController(self.api, self.api.clock, seeded(len(self.api.log)))  # type: ignore[assignment,arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    @property
    def job(self) -> Json:
        found = self.api.object(BATCH_JOBS, KEY)
        assert found is not None
        return found

    def conditions(self) -> list[tuple[str, str]]:
        """Return type and reason of the conditions that hold."""
        found = self.status.get("conditions") or ()
        return [(one["type"], one["reason"]) for one in found if one["status"] == "True"]

    def counts(self) -> tuple[int, int, int, int]:
        """Return active, terminating, succeeded and failed pods by the status."""
        names = ("active", "terminating", "succeeded", "failed")
        active, terminating, succeeded, failed = (self.status.get(name, 0) for name in names)
        return active, terminating, succeeded, failed

    def unfinished(self) -> list[str]:
        """Return the names of pods that are neither finished nor being deleted, by index and age."""
        found = [
            pod
            for pod in self.api.objects(PODS)
            if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
            and not pod["metadata"].get("deletionTimestamp")
        ]
        found.sort(key=lambda pod: (self.index(pod), int(pod["metadata"]["uid"].removeprefix("uid-"))))
        return [pod["metadata"]["name"] for pod in found]

    @staticmethod
    def index(pod: Json) -> int:
        return int((pod["metadata"].get("annotations") or {}).get(COMPLETION_INDEX, -1))

    def change_spec(self, **fields: Any) -> None:
        self.api.change(BATCH_JOBS, KEY, spec=fields)
