"""A job of ``kubeflow.org/v1`` in a :class:`fakeapi.FakeApi`, reconciled step by step."""

from __future__ import annotations

from typing import Any

from fakeapi import FakeApi, Words
from vcjob_cluster import KEY, World

from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import PYTORCH_JOBS, Resource
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import Effects
from windlass.controllers.kubeflow.controller import KubeflowController
from windlass.jobs.kubeflow.kinds import KINDS
from windlass.kits.clock import FakeClock
from windlass.kits.ssh_keys import SshKeyPair

Json = dict[str, Any]
KEYS = SshKeyPair("private", "public")


def replica(replicas: int = 1, container: str = "pytorch", **more: Any) -> Json:
    containers = [{"name": container, "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    return {"replicas": replicas, "template": {"spec": {"containers": containers}}, **more}


def kubeflow_job(resource: Resource = PYTORCH_JOBS, run: Json | None = None, **roles: Json) -> Json:
    spec: Json = {FIELDS[resource].field: roles}
    if run is not None:
        spec["runPolicy"] = run
    return {"metadata": {"name": "train"}, "spec": spec}


class KubeflowWorld(World):
    """One job, its controller and everything else around it, played by the test."""

    def __init__(self, manifest: Json, resource: Resource = PYTORCH_JOBS) -> None:
        self.api = FakeApi(FakeClock())
        self.words = Words()
        self.resource = resource
        self.last = Effects()
        self.restart()
        self.api.put(resource, manifest)

    def restart(self) -> None:
        """The process died; a new one starts from what is stored."""
        self.api.crash_after = None
        kind = KINDS[self.resource]
        self.controller = KubeflowController(kind, self.api, self.api.clock, "volcano", lambda: KEYS)  # type: ignore[assignment,arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    @property
    def job(self) -> Json:
        found = self.api.object(self.resource, KEY)
        assert found is not None
        return found

    @property
    def phase(self) -> str:
        """The newest condition, as the printer column shows it."""
        conditions = self.status.get("conditions") or [{}]
        return conditions[-1].get("type", "")

    @property
    def group_key(self) -> str:
        return KEY

    def change_run_policy(self, **fields: Any) -> None:
        spec = self.job["spec"]
        self.api.change(
            self.resource, KEY, spec={**spec, "runPolicy": {**spec.get("runPolicy", {}), **fields}}
        )
