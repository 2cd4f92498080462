"""Claims for devices through model and engine: what is written of them, as the API server would show it then."""

from __future__ import annotations

import copy
from typing import Any

from claimobjects import claim, claimer, device, device_class, devices_of
from kubeobjects import node

from windlass.api import views
from windlass.engine import deltas
from windlass.engine.config import EngineConfig
from windlass.engine.decision import Bind
from windlass.engine.engine import Engine
from windlass.engine.invariants import check, check_decision
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.plugins.defaults import default_plugins

NOW = 1_767_268_800.0
GPU, NIC = "gpu.example.com", "nic.example.com"
ROOT = "resource.kubernetes.io/pcieRoot"
Results = list[tuple[str, str]]


class ClaimScene:
    """Nodes whose drivers list devices, pods that name a claim each, and the scheduler."""

    def __init__(self, *actions: str) -> None:
        """``actions``: of the scheduler, where not the usual ones."""
        self.model = ClusterModel(["windlass"])
        config = EngineConfig(actions=actions) if actions else EngineConfig()
        self.engine = Engine(config, default_plugins())
        self.now = NOW
        self.claims: dict[str, dict[str, Any]] = {}
        self.words: dict[str, dict[str, str]] = {}
        self.priorities: dict[str, int] = {}
        self.evicted: list[str] = []
        """Pods that were asked to go, in the last cycle."""
        for name in (GPU, NIC):
            self.model.features.claims.upsert(
                views.decode_device_class(views.encode(device_class(name, name)))
            )

    def node(self, name: str, *slices: dict[str, Any]) -> None:
        self.model.objects.upsert_node(views.decode_node(views.encode(node(name, gpus=0))))
        for one in slices:
            self.model.features.claims.upsert(views.decode_resource_slice(views.encode(one)))

    def ask(self, name: str, *requests: dict[str, Any], priority: int = 0, **spec: Any) -> None:
        """A pod, and the claim that it names."""
        self.priorities[name] = priority
        self._claim(claim(f"claim-{name}", *requests, **spec))
        self._pod(name)

    def _claim(self, obj: dict[str, Any]) -> None:
        self.claims[obj["metadata"]["name"]] = obj
        self.model.features.claims.upsert(views.decode_device_claim(views.encode(obj)))

    def _pod(self, name: str, where: str = "") -> None:
        fields: dict[str, Any] = {"node": where, "annotations": self.words[name]} if where else {}
        fields["priority"] = self.priorities.get(name, 0)
        self.model.objects.upsert_pod(
            views.decode_pod(views.encode(claimer(name, claim=f"claim-{name}", **fields)))
        )

    def decide(self) -> dict[str, tuple[str, Results]]:
        """One cycle, written and seen: pod → its node, and request and device of each result of its claim."""
        self.now += 1
        self.engine.apply(self.model.take(self.now))
        decision = self.engine.cycle(self.now)
        check(self.engine)
        check_decision(self.engine, decision)
        self.evicted = [eviction.task.partition("/")[2] for eviction in decision.evictions]
        for bind in decision.binds:
            self.model.binds.assume(bind)
        return {bind.task.partition("/")[2]: (bind.node, self._write(bind)) for bind in decision.binds}

    def _write(self, bind: Bind) -> Results:
        name = bind.task.partition("/")[2]
        obj = copy.deepcopy(self.claims[f"claim-{name}"])
        for write in self.model.writes.claim_writes(bind, self.now):
            if write.subresource:
                status: Any = write.body["status"]
                obj["status"] = {key: value for key, value in status.items() if value is not None}
        self.words[name] = self.model.writes.annotations(bind, self.now)
        self._claim(obj)
        self._pod(name, bind.node)
        self.model.binds.forget(bind.task, bind.uid)
        self.engine.apply(self.model.take(self.now))
        check(self.engine)
        return [(one["request"], one["device"]) for one in obj["status"]["allocation"]["devices"]["results"]]

    def end(self, name: str) -> None:
        """The pod is gone, and its claim with it."""
        self.model.objects.remove_pod(f"default/{name}")
        obj = self.claims.pop(f"claim-{name}")
        self.model.features.claims.remove(views.decode_device_claim(views.encode(obj)))

    def slice(self, obj: dict[str, Any]) -> None:
        """A driver tells anew what it has."""
        self.model.features.claims.upsert(views.decode_resource_slice(views.encode(obj)))

    def why(self, name: str) -> str:
        key = f"default/pod:{name}"
        found = self.model.explanation(key) or self.engine.explain(key, self.now)
        assert found is not None
        return f"{found.code}: {found.message}"

    def charged(self, name: str) -> dict[str, int]:
        """What the pod's queue is charged, as it was told last."""
        (task,) = (one for one in self.model.sent_tasks().values() if one.key == f"default/{name}")
        return {key: units for key, units in task.needs.request if key not in ("cpu", "pods")}

    def amounts(self, name: str) -> dict[str, int]:
        self.engine.apply(self.model.take(self.now))
        (found,) = (
            d.node
            for d in self.model.sent_deltas()
            if isinstance(d, deltas.NodeUpserted) and d.node.name == name
        )
        return {key: units for key, units in found.allocatable.items() if key.endswith("/accelerator")}


def gpus(where: str, *roots: str, **fields: Any) -> dict[str, Any]:
    """A node's GPUs, each below a PCIe root."""
    found = [device(f"gpu-{at}", {ROOT: root, "index": at}, **fields) for at, root in enumerate(roots)]
    return devices_of(where, GPU, *found)


def nics(where: str, *roots: str) -> dict[str, Any]:
    return devices_of(where, NIC, *[device(f"nic-{at}", {ROOT: root}) for at, root in enumerate(roots)])
