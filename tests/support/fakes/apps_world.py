"""Objects of ``apps/v1`` in a :class:`fakeapi.FakeApi`, with their controllers and a kubelet."""

from __future__ import annotations

import asyncio
import copy
import random
from typing import Any

from fakeapi import Crash, FakeApi, Words

from windlass.api import defaults
from windlass.api.resources import (
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.apps.catalogue import apps_controllers
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
KINDS = {
    "replicaset": REPLICA_SETS,
    "deployment": DEPLOYMENTS,
    "statefulset": STATEFUL_SETS,
    "daemonset": DAEMON_SETS,
}


def template(text: str = "v1", labels: Json | None = None, **spec: Any) -> Json:
    container = {"name": "main", "image": f"app:{text}"}
    return {"metadata": {"labels": labels or {"app": "web"}}, "spec": {"containers": [container], **spec}}


def workload(name: str = "web", text: str = "v1", **spec: Any) -> Json:
    body: Json = {"selector": {"matchLabels": {"app": name}}, "template": template(text, {"app": name})}
    return {"metadata": {"name": name}, "spec": {**body, **spec}}


class AppsWorld:
    """Controllers of ``apps/v1`` on a fake API. The test plays users and kubelet."""

    def __init__(self, *objects: tuple[Resource, Json], nodes: int = 0) -> None:
        self.api = FakeApi(FakeClock())
        self.words = Words()
        self.due: float | None = None
        """Delay that the last reconciliation asked for."""
        self._incarnation = 0
        self.restart()
        for number in range(nodes):
            self.add_node(f"n{number}")
        for resource, obj in objects:
            self.add(resource, obj)

    def restart(self) -> None:
        """The process died; a new one starts from what is stored."""
        self.api.crash_after = None
        self._incarnation += 1
        rng = random.Random(self._incarnation)
        found = apps_controllers(self.api, self.api.clock, rng)  # type: ignore[arg-type]
        self.controllers: dict[str, Any] = {one.name: one for one in found}
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def add(self, resource: Resource, obj: Json) -> Json:
        obj = copy.deepcopy(obj)
        defaults.apply(resource, obj)
        return self.api.put(resource, obj)

    def add_node(self, name: str, labels: Json | None = None, taints: list[Json] | None = None) -> None:
        self.api.put(
            NODES,
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
                "spec": {"taints": taints} if taints else {},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            },
        )

    def change_spec(self, resource: Resource, name: str, **fields: Any) -> None:
        """Change the spec as a user does: the generation grows."""
        obj = self.get(resource, name)
        spec = {**obj["spec"], **fields}
        self.api.change(
            resource, f"default/{name}", spec=spec, metadata={"generation": obj["metadata"]["generation"] + 1}
        )

    def set_image(self, resource: Resource, name: str, text: str) -> None:
        spec = self.get(resource, name)["spec"]
        changed = copy.deepcopy(spec["template"])
        changed["spec"]["containers"][0]["image"] = f"app:{text}"
        self.change_spec(resource, name, template=changed)

    def pass_time(self, seconds: float) -> None:
        asyncio.run(self.api.clock.advance(seconds))

    # Controllers.

    def reconcile(self, kind: str, key: str) -> bool:
        """Reconcile one key. Returns whether something was written."""

        async def once() -> bool:
            controller = self.controllers[kind]
            effects = await controller.reconcile(key)
            outcome = await self.executor.perform(effects)
            for event in (*effects.events, *outcome.events):
                self.words.event(event.about, event.type, event.reason, event.message)
            if hasattr(controller, "note_failures"):
                controller.note_failures(key, outcome.failures)
            self.due = effects.requeue_after
            return bool(effects.stages)

        try:
            return asyncio.run(once())
        except BaseExceptionGroup as group:
            raise Crash from group

    def round(self) -> int:
        """Reconcile every object once. Returns the number of objects with writes."""
        written = 0
        for kind in self.controllers:
            for key in list(self.api.stored.get(KINDS[kind], {})):
                written += self.reconcile(kind, key)
        return written

    def settle(self, limit: int = 60) -> None:
        """Reconcile until nothing is written any more."""
        for _ in range(limit):
            if not self.round():
                return
        raise AssertionError("does not settle")

    def finish(self, limit: int = 120) -> None:
        """Let controllers and kubelet work until both have nothing to do."""
        for _ in range(limit):
            if not self.round() + self.kubelet():
                return
        raise AssertionError("does not finish")

    # The kubelet.

    def kubelet(self, most: int = 1000, *, ready: bool = True) -> int:
        """Remove deleted pods and run waiting ones. Returns the number of changes."""
        before = len(self.pods())
        self.api.finish_deletions()
        done = before - len(self.pods())
        for pod in self.pods():
            if done >= most:
                break
            if (pod.get("status") or {}).get("phase", "Pending") == "Pending":
                self.run(pod["metadata"]["name"], ready=ready)
                done += 1
        return done

    def run(self, name: str, *, ready: bool = True) -> None:
        """Let a pod run on its node, or on one of its own."""
        pod = self.api.stored[PODS][f"default/{name}"]
        node = pod["spec"].get("nodeName") or _wanted_node(pod) or f"node-{name}"
        moment = rfc3339(self.api.clock.now())
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "lastTransitionTime": moment,
        }
        self.api.change(
            PODS,
            f"default/{name}",
            spec={"nodeName": node},
            status={"phase": "Running", "conditions": [condition]},
        )

    def end(self, name: str, phase: str = "Failed") -> None:
        self.api.change(PODS, f"default/{name}", status={"phase": phase, "conditions": []})

    # Looking.

    def get(self, resource: Resource, name: str) -> Json:
        found = self.api.object(resource, f"default/{name}")
        assert found is not None, f"{resource.kind} {name} does not exist"
        return copy.deepcopy(found)

    def pods(self, **labels: str) -> list[Json]:
        return [
            pod
            for pod in self.api.objects(PODS)
            if labels.items() <= (pod["metadata"].get("labels") or {}).items()
        ]

    def sets(self) -> list[Json]:
        """ReplicaSets, the oldest revision first."""
        found = self.api.objects(REPLICA_SETS)
        return sorted(found, key=lambda one: int(one["metadata"]["annotations"][REVISION]))

    def images(self) -> list[str]:
        """Images of the pods that are not deleted, sorted."""
        return sorted(
            pod["spec"]["containers"][0]["image"].removeprefix("app:")
            for pod in self.pods()
            if not pod["metadata"].get("deletionTimestamp")
        )

    def conditions(self, resource: Resource, name: str) -> dict[str, tuple[str, str]]:
        status = self.get(resource, name).get("status") or {}
        return {one["type"]: (one["status"], one.get("reason", "")) for one in status.get("conditions") or ()}

    def revisions(self) -> list[Json]:
        found = self.api.objects(CONTROLLER_REVISIONS)
        return sorted(found, key=lambda one: one["revision"])


REVISION = "deployment.kubernetes.io/revision"


def _wanted_node(pod: Json) -> str:
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in affinity.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            return field["values"][0]
    return ""
