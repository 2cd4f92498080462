"""An AIGCJob in a :class:`fakeapi.FakeApi`, reconciled step by step. The test plays scheduler, node and driver."""

from __future__ import annotations

import copy
from typing import Any

from fakeapi import FakeApi, Words
from vcjob_cluster import KEY, World

from windlass.api.annotations import JOB_RECORD
from windlass.api.resources import (
    AIGC_JOBS,
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
    SECRETS,
    SERVICES,
)
from windlass.client.batch_driver import DriverUnreachable
from windlass.controllers.aigc.controller import AigcJobController
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import Effects
from windlass.jobs.aigc.pods import BatchPlatform
from windlass.jobs.aigc.storage import OutputsClaim
from windlass.kits.clock import FakeClock

Json = dict[str, Any]


def aigc_job(gpus: int = 1, annotations: Json | None = None, **spec: Any) -> Json:
    given: Json = {name: value for name, value in {"replicas": 2, **spec}.items() if value is not None}
    if gpus:
        given["resources"] = {"requests": {"nvidia.com/gpu": gpus}, "limits": {"memory": "16Gi"}}
    return {"metadata": {"name": "train", "annotations": annotations or {}}, "spec": given}


class FakeDriver:
    """Driver that answers with :attr:`status`; ``None``: it does not answer."""

    def __init__(self) -> None:
        self.status: Json | None = {"items": {"total": 10, "done": 0}}
        self.asked: list[tuple[str, str, int, str]] = []
        self.ends: list[str] = []

    def __call__(self, namespace: str, pod: str, address: str, port: int, token: str) -> FakeDriver:
        self.asked.append((namespace, pod, port, token))
        return self

    def get(self, path: str) -> Json:
        assert path.partition("?")[0] == "/v1/status"
        if self.status is None:
            raise DriverUnreachable("no answer")
        return self.status

    def post(self, path: str, body: Json) -> Json:
        assert path == "/v1/end"
        if self.status is None:
            raise DriverUnreachable("no answer")
        self.ends.append(body["message"])
        return {"ended": True}


class AigcWorld(World):
    """One AIGCJob, its controller and everything else around it."""

    def __init__(self, manifest: Json, claim: OutputsClaim | None = None) -> None:
        self.api = FakeApi(FakeClock())
        self.claim = claim
        self.words = Words()
        self.last = Effects()
        self.driver = FakeDriver()
        self.restart()
        self.api.put(AIGC_JOBS, manifest)

    def restart(self) -> None:
        """The process died; a new one starts from what is stored."""
        self.api.crash_after = None
        api: Any = self.api
        platform = BatchPlatform(python="/usr/bin/python3", outputs="/srv/outputs", claim=self.claim)
        self.controller = AigcJobController(  # type: ignore[assignment]
            api,
            api,
            self.api.clock,
            "volcano",
            self.driver,  # type: ignore[arg-type]
            platform,
            lambda: "secret",
        )
        self.executor = EffectExecutor(api)

    @property
    def job(self) -> Json:
        found = self.api.object(AIGC_JOBS, KEY)
        assert found is not None
        return found

    @property
    def phase(self) -> str:
        return self.status.get("phase", "")

    @property
    def group_key(self) -> str:
        return KEY

    def change_spec(self, **fields: Any) -> None:
        self.api.change(AIGC_JOBS, KEY, spec=fields)

    def annotate(self, notes: Json) -> None:
        self.api.change(AIGC_JOBS, KEY, metadata={"annotations": notes})

    def settle(self, limit: int = 40) -> int:
        """Reconcile until nothing changes; deletions finish and the group is admitted in between."""
        for count in range(limit):
            self.api.finish_deletions()
            if self.group is not None and not (self.group.get("status") or {}).get("phase"):
                self.admit()
            self.reconcile()
            if not self.last.stages:
                return count
        raise AssertionError(f"still busy after {limit} looks: {self.last}")

    def begin(self, *, workers: bool = True) -> None:
        """Bring the job to the point where its pods run."""
        self.settle()
        self.run(*(name for name in self.pods() if name.endswith("driver")))
        self.settle()
        if workers:
            self.run()
            self.settle()


def picture(world: AigcWorld) -> Any:
    """Return what is stored, without names that depend on how many objects were ever created."""

    def plain(obj: Any) -> Any:
        kept = copy.deepcopy(obj)
        for field in ("uid", "resourceVersion", "creationTimestamp"):
            kept["metadata"].pop(field, None)
        return kept

    kinds = (PODS, POD_GROUPS, SERVICES, CONFIG_MAPS, SECRETS, PERSISTENT_VOLUME_CLAIMS)
    found = {kind.plural: sorted(map(plain, world.api.objects(kind)), key=str) for kind in kinds}
    record = (world.job["metadata"].get("annotations") or {}).get(JOB_RECORD)
    return world.status, record, found
