"""ReplicaSets of a Deployment during one reconciliation: revisions, sizes, templates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from windlass.api.resources import REPLICA_SETS
from windlass.controllers.apps.amounts import rolling_limits, scaled
from windlass.controllers.apps.template_hash import POD_TEMPLATE_HASH, template_hash, without_hash
from windlass.controllers.effects import Create, EmitEvent, Patch, controller_reference

Json = dict[str, Any]
REVISION = "deployment.kubernetes.io/revision"
REVISION_HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAXIMUM = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED = frozenset(
    (
        "kubectl.kubernetes.io/last-applied-configuration",
        REVISION,
        REVISION_HISTORY,
        DESIRED,
        MAXIMUM,
        "deprecated.deployment.rollback.to",
    )
)
_HISTORY_LENGTH = 2_000
"""Maximum length of the list of earlier revisions, in characters."""
_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True)
class RolloutLimits:
    """Numbers that a rollout keeps to.

    ``surge``: pods beyond ``desired``. ``unavailable``: pods of ``desired`` that may be
    unavailable. ``rolling``: whether old and new pods may exist together.
    """

    desired: int
    surge: int
    unavailable: int
    rolling: bool

    @property
    def maximum(self) -> int:
        return self.desired + self.surge

    @property
    def least_available(self) -> int:
        return self.desired - self.unavailable


def read_limits(spec: Mapping[str, Any]) -> RolloutLimits:
    """Return the limits of a Deployment's spec."""
    replicas = spec.get("replicas")
    desired = 1 if replicas is None else int(replicas)
    strategy = spec.get("strategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return RolloutLimits(desired, 0, 0, rolling=False)
    rolling = strategy.get("rollingUpdate") or {}
    surge, unavailable = rolling_limits(
        rolling.get("maxSurge", "25%"), rolling.get("maxUnavailable", "25%"), desired
    )
    return RolloutLimits(desired, surge, min(unavailable, desired), rolling=True)


@dataclass(slots=True, eq=False)
class ManagedSet:
    """ReplicaSet with the changes of this reconciliation.

    ``created``: it does not exist yet. ``replicas``, ``annotations`` and ``settled``
    (``minReadySeconds``) may be changed; :meth:`action` writes the difference.
    """

    obj: Json
    created: bool = False
    replicas: int = field(init=False)
    annotations: dict[str, str] = field(init=False)
    settled: int = field(init=False)

    def __post_init__(self) -> None:
        spec = self.obj.get("spec") or {}
        self.replicas = _replicas(spec)
        self.annotations = dict(self.obj["metadata"].get("annotations") or {})
        self.settled = spec.get("minReadySeconds") or 0

    @property
    def name(self) -> str:
        return self.obj["metadata"]["name"]

    @property
    def uid(self) -> str:
        return self.obj["metadata"].get("uid", "")

    @property
    def deleting(self) -> bool:
        return bool(self.obj["metadata"].get("deletionTimestamp"))

    @property
    def template(self) -> Mapping[str, Any]:
        return (self.obj.get("spec") or {}).get("template") or {}

    @property
    def status(self) -> Mapping[str, Any]:
        return self.obj.get("status") or {}

    @property
    def age_order(self) -> tuple[str, str]:
        """Order by creation, the oldest first."""
        return self.obj["metadata"].get("creationTimestamp") or "9", self.name

    @property
    def revision(self) -> int:
        text = self.annotations.get(REVISION, "")
        return int(text) if text.isdecimal() else 0

    def count(self, name: str) -> int:
        """Return a number of the status: ``replicas``, ``readyReplicas`` and so on."""
        return int(self.status.get(name) or 0)

    def set_sizes(self, limits: RolloutLimits) -> None:
        """Note the sizes of the Deployment that this size was chosen for."""
        self.annotations[DESIRED] = str(limits.desired)
        self.annotations[MAXIMUM] = str(limits.maximum)

    def note_revision(self, revision: int) -> None:
        """Give the set a newer revision, and keep the earlier ones in its history."""
        before = self.annotations.get(REVISION)
        if self.revision >= revision:
            return
        self.annotations[REVISION] = str(revision)
        if before is None:
            return
        history = [one for one in self.annotations.get(REVISION_HISTORY, "").split(",") if one]
        while history and len(",".join([*history, before])) > _HISTORY_LENGTH:
            del history[0]
        self.annotations[REVISION_HISTORY] = ",".join([*history, before])

    def copy_annotations(self, deployment: Mapping[str, str]) -> None:
        self.annotations |= {name: text for name, text in deployment.items() if name not in _NOT_COPIED}

    def action(self, event: EmitEvent | None) -> Create | Patch | None:
        """Return the write of this reconciliation; ``None`` if nothing changed."""
        metadata, spec = self.obj["metadata"], self.obj.get("spec") or {}
        if self.created:
            body = {**self.obj, "metadata": {**metadata, "annotations": self.annotations}}
            body["spec"] = {**spec, "replicas": self.replicas}
            return Create(REPLICA_SETS, body, event)
        patch: Json = {}
        before = metadata.get("annotations") or {}
        changed = {name: text for name, text in self.annotations.items() if before.get(name) != text}
        if changed:
            patch["metadata"] = {"annotations": changed}
        if self.replicas != _replicas(spec):
            patch["spec"] = {"replicas": self.replicas}
        if self.settled != (spec.get("minReadySeconds") or 0):
            patch.setdefault("spec", {})["minReadySeconds"] = self.settled
        if not patch:
            return None
        return Patch(
            REPLICA_SETS,
            self.name,
            patch,
            metadata.get("namespace"),
            uid=self.uid,
            resource_version=metadata.get("resourceVersion"),
            event=event,
        )


def _replicas(spec: Mapping[str, Any]) -> int:
    replicas = spec.get("replicas")
    return 1 if replicas is None else int(replicas)


def find_new(deployment: Json, sets: Iterable[ManagedSet]) -> ManagedSet | None:
    """Return the oldest set with the template of the Deployment; ``None`` if there is none."""
    wanted = without_hash((deployment.get("spec") or {}).get("template") or {})
    return next(
        (one for one in sorted(sets, key=lambda one: one.age_order) if without_hash(one.template) == wanted),
        None,
    )


def build_new(resource: Any, deployment: Json, limits: RolloutLimits, others: int) -> ManagedSet:
    """Return a new set with the template of the Deployment.

    ``others``: number of pods of the other sets.
    """
    spec, metadata = deployment["spec"], deployment["metadata"]
    template = spec.get("template") or {}
    hashed = template_hash(without_hash(template), (deployment.get("status") or {}).get("collisionCount"))
    labels = {**((template.get("metadata") or {}).get("labels") or {}), POD_TEMPLATE_HASH: hashed}
    selector = {**(spec.get("selector") or {})}
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), POD_TEMPLATE_HASH: hashed}
    body: Json = {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": set_name(metadata["name"], hashed),
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [controller_reference(resource, deployment)],
        },
        "spec": {
            "replicas": 0,
            "selector": selector,
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
        },
    }
    if spec.get("minReadySeconds"):
        body["spec"]["minReadySeconds"] = spec["minReadySeconds"]
    found = ManagedSet(body, created=True)
    found.replicas = new_replicas(spec, limits, 0, others)
    return found


def set_name(deployment: str, hashed: str) -> str:
    return f"{deployment[: _NAME_LENGTH - 1 - len(hashed)]}-{hashed}"


def new_replicas(spec: Mapping[str, Any], limits: RolloutLimits, present: int, total: int) -> int:
    """Return the size to which the new set may grow now.

    ``present``: its size. ``total``: pods of all sets.
    """
    if not limits.rolling:
        return limits.desired
    surge = ((spec.get("strategy") or {}).get("rollingUpdate") or {}).get("maxSurge", "25%")
    maximum = limits.desired + scaled(surge, limits.desired, up=True)
    if total >= maximum:
        return present
    return present + min(maximum - total, limits.desired - present)
