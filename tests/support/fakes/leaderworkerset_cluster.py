"""A LeaderWorkerSet in a :class:`fakeapi.FakeApi`; StatefulSets and garbage collection are played."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from fakeapi import Crash, FakeApi

from windlass.api.defaults.leaderworkerset import leader_worker_set
from windlass.api.fields import leaderworkerset
from windlass.api.owner_references import owner_reference
from windlass.api.resources import LEADER_WORKER_SETS, PODS, SERVICES, STATEFUL_SETS
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.leaderworkerset.controller import LeaderWorkerSetController
from windlass.jobs.leaderworkerset.pods import decorate
from windlass.kits.clock import FakeClock

Json = dict[str, Any]
KEY = "default/llm"


def group_template(image: str = "v1", **more: Any) -> Json:
    containers = [{"name": "c", "image": image, "resources": {"requests": {"cpu": "1"}}}]
    worker = {"spec": {"containers": containers}}
    return {"size": 3, "restartPolicy": leaderworkerset.RECREATE_ON_RESTART, "workerTemplate": worker, **more}


class LeaderWorkerSetWorld:
    """One LeaderWorkerSet with two groups of three pods, and its controller."""

    def __init__(self, **template: Any) -> None:
        self.api = FakeApi(FakeClock())
        self.restart()
        spec = {"replicas": 2, "leaderWorkerTemplate": group_template(**template)}
        obj = {"metadata": {"name": "llm", "namespace": "default"}, "spec": spec}
        leader_worker_set(obj)
        self.api.put(LEADER_WORKER_SETS, obj)

    def restart(self) -> None:
        self.api.crash_after = None
        self.controller = LeaderWorkerSetController(self.api, self.api.clock)  # type: ignore[arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def reconcile(self) -> bool:
        async def once() -> bool:
            effects = await self.controller.reconcile(KEY)
            try:
                outcome = await self.executor.perform(effects)
            except* Crash:
                raise Crash from None
            assert not outcome.failures, outcome.failures
            return bool(effects.stages)

        return asyncio.run(once())

    def settle(self) -> None:
        """Let the controller, garbage collection and the StatefulSets come to rest."""
        for _ in range(100):
            wrote = self.reconcile()
            if not self.collect() and not self.play_sets() and not wrote:
                return
        raise AssertionError("does not settle")

    def collect(self) -> bool:
        """Remove objects of owners that are gone or dying, and dying pods without dependents."""
        pods = {one["metadata"]["uid"]: one for one in self.api.objects(PODS)}
        uids = {one["metadata"]["uid"] for stored in self.api.stored.values() for one in stored.values()}
        gone = []
        for resource in (STATEFUL_SETS, SERVICES, PODS):
            for obj in self.api.objects(resource):
                owners = [one["uid"] for one in obj["metadata"].get("ownerReferences") or ()]
                dying = [
                    uid for uid in owners if "deletionTimestamp" in pods.get(uid, {}).get("metadata", {})
                ]
                if dying or (owners and owners[0] not in uids):
                    gone.append((resource, obj))
        owned = {
            owner["uid"]
            for one in self.api.objects(STATEFUL_SETS)
            for owner in one["metadata"].get("ownerReferences") or ()
        }
        gone += [
            (PODS, pod)
            for uid, pod in pods.items()
            if pod["metadata"].get("deletionTimestamp") and uid not in owned
        ]
        for resource, obj in gone:
            self.api.remove(resource, f"default/{obj['metadata']['name']}")
        return bool(gone)

    def play_sets(self) -> bool:
        return any([self._play_set(found) for found in self.api.objects(STATEFUL_SETS)])

    def _play_set(self, found: Json) -> bool:
        """One step of a StatefulSet: a pod removed, a pod created, or the status."""
        spec, meta = found["spec"], found["metadata"]
        start = (spec.get("ordinals") or {}).get("start", 0)
        names = [f"{meta['name']}-{index}" for index in range(start, start + spec["replicas"])]
        partition = ((spec.get("updateStrategy") or {}).get("rollingUpdate") or {}).get("partition", 0)
        current = spec["template"]["metadata"]["labels"][leaderworkerset.REVISION]
        for pod in self.api.objects(PODS):
            name = pod["metadata"]["name"]
            if pod["metadata"]["ownerReferences"][0]["uid"] != meta["uid"]:
                continue
            old = pod["metadata"]["labels"][leaderworkerset.REVISION] != current
            if name not in names or (old and int(name.rpartition("-")[2]) >= partition):
                self.api.remove(PODS, f"default/{name}")
                return True
        missing = [name for name in names if self.api.object(PODS, f"default/{name}") is None]
        if missing:
            self._create_pod(found, missing[0])
            return True
        if (found.get("status") or {}).get("readyReplicas") != len(names):
            self.api.change(STATEFUL_SETS, f"default/{meta['name']}", status={"readyReplicas": len(names)})
            return True
        return False

    def _create_pod(self, found: Json, name: str) -> None:
        """Create a pod; one below the partition gets the template that its revision has."""
        meta, spec = found["metadata"], found["spec"]
        partition = ((spec.get("updateStrategy") or {}).get("rollingUpdate") or {}).get("partition", 0)
        template = self.first_template if int(name.rpartition("-")[2]) < partition else spec["template"]
        if "ordinals" not in spec and not partition:
            self.first_template = copy.deepcopy(spec["template"])
        pod = copy.deepcopy(template)
        owner = owner_reference(STATEFUL_SETS, meta["name"], meta["uid"])
        pod["metadata"] |= {"name": name, "namespace": "default", "ownerReferences": [owner]}
        pod["spec"]["subdomain"] = spec["serviceName"]
        decorate(pod)
        pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.api.put(PODS, pod)

    def replace_unseen(self, name: str) -> None:
        """A pod is gone and created again before the controller looks."""
        self.api.remove(PODS, f"default/{name}")
        for found in self.api.objects(STATEFUL_SETS):
            self._play_set(found)
        assert self.api.object(PODS, f"default/{name}") is not None

    @property
    def status(self) -> Json:
        found = self.api.object(LEADER_WORKER_SETS, KEY)
        assert found is not None
        return found["status"]

    def conditions(self) -> set[str]:
        return {one["type"] for one in self.status["conditions"] if one["status"] == "True"}

    def uids(self) -> dict[str, str]:
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in self.api.objects(PODS)}

    def images(self) -> dict[str, str]:
        return {
            one["metadata"]["name"]: one["spec"]["containers"][0]["image"] for one in self.api.objects(PODS)
        }

    def change(self, **spec: Any) -> None:
        self.api.change(LEADER_WORKER_SETS, KEY, spec=spec)

    def restart_container(self, name: str) -> None:
        statuses = [{"name": "c", "restartCount": 1}]
        status = {"phase": "Running", "containerStatuses": statuses}
        self.api.change(PODS, f"default/{name}", status=status)
